//! Δ and thr for a device and its load, as cinterrupts §5.2 determines them.
//!
//! Δ should approximate the time between completions of a burst: it is a percentile of the gaps between completions,
//! where gaps longer than a limit are pauses between bursts and do not count. The paper reads 6 µs off Optane's 90th
//! percentile and 15 µs off the P3700's 99th; where loads differ it takes the longer. thr is then the smallest with
//! throughput on the plateau.
//!
//! In a trace throughput is what it was. What it could be is bounded by the CPU: an I/O costs a number of cycles, an interrupt
//! a number more. In a simulation it is what the simulated host reaches. And the paper's loads are 256 deep, where no Δ is long
//! beside a request. A trace may be of any load, so there Δ is never longer than what helps within a budget of the requests' time.

#[cfg(feature = "cli")]
pub mod command;

use crate::contender::Contender;
use crate::cycles::Cycles;
use crate::engine::{Wanted, simulate};
use crate::event::What;
use crate::outcome;
use crate::plan::{Device, Kind, Plan, Preset, Thread};
use crate::replay::optimum::Budget;
use crate::replay::{Outcome, replay};
use crate::trace::{Moment, Trace};
use crate::units::Time;
use anyhow::{Context as _, Result, bail};
use coalesce_cli::counted;
use coalesce_policy::CintSpec;
use hdrhistogram::Histogram;

/// Values of thr that are tried, as the paper sweeps them.
pub const THRS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Percentiles of the gaps that are tried as Δ, up to the one that is wanted.
const PERCENTILES: [f64; 8] = [5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0];
/// The clock of the CPU whose throughput bounds that of a trace, in Hz: the paper's.
pub const CLOCK_HZ: f64 = 2e9;
/// Gaps are recorded up to this long, in ns.
const GAP_MAX: u64 = 10_000_000_000;

/// The gaps between completions under one load.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// The load, in a word.
    pub load: &'static str,
    /// In ns.
    pub gaps: Histogram<u64>,
    /// Completions of a trace.
    pub completions: u64,
    /// The percentage of them that found nothing else in flight: there is no burst to detect.
    pub alone_percent: f64,
}

impl Gaps {
    fn new(load: &'static str) -> Self {
        let gaps = Histogram::new_with_bounds(1, GAP_MAX, 3).expect("the bounds are in order");
        Self { load, gaps, completions: 0, alone_percent: 0.0 }
    }

    /// The percentile of those gaps that are no longer than `limit`, in ns, rounded up to two digits; `None`: there are
    /// none.
    #[must_use]
    pub fn delta(&self, percent: f64, limit: u64) -> Option<u64> {
        let short = self.gaps.count_between(0, limit);
        let wanted = (short as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        for bucket in self.gaps.iter_recorded() {
            seen += bucket.count_since_last_iteration();
            if seen >= wanted.max(1) && short > 0 {
                return Some(two_digits(bucket.value_iterated_to()).min(limit));
            }
        }
        None
    }
}

/// Rounds up to two digits: 5871 becomes 5900.
fn two_digits(ns: u64) -> u64 {
    let unit = 10u64.pow(ns.checked_ilog10().unwrap_or(0).saturating_sub(1));
    ns.div_ceil(unit) * unit
}

/// What one pair of Δ and thr gives.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// Δ, in ns.
    pub delta: u64,
    /// thr.
    pub thr: u32,
    /// I/O per second: of the simulated host, or the most of one CPU at [`CLOCK_HZ`].
    pub iops: f64,
    /// Interrupts for each completion.
    pub interrupts_per_io: f64,
    /// The part of the time of all requests that they were held.
    pub held_share: f64,
    /// 99 % of the delays are not longer, in ns.
    pub delay_p99: u64,
}

/// The first of those that hold no more than `held_max`, a part of 1, whose throughput is on their plateau: no more than
/// `percent` below the best.
#[must_use]
pub fn on_plateau(tried: &[Tried], percent: f64, held_max: f64) -> Option<Tried> {
    let allowed = || tried.iter().filter(|tried| tried.held_share <= held_max);
    let best = allowed().map(|tried| tried.iops).fold(0.0, f64::max);
    allowed().find(|tried| tried.iops >= best * (1.0 - percent / 100.0)).copied()
}

