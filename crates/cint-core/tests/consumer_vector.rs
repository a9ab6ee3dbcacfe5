//! `vectors/consumer.txt`: what a driver's own code must do as [`Reaper`], [`Hint`] and [`SystemCall`] do, one call a line.
//! `linux/test/replay.c` replays it. `UPDATE_VECTORS=1` writes it.
//!
//! ```text
//! queue SIZE                          a new queue, all zero; what follows is about it
//! post INDEX CID PHASE URGENT         the device writes an entry
//! urgent HEAD CID...                  Reaper::reap_urgent: the head after it, and what it took, in order
//! all HEAD CID...                     Reaper::reap
//! batches COUNT                       the queue's commands are in COUNT batches: strict Barriers
//! submit CID LAST BATCH               a command, the last of its batch or not, and the number of the batch; 0: none
//! complete HEAD CID...                Reaper: urgent entries, and those whose batch is complete by the Tracker
//! cdw12 BITS HINT, cdw13 BITS HINT    a command's hint; both of the paper's bits are Urgent
//! merge HINT HINT HINT                the third is what the first two make
//! call NAME HINT                      Table 1
//! parts NAME NAME HINT                a request merged from requests of two calls
//! ```

use cint_core::{BothBits, Entry, Event, Hint, Reaper, SystemCall, Ticket, Tracker};
use std::fmt::Write as _;

const WORDS: usize = 64;

/// A repeatable sequence (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn queue(out: &mut String, size: u16, steps: u32, random: &mut Random) {
    let mut memory = vec![Entry::default(); size.into()];
    let mut reaper = Reaper::<WORDS>::new(size).expect("it fits");
    let (mut tail, mut phase, mut cid) = (0_u16, true, 0_u16);
    writeln!(out, "queue {size}").unwrap();
    for _ in 0..steps {
        // As many as fit now and then: a full queue.
        for _ in 0..random.below(2 * u64::from(size)).min(random.below(40)) {
            // A hostile device does not stop at a full queue.
            if (tail + 1) % size == reaper.head() && random.below(50) != 0 {
                break;
            }
            let urgent = random.below(4) == 0;
            memory[usize::from(tail)] = Entry([urgent.into(), 0, 0, u32::from(cid) | u32::from(phase) << 16]);
            writeln!(out, "post {tail} {cid} {} {}", u8::from(phase), u8::from(urgent)).unwrap();
            cid = cid.wrapping_add(1);
            tail = (tail + 1) % size;
            phase ^= tail == 0;
        }
        let only_urgent = random.below(3) != 0;
        let mut taken = String::new();
        let read = |index: u16| memory[usize::from(index)];
        let take = |entry: Entry| write!(taken, " {}", entry.cid()).unwrap();
        if only_urgent {
            reaper.reap_urgent(read, |entry| entry.0[0] == 1, take);
        } else {
            reaper.reap(read, take);
        }
        writeln!(out, "{} {}{taken}", if only_urgent { "urgent" } else { "all" }, reaper.head()).unwrap();
    }
}

/// A command of a batch. `batch` is its number from 1, and its group in the tracker plus one.
#[derive(Clone, Copy)]
struct Command {
    cid: u16,
    urgent: bool,
    last: bool,
    batch: usize,
    ticket: Option<Ticket>,
}

