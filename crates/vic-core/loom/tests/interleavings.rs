//! Two threads, every interleaving.

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use vic_core::{Completion, Config, Params, Policy as _, Vic};
use vic_core_loom::{Ipi, IpiGate, IpiParams};

const THRESHOLD: u64 = 100;
const PARAMS: IpiParams = IpiParams { threshold_ns: THRESHOLD, ..IpiParams::PAPER };

/// The kernel posts a completion and asks the gate. At the same time the monitor handles what is posted and notes an
/// interrupt. In any order the completion is handled, or the kernel sends an IPI at the latest when it asks again.
#[test]
fn a_deferred_ipi_costs_no_completion() {
    loom::model(|| {
        let gate = Arc::new(IpiGate::new(PARAMS).unwrap());
        let posted = Arc::new(AtomicU32::new(0));
        gate.delivered(1_000);

        let monitor = {
            let (gate, posted) = (gate.clone(), posted.clone());
            thread::spawn(move || {
                let taken = posted.swap(0, Ordering::AcqRel);
                gate.delivered(1_050);
                taken
            })
        };
        posted.fetch_add(1, Ordering::AcqRel);
        let answer = gate.should_send(1_060);
        let taken = monitor.join().unwrap();

        let left = posted.load(Ordering::Acquire);
        assert_eq!(taken + left, 1);
        if let Ipi::Defer { until } = answer {
            assert!(until == 1_000 + THRESHOLD + 1 || until == 1_050 + THRESHOLD + 1, "{until}");
            // Asked again then, the gate may defer once more, for the monitor's newer stamp; then it sends.
            let last = match gate.should_send(until) {
                Ipi::Send => until,
                Ipi::Defer { until } => until,
            };
            assert_eq!(gate.should_send(last), Ipi::Send);
            assert!(last <= 1_050 + THRESHOLD + 1);
        }
    });
}

/// A gate that nobody has stamped never defers.
#[test]
fn the_first_ipi_is_sent() {
    loom::model(|| {
        let gate = Arc::new(IpiGate::new(PARAMS).unwrap());
        let monitor = {
            let gate = gate.clone();
            thread::spawn(move || gate.delivered(0))
        };
        match gate.should_send(10) {
            Ipi::Send => {}
            Ipi::Defer { until } => assert_eq!(until, THRESHOLD + 1),
        }
        monitor.join().unwrap();
    });
}

/// A machine at R = 1/2, with nothing held; commands in flight below 2 deliver.
fn half() -> Vic {
    let params = Params { cif_threshold: 2, iops_threshold: 0, epoch_ns: 1_000_000, ..Params::PAPER };
    let mut vic = Vic::new(Config::new(params).unwrap());
    assert!(vic.on_completion(0, &Completion::with_cif(8)).is_deliver());
    assert!(!vic.on_completion(2_000_000, &Completion::with_cif(8)).is_deliver());
    assert!(vic.on_completion(2_000_000, &Completion::with_cif(8)).is_deliver());
    vic
}

/// Two threads complete the last two commands, under one lock. If one is held at the end, no interrupt ever covers it.
fn held_after(cif: fn(&AtomicU32, u32) -> u32) {
    loom::model(move || {
        let in_flight = Arc::new(AtomicU32::new(2));
        let vic = Arc::new(Mutex::new(half()));
        let complete = move |in_flight: &AtomicU32, vic: &Mutex<Vic>| {
            let before = in_flight.fetch_sub(1, Ordering::AcqRel);
            let mut vic = vic.lock().unwrap();
            let _ = vic.on_completion(2_000_000, &Completion::with_cif(cif(in_flight, before)));
        };
        let other = {
            let (in_flight, vic) = (in_flight.clone(), vic.clone());
            thread::spawn(move || complete(&in_flight, &vic))
        };
        complete(&in_flight, &vic);
        other.join().unwrap();
        assert_eq!(vic.lock().unwrap().held(), 0, "held, and no command in flight");
    });
}

#[test]
fn cif_loaded_inside_the_lock_never_hangs() {
    held_after(|in_flight, _| in_flight.load(Ordering::Acquire) + 1);
}

/// The contract's warning: the value that the subtraction returned is not good enough.
#[test]
#[should_panic(expected = "no command in flight")]
fn cif_returned_by_the_subtraction_hangs() {
    held_after(|_, before| before);
}
