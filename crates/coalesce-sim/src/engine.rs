//! The simulation of one plan under one policy: a queue of events in integer nanoseconds, and what they do.
//!
//! Threads run on CPUs and submit commands; the device serves them; each CPU has one interrupt line, whose policy decides
//! when its handler runs; the handler answers the threads. The models' parameters are those of [`plan`](crate::plan).

mod core;
mod cpu;
mod device;
mod faults;
mod lines;
mod measure;
mod queue;
mod random;
mod request_time;
mod requests;
mod steal;
mod thread;

use self::core::Core;
use self::cpu::Cpu;
use self::device::Device;
use self::faults::Faults;
use self::lines::LineState;
use self::measure::Measure;
use self::queue::{Event, Queue};
pub(crate) use self::random::Random;
use self::requests::Requests;
use self::steal::Steal;
use self::thread::Thread;
use crate::check::Verdict;
use crate::contender::Contender;
use crate::event::{Event as LineEvent, Timeline};
use crate::line::Line;
use crate::outcome::Outcome;
use crate::plan::{Hypervisor, Point};
use coalesce_cli::counted;
use std::sync::atomic::{AtomicU64, Ordering};
use vic_core::{IpiGate, IpiParams};

/// The policies' clock is so far ahead of the engine's: jumps back do not reach 0.
const CLOCK_START: i64 = 3_600_000_000_000;

/// The longest wait for commands in flight after the end of the measurement.
const ENDING_MAX: u64 = 10_000_000_000;

/// Events between two reports of progress.
const PROGRESS_EVENTS: u64 = 1 << 16;

/// Streams of random numbers that are not a thread's.
const FAULTS_STREAM: u64 = 1 << 32;

/// What things cost, in ns.
#[derive(Clone, Copy, Debug)]
struct Costs {
    steps: thread::Costs,
    interrupt: u64,
    complete: u64,
    context_switch: u64,
    wire: u64,
    idle_exit: u64,
    timeslice: u64,
    switch: u64,
    ipi: u64,
    timer: u64,
}

/// Everything that a run has.
struct World {
    now: u64,
    queue: Queue,
    costs: Costs,
    hypervisor: Option<Hypervisor>,
    cores: Vec<Core>,
    cpus: Vec<Cpu>,
    lines: Vec<LineState>,
    threads: Vec<Thread>,
    device: Device,
    requests: Requests,
    faults: Faults,
    steal: Option<Steal>,
    measure: Measure,
    is_ending: bool,
}

/// What is wanted of a run besides its outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Simulated time, in ns, is added here as it passes.
    pub progress: Option<&'a AtomicU64>,
    /// Events of each line to keep: the instant from which on, and their largest number.
    pub timeline: Option<(u64, usize)>,
}

/// A run's outcome, and the events that were wanted, line by line.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it gave.
    pub outcome: Outcome,
    /// Events that were kept, for each line.
    pub timelines: Vec<Vec<LineEvent>>,
}

/// Simulates a valid plan without a sweep under one policy.
///
/// # Errors
/// A parameter of the policy that a clock in ns cannot carry.
///
/// # Panics
/// A thread of kind `trace` whose trace was not read: see [`Point::load`].
pub fn simulate(point: &Point, contender: &Contender, wanted: &Wanted<'_>) -> Result<Run, coalesce_policy::SpecError> {
    let mut world = World::new(point, contender, wanted)?;
    let (warmup, duration) = (point.plan.warmup.0, point.plan.duration.0);
    world.start(point);
    world.run_until(warmup + duration, wanted.progress);
    let mut outcome = world.outcome(point, &contender.to_string(), duration);
    world.end();
    outcome.events = world.queue.pushed() - world.queue.len() as u64;
    let timelines = world.lines.iter().filter_map(|state| state.line.timeline()).map(|kept| kept.events().to_vec());
    outcome.verdict = world.verdict();
    Ok(Run { outcome, timelines: timelines.collect() })
}

