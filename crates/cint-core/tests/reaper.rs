//! The reaper on an NVMe completion queue, beside a consumer that keeps a list.

use cint_core::{Entry, Reaper};
use proptest::prelude::*;
use std::collections::VecDeque;

const WORDS: usize = 3;

/// The device's side of the queue (NVMe Base Specification 2.0, §3.3.3).
struct Device {
    memory: Vec<Entry>,
    tail: u16,
    phase: bool,
    head_doorbell: u16,
    cid: u16,
}

impl Device {
    fn new(size: u16) -> Self {
        Self { memory: vec![Entry::default(); size.into()], tail: 0, phase: true, head_doorbell: 0, cid: 0 }
    }

    fn after(&self, index: u16) -> u16 {
        (index + 1) % self.memory.len() as u16
    }

    /// Posts a completion unless the queue is full. Urgent ones have a mark in the first word. Its identifier.
    fn post(&mut self, urgent: bool) -> Option<u16> {
        if self.after(self.tail) == self.head_doorbell {
            return None;
        }
        let cid = self.cid;
        self.memory[usize::from(self.tail)] =
            Entry([u32::from(urgent), 0, 0, u32::from(cid) | u32::from(self.phase) << 16]);
        self.cid = cid.wrapping_add(1);
        self.tail = self.after(self.tail);
        self.phase ^= self.tail == 0;
        Some(cid)
    }
}

/// What lies in the queue behind the head doorbell: identifier, urgent, taken.
#[derive(Default)]
struct List(VecDeque<(u16, bool, bool)>);

impl List {
    fn reap(&mut self, only_urgent: bool) -> (Vec<u16>, usize) {
        let mut cids = Vec::new();
        for (cid, urgent, taken) in &mut self.0 {
            if !*taken && (*urgent || !only_urgent) {
                *taken = true;
                cids.push(*cid);
            }
        }
        let free = self.0.iter().take_while(|(.., taken)| *taken).count();
        self.0.drain(..free);
        (cids, free)
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Post { urgent: bool },
    Reap { only_urgent: bool },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => any::<bool>().prop_map(|urgent| Op::Post { urgent }),
        1 => any::<bool>().prop_map(|only_urgent| Op::Reap { only_urgent }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_entry_is_taken_once_and_none_is_overwritten(
        size in prop_oneof![2..6_u16, Just(64_u16), Just(65), 2..=64 * WORDS as u16],
        ops in prop::collection::vec(op(), 0..500),
    ) {
        let mut reaper = Reaper::<WORDS>::new(size).expect("it fits");
        let (mut device, mut list) = (Device::new(size), List::default());
        for op in ops {
            match op {
                Op::Post { urgent } => {
                    let room = list.0.len() < usize::from(size) - 1;
                    let posted = device.post(urgent);
                    prop_assert_eq!(posted.is_some(), room);
                    list.0.extend(posted.map(|cid| (cid, urgent, false)));
                }
                Op::Reap { only_urgent } => {
                    let mut cids = Vec::new();
                    let read = |index: u16| device.memory[usize::from(index)];
                    let doorbell = if only_urgent {
                        reaper.reap_urgent(read, |entry| entry.0[0] == 1, |entry| cids.push(entry.cid()))
                    } else {
                        reaper.reap(read, |entry| cids.push(entry.cid()))
                    };
                    let (expected, free) = list.reap(only_urgent);
                    prop_assert_eq!(cids, expected);
                    let head = (usize::from(device.head_doorbell) + free) % usize::from(size);
                    prop_assert_eq!(doorbell, (free > 0).then_some(head as u16));
                    device.head_doorbell = head as u16;
                    prop_assert_eq!(reaper.head(), head as u16);
                }
            }
        }
    }

    /// A device that does what it wants cannot make the driver read elsewhere, or for ever.
    #[test]
    fn any_memory_is_survived(
        size in 2..=64 * WORDS as u16,
        words in prop::collection::vec(any::<u32>(), 64 * WORDS),
        urgent in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let mut reaper = Reaper::<WORDS>::new(size).expect("it fits");
        for (round, only_urgent) in urgent.into_iter().enumerate() {
            let mut taken = 0;
            let read = |index: u16| {
                assert!(index < size);
                Entry([0, 0, 0, words[(usize::from(index) + 7 * round) % words.len()]])
            };
            let doorbell = if only_urgent {
                reaper.reap_urgent(read, |entry| entry.status() % 2 == 1, |_| taken += 1)
            } else {
                reaper.reap(read, |_| taken += 1)
            };
            prop_assert!(taken <= size && doorbell.is_none_or(|head| head < size));
        }
    }
}

#[test]
fn sizes_that_fit() {
    assert!(Reaper::<1>::new(0).is_none() && Reaper::<1>::new(1).is_none() && Reaper::<1>::new(2).is_some());
    assert!(Reaper::<1>::new(64).is_some() && Reaper::<1>::new(65).is_none() && Reaper::<0>::new(2).is_none());
    assert!(Reaper::<1024>::new(u16::MAX).is_some());
}
