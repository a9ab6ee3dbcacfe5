//! Scheduler awareness: Peirce, Boos, *Interrupt Coalescing in Xen with Scheduler Awareness*, 2016.

use super::Experiment;
use super::row::Unit::Change;
use super::row::{Claim, Row, row};
use super::runs::Runs;
use crate::outcome::Outcome;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        source: "Xen §5.2, Figures 5 and 8",
        setup: "two guests on one core under the Credit scheduler, one writes with dd, one spins; cifThreshold 4, \
                iopsThreshold 100, epoch 200 ms; both policies as they were run",
        plans: &["xen-figure-5"],
        rows: FIGURE_5,
    },
    Experiment {
        source: "Xen §5.2, Figures 6 and 8",
        setup: "as Figure 5, three guests spin",
        plans: &["xen-figure-6"],
        rows: FIGURE_6,
    },
    Experiment {
        source: "Xen §5.3, Figures 7 and 8",
        setup: "two guests on one core, each writes with dd and spins",
        plans: &["xen-figure-7"],
        rows: FIGURE_7,
    },
];

/// They give means, without spread.
const SCATTER: Claim = Claim::Within(2.0, "means without spread");

fn change(runs: &Runs, plan: &str, is_aware: bool, of: fn(&Outcome) -> f64) -> f64 {
    let policy = runs.of(plan, "xen_as_published", &[if is_aware { "true" } else { "false" }]);
    100.0 * (of(policy) / of(runs.of(plan, "none", &["false"])) - 1.0)
}

fn throughput(runs: &Runs, plan: &str, is_aware: bool) -> f64 {
    change(runs, plan, is_aware, |run| run.iops)
}

fn latency(runs: &Runs, plan: &str, is_aware: bool) -> f64 {
    change(runs, plan, is_aware, |run| run.latency.mean)
}

const BOOST: &str = "a guest that waits for its disk is boosted when an interrupt comes, and its slice does not end";
const DISK: &str = "what dd offers is below what the disk can do; it is all done under every policy";
const RESENT: &str = "the authors' explanation, requests sent again, is not in the model, which loses none";
const WINDOW: &str = "the window is a tenth of a slice; the rule can reach few completions";

const FIGURE_5: &[Row] = &[
    row("xen.f5.vic.throughput", "2 guests: throughput by vIC", 2.5, Change, SCATTER, |runs| {
        throughput(runs, "xen-figure-5", false)
    })
    .noted(DISK),
    row("xen.f5.aware.throughput", "2 guests: throughput by scheduler-aware vIC", 2.5, Change, SCATTER, |runs| {
        throughput(runs, "xen-figure-5", true)
    })
    .noted(DISK),
    row("xen.f8.two.vic.latency", "2 guests: latency by vIC", 6.7, Change, SCATTER, |runs| {
        latency(runs, "xen-figure-5", false)
    }),
    row("xen.f8.two.aware.latency", "2 guests: latency by scheduler-aware vIC", 0.0, Change, SCATTER, |runs| {
        latency(runs, "xen-figure-5", true)
    })
    .noted(BOOST),
];

const FIGURE_6: &[Row] = &[
    row("xen.f6.vic.throughput", "4 guests: throughput by vIC", 0.0, Change, SCATTER, |runs| {
        throughput(runs, "xen-figure-6", false)
    }),
    row("xen.f6.aware.throughput", "4 guests: throughput by scheduler-aware vIC", 0.0, Change, SCATTER, |runs| {
        throughput(runs, "xen-figure-6", true)
    }),
    row("xen.f8.four.vic.latency", "4 guests: latency by vIC", 10.0, Change, SCATTER, |runs| {
        latency(runs, "xen-figure-6", false)
    }),
    row("xen.f8.four.aware.latency", "4 guests: latency by scheduler-aware vIC", 3.5, Change, SCATTER, |runs| {
        latency(runs, "xen-figure-6", true)
    })
    .noted(BOOST),
];

const FIGURE_7: &[Row] = &[
    row("xen.f7.vic.throughput", "both write and spin: throughput by vIC", 6.1, Change, SCATTER, |runs| {
        throughput(runs, "xen-figure-7", false)
    })
    .noted(RESENT),
    row("xen.f7.aware.throughput", "both write and spin: throughput by aware vIC", 10.0, Change, SCATTER, |runs| {
        throughput(runs, "xen-figure-7", true)
    })
    .noted(RESENT),
    row("xen.f8.both.vic.latency", "both write and spin: latency by vIC", 33.0, Change, SCATTER, |runs| {
        latency(runs, "xen-figure-7", false)
    })
    .noted(RESENT),
    row("xen.f8.both.aware.latency", "both write and spin: latency by aware vIC", 15.0, Change, SCATTER, |runs| {
        latency(runs, "xen-figure-7", true)
    })
    .noted(WINDOW),
];
