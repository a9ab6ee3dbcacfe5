//! cinterrupts: Tai, Smolyar, Wei, Tsafrir, OSDI 2021 and ACM TOS 18:1, 2022. Figures are numbered as in TOS.

use super::Experiment;
use super::row::Unit::{Count, Kilo, Micros, Share, Times};
use super::row::{Claim, HOST, INTERRUPTS, Row, SAME, WAIT, beyond, row};
use super::runs::{Runs, thread};
use crate::outcome::Outcome;

const NONE: &str = "none";
const CINT: &str = "cint:profile=optane,ooo=off";
const OOO: &str = "cint:profile=optane";
const P3700: &str = "cint:profile=p3700";
const OPTANE_DRIVE: &str = "optane_p4800x";
const P3700_DRIVE: &str = "p3700";
/// The thread says nothing: their adaptive strategy.
const SILENT: &str = "nothing";

fn interrupts(of: &Outcome, over: &Outcome) -> f64 {
    of.interrupts_per_s / over.interrupts_per_s
}

fn iops(of: &Outcome, over: &Outcome) -> f64 {
    of.iops / over.iops
}

fn us(ns: f64) -> f64 {
    ns / 1e3
}

fn latency_us(of: &Outcome) -> f64 {
    us(of.latency.mean)
}

/// The synchronous thread's latency.
fn sync(of: &Outcome) -> f64 {
    us(thread(of, "sync").latency.mean)
}

/// The asynchronous thread's commands per second.
fn background(of: &Outcome) -> f64 {
    thread(of, "async").iops
}

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        source: "cinterrupts §2 and §5.1, Figures 3, 4, Table 2",
        setup: "one core of a Xeon E5-2660 v4 at 2.0 GHz, an interrupt costs 1500 cycles; one process reads 4 KiB, \
                through libaio at depth 256 or synchronously",
        plans: &["cint-figure-20a", "cint-figure-20b"],
        rows: COSTS,
    },
    Experiment {
        source: "cinterrupts §3.2, Figure 8",
        setup: "Optane, one thread: synchronous reads; libaio in batches of 16 at depth 512; thr 32, Δ 6 us, and \
                NVMe's coalescing with timeouts of 100, 20 and 6 us",
        plans: &["cint-figure-8a", "cint-figure-8b"],
        rows: FIGURE_8,
    },
    Experiment {
        source: "cinterrupts §3.3, Figure 10",
        setup: "Optane, one core: a thread reads synchronously (Urgent), another through libaio at depth 16",
        plans: &["cint-figure-10"],
        rows: FIGURE_10,
    },
    Experiment {
        source: "cinterrupts §3.3, Figure 11",
        setup: "as Figure 10 at depth 256; thr is swept",
        plans: &["cint-figure-11"],
        rows: FIGURE_11,
    },
    Experiment {
        source: "cinterrupts §3.4, Figure 12",
        setup: "Optane, one core: 1, 2, 4 threads, each submits 4 reads (the last a Barrier) and waits for all",
        plans: &["cint-figure-12"],
        rows: FIGURE_12,
    },
    Experiment {
        source: "cinterrupts §3.5, Figure 15",
        setup: "as Figure 10 at depth 256, with and without out-of-order Urgent; throttled: the asynchronous thread is \
                held to its rate without coalescing",
        plans: &["cint-figure-10", "cint-figure-15"],
        rows: FIGURE_15,
    },
    Experiment {
        source: "cinterrupts §4.3, Figure 17",
        setup: "Optane, one core: four processes read synchronously, all Urgent; storm guard at 100 K/s, λ 1/128, \
                ours and the authors'",
        plans: &["cint-figure-17"],
        rows: FIGURE_17,
    },
    Experiment {
        source: "cinterrupts §5.2, Figure 19",
        setup: "libaio at depth 256 in batches of 16; Δ 6 us (Optane), 15 us (P3700); thr from 1 to 256",
        plans: &["cint-figure-19"],
        rows: FIGURE_19,
    },
    Experiment {
        source: "cinterrupts §5.3, Figure 20",
        setup: "synchronous reads; libaio at depth 256 in batches of 16; thr 32, Δ 6 us (Optane), 15 us (P3700)",
        plans: &["cint-figure-20a", "cint-figure-20b"],
        rows: FIGURE_20,
    },
    Experiment {
        source: "cinterrupts §5.3, Figure 21",
        setup: "the mixed load of Figure 10: which thread gets the processor",
        plans: &["cint-figure-10"],
        rows: FIGURE_21,
    },
    Experiment {
        source: "cinterrupts §5.4 and §5.5, Tables 3, 6, 7, 8, Figure 23",
        setup: "RocksDB and KVell on two cores; simulated: threads that are Urgent, and others beside them",
        plans: &["cint-table-3"],
        rows: APPLICATIONS,
    },
];