/// A queue of batches: each is a group of its own, so that the tracker says when it is complete.
fn batches(out: &mut String, size: u16, count: usize, steps: u32, random: &mut Random) {
    let mut memory = vec![Entry::default(); size.into()];
    let mut reaper = Reaper::<WORDS>::new(size).expect("it fits");
    let mut tracker = Tracker::<4, 4>::new();
    let mut complete = [true; 5]; // by number; 0 is of those without a batch
    let mut left = [0_u32; 5];
    let (mut open, mut newest) = (0, 0);
    let (mut tail, mut phase) = (0_u16, true);
    let mut free: Vec<u16> = (0..size - 1).collect();
    let mut in_flight: Vec<Command> = Vec::new();
    let mut posted: Vec<Command> = Vec::new();
    writeln!(out, "queue {size}\nbatches {count}").unwrap();
    for _ in 0..steps {
        for _ in 0..random.below(6) {
            let Some(cid) = free.pop() else { break };
            let last = random.below(4) == 0;
            let next = newest % count + 1;
            if open == 0 && !last && complete[next] && left[next] == 0 {
                (open, newest) = (next, next);
                complete[next] = false;
            }
            let batch = open;
            let ticket = batch.checked_sub(1).and_then(|group| tracker.on_submit(u8::try_from(group).unwrap()));
            left[batch] += 1;
            open = if last { 0 } else { open };
            writeln!(out, "submit {cid} {} {batch}", u8::from(last)).unwrap();
            in_flight.push(Command { cid, urgent: random.below(8) == 0, last, batch, ticket });
        }
        for _ in 0..random.below(6).min(in_flight.len() as u64) {
            let command = in_flight.swap_remove(random.below(in_flight.len() as u64) as usize);
            if let Some(ticket) = command.ticket {
                let hint = if command.last { Hint::Barrier } else { Hint::Plain };
                complete[command.batch] |= tracker.on_completion(Some(ticket), hint) == Event::Barrier;
            }
            let word = u32::from(command.cid) | u32::from(phase) << 16;
            memory[usize::from(tail)] = Entry([command.urgent.into(), 0, 0, word]);
            let (cid, urgent) = (command.cid, u8::from(command.urgent));
            writeln!(out, "post {tail} {cid} {} {urgent}", u8::from(phase)).unwrap();
            posted.push(command);
            tail = (tail + 1) % size;
            phase ^= tail == 0;
        }
        let look = match random.below(8) {
            0 => "all",
            1..4 => "urgent",
            _ => "complete",
        };
        let of = |entry: Entry| posted.iter().position(|command| command.cid == entry.cid()).expect("it was posted");
        let takes = |entry: Entry| {
            let command = posted[of(entry)];
            look == "all" || command.urgent || (look == "complete" && complete[command.batch])
        };
        let mut taken = Vec::new();
        reaper.reap_urgent(|index| memory[usize::from(index)], takes, |entry| taken.push(of(entry)));
        write!(out, "{look} {}", reaper.head()).unwrap();
        for &at in &taken {
            write!(out, " {}", posted[at].cid).unwrap();
            left[posted[at].batch] -= 1;
            free.push(posted[at].cid);
        }
        out.push('\n');
        let taken: Vec<u16> = taken.iter().map(|&at| posted[at].cid).collect();
        posted.retain(|command| !taken.contains(&command.cid));
    }
}

fn name(hint: Hint) -> &'static str {
    match hint {
        Hint::Plain => "plain",
        Hint::Barrier => "barrier",
        Hint::Urgent => "urgent",
    }
}

const CALLS: [(&str, SystemCall); 10] = [
    ("read", SystemCall::Read { blocking: true }),
    ("write_direct", SystemCall::Write { blocking: true, direct: true }),
    ("preadv2", SystemCall::Vectored2 { nowait: false, urgent: false, barrier: false }),
    ("preadv2_nowait", SystemCall::Vectored2 { nowait: true, urgent: false, barrier: false }),
    ("io_submit", SystemCall::IoSubmit { last: false }),
    ("io_submit_last", SystemCall::IoSubmit { last: true }),
    ("fsync", SystemCall::Sync),
    ("msync", SystemCall::Msync { sync: true, last: false }),
    ("msync_last", SystemCall::Msync { sync: true, last: true }),
    ("msync_async", SystemCall::Msync { sync: false, last: true }),
];

#[test]
fn consumer() {
    let mut out = String::new();
    let mut random = Random(1);
    for (size, steps) in [(2, 40), (3, 60), (5, 80), (64, 60), (65, 60), (70, 60), (200, 60)] {
        queue(&mut out, size, steps, &mut random);
    }
    for (size, count, steps) in [(3, 1, 60), (16, 2, 120), (64, 4, 120), (200, 4, 120)] {
        batches(&mut out, size, count, steps, &mut random);
    }
    for bits in [0_u32, 1 << 16, 2 << 16, 3 << 16, 4 << 16, 0xfffc_ffff, u32::MAX] {
        writeln!(out, "cdw12 {bits} {}", name(Hint::from_cdw12(bits, BothBits::Urgent))).unwrap();
    }
    for bits in [0_u32, 1 << 4, 2 << 4, 3 << 4, 0xffff_ffcf, u32::MAX] {
        writeln!(out, "cdw13 {bits} {}", name(Hint::from_access_latency(bits))).unwrap();
    }
    let hints = [Hint::Plain, Hint::Barrier, Hint::Urgent];
    for (a, b) in hints.iter().flat_map(|a| hints.map(|b| (*a, b))) {
        writeln!(out, "merge {} {} {}", name(a), name(b), name(a.merge(b))).unwrap();
    }
    for (call, what) in CALLS {
        writeln!(out, "call {call} {}", name(what.hint())).unwrap();
    }
    for ((one, a), (other, b)) in CALLS.iter().flat_map(|a| CALLS.map(|b| (*a, b))) {
        writeln!(out, "parts {one} {other} {}", name(a.hint().merge(b.hint()))).unwrap();
    }

    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/consumer.txt");
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(&path, &out).expect("it can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("UPDATE_VECTORS=1 makes it");
    let differ = kept.lines().zip(out.lines()).position(|(kept, new)| kept != new);
    assert!(kept == out, "{} is out of date, first in line {differ:?}", path.display());
}
