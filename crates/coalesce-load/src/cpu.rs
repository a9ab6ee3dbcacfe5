//! CPU time of the client threads.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde::Serialize;

use crate::Error;

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cpu {
    /// In user mode.
    pub usr: f64,
    /// In the kernel.
    pub sys: f64,
}

impl Cpu {
    /// The CPU time of this thread so far.
    pub(crate) fn of_this_thread() -> Result<Self, Error> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
        let seconds = |time: TimeVal| time.num_microseconds() as f64 / 1e6;
        Ok(Self { usr: seconds(usage.user_time()), sys: seconds(usage.system_time()) })
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { usr: self.usr - earlier.usr, sys: self.sys - earlier.sys }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { usr: self.usr + other.usr, sys: self.sys + other.sys }
    }
}