fn figure_20a<'a>(runs: &'a Runs, policy: &str, drive: &str, hint: &str) -> &'a Outcome {
    runs.of("cint-figure-20a", policy, &[drive, hint])
}

fn figure_20b<'a>(runs: &'a Runs, policy: &str, drive: &str, hint: &str) -> &'a Outcome {
    runs.of("cint-figure-20b", policy, &[drive, hint])
}

const COSTS: &[Row] = &[
    row("cint.f3.share", "interrupt's share of an I/O's cycles, Optane, depth 256", 24.0, Share, HOST, |runs| {
        let run = figure_20b(runs, NONE, OPTANE_DRIVE, SILENT);
        100.0 * run.handlers_per_s * 750e-9 / run.cpu
    }),
    beyond(
        "cint.f4.share",
        "interrupt's share of the latency, 5 us drive, depth 1: \"almost 15%\"",
        15.0,
        Share,
        HOST,
        "740 ns of 5 us is a division; nothing else is said about that drive",
    ),
    row("cint.t2.optane", "latency of a synchronous read, emulated interrupts, Optane", 10.4, Micros, HOST, |runs| {
        latency_us(figure_20a(runs, NONE, OPTANE_DRIVE, SILENT))
    }),
    row("cint.t2.p3700", "latency of a synchronous read, emulated interrupts, P3700", 82.1, Micros, HOST, |runs| {
        latency_us(figure_20a(runs, NONE, P3700_DRIVE, SILENT))
    }),
];

const NVME_100: &str = "cint:delta=10ms,thr=32,max_hold=100us,in_flight=off,ooo=off";
const NVME_20: &str = "cint:delta=10ms,thr=32,max_hold=20us,in_flight=off,ooo=off";
const NVME_6: &str = "cint:delta=10ms,thr=32,max_hold=6us,in_flight=off,ooo=off";

/// What a policy adds to a synchronous read.
fn added(runs: &Runs, policy: &str) -> f64 {
    let of = |policy| latency_us(runs.of("cint-figure-8a", policy, &[]));
    of(policy) - of(NONE)
}

fn figure_8b<'a>(runs: &'a Runs, policy: &str) -> &'a Outcome {
    runs.of("cint-figure-8b", policy, &[])
}

const TIMEOUTS: &str =
    "both published ratios mean 25 K interrupts/s for adaptive; the model's bursts are longer, 20 K/s";

const FIGURE_8: &[Row] = &[
    row("cint.f8.default", "latency of a synchronous read, no coalescing", 10.0, Micros, HOST, |runs| {
        latency_us(runs.of("cint-figure-8a", NONE, &[]))
    }),
    row("cint.f8.nvme100", "latency that a 100 us timeout adds", 100.0, Micros, WAIT, |runs| added(runs, NVME_100)),
    row("cint.f8.nvme20", "latency that a 20 us timeout adds", 20.0, Micros, WAIT, |runs| added(runs, NVME_20)),
    row("cint.f8.nvme6", "latency that a 6 us timeout adds", 6.0, Micros, WAIT, |runs| added(runs, NVME_6)),
    row("cint.f8.adaptive", "latency that Δ = 6 us adds", 6.0, Micros, WAIT, |runs| added(runs, CINT)),
    row("cint.f8.nvme20.interrupts", "interrupts/s, 20 us timeout over adaptive", 1.7, Times, INTERRUPTS, |runs| {
        interrupts(figure_8b(runs, NVME_20), figure_8b(runs, CINT))
    })
    .noted(TIMEOUTS),
    row("cint.f8.nvme6.interrupts", "interrupts/s, 6 us timeout over adaptive", 4.2, Times, INTERRUPTS, |runs| {
        interrupts(figure_8b(runs, NVME_6), figure_8b(runs, CINT))
    })
    .noted(TIMEOUTS),
    row("cint.f8.default.iops", "IOPS, default over adaptive: \"limited\"", 1.0, Times, Claim::AtMost, |runs| {
        iops(figure_8b(runs, NONE), figure_8b(runs, CINT))
    }),
    row("cint.f8.nvme6.iops", "IOPS, 6 us timeout over adaptive: \"lower\"", 1.0, Times, Claim::AtMost, |runs| {
        iops(figure_8b(runs, NVME_6), figure_8b(runs, CINT))
    }),
];

