//! Failures of single requests.

use std::fmt;

use coalesce_cli::counted;
use serde::{Serialize, Serializer};

use crate::options::Device;
use crate::pattern::Mismatch;
use crate::requester::GRACE_NS;

/// Why a request counts as a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The device completed it with this status; of NVMe without the phase tag.
    Status(Device, u16),
    /// It returned wrong data.
    Data(Mismatch),
    /// It is in the used ring, and no interrupt followed.
    Unsignalled,
    /// It was in flight when nothing had completed for the grace time: the device has lost it, or is slower than that.
    Lost,
}

impl Cause {
    pub(crate) fn is_loss(self) -> bool {
        matches!(self, Self::Unsignalled | Self::Lost)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(Device::VirtioBlk, 1) => f.write_str("status 1 (I/O error)"),
            Self::Status(Device::VirtioBlk, 2) => f.write_str("status 2 (not supported)"),
            Self::Status(Device::VirtioBlk, other) => write!(f, "status {other} (not a valid one)"),
            Self::Status(Device::Nvme, status) => {
                write!(f, "status code {:#04x} of type {}", status & 0xff, status >> 8 & 7)
            }
            Self::Data(mismatch) => mismatch.fmt(f),
            Self::Unsignalled => f.write_str("completed without an interrupt"),
            Self::Lost => write!(f, "no completion for {} s", GRACE_NS / 1_000_000_000),
        }
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Requests of one queue that failed for one reason.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// Index of the queue.
    pub queue: u16,
    /// The cause.
    pub cause: Cause,
    /// The number of requests.
    pub count: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {}: {}: {}", self.queue, counted(self.count, "request"), self.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_queue_count_and_cause() {
        let failure = Failure { queue: 1, cause: Cause::Lost, count: 2 };
        assert_eq!(failure.to_string(), "queue 1: 2 requests: no completion for 5 s");
        assert_eq!(serde_json::json!(failure.cause).to_string(), r#""no completion for 5 s""#);
    }
}
