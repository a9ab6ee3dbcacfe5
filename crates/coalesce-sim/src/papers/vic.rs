//! vIC: Ahmad, Gulati, Mashtizadeh, USENIX ATC 2011.

use super::Experiment;
use super::row::Unit::{Change, Count, Kilo, Kilocycles, Micros, PerIo, Times};
use super::row::{Claim, HOST, INTERRUPTS, ROUNDING, Row, SAME, SCATTER, STEP, beyond, row};
use super::runs::{Runs, thread};
use crate::event::What;
use crate::outcome::Outcome;

const NONE: &str = "none";
const VIC: &str = "vic:profile=paper";
const VIC_2: &str = "vic:profile=paper,cif_threshold=2";

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        source: "vIC §3.2.1, Table 1",
        setup: "constant commands in flight; cifThreshold 4, iopsThreshold 2000, epoch 200 ms",
        plans: &["vic-table-1"],
        rows: TABLE_1,
    },
    Experiment {
        source: "vIC §4.1, Tables 2 and 3",
        setup: "Iometer in a Windows 2003 guest, one worker, 4 KiB sequential reads of a cached LUN (EMC CX3-40, Fibre \
                Channel at 4 Gb/s); processors at 2.4 GHz; cifThreshold 4, iopsThreshold 2000, epoch 200 ms",
        plans: &["vic-table-2"],
        rows: TABLES_2_3,
    },
    Experiment {
        source: "vIC §4.1, Tables 4 and 5",
        setup: "as Tables 2 and 3, with 8 KiB",
        plans: &["vic-table-4"],
        rows: TABLES_4_5,
    },
    Experiment {
        source: "vIC §4.4, Table 8",
        setup: "a TPC-C-like load, 80 to 90 users, 10.2 K to 10.5 K IOPS at 7.7 to 9.2 ms on 45 disks (EMC CX3-20)",
        plans: &["vic-table-8"],
        rows: TABLE_8,
    },
    Experiment {
        source: "vIC §4.4, Figures 3 and 4",
        setup: "the load of Table 8: the ratio that is chosen, every 200 ms",
        plans: &["vic-figure-4"],
        rows: FIGURES_3_4,
    },
    Experiment {
        source: "vIC §4.4",
        setup: "what R = 1/3 adds to the latency at 10 K IOPS",
        plans: &["vic-delay"],
        rows: DELAY,
    },
    Experiment {
        source: "vIC §4.5, Figure 5",
        setup: "a guest of two virtual CPUs: Iometer, one worker, 8 outstanding, 8 KiB reads of a cached LUN, beside \
                Hyper Pi on both at idle priority; the threshold of the IPI gate from 0 to 500 us",
        plans: &["vic-figure-5", "vic-figure-5-io", "vic-figure-5-pi"],
        rows: FIGURE_5,
    },
];

/// Interrupts per command.
fn ratio(run: &Outcome) -> f64 {
    run.interrupts_per_s / run.iops
}

fn change(of: f64, over: f64) -> f64 {
    100.0 * (of / over - 1.0)
}

/// At a service time that keeps a constant number of commands in flight.
fn at_cif(runs: &Runs, service: &str) -> f64 {
    ratio(runs.of("vic-table-1", VIC, &[service]))
}

const TABLE_1: &[Row] = &[
    row("vic.t1.cif3", "delivery ratio at CIF 3", 1.0, PerIo, ROUNDING, |runs| at_cif(runs, "250us")),
    row("vic.t1.cif4", "delivery ratio at CIF 4", 0.8, PerIo, ROUNDING, |runs| at_cif(runs, "350us")),
    row("vic.t1.cif7", "delivery ratio at CIF 7", 0.8, PerIo, ROUNDING, |runs| at_cif(runs, "650us")),
    row("vic.t1.cif8", "delivery ratio at CIF 8", 0.75, PerIo, ROUNDING, |runs| at_cif(runs, "750us")),
    row("vic.t1.cif11", "delivery ratio at CIF 11", 0.75, PerIo, ROUNDING, |runs| at_cif(runs, "1050us")),
    row("vic.t1.cif12", "delivery ratio at CIF 12", 0.66, PerIo, ROUNDING, |runs| at_cif(runs, "1150us")),
    row("vic.t1.cif15", "delivery ratio at CIF 15", 0.66, PerIo, ROUNDING, |runs| at_cif(runs, "1450us")),
    row("vic.t1.cif16", "delivery ratio at CIF 16: 8 / CIF", 0.5, PerIo, ROUNDING, |runs| at_cif(runs, "1550us")),
    row("vic.t1.cif23", "delivery ratio at CIF 23: 8 / CIF", 0.348, PerIo, ROUNDING, |runs| at_cif(runs, "2250us"))
        .noted("Algorithm 1 cuts the quotient off, as Table 1 does not say"),
    row("vic.t1.cif64", "delivery ratio at CIF 64: 8 / CIF", 0.125, PerIo, ROUNDING, |runs| at_cif(runs, "6350us")),
];

