//! The machine as a policy under test.

use budget_core::{Budget, Config, Event, Level, Params};
use coalesce_testkit::{Completion, Decision, Mark, Policy, Promises, Rate, Reason, Submission, Tested, forward};

/// What `Tested::reconfigure` switches to with the choices beyond the configurations: the level, by how many bits ε is less,
/// and whether probes are allowed.
pub const LEVELS: [(Level, u8, bool); 7] = [
    (Level::Nothing, 0, true),
    (Level::Strict, 0, true),
    (Level::Strict, 2, true),
    (Level::Licensed, 0, true),
    (Level::Licensed, 1, false),
    (Level::Nothing, 0, false),
    (Level::Strict, 0, false),
];

/// The machine, with the configurations that it may be given. A ticket is an error, because it gives none.
#[derive(Debug)]
pub struct Machine {
    budget: Budget,
    configs: Vec<(Config, Params)>,
    params: Params,
    level: Level,
}

impl Machine {
    /// Starts with the first configuration.
    pub fn new(choice: &[Params]) -> Self {
        let configs: Vec<_> = choice.iter().map(|&params| (Config::new(params).expect("valid"), params)).collect();
        let (config, params) = configs[0];
        Self { budget: Budget::new(config), configs, params, level: Level::Strict }
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
        self.level = Level::Strict;
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
            budget: (self.level != Level::Licensed).then_some(budget),
            unpaced: &[Reason::Flush, Reason::Error],
            ..Promises::default()
        }
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let Some(&(config, params)) = self.configs.get(usize::from(choice)) else {
            let (level, shift, may_probe) = *LEVELS.get(usize::from(choice) - self.configs.len())?;
            self.budget.set_level(now, level, shift, may_probe);
            self.level = level;
            return Some(self.on_deadline(now)); // what is held may be due by now
        };
        let answer = self.budget.reconfigure(config, now).ok()?;
        self.params = params;
        Some(answer)
    }
}
