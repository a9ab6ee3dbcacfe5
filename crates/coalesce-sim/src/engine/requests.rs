//! Commands that a thread has submitted and no handler has answered.

use coalesce_policy::{Mark, Submission};

/// One command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) thread: u32,
    pub(super) cpu: u32,
    pub(super) since: u64,
    pub(super) submission: Submission,
    pub(super) mark: Mark,
    /// Posted on its line.
    pub(super) posted: bool,
    /// Counts each time it is given to the device, and each time the place is used again.
    pub(super) turn: u32,
    free: bool,
}

/// All of them; places are used again.
#[derive(Debug, Default)]
pub(super) struct Requests {
    places: Vec<Request>,
    free: Vec<u32>,
}

impl Requests {
    pub(super) fn insert(&mut self, thread: u32, cpu: u32, since: u64, submission: Submission, mark: Mark) -> u32 {
        let new = |turn| Request { thread, cpu, since, submission, mark, posted: false, turn, free: false };
        if let Some(id) = self.free.pop() {
            let place = &mut self.places[id as usize];
            *place = new(place.turn);
            return id;
        }
        self.places.push(new(0));
        u32::try_from(self.places.len() - 1).expect("depths are bounded")
    }

    pub(super) fn remove(&mut self, id: u32) -> Request {
        let place = &mut self.places[id as usize];
        place.turn = place.turn.wrapping_add(1);
        place.free = true;
        self.free.push(id);
        *place
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Request {
        &mut self.places[id as usize]
    }

    pub(super) fn get(&self, id: u32) -> &Request {
        &self.places[id as usize]
    }

    /// Whether the request is still given to the device for the same time.
    pub(super) fn is_current(&self, id: u32, turn: u32) -> bool {
        let place = self.get(id);
        place.turn == turn && !place.free
    }

    /// Those of a CPU that are not posted.
    pub(super) fn in_flight(&self, cpu: u32) -> Vec<u32> {
        let ids = (0..).zip(&self.places).filter(|(_, place)| !place.free && !place.posted && place.cpu == cpu);
        ids.map(|(id, _)| id).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
