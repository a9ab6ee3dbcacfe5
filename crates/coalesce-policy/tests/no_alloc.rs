//! Without an allocator: `cargo test -p coalesce-policy --no-default-features --test no_alloc`
#![cfg(not(feature = "alloc"))]

use coalesce_policy::baseline::{NvmeParams, SpdkVhostParams};
use coalesce_policy::{AnyPolicy, Barriers, BudgetSpec, CintSpec, Completion, HintSpec, Policy as _, Spec};

#[test]
fn every_policy_but_one_with_strict_barriers() {
    let (vic, cint) = (vic_core::Params::DEFAULT, CintSpec::DEFAULT);
    for spec in [
        Spec::None,
        Spec::Nvme(NvmeParams { thr: 7, time: 1, vector: true, host: false }),
        Spec::Batch,
        Spec::Dim,
        Spec::SpdkVhost(SpdkVhostParams { delay_base_us: 50, iops_threshold: 60_000 }),
        Spec::Vic(vic),
        Spec::Cint(cint),
        Spec::Budget(BudgetSpec::DEFAULT),
        Spec::Auto(BudgetSpec::AUTO),
    ] {
        let mut policy = AnyPolicy::new(spec.clone(), 1_000_000).unwrap();
        let is_delivered = policy.on_completion(1, &Completion::with_cif(1)).is_deliver();
        assert_eq!(is_delivered, !matches!(spec, Spec::Nvme(_) | Spec::SpdkVhost(_)), "{spec:?}");
        assert_eq!(policy.held() == 0, is_delivered, "{spec:?}");
        let other = if matches!(spec, Spec::Vic(_)) { Spec::Cint(cint) } else { Spec::Vic(vic) };
        let changed = policy.reconfigure(other, 2).unwrap();
        assert_eq!(changed.is_deliver(), !is_delivered, "{spec:?}: {changed:?}");
        assert!(policy.on_completion(3, &Completion::with_cif(1)).is_deliver(), "{spec:?}");
    }
    let hints = HintSpec { barrier: Barriers::Strict, ..HintSpec::DEFAULT };
    let strict = Spec::Cint(CintSpec { hints, ..cint });
    let error = AnyPolicy::new(strict, 1_000_000).unwrap_err();
    assert_eq!(error.to_string(), "barrier is 1; allowed: 0 to 0");
}
