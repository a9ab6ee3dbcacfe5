//! Each rule catches the mistake it is there for.

use coalesce_testkit::{
    Budget, Completion, Decision, HoldReason, Mix, Policy, Promises, Rate, Reason, Share, Tested, Urgent, try_check_any,
};
use proptest::strategy::{Just, Strategy};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    /// Nothing held, interrupted all the same.
    Spurious,
    /// The count is reached, and the deadline forgotten with one still held.
    Lost,
    /// The deadline is one tick too late.
    Late,
    /// The deadline stays when nothing is held.
    Stale,
    /// `on_deadline` believes its caller.
    Gullible,
    /// A flush below the count does nothing.
    DeafFlush,
    /// Interrupts more often than promised.
    Storm,
    /// Counts one too few.
    Miscount,
    /// Holds for longer than its budget pays for.
    Dear,
    /// Holds for what a budget pays for once its commands have spent much, from the beginning on.
    Early,
    /// Holds an urgent completion like any other.
    Deaf,
    /// Holds it as if there were a storm guard.
    Paced,
    /// There is one.
    Storming,
}

#[derive(Debug)]
struct Counted {
    mistake: Mistake,
    held: u32,
    first: u64,
    rate: Option<Rate>,
}

const COUNT: u32 = 4;
const TIME: u64 = 50;

impl Counted {
    fn deliver(&mut self) -> Decision {
        if self.held == 0 && self.mistake != Mistake::Spurious {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        self.held = 0;
        Decision::Deliver(Reason::Count)
    }
}

impl Policy for Counted {
    fn on_completion(&mut self, now: u64, _: &Completion) -> Decision {
        if self.held == 0 {
            self.first = now;
        }
        self.held += 1;
        match self.mistake {
            _ if self.held == COUNT => self.deliver(),
            Mistake::Paced | Mistake::Storming => Decision::Hold(HoldReason::Storm),
            _ => Decision::Hold(HoldReason::Aggregate),
        }
    }

    fn deadline(&self) -> Option<u64> {
        let time = if self.mistake == Mistake::Late { TIME + 1 } else { TIME };
        let armed = self.held > 0 && !(self.mistake == Mistake::Lost && self.held == COUNT - 1);
        (armed || self.mistake == Mistake::Stale && self.first > 0).then_some(self.first + time)
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        let due = self.deadline().is_some_and(|deadline| deadline <= now) || self.mistake == Mistake::Gullible;
        if due { self.deliver() } else { Decision::Hold(HoldReason::Early) }
    }

    fn flush(&mut self, _: u64) -> Decision {
        if self.mistake == Mistake::DeafFlush { Decision::Hold(HoldReason::Batch) } else { self.deliver() }
    }

    fn on_consumed(&mut self, _: u64) {
        self.held = 0;
    }

    fn held(&self) -> u32 {
        self.held.saturating_sub(u32::from(self.mistake == Mistake::Miscount))
    }
}

impl Tested for Counted {
    fn promises(&self) -> Promises {
        let share = Share::percent(10);
        let dear = Budget { share, constant: 2 * TIME, growth: share, constant_max: 3 * TIME, free_until: 0 };
        let budget = match self.mistake {
            Mistake::Dear => Some(dear),
            Mistake::Early => Some(Budget { constant_max: u64::MAX, ..dear }),
            _ => None,
        };
        let urgent = match self.mistake {
            Mistake::Deaf | Mistake::Paced => Urgent::Interrupts,
            Mistake::Storming => Urgent::InterruptsUnlessStorm,
            _ => Urgent::MayWait,
        };
        Promises { hold_max: Some(TIME), rate: self.rate, budget, urgent, ..Promises::default() }
    }
}

fn rule_broken_by(mistake: Mistake) -> Option<String> {
    let rate = (mistake == Mistake::Storm).then_some(Rate { interval: TIME, burst: 2 });
    let policy = |&mistake: &Mistake| Counted { mistake, held: 0, first: 0, rate };
    let found =
        try_check_any(&Mix { hints: true, ..Mix::new([TIME]) }, 200_000, &Just(mistake).boxed(), policy).err()?;
    assert!(found.ops.len() <= 20, "not short: {found}");
    found.violation.split(':').next().map(String::from)
}

#[test]
fn every_rule_catches_its_mistake() {
    for (mistake, rule) in [
        (Mistake::None, None),
        (Mistake::Spurious, Some("no interrupt is spurious")),
        (Mistake::Lost, Some("nothing is held for ever")),
        (Mistake::Late, Some("no completion waits longer than promised")),
        (Mistake::Stale, Some("no deadline without need")),
        (Mistake::Gullible, Some("an early on_deadline is harmless")),
        (Mistake::DeafFlush, Some("a flush covers everything")),
        (Mistake::Storm, Some("the interrupt rate is bounded")),
        (Mistake::Miscount, Some("completions = covered + held")),
        (Mistake::Dear, Some("holding costs no more than the budget")),
        (Mistake::Early, Some("holding costs no more than the budget")),
        (Mistake::Deaf, Some("nobody who is marked urgent waits")),
        (Mistake::Paced, Some("nobody who is marked urgent waits")),
        (Mistake::Storming, None),
    ] {
        assert_eq!(rule_broken_by(mistake).as_deref(), rule, "{mistake:?}");
    }
}

/// What is written down of a decision is what statistics and reports call it.
#[test]
fn reasons_are_written_by_their_names() {
    for reason in Reason::ALL {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
    }
    for reason in HoldReason::ALL {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
    }
}
