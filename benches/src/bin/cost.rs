//! Calls one function in one of its cases 3200 times: what `scripts/cost.sh` counts the instructions of, and has the names of.
//! Prints in how many of them it held.

use budget_core::Budget;
use cint_core::Cint;
use coalesce::auto::{coalesce_auto_on_completion, coalesce_auto_state};
use coalesce::budget::{
    coalesce_budget_deadline, coalesce_budget_on_completion, coalesce_budget_on_submits, coalesce_budget_state,
};
use coalesce::cint::{coalesce_cint_on_completion, coalesce_cint_state};
use coalesce::hint::{COALESCE_HINT_BARRIER, COALESCE_HINT_PLAIN, COALESCE_HINT_URGENT};
use coalesce::instant::COALESCE_NEVER;
use coalesce::status::COALESCE_HOLD;
use coalesce::vic::{coalesce_vic_on_completion, coalesce_vic_state};
use coalesce_benches::{Algorithm2, MANY, START, algorithm2_on_completion};
use coalesce_policy::{AnyPolicy, Completion, Decision, Event, Hint, Policy as _};
use std::hint::black_box;
use vic_core::Vic;

/// What a Rust program has that inlines vIC. Symbols are for callgrind.
#[unsafe(no_mangle)]
fn vic_inlined(vic: &mut Vic, now: u64, cif: u32) -> bool {
    vic.on_completion(now, &Completion::with_cif(cif)).is_deliver()
}

/// The same for cint.
#[unsafe(no_mangle)]
fn cint_inlined(cint: &mut Cint, now: u64, hint: Hint, cif: u32) -> bool {
    cint.on_completion(now, &Completion { cif, ..Completion::of(hint) }).is_deliver()
}

/// The same for a latency budget.
#[unsafe(no_mangle)]
fn budget_inlined(budget: &mut Budget, now: u64, event: Event, cif: u32) -> bool {
    budget.on_completion(now, &Completion { cif, outstanding: cif, ..Completion::of(event) }).is_deliver()
}

/// The same, asked for its deadline.
#[unsafe(no_mangle)]
fn budget_deadline(budget: &Budget) -> Option<u64> {
    budget.deadline()
}

/// The same for a policy that is chosen at run time, with its statistics.
#[unsafe(no_mangle)]
fn any_policy(policy: &mut AnyPolicy, now: u64, cif: u32) -> bool {
    !matches!(policy.on_completion(now, &Completion::with_cif(cif)), Decision::Hold(_))
}

/// The same for completions that a device finds together.
#[unsafe(no_mangle)]
fn any_policy_together(policy: &mut AnyPolicy, now: u64, cif: u32) -> bool {
    !matches!(policy.on_completions(now, TOGETHER - 1, &Completion::with_cif(cif)), Decision::Hold(_))
}

/// Too few for a bypass.
const TOGETHER: u16 = 5;

