//! One client thread: waits for the interrupts of its queues, then issues their next requests.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::{TimeSpec, TimeValLike};

use crate::Error;
use crate::cpu::Cpu;
use crate::driver::{Driver, Phase};
use crate::options::Wait;

/// The longest sleep, in ns. After it a thread checks whether a completion is missing.
const SLEEP_NS_MAX: u64 = 100_000_000;

/// How often a spinning thread checks that the target is still connected, in ns.
const SPIN_CHECK_NS: u64 = 10_000_000;

/// Time without interrupts after the last completion, in ns. A late interrupt still belongs to this phase.
const SETTLE_NS: u64 = 10_000_000;

/// The longest wait for that quiet time, in ns, for a target that never stops signalling.
const SETTLE_NS_MAX: u64 = 200_000_000;

/// A thread's results besides the counters of its queues.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    /// From the start of the phase to the last completion, or to its nominal end.
    pub elapsed_ns: u64,
    pub cpu: Cpu,
}

impl Share {
    /// Combines two threads that ran at the same time.
    pub fn plus(self, other: Self) -> Self {
        Self { elapsed_ns: self.elapsed_ns.max(other.elapsed_ns), cpu: self.cpu.plus(other.cpu) }
    }
}

/// Runs one phase on these queues.
pub fn serve(
    drivers: &mut [Driver],
    phase: &Phase,
    wait: Wait,
    connection: BorrowedFd,
    completed: &AtomicU64,
) -> Result<Share, Error> {
    // The default timer slack of 50 µs would make every arrival of an open loop late, and would count as latency.
    set_timerslack(1)?;
    let cpu_before = Cpu::of_this_thread()?;
    let mut waiter = Waiter::new(drivers, wait, connection)?;

    let mut ready = vec![false; drivers.len()];
    let (mut last_completion_ns, mut first) = (0, 0);
    loop {
        let mut wake_ns = u64::MAX;
        // Each turn begins with another queue. A queue that always came last would not be ready at the thread's next
        // check, and would get half as many turns as the first.
        first = (first + 1) % drivers.len();
        for index in (first..drivers.len()).chain(0..first) {
            let driver = &mut drivers[index];
            if ready[index] {
                let completions = driver.handle_interrupts(phase)?;
                if completions > 0 {
                    last_completion_ns = phase.now_ns();
                    completed.fetch_add(completions, Ordering::Relaxed);
                }
            }
            wake_ns = driver.issue(phase)?.unwrap_or(u64::MAX).min(wake_ns);
        }
        if drivers.iter().all(|driver| driver.is_over(phase)) {
            break;
        }
        // The end of the phase needs no timer: the completions in flight wake the thread.
        let now_ns = phase.now_ns();
        waiter.wait(wake_ns.saturating_sub(now_ns).min(SLEEP_NS_MAX), now_ns, &mut ready)?;
    }
    let cpu = Cpu::of_this_thread()?.since(cpu_before);

    waiter.mode = Wait::Sleep;
    let settled_ns = phase.now_ns() + SETTLE_NS_MAX;
    while waiter.wait(SETTLE_NS, phase.now_ns(), &mut ready)? && phase.now_ns() < settled_ns {
        for driver in drivers.iter_mut() {
            driver.handle_interrupts(phase)?;
        }
    }
    drivers.iter_mut().for_each(Driver::give_up);
    let nominal_ns = if phase.end_ns == u64::MAX { 0 } else { phase.end_ns };
    Ok(Share { elapsed_ns: last_completion_ns.max(nominal_ns), cpu })
}

struct Waiter<'a> {
    calls: Vec<OwnedFd>,
    mode: Wait,
    connection: BorrowedFd<'a>,
    checked_ns: u64,
}

impl<'a> Waiter<'a> {
    fn new(drivers: &[Driver], mode: Wait, connection: BorrowedFd<'a>) -> Result<Self, Error> {
        let calls = drivers.iter().map(|driver| driver.queue.call()).collect::<Result<_, _>>()?;
        Ok(Self { calls, mode, connection, checked_ns: 0 })
    }

    /// Waits for an interrupt for at most `timeout_ns`. Sets `ready` for the queues that may have one. Returns whether
    /// any has.
    fn wait(&mut self, timeout_ns: u64, now_ns: u64, ready: &mut [bool]) -> Result<bool, Error> {
        if self.mode == Wait::Spin && now_ns - self.checked_ns < SPIN_CHECK_NS {
            ready.fill(true);
            return Ok(true);
        }
        self.checked_ns = now_ns;
        let timeout_ns = if self.mode == Wait::Spin { 0 } else { timeout_ns };

        let mut fds: Vec<_> = self.calls.iter().map(|call| PollFd::new(call.as_fd(), PollFlags::POLLIN)).collect();
        // No event needs to be requested: poll always reports a closed connection.
        fds.push(PollFd::new(self.connection, PollFlags::empty()));
        match ppoll(&mut fds, Some(TimeSpec::nanoseconds(timeout_ns as i64)), None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        if fds[ready.len()].any() == Some(true) {
            return Err(Error::Closed);
        }
        for (ready, fd) in ready.iter_mut().zip(&fds) {
            *ready = fd.any() == Some(true);
        }
        Ok(ready.contains(&true))
    }
}
