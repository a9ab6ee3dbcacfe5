//! What is run: the jobs, and what each of them counts as work done.
//!
//! The guest's share of this list is `load` in `guest/jobs/lib.sh`; the names are the same on purpose.

use clap::ValueEnum;

use crate::counts::Counts;

/// One job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Job {
    /// One read at a time
    Depth1,
    /// Eight reads in flight
    Depth8,
    /// Thirty-two reads in flight
    Depth32,
    /// A synchronous reader with real-time priority beside one with 32 in flight
    Mixed,
    /// Four reads at a time, wait for all
    Batch4,
    /// One write at a time, a flush after each
    Fsync,
    /// Bursts of 32 reads and a pause after each, beside a loop that computes on the client's CPU
    Compute,
    /// In the guest: SQLite transactions beside 32 reads in flight
    Sqlite,
}

/// Work that a job gets done.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// What is counted, in the plural, per second.
    pub name: &'static str,
    /// How many there were.
    pub of: fn(&Counts) -> u64,
}

const READS: Rate = Rate { name: "reads/s", of: |counts| counts.reads };
const BULK: Rate = Rate { name: "bulk reads/s", of: |counts| counts.reads.saturating_sub(counts.realtime) };

impl Job {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Depth1 => "depth1",
            Self::Depth8 => "depth8",
            Self::Depth32 => "depth32",
            Self::Mixed => "mixed",
            Self::Batch4 => "batch4",
            Self::Fsync => "fsync",
            Self::Compute => "compute",
            Self::Sqlite => "sqlite",
        }
    }

    /// What it is, in a few words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Depth1 => "random reads, one at a time",
            Self::Depth8 => "random reads, 8 in flight",
            Self::Depth32 => "random reads, 32 in flight",
            Self::Mixed => {
                "a reader with real-time priority, one read at a time, beside a bulk reader with 32 in flight"
            }
            Self::Batch4 => "four random reads, wait for all four",
            Self::Fsync => "random writes, one at a time, a flush after each",
            Self::Compute => {
                "bursts of 32 random reads and a pause after each, and a loop that computes in the time that the client leaves of its CPU"
            }
            Self::Sqlite => "SQLite transactions (WAL, one flush each) beside a bulk reader with 32 in flight",
        }
    }

    /// The work that it gets done. The first is that of a requester that waits: its latency is in proportion to 1 / rate, as the
    /// loop is closed (Little's law); or that of the loop that computes.
    pub const fn rates(self) -> &'static [Rate] {
        match self {
            Self::Depth1 | Self::Depth8 | Self::Depth32 | Self::Batch4 => &[READS],
            Self::Mixed => &[Rate { name: "synchronous reads/s", of: |counts| counts.realtime }, BULK],
            Self::Fsync => &[Rate { name: "writes/s", of: |counts| counts.writes }],
            // Where others take all of the CPU a turn has none, and 0 / 0 is no ratio.
            Self::Compute => {
                &[Rate { name: "computations/s", of: |counts| counts.computed.unwrap_or(0).max(1) }, READS]
            }
            Self::Sqlite => &[Rate { name: "transactions/s", of: |counts| counts.flushes }, BULK],
        }
    }

    /// How many times longer than others it is measured: longest where most is to be said.
    pub const fn length(self) -> f64 {
        match self {
            Self::Depth32 => 1.5,
            Self::Sqlite => 2.0,
            _ => 1.0,
        }
    }

    /// How many times longer than others its turns are: a second has few transactions under emulation.
    pub const fn turn_length(self) -> f64 {
        match self {
            Self::Sqlite => 2.5,
            _ => 1.0,
        }
    }

    /// What the native client does for it, as arguments of `coalesce-bench`; `None`: there must be a guest.
    pub const fn bench_arguments(self) -> Option<&'static str> {
        match self {
            Self::Depth1 => Some("--depth 1 --event-idx off"),
            Self::Depth8 => Some("--depth 8 --event-idx off"),
            Self::Depth32 => Some("--depth 32 --event-idx off"),
            Self::Mixed => Some("--job mixed --depth 32 --sync-ioprio rt --event-idx off"),
            Self::Batch4 => Some("--job batch --batch 4 --event-idx off"),
            // Not marked: that nobody else is in flight is for the policy to see.
            Self::Fsync => Some("--job sync --sync-ioprio none --rw randwrite --fsync-every 1 --event-idx off"),
            Self::Compute => Some("--depth 32 --bursts 32:1ms --event-idx off"),
            Self::Sqlite => None,
        }
    }
}
