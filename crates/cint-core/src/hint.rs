//! Hints by the system call that caused a command (cinterrupts §4.1).

use coalesce_decision::Hint;

/// A system call that does storage I/O, with the flags that matter here (cinterrupts Table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SystemCall {
    /// `read`, `pread`, `readv`, `preadv`
    Read {
        /// The file descriptor has no `O_NONBLOCK`.
        blocking: bool,
    },
    /// `write`, `pwrite`, `writev`, `pwritev`
    Write {
        /// The file descriptor has no `O_NONBLOCK`.
        blocking: bool,
        /// The file descriptor has `O_DIRECT`.
        direct: bool,
    },
    /// `preadv2`, `pwritev2`
    Vectored2 {
        /// `RWF_NOWAIT`
        nowait: bool,
        /// The paper's `RWF_URGENT`
        urgent: bool,
        /// The paper's `RWF_BARRIER`
        barrier: bool,
    },
    /// One request of an `io_submit`
    IoSubmit {
        /// It is the last one.
        last: bool,
    },
    /// `sync`, `fsync`, `fdatasync`, `syncfs`
    Sync,
    /// One request of an `msync`
    Msync {
        /// `MS_SYNC`
        sync: bool,
        /// It is the last one.
        last: bool,
    },
}

impl SystemCall {
    /// The hint of a request by the call that caused it (Table 1). A call that blocks its caller is Urgent. A call that
    /// submits a batch puts a Barrier on its last request. The application's own flags have precedence.
    #[must_use]
    pub const fn hint(self) -> Hint {
        match self {
            Self::Vectored2 { urgent: true, barrier: false, .. } => Hint::Urgent,
            Self::Vectored2 { urgent: false, barrier: true, .. } => Hint::Barrier,
            Self::Vectored2 { urgent: true, barrier: true, .. } => Hint::Plain,
            Self::Vectored2 { nowait: false, .. }
            | Self::Read { blocking: true }
            | Self::Write { blocking: true, .. }
            | Self::Write { direct: true, .. }
            | Self::Sync => Hint::Urgent,
            Self::IoSubmit { last: true } | Self::Msync { sync: true, last: true } => Hint::Barrier,
            _ => Hint::Plain,
        }
    }
}
