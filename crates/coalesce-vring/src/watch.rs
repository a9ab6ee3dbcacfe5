//! What an event loop waits for: the front end's kick, and a deadline.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::read;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Ns after the timer has fired within which an event loop looks at it, unless it has ended or is too busy to meet deadlines.
const LATE: u64 = 10_000_000;

const KICK: u64 = 0;
const TIMER: u64 = 1;

/// A kick and a timer behind one descriptor.
#[derive(Debug)]
pub struct Watch {
    kick: File,
    timer: TimerFd,
    both: Epoll,
    armed: Option<u64>, // it fires at this instant, in ns
    is_watched: bool,   // somebody has asked what has happened
}

impl Watch {
    /// Watches a kick. Returns the descriptor that is readable if it was kicked or the timer has fired, too.
    pub fn new(kick: File) -> io::Result<(Self, OwnedFd)> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        let both = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        both.add(&kick, EpollEvent::new(EpollFlags::EPOLLIN, KICK))?;
        both.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        let outside = both.0.try_clone()?;
        Ok((Self { kick, timer, both, armed: None, is_watched: false }, outside))
    }

    /// Whether an event loop waits for it, as far as is known. A descriptor that replaces that of a running ring is in no loop, and
    /// an error of the device, or of another ring's kick, ends the loop without a word.
    pub fn is_watched(&self, now: u64) -> bool {
        self.is_watched && self.armed.is_none_or(|armed| now < armed.saturating_add(LATE))
    }

    /// What has happened: whether it was kicked, and whether the timer has fired. Takes both back.
    pub fn take(&mut self) -> io::Result<(bool, bool)> {
        let mut events = [EpollEvent::empty(); 2];
        let count = self.both.wait(&mut events, EpollTimeout::ZERO)?;
        self.is_watched |= count > 0; // else it may have been called for a kick that this one has replaced
        let (mut is_kicked, mut has_fired) = (false, false);
        for event in &events[..count] {
            match event.data() {
                KICK => {
                    read(&self.kick, &mut [0; 8])?;
                    is_kicked = true;
                }
                _ => {
                    read(&self.timer, &mut [0; 8])?;
                    self.armed = None;
                    has_fired = true;
                }
            }
        }
        Ok((is_kicked, has_fired))
    }

    /// The timer fires at `deadline` or before, in ns after `now`'s zero. A timer that fires too early costs less than two system
    /// calls for each hold.
    pub fn arm(&mut self, now: u64, deadline: u64) -> io::Result<()> {
        if self.armed.is_some_and(|armed| armed <= deadline) {
            return Ok(());
        }
        let left = Duration::from_nanos(deadline.saturating_sub(now).max(1)); // 0 would disarm it
        self.timer.set(Expiration::OneShot(TimeSpec::from_duration(left)), TimerSetTimeFlags::empty())?;
        self.armed = Some(deadline);
        Ok(())
    }
}
