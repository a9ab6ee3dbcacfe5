//! Whether a queue has a source, and may take and complete requests.

use crate::source::Source;

/// The state of a queue's source.
pub(super) enum State<S: Source> {
    /// There is no source. The position of the last one is kept, because a front end may ask for it after the target
    /// has stopped the queue.
    Stopped(Option<S::Position>),
    /// Requests in flight complete, and no requests are taken.
    Disabled(Box<S>),
    /// Requests are taken and completed.
    Running(Box<S>),
    /// The guest broke the ring. No requests are taken or completed until another source is started.
    Broken(Box<S>),
}

impl<S: Source> State<S> {
    pub(super) const fn new(source: Box<S>, is_enabled: bool) -> Self {
        if is_enabled { Self::Running(source) } else { Self::Disabled(source) }
    }

    pub(super) fn source(&self) -> Option<&S> {
        match self {
            Self::Stopped(_) => None,
            Self::Disabled(source) | Self::Running(source) | Self::Broken(source) => Some(source),
        }
    }

    pub(super) fn source_mut(&mut self) -> Option<&mut S> {
        match self {
            Self::Stopped(_) => None,
            Self::Disabled(source) | Self::Running(source) | Self::Broken(source) => Some(source),
        }
    }

    /// The source, if requests may complete.
    pub(super) fn completing(&mut self) -> Option<&mut S> {
        match self {
            Self::Stopped(_) | Self::Broken(_) => None,
            Self::Disabled(source) | Self::Running(source) => Some(source),
        }
    }

    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Stopped(None))
    }

    pub(super) fn enable(&mut self, is_enabled: bool) {
        *self = match self.take() {
            Self::Disabled(source) | Self::Running(source) => Self::new(source, is_enabled),
            state @ (Self::Stopped(_) | Self::Broken(_)) => state,
        };
    }

    /// Notes that the guest broke the ring. Returns false if that is already known, or there is no source.
    pub(super) fn set_broken(&mut self) -> bool {
        let (state, is_news) = match self.take() {
            Self::Disabled(source) | Self::Running(source) => (Self::Broken(source), true),
            state @ (Self::Stopped(_) | Self::Broken(_)) => (state, false),
        };
        *self = state;
        is_news
    }

    /// Drops the source, and returns its position or that of the last one.
    pub(super) fn stop(&mut self) -> Option<S::Position> {
        let position = match self.take() {
            Self::Stopped(position) => position,
            Self::Disabled(source) | Self::Running(source) | Self::Broken(source) => Some(source.position()),
        };
        *self = Self::Stopped(position);
        position
    }
}
