//! cinterrupts: Tai, Smolyar, Wei, Tsafrir, OSDI 2021 and ACM TOS 18:1, 2022. Figures are numbered as in TOS.

use super::row::Unit::{Count, Kilo, Micros, Share, Times};
use super::row::{Claim, HOST, INTERRUPTS, Row, SAME, WAIT, row};

/// One core of a Xeon E5-2660 v4 at 2.0 GHz, Linux 5.0.8; Optane P4800X and P3700; 4 KiB random reads; one process.
/// An interrupt costs 1500 cycles, 740 ns.
pub const COSTS: &[Row] = &[
    row("cint.f3.share", "interrupt's share of an I/O's cycles, Optane, depth 256", 24.0, Share, HOST),
    row("cint.f4.share", "interrupt's share of the latency, 5 us drive, depth 1: \"almost 15%\"", 15.0, Share, HOST),
    row("cint.t2.optane", "latency of a synchronous read, emulated interrupts, Optane", 10.4, Micros, HOST),
    row("cint.t2.p3700", "latency of a synchronous read, emulated interrupts, P3700", 82.1, Micros, HOST),
];

/// Optane; thr 32; Δ 6 us; NVMe's coalescing with 100 us, and with 20 us and 6 us, which no drive offers. Synchronous
/// 4 KiB reads; then libaio in batches of 16, depth 512.
pub const FIGURE_8: &[Row] = &[
    row("cint.f8.default", "latency of a synchronous read, no coalescing", 10.0, Micros, HOST),
    row("cint.f8.nvme100", "latency that a 100 us timeout adds", 100.0, Micros, WAIT),
    row("cint.f8.nvme20", "latency that a 20 us timeout adds", 20.0, Micros, WAIT),
    row("cint.f8.nvme6", "latency that a 6 us timeout adds", 6.0, Micros, WAIT),
    row("cint.f8.adaptive", "latency that Δ = 6 us adds", 6.0, Micros, WAIT),
    row("cint.f8.nvme20.interrupts", "interrupts/s at depth 512, 20 us timeout over adaptive", 1.7, Times, INTERRUPTS),
    row("cint.f8.nvme6.interrupts", "interrupts/s at depth 512, 6 us timeout over adaptive", 4.2, Times, INTERRUPTS),
    row(
        "cint.f8.default.iops",
        "IOPS at depth 512, no coalescing over adaptive: \"limited\"",
        0.9,
        Times,
        Claim::AtMost,
    ),
    row("cint.f8.nvme6.iops", "IOPS at depth 512, 6 us timeout over adaptive: \"lower\"", 1.0, Times, Claim::AtMost),
];

/// Optane, one core: one thread reads synchronously (Urgent), one through libaio, depth 16.
pub const FIGURE_10: &[Row] = &[
    row("cint.f10.interrupts", "interrupts/s, default over cint", 2.7, Times, INTERRUPTS),
    row("cint.f10.async", "asynchronous IOPS, cint over default: \"higher\"", 1.0, Times, Claim::AtLeast),
    row(
        "cint.f10.adaptive.latency",
        "synchronous latency, adaptive over cint: \"increase\"",
        1.0,
        Times,
        Claim::AtLeast,
    ),
    row("cint.f10.adaptive.async", "asynchronous IOPS, adaptive over cint: \"higher\"", 1.0, Times, Claim::AtLeast),
    row("cint.f10.adaptive.total", "total IOPS, adaptive over cint: \"better overall\"", 1.0, Times, Claim::AtLeast),
];

/// As Figure 10 with depth 256; thr is swept.
pub const FIGURE_11: &[Row] = &[
    row(
        "cint.f11.linear",
        "growth of synchronous latency, thr 64 to 128 over 32 to 64, adaptive: \"linear\"",
        2.0,
        Times,
        INTERRUPTS,
    ),
    row("cint.f11.flat", "synchronous latency, thr 128 over 32, cint: does not grow", 1.0, Times, SAME),
    row(
        "cint.f11.async",
        "asynchronous IOPS, cint over adaptive, thr 128: \"at the expense of\"",
        1.0,
        Times,
        Claim::AtMost,
    ),
];

