//! The storage device: channels that serve one command each, and the time that a command takes.

use crate::units::Time;
use serde::{Deserialize, Serialize};

/// A device that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Intel Optane DC P4800X, reads of 4 KiB. 550K/s (data sheet). A synchronous read takes 10.4 µs with a deviation
    /// of 1.3 µs (cinterrupts, Table 2), 4.1 µs of it on the default machine.
    OptaneP4800x,
    /// Intel DC P3700, reads of 4 KiB. 450K/s (data sheet). A synchronous read takes 80 µs with a deviation of 29 µs
    /// (cinterrupts, Table 2).
    P3700,
    /// A LUN of a disk array, small and in its cache, behind Fibre Channel at 4 Gb/s, reads of 4 KiB: 31.2K/s with 8
    /// outstanding, 53K/s with 64 (vIC, Table 2).
    SanLun,
}

/// The device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Where values that are not given come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Commands that are served at the same time; others wait, first come first served. 1 to 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
    /// Commands go to a channel drawn at random, as addresses that are striped over channels send them there, whether it
    /// is free or not.
    #[serde(default)]
    pub striped: bool,
    /// How long a command keeps the port, or link, that all pass one after the other before their channels.
    #[serde(default)]
    pub port: Time,
    /// How long a channel is busy with a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Distribution>,
    /// What else a command takes, without keeping a channel busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Time>,
    /// From the first finished command until the device, or the program that polls it, posts all that is finished; 0: each at once.
    #[serde(default)]
    pub gather: Time,
    /// Completions that are posted together, at most; 0: no limit.
    #[serde(default)]
    pub gather_max: u32,
}

/// A duration that varies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Always the same.
    Fixed(Time),
    /// Memoryless, with this mean.
    Exponential(Time),
    /// Log-normal.
    Lognormal(Lognormal),
    /// One of several, by weight.
    Mixture(Vec<Component>),
}

/// A log-normal distribution, by what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lognormal {
    /// Its mean.
    pub mean: Time,
    /// Its standard deviation.
    pub stddev: Time,
}

/// A part of a mixture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// How often it is chosen, relative to the others.
    pub weight: u32,
    /// What is chosen.
    pub of: Distribution,
}

impl Distribution {
    /// The mean, in ns.
    #[must_use]
    pub fn mean(&self) -> u64 {
        match self {
            Self::Fixed(time) | Self::Exponential(time) => time.0,
            Self::Lognormal(lognormal) => lognormal.mean.0,
            Self::Mixture(parts) => {
                let total: u64 = parts.iter().map(|part| u64::from(part.weight)).sum();
                let sum: u128 = parts.iter().map(|part| u128::from(part.weight) * u128::from(part.of.mean())).sum();
                u64::try_from(sum / u128::from(total.max(1))).unwrap_or(u64::MAX)
            }
        }
    }
}

impl Device {
    /// One of the known devices.
    #[must_use]
    pub const fn preset(preset: Preset) -> Self {
        Self { preset: Some(preset), ..Self::NOTHING }
    }

    /// A device of this many channels, each busy for `service`.
    #[must_use]
    pub const fn new(channels: u32, service: Distribution) -> Self {
        Self { channels: Some(channels), service: Some(service), ..Self::NOTHING }
    }

    const NOTHING: Self = Self {
        preset: None,
        channels: None,
        striped: false,
        port: Time(0),
        service: None,
        transfer: None,
        gather: Time(0),
        gather_max: 0,
    };

    /// Channels, service and transfer, with the preset's where they are not given; `None`: something is not given at all.
    #[must_use]
    pub fn resolve(&self) -> Option<(u32, Distribution, Time)> {
        let lognormal =
            |mean_ns, stddev_ns| Distribution::Lognormal(Lognormal { mean: Time(mean_ns), stddev: Time(stddev_ns) });
        let preset = self.preset.map(|preset| match preset {
            Preset::OptaneP4800x => (2, lognormal(3_600, 1_300), Time(2_300)),
            Preset::P3700 => (32, lognormal(70_000, 28_000), Time(6_000)),
            Preset::SanLun => (12, lognormal(220_000, 40_000), Time(20_000)),
        });
        let (channels, service, transfer) = match preset {
            Some((channels, service, transfer)) => (Some(channels), Some(service), transfer),
            None => (None, None, Time(0)),
        };
        Some((self.channels.or(channels)?, self.service.clone().or(service)?, self.transfer.unwrap_or(transfer)))
    }
}
