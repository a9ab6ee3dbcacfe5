//! CPUs: interrupts come first, then threads in turn, as a fair scheduler lets them run.

use super::World;
use super::queue::Event;
use super::thread::{Next, State, Then};

/// How far a thread may be ahead of one that waits before it is put off, in ns of virtual run time.
const GRANULARITY: u64 = 1_000_000;
/// What a thread that slept is given, at most: it runs before those that did not sleep.
const SLEEPER_CREDIT: u64 = 6_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Idle,
    /// A step of the current thread.
    Thread {
        ends: u64,
    },
    /// An interrupt; `left`: of the step that it interrupted.
    Handler {
        ends: u64,
        left: Option<u64>,
    },
}

/// A CPU at work.
#[derive(Debug)]
pub(super) struct Cpu {
    pub(super) core: u32,
    pub(super) activity: Activity,
    /// Counts what it does: only the newest [`Event::Step`] is for it.
    turn: u32,
    /// An interrupt has arrived and was not taken.
    pending: bool,
    leaves_idle: bool,
    handling: Vec<u32>,
    queue: Vec<u32>, // ready threads
    current: Option<u32>,
    vruntime_min: u64,
    // Under a hypervisor
    pub(super) is_running: bool,
    pub(super) is_halted: bool,
    stopped: Option<u64>, // what was left of its activity when it was taken off the core
    entry_cost: u64,      // of the next thing it does
    pub(super) ready_since: u64,
}

impl Cpu {
    pub(super) const fn new(core: u32) -> Self {
        Self {
            core,
            activity: Activity::Idle,
            turn: 0,
            pending: false,
            leaves_idle: false,
            handling: Vec::new(),
            queue: Vec::new(),
            current: None,
            vruntime_min: 0,
            is_running: true,
            is_halted: false,
            stopped: None,
            entry_cost: 0,
            ready_since: 0,
        }
    }

    pub(super) fn enqueue(&mut self, thread: u32) {
        self.queue.push(thread);
    }
}

impl World {
    fn set_activity(&mut self, cpu: u32, activity: Activity) {
        let at = match activity {
            Activity::Idle => None,
            Activity::Thread { ends } | Activity::Handler { ends, .. } => Some(ends),
        };
        let state = &mut self.cpus[cpu as usize];
        state.activity = activity;
        state.turn = state.turn.wrapping_add(1);
        if let Some(at) = at {
            self.queue.push(at, Event::Step { cpu, turn: state.turn });
        }
    }

    /// What the CPU did ends.
    pub(super) fn step(&mut self, cpu: u32, turn: u32) {
        let state = &self.cpus[cpu as usize];
        if state.turn != turn || !state.is_running {
            return;
        }
        match state.activity {
            Activity::Idle => {}
            Activity::Thread { .. } => self.end_step(cpu),
            Activity::Handler { left, .. } => self.end_handler(cpu, left),
        }
    }

    /// An interrupt will arrive.
    pub(super) fn raise(&mut self, cpu: u32) {
        self.queue.push(self.now + self.costs.wire, Event::Interrupt { cpu });
    }

    /// An interrupt arrives.
    pub(super) fn interrupt(&mut self, cpu: u32) {
        let idle_exit = self.costs.idle_exit;
        let state = &mut self.cpus[cpu as usize];
        state.pending = true;
        if state.is_running && state.activity == Activity::Idle && idle_exit > 0 {
            if !std::mem::replace(&mut state.leaves_idle, true) {
                self.queue.push(self.now + idle_exit, Event::IdleExit { cpu });
            }
        } else if state.is_running {
            self.take_interrupt(cpu);
        } else {
            self.wake_cpu(cpu);
        }
    }

    /// A CPU that had nothing to do takes the interrupt for which it left its sleep state.
    pub(super) fn leave_idle(&mut self, cpu: u32) {
        let state = &mut self.cpus[cpu as usize];
        state.leaves_idle = false;
        if state.pending && state.is_running {
            self.take_interrupt(cpu);
        }
    }

    fn take_interrupt(&mut self, cpu: u32) {
        let now = self.now;
        let left = match self.cpus[cpu as usize].activity {
            Activity::Idle => None,
            Activity::Thread { ends } => Some(ends - now),
            Activity::Handler { .. } => return, // it is taken afterwards
        };
        self.enter_handler(cpu, left);
    }

