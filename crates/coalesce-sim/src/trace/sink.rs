//! What parsers write into: submissions and completions, put in order of time.

use super::{Counts, Request};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

/// When a clock begins that counts from the first completion, or from the start of the tool: what was submitted before that
/// has a time, too.
pub const BEGIN: u64 = 3600 * 1_000_000_000;

/// What a line says; in order of time, then of lines.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    pub at: u64,
    number: u64,
    pub device: u64, // submissions and completions of one device match by key
    pub key: u64,
    pub what: RawWhat,
}

#[derive(Clone, Copy, Debug)]
pub enum RawWhat {
    Submit(usize, Request),
    Complete(usize, bool),
    Requeue,
    Arrival(usize, Request), // nobody knows when it completed
}

impl Ord for Raw {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Raw {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Raw {}

/// What parsers write into.
#[derive(Debug, Default)]
pub struct Sink {
    pub events: BinaryHeap<Reverse<Raw>>,
    number: u64,
    indices: HashMap<String, usize>,
    pub queues: Vec<String>,
    newest: u64,
    pub counts: Counts,
}

impl Sink {
    /// The index of a queue by this name. It is shown as it is, so nothing in it may be what a terminal obeys.
    pub fn queue(&mut self, name: &str) -> usize {
        let name = &*coalesce_cli::printable(name);
        if let Some(&index) = self.indices.get(name) {
            return index;
        }
        self.indices.insert(name.to_owned(), self.queues.len());
        self.queues.push(name.to_owned());
        self.queues.len() - 1
    }

    pub fn push(&mut self, at: u64, device: u64, key: u64, what: RawWhat) {
        self.number += 1;
        self.events.push(Reverse(Raw { at, number: self.number, device, key, what }));
    }

    /// A line about something that happened at `at`.
    pub fn event(&mut self, at: u64, device: u64, key: u64, what: RawWhat) {
        self.note_time(at);
        self.push(at, device, key, what);
    }

    /// A line about a whole command: its completion, and for how long it had been in flight, in ns.
    pub fn command(&mut self, at: u64, latency: u64, queue: usize, request: Request) {
        self.note_time(at);
        let key = self.number;
        self.push(at.saturating_sub(latency), queue as u64, key, RawWhat::Submit(queue, request));
        self.push(at, queue as u64, key, RawWhat::Complete(queue, false));
    }

    /// A line about a whole command: its arrival, and for how long it was in flight, in ns.
    pub fn request(&mut self, at: u64, latency: u64, queue: usize, request: Request) {
        self.note_time(at);
        let key = self.number;
        self.push(at, queue as u64, key, RawWhat::Submit(queue, request));
        self.push(at.saturating_add(latency), queue as u64, key, RawWhat::Complete(queue, false));
    }

    /// A line about a command's arrival that does not say when it completed.
    pub fn arrival(&mut self, at: u64, queue: usize, request: Request) {
        self.event(at, queue as u64, self.number, RawWhat::Arrival(queue, request));
    }

    /// A line that says nothing about submissions and completions.
    pub const fn other(&mut self) {
        self.counts.other += 1;
    }

    pub fn note_time(&mut self, at: u64) {
        self.counts.out_of_order += u64::from(at < self.newest);
        self.newest = self.newest.max(at);
    }
}
