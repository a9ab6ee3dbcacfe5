//! Without an allocator: `cargo test -p coalesce-policy --no-default-features --test no_alloc`
#![cfg(not(feature = "alloc"))]

use coalesce_policy::{
    AnyPolicy, Barriers, BudgetSpec, CintSpec, Completion, Decision, HintSpec, Policy as _, Reason, Spec,
};

#[test]
fn every_policy_but_one_with_strict_barriers() {
    let cint = CintSpec::DEFAULT;
    for spec in [Spec::None, Spec::Batch, Spec::Dim, Spec::Cint(cint), Spec::Auto(BudgetSpec::AUTO)] {
        let mut policy = AnyPolicy::new(spec.clone(), 1_000_000).unwrap();
        assert!(policy.on_completion(1, &Completion::with_cif(1)).is_deliver(), "{spec:?}");
        let changed = policy.reconfigure(Spec::Vic(vic_core::Params::DEFAULT), 2);
        assert!(matches!(changed, Ok(Decision::Hold(_))), "{spec:?}: {changed:?}");
        assert_eq!(policy.on_completion(3, &Completion::with_cif(1)), Decision::Deliver(Reason::LowCif));
    }
    let hints = HintSpec { barrier: Barriers::Strict, ..HintSpec::DEFAULT };
    let strict = Spec::Cint(CintSpec { hints, ..cint });
    let error = AnyPolicy::new(strict, 1_000_000).unwrap_err();
    assert_eq!(error.to_string(), "barrier is 1; allowed: 0 to 0");
}