    fn enter_handler(&mut self, cpu: u32, left: Option<u64>) {
        self.cpus[cpu as usize].pending = false;
        let found = self.handle_posted(cpu, left, self.costs.interrupt);
        self.measure.handlers += 1;
        self.measure.spurious += u64::from(found == 0);
    }

    /// The handler finds what is posted now. What is posted while it works is for the next interrupt, as with NVMe in
    /// Linux; with EVENT_IDX it looks again. How many it finds.
    fn handle_posted(&mut self, cpu: u32, left: Option<u64>, entry: u64) -> u64 {
        let now = self.now;
        let state = &mut self.cpus[cpu as usize];
        let line = &mut self.lines[cpu as usize];
        while let Some(request) = line.line.reap(now) {
            state.handling.push(request);
        }
        let found = state.handling.len() as u64;
        let work = entry + found * self.costs.complete;
        let cost = work + std::mem::take(&mut state.entry_cost);
        self.measure.interrupt_ns += work;
        self.set_activity(cpu, Activity::Handler { ends: now + cost, left });
        self.arm(cpu); // what it took may have had a deadline
        found
    }

    fn end_handler(&mut self, cpu: u32, left: Option<u64>) {
        let mut handling = std::mem::take(&mut self.cpus[cpu as usize].handling);
        for request in handling.drain(..) {
            self.answer(request);
        }
        self.cpus[cpu as usize].handling = handling;
        if !self.lines[cpu as usize].line.end_handler() {
            self.handle_posted(cpu, left, 0);
            return;
        }
        if self.cpus[cpu as usize].pending {
            return self.enter_handler(cpu, left);
        }
        match left {
            Some(left) if !self.gives_way(cpu, left) => {
                self.set_activity(cpu, Activity::Thread { ends: self.now + left });
            }
            _ => self.dispatch(cpu),
        }
    }

    /// Work of its own is put off at once for a thread that should run before. What is left of it is done later.
    fn gives_way(&mut self, cpu: u32, left: u64) -> bool {
        let Some(current) = self.cpus[cpu as usize].current else { return true };
        if self.threads[current as usize].then != Then::Work || !self.should_run_before(cpu, current) {
            return false;
        }
        let thread = &mut self.threads[current as usize];
        thread.put_off(left);
        let done = thread.cost - left.min(thread.cost);
        self.charge(current, done);
        true
    }

    /// Whether a thread in the queue should run before `current`.
    fn should_run_before(&self, cpu: u32, current: u32) -> bool {
        let current = &self.threads[current as usize];
        self.cpus[cpu as usize].queue.iter().map(|other| &self.threads[*other as usize]).any(|other| {
            match (current.is_idle_class, other.is_idle_class) {
                (true, false) => true,
                (false, true) => false,
                _ => current.vruntime > other.vruntime + GRANULARITY,
            }
        })
    }

    fn charge(&mut self, thread: u32, ns: u64) {
        let thread = &mut self.threads[thread as usize];
        thread.vruntime += ns;
        self.measure.groups[thread.group as usize].cpu_ns += ns;
    }

    /// A thread's step ends.
    fn end_step(&mut self, cpu: u32) {
        let Some(current) = self.cpus[cpu as usize].current else { return };
        let thread = &self.threads[current as usize];
        let then = thread.then;
        self.charge(current, thread.cost);
        match then {
            Then::Submit => self.submit(current),
            Then::Reap(answers) => self.reap(current, answers),
            Then::Work => {}
        }
        self.note_requests(current);
        self.dispatch(cpu);
    }