/// The mixed load: default, adaptive, cint, cint out of order.
#[derive(Clone, Copy)]
enum Strategy {
    Default,
    Adaptive,
    Cint,
    Ooo,
}

impl Strategy {
    const fn policy(self) -> &'static str {
        match self {
            Self::Default => NONE,
            Self::Adaptive | Self::Cint => CINT,
            Self::Ooo => OOO,
        }
    }

    const fn hint(self) -> &'static str {
        match self {
            Self::Default | Self::Adaptive => SILENT,
            Self::Cint | Self::Ooo => "urgent",
        }
    }
}

fn mixed<'a>(runs: &'a Runs, strategy: Strategy, depth: &str) -> &'a Outcome {
    runs.of("cint-figure-10", strategy.policy(), &[depth, strategy.hint()])
}

const FIGURE_10: &[Row] = &[
    row("cint.f10.interrupts", "interrupts/s, default over cint", 2.7, Times, INTERRUPTS, |runs| {
        interrupts(mixed(runs, Strategy::Default, "16"), mixed(runs, Strategy::Cint, "16"))
    }),
    row("cint.f10.async", "asynchronous IOPS, cint over default: \"higher\"", 1.0, Times, Claim::AtLeast, |runs| {
        background(mixed(runs, Strategy::Cint, "16")) / background(mixed(runs, Strategy::Default, "16"))
    }),
    row("cint.f10.sync", "synchronous latency, cint over default: \"optimal\"", 1.0, Times, SAME, |runs| {
        sync(mixed(runs, Strategy::Cint, "16")) / sync(mixed(runs, Strategy::Default, "16"))
    }),
    row("cint.f10.adaptive.latency", "synchronous latency, adaptive over cint", 1.0, Times, Claim::AtLeast, |runs| {
        sync(mixed(runs, Strategy::Adaptive, "16")) / sync(mixed(runs, Strategy::Cint, "16"))
    }),
    row("cint.f10.adaptive.async", "asynchronous IOPS, adaptive over cint", 1.0, Times, Claim::AtLeast, |runs| {
        background(mixed(runs, Strategy::Adaptive, "16")) / background(mixed(runs, Strategy::Cint, "16"))
    }),
    row("cint.f10.adaptive.total", "total IOPS, adaptive over cint", 1.0, Times, Claim::AtLeast, |runs| {
        iops(mixed(runs, Strategy::Adaptive, "16"), mixed(runs, Strategy::Cint, "16"))
    })
    .noted("the processor is busy either way, and cint's synchronous commands pay for what adaptive saves"),
];

fn swept<'a>(runs: &'a Runs, thr: u16, hint: &str) -> &'a Outcome {
    runs.of("cint-figure-11", &format!("cint:profile=optane,thr={thr},ooo=off"), &[&thr.to_string(), hint])
}

const FIGURE_11: &[Row] = &[
    row(
        "cint.f11.linear",
        "growth of synchronous latency, thr 64 to 128 over 32 to 64",
        2.0,
        Times,
        INTERRUPTS,
        |runs| {
            let at = |thr| sync(swept(runs, thr, SILENT));
            (at(128) - at(64)) / (at(64) - at(32))
        },
    ),
    row("cint.f11.flat", "synchronous latency, thr 128 over 32, cint", 1.0, Times, SAME, |runs| {
        sync(swept(runs, 128, "urgent")) / sync(swept(runs, 32, "urgent"))
    }),
    row("cint.f11.async", "asynchronous IOPS, cint over adaptive, thr 128", 1.0, Times, Claim::AtMost, |runs| {
        background(swept(runs, 128, "urgent")) / background(swept(runs, 128, SILENT))
    }),
];