/// What an I/O costs the hypervisor's other processors, in thousands of cycles: fitted on `vic.t2.oio64.base_cost`.
const VMKERNEL: f64 = 51.4;

/// Iometer with `depth` outstanding, of 4 or 8 KiB, without and with vIC.
#[derive(Clone, Copy)]
struct Iometer<'a>(&'a Outcome, &'a Outcome);

impl<'a> Iometer<'a> {
    fn kib4(runs: &'a Runs, depth: &str) -> Self {
        Self::of(runs, "vic-table-2", depth)
    }

    fn kib8(runs: &'a Runs, depth: &str) -> Self {
        Self::of(runs, "vic-table-4", depth)
    }

    fn of(runs: &'a Runs, plan: &str, depth: &str) -> Self {
        Self(runs.of(plan, NONE, &[depth]), runs.of(plan, VIC, &[depth]))
    }

    fn base_iops(self) -> f64 {
        self.0.iops / 1e3
    }

    fn base_cost(self) -> f64 {
        VMKERNEL + self.0.cycles_per_io / 1e3
    }

    fn ratio(self) -> f64 {
        ratio(self.1)
    }

    fn iops(self) -> f64 {
        change(self.1.iops, self.0.iops)
    }

    fn cost(self) -> f64 {
        change(VMKERNEL + self.1.cycles_per_io / 1e3, self.base_cost())
    }

    /// That the guest takes.
    fn interrupts(self) -> f64 {
        change(self.1.handlers_per_s, self.0.handlers_per_s)
    }
}

const WITHOUT_LOSS: &str = "the model's guest is never short of processor, so that fewer interrupts gain nothing";
const PER_INTERRUPT: &str = "a saving proportional to the interrupts; the published cost hardly falls until R = 1/6";
const COUNTED: &str = "the guest counts more than its disk's: 47 K/s to 113 K/s at 30 K to 53 K IOPS without vIC";