    /// Lets a thread run: the present one goes on unless another should run before it.
    pub(super) fn dispatch(&mut self, cpu: u32) {
        loop {
            let (current, switched) = match self.cpus[cpu as usize].current {
                Some(current) if !self.should_run_before(cpu, current) => (current, false),
                current => {
                    self.cpus[cpu as usize].queue.extend(current);
                    let Some(chosen) = self.choose(cpu) else { return self.idle(cpu) };
                    let slept_or_other = current != Some(chosen);
                    (chosen, slept_or_other)
                }
            };
            let state = &mut self.cpus[cpu as usize];
            state.current = Some(current);
            let thread = &mut self.threads[current as usize];
            state.vruntime_min = state.vruntime_min.max(thread.vruntime);
            let next = thread.next(self.now, &self.costs.steps, self.is_ending);
            self.note_requests(current);
            let (state, thread) = (&mut self.cpus[cpu as usize], &mut self.threads[current as usize]);
            match next {
                Next::Run(cost, then) => {
                    let cost = if switched { cost + self.costs.context_switch } else { cost };
                    (thread.then, thread.began, thread.cost) = (then, self.now, cost);
                    let cost = cost + std::mem::take(&mut state.entry_cost);
                    return self.set_activity(cpu, Activity::Thread { ends: self.now + cost });
                }
                Next::Sleep(until) => {
                    thread.state = State::Asleep;
                    state.current = None;
                    if let Some(until) = until {
                        self.queue.push(until, Event::Wake { thread: current });
                    }
                }
            }
        }
    }

    /// Takes the thread out of the queue that should run next.
    fn choose(&mut self, cpu: u32) -> Option<u32> {
        let queue = &mut self.cpus[cpu as usize].queue;
        let key = |i: &usize| {
            let thread = &self.threads[queue[*i] as usize];
            (thread.is_idle_class, thread.vruntime, queue[*i])
        };
        let next = (0..queue.len()).min_by_key(key)?;
        Some(queue.swap_remove(next))
    }

    fn idle(&mut self, cpu: u32) {
        self.cpus[cpu as usize].current = None;
        self.set_activity(cpu, Activity::Idle);
        // A halt is an exit to the monitor.
        if !self.look_for_completions(cpu) {
            self.halt_cpu(cpu);
        }
    }

    /// A thread that sleeps becomes ready.
    pub(super) fn wake(&mut self, id: u32) {
        let thread = &mut self.threads[id as usize];
        if thread.state == State::Ready {
            return;
        }
        let cpu = thread.cpu;
        let state = &mut self.cpus[cpu as usize];
        thread.state = State::Ready;
        thread.vruntime = thread.vruntime.max(state.vruntime_min.saturating_sub(SLEEPER_CREDIT));
        state.queue.push(id);
        match (state.activity, state.is_running) {
            (Activity::Idle, true) => self.dispatch(cpu),
            (Activity::Idle, false) => self.wake_cpu(cpu),
            (Activity::Thread { ends }, true) if self.gives_way(cpu, ends - self.now) => self.dispatch(cpu),
            _ => {}
        }
    }

    /// The CPU does something else in between, for this many ns.
    pub(super) fn delay(&mut self, cpu: u32, ns: u64) {
        self.measure.interrupt_ns += ns;
        match self.cpus[cpu as usize].activity {
            Activity::Idle => {}
            Activity::Thread { ends } => self.set_activity(cpu, Activity::Thread { ends: ends + ns }),
            Activity::Handler { ends, left } => self.set_activity(cpu, Activity::Handler { ends: ends + ns, left }),
        }
    }

    /// The CPU is taken off its core.
    pub(super) fn stop_cpu(&mut self, cpu: u32) {
        let now = self.now;
        let state = &mut self.cpus[cpu as usize];
        state.is_running = false;
        state.ready_since = now;
        state.stopped = match state.activity {
            Activity::Idle => None,
            Activity::Thread { ends } | Activity::Handler { ends, .. } => Some(ends - now),
        };
    }

    /// The CPU is put on its core, which takes `cost`.
    pub(super) fn resume_cpu(&mut self, cpu: u32, cost: u64) {
        let now = self.now;
        let state = &mut self.cpus[cpu as usize];
        state.is_running = true;
        match (state.activity, state.stopped.take()) {
            (Activity::Thread { .. }, Some(left)) => {
                self.set_activity(cpu, Activity::Thread { ends: now + cost + left });
            }
            (Activity::Handler { left: step, .. }, Some(left)) => {
                self.set_activity(cpu, Activity::Handler { ends: now + cost + left, left: step });
            }
            _ => state.entry_cost = cost,
        }
        if self.cpus[cpu as usize].pending {
            self.take_interrupt(cpu);
        } else if self.cpus[cpu as usize].activity == Activity::Idle {
            self.dispatch(cpu);
        }
    }
}
