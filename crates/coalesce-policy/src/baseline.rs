//! The policies that users would pick instead: for comparison. Their flaws are part of them.
//!
//! They are as careful about time as the cores, but have no proofs.

mod always;
mod batch;
mod dim;
mod nvme;
mod spdk_vhost;

pub use nvme::{Aggregation, NvmeParams};
pub use spdk_vhost::SpdkVhostParams;

pub(crate) use always::Always;
pub(crate) use batch::Batch;
pub(crate) use dim::Dim;
pub(crate) use nvme::Nvme;
pub(crate) use spdk_vhost::SpdkVhost;

use coalesce_decision::{Decision, HoldReason, Reason};

/// What a baseline holds, and since when, on a clock that may go back.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    count: u32,
    first: u64,
    last: u64,
}

impl Held {
    /// Takes the time of a call. A clock that went back: no time has passed. Returns by how much it went back.
    fn advance(&mut self, now: u64) -> u64 {
        let back = self.last.saturating_sub(now);
        self.first = self.first.wrapping_sub(back);
        self.last = now;
        back
    }

    fn hold(&mut self, reason: HoldReason) -> Decision {
        if self.count == 0 {
            self.first = self.last;
        }
        self.count = self.count.saturating_add(1);
        Decision::Hold(reason)
    }

    fn deliver(&mut self, reason: Reason) -> Decision {
        self.count = 0;
        Decision::Deliver(reason)
    }

    fn deliver_held(&mut self, reason: Reason) -> Decision {
        if self.count > 0 { self.deliver(reason) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    fn nothing_due(&self) -> Decision {
        Decision::Hold(if self.count > 0 { HoldReason::Early } else { HoldReason::NothingHeld })
    }

    /// `span` ticks after the first held; `None`: nothing is held.
    fn deadline(&self, span: u64) -> Option<u64> {
        let waited = self.last.wrapping_sub(self.first);
        (self.count > 0).then(|| self.last.saturating_add(span.saturating_sub(waited)))
    }

    fn has_waited(&self, span: u64) -> bool {
        self.deadline(span).is_some_and(|deadline| deadline <= self.last)
    }
}
