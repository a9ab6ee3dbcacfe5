//! The kinds of requests that a report lists separately.

use std::fmt;

use serde::Serialize;

/// The kinds of requests that are reported separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobName {
    /// Requests of an asynchronous requester.
    Async,
    /// Requests of a synchronous requester.
    Sync,
    /// Requests of batches.
    Batch,
    /// Flushes of --fsync-every.
    Flush,
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Async => "async",
            Self::Sync => "sync",
            Self::Batch => "batch",
            Self::Flush => "flush",
        })
    }
}