/// How Δ and thr are chosen for a trace.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Δ is at most this percentile of the gaps.
    pub percentile: f64,
    /// Gaps longer than this are pauses, in ns.
    pub delta_max: u64,
    /// How far below the best is on the plateau, in percent.
    pub plateau: f64,
    /// How much of the requests' time may be holding.
    pub budget: Budget,
    /// What an I/O and an interrupt cost.
    pub cycles: Cycles,
}

impl Default for Terms {
    fn default() -> Self {
        let budget = "5%".parse().expect("a share");
        Self { percentile: 90.0, delta_max: 100_000, plateau: 1.0, budget, cycles: Cycles::PAPER }
    }
}

/// What was chosen, and why.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Δ and thr.
    pub tried: Tried,
    /// The policy with these values, and all that makes it safe.
    pub policy: Contender,
    /// Under each load.
    pub gaps: Vec<Gaps>,
    /// Values of Δ that were tried, from the shortest on, with the thr of the policy's default.
    pub deltas: Vec<Tried>,
    /// Values of thr that were tried, with the Δ that was chosen.
    pub thrs: Vec<Tried>,
}

/// Δ and thr of a trace, which `open` opens three times.
///
/// Δ begins as the paper's percentile of the gaps, and ends as the shortest of the percentiles up to it that helps as much
/// without holding more than the budget: where requests are few, a gap is as long as a request, and waiting for it doubles
/// their time. thr is then the smallest that helps as much.
///
/// # Errors
/// The trace is malformed, has no two completions within `delta_max`, or its gaps are longer than a Δ may be.
pub fn of_trace(open: impl Fn() -> Result<Trace>, terms: &Terms) -> Result<Chosen> {
    let gaps = gaps_of_trace(&mut open()?)?;
    let held_max = terms.budget.share();
    let pairs: Vec<_> = deltas(&gaps, terms)?.into_iter().map(|delta| (delta, CintSpec::DEFAULT.thr.into())).collect();
    let deltas = try_on_trace(&mut open()?, &pairs, terms.cycles)?;
    // Without a hold there is none that is too long.
    let Tried { delta, .. } = on_plateau(&deltas, terms.plateau, held_max).unwrap_or(deltas[0]);
    let pairs = THRS.map(|thr| (delta, thr));
    let thrs = try_on_trace(&mut open()?, &pairs, terms.cycles)?;
    let tried = on_plateau(&thrs, terms.plateau, held_max).unwrap_or(thrs[0]);
    Ok(Chosen { tried, policy: policy(delta, tried.thr)?, gaps: vec![gaps], deltas, thrs })
}

/// cint as it is calibrated for a replay, and the completions that were seen.
///
/// # Errors
/// As [`of_trace`].
pub fn for_replay(open: &dyn Fn() -> Result<Trace>, cycles: Cycles) -> Result<(Contender, u64)> {
    let chosen = of_trace(open, &Terms { cycles, ..Terms::default() })?;
    let seen = chosen.gaps.iter().map(|gaps| gaps.completions).sum();
    Ok((chosen.policy, seen))
}

/// Values of Δ to try: nothing, and the gaps' percentiles up to the one that is wanted.
fn deltas(gaps: &Gaps, terms: &Terms) -> Result<Vec<u64>> {
    let longest = longest_delta(std::slice::from_ref(gaps), terms)?;
    let shorter = PERCENTILES.into_iter().filter(|&percentile| percentile < terms.percentile);
    let mut deltas: Vec<_> = shorter.filter_map(|percentile| gaps.delta(percentile, terms.delta_max)).collect();
    deltas.extend([0, longest]);
    deltas.sort_unstable();
    deltas.dedup();
    Ok(deltas)
}

/// The paper's Δ: the longest that any of the loads asks for.
fn longest_delta(gaps: &[Gaps], terms: &Terms) -> Result<u64> {
    let delta = gaps.iter().filter_map(|gaps| gaps.delta(terms.percentile, terms.delta_max)).max();
    delta.with_context(|| {
        format!("no two completions are within {} of each other: raise --delta-max", micros(terms.delta_max))
    })
}

