//! What an unmodified guest gives away about who waits for a request, and where a target may look for it.

use cint_core::Hint;
use std::collections::BTreeMap;

/// Something that an unmodified guest does, and that says what its requester wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintSource {
    /// A flush: somebody waits. Urgent.
    Flush,
    /// A write that must be durable before it completes (no write cache, or forced unit access). Urgent.
    Fua,
    /// An I/O priority: real time is Urgent, idle is plain whatever the other sources say.
    Ioprio,
    /// The last of two or more requests that came with one kick and are all the guest has outstanding: a Barrier.
    Batch,
    /// The only request that the guest has outstanding: Urgent.
    Single,
    /// Nothing is in flight any more: nobody else will interrupt. Urgent.
    Idle,
}

impl HintSource {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Flush, Self::Fua, Self::Ioprio, Self::Batch, Self::Single, Self::Idle];

    /// The name in a policy's text form and in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Fua => "fua",
            Self::Ioprio => "ioprio",
            Self::Batch => "batch",
            Self::Single => "single",
            Self::Idle => "idle",
        }
    }
}

/// A set of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintSources(u8);

impl HintSources {
    /// No hints at all.
    pub const NONE: Self = Self(0);
    /// Every source.
    pub const ALL: Self = Self((1 << HintSource::ALL.len()) - 1);
    /// What a guest says explicitly; the other sources are guesses.
    pub const EXPLICIT: Self = Self::NONE.with(HintSource::Flush).with(HintSource::Fua).with(HintSource::Ioprio);

    /// This set and one more.
    #[must_use]
    pub const fn with(self, source: HintSource) -> Self {
        Self(self.0 | 1 << source as u8)
    }

    /// Whether `source` is in the set.
    #[must_use]
    pub const fn has(self, source: HintSource) -> bool {
        self.0 & 1 << source as u8 != 0
    }
}

/// What is known about a request when it is submitted. The default is a request of which nothing is known and that came
/// alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clues {
    /// What its requester said. `Plain`: nothing, and the policy's hint sources are asked.
    pub hint: Hint,
    /// Submitter group, for strict Barriers: 0 to 15.
    pub group: u8,
    /// It is a flush.
    pub flush: bool,
    /// It is a write that must be on the medium before it ends.
    pub durable: bool,
    /// Scheduling class and level that the guest gives it: class in bits 15:13 (Linux `ioprio`).
    pub ioprio: u16,
    /// How many requests came with it, counting it.
    pub batch_len: usize,
    /// It is the last of those.
    pub last_of_batch: bool,
    /// Requests that the guest has submitted and not reaped, counting it.
    pub outstanding: u32,
    /// Plain requests that were submitted before it and not reported.
    pub before: u32,
}

impl Default for Clues {
    fn default() -> Self {
        Self {
            hint: Hint::Plain,
            group: 0,
            flush: false,
            durable: false,
            ioprio: 0,
            batch_len: 1,
            last_of_batch: true,
            outstanding: 1,
            before: 0,
        }
    }
}

const CLASS_SHIFT: u16 = 13;
const CLASS_REAL_TIME: u16 = 1;
const CLASS_IDLE: u16 = 3;

/// The hint of a request that said none, and where it came from. Sources that are not in `sources` are not looked at.
pub(crate) fn infer(sources: HintSources, clues: &Clues) -> (Hint, Option<HintSource>) {
    let class = clues.ioprio >> CLASS_SHIFT;
    let is_batch = clues.last_of_batch && clues.batch_len > 1 && clues.outstanding as usize == clues.batch_len;
    let found = |source, applies| applies && sources.has(source);
    if found(HintSource::Ioprio, class == CLASS_IDLE) {
        (Hint::Plain, Some(HintSource::Ioprio))
    } else if found(HintSource::Flush, clues.flush) {
        (Hint::Urgent, Some(HintSource::Flush))
    } else if found(HintSource::Fua, clues.durable) {
        (Hint::Urgent, Some(HintSource::Fua))
    } else if found(HintSource::Ioprio, class == CLASS_REAL_TIME) {
        (Hint::Urgent, Some(HintSource::Ioprio))
    } else if found(HintSource::Single, clues.outstanding == 1) {
        (Hint::Urgent, Some(HintSource::Single))
    } else if found(HintSource::Batch, is_batch) {
        (Hint::Barrier, Some(HintSource::Batch))
    } else {
        (Hint::Plain, None)
    }
}

