//! Where a target may get hints from, when the guest was not changed to give them.

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
    /// What a guest says, and its batches: for a policy that learns by itself who waits and whether more will come.
    pub const AUTO: Self = Self::EXPLICIT.with(HintSource::Batch);
    /// What a guest says in so many words, not what is inferred.
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
