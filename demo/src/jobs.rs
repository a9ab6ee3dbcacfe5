//! What is run: six jobs, the same for every policy, natively and in the guest.
//!
//! The guest's share of this list is `guest/jobs/demo.sh`; the names are the same on purpose.

use std::path::Path;

use coalesce_load::{Job as Load, JobName, Options, Rw, SyncIoprio};

/// Every policy runs every job so often: three are the fewest with a middle one.
pub const ROUNDS: usize = 3;

/// Not measured, at the begin of each run of this length: vIC's epoch, after which it has a first rate to go by.
pub const fn warmup_seconds(seconds: f64) -> f64 {
    seconds.min(0.2)
}

/// One job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// One read at a time.
    Depth1,
    /// Eight reads in flight.
    Depth8,
    /// Thirty-two reads in flight.
    Depth32,
    /// A synchronous reader beside one with 32 in flight.
    Mixed,
    /// Four reads at a time, wait for all.
    Batch4,
    /// One write at a time, a flush after each.
    Fsync,
}

/// One line of a table: a job, or one half of it.
#[derive(Debug)]
pub struct Row {
    /// Its name, which is also fio's in the guest.
    pub name: &'static str,
    /// The job it belongs to.
    pub job: Job,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Which requester of the native client it is about.
    pub requester: JobName,
}

/// Every row, in the order of the tables.
pub const ROWS: [Row; 7] = [
    Row { name: "depth1", job: Job::Depth1, about: "random reads, one at a time", requester: JobName::Async },
    Row { name: "depth8", job: Job::Depth8, about: "random reads, 8 in flight", requester: JobName::Async },
    Row { name: "depth32", job: Job::Depth32, about: "random reads, 32 in flight", requester: JobName::Async },
    Row {
        name: "mixed-sync",
        job: Job::Mixed,
        about: "the reader with real-time priority, one at a time",
        requester: JobName::Sync,
    },
    Row {
        name: "mixed-async",
        job: Job::Mixed,
        about: "the bulk reader beside it, 32 in flight",
        requester: JobName::Async,
    },
    Row { name: "batch4", job: Job::Batch4, about: "four random reads, wait for all four", requester: JobName::Batch },
    Row { name: "fsync", job: Job::Fsync, about: "random writes, a flush after each", requester: JobName::Sync },
];

/// The number in [`ROWS`] of the row with this name.
pub fn row(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.name == name)
}

impl Job {
    /// Every job, in the order in which they run.
    pub const ALL: [Self; 6] = [Self::Depth1, Self::Depth8, Self::Depth32, Self::Mixed, Self::Batch4, Self::Fsync];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Depth1 => "depth1",
            Self::Depth8 => "depth8",
            Self::Depth32 => "depth32",
            Self::Mixed => "mixed",
            Self::Batch4 => "batch4",
            Self::Fsync => "fsync",
        }
    }

    /// The numbers of its rows in [`ROWS`].
    pub fn rows(self) -> impl Iterator<Item = usize> {
        (0..ROWS.len()).filter(move |&row| ROWS[row].job == self)
    }

    /// What the native client does for it.
    pub fn options(self, socket: &Path, seconds: f64, seed: u64) -> Options {
        let common = Options {
            socket: socket.into(),
            seconds,
            warmup_seconds: warmup_seconds(seconds),
            event_idx: false,
            seed,
            ..Options::default()
        };
        match self {
            Self::Depth1 => Options { depth: 1, ..common },
            Self::Depth8 => Options { depth: 8, ..common },
            Self::Depth32 => Options { depth: 32, ..common },
            Self::Mixed => Options { job: Load::Mixed, depth: 32, ..common },
            Self::Batch4 => Options { job: Load::Batch, batch: 4, ..common },
            // Not marked: that nobody else is in flight is for the policy to see.
            Self::Fsync => Options {
                job: Load::Sync,
                sync_ioprio: SyncIoprio::None,
                rw: Rw::Randwrite,
                fsync_every: Some(1),
                ..common
            },
        }
    }

    /// The same as arguments of `coalesce-target bench`, without socket, time and seed.
    pub const fn bench_arguments(self) -> &'static str {
        match self {
            Self::Depth1 => "--depth 1 --event-idx off",
            Self::Depth8 => "--depth 8 --event-idx off",
            Self::Depth32 => "--depth 32 --event-idx off",
            Self::Mixed => "--job mixed --depth 32 --sync-ioprio rt --event-idx off",
            Self::Batch4 => "--job batch --batch 4 --event-idx off",
            Self::Fsync => "--job sync --sync-ioprio none --rw randwrite --fsync-every 1 --event-idx off",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Bench {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_commands_shown_are_what_was_run() {
        for job in Job::ALL {
            let common = "bench --socket /s --seconds 1 --warmup 0.2 --seed 2 ";
            let line = [common, job.bench_arguments()].concat();
            let parsed = Bench::try_parse_from(line.split_whitespace()).map_err(|e| e.to_string());
            assert_eq!(parsed.map(|bench| bench.options), Ok(job.options(Path::new("/s"), 1.0, 2)));
            job.options(Path::new("/s"), 1.0, 2).validate().unwrap();
        }
    }

    #[test]
    fn every_row_has_a_job_and_every_job_a_row() {
        let rows: Vec<_> = Job::ALL.into_iter().flat_map(Job::rows).collect();
        assert_eq!(rows, (0..ROWS.len()).collect::<Vec<_>>());
        for row in &ROWS {
            assert!(row.name.starts_with(row.job.name()));
        }
    }
}
