//! Which changes of a disk are in flight, so that one can be alone.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of changes in flight, and two bits.
#[derive(Debug)]
pub struct Changes {
    is_counted: bool, // else nobody needs to know
    state: AtomicU32,
}

/// A change is alone.
const ALONE: u32 = 1 << 31;
/// One that is to be alone waits for those in flight. New ones wait, or it would wait for ever.
const WANTED: u32 = 1 << 30;

impl Changes {
    pub const fn new(is_counted: bool) -> Self {
        Self { is_counted, state: AtomicU32::new(0) }
    }

    /// Begins a change, unless one is alone or is to be.
    pub fn begin(&self) -> bool {
        !self.is_counted || self.update(|state| (state < WANTED).then_some(state + 1)).is_ok()
    }

    /// Ends a change that has [begun](Self::begin).
    pub fn end(&self) {
        if self.is_counted {
            self.state.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Begins a change that is alone, unless there are others. Who is refused asks again.
    pub fn begin_alone(&self) -> bool {
        let before = self.update(|state| match state {
            0 | WANTED => Some(ALONE),
            state if state & ALONE != 0 => None,
            state => Some(state | WANTED),
        });
        matches!(before, Ok(0 | WANTED))
    }

    /// Ends the change that is alone.
    pub fn end_alone(&self) {
        self.state.fetch_and(!ALONE, Ordering::AcqRel);
    }

    /// Whether none is in flight.
    pub fn is_none(&self) -> bool {
        self.state.load(Ordering::Acquire) == 0
    }

    fn update(&self, next: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_is_to_be_alone_waits_for_those_in_flight_and_for_no_new_one() {
        let changes = Changes::new(true);
        assert!(changes.begin() && changes.begin());
        assert!(!changes.begin_alone());
        assert!(!changes.begin(), "another would come before it");
        changes.end();
        assert!(!changes.begin_alone());
        changes.end();
        assert!(!changes.begin() && !changes.is_none());
        assert!(changes.begin_alone());
        assert!(!changes.begin() && !changes.begin_alone());
        changes.end_alone();
        assert!(changes.is_none() && changes.begin());
        changes.end();
        assert!(changes.begin_alone() && !changes.begin());
    }
}