/// The hint that counts when a request completes. Where nothing is in flight any more, nobody else will interrupt. What a
/// requester said itself stays.
pub(crate) fn at_completion(
    sources: HintSources,
    known: (Hint, Option<HintSource>),
    cif: u32,
) -> (Hint, Option<HintSource>) {
    match known {
        (Hint::Plain, None) if cif == 1 && sources.has(HintSource::Idle) => (Hint::Urgent, Some(HintSource::Idle)),
        known => known,
    }
}

/// How many hints came from where.
#[derive(Clone, Debug, Default)]
pub struct HintCounts([u64; HintSource::ALL.len()]);

impl HintCounts {
    /// Counts the source of a hint.
    pub const fn count(&mut self, source: Option<HintSource>) {
        if let Some(source) = source {
            self.0[source as usize] += 1;
        }
    }

    /// The sources that were seen, by name.
    #[must_use]
    pub fn by_source(&self) -> BTreeMap<&'static str, u64> {
        let all = HintSource::ALL.iter().map(|source| (source.name(), self.0[*source as usize]));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Clues = Clues {
        hint: Hint::Plain,
        group: 0,
        flush: false,
        durable: false,
        ioprio: 0x4004,
        batch_len: 1,
        last_of_batch: true,
        outstanding: 32,
        before: 0,
    };

    #[test]
    fn each_source_is_found_and_can_be_switched_off() {
        for (clues, hint, source) in [
            (Clues { flush: true, ..NONE }, Hint::Urgent, HintSource::Flush),
            (Clues { durable: true, ..NONE }, Hint::Urgent, HintSource::Fua),
            (Clues { ioprio: 0x2000, ..NONE }, Hint::Urgent, HintSource::Ioprio),
            (Clues { ioprio: 0x2007, ..NONE }, Hint::Urgent, HintSource::Ioprio),
            (Clues { ioprio: 0x6000, outstanding: 1, ..NONE }, Hint::Plain, HintSource::Ioprio),
            (Clues { outstanding: 1, ..NONE }, Hint::Urgent, HintSource::Single),
            (Clues { batch_len: 4, outstanding: 4, ..NONE }, Hint::Barrier, HintSource::Batch),
        ] {
            assert_eq!(infer(HintSources::ALL, &clues), (hint, Some(source)), "{clues:?}");
            let others = HintSource::ALL.iter().filter(|other| **other != source);
            let without = others.fold(HintSources::NONE, |set, other| set.with(*other));
            assert_ne!(infer(without, &clues).1, Some(source), "{clues:?}");
        }
        for clues in [
            NONE,
            Clues { outstanding: 2, ..NONE },
            Clues { batch_len: 4, ..NONE },
            Clues { batch_len: 4, last_of_batch: false, outstanding: 4, ..NONE },
            Clues { ioprio: 0, ..NONE },
        ] {
            assert_eq!(infer(HintSources::ALL, &clues), (Hint::Plain, None), "{clues:?}");
        }
    }

    #[test]
    fn the_last_in_flight_is_urgent_unless_it_is_idle_class() {
        let all = HintSources::ALL;
        assert_eq!(at_completion(all, (Hint::Plain, None), 1), (Hint::Urgent, Some(HintSource::Idle)));
        assert_eq!(at_completion(all, (Hint::Plain, None), 2), (Hint::Plain, None));
        let idle_class = (Hint::Plain, Some(HintSource::Ioprio));
        assert_eq!(at_completion(all, idle_class, 1), idle_class);
        assert_eq!(at_completion(HintSources::EXPLICIT, (Hint::Plain, None), 1), (Hint::Plain, None));
    }

    #[test]
    fn what_a_requester_said_stays() {
        for said in [(Hint::Barrier, None), (Hint::Urgent, None)] {
            assert_eq!(at_completion(HintSources::ALL, said, 1), said);
        }
    }
}
