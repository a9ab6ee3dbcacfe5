//! The constants of the algorithm in one table: what each is for, and the experiment that chose it (`docs/budget.md`).

/// The unit of the account is a request * tick * 2^-SHIFT: so fine that a budget of 0.01 % is more than one part.
pub(crate) const SHIFT: u32 = 14;

/// Commands are counted up to here.
pub(crate) const MOST: u32 = u16::MAX as u32;

/// No configured time is longer, and no more is counted between two calls.
pub(crate) const SPAN_MAX: u32 = 1 << 29;
/// Ages saturate here: every span has expired by then.
pub(crate) const AGE_MAX: u32 = 2 * SPAN_MAX;

/// The weight of one gap in the usual gap is 2^-GAP_SHIFT, and a hold ends after 2^GAP_SHIFT usual gaps without a completion.
pub(crate) const GAP_SHIFT: u8 = 3;

/// The credit is limited to what is earned in 2^SAVED_SHIFT times `max_hold`, or a burst could spend all that an hour of
/// light load has earned.
pub(crate) const SAVED_SHIFT: u32 = 2;

/// C0, what trials may take beyond what was earned, is at most 2^LEARNING_SHIFT times `max_hold`.
pub(crate) const LEARNING_SHIFT: u32 = 5;
/// Of that, a load that has spent no time yet gets 2^FIRST_SHIFT times `max_hold`; for what it has spent it gets
/// 2^-SPENT_SHIFT of its time. Both are multiplied by 1 + the trials so far, up to EVIDENCE_MAX of them, while their mean gain is at
/// least half of what is worth a licence: who gains nothing from holding is tried less.
pub(crate) const FIRST_SHIFT: u32 = 2;
pub(crate) const SPENT_SHIFT: u32 = 7;

/// What speaks for a licence, at most.
pub(crate) const EVIDENCE_MAX: u8 = 3;
/// With a licence, and in its trials, a silence is at most 2^-PATIENCE_SHIFT of `max_hold`: where completions are rare, the last one
/// before a pause of the load would wait for it in vain.
pub(crate) const PATIENCE_SHIFT: u8 = 2;
/// A hold with a licence counts against it if it ends because nobody comes any more, and for it if it fills. At
/// STARVED_MAX the licence or its trial ends. A guest with 32 reads in flight that waits for its CPU has them come one by one for a
/// while: with 4 such a while ended nearly every climb before it was certain.
pub(crate) const STARVED_MAX: u16 = 12;

/// The most completions for each interrupt that a licence allows. With sixteen a guest with 32 in flight has 1.45 x the IOPS and
/// not 1.36, and a requester that waits for each request beside such a flood takes 4.2 x its time and not 2.7 (2026-11-30, simulated).
pub(crate) const LICENSED_MAX: u8 = 8;
/// And no more than this multiple of ε: who states a small budget means it.
pub(crate) const LICENSED_SHARE: u32 = 160;