fn batches<'a>(runs: &'a Runs, strategy: Strategy, threads: &str) -> &'a Outcome {
    let hint = if matches!(strategy, Strategy::Cint) { "barrier" } else { SILENT };
    runs.of("cint-figure-12", strategy.policy(), &[threads, hint])
}

/// Default over cint.
fn batch_interrupts(runs: &Runs, threads: &str) -> f64 {
    interrupts(batches(runs, Strategy::Default, threads), batches(runs, Strategy::Cint, threads))
}

fn batch_latency(of: &Outcome) -> f64 {
    us(thread(of, "batch").operation_latency.mean)
}

const IDLE: &str =
    "the threads wait for Δ together: the model's processor is idle for a quarter of the time, theirs is not";

const FIGURE_12: &[Row] = &[
    row("cint.f12.t1.interrupts", "interrupts/s, default over cint, 1 thread", 4.4, Times, INTERRUPTS, |runs| {
        batch_interrupts(runs, "1")
    }),
    row("cint.f12.t1.cpu", "processor use, default over cint, 1 thread", 1.32, Times, INTERRUPTS, |runs| {
        batches(runs, Strategy::Default, "1").cpu / batches(runs, Strategy::Cint, "1").cpu
    }),
    row("cint.f12.t1.cint", "latency, cint, 1 thread", 22.0, Micros, HOST, |runs| {
        batch_latency(batches(runs, Strategy::Cint, "1"))
    }),
    row("cint.f12.t1.adaptive", "latency, adaptive, 1 thread", 29.0, Micros, HOST, |runs| {
        batch_latency(batches(runs, Strategy::Adaptive, "1"))
    }),
    row("cint.f12.t1.default", "latency, default over cint, 1 thread", 1.0, Times, Claim::AtMost, |runs| {
        batch_latency(batches(runs, Strategy::Default, "1")) / batch_latency(batches(runs, Strategy::Cint, "1"))
    }),
    row("cint.f12.t2.interrupts", "interrupts/s, default over cint, 2 threads", 3.4, Times, INTERRUPTS, |runs| {
        batch_interrupts(runs, "2")
    }),
    row("cint.f12.t2.default", "IOPS, cint over default, 2 threads: \"best\"", 1.0, Times, Claim::AtLeast, |runs| {
        iops(batches(runs, Strategy::Cint, "2"), batches(runs, Strategy::Default, "2"))
    }),
    row("cint.f12.t2.adaptive", "IOPS, cint over adaptive, 2 threads: \"best\"", 1.0, Times, Claim::AtLeast, |runs| {
        iops(batches(runs, Strategy::Cint, "2"), batches(runs, Strategy::Adaptive, "2"))
    }),
    row("cint.f12.t4.interrupts", "interrupts/s, default over cint, 4 threads", 3.4, Times, INTERRUPTS, |runs| {
        batch_interrupts(runs, "4")
    }),
    row("cint.f12.t4.adaptive", "IOPS, cint over adaptive, 4 threads: \"matches\"", 1.0, Times, SAME, |runs| {
        iops(batches(runs, Strategy::Cint, "4"), batches(runs, Strategy::Adaptive, "4"))
    })
    .noted(IDLE),
];

fn throttled(runs: &Runs, strategy: Strategy) -> &Outcome {
    runs.of("cint-figure-15", strategy.policy(), &[strategy.hint()])
}

const QUARTER: &str = "in the model all interrupts without coalescing take a quarter of the processor";
const ALONE: &str =
    "an Urgent interrupt finds two completions in the model: leaving one of them behind cannot halve the latency";