/// How often `deliver` says no. 10 million completions a second; no epoch ends.
fn held(mut deliver: impl FnMut(u64) -> bool) -> usize {
    (1..=3200).filter(|n| !deliver(START + 100 * n)).count()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [function, case] = arguments.as_slice() else { panic!("cost FUNCTION CASE") };
    let cif = if case == "low" { 1 } else { MANY };
    let (number, hint) = match case.as_str() {
        "urgent" => (COALESCE_HINT_URGENT, Hint::Urgent),
        "barrier" => (COALESCE_HINT_BARRIER, Hint::Barrier),
        _ => (COALESCE_HINT_PLAIN, Hint::Plain),
    };
    // black_box: what is called is not known, so it is neither inlined nor made for its caller alone.
    let held = match function.as_str() {
        "algorithm2_on_completion" => {
            let call = black_box(algorithm2_on_completion as unsafe extern "C" fn(*mut Algorithm2, u64, u32) -> i32);
            let mut state = coalesce_benches::algorithm2();
            // SAFETY: the state is ours.
            held(|now| unsafe { call(&mut state, now, cif) } != COALESCE_HOLD)
        }
        "coalesce_vic_on_completion" => {
            let call =
                black_box(coalesce_vic_on_completion as unsafe extern "C" fn(*mut coalesce_vic_state, u64, u32) -> i32);
            let mut state = coalesce_benches::vic_for_c();
            // SAFETY: the state is ours.
            held(|now| unsafe { call(&mut state, now, cif) } != COALESCE_HOLD)
        }
        "vic_inlined" => {
            let call = black_box(vic_inlined as fn(&mut Vic, u64, u32) -> bool);
            let mut state = coalesce_benches::vic();
            held(|now| call(&mut state, now, cif))
        }
        "coalesce_cint_on_completion" => {
            let call = black_box(
                coalesce_cint_on_completion as unsafe extern "C" fn(*mut coalesce_cint_state, u64, u32, u32) -> i32,
            );
            let mut state = coalesce_benches::cint_for_c();
            // SAFETY: the state is ours.
            held(|now| unsafe { call(&mut state, now, number, cif) } != COALESCE_HOLD)
        }
        "cint_inlined" => {
            let call = black_box(cint_inlined as fn(&mut Cint, u64, Hint, u32) -> bool);
            let mut state = coalesce_benches::cint();
            held(|now| call(&mut state, now, hint, cif))
        }
        "coalesce_budget_on_completion" => {
            let call = black_box(
                coalesce_budget_on_completion
                    as unsafe extern "C" fn(*mut coalesce_budget_state, u64, u32, u32, u32) -> i32,
            );
            let mut state = coalesce_benches::budget_for_c();
            // SAFETY: the state is ours.
            held(|now| unsafe { call(&mut state, now, number, cif, cif) } != COALESCE_HOLD)
        }
        "coalesce_auto_on_completion" => {
            let call = black_box(
                coalesce_auto_on_completion
                    as unsafe extern "C" fn(*mut coalesce_auto_state, u64, u32, u32, u32) -> i32,
            );
            let mut state = coalesce_benches::auto_for_c();
            // SAFETY: the state is ours.
            held(|now| unsafe { call(&mut state, now, number, cif, cif) } != COALESCE_HOLD)
        }
        "coalesce_budget_on_submits" => {
            let call = black_box(
                coalesce_budget_on_submits as unsafe extern "C" fn(*mut coalesce_budget_state, u64, u32) -> i32,
            );
            let mut state = coalesce_benches::budget_for_c();
            // SAFETY: the state is ours.
            held(|now| unsafe { call(&mut state, now, 1) } != COALESCE_HOLD)
        }
        // After each completion, as a shell asks that arms a timer.
        "coalesce_budget_deadline" => {
            let complete = black_box(
                coalesce_budget_on_completion
                    as unsafe extern "C" fn(*mut coalesce_budget_state, u64, u32, u32, u32) -> i32,
            );
            let call = black_box(coalesce_budget_deadline as unsafe extern "C" fn(*const coalesce_budget_state) -> u64);
            let mut state = coalesce_benches::budget_for_c();
            held(|now| {
                // SAFETY: the state is ours.
                let _ = unsafe { complete(&mut state, now, number, cif, cif) };
                // SAFETY: the state is ours.
                unsafe { call(&state) == COALESCE_NEVER }
            })
        }
        "budget_inlined" => {
            let call = black_box(budget_inlined as fn(&mut Budget, u64, Event, u32) -> bool);
            let mut state = coalesce_benches::budget();
            held(|now| call(&mut state, now, hint.into(), cif))
        }
        "budget_deadline" => {
            let call = black_box(budget_deadline as fn(&Budget) -> Option<u64>);
            let mut state = coalesce_benches::budget();
            held(|now| {
                let _ = budget_inlined(&mut state, now, hint.into(), cif);
                call(&state).is_none()
            })
        }
        "any_policy" => {
            let call = black_box(any_policy as fn(&mut AnyPolicy, u64, u32) -> bool);
            let mut state = coalesce_benches::policy(case);
            held(|now| call(&mut state, now, cif))
        }
        "any_policy_together" => {
            let call = black_box(any_policy_together as fn(&mut AnyPolicy, u64, u32) -> bool);
            let mut state = coalesce_benches::policy(case);
            // The instructions of all of them are divided by 3200, too.
            let together = u64::from(TOGETHER);
            let held = (1..=3200 / together).filter(|n| !call(&mut state, START + 100 * together * n, cif)).count();
            held * usize::from(TOGETHER)
        }
        _ => panic!("no such function"),
    };
    println!("{held}");
}
