//! Δ and thr for a device and its load, as cinterrupts §5.2 determines them.
//!
//! Δ should approximate the time between completions of a burst: it is a percentile of the gaps between completions,
//! where gaps longer than a limit are pauses between bursts and do not count. The paper reads 6 µs off Optane's 90th
//! percentile and 15 µs off the P3700's 99th; where loads differ it takes the longer. thr is then the smallest with
//! throughput on the plateau.
//!
//! In a trace throughput is what it was. What it could be is bounded by the CPU: an I/O costs a number of cycles, an interrupt
//! a number more. In a simulation it is what the simulated host reaches.

#[cfg(feature = "cli")]
pub mod command;

use crate::contender::Contender;
use crate::engine::{Wanted, simulate};
use crate::event::What;
use crate::plan::{Device, Kind, Machine, Plan, Preset, Thread};
use crate::replay::trace::{Moment, Trace};
use crate::replay::{self, replay};
use crate::units::Time;
use anyhow::{Result, bail};
use coalesce_charts::counted;
use hdrhistogram::Histogram;

/// Values of thr that are tried, as the paper sweeps them.
pub const THRS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Gaps are recorded up to this long, in ns.
const GAP_MAX: u64 = 10_000_000_000;

/// The gaps between completions under one load.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// The load, in a word.
    pub load: &'static str,
    /// In ns.
    pub gaps: Histogram<u64>,
    /// The percentage of completions that found nothing else in flight: there is no burst to detect.
    pub alone_percent: f64,
}

impl Gaps {
    fn new(load: &'static str) -> Self {
        let gaps = Histogram::new_with_bounds(1, GAP_MAX, 3).expect("the bounds are in order");
        Self { load, gaps, alone_percent: 0.0 }
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

/// What one thr gives.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// It.
    pub thr: u32,
    /// I/O per second: of the simulated host, or the most that the CPU allows.
    pub iops: f64,
    /// Interrupts for each completion.
    pub interrupts_per_io: f64,
    /// 99 % of the delays are not longer, in ns.
    pub delay_p99: u64,
}

/// The smallest thr whose throughput is on the plateau: no more than `percent` below the best.
#[must_use]
pub fn on_plateau(tried: &[Tried], percent: f64) -> Option<u32> {
    let best = tried.iter().map(|tried| tried.iops).fold(0.0, f64::max);
    tried.iter().find(|tried| tried.iops >= best * (1.0 - percent / 100.0)).map(|tried| tried.thr)
}

/// Burst detection alone: no hints, no other limits.
fn adaptive(delta: u64, thr: u32) -> Result<Contender> {
    Ok(format!("cint:delta={delta}ns,thr={thr},ooo=off,max_hold=off,in_flight=off,hints=none").parse()?)
}

/// The policy with these values, and all that makes it safe.
///
/// # Errors
/// A value that is not allowed.
pub fn chosen(delta: u64, thr: u32) -> Result<Contender> {
    Ok(format!("cint:delta={delta}ns,thr={thr}").parse()?)
}

/// The gaps of a trace, on each of its queues.
///
/// # Errors
/// The trace is malformed.
pub fn gaps_of_trace(trace: &mut Trace) -> Result<Gaps> {
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
        }
    }
    if completions < 2 {
        bail!("too few: {}", counted(completions, "completion"));
    }
    gaps.alone_percent = 100.0 * alone as f64 / completions as f64;
    Ok(gaps)
}

/// What each thr gives on a trace.
///
/// # Errors
/// The trace is malformed.
pub fn try_on_trace(trace: &mut Trace, delta: u64, machine: &Machine) -> Result<Vec<Tried>> {
    let contenders = THRS.into_iter().map(|thr| adaptive(delta, thr)).collect::<Result<Vec<_>>>()?;
    let replay = replay(trace, &contenders, None)?;
    let tried = |(thr, outcome): (u32, &replay::Outcome)| Tried {
        thr,
        iops: iops_max(machine, outcome.interrupts_per_io()),
        interrupts_per_io: outcome.interrupts_per_io(),
        delay_p99: outcome.delay.value_at_quantile(0.99),
    };
    Ok(THRS.into_iter().zip(&replay.outcomes).map(tried).collect())
}

/// I/O per second of one CPU that does nothing else.
fn iops_max(machine: &Machine, interrupts_per_io: f64) -> f64 {
    let ns = |cost: crate::units::Cost| cost.ns(machine.clock) as f64;
    let io = ns(machine.submit) + ns(machine.complete) + ns(machine.reap);
    1e9 / (io + ns(machine.interrupt) * interrupts_per_io)
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

/// The gaps that a simulated device gives under both of the paper's loads.
///
/// # Errors
/// None that a known device can cause.
pub fn gaps_of_device(preset: Preset) -> Result<Vec<Gaps>> {
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

/// What each thr gives on a simulated device, under the load in batches.
///
/// # Errors
/// None that a known device can cause.
pub fn try_on_device(preset: Preset, delta: u64) -> Result<Vec<Tried>> {
    let plan = load(preset, LOADS[1].1);
    let point = plan.points()?.remove(0);
    let tried = |thr| {
        let outcome = simulate(&point, &adaptive(delta, thr)?, &Wanted { progress: None, timeline: None })?.outcome;
        Ok(Tried {
            thr,
            iops: outcome.iops,
            interrupts_per_io: 1.0 / outcome.requests_per_interrupt.max(1.0),
            delay_p99: outcome.delay.p99,
        })
    };
    THRS.into_iter().map(tried).collect()
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

    #[test]
    fn the_smallest_thr_on_the_plateau() {
        let tried = |list: &[(u32, f64)]| {
            let tried = list.iter().map(|&(thr, iops)| Tried { thr, iops, interrupts_per_io: 0.0, delay_p99: 0 });
            tried.collect::<Vec<_>>()
        };
        let rising = tried(&[(1, 320.0), (16, 417.0), (32, 421.0), (64, 423.0), (256, 424.0)]);
        assert_eq!([1.0, 2.0, 0.1].map(|percent| on_plateau(&rising, percent)), [Some(32), Some(16), Some(256)]);
        // With what falls again behind the best.
        assert_eq!(on_plateau(&tried(&[(1, 100.0), (8, 200.0), (16, 150.0)]), 1.0), Some(8));
        assert_eq!(on_plateau(&[], 1.0), None);
    }

    /// The machine of the paper: an interrupt is a quarter of an I/O of 6250 cycles at 2 GHz.
    #[test]
    fn the_cpu_bounds_throughput() {
        let machine = Machine::default();
        assert!((iops_max(&machine, 1.0) - 2e9 / 6200.0).abs() < 1.0);
        assert!(iops_max(&machine, 1.0 / 32.0) / iops_max(&machine, 1.0) > 1.3);
    }
}
