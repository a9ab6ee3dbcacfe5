//! Every constant of the crate that is a choice or a limit, in one table.
//!
//! Each says its unit and its reason, and after *tried* the experiment with other values: in `docs/budget.md` or
//! `measurements/budget-history.md` where only a date is given. *Not varied*: nobody has tried another value. *Score*:
//! interrupts, IOPS and cycles over `none`, as `coalesce-sim score --policies none,auto` prints them with one constant changed,
//! 2026-11-30; as they were, .481, 1.061, .887 (since 2026-12-01 .478, 1.062, .886). A score alone is no reason: a licence that
//! chance gives, or a load that a trial harms, is seen in `coalesce-sim contract` only.

// ---- numbers

/// Bits. The account counts requests * ticks * 2^-SHIFT, and shares are parts of 2^SHIFT: so a budget of 0.01 % is more than one
/// part. *Tried*: 12, with which 0.01 % became 0.024 % (2026-11-23).
pub(crate) const SHIFT: u32 = 14;
/// Commands. They are counted up to here: 16 bits each, which keeps the state small.
pub(crate) const MOST: u32 = u16::MAX as u32;
/// Ticks. No configured time is longer, and no more is counted between two calls: sums of ages stay in 31 bits.
pub(crate) const SPAN_MAX: u32 = 1 << 29;
/// Ticks. Ages stop here: every span has expired by then.
pub(crate) const AGE_MAX: u32 = 2 * SPAN_MAX;
/// Requests * ticks * 2^SHIFT. The least credit: only a caller that meets no deadline comes near it, and it must not wrap.
pub(crate) const DEEPEST_DEBT: i64 = -1 << 62;

// ---- the account, and when it holds

/// The weight of one gap in the usual gap is 2^-GAP_SHIFT, and a hold ends after 2^GAP_SHIFT usual gaps without a completion. One
/// number for both, so that eight usual gaps are what is stored. *Not varied.*
pub(crate) const GAP_SHIFT: u8 = 3;
/// Without a licence no more are held once 2^HELD_SHIFT * ε of what is outstanding are: with more, client and device wait for each
/// other in turn (a memory disk at depth 32, 2026-11-23). *Not varied.*
pub(crate) const HELD_SHIFT: u32 = 1;
/// The credit is limited to what is earned in 2^SAVED_SHIFT times `max_hold`, or a burst could spend all that an hour of light
/// load has earned. Score with 1: .482, 1.062, .888; with 3: .481, 1.061, .887.
pub(crate) const SAVED_SHIFT: u32 = 2;

// ---- what trials of a licence may cost: C0

/// C0 is at most 2^LEARNING_SHIFT times `max_hold`: 64 ms of one request's time. *Tried*: 7; two of the 80 on/off loads were over
/// 1.06, and none with 5 (2026-11-30).
pub(crate) const LEARNING_SHIFT: u32 = 5;
/// Of that, a load that has spent no time yet gets 2^FIRST_SHIFT times `max_hold`; for what it has spent it gets 2^-SPENT_SHIFT
/// of its time. *Tried*: 3 and 6, before slower loads were tried; with both halved the worst of 80 on/off loads was 1.046 (1.064)
/// (commit a7474a49, 2026-11-27, which changed more than this).
pub(crate) const FIRST_SHIFT: u32 = 2;
pub(crate) const SPENT_SHIFT: u32 = 7;
/// Trials. Both are multiplied by 1 + the number of trials so far, of which at most these count, while the mean gain is at least half of
/// what a licence needs: a load that gains nothing from holding is tried less. *Tried*: 7, with which a slow virtio-blk guest has a
/// licence in its first attempt, and 5; with either, three of 438 loads that gain nothing have one by chance in their first half
/// second (2026-12-01).
pub(crate) const EVIDENCE_MAX: u8 = 3;
/// A trial of a licence begins while the debt is at most this part of C0: with less left it would soon end unpaid. *Not varied.*
pub(crate) const DEBT_TO_TRY: (i64, i64) = (3, 4);

