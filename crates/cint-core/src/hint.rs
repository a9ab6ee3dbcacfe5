//! Hints of the requester about a command, and their encodings (cinterrupts §3.3, §3.4, §4.1).

use coalesce_decision::Event;

/// The requester's hint about a command, in the order of urgency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hint {
    /// No hint, or no hurry: burst detection decides.
    #[default]
    Plain,
    /// The last command of a batch: interrupt when the batch is complete.
    Barrier,
    /// Somebody waits for this command: interrupt at once.
    Urgent,
}

/// The meaning of a command with both bits set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BothBits {
    /// Plain: with both flags of `preadv2` an application asks for no interrupt of its own (cinterrupts §4.1.1).
    Plain,
    /// Urgent: the block layer merged an Urgent request with a Barrier (cinterrupts §4.1.1).
    Urgent,
}

/// When a Barrier interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barriers {
    /// When it completes, even if other commands of its batch have not (the paper's prototype, §4.3).
    Relaxed,
    /// When it and everything submitted before it have completed. Needs a [`Tracker`](crate::Tracker).
    Strict,
}

impl From<Hint> for Event {
    #[inline]
    fn from(hint: Hint) -> Self {
        match hint {
            Hint::Plain => Self::Plain,
            Hint::Urgent => Self::Urgent,
            Hint::Barrier => Self::Barrier,
        }
    }
}

impl Hint {
    /// The hint in two bits: bit 0 is Urgent, bit 1 is Barrier, other bits are ignored. Use it for hints in other bits than
    /// those of [`from_cdw12`](Self::from_cdw12); shift them first.
    #[must_use]
    pub const fn from_bits(bits: u8, both: BothBits) -> Self {
        match (bits & 0b11, both) {
            (0b01, _) | (0b11, BothBits::Urgent) => Self::Urgent,
            (0b10, _) => Self::Barrier,
            _ => Self::Plain,
        }
    }

    /// The hint in bits 17:16 of Command Dword 12 of an NVMe read or write: our choice of the reserved bits that
    /// cinterrupts §4.2.1 asks for.
    ///
    /// NVMe 1.0 to 1.4 and the NVM Command Set 1.0 reserve them. Later versions define bits 19:16 as CETYPE, the
    /// command extension type, which a host sets for a controller with Key Per I/O. With such a controller, use
    /// [`from_access_latency`](Self::from_access_latency), or agree on other bits and use
    /// [`from_bits`](Self::from_bits).
    #[must_use]
    pub const fn from_cdw12(cdw12: u32, both: BothBits) -> Self {
        Self::from_bits((cdw12 >> 16 & 0b11) as u8, both)
    }

    /// The hint in the access latency, bits 5:4 of Command Dword 13 of an NVMe read or write (Dataset Management): 11b,
    /// low latency, is Urgent.
    #[must_use]
    pub const fn from_access_latency(cdw13: u32) -> Self {
        if cdw13 >> 4 & 0b11 == 0b11 { Self::Urgent } else { Self::Plain }
    }

    /// The hint of a request merged from two: Urgent wins over Barrier, and Barrier over Plain (§4.1.1).
    #[must_use]
    pub const fn merge(self, other: Self) -> Self {
        match (self, other) {
            (Self::Urgent, _) | (_, Self::Urgent) => Self::Urgent,
            (Self::Barrier, _) | (_, Self::Barrier) => Self::Barrier,
            (Self::Plain, Self::Plain) => Self::Plain,
        }
    }

    /// The hint of one part of a split request. Each part keeps the hint (§4.1.1), except that a strict Barrier stays
    /// with the `last` part: only then does everything before it include the whole batch.
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
