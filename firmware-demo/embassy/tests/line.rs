//! The task with a clock that moves when it is told to.

use cint_core::{Config, Hint, Params};
use core::cell::Cell;
use core::convert::Infallible;
use core::future::Future;
use core::pin::{Pin, pin};
use embassy_futures::poll_once;
use embassy_line::{Completed, coalesce, config};
use embassy_sync::blocking_mutex::raw::NoopRawMutex;
use embassy_sync::channel::Channel;
use embassy_time::{Duration, MockDriver, TICK_HZ};
use embedded_hal::digital::{ErrorType, OutputPin};

/// Counts rising edges.
struct Line<'a>(&'a Cell<u32>);

impl ErrorType for Line<'_> {
    type Error = Infallible;
}

impl OutputPin for Line<'_> {
    fn set_high(&mut self) -> Result<(), Infallible> {
        self.0.set(self.0.get() + 1);
        Ok(())
    }

    fn set_low(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// The task runs until it waits.
fn run(task: &mut Pin<&mut impl Future>) {
    assert!(poll_once(task).is_pending());
}

fn command(hint: Hint) -> Completed {
    Completed { hint, in_flight: 32 }
}

#[test]
fn a_burst_is_one_edge_at_its_deadline_and_an_urgent_command_one_at_once() {
    let (edges, channel) = (Cell::new(0), Channel::<NoopRawMutex, _, 8>::new());
    let mut task = pin!(coalesce(channel.receiver(), Line(&edges), config().unwrap()));
    run(&mut task);
    for _ in 0..3 {
        channel.try_send(command(Hint::Plain)).unwrap();
    }
    run(&mut task);
    MockDriver::get().advance(Duration::from_micros(5));
    run(&mut task);
    assert_eq!(edges.get(), 0, "the burst is held for 6 µs");
    MockDriver::get().advance(Duration::from_micros(1));
    run(&mut task);
    assert_eq!(edges.get(), 1);

    channel.try_send(command(Hint::Urgent)).unwrap();
    run(&mut task);
    assert_eq!(edges.get(), 2);
    MockDriver::get().advance(Duration::from_secs(1));
    run(&mut task);
    assert_eq!(edges.get(), 2, "nothing is held");
}

/// One line, and the host reaps everything at each edge: an Urgent's edge is for what is held, too.
#[test]
fn an_urgent_command_s_edge_covers_the_burst() {
    let (edges, channel) = (Cell::new(0), Channel::<NoopRawMutex, _, 8>::new());
    let mut task = pin!(coalesce(channel.receiver(), Line(&edges), config().unwrap()));
    run(&mut task);
    for hint in [Hint::Plain, Hint::Urgent] {
        channel.try_send(command(hint)).unwrap();
    }
    run(&mut task);
    assert_eq!(edges.get(), 1);
    MockDriver::get().advance(Duration::from_secs(1));
    run(&mut task);
    assert_eq!(edges.get(), 1, "an edge for nothing: the host has reaped all at the Urgent's");
}

/// With Δ = 0 there is no deadline: a burst ends with what came together.
#[test]
fn a_burst_without_a_deadline_is_one_edge() {
    let config = Config::new(Params { tick_hz: TICK_HZ, delta_ns: 0, ..Params::OPTANE }).unwrap();
    let (edges, channel) = (Cell::new(0), Channel::<NoopRawMutex, _, 8>::new());
    let mut task = pin!(coalesce(channel.receiver(), Line(&edges), config));
    run(&mut task);
    for _ in 0..3 {
        channel.try_send(command(Hint::Plain)).unwrap();
    }
    run(&mut task);
    assert_eq!(edges.get(), 1);
}
