//! The device: channels that are busy with one command each, and what it posts.

use super::random::{Random, Sampler};
use crate::plan::Device as Spec;

/// A device at work.
#[derive(Debug)]
pub(super) struct Device {
    free_at: Vec<u64>, // per channel
    service: Sampler,
    transfer: u64,
    stalled_until: u64,
    pub(super) gather: u64,
    gather_max: usize,
    /// Served and not posted: requests and their turns.
    pub(super) gathered: Vec<(u32, u32)>,
}

/// What happens when a command is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    /// Everything gathered is posted now.
    Full,
    /// It is the first: everything is posted after the gathering time.
    First,
    /// It waits with the others.
    More,
}

impl Device {
    pub(super) fn new(spec: &Spec) -> Self {
        let (channels, service, transfer) = spec.resolve().expect("a valid plan");
        Self {
            free_at: vec![0; channels as usize],
            service: Sampler::new(&service),
            transfer: transfer.0,
            stalled_until: 0,
            gather: spec.gather.0,
            gather_max: if spec.gather_max == 0 { usize::MAX } else { spec.gather_max as usize },
            gathered: Vec::new(),
        }
    }

    /// A command arrives. When it will be served.
    pub(super) fn start(&mut self, now: u64, random: &mut Random) -> u64 {
        let free_at = self.free_at.iter_mut().min().expect("a device has channels");
        *free_at = (*free_at).max(now).max(self.stalled_until) + self.service.sample(random);
        *free_at + self.transfer
    }

    /// Answers nothing until then.
    pub(super) fn stall(&mut self, until: u64) {
        self.stalled_until = self.stalled_until.max(until);
    }

    /// Until when a command that is served now is put off.
    pub(super) fn put_off(&self, now: u64) -> Option<u64> {
        (self.stalled_until > now).then_some(self.stalled_until)
    }

    pub(super) fn gather(&mut self, request: u32, turn: u32) -> Gathered {
        self.gathered.push((request, turn));
        match self.gathered.len() {
            n if n >= self.gather_max || self.gather == 0 => Gathered::Full,
            1 => Gathered::First,
            _ => Gathered::More,
        }
    }
}
