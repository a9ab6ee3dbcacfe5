//! An interrupt-driven load generator for vhost-user-blk targets, and for NVMe controllers behind vfio-user.
//!
//! It acts as a guest's driver. It submits requests, kicks the device when the device wants a kick, and
//! reaps completions **only after the queue's eventfd was signalled**. It never polls the ring. So the latency of a
//! request includes the delay that the target adds by holding an interrupt. The number of interrupts is exact: the
//! target adds 1 to the eventfd for each, and reading the eventfd returns the sum.
//!
//! Terms: a *completion* is one request done, an *interrupt* is one notification for any number of completions, a
//! *kick* is a notification to the target. *Closed loop*: a completion makes room for the next request. *Open loop*:
//! requests arrive by the clock, and their latency counts from the intended arrival.
//!
//! A run is a warm-up and a measurement with the same load. Each starts with empty queues and ends when every request
//! has completed. The report covers every request of the measurement, and no other.
//!
//! With EVENT_IDX the driver does what Linux does. It reaps completions without asking for another interrupt, sets `used_event`
//! to the next completion, then checks the ring once more. Without EVENT_IDX it always wants every interrupt, whereas
//! Linux would set `VRING_AVAIL_F_NO_INTERRUPT` in its handler. So each missing interrupt was suppressed by the target.
//!
//! An NVMe driver cannot suppress interrupts, so each missing one is the target's decision. A kick is a doorbell that was a message;
//! with shadow doorbells the controller says where it wants one, and doorbells that are mapped need none.

mod arrivals;
mod blocks;
mod cpu;
mod device;
mod driver;
mod error;
mod failure;
mod job;
mod latency;
mod memory;
mod nvme;
mod options;
mod pattern;
mod queue;
mod report;
mod request;
mod requester;
mod table;
mod virtio_device;
mod virtio_queue;
mod worker;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use cpu::Cpu;
pub use error::Error;
pub use failure::{Cause, Failure};
pub use job::JobName;
pub use latency::Latency;
pub use options::{
    Bursts, DEPTH_MAX, Device, HintBits, Job, Options, Pauses, QUEUES_MAX, Rw, SyncIoprio, Threads, Wait,
};
pub use pattern::Mismatch;
pub use report::{Counters, JobReport, QueueReport, Queues, Report};
pub use table::table;

use blocks::Blocks;
use driver::{Driver, Phase};
use queue::Queue;
use worker::Share;

const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Share of the measurement that is complete, 0 to 1; 0 during the warm-up.
    pub done: f64,
    /// Completions so far, of the measurement or of the warm-up.
    pub total_ios: u64,
}

/// Runs the load that `options` describe. Calls `progress` about ten times per second.
///
/// A request that failed or did not complete is not an `Err`: see [`Report::failed`].
pub fn run(options: &Options, mut progress: impl FnMut(Progress)) -> Result<Report, Error> {
    options.validate()?;
    let device = match options.device {
        Device::VirtioBlk => virtio_device::open(options)?.map(|queue| Queue::Virtio(Box::new(queue))),
        Device::Nvme => nvme::open(options)?.map(|queue| Queue::Nvme(Box::new(queue))),
    };
    let blocks = device.capacity_bytes / u64::from(options.block_size_bytes);
    let this_run = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let mut drivers: Vec<Driver> = (0..)
        .zip(device.queues)
        .map(|(index, queue)| Driver::new(options, index, queue, Blocks::new(options, index, blocks, this_run)))
        .collect();

    let connection = device.connection.as_fd();
    let mut run_phase = |phase: Phase, progress: &mut dyn FnMut(&Phase, u64)| -> Result<Report, Error> {
        for driver in &mut drivers {
            driver.begin(options, &phase)?;
        }
        let share = serve_all(options, &mut drivers, &phase.restarted(), connection, progress)?;
        Ok(Report::new(options, device.event_idx, device.is_mapped, share, &drivers))
    };

    if options.warmup_seconds > 0.0 {
        let phase = Phase::seconds(options.warmup_seconds);
        let warmup = run_phase(phase, &mut |_, total_ios| progress(Progress { done: 0.0, total_ios }))?;
        if warmup.failed() {
            return Ok(Report { warmup_failed: true, ..warmup });
        }
    }
    let phase = options.ops.map_or_else(|| Phase::seconds(options.seconds), Phase::ops);
    run_phase(phase, &mut |phase, total_ios| {
        progress(Progress { done: share_done(options, phase, total_ios), total_ios });
    })
}

/// Runs one phase on all client threads, and returns the sum of their shares.
fn serve_all(
    options: &Options,
    drivers: &mut [Driver],
    phase: &Phase,
    connection: BorrowedFd,
    progress: &mut dyn FnMut(&Phase, u64),
) -> Result<Share, Error> {
    let completed = AtomicU64::new(0);
    // Nothing is sent. The channel closes when the last thread drops its end.
    let (working, all_done) = channel::<()>();
    let per_thread = if options.threads == Threads::PerQueue { 1 } else { drivers.len() };
    thread::scope(|scope| {
        let workers: Vec<_> = drivers
            .chunks_mut(per_thread)
            .map(|drivers| {
                let (working, completed) = (working.clone(), &completed);
                scope.spawn(move || {
                    let _working = working;
                    worker::serve(drivers, phase, options.wait, connection, completed)
                })
            })
            .collect();
        drop(working);
        while let Err(RecvTimeoutError::Timeout) = all_done.recv_timeout(PROGRESS_INTERVAL) {
            progress(phase, completed.load(Ordering::Relaxed));
        }
        workers.into_iter().try_fold(Share::default(), |sum, worker| {
            Ok(sum.plus(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?))
        })
    })
}

fn share_done(options: &Options, phase: &Phase, total_ios: u64) -> f64 {
    let share = match options.ops {
        Some(ops) => total_ios as f64 / (ops as f64 * f64::from(options.queues)),
        None => phase.now_ns() as f64 / phase.end_ns as f64,
    };
    share.min(1.0)
}