const FIGURE_15: &[Row] = &[
    row("cint.f15.interrupts", "interrupts/s, out of order over in order", 2.4, Times, INTERRUPTS, |runs| {
        interrupts(mixed(runs, Strategy::Ooo, "256"), mixed(runs, Strategy::Cint, "256"))
    })
    .noted(ALONE),
    row("cint.f15.latency", "synchronous latency, out of order over in order", 0.55, Times, INTERRUPTS, |runs| {
        sync(mixed(runs, Strategy::Ooo, "256")) / sync(mixed(runs, Strategy::Cint, "256"))
    })
    .noted(ALONE),
    row("cint.f15.async", "asynchronous IOPS, out of order over in order", 1.0, Times, Claim::AtMost, |runs| {
        background(mixed(runs, Strategy::Ooo, "256")) / background(mixed(runs, Strategy::Cint, "256"))
    })
    .noted(ALONE),
    row("cint.f15.throttled.interrupts", "the first, throttled", 1.23, Times, INTERRUPTS, |runs| {
        interrupts(throttled(runs, Strategy::Ooo), throttled(runs, Strategy::Cint))
    }),
    row("cint.f15.throttled.latency", "synchronous latency, out of order over default", 1.0, Times, SAME, |runs| {
        sync(throttled(runs, Strategy::Ooo)) / sync(throttled(runs, Strategy::Default))
    }),
    row("cint.f15.throttled.cpu", "processor use, out of order over default, throttled", 0.7, Times, HOST, |runs| {
        throttled(runs, Strategy::Ooo).cpu / throttled(runs, Strategy::Default).cpu
    })
    .noted(QUARTER),
    row("cint.f15.coalescing.cpu", "processor use, default over adaptive, throttled", 1.55, Times, HOST, |runs| {
        throttled(runs, Strategy::Default).cpu / throttled(runs, Strategy::Adaptive).cpu
    })
    .noted(QUARTER),
];

fn unguarded(runs: &Runs) -> &Outcome {
    runs.of("cint-figure-17", CINT, &[])
}

/// With our storm guard.
fn ours(runs: &Runs) -> &Outcome {
    runs.of("cint-figure-17", "cint:profile=optane,ooo=off,storm=100000", &[])
}

/// With the authors'.
fn theirs(runs: &Runs) -> &Outcome {
    runs.of("cint-figure-17", "cint_storm_as_published", &[])
}

const CLOSED: &str = "the threads use what is saved for more commands";
const TOGETHER: &str = "while it treats Urgents as plain, all four threads wait for Δ, and the processor is idle";

const FIGURE_17: &[Row] = &[
    row("cint.f17.off", "interrupts/s without the storm guard", 150.0, Kilo, HOST, |runs| {
        unguarded(runs).interrupts_per_s / 1e3
    }),
    row("cint.f17.on", "interrupts/s with it: \"does not exceed\"", 100.0, Kilo, Claim::AtMost, |runs| {
        ours(runs).interrupts_per_s / 1e3
    }),
    row("cint.f17.off.cpu", "processor use without the storm guard", 100.0, Share, SAME, |runs| {
        100.0 * unguarded(runs).cpu
    }),
    row("cint.f17.on.cpu", "processor use with it", 94.0, Share, SAME, |runs| 100.0 * ours(runs).cpu).noted(CLOSED),
    row("cint.f17.iops", "IOPS by the storm guard: \"slight increase\"", 1.0, Times, Claim::AtLeast, |runs| {
        iops(ours(runs), unguarded(runs))
    }),
    row("cint.f17.latency", "latency by the storm guard: \"slight decrease\"", 1.0, Times, Claim::AtMost, |runs| {
        ours(runs).latency.mean / unguarded(runs).latency.mean
    }),
    row("cint.f17.theirs.on", "interrupts/s with the authors' storm guard", 100.0, Kilo, Claim::AtMost, |runs| {
        theirs(runs).interrupts_per_s / 1e3
    }),
    row("cint.f17.theirs.on.cpu", "processor use with it", 94.0, Share, SAME, |runs| 100.0 * theirs(runs).cpu),
    row("cint.f17.theirs.iops", "IOPS by it: \"slight increase\"", 1.0, Times, Claim::AtLeast, |runs| {
        iops(theirs(runs), unguarded(runs))
    })
    .noted(TOGETHER),
    row("cint.f17.theirs.latency", "latency by it: \"slight decrease\"", 1.0, Times, Claim::AtMost, |runs| {
        theirs(runs).latency.mean / unguarded(runs).latency.mean
    })
    .noted(TOGETHER),
];