/// Optane, one core: 1, 2, 4 threads; each submits a batch of 4 random reads when the one before has ended.
pub const FIGURE_12: &[Row] = &[
    row("cint.f12.t1.interrupts", "interrupts/s, default over cint, 1 thread", 4.4, Times, INTERRUPTS),
    row("cint.f12.t1.cpu", "processor use, default over cint, 1 thread", 1.32, Times, INTERRUPTS),
    row("cint.f12.t1.cint", "latency, cint, 1 thread", 22.0, Micros, HOST),
    row("cint.f12.t1.adaptive", "latency, adaptive, 1 thread", 29.0, Micros, HOST),
    row("cint.f12.t1.default", "latency, default over cint, 1 thread: \"lower\"", 1.0, Times, Claim::AtMost),
    row("cint.f12.t2.interrupts", "interrupts/s, default over cint, 2 threads", 3.4, Times, INTERRUPTS),
    row("cint.f12.t2.default", "IOPS, cint over default, 2 threads: \"best\"", 1.0, Times, Claim::AtLeast),
    row("cint.f12.t2.adaptive", "IOPS, cint over adaptive, 2 threads: \"best\"", 1.0, Times, Claim::AtLeast),
    row(
        "cint.f12.t4.interrupts",
        "interrupts/s, default over cint, 4 threads: \"the same\" as with 2",
        3.4,
        Times,
        INTERRUPTS,
    ),
    row("cint.f12.t4.adaptive", "IOPS, cint over adaptive, 4 threads: \"matches\"", 1.0, Times, SAME),
];

/// As Figure 11 with thr 32, with and without out-of-order Urgent; then the asynchronous thread is held to what it
/// gets with no coalescing.
pub const FIGURE_15: &[Row] = &[
    row("cint.f15.interrupts", "interrupts/s, out of order over in order", 2.4, Times, INTERRUPTS),
    row(
        "cint.f15.latency",
        "synchronous latency, out of order over in order: \"almost half\"",
        0.55,
        Times,
        INTERRUPTS,
    ),
    row("cint.f15.async", "asynchronous IOPS, out of order over in order: \"reduced\"", 1.0, Times, Claim::AtMost),
    row(
        "cint.f15.throttled.interrupts",
        "interrupts/s, out of order over in order, throttled",
        1.23,
        Times,
        INTERRUPTS,
    ),
    row("cint.f15.throttled.latency", "synchronous latency, out of order over default, throttled", 1.0, Times, SAME),
    row("cint.f15.throttled.cpu", "processor use, out of order over default, throttled", 0.7, Times, HOST),
    row("cint.s1.cpu", "processor use, default over coalescing, throttled: \"as much as 55%\" more", 1.55, Times, HOST),
];

/// Optane, one core: four processes read 4 KiB synchronously, all Urgent; the storm guard at 100 K/s, λ 1/128.
pub const FIGURE_17: &[Row] = &[
    row("cint.f17.off", "interrupts/s without the storm guard", 150.0, Kilo, HOST),
    row("cint.f17.on", "interrupts/s with the storm guard: \"does not exceed\"", 100.0, Kilo, Claim::AtMost),
    row("cint.f17.off.cpu", "processor use without the storm guard", 100.0, Share, SAME),
    row("cint.f17.on.cpu", "processor use with the storm guard", 94.0, Share, SAME),
    row("cint.f17.iops", "IOPS by the storm guard: \"slight increase\"", 1.0, Times, Claim::AtLeast),
    row("cint.f17.latency", "latency by the storm guard: \"slight decrease\"", 1.0, Times, Claim::AtMost),
];

