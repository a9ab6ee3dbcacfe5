//! What an unmodified guest gives away about who waits for a request.

/// Something that an unmodified guest does, and that says what its requester wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
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

/// How many hints came from where. The counters saturate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HintCounts([u64; HintSource::ALL.len()]);

impl HintCounts {
    /// Counts the source of a hint.
    #[inline]
    pub fn count(&mut self, source: Option<HintSource>) {
        if let Some(counter) = source.and_then(|source| self.0.get_mut(source as usize)) {
            *counter = counter.saturating_add(1);
        }
    }

    /// The sources that were seen: each name with its count.
    pub fn by_source(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = HintSource::ALL.iter().zip(self.0).map(|(source, count)| (source.name(), count));
        all.filter(|(_, count)| *count > 0)
    }
}