/// The values of the sweep.
const THRS: [u16; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

fn by_thr<'a>(runs: &'a Runs, drive: &str, thr: u16) -> &'a Outcome {
    let profile = if drive == P3700_DRIVE { "p3700" } else { "optane" };
    runs.of("cint-figure-19", &format!("cint:profile={profile},thr={thr},ooo=off"), &[drive, &thr.to_string()])
}

/// The smallest thr with all but 2 % of the throughput.
fn plateau(runs: &Runs, drive: &str) -> f64 {
    let best = THRS.map(|thr| by_thr(runs, drive, thr).iops).into_iter().fold(0.0, f64::max);
    let smallest = THRS.into_iter().find(|thr| by_thr(runs, drive, *thr).iops >= 0.98 * best);
    f64::from(smallest.expect("the best is one of them"))
}

const BETWEEN: Claim = Claim::Within(8.0, "the range that the text states");

const FIGURE_19: &[Row] = &[
    row(
        "cint.f19.optane.thr",
        "smallest thr on the plateau, Optane: \"between 16-32\"",
        24.0,
        Count,
        BETWEEN,
        |runs| plateau(runs, OPTANE_DRIVE),
    ),
    row("cint.f19.p3700.thr", "smallest thr on the plateau, P3700: \"between 16-32\"", 24.0, Count, BETWEEN, |runs| {
        plateau(runs, P3700_DRIVE)
    }),
    row(
        "cint.f19.gap",
        "IOPS by which the P3700 is below the Optane, thr 32: \"about 15K\"",
        15.0,
        Kilo,
        Claim::Within(15.0, "a small difference of two large figures"),
        |runs| (by_thr(runs, OPTANE_DRIVE, 32).iops - by_thr(runs, P3700_DRIVE, 32).iops) / 1e3,
    )
    .noted("both drives outrun the processor; their difference of 100 K/s does not show"),
];

const FIGURE_20: &[Row] = &[
    row("cint.f20.optane.wait", "latency that adaptive adds to cint, Optane", 6.0, Micros, WAIT, |runs| {
        let of = |hint| latency_us(figure_20a(runs, OOO, OPTANE_DRIVE, hint));
        of(SILENT) - of("urgent")
    }),
    row("cint.f20.p3700.wait", "latency that adaptive adds to cint, P3700", 15.0, Micros, WAIT, |runs| {
        let of = |hint| latency_us(figure_20a(runs, P3700, P3700_DRIVE, hint));
        of(SILENT) - of("urgent")
    }),
    row(
        "cint.f20.latency",
        "synchronous latency, cint over adaptive: \"up to 37%\" lower",
        0.63,
        Times,
        SAME,
        |runs| {
            let of = |hint| latency_us(figure_20a(runs, OOO, OPTANE_DRIVE, hint));
            of("urgent") / of(SILENT)
        },
    ),
    row("cint.f20.default.latency", "synchronous latency, cint over default: \"matches\"", 1.0, Times, SAME, |runs| {
        let of = |policy| latency_us(figure_20a(runs, policy, OPTANE_DRIVE, "urgent"));
        of(OOO) / of(NONE)
    }),
    row(
        "cint.f20.optane.interrupts",
        "interrupts/s, default over cint, Optane: 12 to 15",
        13.5,
        Times,
        INTERRUPTS,
        |runs| {
            let of = |policy| figure_20b(runs, policy, OPTANE_DRIVE, "barrier");
            interrupts(of(NONE), of(OOO))
        },
    )
    .noted("within a batch completions pause for more than 6 us; with Δ 15 us it is 12.3, one for each batch"),
    row(
        "cint.f20.p3700.interrupts",
        "interrupts/s, default over cint, P3700: 12 to 15",
        13.5,
        Times,
        INTERRUPTS,
        |runs| {
            let of = |policy| figure_20b(runs, policy, P3700_DRIVE, "barrier");
            interrupts(of(NONE), of(P3700))
        },
    ),
    row("cint.f20.iops", "asynchronous IOPS, cint over default, Optane: \"up to 35%\"", 1.35, Times, SAME, |runs| {
        let of = |policy| figure_20b(runs, policy, OPTANE_DRIVE, "barrier");
        iops(of(OOO), of(NONE))
    })
    .noted("1500 of 6250 cycles, as Figure 3 has them, are 1.32 at most"),
    row("cint.f20.adaptive.iops", "asynchronous IOPS, cint over adaptive: \"matches\"", 1.0, Times, SAME, |runs| {
        let of = |hint| figure_20b(runs, OOO, OPTANE_DRIVE, hint);
        iops(of("barrier"), of(SILENT))
    }),
    row("cint.f20.cycles", "cycles per request, cint over default: \"30% fewer\" (§1)", 0.7, Times, HOST, |runs| {
        let of = |policy| figure_20b(runs, policy, OPTANE_DRIVE, "barrier");
        of(OOO).cycles_per_io / of(NONE).cycles_per_io
    }),
];

