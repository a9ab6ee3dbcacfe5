//! The machine as a policy under test.

use cint_core::{Cint, Config, Hint, Params, Ticket, Tracker};
use coalesce_testkit::{Completion, Decision, Policy, Promises, Rate, Submission};

pub const GROUPS: usize = 2;

/// The machine and a tracker with room for 64 * `WORDS` commands, with the configurations that it may be given.
pub struct Machine<const WORDS: usize> {
    cint: Cint,
    tracker: Tracker<GROUPS, WORDS>,
    configs: Vec<(Config, Params)>,
    params: Params,
    groups: u8, // 0: Barriers are relaxed
}

impl<const WORDS: usize> Machine<WORDS> {
    /// Starts with the first configuration.
    pub fn new(choice: &[Params], groups: u8) -> Self {
        let configs: Vec<_> = choice.iter().map(|&params| (Config::new(params).expect("valid"), params)).collect();
        let (config, params) = configs[0];
        Self { cint: Cint::new(config), tracker: Tracker::new(), configs, params, groups }
    }
}

impl<const WORDS: usize> Policy for Machine<WORDS> {
    fn on_completion(&mut self, now: u64, completion: Completion) -> Decision {
        let hint = match completion.hint {
            coalesce_testkit::Hint::Plain => Hint::Plain,
            coalesce_testkit::Hint::Urgent => Hint::Urgent,
            coalesce_testkit::Hint::Barrier => Hint::Barrier,
        };
        let event = self.tracker.on_completion(completion.ticket.map(Ticket::from_number), hint);
        self.cint.on_completion(now, event, Some(completion.cif)).into()
    }

    fn deadline(&self) -> Option<u64> {
        self.cint.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.cint.on_deadline(now).into()
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.cint.flush(now).into()
    }

    fn promises(&self) -> Promises {
        let config = self.cint.config();
        let burst = self.params.storm.map_or(0, |storm| (2 << storm.shift) + 2);
        Promises {
            hold_max: config.max_hold(),
            rate: config.storm_interval().map(|interval| Rate { interval, burst }),
            unpaced: &["flush", "error"],
            needs_batch_end: config.max_hold().is_none(),
            ..Promises::default()
        }
    }

    fn held(&self) -> Option<u64> {
        Some(u64::from(self.cint.held()))
    }

    fn on_submit(&mut self, _: u64, Submission { group, .. }: Submission) -> Option<u64> {
        if self.groups == 0 {
            return None;
        }
        self.tracker.on_submit(group).map(Ticket::to_number)
    }

    fn cancel(&mut self, now: u64, ticket: Option<u64>) -> Decision {
        let event = self.tracker.cancel(ticket.map(Ticket::from_number));
        self.cint.on_cancel(now, event).into()
    }

    fn reset_tracking(&mut self) {
        self.tracker.reset_tracking();
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.cint.on_batch_end(now).into()
    }

    fn on_consumed(&mut self, now: u64) {
        self.cint.on_consumed(now);
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let (config, params) = *self.configs.get(usize::from(choice))?;
        let answer = self.cint.reconfigure(config, now).ok().map(Decision::from)?;
        self.params = params;
        Some(answer)
    }
}