/// A duration in ns as people read it: 5.9 µs.
pub(crate) fn micros(ns: u64) -> String {
    let text = format!("{:.3}", ns as f64 / 1000.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned() + " µs"
}

/// The policy with these values, and all that makes it safe.
///
/// # Errors
/// A value that is not allowed.
fn policy(delta: u64, thr: u32) -> Result<Contender> {
    Ok(format!("cint:delta={delta}ns,thr={thr}").parse()?)
}

/// The gaps of a trace, on each of its queues.
fn gaps_of_trace(trace: &mut Trace) -> Result<Gaps> {
    let mut gaps = Gaps::new("trace");
    let mut queues: Vec<(u64, Option<u64>)> = Vec::new(); // in flight, last completion
    let (mut alone, mut completions) = (0u64, 0u64);
    while let Some(step) = trace.step()? {
        if queues.len() <= step.queue {
            queues.resize(step.queue + 1, (0, None));
        }
        let (in_flight, last) = &mut queues[step.queue];
        match step.what {
            Moment::Submit { .. } => *in_flight += 1,
            Moment::Complete { .. } => {
                alone += u64::from(*in_flight <= 1);
                completions += 1;
                *in_flight = in_flight.saturating_sub(1);
                if let Some(last) = last.replace(step.at) {
                    gaps.gaps.saturating_record(step.at - last);
                }
            }
            Moment::Lost => *in_flight = in_flight.saturating_sub(1),
        }
    }
    if completions < 2 {
        bail!("too few: {}", counted(completions, "completion"));
    }
    gaps.completions = completions;
    gaps.alone_percent = 100.0 * alone as f64 / completions as f64;
    Ok(gaps)
}

/// What each pair of Δ and thr gives on a trace, as the whole policy.
fn try_on_trace(trace: &mut Trace, pairs: &[(u64, u32)], cycles: Cycles) -> Result<Vec<Tried>> {
    let contenders = pairs.iter().map(|&(delta, thr)| policy(delta, thr)).collect::<Result<Vec<_>>>()?;
    let replay = replay(trace, &contenders, None)?;
    let tried = |(&(delta, thr), outcome): (&(u64, u32), &Outcome)| Tried {
        delta,
        thr,
        iops: CLOCK_HZ / cycles.per_io(outcome.interrupts_per_io()),
        interrupts_per_io: outcome.interrupts_per_io(),
        held_share: replay.held_share(outcome),
        delay_p99: outcome.delay.value_at_quantile(0.99),
    };
    Ok(pairs.iter().zip(&replay.outcomes).map(tried).collect())
}

/// The paper's load for this (§5.2): reads of 4 KiB by one thread with libaio, 256 in flight.
fn load(preset: Preset, batch: u32) -> Plan {
    let mut plan = Plan::new("calibrate", Device::preset(preset));
    (plan.warmup, plan.duration) = (Time::ms(20), Time::ms(200));
    let thread = Thread { depth: Some(256), batch: Some(batch), ..Thread::new("libaio", Kind::Async) };
    (plan.threads, plan.policies) = (vec![thread], vec!["none".into()]);
    plan
}

/// Loads of the paper: one command at a time, and batches of 16.
const LOADS: [(&str, u32); 2] = [("one by one", 1), ("batches", 16)];

/// Δ and thr of a simulated device, as the paper has them: Δ is the percentile, and burst detection is tried alone, without
/// hints and other limits.
///
/// # Errors
/// No gap is short enough.
pub fn of_device(preset: Preset, terms: &Terms) -> Result<Chosen> {
    let gaps = gaps_of_device(preset)?;
    let delta = longest_delta(&gaps, terms)?;
    let thrs = try_on_device(preset, delta)?;
    let tried = on_plateau(&thrs, terms.plateau, f64::INFINITY).context("nothing was tried")?;
    Ok(Chosen { tried, policy: policy(delta, tried.thr)?, gaps, deltas: Vec::new(), thrs })
}

/// What policies do on a simulated device, under the load in batches.
///
/// # Errors
/// A parameter that a clock in ns cannot carry.
pub fn on_device(preset: Preset, policies: &[Contender]) -> Result<Vec<outcome::Outcome>> {
    let point = load(preset, LOADS[1].1).points()?.remove(0);
    let outcome = |policy| Ok(simulate(&point, policy, &Wanted { progress: None, timeline: None })?.outcome);
    policies.iter().map(outcome).collect()
}

/// The gaps that a simulated device gives under both of the paper's loads.
fn gaps_of_device(preset: Preset) -> Result<Vec<Gaps>> {
    let none = Contender::Policy(coalesce_policy::Spec::None);
    let of = |(name, batch)| {
        let plan = load(preset, batch);
        let point = plan.points()?.remove(0);
        let wanted = Wanted { progress: None, timeline: Some((plan.warmup.0, 1 << 18)) };
        let run = simulate(&point, &none, &wanted)?;
        let mut gaps = Gaps::new(name);
        let completions =
            |event: &crate::event::Event| matches!(event.what, What::Completion { .. }).then_some(event.at);
        for timeline in &run.timelines {
            let ends: Vec<_> = timeline.iter().filter_map(completions).collect();
            ends.windows(2).for_each(|pair| gaps.gaps.saturating_record(pair[1] - pair[0]));
        }
        Ok(gaps)
    };
    LOADS.into_iter().map(of).collect()
}

/// What each thr gives on a simulated device.
fn try_on_device(preset: Preset, delta: u64) -> Result<Vec<Tried>> {
    let adaptive =
        |thr| format!("cint:delta={delta}ns,thr={thr},ooo=off,max_hold=off,in_flight=off,hints=none").parse();
    let policies = THRS.into_iter().map(adaptive).collect::<Result<Vec<Contender>, _>>()?;
    let tried = |(thr, outcome): (u32, outcome::Outcome)| Tried {
        delta,
        thr,
        iops: outcome.iops,
        interrupts_per_io: 1.0 / outcome.requests_per_interrupt.max(1.0),
        held_share: outcome.delay.mean / outcome.latency.mean.max(1.0),
        delay_p99: outcome.delay.p99,
    };
    Ok(THRS.into_iter().zip(on_device(preset, &policies)?).map(tried).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(list: &[(u64, u64)]) -> Gaps {
        let mut gaps = Gaps::new("test");
        list.iter().for_each(|&(ns, count)| gaps.gaps.record_n(ns, count).unwrap());
        gaps
    }

    #[test]
    fn pauses_between_bursts_do_not_count() {
        let load = gaps(&[(700, 890), (5861, 10), (80_000, 100)]);
        let delta = |percent, limit| load.delta(percent, limit).unwrap();
        assert_eq!([delta(90.0, 50_000), delta(98.0, 50_000), delta(99.0, 50_000)], [700, 700, 5900]);
        assert_eq!([delta(89.0, 100_000), delta(95.0, 100_000)], [700, 81_000]);
        assert_eq!(gaps(&[(80_000, 5)]).delta(90.0, 50_000), None);
    }

    fn tried(thr: u32, iops: f64, held_share: f64) -> Tried {
        Tried { delta: 0, thr, iops, interrupts_per_io: 0.0, held_share, delay_p99: 0 }
    }

    #[test]
    fn the_smallest_thr_on_the_plateau() {
        let of = |list: &[(u32, f64)]| list.iter().map(|&(thr, iops)| tried(thr, iops, 0.0)).collect::<Vec<_>>();
        let on_plateau = |list, percent| on_plateau(&of(list), percent, 0.05).map(|tried| tried.thr);
        let rising = &[(1, 320.0), (16, 417.0), (32, 421.0), (64, 423.0), (256, 424.0)];
        assert_eq!([1.0, 2.0, 0.1].map(|percent| on_plateau(rising, percent)), [Some(32), Some(16), Some(256)]);
        // With what falls again behind the best.
        assert_eq!(on_plateau(&[(1, 100.0), (8, 200.0), (16, 150.0)], 1.0), Some(8));
        assert_eq!(on_plateau(&[], 1.0), None);
    }

    #[test]
    fn what_holds_too_much_is_no_choice_and_no_plateau() {
        let all = [tried(1, 100.0, 0.0), tried(8, 110.0, 0.05), tried(16, 200.0, 0.051)];
        let chosen = |held_max| on_plateau(&all, 1.0, held_max).map(|tried| tried.thr);
        assert_eq!([0.05, 1.0, 0.04].map(chosen), [Some(8), Some(16), Some(1)]);
    }
}
