//! The fast path against the slow path. A unit test, as it compares private state; outside `src/`, as it needs `std`.

extern crate std;

use super::*;
use crate::{Config, Params};
use coalesce_decision::forward;
use coalesce_testkit::{Completion, Mix, Policy, Promises, Tested, check_any};
use core::cell::RefCell;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::vec::Vec;

/// A machine; wherever its fast path answers, a copy of it takes the slow path.
#[derive(Debug)]
struct Twin<'a> {
    vic: Vic,
    configs: Vec<Config>,
    answers: &'a RefCell<BTreeMap<&'static str, u32>>,
    fault: Option<String>,
}

impl Policy for Twin<'_> {
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let mut slow = self.vic;
        let mut fast = self.vic;
        if let Some(decision) = fast.on_completion_fast(now, completion.cif) {
            let expected = slow.decide(now, completion.cif, None);
            // `slow` has not looked ahead.
            if (decision, fast) != (expected, slow) {
                let difference = format!("fast {decision:?} {fast:?}, slow {expected:?} {slow:?}");
                self.fault.get_or_insert(difference);
            }
            let name = match decision {
                Decision::Deliver(reason) => reason.name(),
                Decision::Hold(_) => "hold",
                Decision::DeliverUrgent => "urgent",
            };
            *self.answers.borrow_mut().entry(name).or_default() += 1;
        }
        self.vic.on_completion(now, completion)
    }

    forward!(self => self.vic; all but on_completion, on_completions, on_covered);
}

impl Tested for Twin<'_> {
    fn promises(&self) -> Promises {
        let hold_max = self.vic.config().max_hold();
        Promises { hold_max, needs_next_completion: hold_max.is_none(), ..Promises::default() }
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        self.vic.reconfigure(*self.configs.get(usize::from(choice))?, now).ok()
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone()
    }
}

/// Epochs of 1000 ticks, and ratios of every kind.
fn config() -> impl Strategy<Value = Config> {
    let cif_threshold = prop_oneof![Just(2_u16), Just(4), Just(u16::MAX)];
    let max_skip = prop_oneof![Just(2_u16), Just(16), Just(u16::MAX)];
    let max_hold_ns = prop::option::of(1_000..1_500_000_u64);
    (cif_threshold, max_skip, max_hold_ns, any::<bool>()).prop_map(
        |(cif_threshold, max_skip, max_hold_ns, live_clamp)| {
            let epoch_ns = 1_000_000;
            let (tick_hz, iops_threshold, margin_ns) = (1_000_000, 0, 30_000);
            Config::new(Params {
                tick_hz,
                cif_threshold,
                iops_threshold,
                epoch_ns,
                max_skip,
                max_hold_ns,
                live_clamp,
                margin_ns,
            })
            .expect("in range")
        },
    )
}

#[test]
fn the_fast_path_decides_and_leaves_the_state_as_the_slow_path() {
    let answers = RefCell::default();
    let mix = Mix { back: true, consumed: true, schedule: true, configurations: 2, ..Mix::new([0, 20, 1000]) };
    let choice = prop::collection::vec(config(), 2).boxed();
    check_any(&mix, 400_000, &choice, |configs: &Vec<Config>| Twin {
        vic: Vic::new(configs[0]),
        configs: configs.clone(),
        answers: &answers,
        fault: None,
    });
    let answers = answers.into_inner();
    for reason in ["hold", "ratio", "always", "low_cif"] {
        assert!(answers.get(reason).is_some_and(|&times| times > 100), "too seldom for a test: {answers:?}");
    }
}
