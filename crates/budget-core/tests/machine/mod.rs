//! The machine as a policy under test.

use budget_core::{Budget, Config, Event, Params};
use coalesce_testkit::{Completion, Decision, Hint, Policy, Promises, Rate, Submission};

/// The machine, with the configurations that it may be given. A ticket is an error, because it gives none.
pub struct Machine {
    budget: Budget,
    configs: Vec<(Config, Params)>,
    params: Params,
}

impl Machine {
    /// Starts with the first configuration.
    pub fn new(choice: &[Params]) -> Self {
        let configs: Vec<_> = choice.iter().map(|&params| (Config::new(params).expect("valid"), params)).collect();
        let (config, params) = configs[0];
        Self { budget: Budget::new(config), configs, params }
    }
}

impl Policy for Machine {
    fn on_completion(&mut self, now: u64, completion: Completion) -> Decision {
        let event = match completion {
            Completion { ticket: Some(_), .. } => Event::Error,
            Completion { hint: Hint::Plain, .. } => Event::Plain,
            Completion { hint: Hint::Urgent, .. } => Event::Urgent,
            Completion { hint: Hint::Barrier, .. } => Event::Barrier,
        };
        self.budget.on_completion(now, event, completion.cif, completion.outstanding).into()
    }

    fn deadline(&self) -> Option<u64> {
        self.budget.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.budget.on_deadline(now).into()
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.budget.flush(now).into()
    }

    fn promises(&self) -> Promises {
        let config = self.budget.config();
        let burst = self.params.storm.map_or(0, |storm| (2 << storm.shift) + 2);
        let budget = coalesce_testkit::Budget {
            share: self.params.budget,
            constant: config.learning(),
            depth: self.budget.depth(),
            free_until: self.budget.paced_until().unwrap_or(0),
        };
        Promises {
            hold_max: Some(config.max_hold()),
            rate: config.storm_interval().map(|interval| Rate { interval, burst }),
            budget: Some(budget),
            unpaced: &["flush", "error"],
            ..Promises::default()
        }
    }

    fn held(&self) -> Option<u64> {
        Some(self.budget.held().into())
    }

    fn spent(&self) -> Option<(u64, u64)> {
        Some(self.budget.spent())
    }

    fn on_submit(&mut self, now: u64, submission: Submission) -> Option<u64> {
        self.budget.on_submit(now, submission.outstanding);
        None
    }

    fn cancel(&mut self, now: u64, ticket: Option<u64>) -> Decision {
        let event = if ticket.is_some() { Event::Error } else { Event::Plain };
        self.budget.on_cancel(now, event).into()
    }

    fn reset_tracking(&mut self) {
        self.budget.forget();
    }

    fn on_consumed(&mut self, now: u64) {
        self.budget.on_consumed(now);
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let (config, params) = *self.configs.get(usize::from(choice))?;
        let answer = self.budget.reconfigure(config, now).ok().map(Decision::from)?;
        self.params = params;
        Some(answer)
    }
}
