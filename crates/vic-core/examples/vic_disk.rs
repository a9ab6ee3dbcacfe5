//! A small disk under vIC at three queue depths: its decisions by reason. `cargo run -p vic-core --example vic_disk`
//!
//! The disk serves 4 commands at a time, each in 60 to 100 µs. The guest keeps `depth` commands in flight. It reaps
//! completions only at interrupts, so a held completion delays the next command.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use vic_core::{Completion, Config, ConfigError, Params, Policy as _, Vic};

const CHANNELS: usize = 4;
const SECOND: u64 = 1_000_000_000; // in ticks of the clock, which are nanoseconds

/// Commands in flight: those in service by the time they complete, and how many wait for a channel.
#[derive(Default)]
struct Disk {
    in_service: BinaryHeap<Reverse<u64>>,
    waiting: u32,
    random: u64,
}

impl Disk {
    fn submit(&mut self, now: u64) {
        self.waiting += 1;
        self.serve(now);
    }

    fn serve(&mut self, now: u64) {
        while self.waiting > 0 && self.in_service.len() < CHANNELS {
            self.waiting -= 1;
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.in_service.push(Reverse(now + 60_000 + (self.random >> 33) % 40_000));
        }
    }

    fn next_completion(&self) -> u64 {
        self.in_service.peek().map_or(u64::MAX, |Reverse(time)| *time)
    }

    fn complete(&mut self, now: u64) {
        self.in_service.pop();
        self.serve(now);
    }

    fn in_flight(&self) -> u32 {
        self.waiting + self.in_service.len() as u32
    }
}

fn main() -> Result<(), ConfigError> {
    println!("depth    I/Os per s  interrupts per I/O  held, mean µs  held, most µs  decisions");
    for depth in [1, 8, 32] {
        let mut vic = Vic::new(Config::new(Params::DEFAULT)?);
        let mut disk = Disk::default();
        let (mut held, mut waits) = (vec![], vec![]); // when they completed; for how long they were held
        let (mut interrupts, mut decisions) = (0, BTreeMap::new());
        (0..depth).for_each(|_| disk.submit(0));
        loop {
            let deadline = vic.deadline().unwrap_or(u64::MAX);
            let now = deadline.min(disk.next_completion());
            if now > SECOND {
                break;
            }
            let decision = if deadline <= now {
                vic.on_deadline(now)
            } else {
                let cif = disk.in_flight(); // the completing one included
                disk.complete(now);
                held.push(now);
                vic.on_completion(now, &Completion::with_cif(cif))
            };
            let what = if decision.is_deliver() { "deliver" } else { "hold" };
            *decisions.entry((what, decision.reason_name())).or_insert(0) += 1;
            if decision.is_deliver() {
                interrupts += 1;
                for completed in held.drain(..) {
                    waits.push(now - completed);
                    disk.submit(now);
                }
            }
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