const TABLES_2_3: &[Row] = &[
    row("vic.t2.oio8.base_iops", "IOPS without vIC, 8 outstanding", 30.5, Kilo, HOST, |runs| {
        Iometer::kib4(runs, "8").base_iops()
    }),
    row("vic.t2.oio16.base_iops", "IOPS without vIC, 16 outstanding", 38.4, Kilo, HOST, |runs| {
        Iometer::kib4(runs, "16").base_iops()
    }),
    row("vic.t2.oio32.base_iops", "IOPS without vIC, 32 outstanding", 46.4, Kilo, HOST, |runs| {
        Iometer::kib4(runs, "32").base_iops()
    }),
    row("vic.t2.oio64.base_iops", "IOPS without vIC, 64 outstanding", 52.9, Kilo, HOST, |runs| {
        Iometer::kib4(runs, "64").base_iops()
    }),
    row("vic.t2.oio8.base_cost", "cost of an I/O without vIC, 8 outstanding", 84.2, Kilocycles, HOST, |runs| {
        Iometer::kib4(runs, "8").base_cost()
    }),
    row("vic.t2.oio16.base_cost", "cost of an I/O without vIC, 16 outstanding", 77.0, Kilocycles, HOST, |runs| {
        Iometer::kib4(runs, "16").base_cost()
    }),
    row("vic.t2.oio32.base_cost", "cost of an I/O without vIC, 32 outstanding", 70.5, Kilocycles, HOST, |runs| {
        Iometer::kib4(runs, "32").base_cost()
    }),
    row("vic.t2.oio64.base_cost", "cost of an I/O without vIC, 64 outstanding", 78.4, Kilocycles, HOST, |runs| {
        Iometer::kib4(runs, "64").base_cost()
    }),
    row("vic.t2.oio8.ratio", "delivery ratio, 8 outstanding", 0.8, PerIo, STEP, |runs| {
        Iometer::kib4(runs, "8").ratio()
    }),
    row("vic.t2.oio16.ratio", "delivery ratio, 16 outstanding", 0.667, PerIo, STEP, |runs| {
        Iometer::kib4(runs, "16").ratio()
    }),
    row("vic.t2.oio32.ratio", "delivery ratio, 32 outstanding", 0.333, PerIo, STEP, |runs| {
        Iometer::kib4(runs, "32").ratio()
    }),
    row("vic.t2.oio64.ratio", "delivery ratio, 64 outstanding", 0.167, PerIo, STEP, |runs| {
        Iometer::kib4(runs, "64").ratio()
    }),
    row("vic.t3.oio8.iops", "IOPS by vIC, 8 outstanding", 2.3, Change, SCATTER, |runs| Iometer::kib4(runs, "8").iops())
        .noted(WITHOUT_LOSS),
    row("vic.t3.oio16.iops", "IOPS by vIC, 16 outstanding", 1.3, Change, SCATTER, |runs| {
        Iometer::kib4(runs, "16").iops()
    }),
    row("vic.t3.oio32.iops", "IOPS by vIC, 32 outstanding", 4.1, Change, SCATTER, |runs| {
        Iometer::kib4(runs, "32").iops()
    })
    .noted(WITHOUT_LOSS),
    row("vic.t3.oio64.iops", "IOPS by vIC, 64 outstanding", 0.4, Change, SCATTER, |runs| {
        Iometer::kib4(runs, "64").iops()
    }),
    row("vic.t3.oio8.cost", "cost of an I/O by vIC, 8 outstanding", -1.9, Change, SCATTER, |runs| {
        Iometer::kib4(runs, "8").cost()
    })
    .noted(PER_INTERRUPT),
    row("vic.t3.oio16.cost", "cost of an I/O by vIC, 16 outstanding", -2.8, Change, SCATTER, |runs| {
        Iometer::kib4(runs, "16").cost()
    })
    .noted(PER_INTERRUPT),
    row("vic.t3.oio32.cost", "cost of an I/O by vIC, 32 outstanding", -3.5, Change, SCATTER, |runs| {
        Iometer::kib4(runs, "32").cost()
    })
    .noted(PER_INTERRUPT),
    row("vic.t3.oio64.cost", "cost of an I/O by vIC, 64 outstanding", -18.4, Change, SCATTER, |runs| {
        Iometer::kib4(runs, "64").cost()
    }),
    row("vic.t3.oio8.interrupts", "interrupts/s by vIC, 8 outstanding", 4.3, Change, SCATTER, |runs| {
        Iometer::kib4(runs, "8").interrupts()
    })
    .noted(COUNTED),
    row("vic.t3.oio16.interrupts", "interrupts/s by vIC, 16 outstanding", -3.3, Change, SCATTER, |runs| {
        Iometer::kib4(runs, "16").interrupts()
    })
    .noted(COUNTED),
    row("vic.t3.oio32.interrupts", "interrupts/s by vIC, 32 outstanding", -6.8, Change, SCATTER, |runs| {
        Iometer::kib4(runs, "32").interrupts()
    })
    .noted(COUNTED),
    row("vic.t3.oio64.interrupts", "interrupts/s by vIC, 64 outstanding", -66.4, Change, SCATTER, |runs| {
        Iometer::kib4(runs, "64").interrupts()
    })
    .noted(COUNTED),
];

