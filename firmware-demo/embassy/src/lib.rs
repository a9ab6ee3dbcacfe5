//! An interrupt line with a deadline, as a task of embassy: any `embedded-hal` output pin, and any time driver.
//!
//! A task that completes a command posts it to the completion queue first, and then sends it here. So the host finds what
//! an interrupt is about.

#![no_std]

use cint_core::{Cint, Completion, Config, ConfigError, Hint, Params};
use coalesce_delivery::{Count, Delivery, Ring};
use core::convert::Infallible;
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

/// The line, for which everything is posted already.
struct Line<P: OutputPin> {
    pin: P,
    error: Option<P::Error>,
}

impl<P: OutputPin> Ring for Line<P> {
    type Entry = Infallible;
    type Broken = Infallible;

    fn post(&mut self, entry: Infallible) -> Result<(), Infallible> {
        match entry {}
    }

    fn wants_interrupt(&mut self) -> bool {
        true
    }

    fn is_consumed(&mut self) -> bool {
        false // it is not known
    }

    fn interrupt(&mut self) -> bool {
        self.error = self.pin.set_high().and_then(|()| self.pin.set_low()).err();
        self.error.is_none()
    }
}

/// Raises `line` for completions, at once or when its deadline has passed. Ends only if the pin fails.
pub async fn coalesce<P: OutputPin, M: RawMutex, const N: usize>(
    completed: Receiver<'_, M, Completed, N>,
    line: P,
    config: Config,
) -> P::Error {
    let mut line = Line { pin: line, error: None };
    let mut delivery = Delivery::<Infallible, _, Count>::with_policy(Cint::new(config));
    loop {
        let event = select(completed.receive(), passed(delivery.deadline())).await;
        let now = Instant::now().as_ticks();
        let Ok(decision) = match event {
            Either::First(Completed { hint, in_flight: cif }) => {
                delivery.posted(&mut line, now, 0, &Completion { cif, ..Completion::of(hint) })
            }
            Either::Second(()) => delivery.on_deadline(&mut line, now),
        };
        if !decision.is_deliver() && completed.is_empty() {
            let Ok(_) = delivery.on_batch_end(&mut line, now); // with Δ = 0 nothing else ends a burst
        }
        if let Some(error) = line.error {
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