// ---- what is held for its number

/// With a licence, and in its trials, a silence is at most 2^-PATIENCE_SHIFT of `max_hold`: where completions are rare, the last
/// one before a pause of the load would wait for it in vain. *Tried*: no such limit, which allowed no trial below 16 000
/// completions a second (commit a7474a49, 2026-11-27).
pub(crate) const PATIENCE_SHIFT: u8 = 2;
/// Holds. So many more that starved than were filled end a licence or its trial. A guest with 32 reads in flight that waits for
/// its CPU has them come one by one for a while. *Tried*: 4, which ended nearly every climb of such a guest before it was certain
/// (2026-11-27).
pub(crate) const STARVED_MAX: u16 = 12;
/// Completions for each interrupt, at most, of a licence. *Tried*: 16; a guest with 32 in flight has 1.45 x the IOPS then and not 1.36, and a
/// requester that waits for each request beside such a flood takes 4.2 x its time and not 2.7 (2026-11-30).
pub(crate) const LICENSED_MAX: u8 = 8;
/// And no more than this multiple of ε: who states a small budget means it. 8 from 5 % on. *Not varied.*
pub(crate) const LICENSED_SHARE: u32 = 160;

// ---- trials

/// Stretches: less, more, more, less; or more, less, less, more. So a load that gets slower or faster by itself shows both.
/// *Tried*: one order for all, which licensed an on/off load whose period was half a trial, for a minute (2.2 x, 2026-11-26).
pub(crate) const STRETCHES: usize = 4;
/// Completions of a stretch that do not count, and those that do. A power of two each. *Tried*: 16 and 32 to measure, and more
/// than 64: they tell less for what they hold (2026-11-30); at least an eighth or half of `max_hold`: .482 and .519 of the
/// interrupts on the scoreboard, where it had .476 (2026-11-28).
pub(crate) const SETTLE: u16 = 16;
pub(crate) const MEASURE: u16 = 64;
/// A gap counts for at most 2^-LONG of what the completions with less holding took in the last trial, so for sixteen of theirs:
/// twice what lies between two interrupts of the largest licence. Longer ones are other programs' time. *Tried*: trials until a
/// licence for 8, 4, 2 is certain, beside one that takes a CPU half of the time: 45, 82, 340 without a limit, 29, 43, 140 with 3,
/// 23, 30, 103 with 4, which hides a part of what holding costs (2026-11-30).
pub(crate) const LONG: u32 = 3;
/// The shortest pause between trials, in stretches of MEASURE: a power of two. It doubles at most RARE_MAX times while trials
/// find nothing new. Score with a PAUSE of 8: .487, 1.061, .888; of 32: .483, 1.057, .889.
pub(crate) const PAUSE: u16 = 16;
pub(crate) const RARE_MAX: u8 = 5;
/// A licence is tried where completions come, pauses included, at least 2^FREQUENT_SHIFT times in `max_hold`: with fewer an
/// interrupt for each costs little. *Tried*: 5, 16 000 a second in the usual gap: most emulated guests of one machine were never
/// tried; without any limit three of 60 random loads were over 1.06, and two of 100 (2026-11-27).
pub(crate) const FREQUENT_SHIFT: u32 = 3;

// ---- cuts

/// Trials. The lead of lost over won ones that cuts ε, or of won over lost ones that takes a cut back: two runs of one stretch
/// differ by up to a third. *Tried*: one won trial took all back, which resumed holding by chance (2026-11-23). Score with 2:
/// .487, 1.062, .889; with 8: .480, 1.061, .887.
pub(crate) const EVIDENCE: i8 = 4;
/// Cuts of ε, each to 2^-CUT_SHIFT of it; after the last one nothing is held. *Tried*: one cut to nothing has the same
/// scoreboard; with several a client of an SPDK disk of 80 us keeps the part that pays (2026-11-23).
pub(crate) const CUTS: u8 = 3;
pub(crate) const CUT_SHIFT: u8 = 2;

// ---- climbs