impl World {
    fn new(point: &Point, contender: &Contender, wanted: &Wanted<'_>) -> Result<Self, coalesce_policy::SpecError> {
        let plan = &point.plan;
        let (machine, clock) = (&plan.machine, plan.machine.clock);
        let hypervisor = plan.hypervisor;
        let guests = hypervisor.unwrap_or_default();
        let costs = Costs {
            steps: thread::Costs {
                submit_call: machine.submit_call.ns(clock),
                submit: machine.submit.ns(clock),
                reap: machine.reap.ns(clock),
            },
            interrupt: machine.interrupt.ns(clock),
            complete: machine.complete.ns(clock),
            context_switch: machine.context_switch.ns(clock),
            wire: machine.wire.0,
            idle_exit: machine.idle_exit.0,
            timeslice: guests.timeslice.0,
            switch: guests.switch.ns(clock),
            ipi: guests.ipi.ns(clock),
            timer: guests.timer.0,
        };
        let cpu_count = plan.cpus();
        let core_count = if machine.cores == 0 { cpu_count } else { (machine.cores as usize).min(cpu_count) };
        let mut threads = Vec::new();
        for (group, spec) in (0..).zip(&plan.threads) {
            for (nth, cpu) in (0..).zip(spec.cpus()) {
                let random = Random::new(plan.seed, threads.len() as u64);
                threads.push(Thread::new(spec, clock, group, nth, index(cpu), random));
            }
        }
        let mut lines = Vec::new();
        for _ in 0..cpu_count {
            let mut line = Line::new(contender)?;
            line.start_clock(CLOCK_START);
            if machine.event_idx {
                line.suppress_interrupts();
            }
            if let Some((from, max)) = wanted.timeline {
                line.keep(Timeline::new(from, max));
            }
            let threshold = hypervisor.and_then(|hypervisor| hypervisor.ipi_threshold);
            let gate = threshold.map(|threshold| {
                let params = IpiParams { tick_hz: crate::contender::TICK_HZ, threshold_ns: threshold.0 };
                IpiGate::new(params).expect("a valid plan")
            });
            lines.push(LineState::new(line, gate));
        }
        Ok(Self {
            now: 0,
            queue: Queue::default(),
            costs,
            hypervisor,
            cores: std::iter::repeat_with(Core::default).take(core_count).collect(),
            cpus: (0..cpu_count).map(|cpu| Cpu::new(index(cpu % core_count))).collect(),
            lines,
            threads,
            device: Device::new(&plan.device),
            requests: Requests::default(),
            faults: Faults::new(plan.faults, Random::new(plan.seed, FAULTS_STREAM)),
            steal: machine.steal.map(|steal| Steal::new(steal, plan.seed, cpu_count)),
            measure: Measure::new(plan.threads.len()),
            is_ending: false,
        })
    }

    fn start(&mut self, point: &Point) {
        self.note_all_requests();
        if point.plan.warmup.0 > 0 {
            self.queue.push(point.plan.warmup.0, Event::Measure);
        }
        self.plan_faults();
        self.plan_steals();
        for id in 0..self.threads.len() {
            let thread = &mut self.threads[id];
            self.cpus[thread.cpu as usize].enqueue(index(id));
            if let Some(first) = thread.first_arrival() {
                self.queue.push(first, Event::Arrival { thread: index(id) });
            }
        }
        self.start_cores(point.plan.hypervisor.map_or(0, |hypervisor| hypervisor.hogs));
    }

    fn run_until(&mut self, end: u64, progress: Option<&AtomicU64>) {
        let mut reported = 0;
        let mut count = 0_u64;
        while let Some((at, event)) = self.queue.pop_before(end) {
            self.now = at;
            self.happen(event);
            count += 1;
            if count.is_multiple_of(PROGRESS_EVENTS)
                && let Some(progress) = progress
            {
                progress.fetch_add(at - reported, Ordering::Relaxed);
                reported = at;
            }
        }
        self.now = end;
        if let Some(progress) = progress {
            progress.fetch_add(end - reported, Ordering::Relaxed);
        }
    }

    /// Nothing new begins; every command in flight is answered, every deadline met. Then nothing may be left.
    fn end(&mut self) {
        self.is_ending = true;
        self.note_all_requests();
        let latest = self.now + ENDING_MAX;
        while !(self.requests.len() == 0 && self.lines.iter().all(LineState::is_quiet)) {
            let Some((at, event)) = self.queue.pop_before(latest) else { break };
            self.now = at;
            self.happen(event);
        }
        for state in &mut self.lines {
            state.line.finish(self.now);
        }
    }

    /// What the checkers of all lines found, and whether every command was answered.
    fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        for state in &self.lines {
            verdict.add(state.line.verdict());
        }
        match self.requests.len() {
            0 => {}
            n => verdict.wrong(self.now, format!("never answered: {}", counted(n as u64, "command"))),
        }
        verdict
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Step { cpu, turn } => self.step(cpu, turn),
            Event::Served { request, turn } => self.served(request, turn),
            Event::Post => self.post_gathered(),
            Event::Deadline { line } => self.deadline(line),
            Event::Interrupt { cpu } => self.interrupt(cpu),
            Event::Arrival { thread } => self.arrive(thread),
            Event::IdleExit { cpu } => self.leave_idle(cpu),
            Event::Wake { thread } => self.wake(thread),
            Event::Slice { core, turn } => self.slice_ends(core, turn),
            Event::Gate { cpu } => self.gate_opens(cpu),
            Event::Timeout { cpu } => self.hear(cpu),
            Event::Fault(fault) => self.fault(fault),
            Event::Steal { cpu } => self.steal(cpu),
            Event::GiveBack { cpu } => self.give_back(cpu),
            Event::Measure => self.start_measuring(),
        }
    }

    fn arrive(&mut self, id: u32) {
        if self.is_ending {
            return;
        }
        let thread = &mut self.threads[id as usize];
        let (next, has_room) = thread.arrive(self.now);
        self.measure.groups[thread.group as usize].dropped += u64::from(!has_room);
        if let Some(next) = next {
            self.queue.push(next, Event::Arrival { thread: id });
        }
        self.note_requests(id);
        self.wake(id);
    }
}

fn index(i: usize) -> u32 {
    u32::try_from(i).expect("a plan's numbers are bounded")
}
