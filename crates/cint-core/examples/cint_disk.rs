//! A small disk under cinterrupts at three queue depths: its decisions by reason. `cargo run -p cint-core --example
//! cint_disk`
//!
//! The disk serves 4 commands at a time, each in 8 to 12 µs. The host keeps up to `depth` commands in flight and
//! submits batches of a quarter of that, whose last command is a Barrier. Somebody waits for each 16th command: it is
//! Urgent.

use cint_core::{Cint, Completion, Config, ConfigError, Decision, Hint, Params, Policy as _};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

const CHANNELS: usize = 4;
const SECOND: u64 = 1_000_000_000; // in ticks of the clock, which are nanoseconds

/// Commands in flight: those in service by the time they complete, and those that wait for a channel.
#[derive(Default)]
struct Disk {
    in_service: BinaryHeap<Reverse<(u64, Hint)>>,
    waiting: VecDeque<Hint>,
    submitted: u32,
    random: u64,
}

impl Disk {
    fn submit(&mut self, now: u64, batch: usize) {
        for left in (0..batch).rev() {
            self.submitted += 1;
            self.waiting.push_back(match (self.submitted % 16, left) {
                (0, _) => Hint::Urgent,
                (_, 0) => Hint::Barrier,
                _ => Hint::Plain,
            });
        }
        self.serve(now);
    }

    fn serve(&mut self, now: u64) {
        while self.in_service.len() < CHANNELS {
            let Some(hint) = self.waiting.pop_front() else { return };
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.in_service.push(Reverse((now + 8_000 + (self.random >> 33) % 4_000, hint)));
        }
    }

    fn next_completion(&self) -> u64 {
        self.in_service.peek().map_or(u64::MAX, |Reverse((time, _))| *time)
    }

    fn complete(&mut self, now: u64) -> Option<Hint> {
        let Reverse((_, hint)) = self.in_service.pop()?;
        self.serve(now);
        Some(hint)
    }

    fn in_flight(&self) -> u32 {
        (self.waiting.len() + self.in_service.len()) as u32
    }
}

fn main() -> Result<(), ConfigError> {
    println!("depth    I/Os per s  interrupts per I/O  held, mean µs  held, most µs  decisions");
    for depth in [1, 8, 32] {
        let mut cint = Cint::new(Config::new(Params::DEFAULT)?);
        let mut disk = Disk::default();
        let (mut held, mut waits) = (vec![], vec![]); // when they completed; for how long they were held
        let (mut interrupts, mut decisions) = (0, BTreeMap::new());
        let (batch, mut free, mut now) = ((depth / 4).max(1), depth, 0);
        loop {
            while free >= batch {
                disk.submit(now, batch);
                free -= batch;
            }
            let deadline = cint.deadline().unwrap_or(u64::MAX);
            now = deadline.min(disk.next_completion());
            if now > SECOND {
                break;
            }
            let decision = if deadline <= now {
                cint.on_deadline(now)
            } else {
                let cif = disk.in_flight(); // the completing one included
                let Some(hint) = disk.complete(now) else { break };
                held.push(now);
                cint.on_completion(now, &Completion { cif, ..Completion::of(hint) })
            };
            let (what, why) = match decision {
                Decision::Hold(why) => ("hold", why.name()),
                Decision::Deliver(why) => ("deliver", why.name()),
                Decision::DeliverUrgent => ("deliver", "this urgent one alone"),
            };
            *decisions.entry((what, why)).or_insert(0) += 1;
            let covered = match decision {
                Decision::Hold(_) => continue,
                Decision::Deliver(_) => held.split_off(0),
                Decision::DeliverUrgent => held.split_off(held.len() - 1), // what was held stays held
            };
            interrupts += 1;
            waits.extend(covered.iter().map(|completed| now - completed));
            free += covered.len();
        }
        let ios = waits.len();
        let mean = waits.iter().sum::<u64>() as f64 / ios as f64 / 1e3;
        let most = waits.iter().max().map_or(0.0, |most| *most as f64 / 1e3);
        print!("{depth:5} {ios:13} {:19.2} {mean:14.1} {most:14.1}", f64::from(interrupts) / ios as f64);
        decisions.iter().for_each(|((what, why), count)| print!("  {what}({why}) {count}"));
        println!();
    }
    Ok(())
}
