//! An interrupt line with a deadline, as a task of embassy: any `embedded-hal` output pin, and any time driver.
//!
//! A task that completes a command posts it to the completion queue first, and then sends it here. So the host finds what
//! an interrupt is about.

#![no_std]

use cint_core::{Cint, Completion, Config, ConfigError, Hint, Params, Policy as _};
use core::future::pending;
use embassy_futures::select::{Either, select};
use embassy_sync::blocking_mutex::raw::RawMutex;
use embassy_sync::channel::Receiver;
use embassy_time::{Instant, TICK_HZ, Timer};
use embedded_hal::digital::OutputPin;

/// A command that completed and is posted.
#[derive(Clone, Copy, Debug)]
pub struct Completed {
    /// What its requester said.
    pub hint: Hint,
    /// Commands in flight on the line, counting it.
    pub in_flight: u32,
}

/// The parameters of cinterrupts for a fast drive, in ticks of embassy's clock.
///
/// # Errors
/// The clock is too slow for them.
pub fn config() -> Result<Config, ConfigError> {
    // There is one line, and all is posted: an Urgent's edge covers what is held, too.
    Config::new(Params { tick_hz: TICK_HZ, ooo: false, ..Params::OPTANE })
}

/// Raises `line` for completions, at once or when its deadline has passed. Ends only if the pin fails.
pub async fn coalesce<P: OutputPin, M: RawMutex, const N: usize>(
    completed: Receiver<'_, M, Completed, N>,
    mut line: P,
    config: Config,
) -> P::Error {
    let mut cint = Cint::new(config);
    loop {
        let event = select(completed.receive(), passed(cint.deadline())).await;
        let now = Instant::now().as_ticks();
        let mut decision = match event {
            Either::First(Completed { hint, in_flight: cif }) => {
                cint.on_completion(now, &Completion { cif, ..Completion::of(hint) })
            }
            Either::Second(()) => cint.on_deadline(now),
        };
        if !decision.is_deliver() && completed.is_empty() && cint.wants_batch_end() {
            decision = cint.on_batch_end(now); // with Δ = 0 nothing else ends a burst
        }
        if decision.is_deliver()
            && let Err(error) = line.set_high().and_then(|()| line.set_low())
        {
            return error;
        }
    }
}

/// Waits for a deadline; for ever without one.
async fn passed(deadline: Option<u64>) {
    match deadline {
        Some(at) => Timer::at(Instant::from_ticks(at)).await,
        None => pending().await,
    }
}
