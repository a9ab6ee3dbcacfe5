//! vIC: Ahmad, Gulati, Mashtizadeh, USENIX ATC 2011.

use super::row::Unit::{Change, Count, Kilo, Kilocycles, Micros, PerIo, Times};
use super::row::{Claim, HOST, INTERRUPTS, ROUNDING, Row, SAME, SCATTER, STEP, row};

/// Constant commands in flight, `cifThreshold` 4, `iopsThreshold` 2000, epoch 200 ms.
pub const TABLE_1: &[Row] = &[
    row("vic.t1.cif3", "delivery ratio at CIF 3", 1.0, PerIo, ROUNDING),
    row("vic.t1.cif4", "delivery ratio at CIF 4", 0.8, PerIo, ROUNDING),
    row("vic.t1.cif7", "delivery ratio at CIF 7", 0.8, PerIo, ROUNDING),
    row("vic.t1.cif8", "delivery ratio at CIF 8", 0.75, PerIo, ROUNDING),
    row("vic.t1.cif11", "delivery ratio at CIF 11", 0.75, PerIo, ROUNDING),
    row("vic.t1.cif12", "delivery ratio at CIF 12", 0.66, PerIo, ROUNDING),
    row("vic.t1.cif15", "delivery ratio at CIF 15", 0.66, PerIo, ROUNDING),
    row("vic.t1.cif16", "delivery ratio at CIF 16: 8 / CIF", 0.5, PerIo, ROUNDING),
    row("vic.t1.cif23", "delivery ratio at CIF 23: 8 / CIF", 0.348, PerIo, ROUNDING),
    row("vic.t1.cif64", "delivery ratio at CIF 64: 8 / CIF", 0.125, PerIo, ROUNDING),
];

/// Iometer in a Windows 2003 guest: one worker, 4 KiB sequential reads, a fully cached LUN of an EMC CX3-40 behind
/// 4 Gb Fibre Channel; four dual-core AMD processors at 2.4 GHz; `cifThreshold` 4, `iopsThreshold` 2000, epoch 200 ms.
pub const TABLES_2_3: &[Row] = &[
    row("vic.t2.oio8.base_iops", "IOPS without vIC, 8 outstanding", 30.5, Kilo, HOST),
    row("vic.t2.oio16.base_iops", "IOPS without vIC, 16 outstanding", 38.4, Kilo, HOST),
    row("vic.t2.oio32.base_iops", "IOPS without vIC, 32 outstanding", 46.4, Kilo, HOST),
    row("vic.t2.oio64.base_iops", "IOPS without vIC, 64 outstanding", 52.9, Kilo, HOST),
    row("vic.t2.oio8.base_cost", "cost of an I/O without vIC, 8 outstanding", 84.2, Kilocycles, HOST),
    row("vic.t2.oio16.base_cost", "cost of an I/O without vIC, 16 outstanding", 77.0, Kilocycles, HOST),
    row("vic.t2.oio32.base_cost", "cost of an I/O without vIC, 32 outstanding", 70.5, Kilocycles, HOST),
    row("vic.t2.oio64.base_cost", "cost of an I/O without vIC, 64 outstanding", 78.4, Kilocycles, HOST),
    row("vic.t2.oio8.ratio", "delivery ratio, 8 outstanding", 0.8, PerIo, STEP),
    row("vic.t2.oio16.ratio", "delivery ratio, 16 outstanding", 0.667, PerIo, STEP),
    row("vic.t2.oio32.ratio", "delivery ratio, 32 outstanding", 0.333, PerIo, STEP),
    row("vic.t2.oio64.ratio", "delivery ratio, 64 outstanding", 0.167, PerIo, STEP),
    row("vic.t3.oio8.iops", "IOPS by vIC, 8 outstanding", 2.3, Change, SCATTER),
    row("vic.t3.oio16.iops", "IOPS by vIC, 16 outstanding", 1.3, Change, SCATTER),
    row("vic.t3.oio32.iops", "IOPS by vIC, 32 outstanding", 4.1, Change, SCATTER),
    row("vic.t3.oio64.iops", "IOPS by vIC, 64 outstanding", 0.4, Change, SCATTER),
    row("vic.t3.oio8.cost", "cost of an I/O by vIC, 8 outstanding", -1.9, Change, SCATTER),
    row("vic.t3.oio16.cost", "cost of an I/O by vIC, 16 outstanding", -2.8, Change, SCATTER),
    row("vic.t3.oio32.cost", "cost of an I/O by vIC, 32 outstanding", -3.5, Change, SCATTER),
    row("vic.t3.oio64.cost", "cost of an I/O by vIC, 64 outstanding", -18.4, Change, SCATTER),
    row("vic.t3.oio8.interrupts", "interrupts/s by vIC, 8 outstanding", 4.3, Change, SCATTER),
    row("vic.t3.oio16.interrupts", "interrupts/s by vIC, 16 outstanding", -3.3, Change, SCATTER),
    row("vic.t3.oio32.interrupts", "interrupts/s by vIC, 32 outstanding", -6.8, Change, SCATTER),
    row("vic.t3.oio64.interrupts", "interrupts/s by vIC, 64 outstanding", -66.4, Change, SCATTER),
];

