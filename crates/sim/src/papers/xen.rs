//! Scheduler awareness: Peirce, Boos, *Interrupt Coalescing in Xen with Scheduler Awareness*, 2016.

use super::row::Unit::Change;
use super::row::{Claim, Row, row};

/// They give one run of means, without spread.
const SCATTER: Claim = Claim::Within(3.0, "means without spread, one in a hundred either way is noise");

/// Guests share one core under Xen's Credit scheduler; one writes with `dd`, one other spins; `cifThreshold` 4,
/// `iopsThreshold` 100, epoch 200 ms. "vIC" is without, "aware" with the slice rule, both as they ran it.
pub const FIGURE_5: &[Row] = &[
    row("xen.f5.vic.throughput", "2 guests: throughput by vIC", 2.5, Change, SCATTER),
    row("xen.f5.aware.throughput", "2 guests: throughput by scheduler-aware vIC", 2.5, Change, SCATTER),
    row("xen.f8.two.vic.latency", "2 guests: latency by vIC", 6.7, Change, SCATTER),
    row("xen.f8.two.aware.latency", "2 guests: latency by scheduler-aware vIC", 0.0, Change, SCATTER),
];

/// As Figure 5 with three guests that spin.
pub const FIGURE_6: &[Row] = &[
    row("xen.f6.vic.throughput", "4 guests: throughput by vIC", 0.0, Change, SCATTER),
    row("xen.f6.aware.throughput", "4 guests: throughput by scheduler-aware vIC", 0.0, Change, SCATTER),
    row("xen.f8.four.vic.latency", "4 guests: latency by vIC", 10.0, Change, SCATTER),
    row("xen.f8.four.aware.latency", "4 guests: latency by scheduler-aware vIC", 3.5, Change, SCATTER),
];

/// Two guests, each writes with `dd` and spins.
pub const FIGURE_7: &[Row] = &[
    row("xen.f7.vic.throughput", "both write and spin: throughput by vIC", 6.1, Change, SCATTER),
    row("xen.f7.aware.throughput", "both write and spin: throughput by scheduler-aware vIC", 10.0, Change, SCATTER),
    row("xen.f8.both.vic.latency", "both write and spin: latency by vIC", 33.0, Change, SCATTER),
    row("xen.f8.both.aware.latency", "both write and spin: latency by scheduler-aware vIC", 15.0, Change, SCATTER),
];
