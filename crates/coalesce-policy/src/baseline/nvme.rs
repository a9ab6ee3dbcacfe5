//! NVMe's own: Interrupt Coalescing (Feature 08h) and Interrupt Vector Configuration (Feature 09h).

use super::Held;
use coalesce_decision::ticks::ticks_down;
use coalesce_decision::{Class, Completion, Decision, HoldReason, Policy, Reason};

/// Aggregation time comes in units of 100 µs.
pub const TIME_UNIT_NS: u64 = 100_000;

/// Parameters, as the two Features encode them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct NvmeParams {
    /// Aggregation Threshold, 0's based: 7 means 8 completions; 0: no coalescing.
    pub thr: u8,
    /// Aggregation Time in units of 100 µs, from the first completion held; 0: no coalescing.
    pub time: u8,
    /// Feature 09h, Coalescing Disable, the other way round: whether this vector coalesces.
    pub vector: bool,
    /// Whether the host decides about `thr` and `time`: see [`Aggregation`]. Both are then 0 until it does.
    pub host: bool,
}

/// Feature 08h, as a host sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Aggregation {
    /// Aggregation Threshold, 0's based; 0: no coalescing.
    pub thr: u8,
    /// Aggregation Time in units of 100 µs; 0: no coalescing.
    pub time: u8,
}

/// `thr` + 1 completions, or `time` after the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nvme {
    params: NvmeParams,
    time: u64,
    tick_hz: u64,
    held: Held,
}

impl Nvme {
    /// A machine that has seen nothing.
    pub(crate) fn new(params: NvmeParams, tick_hz: u64) -> Self {
        let mut nvme = Self { params, time: 0, tick_hz, held: Held::default() };
        nvme.aggregate(if params.host {
            Aggregation::default()
        } else {
            Aggregation { thr: params.thr, time: params.time }
        });
        nvme
    }

    /// Whether the host decides about [`aggregate`](Self::aggregate).
    pub(crate) const fn is_by_host(&self) -> bool {
        self.params.host
    }

    /// Takes other parameters. What is held is delivered before.
    pub(crate) fn aggregate(&mut self, Aggregation { thr, time }: Aggregation) {
        (self.params.thr, self.params.time) = (thr, time);
        self.time = ticks_down(u64::from(time) * TIME_UNIT_NS, self.tick_hz);
    }
}

impl Policy for Nvme {
    /// Admin commands and errors are never coalesced.
    #[inline]
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.held.advance(now);
        let NvmeParams { thr, time, vector, .. } = self.params;
        if self.held.has_waited(self.time) {
            return self.held.deliver(Reason::Time);
        }
        match completion.class {
            _ if thr == 0 || time == 0 || !vector => self.held.deliver(Reason::Disabled),
            Class::Admin => self.held.deliver(Reason::Admin),
            Class::Failed => self.held.deliver(Reason::Error),
            Class::Io if self.held.count >= u32::from(thr) => self.held.deliver(Reason::Count),
            Class::Io => self.held.hold(HoldReason::Aggregate),
        }
    }

    /// `time` after the first held.
    fn deadline(&self) -> Option<u64> {
        self.held.deadline(self.time)
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.held.advance(now);
        if self.held.has_waited(self.time) { self.held.deliver(Reason::Time) } else { self.held.nothing_due() }
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.held.advance(now);
        self.held.deliver_held(Reason::Flush)
    }

    fn on_consumed(&mut self, now: u64) {
        self.held.advance(now);
        self.held.count = 0;
    }

    fn held(&self) -> u32 {
        self.held.count
    }

    fn max_hold(&self) -> Option<u64> {
        Some(self.time)
    }
}
