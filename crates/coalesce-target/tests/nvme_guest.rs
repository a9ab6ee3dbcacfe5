//! A real Linux guest with an NVMe disk that the real program serves: the driver and nvme-cli know it, nothing is lost in
//! resets, and its interrupts are those that the target counts.

mod guest_kit;

use guest_kit::{Options, Target, number, while_policies_change};
use serde_json::json;

fn start(policy: &'static str) -> Option<Target> {
    Target::start_with(Options { device: "nvme", policy, ..Options::default() })
}

#[test]
fn interrupts_are_the_guests() {
    let Some(mut target) = start("auto") else { return };
    let mut interrupts = Vec::new();
    let note = |target: &mut Target, _: &str| interrupts.push(number(&target.stats()["interrupts"]));
    let results = target.run("irqs", &["COUNT=2000", "PAUSE=0.5"], note);
    let by_target: Vec<_> = interrupts.chunks(2).map(|pair| pair[1] - pair[0]).collect();
    let by_guest: Vec<_> = results.iter().map(|result| number(&result["irqs"])).collect();
    assert_eq!((by_guest[0], by_target[0]), (2000, 2000), "depth 1");
    // QEMU and the guest's APIC pass on as one what comes while the guest is still in its handler. An NVMe driver cannot ask
    // for silence meanwhile, as one for virtio does, so there are many. No interrupt is without a cause.
    assert!((1..=by_target[1]).contains(&by_guest[1]), "depth 32: {by_guest:?} {by_target:?}");
}

#[test]
fn a_guest_sees_at_once_that_its_namespace_has_another_size() {
    if let Some(mut target) = start("auto") {
        target.resize_under_guest();
    }
}

/// A guest without MSI-X has the interrupt pin alone. A guest that loses an interrupt waits for 30 s, and says so.
#[test]
fn a_guest_without_msi_is_interrupted_by_the_pin() {
    let options = Options { device: "nvme", policy: "auto", append: "pci=nomsi", ..Options::default() };
    let Some(mut target) = Target::start_with(options) else { return };
    let mut interrupts = Vec::new();
    let note = |target: &mut Target, _: &str| {
        let stats = target.stats();
        assert_eq!(stats["host"]["intx"], json!(true));
        interrupts.push(number(&stats["interrupts"]));
    };
    let results = target.run("irqs", &["COUNT=1000", "PAUSE=0.5"], note);
    let by_target: Vec<_> = interrupts.chunks(2).map(|pair| pair[1] - pair[0]).collect();
    let by_guest: Vec<_> = results.iter().map(|result| number(&result["irqs"])).collect();
    println!("interrupts of 1000 reads at depth 1 and 32: the guest's {by_guest:?}, the target's {by_target:?}");
    assert!(results.iter().all(|result| result["errors"] == 0), "{results:#?}");
    assert_eq!(by_target[0], 1000, "depth 1");
    assert!((1..=1000).contains(&by_target[1]), "depth 32");
    let changes = while_policies_change(&target.control(), || {
        let results = target.run("nvme", &[], |_, _| ());
        assert!(results.iter().all(|result| result["errors"] == 0), "{results:#?}");
    });
    assert!(changes >= 50);
    let stats = target.stats();
    assert_eq!((&stats["in_flight"], &stats["held"]), (&json!(0), &json!(0)), "{stats:#}");
}

/// The commands of nvme-cli, features, resets under load, the driver unbound and the device found again: see the job.
#[test]
fn commands_resets_and_policy_changes_harm_no_data() {
    let Some(mut target) = start("auto") else { return };
    let mut results = Vec::new();
    let changes = while_policies_change(&target.control(), || results = target.run("nvme", &[], |_, _| ()));
    let nvme = results.last().unwrap();
    assert_eq!((nvme["job"].as_str(), &nvme["errors"]), (Some("nvme"), &json!(0)), "{}", target.log());
    assert_eq!((number(&nvme["resets"]), number(&nvme["passes"])), (4, 4), "{nvme}");
    assert!(results.iter().all(|result| result["errors"] == 0), "{results:#?}");
    println!("{nvme}, policy changes: {changes}");
    assert!(changes >= 50);
    let stats = target.stats();
    assert_eq!((&stats["in_flight"], &stats["held"]), (&json!(0), &json!(0)), "{stats:#}");
    // A read beyond the end.
    assert_eq!((&stats["device"]["failed"], &stats["device"]["malformed"]), (&json!(1), &json!(0)), "{stats:#}");
    let log = target.log();
    for bad in ["broken", "has ended", "refused", "warning"] {
        assert!(!log.contains(bad), "{bad}: {log}");
    }
}