/// The square of the summed gains over the sum of their squares that is certain: a t-test without a division. Each doubling of
/// the pause raises it by one, as a load that often gained nothing needs more evidence. CERTAIN + 1 equal gains exceed it.
/// *Tried*: with 5 two of 160 random loads were over 1.06 by a licence that chance gave, with 6 none (2026-11-27); with 8 the
/// scoreboard has .493, 1.059, .890 (2026-11-30).
pub(crate) const CERTAIN: u32 = 6;
/// A threshold like CERTAIN: up to here a sum may be chance. In an emulated guest at depth 32 a trial for 2, 4, 8 gained 11, 33,
/// 52 parts beside builds, with a standard deviation of 37, 41, 34: to be certain takes 70, 15, 9 trials (2026-11-30). *Not
/// varied.*
pub(crate) const DOUBT: u32 = 2;
/// Trials of an attempt, at most; and those after which it ends if it may be chance and a larger licence is left, or the mean
/// gain is below half of FIRST or FURTHER. *Tried*: attempts of up to 64, not taken (2026-11-29). Score with a FEW of 3: .477,
/// 1.061, .887; of 12: .478, 1.061, .887.
pub(crate) const TRIALS: u8 = 24;
pub(crate) const FEW: u8 = 6;
/// Parts of 256, of half the difference: the smallest mean gain that is worth the first licence, 6 % of the time, and a further
/// one, 3 %. Score with a FIRST of 4: .471, 1.062, .885, and the worst mean latency is 6.95 x, where it is 4.01 x; with 16: .498,
/// 1.054, .892. With a FURTHER of 2: .476, 1.062, .887; with 8: .496, 1.059, .889.
pub(crate) const FIRST: u16 = 8;
pub(crate) const FURTHER: u16 = 4;
/// Doublings of the pause after a licence that was given in vain. Score with 1: .481, 1.061, .887; with 5: .479, 1.061, .886.
pub(crate) const DECEIVED: u8 = 3;

// ---- checks

/// Checks lost in a row that halve a licence, at least, or 2^-PATIENCE_OF_TRIALS of the trials that it took: where it took many,
/// single ones say little. *Tried*: 2 for all; a licence that took twenty trials was lost to one pair of checks in ten by chance
/// (2026-11-30).
pub(crate) const PATIENCE: u8 = 2;
pub(crate) const PATIENCE_OF_TRIALS: u8 = 2;
/// Checks. From this number on the old ones count half, so that a licence can lose what it has gained. *Not varied.*
pub(crate) const OLD_CHECKS: u8 = 12;
/// A licence is checked at once if completions take more than this of what they took with it in the last trial that was certain.
/// *Not varied.*
pub(crate) const SLOWER: (u32, u32) = (3, 2);
/// And it is withdrawn if they take more than this: the load is another one. *Tried*: of 20 random loads that follow a flood two
/// and three over 1.06 with 6 and 8, where 4 has one; withdrawn at SLOWER, guests under noise lose it (2026-12-01).
pub(crate) const ANOTHER: (u32, u32) = (4, 1);

// ---- the bypass

/// Where POLLS polls of a device complete at least BATCH commands each on average, which is what the largest licence waits for,
/// they coalesce enough by themselves: asking the policy costs more than it could save. It is bypassed for BYPASS interrupts, a
/// part of a pause. The same where the requester was alone in all of them, until it is not, and where the account is cut to
/// nothing, until the next trial. *Tried*: a BATCH of 16: SPDK lost a fifth of the IOPS of a malloc bdev at depth 32, whose polls
/// complete up to 16 (2026-11-29). POLLS and BYPASS: *not varied*.
pub(crate) const POLLS: u8 = 64;
pub(crate) const BATCH: u16 = LICENSED_MAX as u16;
pub(crate) const BYPASS_WINDOWS: u16 = 16;
pub(crate) const BYPASS: u16 = BYPASS_WINDOWS * MEASURE;
/// Of one poll no more are counted than this multiple of BATCH, so that a few large ones do not decide. *Not varied.*
pub(crate) const BATCHES: u16 = 2;