const TABLES_4_5: &[Row] = &[
    row("vic.t4.oio8.base_iops", "IOPS without vIC, 8 outstanding", 29.9, Kilo, HOST, |runs| {
        Iometer::kib8(runs, "8").base_iops()
    }),
    row("vic.t4.oio16.base_iops", "IOPS without vIC, 16 outstanding", 38.5, Kilo, HOST, |runs| {
        Iometer::kib8(runs, "16").base_iops()
    }),
    row("vic.t4.oio32.base_iops", "IOPS without vIC, 32 outstanding", 41.1, Kilo, HOST, |runs| {
        Iometer::kib8(runs, "32").base_iops()
    }),
    row("vic.t4.oio64.base_iops", "IOPS without vIC, 64 outstanding", 41.1, Kilo, HOST, |runs| {
        Iometer::kib8(runs, "64").base_iops()
    }),
    row("vic.t4.oio8.base_cost", "cost of an I/O without vIC, 8 outstanding", 88.2, Kilocycles, HOST, |runs| {
        Iometer::kib8(runs, "8").base_cost()
    }),
    row("vic.t4.oio16.base_cost", "cost of an I/O without vIC, 16 outstanding", 81.3, Kilocycles, HOST, |runs| {
        Iometer::kib8(runs, "16").base_cost()
    }),
    row("vic.t4.oio32.base_cost", "cost of an I/O without vIC, 32 outstanding", 77.1, Kilocycles, HOST, |runs| {
        Iometer::kib8(runs, "32").base_cost()
    }),
    row("vic.t4.oio64.base_cost", "cost of an I/O without vIC, 64 outstanding", 75.7, Kilocycles, HOST, |runs| {
        Iometer::kib8(runs, "64").base_cost()
    }),
    row("vic.t4.oio8.ratio", "delivery ratio, 8 outstanding", 0.8, PerIo, STEP, |runs| {
        Iometer::kib8(runs, "8").ratio()
    }),
    row("vic.t4.oio16.ratio", "delivery ratio, 16 outstanding", 0.667, PerIo, STEP, |runs| {
        Iometer::kib8(runs, "16").ratio()
    }),
    row("vic.t4.oio32.ratio", "delivery ratio, 32 outstanding", 0.333, PerIo, STEP, |runs| {
        Iometer::kib8(runs, "32").ratio()
    }),
    row("vic.t4.oio64.ratio", "delivery ratio, 64 outstanding", 0.167, PerIo, STEP, |runs| {
        Iometer::kib8(runs, "64").ratio()
    }),
    row("vic.t5.oio8.iops", "IOPS by vIC, 8 outstanding", 4.3, Change, SCATTER, |runs| Iometer::kib8(runs, "8").iops())
        .noted(WITHOUT_LOSS),
    row("vic.t5.oio16.iops", "IOPS by vIC, 16 outstanding", 2.1, Change, SCATTER, |runs| {
        Iometer::kib8(runs, "16").iops()
    })
    .noted(WITHOUT_LOSS),
    row("vic.t5.oio32.iops", "IOPS by vIC, 32 outstanding", 1.0, Change, SCATTER, |runs| {
        Iometer::kib8(runs, "32").iops()
    }),
    row("vic.t5.oio64.iops", "IOPS by vIC, 64 outstanding", 1.0, Change, SCATTER, |runs| {
        Iometer::kib8(runs, "64").iops()
    }),
    row("vic.t5.oio8.cost", "cost of an I/O by vIC, 8 outstanding", -5.2, Change, SCATTER, |runs| {
        Iometer::kib8(runs, "8").cost()
    }),
    row("vic.t5.oio16.cost", "cost of an I/O by vIC, 16 outstanding", -4.5, Change, SCATTER, |runs| {
        Iometer::kib8(runs, "16").cost()
    })
    .noted(PER_INTERRUPT),
    row("vic.t5.oio32.cost", "cost of an I/O by vIC, 32 outstanding", -1.5, Change, SCATTER, |runs| {
        Iometer::kib8(runs, "32").cost()
    })
    .noted(PER_INTERRUPT),
    row("vic.t5.oio64.cost", "cost of an I/O by vIC, 64 outstanding", -6.2, Change, SCATTER, |runs| {
        Iometer::kib8(runs, "64").cost()
    })
    .noted("at 4 KiB the same ratio saved 14.4 K cycles, at 8 KiB 4.7 K"),
    row("vic.t5.oio8.interrupts", "interrupts/s by vIC, 8 outstanding", -2.0, Change, SCATTER, |runs| {
        Iometer::kib8(runs, "8").interrupts()
    })
    .noted(COUNTED),
    row("vic.t5.oio16.interrupts", "interrupts/s by vIC, 16 outstanding", -3.2, Change, SCATTER, |runs| {
        Iometer::kib8(runs, "16").interrupts()
    })
    .noted(COUNTED),
    row("vic.t5.oio32.interrupts", "interrupts/s by vIC, 32 outstanding", -13.0, Change, SCATTER, |runs| {
        Iometer::kib8(runs, "32").interrupts()
    })
    .noted(COUNTED),
    row("vic.t5.oio64.interrupts", "interrupts/s by vIC, 64 outstanding", -63.3, Change, SCATTER, |runs| {
        Iometer::kib8(runs, "64").interrupts()
    })
    .noted(COUNTED),
];

const TRANSACTIONS: &str = "what a transaction computes is not stated";

