//! Property tests for interrupt coalescing policies.
//!
//! A policy decides after each completion whether to interrupt now or to wait for more completions. Every policy must
//! keep some rules. This crate checks them on random sequences of events, and shrinks a failing sequence to a few
//! lines:
//!
//! 1. *Conservation*: each completion is covered by one interrupt, is held, or was reaped by the consumer on its own.
//! 2. *No spurious interrupt*: no interrupt without a held completion.
//! 3. *Nothing is held for ever*: a held completion has a deadline, or a command in flight behind it.
//! 4. *Delay bound*: no completion waits longer than the policy promises, if deadlines are met.
//! 5. *Rate bound*: no window of time has more interrupts than the policy promises.
//! 6. *Budget*: completions are held for no more than a share of the time that commands spend, if the policy promises one.
//! 7. *Urgent*: a completion that is marked urgent interrupts at once, if the policy promises that; a storm guard may be excepted.
//! 8. *Harmless deadlines*: early, repeated and needless calls of `on_deadline` change nothing.
//!
//! A policy under test is a [`Policy`] that says what it promises, which is [`Tested`]. Choose a [`Mix`] of events, and hand
//! both to [`check`]:
//!
//! ```
//! use coalesce_testkit::{Completion, Decision, HoldReason, Mix, Policy, Promises, Reason, Tested, check};
//!
//! /// Interrupt after every completion.
//! #[derive(Debug)]
//! struct None;
//! impl Policy for None {
//!     fn on_completion(&mut self, _: u64, _: &Completion) -> Decision { Decision::Deliver(Reason::Always) }
//!     fn deadline(&self) -> Option<u64> { Option::None }
//!     fn on_deadline(&mut self, _: u64) -> Decision { Decision::Hold(HoldReason::NothingHeld) }
//!     fn flush(&mut self, _: u64) -> Decision { Decision::Hold(HoldReason::NothingHeld) }
//!     fn on_consumed(&mut self, _: u64) {}
//!     fn held(&self) -> u32 { 0 }
//! }
//! impl Tested for None {
//!     fn promises(&self) -> Promises { Promises { hold_max: Some(0), ..Promises::default() } }
//! }
//! check(&Mix::new([10]), 10_000, || None);
//! ```
//!
//! `cargo run -p coalesce-testkit --example broken` shows what a policy with a mistake in it gets.

mod driver;
mod lockstep;
mod op;
mod policy;
mod trace;

pub use coalesce_decision::{
    Completion, Decision, Hint, HoldReason, Mark, Policy, Reason, Share, Spent, Submission, Ticket, forward,
};
pub use driver::{Driver, Shell, Summary, Violation, run};
pub use lockstep::Lockstep;
pub use op::{Mix, Op, When};
pub use policy::{Budget, Promises, Rate, Tested, Urgent};
pub use trace::{Call, Event, Recorder, check_vector, record, replay};

use proptest::strategy::{BoxedStrategy, Just, Strategy};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use std::fmt;

/// Operations in one random sequence, at most.
const SEQUENCE_LEN: usize = 200;

/// Plays about `operations` random operations to fresh policies, in both kinds of [`Shell`].
///
/// The environment variable `POLICY_TEST_TIMES` multiplies `operations`, for long runs.
///
/// # Panics
/// With the shortest sequence found that breaks a rule.
pub fn check<P: Tested>(mix: &Mix, operations: u32, policy: impl Fn() -> P) {
    check_any(mix, operations, &Just(()).boxed(), |()| policy());
}

/// As [`check`], for a family of policies: `choice` generates what `policy` is built from.
///
/// # Panics
/// With the simplest choice and the shortest sequence found that break a rule.
pub fn check_any<T, P>(mix: &Mix, operations: u32, choice: &BoxedStrategy<T>, policy: impl Fn(&T) -> P)
where
    T: fmt::Debug,
    P: Tested,
{
    if let Err(counterexample) = try_check_any(mix, operations, choice, policy) {
        panic!("{counterexample}");
    }
}

/// As [`check_any`], for those who want the counter-example itself.
///
/// # Errors
/// The counter-example.
pub fn try_check_any<T, P>(
    mix: &Mix,
    operations: u32,
    choice: &BoxedStrategy<T>,
    policy: impl Fn(&T) -> P,
) -> Result<(), Counterexample>
where
    T: fmt::Debug,
    P: Tested,
{
    let cases = operations.saturating_mul(times()) / (SEQUENCE_LEN as u32 / 2) / 2;
    for shell in [Shell::Punctual, Shell::Careless] {
        let config =
            Config { cases: cases.max(1), failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
        let mut runner = TestRunner::new(config); // counts its cases: one for each shell
        let outcome = runner.run(&(choice, mix.ops(SEQUENCE_LEN)), |(choice, ops)| {
            run(policy(&choice), shell, mix.start, &ops)
                .map(|_| ())
                .map_err(|violation| TestCaseError::fail(violation.to_string()))
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(violation, (choice, ops))) => {
                return Err(Counterexample {
                    violation: violation.to_string(),
                    choice: format!("{choice:?}"),
                    shell,
                    ops,
                });
            }
            Err(TestError::Abort(reason)) => panic!("no test case could be generated: {reason}"),
        }
    }
    Ok(())
}

/// The shortest sequence found that breaks a rule.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The [`Violation`], as text: the rule, and the events that led to it.
    pub violation: String,
    /// What the policy was built from.
    pub choice: String,
    /// The shell around the policy.
    pub shell: Shell,
    /// The operations: give them to [`run`] to play them again.
    pub ops: Vec<Op>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { violation, choice, shell, ops } = self;
        write!(f, "{violation}\npolicy: {choice}\nshell: {shell:?}\nshortest sequence found: {ops:?}\n")
    }
}

fn times() -> u32 {
    std::env::var("POLICY_TEST_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
