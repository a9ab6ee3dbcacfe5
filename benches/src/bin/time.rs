//! The time of a decision, over 1, 64 and 4096 queues: their states lie in the first cache, or do not. Many commands are in
//! flight; completions come round the queues in an order that the hardware does not foresee. `scripts/bench.sh` shows the
//! ratios.

use coalesce::budget::{coalesce_budget_on_completion, coalesce_budget_state};
use coalesce::cint::{coalesce_cint_on_completion, coalesce_cint_state};
use coalesce::hint::COALESCE_HINT_PLAIN;
use coalesce::status::COALESCE_HOLD;
use coalesce::vic::{coalesce_vic_on_completion, coalesce_vic_state};
use coalesce_benches::{Algorithm2, MANY, START, algorithm2_on_completion};
use coalesce_policy::{Completion, Decision, Policy as _};
use criterion::{Criterion, Throughput};
use std::hint::black_box;
use std::time::Duration;

/// Decisions in an iteration.
const DECISIONS: usize = 4096;

fn time<S: Clone>(criterion: &mut Criterion, way: &str, state: S, deliver: impl Fn(&mut S, u64) -> bool) {
    let mut group = criterion.benchmark_group(way);
    group.throughput(Throughput::Elements(DECISIONS as u64));
    for queues in [1, 64, DECISIONS] {
        let mut states = vec![state.clone(); queues];
        let (mut now, mut queue) = (START, 0_usize);
        group.bench_function(queues.to_string(), |bencher| {
            bencher.iter(|| {
                let mut delivered = 0;
                for _ in 0..DECISIONS / queues {
                    now += 100;
                    for _ in 0..queues {
                        queue = queue.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) & (queues - 1); // each once
                        delivered += u32::from(deliver(&mut states[queue], now));
                    }
                }
                delivered
            });
        });
    }
    group.finish();
}

fn main() {
    let mut criterion =
        Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    let criterion = &mut criterion;
    // black_box: as with a library, what is called is not known, and cannot be inlined.
    let call = black_box(algorithm2_on_completion as unsafe extern "C" fn(*mut Algorithm2, u64, u32) -> i32);
    // SAFETY: the state is ours, here and below.
    time(criterion, "algorithm2_on_completion", coalesce_benches::algorithm2(), |state, now| unsafe {
        call(state, now, MANY) != COALESCE_HOLD
    });
    let call = black_box(coalesce_vic_on_completion as unsafe extern "C" fn(*mut coalesce_vic_state, u64, u32) -> i32);
    // SAFETY: as above.
    time(criterion, "coalesce_vic_on_completion", coalesce_benches::vic_for_c(), |state, now| unsafe {
        call(state, now, MANY) != COALESCE_HOLD
    });
    time(criterion, "vic_inlined", coalesce_benches::vic(), |vic, now| {
        vic.on_completion(now, &Completion::with_cif(MANY)).is_deliver()
    });
    let call =
        black_box(coalesce_cint_on_completion as unsafe extern "C" fn(*mut coalesce_cint_state, u64, u32, u32) -> i32);
    // SAFETY: as above.
    time(criterion, "coalesce_cint_on_completion", coalesce_benches::cint_for_c(), |state, now| unsafe {
        call(state, now, COALESCE_HINT_PLAIN, MANY) != COALESCE_HOLD
    });
    time(criterion, "cint_inlined", coalesce_benches::cint(), |cint, now| {
        cint.on_completion(now, &Completion::with_cif(MANY)).is_deliver()
    });
    let call = black_box(
        coalesce_budget_on_completion as unsafe extern "C" fn(*mut coalesce_budget_state, u64, u32, u32, u32) -> i32,
    );
    // SAFETY: as above.
    time(criterion, "coalesce_budget_on_completion", coalesce_benches::budget_for_c(), |state, now| unsafe {
        call(state, now, COALESCE_HINT_PLAIN, MANY, MANY) != COALESCE_HOLD
    });
    time(criterion, "budget_inlined", coalesce_benches::budget(), |budget, now| {
        budget.on_completion(now, &Completion { outstanding: MANY, ..Completion::with_cif(MANY) }).is_deliver()
    });
    let completion = Completion::with_cif(MANY);
    for name in ["none", "nvme", "dim"] {
        time(criterion, &format!("any_policy {name}"), coalesce_benches::policy(name), |policy, now| {
            !matches!(policy.on_completion(now, &completion), Decision::Hold(_))
        });
    }
}