/// libaio, depth 256, batches of 16; Δ 6 us (Optane) and 15 us (P3700); thr is swept from 1 to 256.
pub const FIGURE_19: &[Row] = &[
    row(
        "cint.f19.optane.thr",
        "smallest thr with all but 2 % of the throughput, Optane: \"between 16-32\"",
        24.0,
        Count,
        Claim::Within(8.0, "the range that the text states"),
    ),
    row(
        "cint.f19.p3700.thr",
        "smallest thr with all but 2 % of the throughput, P3700: \"between 16-32\"",
        24.0,
        Count,
        Claim::Within(8.0, "the range that the text states"),
    ),
    row(
        "cint.f19.gap",
        "IOPS by which the P3700 is below the Optane, thr 32: \"about 15K\"",
        15.0,
        Kilo,
        Claim::Within(15.0, "a small difference of two large figures"),
    ),
];

/// Both drives: synchronous 4 KiB reads; libaio, depth 256, batches of 16; thr 32, Δ 6 us and 15 us.
pub const FIGURE_20: &[Row] = &[
    row("cint.f20.optane.wait", "latency that adaptive adds to cint, synchronous, Optane", 6.0, Micros, WAIT),
    row("cint.f20.p3700.wait", "latency that adaptive adds to cint, synchronous, P3700", 15.0, Micros, WAIT),
    row("cint.f20.latency", "synchronous latency, cint over adaptive, Optane: \"up to 37%\" lower", 0.63, Times, SAME),
    row("cint.f20.default.latency", "synchronous latency, cint over default, Optane: \"matches\"", 1.0, Times, SAME),
    row(
        "cint.f20.optane.interrupts",
        "interrupts/s, default over cint, asynchronous, Optane: 12 to 15",
        13.5,
        Times,
        INTERRUPTS,
    ),
    row(
        "cint.f20.p3700.interrupts",
        "interrupts/s, default over cint, asynchronous, P3700: 12 to 15",
        13.5,
        Times,
        INTERRUPTS,
    ),
    row("cint.f20.iops", "asynchronous IOPS, cint over default, Optane: \"up to 35%\" more", 1.35, Times, SAME),
    row("cint.f20.adaptive.iops", "asynchronous IOPS, cint over adaptive, Optane: \"matches\"", 1.0, Times, SAME),
    row("cint.f20.cycles", "cycles per request, cint over default: \"30% fewer\"", 0.7, Times, HOST),
];

/// The mixed load of Figure 10: what share of the busy processor each thread gets.
pub const FIGURE_21: &[Row] = &[
    row("cint.f21.default", "share of the synchronous thread, default: \"nearly 50%\"", 50.0, Share, HOST),
    row("cint.f21.adaptive", "share of the synchronous thread, adaptive", 23.0, Share, HOST),
    row("cint.f21.ooo", "share of the synchronous thread, cint out of order: as default", 50.0, Share, HOST),
];

/// RocksDB and KVell on two cores; only what the hints alone cause can be carried: foreground requests are Urgent,
/// background requests are Urgent by default and plain once the application says so.
pub const APPLICATIONS: &[Row] = &[
    row("cint.t3.throughput", "loading RocksDB, background plain over Urgent: throughput", 1.04, Times, SAME),
    row("cint.t3.p99", "loading RocksDB, background plain over Urgent: p99 of foreground writes", 0.85, Times, HOST),
    row("cint.t6.throughput", "gets beside a dump, dump plain over Urgent: throughput", 1.37, Times, HOST),
    row("cint.t6.latency", "gets beside a dump, dump plain over Urgent: latency", 0.68, Times, HOST),
    row("cint.t6.p99", "gets beside a dump, dump plain over Urgent: p99", 0.14, Times, HOST),
    row("cint.f23.kvell", "KVell, cint over default: throughput, \"as much as 14%\" more", 1.14, Times, SAME),
    row("cint.t7.kvell", "KVell beside 4 threads of RocksDB, default over cint: throughput", 0.89, Times, SAME),
    row("cint.t7.rocksdb", "4 threads of RocksDB beside KVell, adaptive over cint: latency", 1.11, Times, SAME),
    row("cint.t8.kvell", "KVell beside 8 threads of RocksDB, default over cint: throughput", 0.94, Times, SAME),
    row("cint.t8.rocksdb", "8 threads of RocksDB beside KVell, adaptive over cint: latency", 1.06, Times, SAME),
];
