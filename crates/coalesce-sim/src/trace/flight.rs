//! Commands in flight, found by what their lines have in common.

use std::collections::HashMap;

/// Device, and a number on it: where two commands in flight have the same, the older one completes first.
pub type Key = (u64, u64);

/// Commands in flight, each with a slot of its own. Slots are used again.
#[derive(Debug, Default)]
pub struct Flight {
    by_key: HashMap<Key, Queue>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    requeued: HashMap<Key, u32>,
}

/// The commands of one key: first and last.
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: usize,
    last: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    queue: usize,
    next: Option<usize>,
}

impl Flight {
    /// How many commands are in flight.
    pub const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// A command is submitted on `queue`. `None`: it has been in flight all the time, and was requeued meanwhile.
    pub fn begin(&mut self, key: Key, queue: usize) -> Option<usize> {
        if let Some(count) = self.requeued.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.requeued.remove(&key);
            }
            return None;
        }
        let slot = Slot { queue, next: None };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        match self.by_key.get_mut(&key) {
            Some(of_key) => {
                self.slots[of_key.last].next = Some(index);
                of_key.last = index;
            }
            None => {
                self.by_key.insert(key, Queue { first: index, last: index });
            }
        }
        Some(index)
    }

    /// A command completes: its slot, and the queue that it was submitted on. `None`: nothing of this key is in flight.
    pub fn end(&mut self, key: Key) -> Option<(usize, usize)> {
        let of_key = self.by_key.get_mut(&key)?;
        let index = of_key.first;
        let Slot { queue, next } = self.slots[index];
        match next {
            Some(next) => of_key.first = next,
            None => {
                self.by_key.remove(&key);
                self.requeued.remove(&key);
            }
        }
        self.free.push(index);
        Some((index, queue))
    }

    /// A command goes back to the host's queue, to be submitted again. False: nothing of this key is in flight.
    pub fn requeue(&mut self, key: Key) -> bool {
        let is_known = self.by_key.contains_key(&key);
        if is_known {
            *self.requeued.entry(key).or_default() += 1;
        }
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_of_two_alike_ends_first_and_slots_are_used_again() {
        let mut flight = Flight::default();
        let slots: Vec<_> = [(0, 8), (0, 8), (1, 8)].map(|key| flight.begin(key, key.0 as usize).unwrap()).into();
        assert_eq!((slots.as_slice(), flight.len()), ([0, 1, 2].as_slice(), 3));
        assert_eq!([flight.end((0, 8)), flight.end((1, 8)), flight.end((1, 8))], [Some((0, 0)), Some((2, 1)), None]);
        assert_eq!(flight.begin((0, 8), 5), Some(2));
        assert_eq!([flight.end((0, 8)), flight.end((0, 8)), flight.end((0, 8))], [Some((1, 0)), Some((2, 5)), None]);
        assert_eq!(flight.len(), 0);
    }

    #[test]
    fn any_number_may_be_alike() {
        let mut flight = Flight::default();
        let mut expected = std::collections::VecDeque::new();
        for round in 0..40 {
            expected.extend(flight.begin((0, 8), round));
            if round % 3 == 0 {
                assert_eq!(flight.end((0, 8)).map(|(slot, _)| slot), expected.pop_front());
            }
        }
        assert!(expected.iter().all(|slot| flight.end((0, 8)).map(|ended| ended.0) == Some(*slot)));
        assert_eq!(flight.len(), 0);
    }

    #[test]
    fn a_requeued_command_stays_in_flight_until_it_completes() {
        let mut flight = Flight::default();
        assert!(!flight.requeue((0, 1)));
        flight.begin((0, 1), 0);
        assert!(flight.requeue((0, 1)));
        assert_eq!((flight.begin((0, 1), 0), flight.len()), (None, 1));
        assert_eq!(flight.begin((0, 1), 0), Some(1));
    }
    #[test]
    fn a_requeued_command_that_completes_leaves_nothing() {
        let mut flight = Flight::default();
        flight.begin((0, 1), 0);
        assert!(flight.requeue((0, 1)));
        assert_eq!(flight.end((0, 1)), Some((0, 0)));
        assert!(flight.requeued.is_empty());
        assert_eq!(flight.begin((0, 1), 0), Some(0));
    }
}
