//! Hints of the requester about a command, and their encodings (cinterrupts §3.3, §3.4, §4.1).

use crate::Event;

/// The requester's hint about a command, in the order of urgency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum BothBits {
    /// Plain: with both flags of `preadv2` an application asks for no interrupt of its own (cinterrupts §4.1.1).
    Plain,
    /// Urgent: the block layer merged an Urgent request with a Barrier (cinterrupts §4.1.1).
    Urgent,
}

/// When a Barrier interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Barriers {
    /// When it completes, even if other commands of its batch have not (the paper's prototype, §4.3).
    Relaxed,
    /// When it and everything submitted before it have completed. Needs a tracker of submissions, such as cint-core's `Tracker`.
    Strict,
}

impl From<Hint> for Event {
    #[inline]
    fn from(hint: Hint) -> Self {
        hint.event()
    }
}

impl Hint {
    /// What a completion with this hint means, unless a tracker of strict Barriers decides about it.
    #[inline]
    #[must_use]
    pub const fn event(self) -> Event {
        match self {
            Self::Plain => Event::Plain,
            Self::Urgent => Event::Urgent,
            Self::Barrier => Event::Barrier,
        }
    }

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
