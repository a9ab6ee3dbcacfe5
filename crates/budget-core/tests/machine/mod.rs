//! The machine as a policy under test.

use budget_core::{Allowance, Budget, Config, Event, Level, Params};
use coalesce_testkit::{
    Completion, Decision, Mark, Policy, Promises, Rate, Reason, Share, Submission, Tested, Urgent, forward,
};

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
    evidence: u8, // of the allowance
}

impl Machine {
    /// Starts with the first configuration.
    pub fn new(choice: &[Params]) -> Self {
        let configs: Vec<_> = choice.iter().map(|&params| (Config::new(params).expect("valid"), params)).collect();
        let (config, params) = configs[0];
        Self { budget: Budget::new(config), configs, params, evidence: 0 }
    }
}

/// The budget as the documentation has it, while so much speaks for a licence: C0 = (4 * max_hold + spent / 128) * (1 to 4), at most
/// 32 * max_hold.
pub fn promised(params: &Params, evidence: u8, free_until: u64) -> coalesce_testkit::Budget {
    let max_hold = (u128::from(params.max_hold_ns) * u128::from(params.tick_hz) / 1_000_000_000).max(1) as u64;
    let factor = u16::from(evidence) + 1;
    coalesce_testkit::Budget {
        share: params.budget,
        constant: 4 * max_hold * u64::from(factor),
        growth: Share::basis_points(79 * factor), // 1 / 128 is 78.1
        constant_max: 32 * max_hold,
        free_until,
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
        self.evidence = 0;
    }

    forward!(self => self.budget; all but on_completion, on_completions, on_covered, on_submit, on_cancel, reset_tracking);
}

impl Tested for Machine {
    fn promises(&self) -> Promises {
        let config = self.budget.config();
        let burst = self.params.storm.map_or(0, |storm| (2 << storm.shift) + 2);
        // Under a licence the account rests: it is for what the driver does not know.
        let budget = promised(&self.params, self.evidence, self.budget.paced_until().unwrap_or(0));
        Promises {
            hold_max: config.max_hold(),
            rate: config.storm_interval().map(|interval| Rate { interval, burst }),
            budget: (self.budget.level() != Level::Licensed).then_some(budget),
            urgent: if self.params.storm.is_some() { Urgent::InterruptsUnlessStorm } else { Urgent::Interrupts },
            unpaced: &[Reason::Flush, Reason::Error],
            ..Promises::default()
        }
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let Some(&(config, params)) = self.configs.get(usize::from(choice)) else {
            let allowance = *ALLOWANCES.get(usize::from(choice) - self.configs.len())?;
            self.budget.allow(now, allowance);
            self.evidence = allowance.evidence;
            return Some(self.on_deadline(now)); // what is held may be due by now
        };
        let answer = self.budget.reconfigure(config, now).ok()?;
        self.params = params;
        Some(answer)
    }
}
