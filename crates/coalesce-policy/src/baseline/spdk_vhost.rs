//! SPDK's vhost coalescing (`vhost_controller_set_coalescing`), as its source describes it, flaws included: below the
//! threshold the old delay stays and completions go on counting, and neither commands in flight nor hints are looked at.
//! Its clock belongs to a session and looks at one queue at a time, which a machine for one queue cannot show. One flaw is
//! left out: SPDK's delay has no bound but the 32 bits in which it is computed.

use super::Held;
use coalesce_decision::ticks::ticks_down;
use coalesce_decision::{Completion, Decision, HoldReason, Policy, Reason};

/// Parameters, by SPDK's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SpdkVhostParams {
    /// `delay_base_us`, at most [`DELAY_MAX_US`](Self::DELAY_MAX_US); 0: off.
    pub delay_base_us: u32,
    /// `iops_threshold`: completions per second above which signals are delayed.
    pub iops_threshold: u32,
}

impl SpdkVhostParams {
    /// The longest delay, in us, and the longest base of one: no guest waits longer, whatever its rate is.
    pub const DELAY_MAX_US: u32 = 60_000_000;
}

/// The load is looked at every 10 ms.
const WINDOW_NS: u64 = 10_000_000;

/// One signal for what a poll finds, and a delay after it that grows with the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpdkVhost {
    params: SpdkVhostParams,
    tick_hz: u64,
    window: u64, // WINDOW_NS, in ticks
    completions: u32,
    window_start: u64,
    last_signal: u64,
    delay: u64,
    held: Held,
}

impl SpdkVhost {
    /// A machine that has seen nothing.
    pub(crate) fn new(params: SpdkVhostParams, tick_hz: u64) -> Self {
        Self {
            params,
            tick_hz,
            window: ticks_down(WINDOW_NS, tick_hz),
            completions: 0,
            window_start: 0,
            last_signal: 0,
            delay: 0,
            held: Held::default(),
        }
    }

    fn advance(&mut self, now: u64) {
        let back = self.held.advance(now);
        self.window_start = self.window_start.wrapping_sub(back);
        self.last_signal = self.last_signal.wrapping_sub(back);
    }

    fn signal(&mut self, reason: Reason) -> Decision {
        if self.deadline().is_none_or(|deadline| deadline > self.held.last) {
            return self.held.nothing_due();
        }
        self.last_signal = self.held.last;
        self.held.deliver(reason)
    }

    /// delay = base * (completions - threshold) / threshold, where the threshold is per window.
    fn look(&mut self) {
        let SpdkVhostParams { delay_base_us, iops_threshold } = self.params;
        let threshold = iops_threshold / 100;
        if self.completions <= threshold {
            return;
        }
        let over = self.completions - threshold;
        let delay_us = (u64::from(delay_base_us) * u64::from(over)).checked_div(threshold.into()).unwrap_or(0);
        self.delay = ticks_down(delay_us.min(SpdkVhostParams::DELAY_MAX_US.into()) * 1000, self.tick_hz);
        self.completions = 0;
    }
}

impl Policy for SpdkVhost {
    /// It waits for the end of the poll.
    #[inline]
    fn on_completion(&mut self, now: u64, _completion: &Completion) -> Decision {
        self.advance(now);
        self.completions = self.completions.wrapping_add(1);
        self.held.hold(HoldReason::Batch)
    }

    /// SPDK polls: the end of the delay is seen at once.
    fn deadline(&self) -> Option<u64> {
        let passed = self.held.last.wrapping_sub(self.last_signal);
        (self.held.count > 0).then(|| self.held.last.saturating_add(self.delay.saturating_sub(passed)))
    }

    /// The delay has passed, or so the caller believes.
    fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now);
        self.signal(Reason::Time)
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.advance(now);
        self.held.deliver_held(Reason::Flush)
    }

    fn on_consumed(&mut self, now: u64) {
        self.advance(now);
        self.held.count = 0;
    }

    fn held(&self) -> u32 {
        self.held.count
    }

    fn wants_batch_end(&self) -> bool {
        true
    }

    /// The end of the poll: SPDK's one opportunity to signal.
    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.advance(now);
        if self.held.last.wrapping_sub(self.window_start) >= self.window {
            self.window_start = self.held.last;
            self.look();
        }
        self.signal(Reason::BatchEnd)
    }
}
