//! The machine as a policy.

use crate::algorithm::Vic;
use coalesce_decision::{Class, Completion, Decision, HoldReason, Policy, Reason};

impl Policy for Vic {
    /// It looks at `cif` and `slice_end`. It takes no hints: a command of the admin queue and one that failed deliver.
    #[inline(always)] // so that what is constant of a completion costs nothing
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let Completion { cif, slice_end, .. } = *completion;
        let fast = if slice_end.is_none() { self.on_completion_fast(now, cif) } else { None };
        let decision = fast.unwrap_or_else(|| self.on_completion_in_slice(now, cif, slice_end));
        match completion.class {
            Class::Admin | Class::Failed if !decision.is_deliver() => self.flush(now),
            _ => decision,
        }
    }

    #[inline]
    fn deadline(&self) -> Option<u64> {
        self.pending().map(|(deadline, _)| deadline)
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now);
        self.deliver_expired(HoldReason::Early)
    }

    /// Delivers everything held. The epoch and the ratio stay.
    fn flush(&mut self, now: u64) -> Decision {
        self.advance(now);
        self.deliver_held(Reason::Flush)
    }

    fn on_consumed(&mut self, now: u64) {
        self.advance(now);
        self.cycle.set_held(0);
    }

    /// Delivers everything held. Until the first [`on_deschedule`](Policy::on_deschedule) the guest counts as running.
    fn on_schedule(&mut self, now: u64) -> Decision {
        self.advance(now);
        if !self.running {
            self.running = true;
            self.run_base = self.since(self.run_base);
        }
        self.deliver_held(Reason::Schedule)
    }

    /// Delivers everything held: the guest would see a later interrupt only when it runs again (Xen §4). Until
    /// [`on_schedule`](Policy::on_schedule), neither time nor completions count towards the rate (Xen, future work).
    fn on_deschedule(&mut self, now: u64) -> Decision {
        self.advance(now);
        if self.running {
            self.running = false;
            self.run_base = self.since(self.run_base);
            self.close_fast_path();
        }
        self.deliver_held(Reason::Deschedule)
    }

    #[inline]
    fn held(&self) -> u32 {
        self.cycle.held().into()
    }

    fn max_hold(&self) -> Option<u64> {
        self.config.max_hold()
    }

    #[inline]
    fn times_back(&self) -> u16 {
        self.times_back
    }
}
