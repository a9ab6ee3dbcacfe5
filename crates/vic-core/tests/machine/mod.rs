//! The machine as a policy under test.

use coalesce_testkit::{Decision, Policy, Promises, Tested, forward};
use vic_core::{Config, Params, Vic};

/// The machine, with the configurations that it may be given.
#[derive(Debug)]
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

impl Policy for Machine {
    forward!(self => self.vic; all);
}

impl Tested for Machine {
    fn promises(&self) -> Promises {
        let hold_max = self.max_hold();
        Promises { hold_max, needs_next_completion: hold_max.is_none(), ..Promises::default() }
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        self.vic.reconfigure(*self.configs.get(usize::from(choice))?, now).ok()
    }
}
