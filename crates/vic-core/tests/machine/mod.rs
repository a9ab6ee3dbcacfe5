//! The machine as a policy under test.

use coalesce_testkit::{Completion, Decision, Policy, Promises};
use vic_core::{Config, Params, Vic};

/// The machine, with the configurations that it may be given.
pub struct Machine {
    vic: Vic,
    configs: Vec<Config>,
}

impl Machine {
    /// Starts with the first configuration.
    pub fn new(choice: &[Params]) -> Self {
        let configs: Vec<_> = choice.iter().map(|&params| Config::new(params).expect("valid")).collect();
        Self { vic: Vic::new(configs[0]), configs }
    }
}

fn decision(decision: vic_core::Decision) -> Decision {
    match decision {
        vic_core::Decision::Deliver(reason) => Decision::Deliver(reason.name()),
        vic_core::Decision::Hold(reason) => Decision::Hold(reason.name()),
        vic_core::Decision::DeliverUrgent => panic!("vIC knows no urgent completions"),
    }
}

impl Policy for Machine {
    fn on_completion(&mut self, now: u64, completion: Completion) -> Decision {
        decision(match completion.slice_end {
            Some(_) => self.vic.on_completion_in_slice(now, completion.cif, completion.slice_end),
            None => self.vic.on_completion(now, completion.cif),
        })
    }

    fn deadline(&self) -> Option<u64> {
        self.vic.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        decision(self.vic.on_deadline(now))
    }

    fn flush(&mut self, now: u64) -> Decision {
        decision(self.vic.flush(now))
    }

    fn promises(&self) -> Promises {
        let hold_max = self.vic.config().max_hold();
        Promises { hold_max, needs_next_completion: hold_max.is_none(), ..Promises::default() }
    }

    fn held(&self) -> Option<u64> {
        Some(u64::from(self.vic.held()))
    }

    fn on_consumed(&mut self, now: u64) {
        self.vic.on_consumed(now);
    }

    fn on_schedule(&mut self, now: u64) -> Decision {
        decision(self.vic.on_schedule(now))
    }

    fn on_deschedule(&mut self, now: u64) -> Decision {
        decision(self.vic.on_deschedule(now))
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let config = *self.configs.get(usize::from(choice))?;
        self.vic.reconfigure(config, now).ok().map(decision)
    }
}
