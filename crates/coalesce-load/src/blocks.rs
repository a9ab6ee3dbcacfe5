//! Chooses the block of each request and, with --verify, knows what the block must contain.

use std::collections::{HashMap, HashSet};

use crate::options::Options;
use crate::pattern::{self, Mismatch};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// An access to one block. The generation is that of the data read or to be written; 0: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub block: u64,
    pub write: bool,
    pub generation: u64,
}

/// The blocks of one queue. Each queue has an equal, contiguous part of the device to itself.
#[derive(Debug)]
pub struct Blocks {
    first: u64,
    count: u64,
    random_order: bool,
    write_share_percent: u8,
    sequence: u64,
    random: SmallRng,
    verify: Option<Verify>,
}

#[derive(Debug, Default)]
struct Verify {
    /// Distinguishes this run's data from that of an earlier run with the same seed.
    run: u64,
    generation: u64,
    latest: HashMap<u64, u64>,
    written: Vec<u64>,
    busy: HashSet<u64>,
}

impl Blocks {
    /// The part of queue `index` of a device with `device_blocks` blocks.
    pub fn new(options: &Options, index: u16, device_blocks: u64, run: u64) -> Self {
        let count = device_blocks / u64::from(options.queues);
        Self {
            first: count * u64::from(index),
            count,
            random_order: options.rw.random(),
            write_share_percent: options.write_share_percent(),
            sequence: 0,
            random: SmallRng::seed_from_u64(options.seed.wrapping_add(u64::from(index))),
            verify: options.verify.then(|| Verify { run, ..Verify::default() }),
        }
    }

    /// Chooses the next access. With --verify its block is busy until [`complete`](Self::complete).
    pub fn next(&mut self) -> Access {
        let write = self.random.random_range(0..100) < self.write_share_percent;
        let proposed = self.propose();
        let Some(verify) = &mut self.verify else {
            return Access { block: proposed, write, generation: 0 };
        };
        let readable = if write { None } else { verify.pick_written(&mut self.random) };
        let access = match readable {
            Some((block, generation)) => Access { block, write: false, generation },
            None => {
                // With two accesses to one block at a time, the right data would be undefined.
                let mut block = proposed;
                while verify.busy.contains(&block) {
                    block = self.first + (block - self.first + 1) % self.count;
                }
                verify.generation += 1;
                Access { block, write: true, generation: verify.generation }
            }
        };
        verify.busy.insert(access.block);
        access
    }

    /// Generates the data of a write.
    pub fn fill(&self, access: Access, data: &mut [u8]) {
        if let Some(verify) = &self.verify {
            pattern::fill(data, access.block * data.len() as u64, access.generation, verify.run);
        }
    }

    /// Ends an access. `data` is what a successful read returned. Returns whether the data was right; `None`:
    /// unchecked.
    pub fn complete(&mut self, access: Access, ok: bool, data: &[u8]) -> Option<Result<(), Mismatch>> {
        let verify = self.verify.as_mut()?;
        verify.busy.remove(&access.block);
        match (access.write, ok) {
            (true, true) => {
                if verify.latest.insert(access.block, access.generation).is_none() {
                    verify.written.push(access.block);
                }
                None
            }
            (true, false) => {
                // The block may hold old data, new data or both, so its content is unknown.
                verify.latest.remove(&access.block);
                verify.written.retain(|&block| block != access.block);
                None
            }
            (false, true) => {
                Some(pattern::check(data, access.block * data.len() as u64, access.generation, verify.run))
            }
            (false, false) => None,
        }
    }

    fn propose(&mut self) -> u64 {
        if self.random_order {
            return self.first + self.random.random_range(0..self.count);
        }
        let block = self.first + self.sequence;
        self.sequence = (self.sequence + 1) % self.count;
        block
    }
}

impl Verify {
    /// A random block that this run wrote, and its generation.
    fn pick_written(&self, random: &mut SmallRng) -> Option<(u64, u64)> {
        if self.written.is_empty() {
            return None;
        }
        let (before, after) = self.written.split_at(random.random_range(0..self.written.len()));
        let block = after.iter().chain(before).find(|block| !self.busy.contains(block))?;
        Some((*block, self.latest[block]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Rw;

    fn options() -> Options {
        Options { rw: Rw::Randwrite, write_percent: Some(50), verify: true, ..Options::default() }
    }

    #[test]
    fn a_block_has_one_access_at_a_time_and_reads_know_what_was_written() {
        let mut blocks = Blocks::new(&options(), 0, 8, 1);
        let mut device = vec![vec![0; 512]; 8];
        let mut reads = 0;
        for _ in 0..1000 {
            let pair = [blocks.next(), blocks.next()];
            assert_ne!(pair[0].block, pair[1].block);
            for access in pair {
                if access.write {
                    blocks.fill(access, &mut device[access.block as usize]);
                    assert_eq!(blocks.complete(access, true, &[]), None);
                } else {
                    let data = device[access.block as usize].clone();
                    assert_eq!(blocks.complete(access, true, &data), Some(Ok(())));
                    reads += 1;
                }
            }
        }
        assert!(reads > 500);
    }

    #[test]
    fn a_failed_write_makes_the_content_of_its_block_unknown() {
        let mut blocks = Blocks::new(&options(), 0, 1, 1);
        for _ in 0..100 {
            let access = blocks.next();
            assert!(access.write, "no block was written, so none can be read back");
            blocks.complete(access, false, &[]);
        }
    }

    #[test]
    fn queues_share_the_device_without_overlap() {
        let options = Options { queues: 3, rw: Rw::Read, ..Options::default() };
        for index in 0..3 {
            let mut blocks = Blocks::new(&options, index, 10, 1);
            let seen: Vec<u64> = (0..4).map(|_| blocks.next().block).collect();
            let first = u64::from(index) * 3;
            assert_eq!(seen, [first, first + 1, first + 2, first]);
        }
    }
}
