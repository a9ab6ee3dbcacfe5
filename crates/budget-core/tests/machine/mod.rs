//! The machine as a policy under test.

use budget_core::{Allowance, Budget, Config, Event, Level, Params};
use coalesce_testkit::{Completion, Decision, Mark, Policy, Promises, Rate, Reason, Submission, Tested, forward};

/// What `Tested::reconfigure` switches to with the choices beyond the configurations.
pub const ALLOWANCES: [Allowance; 8] = [
    Allowance { level: Level::Nothing, ..Allowance::STRICT },
    Allowance::STRICT,
    Allowance { shift: 2, ..Allowance::STRICT },
    Allowance { level: Level::Licensed, limit: 2, ..Allowance::STRICT },
    Allowance { level: Level::Licensed, limit: 8, shift: 1, evidence: 3 },
    Allowance { level: Level::Trial, limit: 2, ..Allowance::STRICT },
    Allowance { level: Level::Trial, limit: 4, shift: 4, evidence: 2 },
    Allowance { level: Level::Licensed, limit: 4, ..Allowance::STRICT },
];

/// The machine, with the configurations that it may be given. A ticket is an error, because it gives none.
#[derive(Debug)]
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

/// What a tracker would say of a ticket.
fn tracked(mark: Mark) -> Mark {
    Mark { event: if mark.ticket.is_some() { Event::Error } else { mark.event }, ..mark }
}

impl Policy for Machine {
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.budget.on_completion(now, &Completion { mark: tracked(completion.mark), ..*completion })
    }

    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.budget.on_submits(now, submission.count());
        Mark::default()
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        self.budget.on_cancel(now, tracked(mark))
    }

    fn reset_tracking(&mut self) {
        self.budget.reset_tracking();
    }

    forward!(self => self.budget; deadline, on_deadline, flush, on_consumed, held, spent);
}

impl Tested for Machine {
    fn promises(&self) -> Promises {
        let config = self.budget.config();
        let burst = self.params.storm.map_or(0, |storm| (2 << storm.shift) + 2);
        // Under a licence the account rests: it is for what the driver does not know.
        let budget = coalesce_testkit::Budget {
            share: self.params.budget,
            constant: config.learning(),
            free_until: self.budget.paced_until().unwrap_or(0),
        };
        Promises {
            hold_max: Some(config.max_hold()),
            rate: config.storm_interval().map(|interval| Rate { interval, burst }),
            budget: (self.budget.level() != Level::Licensed).then_some(budget),
            unpaced: &[Reason::Flush, Reason::Error],
            ..Promises::default()
        }
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let Some(&(config, params)) = self.configs.get(usize::from(choice)) else {
            let allowance = *ALLOWANCES.get(usize::from(choice) - self.configs.len())?;
            self.budget.allow(now, allowance);
            return Some(self.on_deadline(now)); // what is held may be due by now
        };
        let answer = self.budget.reconfigure(config, now).ok()?;
        self.params = params;
        Some(answer)
    }
}
