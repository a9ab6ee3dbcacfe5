//! The driver of one queue: its requesters, its interrupt handler, and their counters.

use std::collections::BTreeMap;
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::Error;
use crate::arrivals::{OpenLoop, Schedule};
use crate::blocks::{Access, Blocks};
use crate::failure::Cause;
use crate::job::JobName;
use crate::latency::new_histogram;
use crate::options::{Device, Job, Options, SyncIoprio};
use crate::queue::Queue;
use crate::request::{Kind, Request};
use crate::requester::{GRACE_NS, Group, Issued, Next, Pace, Profile, Requester};

/// Real-time class, level 0.
const IOPRIO_RT: u32 = 1 << 13;
/// Best-effort class, level 4: what Linux sends for a process that has not set a priority.
const IOPRIO_DEFAULT: u32 = 2 << 13 | 4;
/// What Linux sends for a flush, which belongs to no process.
const IOPRIO_FLUSH: u32 = 0;

const NS_PER_SECOND: f64 = 1e9;

/// What the driver keeps for a request in flight.
pub struct Ticket {
    requester: usize,
    /// The start of its latency.
    since_ns: u64,
    /// `None` for a flush.
    access: Option<Access>,
}

/// The length of one phase (warm-up or measurement).
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    pub start: Instant,
    /// No request is issued at or after this time.
    pub end_ns: u64,
    /// The most requests per queue.
    pub ops: u64,
}

impl Phase {
    pub fn seconds(seconds: f64) -> Self {
        Self { start: Instant::now(), end_ns: (seconds * NS_PER_SECOND) as u64, ops: u64::MAX }
    }

    pub fn ops(ops: u64) -> Self {
        Self { start: Instant::now(), end_ns: u64::MAX, ops }
    }

    /// The same phase, starting now.
    pub fn restarted(self) -> Self {
        Self { start: Instant::now(), ..self }
    }

    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// The counters of one queue in one phase.
pub struct Counts {
    pub interrupts: u64,
    pub kicks: u64,
    /// Reads whose data was checked.
    pub verified: u64,
    pub flush_latency_ns: Histogram<u64>,
    pub failures: BTreeMap<Cause, u64>,
}

impl Counts {
    fn new() -> Self {
        let flush_latency_ns = new_histogram();
        Self { interrupts: 0, kicks: 0, verified: 0, flush_latency_ns, failures: BTreeMap::new() }
    }
}

/// One queue and its requesters.
pub struct Driver {
    pub queue: Queue<Ticket>,
    pub requesters: Vec<Requester>,
    pub counts: Counts,
    blocks: Blocks,
    sectors_per_block: u64,
    index: u16,
    device: Device,
}

impl Driver {
    pub fn new(options: &Options, index: u16, queue: Queue<Ticket>, blocks: Blocks) -> Self {
        let sectors_per_block = u64::from(options.block_size_bytes) / 512;
        let device = options.device;
        Self { queue, requesters: Vec::new(), counts: Counts::new(), blocks, sectors_per_block, index, device }
    }

    /// Begins a phase with all counters at zero.
    pub fn begin(&mut self, options: &Options, phase: &Phase) -> Result<(), Error> {
        // Targets signal when a queue starts. That interrupt belongs to no request.
        self.queue.take_interrupts()?;
        self.counts = Counts::new();
        self.requesters = requesters(options, phase, self.index);
        Ok(())
    }

    /// Issues every request that may be issued now, with one kick. Returns when more can be issued; `None`: at a
    /// completion.
    pub fn issue(&mut self, phase: &Phase) -> Result<Option<u64>, Error> {
        if self.is_stuck(phase) {
            return Ok(None);
        }
        let mut wake_ns = None;
        let mut issued = false;
        for index in 0..self.requesters.len() {
            // The synchronous requester of a mixed job stops when the asynchronous one stops, which is the first.
            if index > 0 && self.requesters[0].exhausted() {
                break;
            }
            let until_ns = loop {
                let now_ns = phase.now_ns();
                match self.requesters[index].next(now_ns) {
                    Next::Wait { until_ns } => break until_ns,
                    Next::Flush => self.submit_flush(index, now_ns)?,
                    Next::Request { arrived_ns } => self.submit_access(index, now_ns, arrived_ns)?,
                }
                issued = true;
            };
            self.requesters[index].note_backlog(phase.now_ns());
            wake_ns = [wake_ns, until_ns].into_iter().flatten().min();
        }
        if issued && self.queue.kick()? {
            self.counts.kicks += 1;
        }
        Ok(wake_ns)
    }

    /// Handles pending interrupts. Returns the number of completions reaped.
    pub fn handle_interrupts(&mut self, phase: &Phase) -> Result<u64, Error> {
        let interrupts = self.queue.take_interrupts()?;
        if interrupts == 0 {
            return Ok(0);
        }
        self.counts.interrupts += interrupts;
        let device = self.device;
        let (requesters, blocks, counts) = (&mut self.requesters, &mut self.blocks, &mut self.counts);
        let mut completions = 0;
        let kicked = self.queue.reap(|ticket, status, data| {
            completions += 1;
            let now_ns = phase.now_ns();
            let requester = &mut requesters[ticket.requester];
            requester.completed(now_ns);
            let latency_ns = now_ns.saturating_sub(ticket.since_ns);
            let checked = match ticket.access {
                Some(access) => {
                    requester.latency_ns.saturating_record(latency_ns);
                    blocks.complete(access, status == 0, data)
                }
                None => {
                    counts.flush_latency_ns.saturating_record(latency_ns);
                    None
                }
            };
            counts.verified += u64::from(checked.is_some());
            let wrong = if status == 0 {
                checked.and_then(Result::err).map(Cause::Data)
            } else {
                Some(Cause::Status(device, status))
            };
            if let Some(cause) = wrong {
                *counts.failures.entry(cause).or_default() += 1;
            }
        })?;
        self.counts.kicks += u64::from(kicked);
        Ok(completions)
    }