const TABLE_8: &[Row] = &[
    row("vic.t8.none.interrupts", "interrupts per I/O without vIC (9.9 K of 10.2 K)", 0.971, PerIo, SAME, |runs| {
        ratio(runs.of("vic-table-8", NONE, &[]))
    }),
    row(
        "vic.t8.cift4.interrupts",
        "interrupts per I/O, cifThreshold 4 (6.4 K of 10.4 K)",
        0.615,
        PerIo,
        INTERRUPTS,
        |runs| ratio(runs.of("vic-table-8", VIC, &[])),
    ),
    row(
        "vic.t8.cift2.interrupts",
        "interrupts per I/O, cifThreshold 2 (5.8 K of 10.5 K)",
        0.552,
        PerIo,
        INTERRUPTS,
        |runs| ratio(runs.of("vic-table-8", VIC_2, &[])),
    )
    .noted("10.5 K/s of 9.2 ms are 97 in flight, 24 for each of four adapters, and 0.17 by Algorithm 1"),
    beyond("vic.t8.cift4.throughput", "transactions by vIC, cifThreshold 4", 3.0, Change, SCATTER, TRANSACTIONS),
    beyond("vic.t8.cift2.throughput", "transactions by vIC, cifThreshold 2", 5.1, Change, SCATTER, TRANSACTIONS),
];

/// Interrupts per completion in each epoch of 200 ms, from the lowest.
fn ratios() -> Vec<f64> {
    const EPOCH: u64 = 200_000_000;
    let mut epochs: Vec<(f64, f64)> = Vec::new(); // completions and interrupts
    for event in Runs::timeline("vic-figure-4") {
        let epoch = usize::try_from(event.at / EPOCH).expect("a run has few epochs");
        epochs.resize(epochs.len().max(epoch + 1), (0.0, 0.0));
        let (completions, interrupts) = &mut epochs[epoch];
        match event.what {
            What::Completion { .. } => *completions += 1.0,
            What::Interrupt { .. } => *interrupts += 1.0,
            _ => {}
        }
    }
    let mut ratios: Vec<_> = epochs.iter().map(|(completions, interrupts)| interrupts / completions).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

const FIGURES_3_4: &[Row] = &[
    row("vic.f3.median", "median of the ratio that is chosen", 0.333, PerIo, STEP, |_| {
        let ratios = ratios();
        ratios[ratios.len() / 2]
    }),
    row("vic.f4.lowest", "lowest ratio: \"less than 1 out of every 12\"", 0.0833, PerIo, Claim::AtMost, |_| {
        ratios()[0]
    }),
];

const DELAY: &[Row] = &[row("vic.s4_4.delay", "added latency at R = 1/3 and 10 K IOPS", 200.0, Micros, HOST, |runs| {
    runs.of("vic-delay", VIC, &[]).delay.mean / 1e3
})
.noted("two gaps are the longest wait, and one gap is the mean of 2, 1, 0; the text calls two the mean")];

/// The sweep of the gate's threshold.
const THRESHOLDS: [&str; 5] = ["0us", "50us", "100us", "200us", "500us"];

fn gate<'a>(runs: &'a Runs, plan: &str, threshold: &str) -> &'a Outcome {
    runs.of(plan, VIC, &[threshold])
}

fn pi(run: &Outcome) -> f64 {
    thread(run, "pi").cpu
}

/// The largest threshold over none.
fn widest(runs: &Runs, plan: &str, of: fn(&Outcome) -> f64) -> f64 {
    of(gate(runs, plan, "500us")) / of(gate(runs, plan, "0us"))
}

const FIGURE_5: &[Row] = &[
    row("vic.f5.io_alone", "IOPS without Hyper Pi, 500 us over 0", 1.0, Times, SAME, |runs| {
        widest(runs, "vic-figure-5-io", |run| run.iops)
    }),
    row("vic.f5.pi_alone", "speed of Hyper Pi without I/O, 500 us over 0", 1.0, Times, SAME, |runs| {
        widest(runs, "vic-figure-5-pi", pi)
    }),
    row(
        "vic.f5.io",
        "IOPS beside Hyper Pi, 500 us over 0: \"suffers quite a bit\"",
        1.0,
        Times,
        Claim::AtMost,
        |runs| widest(runs, "vic-figure-5", |run| run.iops),
    ),
    row("vic.f5.pi", "speed of Hyper Pi beside I/O, 500 us over 0: \"best\"", 1.0, Times, Claim::AtLeast, |runs| {
        widest(runs, "vic-figure-5", pi)
    }),
    row(
        "vic.f5.monotonic",
        "of four steps, those in which IOPS fall and Hyper Pi gains",
        4.0,
        Count,
        Claim::AtLeast,
        |runs| {
            let runs = THRESHOLDS.map(|threshold| gate(runs, "vic-figure-5", threshold));
            let trades = runs.windows(2).filter(|pair| pair[1].iops < pair[0].iops && pi(pair[1]) > pi(pair[0]));
            trades.count() as f64
        },
    ),
];
