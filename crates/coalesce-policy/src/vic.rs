//! vIC as a policy: it looks at commands in flight and at timeslices.

use crate::Decision;
use crate::completion::{Class, Completion};
use crate::hints::HintCounts;
use crate::machine::Machine;
use vic_core::Vic;

impl Machine for Vic {
    #[inline]
    fn on_completion(&mut self, now: u64, completion: &Completion, _hints: &mut HintCounts) -> Decision {
        let Completion { cif, class, slice_end, .. } = *completion;
        let decision = match slice_end {
            Some(_) => self.on_completion_in_slice(now, cif, slice_end),
            None => self.on_completion(now, cif),
        };
        match class {
            Class::Admin | Class::Failed if !decision.is_deliver() => self.flush(now),
            _ => decision,
        }
    }

    fn deadline(&self) -> Option<u64> {
        self.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.on_deadline(now)
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.flush(now)
    }

    fn on_consumed(&mut self, now: u64) {
        self.on_consumed(now);
    }

    fn held(&self) -> u64 {
        self.held().into()
    }

    fn max_hold(&self) -> Option<u64> {
        self.config().max_hold()
    }

    fn times_back(&self) -> u16 {
        self.times_back()
    }

    fn on_schedule(&mut self, now: u64) -> Decision {
        self.on_schedule(now)
    }

    fn on_deschedule(&mut self, now: u64) -> Decision {
        self.on_deschedule(now)
    }
}
