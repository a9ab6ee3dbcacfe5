//! Arbitrary bytes as a trace. The first of them says how it is read: `@` in the format that is found out, the letters from `A`
//! on in the formats' order; 16 more is lenient, 32 more has a queue for each CPU.
//!
//! What is read is in order of time and adds up, strict and lenient readers agree, and every policy interrupts for what completed,
//! once and in time.
#![no_main]

use coalesce_sim::contender::Contender;
use coalesce_sim::replay::replay;
use coalesce_sim::trace::{Counts, Format, Moment, Options, Trace};
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use std::sync::LazyLock;

/// Without a limit, with a count, with deadlines, with both, and one that changes.
static POLICIES: LazyLock<Vec<Contender>> = LazyLock::new(|| {
    let texts = ["none", "batch", "nvme:thr=4,time=100us", "vic", "cint:barrier=strict,hints=all", "auto"];
    texts.iter().map(|text| text.parse().expect("a policy")).collect()
});

fn open(text: &[u8], options: Options) -> Trace {
    Trace::new(Box::new(Cursor::new(text.to_vec())), options)
}

/// What a trace's steps add up to; `None`: it is refused.
fn read(text: &[u8], options: Options) -> Option<Counts> {
    let mut trace = open(text, options);
    let (mut last, mut in_flight, mut submissions, mut completions) = (0, Vec::new(), 0, 0);
    while let Some(step) = trace.step().ok()? {
        assert!(step.at >= last, "{step:?} after {last}");
        last = step.at;
        assert!(step.queue < trace.queues().len());
        match (step.what, step.slot) {
            (Moment::Submit { batch_len, .. }, Some(slot)) => {
                assert!(batch_len > 0);
                in_flight.resize(in_flight.len().max(slot + 1), None);
                in_flight[slot] = Some(step.queue);
                submissions += 1;
            }
            (Moment::Submit { .. }, None) => panic!("a submission without a slot"),
            (Moment::Complete { .. }, Some(slot)) => {
                assert_eq!(in_flight[slot].take(), Some(step.queue), "it completes where it was submitted, once");
                completions += 1;
            }
            (Moment::Complete { .. }, None) => completions += 1,
            (Moment::Lost, slot) => {
                assert_eq!(slot.and_then(|slot| in_flight[slot].take()), Some(step.queue), "it was in flight");
            }
        }
    }
    let counts = trace.counts();
    assert_eq!((counts.submissions, counts.completions), (submissions, completions));
    assert_eq!(counts.in_flight_end, in_flight.iter().flatten().count() as u64);
    assert_eq!(submissions, completions - counts.unmatched + counts.resubmitted + counts.in_flight_end);
    assert!(counts.malformed == 0 || options.lenient);
    Some(counts)
}

/// Arrivals are in order of time, and those of a trace that is not refused as such are its submissions.
fn read_arrivals(text: &[u8], options: Options, replayed: Option<&Counts>) {
    let mut trace = open(text, options);
    let (mut last, mut count) = (0, 0);
    loop {
        match trace.arrival() {
            Ok(Some(step)) => {
                assert!(step.at >= last && step.queue < trace.queues().len());
                (last, count) = (step.at, count + 1);
            }
            Ok(None) => break,
            Err(_) => return assert!(replayed.is_none(), "refused, and not as a trace"),
        }
    }
    assert!(replayed.is_none_or(|counts| counts.submissions <= count), "{count} of {replayed:?}");
}

fuzz_target!(|input: &[u8]| {
    let Some((how, text)) = input.split_first() else { return };
    let format = usize::from(how & 15).checked_sub(1).and_then(|index| Format::ALL.get(index)).copied();
    let options = Options { format, lenient: how & 16 != 0, per_cpu: how & 32 != 0 };
    let counts = read(text, options);
    read_arrivals(text, options, counts.as_ref());
    let replayed = replay(&mut open(text, options), &POLICIES, None);
    assert_eq!(replayed.is_ok(), counts.is_some());
    let (Ok(replayed), Some(counts)) = (replayed, counts) else { return };
    if counts.malformed == 0 {
        assert_eq!(read(text, Options { lenient: !options.lenient, ..options }), Some(counts.clone()));
    }
    for outcome in &replayed.outcomes {
        assert!(outcome.verdict.is_clean(), "{}: {:?}", outcome.contender, outcome.verdict);
        assert_eq!((outcome.completions, outcome.delay.len()), (counts.completions, counts.completions));
        assert!(outcome.interrupts <= counts.completions && outcome.latency.len() <= counts.submissions);
    }
    assert_eq!(replayed.outcomes[0].interrupts, counts.completions, "none interrupts for each");
});
