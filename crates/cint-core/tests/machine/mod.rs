//! The machine as a policy under test.

use cint_core::{Cint, Config, Params, Strict};
use coalesce_testkit::{Decision, Mark, Policy, Promises, Rate, Reason, Submission, Tested, Urgent, forward};

pub const GROUPS: usize = 2;

/// The machine behind a tracker with room for 64 * `WORDS` commands, with the configurations that it may be given.
#[derive(Debug)]
pub struct Machine<const WORDS: usize> {
    strict: Strict<Cint, GROUPS, WORDS>,
    configs: Vec<(Config, Params)>,
    params: Params,
    groups: u8, // 0: Barriers are relaxed
}

impl<const WORDS: usize> Machine<WORDS> {
    /// Starts with the first configuration.
    pub fn new(choice: &[Params], groups: u8) -> Self {
        let configs: Vec<_> = choice.iter().map(|&params| (Config::new(params).expect("valid"), params)).collect();
        let (config, params) = configs[0];
        Self { strict: Strict::new(Cint::new(config)), configs, params, groups }
    }
}

impl<const WORDS: usize> Policy for Machine<WORDS> {
    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        if self.groups == 0 { Mark::default() } else { self.strict.on_submit(now, submission) }
    }

    forward!(self => self.strict; all but on_submit);
}

impl<const WORDS: usize> Tested for Machine<WORDS> {
    fn promises(&self) -> Promises {
        let config = self.strict.get().config();
        let burst = self.params.storm.map_or(0, |storm| (2 << storm.shift) + 2);
        Promises {
            hold_max: config.max_hold(),
            rate: config.storm_interval().map(|interval| Rate { interval, burst }),
            urgent: if self.params.storm.is_some() { Urgent::InterruptsUnlessStorm } else { Urgent::Interrupts },
            unpaced: &[Reason::Flush, Reason::Error],
            needs_batch_end: config.max_hold().is_none(),
            ..Promises::default()
        }
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let (config, params) = *self.configs.get(usize::from(choice))?;
        let answer = self.strict.get_mut().reconfigure(config, now).ok()?;
        self.params = params;
        Some(answer)
    }
}