/// As Tables 2 and 3, with 8 KiB.
pub const TABLES_4_5: &[Row] = &[
    row("vic.t4.oio8.base_iops", "IOPS without vIC, 8 outstanding", 29.9, Kilo, HOST),
    row("vic.t4.oio16.base_iops", "IOPS without vIC, 16 outstanding", 38.5, Kilo, HOST),
    row("vic.t4.oio32.base_iops", "IOPS without vIC, 32 outstanding", 41.1, Kilo, HOST),
    row("vic.t4.oio64.base_iops", "IOPS without vIC, 64 outstanding", 41.1, Kilo, HOST),
    row("vic.t4.oio8.base_cost", "cost of an I/O without vIC, 8 outstanding", 88.2, Kilocycles, HOST),
    row("vic.t4.oio16.base_cost", "cost of an I/O without vIC, 16 outstanding", 81.3, Kilocycles, HOST),
    row("vic.t4.oio32.base_cost", "cost of an I/O without vIC, 32 outstanding", 77.1, Kilocycles, HOST),
    row("vic.t4.oio64.base_cost", "cost of an I/O without vIC, 64 outstanding", 75.7, Kilocycles, HOST),
    row("vic.t4.oio8.ratio", "delivery ratio, 8 outstanding", 0.8, PerIo, STEP),
    row("vic.t4.oio16.ratio", "delivery ratio, 16 outstanding", 0.667, PerIo, STEP),
    row("vic.t4.oio32.ratio", "delivery ratio, 32 outstanding", 0.333, PerIo, STEP),
    row("vic.t4.oio64.ratio", "delivery ratio, 64 outstanding", 0.167, PerIo, STEP),
    row("vic.t5.oio8.iops", "IOPS by vIC, 8 outstanding", 4.3, Change, SCATTER),
    row("vic.t5.oio16.iops", "IOPS by vIC, 16 outstanding", 2.1, Change, SCATTER),
    row("vic.t5.oio32.iops", "IOPS by vIC, 32 outstanding", 1.0, Change, SCATTER),
    row("vic.t5.oio64.iops", "IOPS by vIC, 64 outstanding", 1.0, Change, SCATTER),
    row("vic.t5.oio8.cost", "cost of an I/O by vIC, 8 outstanding", -5.2, Change, SCATTER),
    row("vic.t5.oio16.cost", "cost of an I/O by vIC, 16 outstanding", -4.5, Change, SCATTER),
    row("vic.t5.oio32.cost", "cost of an I/O by vIC, 32 outstanding", -1.5, Change, SCATTER),
    row("vic.t5.oio64.cost", "cost of an I/O by vIC, 64 outstanding", -6.2, Change, SCATTER),
    row("vic.t5.oio8.interrupts", "interrupts/s by vIC, 8 outstanding", -2.0, Change, SCATTER),
    row("vic.t5.oio16.interrupts", "interrupts/s by vIC, 16 outstanding", -3.2, Change, SCATTER),
    row("vic.t5.oio32.interrupts", "interrupts/s by vIC, 32 outstanding", -13.0, Change, SCATTER),
    row("vic.t5.oio64.interrupts", "interrupts/s by vIC, 64 outstanding", -63.3, Change, SCATTER),
];

/// A TPC-C-like load of 80 to 90 users: 10.2 K to 10.5 K IOPS on 45 disks of an EMC CX3-20, bursty; `cifThreshold` 4
/// and 2; the ratio is noted every 200 ms.
pub const TPC_C: &[Row] = &[
    row("vic.t8.none.interrupts", "interrupts per I/O without vIC (9.9 K of 10.2 K)", 0.971, PerIo, SAME),
    row("vic.t8.cift4.interrupts", "interrupts per I/O, cifThreshold 4 (6.4 K of 10.4 K)", 0.615, PerIo, INTERRUPTS),
    row("vic.t8.cift2.interrupts", "interrupts per I/O, cifThreshold 2 (5.8 K of 10.5 K)", 0.552, PerIo, INTERRUPTS),
    row("vic.t8.cift4.throughput", "transactions by vIC, cifThreshold 4", 3.0, Change, SCATTER),
    row("vic.t8.cift2.throughput", "transactions by vIC, cifThreshold 2", 5.1, Change, SCATTER),
    row("vic.f3.median", "median of the ratio that is chosen", 0.333, PerIo, STEP),
    row("vic.f4.lowest", "lowest ratio: \"less than 1 out of every 12\"", 0.0833, PerIo, Claim::AtMost),
    row("vic.f4.highest", "highest ratio: it \"varies significantly\"", 0.75, PerIo, Claim::AtLeast),
];

/// The ratio 1/3 at 10 K IOPS, both constant.
pub const DELAY: &[Row] = &[row("vic.s4_4.delay", "added latency at R = 1/3 and 10 K IOPS", 200.0, Micros, HOST)];

/// One guest with two virtual processors: Iometer, one worker, 8 outstanding, 8 KiB reads of a cached LUN, beside
/// Hyper Pi on both processors at idle priority. The threshold of the IPI gate is swept; the default is 100 us.
pub const FIGURE_5: &[Row] = &[
    row("vic.f5.io_alone", "IOPS without Hyper Pi, threshold 500 us over 0", 1.0, Times, SAME),
    row("vic.f5.pi_alone", "speed of Hyper Pi without I/O, threshold 500 us over 0", 1.0, Times, SAME),
    row(
        "vic.f5.io",
        "IOPS beside Hyper Pi, threshold 500 us over 0: \"suffers quite a bit\"",
        0.9,
        Times,
        Claim::AtMost,
    ),
    row(
        "vic.f5.pi",
        "speed of Hyper Pi beside I/O, threshold 500 us over 0: \"best performance\"",
        1.02,
        Times,
        Claim::AtLeast,
    ),
    row(
        "vic.f5.monotonic",
        "thresholds of the sweep at which IOPS fall and Hyper Pi gains",
        1.0,
        Count,
        Claim::AtLeast,
    ),
];
