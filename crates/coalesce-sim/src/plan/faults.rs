//! What goes wrong. Times at which things happen vary around their mean, as the seed says.

use crate::units::Time;
use serde::{Deserialize, Serialize};

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Deadlines are met late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_deadlines: Option<Late>,
    /// Deadlines of 1000 that are not met at all. The next event on the line, or a watchdog after 50 ms, looks again.
    pub missing_deadlines_per_1000: u32,
    /// The clock that policies see jumps back or forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_jumps: Option<Jumps>,
    /// Doorbells of 1000 that are lost. The next one on that queue, or the driver's timeout of 30 ms, is seen.
    pub lost_doorbells_per_1000: u32,
    /// The device answers nothing for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_stalls: Option<Stalls>,
    /// Commands of 1000 that fail: they complete, and are not coalesced.
    pub failed_commands_per_1000: u32,
    /// Mean time between two resets of a queue: what is in flight is aborted and submitted again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_resets_every: Option<Time>,
}

/// Late deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Late {
    /// Deadlines of 1000 that are late.
    pub per_1000: u32,
    /// The largest delay.
    pub by: Time,
}

/// Jumps of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jumps {
    /// Mean time between two of them.
    pub every: Time,
    /// The largest size, in either direction.
    pub by: Time,
}

/// Stalls of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stalls {
    /// Mean time between two of them.
    pub every: Time,
    /// The longest duration.
    pub r#for: Time,
}
