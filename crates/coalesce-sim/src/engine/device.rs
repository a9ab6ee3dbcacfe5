//! The device: channels that are busy with one command each, and what it posts.

use super::random::{Random, Sampler};
use crate::plan::Device as Spec;

/// A device at work.
#[derive(Debug)]
pub(super) struct Device {
    free_at: Vec<u64>, // per channel
    is_striped: bool,
    port: u64,
    port_free_at: u64,
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
            is_striped: spec.striped,
            port: spec.port.0,
            port_free_at: 0,
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
        self.port_free_at = self.port_free_at.max(now).saturating_add(self.port);
        let free_at = if self.is_striped {
            let channel = random.below(self.free_at.len() as u64);
            &mut self.free_at[channel as usize]
        } else {
            self.free_at.iter_mut().min().expect("a device has channels")
        };
        let begins = (*free_at).max(self.port_free_at).max(self.stalled_until);
        *free_at = begins.saturating_add(self.service.sample(random));
        free_at.saturating_add(self.transfer)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Distribution;
    use crate::units::Time;

    fn served(spec: &Spec, commands: usize) -> Vec<u64> {
        let (mut device, mut random) = (Device::new(spec), Random::new(1, 1));
        let mut times: Vec<_> = (0..commands).map(|_| device.start(0, &mut random)).collect();
        times.sort_unstable();
        times
    }

    #[test]
    fn the_port_is_passed_one_after_the_other() {
        let spec = Spec { port: Time(10), ..Spec::new(4, Distribution::Fixed(Time(100))) };
        assert_eq!(served(&spec, 4), [110, 120, 130, 140]);
    }

    #[test]
    fn a_striped_device_has_queues_before_busy_channels_beside_free_ones() {
        let spec = Spec::new(64, Distribution::Fixed(Time(100)));
        assert_eq!(served(&spec, 64), [100; 64]);
        let last = *served(&Spec { striped: true, ..spec }, 64).last().unwrap();
        assert!(last >= 200, "64 of 64 drew different channels: {last}");
    }
}
