//! A real Linux guest on a virtio-blk disk that the real program serves: its data, its interrupts, and what it gives away.

mod guest_kit;

use guest_kit::{Options, Target, number, while_policies_change};
use nix::sys::signal::Signal;
use serde_json::json;
use std::thread;

#[test]
fn interrupts_are_the_guests() {
    for policy in ["none", "auto"] {
        let Some(mut target) = Target::start(policy) else { return };
        let mut interrupts = Vec::new();
        let note = |target: &mut Target, _: &str| interrupts.push(number(&target.stats()["interrupts"]));
        let results = target.run("irqs", &["COUNT=2000", "PAUSE=0.5"], note);
        let by_target: Vec<_> = interrupts.chunks(2).map(|pair| pair[1] - pair[0]).collect();
        let by_guest: Vec<_> = results.iter().map(|result| number(&result["irqs"])).collect();
        assert_eq!((by_guest[0], by_target[0]), (2000, 2000), "{policy}, depth 1");
        // QEMU passes on as one what comes twice before the guest's CPU takes it. No interrupt is without a cause.
        assert!(by_guest[1] <= by_target[1], "{policy}, depth 32: {by_guest:?} {by_target:?}");
        // How many merge is a matter of time, what must arrive is not: at least one for each full queue of requests.
        assert!(by_guest[1] >= 2000 / 32, "{policy}, depth 32: {by_guest:?} {by_target:?}");
    }
}

#[test]
fn priorities_of_processes_arrive_as_hints() {
    let Some(mut target) = Target::start("auto") else { return };
    let results = target.run("ioprio", &[], |_, _| ());
    let requests: Vec<_> = results.iter().map(|result| number(&result["requests"])).collect();
    assert_eq!(requests, [1000, 1100, 1200, 1300, 1400, 1500]);
    // Real time: 1100, 1300, about half of 1400. Idle: 1200.
    let hinted = number(&target.stats()["hints"]["ioprio"]);
    assert!((3600 + 500..3600 + 900).contains(&hinted), "{hinted}");
}

#[test]
fn data_is_what_was_written() {
    data_is_what_was_written_by(Options::default());
}

#[test]
fn a_guest_sees_at_once_that_its_disk_has_another_size() {
    if let Some(mut target) = Target::start("auto") {
        target.resize_under_guest();
    }
}

/// Linux drives a device without VERSION_1 as drivers before virtio 1.0 did.
#[test]
fn a_legacy_driver_reads_what_it_wrote() {
    data_is_what_was_written_by(Options { legacy: true, ..Options::default() });
}

fn data_is_what_was_written_by(options: Options) {
    let Some(mut target) = Target::start_with(options) else { return };
    let results = target.run("verify", &[], |_, _| ());
    let states: Vec<_> = results.iter().map(|result| (result["job"].as_str().unwrap(), &result["rc"])).collect();
    let expected = [("write-verify", 0), ("reread-verify", 0), ("write-fsync", 0), ("control-corrupt", 1)];
    assert!(states.iter().zip(expected).all(|(state, (job, rc))| state.0 == job && *state.1 == rc), "{states:?}");
    let stats = target.stats();
    assert!(number(&stats["device"]["flushes"]) >= 16 && number(&stats["hints"]["flush"]) >= 16, "{stats:#}");
    assert_eq!((&stats["device"]["failed"], &stats["device"]["malformed"]), (&json!(0), &json!(0)));
}

/// The policy changes every 100 ms, and at half time the target dies and another takes its place.
#[test]
fn nothing_is_lost_when_policies_change_and_the_target_dies() {
    let Some(mut target) = Target::start("auto") else { return };
    let seconds = std::env::var("COALESCE_SOAK_SECONDS").unwrap_or("10".into());
    let (mut results, mut reconnects) = (Vec::new(), 0);
    let changes = while_policies_change(&target.control(), || {
        results = target.run("soak", &[&format!("SECONDS={seconds}")], |target, step| {
            if step == "reconnect" {
                target.end_and_start_again(Signal::SIGKILL);
                reconnects += 1;
            }
        });
    });
    let soak = results.last().unwrap();
    assert_eq!((soak["job"].as_str(), &soak["errors"], reconnects), (Some("soak"), &json!(0), 1));
    assert!(number(&soak["passes"]) > 0 && number(&soak["flushes"]) > 0, "{soak}");
    println!("{soak}, policy changes: {changes}");
    assert!(changes >= 50);
    assert_eq!(target.stats()["in_flight"], 0);
}

/// The target ends, in order and not, again and again under verified writes. `COALESCE_RESTARTS` says how often.
#[test]
fn no_restart_loses_or_repeats_a_request() {
    let restarts = std::env::var("COALESCE_RESTARTS").ok().and_then(|text| text.parse().ok()).unwrap_or(4_u64);
    thread::scope(|scope| {
        for queues in [1, 4] {
            scope.spawn(move || restart_under_load(queues, restarts));
        }
    });
}

fn restart_under_load(queues: usize, restarts: u64) {
    let Some(mut target) = Target::start_with(Options { queues, ..Options::default() }) else { return };
    let mut done = [0_u64; 2];
    // A tick for each, and a tenth more: one that comes while the target is started again waits, and the next with it.
    let parameters = [format!("SECONDS={}", restarts * 2 * 3 / 2 * 11 / 10 + 6), "TICK=1.5".into()];
    let parameters: Vec<_> = parameters.iter().map(String::as_str).collect();
    let results = target.run("soak", &parameters, |target, step| {
        if step.starts_with("tick-") && done[1] < restarts {
            let signal = if done[0] == done[1] { Signal::SIGTERM } else { Signal::SIGKILL };
            target.end_and_start_again(signal);
            done[usize::from(signal == Signal::SIGKILL)] += 1;
        }
    });
    let soak = results.last().unwrap();
    assert_eq!((soak["job"].as_str(), &soak["errors"]), (Some("soak"), &json!(0)), "{}", target.log());
    assert_eq!(done, [restarts; 2], "SIGTERM and SIGKILL");
    assert_eq!(target.stats()["in_flight"], 0);
    let log = target.log();
    let taken_over = log.matches("takes over").count();
    println!("{queues} queues: {done:?} restarts, {taken_over} rings taken over, {soak}");
    for bad in ["broken", "has ended", "refused"] {
        assert!(!log.contains(bad), "{bad}: {log}");
    }
}
