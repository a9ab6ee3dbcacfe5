//! The gate for inter-processor interrupts (vIC §3.3; Alg. 2 l.20-21).

use crate::atomic::{AtomicU64, Ordering};
use coalesce_decision::ticks::ticks_up;
use coalesce_decision::{ConfigError, Field};

/// Whether to send an inter-processor interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "after `Defer` the caller must ask again"]
pub enum Ipi {
    /// Send it now.
    Send,
    /// Do not send it yet: the VMM ran a moment ago, and may run again without an IPI. If it has not by `until`,
    /// ask again.
    Defer {
        /// The instant at which to ask again.
        until: u64,
    },
}

/// Parameters of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpiParams {
    /// Ticks per second of the caller's clock. 1 kHz to 10 GHz.
    pub tick_hz: u64,
    /// An IPI passes if the last virtual interrupt is longer ago than this. 0 to 1 s.
    pub threshold_ns: u64,
}

impl IpiParams {
    /// The paper's threshold (vIC §4.5), for a clock in nanoseconds.
    pub const PAPER: Self = Self { tick_hz: 1_000_000_000, threshold_ns: 100_000 };
}

/// Defers an inter-processor interrupt if the last *virtual interrupt* is recent.
///
/// Two threads share a gate. The VMM calls [`delivered`](Self::delivered) after each virtual interrupt. The
/// hypervisor's kernel calls [`should_send`](Self::should_send) after it posts a completion. A deferred IPI adds
/// latency and loses no completion, because the kernel asks again.
#[derive(Debug)]
pub struct IpiGate {
    threshold: u64,
    last: AtomicU64,
}

/// No virtual interrupt has been delivered. [`IpiGate::delivered`] never stores this instant.
const NEVER: u64 = u64::MAX;

impl IpiGate {
    /// A gate that has seen no virtual interrupt.
    ///
    /// # Errors
    /// `tick_hz` or the threshold is out of range.
    #[cfg(not(loom))]
    pub const fn new(params: IpiParams) -> Result<Self, ConfigError> {
        match Self::ticks(params) {
            Ok(threshold) => Ok(Self { threshold, last: AtomicU64::new(NEVER) }),
            Err(error) => Err(error),
        }
    }

    /// As above. This variant, for tests (`loom/`), is not const, because loom's atomics have no const constructor.
    ///
    /// # Errors
    /// As above.
    #[cfg(loom)]
    pub fn new(params: IpiParams) -> Result<Self, ConfigError> {
        Ok(Self { threshold: Self::ticks(params)?, last: AtomicU64::new(NEVER) })
    }

    const fn ticks(IpiParams { tick_hz, threshold_ns }: IpiParams) -> Result<u64, ConfigError> {
        if let Err(error) = Field::TickHz.check(tick_hz) {
            return Err(error);
        }
        match Field::IpiThreshold.check(threshold_ns) {
            Ok(()) => Ok(ticks_up(threshold_ns, tick_hz)),
            Err(error) => Err(error),
        }
    }

    /// Notes that the VMM has delivered a virtual interrupt (vIC Alg. 2, last line).
    pub fn delivered(&self, now: u64) {
        let stamp = if now == NEVER { NEVER.wrapping_sub(1) } else { now };
        self.last.store(stamp, Ordering::Release);
    }

    /// Whether the kernel must interrupt the guest's CPU, after it has posted a completion.
    ///
    /// If the last virtual interrupt lies in the future by more than the threshold, the clock is wrong: send. So at the end of the clock.
    pub fn should_send(&self, now: u64) -> Ipi {
        let last = self.last.load(Ordering::Acquire);
        if last == NEVER || now == u64::MAX || now.abs_diff(last) > self.threshold {
            return Ipi::Send;
        }
        Ipi::Defer { until: last.saturating_add(self.threshold).saturating_add(1) }
    }
}
