//! What a requester says about a command, and how it travels (cinterrupts §3.3, §3.4, §4.1).

/// What the requester said about a command. Ordered by how much it asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hint {
    /// Nothing, or "do not hurry": burst detection decides.
    #[default]
    Plain,
    /// The last command of a batch: interrupt when the batch is complete.
    Barrier,
    /// Somebody waits for this very command.
    Urgent,
}

/// What it means that both bits are set on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BothBits {
    /// An application asks for no interrupt of its own (cinterrupts §4.1.1, `preadv2`).
    Plain,
    /// The block layer merged an urgent request with the last one of a batch (cinterrupts §4.1.1).
    Urgent,
}

/// When a Barrier interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barriers {
    /// When it completes itself; commands of its batch may be missing (the paper's prototype, §4.3).
    Relaxed,
    /// When everything submitted before it has completed too. Needs a [`Tracker`](crate::Tracker).
    Strict,
}

impl Hint {
    /// Bit 0: Urgent. Bit 1: Barrier. Others are ignored. For hints that travel in other bits than the paper's: shift them here.
    #[must_use]
    pub const fn from_bits(bits: u8, both: BothBits) -> Self {
        match (bits & 0b11, both) {
            (0b01, _) | (0b11, BothBits::Urgent) => Self::Urgent,
            (0b10, _) => Self::Barrier,
            _ => Self::Plain,
        }
    }

    /// From bits 17:16 of Command Dword 12 of an NVMe read or write (cinterrupts §4.2.1).
    ///
    /// NVMe 1.0 to 1.4 and the NVM Command Set 1.0 reserve them. Later versions define bits 19:16 as CETYPE, the command
    /// extension type, which a host sets for a controller with Key Per I/O: there, agree on other bits and use
    /// [`from_bits`](Self::from_bits), or [`from_access_latency`](Self::from_access_latency).
    #[must_use]
    pub const fn from_cdw12(cdw12: u32, both: BothBits) -> Self {
        Self::from_bits((cdw12 >> 16 & 0b11) as u8, both)
    }

    /// From the access latency in bits 5:4 of Command Dword 13 of an NVMe read or write (Dataset Management): 11b,
    /// "low latency", is Urgent.
    #[must_use]
    pub const fn from_access_latency(cdw13: u32) -> Self {
        if cdw13 >> 4 & 0b11 == 0b11 { Self::Urgent } else { Self::Plain }
    }

    /// The hint of a request merged from two: Urgent wins over Barrier, Barrier over Plain (§4.1.1).
    #[must_use]
    pub const fn merge(self, other: Self) -> Self {
        match (self, other) {
            (Self::Urgent, _) | (_, Self::Urgent) => Self::Urgent,
            (Self::Barrier, _) | (_, Self::Barrier) => Self::Barrier,
            (Self::Plain, Self::Plain) => Self::Plain,
        }
    }

    /// The hint of one part of a request that is split: each keeps the mark (§4.1.1). A strict Barrier stays with the
    /// `last` part: only then is everything before it the whole batch.
    #[must_use]
    pub const fn split(self, last: bool, barriers: Barriers) -> Self {
        match (self, barriers) {
            (Self::Barrier, Barriers::Strict) if !last => Self::Plain,
            _ => self,
        }
    }
}

/// A system call that does storage I/O, with the flags that matter here (cinterrupts Table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Table 1: the hint of a request by the call that caused it. A call that blocks its caller is Urgent, one that
    /// submits a batch puts a Barrier on its last request. What the application says itself goes first.
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
