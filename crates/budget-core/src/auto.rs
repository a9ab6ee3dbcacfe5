//! A latency budget and its regulator: the default policy of the targets.

use crate::algorithm::Budget;
use crate::config::Config;
use crate::level::Allowance;
use crate::regulator::Regulator;
use crate::together::{End, Together, cover, decide_all};
use coalesce_decision::{Bypassed, Completion, ConfigError, Decision, Policy, forward};

/// A latency budget whose regulator cuts it where holding slows the requesters down, and licenses more where trials show
/// that holding makes them faster.
///
/// The calls are those of [`Budget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Auto {
    budget: Budget,
    regulator: Regulator,
}

const _: () = assert!(size_of::<Auto>() == 192);
// In C a pointer to the one is a pointer to the other.
const _: () = assert!(core::mem::offset_of!(Auto, budget) == 0);

impl Auto {
    /// A machine that has seen nothing. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self { budget: Budget::new(config), regulator: Regulator::NEW }
    }

    /// A regulator around a latency budget, with what that has learned and earned.
    #[must_use]
    pub const fn around(budget: Budget) -> Self {
        Self { budget, regulator: Regulator::NEW }
    }

    /// The latency budget without its regulator.
    #[must_use]
    pub const fn into_budget(self) -> Budget {
        self.budget
    }

    /// The latency budget, for what can be asked of it.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Shows the regulator a completion.
    #[inline(always)]
    fn observe(&mut self, now: u64, completion: &Completion) {
        let outstanding = self.outstanding(completion);
        if self.regulator.advance(now, outstanding, self.budget.config.max_hold) {
            self.regulate(now);
        }
    }

    /// Commands outstanding at a completion, as far as is known.
    #[inline(always)]
    fn outstanding(&self, completion: &Completion) -> u32 {
        completion.outstanding.max(completion.cif.saturating_add(self.budget.held())) // 0: not known
    }

    #[cold]
    #[inline(never)]
    fn regulate(&mut self, now: u64) {
        let allowed = self.regulator.look(self.budget.known(), &self.budget.config);
        self.budget.allow(now, allowed);
    }

    /// There is nothing to decide. With a storm guard the policy must be asked.
    #[cold]
    #[inline(never)]
    fn begin_bypass(&mut self, now: u64) {
        if self.budget.config.storm_interval == 0 {
            self.regulator.begin_bypass(self.budget.known(), &self.budget.config);
            self.budget.set_aside(now, self.regulator.allowance());
        }
    }

    /// See [`Budget::reconfigure`]. What the regulator has learned is forgotten.
    ///
    /// # Errors
    /// `tick_hz` differs; then nothing has changed, not even the time.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let decision = self.budget.reconfigure(config, now)?;
        self.regulator = Regulator::NEW;
        self.budget.allow(now, Allowance::STRICT);
        Ok(decision)
    }

    /// This policy for later, while another one takes its place. What was learned and earned stays. The copy forgets the commands in
    /// flight, what is held and a trial that has begun, as the other one sees their end: nothing that happens meanwhile earns or
    /// teaches anything.
    #[must_use]
    pub fn set_aside(&self, now: u64) -> Self {
        let mut aside = *self;
        aside.on_consumed(now);
        aside.regulator.set_aside(aside.budget.known(), &aside.budget.config);
        aside.budget.set_aside(now, aside.regulator.allowance());
        aside
    }
}

impl Together for Auto {
    fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    fn decide_some(&mut self, now: u64, left: u16, last: &Completion, end: End) -> (u16, Decision) {
        let first = last.preceding(left);
        let outstanding = self.outstanding(&first);
        let (done, decision) = match self.budget.join(now, left.min(self.regulator.unseen()), &first, end) {
            Some((done, decision)) => {
                self.regulator.advance_by(done, now, outstanding, self.budget.config.max_hold);
                (done, decision)
            }
            None => (1, self.on_completion(now, &first)),
        };
        (left.wrapping_sub(done), decision)
    }
}

impl Policy for Auto {
    #[inline(always)] // so that what is constant of a completion costs nothing
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.observe(now, completion);
        self.budget.on_completion(now, completion)
    }

    fn on_completions(&mut self, now: u64, before: u16, last: &Completion) -> Decision {
        let decision = decide_all(self, now, before, last);
        if self.regulator.is_bypassed() {
            self.regulator.pass(now, 1, self.outstanding(last)); // a shell that asks anyway
        } else if self.regulator.note_poll(before.saturating_add(1), self.budget.held() > 0) {
            self.begin_bypass(now);
        }
        decision
    }

    /// What was submitted meanwhile earns nothing, as nobody says when it completed.
    fn on_bypassed(&mut self, now: u64, bypassed: &Bypassed) {
        self.budget.advance(now, 0, 0);
        self.budget.drop_held();
        self.regulator.pass(now, bypassed.deliveries(), bypassed.outstanding);
    }

    /// Not during a bypass, which begins where polls of the device coalesce enough by themselves, or the requester is alone.
    fn may_hold(&self) -> bool {
        !self.regulator.is_bypassed()
    }

    fn on_covered(&mut self, now: u64, left: u16, last: &Completion) {
        cover(self, now, left, last);
    }

    /// As [`Budget`]. What the regulator has learned is forgotten, too.
    fn reset_tracking(&mut self) {
        self.regulator = Regulator::NEW;
        self.budget.reset_tracking();
    }

    forward!(self => self.budget; deadline, on_deadline, flush, on_consumed, held, on_submit, on_cancel, posts_late, max_hold,
        wants_submit, spent);
}
