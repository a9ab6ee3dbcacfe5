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
pub(crate) const GAP_SHIFT: u32 = 3;

/// The credit is limited to what is earned in 2^SAVED_SHIFT times `max_hold`, or a burst could spend all that an hour of
/// light load has earned.
pub(crate) const SAVED_SHIFT: u32 = 2;

/// C0, what probes may take beyond what was earned, is at most 2^LEARNING_SHIFT times `max_hold`.
pub(crate) const LEARNING_SHIFT: u32 = 5;
/// Of that, a load that has spent no time yet gets 2^FIRST_SHIFT times `max_hold`; for what it has spent it gets
/// 2^-SPENT_SHIFT of its time. Both are multiplied by 1 and the evidence that there is a depth: who pauses by himself is
/// probed less.
pub(crate) const FIRST_SHIFT: u32 = 4;
pub(crate) const SPENT_SHIFT: u32 = 6;

/// The first probe begins with this completion, or later.
pub(crate) const FIRST_PROBE: u16 = 16;
/// Completions between two probes: 2^SOON_SHIFT of those found while that may be chance, else 2^LATER_SHIFT, doubled for
/// each probe in vain, at most VAIN_MAX times.
pub(crate) const SOON_SHIFT: u32 = 3;
pub(crate) const LATER_SHIFT: u32 = 7;
pub(crate) const VAIN_MAX: u8 = 6;
/// A probe ends after 2^PROBE_SHIFT silences: of fio's own pauses in a guest one in a hundred is longer.
pub(crate) const PROBE_SHIFT: u32 = 1;
/// No probe begins where a silence would take more than 2^-RARE_SHIFT of `max_hold`: the next is due after TOO_RARE
/// completions.
pub(crate) const RARE_SHIFT: u32 = 2;
pub(crate) const TOO_RARE: u16 = 256;

/// A find that holds is one piece of evidence, one that does not takes REFUTED of them. With PROVEN of them the depth is
/// proven. Of 550 random open loads 7 got so far, and none of them to a licence.
pub(crate) const PROVEN: u8 = 3;
pub(crate) const EVIDENCE_MAX: u8 = 4;
pub(crate) const REFUTED: u8 = 2;
/// The submissions after a find that are watched, at most.
pub(crate) const WATCHED_MAX: u8 = 6;

/// With a licence, the most completions held at once; and no more than 10 ε of the depth. Beyond eight, a guest gains little and one
/// of its requesters that waits for each request loses more.
pub(crate) const LICENSED_MAX: u32 = 8;
pub(crate) const LICENSED_SHARE: u32 = 10;
/// The smallest depth that a licence is for.
pub(crate) const LICENSED_DEPTH: u16 = 4;
