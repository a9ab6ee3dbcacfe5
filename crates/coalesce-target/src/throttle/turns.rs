//! Whose turn it is while several queues wait for the limits of their disk: start-time fair queueing (Goyal, Vin, Cheng, 1996),
//! with a slack in which a queue takes what it finds, so that turns do not cost a visit for each request.
//!
//! Times are virtual: what a request takes of the limits, in ns. A queue begins where it ended, but not before what was taken
//! last, less the slack: one that was idle has saved nothing up, and one that waits loses nothing. All are equal, whatever their
//! requests are.

/// How far a queue may be ahead of one that waits.
const SLACK: u64 = 1_000_000;
/// After this time a queue that does not come when it wanted to is not waited for: it has stopped, or has nothing to take.
const LATE: u64 = 10_000_000;

#[derive(Debug, Default)]
pub(super) struct Turns {
    served: u64,        // the start of what was taken last
    places: Vec<Place>, // by queue; those that came so far
}

#[derive(Debug, Default)]
struct Place {
    end: u64,
    wait: Option<Wait>,
}

#[derive(Debug)]
struct Wait {
    start: u64,
    until: u64, // real time, in ns
}

impl Turns {
    /// Where the next request of a queue starts.
    fn start(&mut self, queue: usize) -> u64 {
        let least = self.served.saturating_sub(SLACK);
        let place = self.place(queue);
        place.wait.as_ref().map_or(place.end.max(least), |wait| wait.start)
    }

    /// Whether a queue must let others go first. If so, the time at which it looks again.
    pub fn yields(&mut self, queue: usize, now: u64) -> Option<u64> {
        let start = self.start(queue);
        let others = self.places.iter().enumerate().filter(|(other, _)| *other != queue);
        let waits = others.filter_map(|(_, place)| place.wait.as_ref());
        let first = waits.filter(|wait| now <= wait.until.saturating_add(LATE)).map(|wait| wait.start).min();
        first.filter(|first| start > first.saturating_add(SLACK)).map(|_| now.saturating_add(SLACK))
    }

    /// A queue has requests, and looks again at this time.
    pub fn waits(&mut self, queue: usize, until: u64) {
        let start = self.start(queue);
        self.place(queue).wait = Some(Wait { start, until });
    }

    /// A queue has its turn, and no longer waits.
    pub fn begin(&mut self, queue: usize) {
        let start = self.start(queue);
        *self.place(queue) = Place { end: start, wait: None };
    }

    /// The queue that has its turn takes a request.
    pub fn take(&mut self, queue: usize, cost: u64) {
        let start = self.place(queue).end;
        self.served = self.served.max(start);
        self.place(queue).end = start.saturating_add(cost);
    }

    fn place(&mut self, queue: usize) -> &mut Place {
        if self.places.len() <= queue {
            self.places.resize_with(queue + 1, Place::default);
        }
        &mut self.places[queue]
    }
}