    /// Whether the phase is over: every request was issued and completed, or the grace time of the missing ones has
    /// passed.
    pub fn is_over(&self, phase: &Phase) -> bool {
        let settled = |requester: &Requester| requester.in_flight() == 0 || is_silent(requester, phase);
        (self.requesters[0].exhausted() || self.is_stuck(phase)) && self.requesters.iter().all(settled)
    }

    fn is_stuck(&self, phase: &Phase) -> bool {
        self.requesters.iter().any(|requester| is_silent(requester, phase))
    }

    fn in_flight(&self) -> u64 {
        self.requesters.iter().map(|requester| u64::from(requester.in_flight())).sum()
    }

    /// Gives up on the requests in flight, and counts them as failures.
    pub fn give_up(&mut self) {
        let (in_flight, unreaped) = (self.in_flight(), self.queue.unreaped());
        for (cause, count) in [(Cause::Unsignalled, unreaped), (Cause::Lost, in_flight.saturating_sub(unreaped))] {
            if count > 0 {
                self.counts.failures.insert(cause, count);
            }
        }
    }

    fn submit_access(&mut self, requester: usize, now_ns: u64, arrived_ns: Option<u64>) -> Result<(), Error> {
        let access = self.blocks.next();
        let (kind, issued) = if access.write { (Kind::Write, Issued::Write) } else { (Kind::Read, Issued::Read) };
        let ioprio = self.requesters[requester].profile.ioprio;
        let request = Request { kind, ioprio, sector: access.block * self.sectors_per_block };
        let ticket = Ticket { requester, since_ns: arrived_ns.unwrap_or(now_ns), access: Some(access) };
        self.queue.submit(request, ticket, |data| self.blocks.fill(access, data))?;
        self.requesters[requester].issued(now_ns, issued);
        Ok(())
    }

    fn submit_flush(&mut self, requester: usize, now_ns: u64) -> Result<(), Error> {
        let request = Request { kind: Kind::Flush, ioprio: IOPRIO_FLUSH, sector: 0 };
        self.queue.submit(request, Ticket { requester, since_ns: now_ns, access: None }, |_| ())?;
        self.requesters[requester].issued(now_ns, Issued::Flush);
        Ok(())
    }
}

/// Whether a requester has seen no completion for the grace time, and the phase has ended.
fn is_silent(requester: &Requester, phase: &Phase) -> bool {
    let now_ns = phase.now_ns();
    let past_end = phase.end_ns == u64::MAX || now_ns >= phase.end_ns + GRACE_NS;
    past_end && requester.silent_since(now_ns.saturating_sub(GRACE_NS))
}

/// The requesters of a job. The first one decides when the queue is done.
fn requesters(options: &Options, phase: &Phase, index: u16) -> Vec<Requester> {
    let fsync_every = options.fsync_every;
    let closed = |left| Pace::Closed { left, end_ns: phase.end_ns };
    let sync_ioprio = match options.sync_ioprio {
        SyncIoprio::Rt => IOPRIO_RT,
        SyncIoprio::None => IOPRIO_DEFAULT,
    };
    let sync = |left| {
        let profile = Profile { name: JobName::Sync, ioprio: sync_ioprio, depth: 1, group: None, fsync_every };
        Requester::new(profile, closed(left))
    };
    let asynchronous = || {
        let group = options.bursts.map(|bursts| Group { requests: bursts.requests, gap_ns: bursts.gap_us * 1000 });
        let depth = options.depth.into();
        let profile = Profile { name: JobName::Async, ioprio: IOPRIO_DEFAULT, depth, group, fsync_every };
        Requester::new(profile, open_loop(options, phase, index).unwrap_or_else(|| closed(phase.ops)))
    };
    match options.job {
        Job::Async => vec![asynchronous()],
        Job::Sync => vec![sync(phase.ops)],
        Job::Mixed => vec![asynchronous(), sync(u64::MAX)],
        Job::Batch => {
            let requests = options.batch.into();
            let group = Some(Group { requests, gap_ns: 0 });
            let profile = Profile { name: JobName::Batch, ioprio: IOPRIO_DEFAULT, depth: requests, group, fsync_every };
            vec![Requester::new(profile, closed(phase.ops))]
        }
    }
}

fn open_loop(options: &Options, phase: &Phase, index: u16) -> Option<Pace> {
    let interval_ns = NS_PER_SECOND / options.rate_per_second?;
    let arrivals = OpenLoop::new(Schedule {
        interval_ns,
        // The queues start staggered. Otherwise all would be busy and idle at the same time.
        first_ns: interval_ns * f64::from(index) / f64::from(options.queues),
        poisson: options.poisson,
        pauses: options.pauses,
        seed: options.seed.wrapping_add(u64::from(index)),
        end_ns: phase.end_ns,
        count_max: phase.ops,
    });
    Some(Pace::Open { arrivals: Box::new(arrivals), issue_until_ns: phase.end_ns.saturating_add(GRACE_NS) })
}
