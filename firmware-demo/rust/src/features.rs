//! The commands of the admin queue: Get and Set Features.

use crate::board::TICK_HZ;
use crate::coalescing::Coalescing;
use crate::host::{IO_QUEUES, Status};
use crate::queue::Entry;
use crate::vector::Vector;

const SET: u32 = 0x09;
const GET: u32 = 0x0a;

const COALESCING: u32 = 0x08;
const VECTOR: u32 = 0x09;
const POLICY: u32 = 0xc0; // vendor specific

pub struct Features {
    coalescing: u32, // Dword 11 of Feature 08h
    policy: u32,
}

impl Features {
    pub const NEW: Self = Self { coalescing: 0, policy: 0 }; // as Policy::OFF

    /// Executes a command at the instant `now`, and returns its result. `is_busy`: some I/O is not complete or not
    /// reaped.
    pub fn execute<V: Vector>(
        &mut self,
        vectors: &mut [Coalescing<V>; IO_QUEUES],
        entry: &Entry,
        is_busy: bool,
        now: u64,
    ) -> Result<u32, Status> {
        let (feature, save, value) = (entry[10] & 0xff, entry[10] >> 31 != 0, entry[11]);
        match (entry[0] & 0xff, feature) {
            (GET, COALESCING) => Ok(self.coalescing),
            (GET, VECTOR) => {
                let vector = value & 0xffff;
                let is_disabled = vectors.get(vector as usize).ok_or(Status::InvalidField)?.is_disabled();
                Ok(vector | u32::from(is_disabled) << 16)
            }
            (GET, POLICY) => Ok(self.policy),
            (SET, _) if save => Err(Status::NotSaveable),
            (SET, COALESCING) => self.set_coalescing(vectors, value, now),
            (SET, VECTOR) => set_vector(vectors, value, now),
            (SET, POLICY) if is_busy => Err(Status::SequenceError),
            (SET, POLICY) => self.set_policy(vectors, value, entry[12]),
            (SET | GET, _) => Err(Status::InvalidField),
            _ => Err(Status::InvalidOpcode),
        }
    }

    fn set_coalescing<V: Vector>(
        &mut self,
        vectors: &mut [Coalescing<V>],
        value: u32,
        now: u64,
    ) -> Result<u32, Status> {
        if value >> 16 != 0 {
            return Err(Status::InvalidField);
        }
        self.coalescing = value;
        for vector in vectors {
            let time = u64::from(value >> 8) * u64::from(TICK_HZ / 10_000); // units of 100 µs
            vector.set((value & 0xff) + 1, time, now);
        }
        Ok(0)
    }

    fn set_policy<V: Vector>(
        &mut self,
        vectors: &mut [Coalescing<V>],
        policy: u32,
        storm_rate: u32,
    ) -> Result<u32, Status> {
        for vector in vectors {
            vector.choose(policy, storm_rate).map_err(|()| Status::InvalidField)?; // fails for the first vector or none
        }
        self.policy = policy;
        Ok(0)
    }
}

fn set_vector<V: Vector>(vectors: &mut [Coalescing<V>], value: u32, now: u64) -> Result<u32, Status> {
    if value >> 17 != 0 {
        return Err(Status::InvalidField);
    }
    let vector = vectors.get_mut((value & 0xffff) as usize).ok_or(Status::InvalidField)?;
    vector.disable(value >> 16 != 0, now);
    Ok(0)
}