/// The synchronous thread's share of what both threads use, in per cent.
fn share(of: &Outcome) -> f64 {
    let (sync, background) = (thread(of, "sync").cpu, thread(of, "async").cpu);
    100.0 * sync / (sync + background)
}

const FIGURE_21: &[Row] = &[
    row("cint.f21.default", "the synchronous thread's, default: \"nearly 50%\"", 50.0, Share, HOST, |runs| {
        share(mixed(runs, Strategy::Default, "16"))
    }),
    row("cint.f21.adaptive", "the synchronous thread's, adaptive", 23.0, Share, HOST, |runs| {
        share(mixed(runs, Strategy::Adaptive, "16"))
    }),
    row("cint.f21.ooo", "the synchronous thread's, cint out of order: as default", 50.0, Share, HOST, |runs| {
        share(mixed(runs, Strategy::Ooo, "16"))
    }),
];

/// Background plain over background Urgent.
fn foreground(runs: &Runs) -> f64 {
    let of = |hint| thread(runs.of("cint-table-3", OOO, &[hint]), "foreground").iops;
    of(SILENT) / of("urgent")
}

/// What is not known of the applications.
const APPLICATION: &str = "what RocksDB and KVell do between two requests is not stated";

const APPLICATIONS: &[Row] = &[
    row(
        "cint.t3.throughput",
        "loading RocksDB, background plain over Urgent: throughput",
        1.04,
        Times,
        Claim::Within(0.02, "half of the effect"),
        foreground,
    ),
    beyond(
        "cint.t3.p99",
        "loading RocksDB, background plain over Urgent: p99 of writes",
        0.85,
        Times,
        HOST,
        APPLICATION,
    ),
    row("cint.t6.throughput", "gets beside a dump, dump plain over Urgent: throughput", 1.37, Times, HOST, foreground)
        .noted("fewer interrupts alone bring a few per cent; the rest is a dump that runs slower"),
    beyond("cint.t6.latency", "gets beside a dump, dump plain over Urgent: latency", 0.68, Times, HOST, APPLICATION),
    beyond("cint.t6.p99", "gets beside a dump, dump plain over Urgent: p99", 0.14, Times, HOST, APPLICATION),
    beyond(
        "cint.f23.kvell",
        "KVell, cint over default: throughput, \"as much as 14%\"",
        1.14,
        Times,
        SAME,
        APPLICATION,
    ),
    beyond("cint.t7.kvell", "KVell beside 4 threads of RocksDB, default over cint", 0.89, Times, SAME, APPLICATION),
    beyond("cint.t7.rocksdb", "latency of 4 threads of RocksDB, adaptive over cint", 1.11, Times, SAME, APPLICATION),
    beyond("cint.t8.kvell", "KVell beside 8 threads of RocksDB, default over cint", 0.94, Times, SAME, APPLICATION),
    beyond("cint.t8.rocksdb", "latency of 8 threads of RocksDB, adaptive over cint", 1.06, Times, SAME, APPLICATION),
];
