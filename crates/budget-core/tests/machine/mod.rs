//! The machine as a policy under test.

use budget_core::{Budget, Config, Event, Level, Params};
use coalesce_testkit::{Completion, Decision, Hint, Policy, Promises, Rate, Submission};

/// What `Policy::reconfigure` switches to with the choices beyond the configurations: the level, by how many bits ε is less,
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

    fn on_submit(&mut self, now: u64, _: Submission) -> Option<u64> {
        self.budget.on_submit(now);
        None
    }

    fn cancel(&mut self, now: u64, ticket: Option<u64>) -> Decision {
        let event = if ticket.is_some() { Event::Error } else { Event::Plain };
        self.budget.on_cancel(now, event).into()
    }

    fn reset_tracking(&mut self) {
        self.budget.forget();
        self.level = Level::Strict;
    }

    fn on_consumed(&mut self, now: u64) {
        self.budget.on_consumed(now);
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let Some(&(config, params)) = self.configs.get(usize::from(choice)) else {
            let (level, shift, may_probe) = *LEVELS.get(usize::from(choice) - self.configs.len())?;
            self.budget.set_level(now, level, shift, may_probe);
            self.level = level;
            return Some(self.on_deadline(now)); // what is held may be due by now
        };
        let answer = self.budget.reconfigure(config, now).ok().map(Decision::from)?;
        self.params = params;
        Some(answer)
    }
}
