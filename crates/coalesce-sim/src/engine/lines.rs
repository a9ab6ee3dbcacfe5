//! From the device to the CPU: completions are posted, policies decide, deadlines are met, monitors look.

use super::World;
use super::device::Gathered;
use super::faults::Timer;
use super::queue::Event;
use crate::line::{Interrupt, Line};
use vic_core::{Ipi, IpiGate};

/// A line of a CPU, and what belongs to it.
#[derive(Debug)]
pub(super) struct LineState {
    pub(super) line: Line<u32>,
    armed: Option<u64>,
    /// The timer is late already.
    late: bool,
    /// Requests whose doorbell was lost.
    pub(super) unheard: Vec<u32>,
    /// vIC §3.3: posted for the monitor, which has not looked.
    shared: Vec<(u32, u32)>,
    gate: Option<IpiGate>,
    gate_armed: bool,
}

impl LineState {
    pub(super) const fn new(line: Line<u32>, gate: Option<IpiGate>) -> Self {
        Self { line, armed: None, late: false, unheard: Vec::new(), shared: Vec::new(), gate, gate_armed: false }
    }

    /// Nothing waits for anything here.
    pub(super) fn is_quiet(&self) -> bool {
        self.line.held() == 0 && self.shared.is_empty()
    }
}

impl World {
    /// A thread's step of submission ends.
    pub(super) fn submit(&mut self, id: u32) {
        let thread = &mut self.threads[id as usize];
        let cpu = thread.cpu;
        let (since, submission) = thread.submit();
        let mark = self.lines[cpu as usize].line.submit(self.now, &submission);
        let request = self.requests.insert(id, cpu, since, submission, mark);
        self.ring_doorbell(cpu, request);
        if self.lines[cpu as usize].gate.is_some() {
            self.look_for_completions(cpu); // a doorbell is an exit to the monitor
        }
    }

    pub(super) fn ring_doorbell(&mut self, cpu: u32, request: u32) {
        if self.faults.loses_doorbell() {
            self.lines[cpu as usize].unheard.push(request);
            self.queue.push(self.now + super::faults::DRIVER_TIMEOUT, Event::Timeout { cpu });
            return;
        }
        self.hear(cpu);
        self.give_to_device(request);
    }

    /// The device finds the commands of lost doorbells.
    pub(super) fn hear(&mut self, cpu: u32) {
        for request in std::mem::take(&mut self.lines[cpu as usize].unheard) {
            self.give_to_device(request);
        }
    }

    fn give_to_device(&mut self, id: u32) {
        let request = self.requests.get(id);
        let random = &mut self.threads[request.thread as usize].random;
        let served = self.device.start(self.now, random);
        self.queue.push(served, Event::Served { request: id, turn: request.turn });
    }

    /// The device has served a command.
    pub(super) fn served(&mut self, id: u32, turn: u32) {
        if !self.requests.is_current(id, turn) {
            return;
        }
        if let Some(until) = self.device.put_off(self.now) {
            return self.queue.push(until, Event::Served { request: id, turn });
        }
        match self.device.gather(id, turn) {
            Gathered::Full => self.post_gathered(),
            Gathered::First => self.queue.push(self.now + self.device.gather, Event::Post),
            Gathered::More => {}
        }
    }

    /// The device posts all it has.
    pub(super) fn post_gathered(&mut self) {
        let mut gathered = std::mem::take(&mut self.device.gathered);
        for &(id, turn) in &gathered {
            if self.requests.is_current(id, turn) {
                self.post(id, turn);
            }
        }
        // The poll has ended; in a monitor's path each look is a poll.
        for &(id, _) in &gathered {
            let cpu = self.requests.get(id).cpu;
            if self.lines[cpu as usize].gate.is_none() {
                self.end_batch(cpu);
            }
        }
        gathered.clear();
        self.device.gathered = gathered;
    }

    fn end_batch(&mut self, cpu: u32) {
        let line = &mut self.lines[cpu as usize].line;
        if line.wants_batch_end() {
            let interrupt = line.on_batch_end(self.now);
            self.after(cpu, interrupt);
        }
    }

    fn post(&mut self, id: u32, turn: u32) {
        let cpu = self.requests.get(id).cpu;
        if self.lines[cpu as usize].gate.is_none() {
            return self.complete(cpu, id);
        }
        self.lines[cpu as usize].shared.push((id, turn));
        self.ask_gate(cpu);
    }

    fn complete(&mut self, cpu: u32, id: u32) {
        let slice_end = self.slice_end(cpu);
        let request = self.requests.get_mut(id);
        request.posted = true;
        let mark = request.mark;
        let line = &mut self.lines[cpu as usize].line;
        let interrupt = line.complete(self.now, mark, self.faults.class(), slice_end, id);
        if interrupt.is_none() && line.wants_batch_end() {
            return; // the end of the batch arms what is left
        }
        self.after(cpu, interrupt);
    }

    /// After every call of a line: what it decided is done, and its deadline is armed.
    pub(super) fn after(&mut self, cpu: u32, interrupt: Option<Interrupt>) {
        if interrupt.is_some() {
            if let Some(gate) = &self.lines[cpu as usize].gate {
                gate.delivered(self.now);
            }
            self.raise(cpu);
        }
        self.arm(cpu);
    }

    /// An earlier timer that is armed may stay.
    pub(super) fn arm(&mut self, cpu: u32) {
        let state = &mut self.lines[cpu as usize];
        let Some(deadline) = state.line.deadline().map(|deadline| deadline.max(self.now)) else { return };
        if state.armed.is_none_or(|armed| deadline < armed) {
            state.armed = Some(deadline);
            state.late = false;
            self.queue.push(deadline, Event::Deadline { line: cpu });
        }
    }

    /// A timer fires.
    pub(super) fn deadline(&mut self, cpu: u32) {
        let now = self.now;
        let state = &mut self.lines[cpu as usize];
        if state.armed != Some(now) {
            return; // an earlier one took its place
        }
        state.armed = None;
        match state.line.deadline() {
            None => {}
            Some(deadline) if deadline > now => self.arm(cpu),
            Some(_) => {
                let timer = if std::mem::take(&mut state.late) { Timer::OnTime } else { self.faults.timer() };
                match timer {
                    Timer::OnTime => {
                        let interrupt = state.line.on_deadline(now);
                        // Armed again for this very instant, time would stand still.
                        if interrupt.is_some() || !state.line.is_due(now) {
                            self.after(cpu, interrupt);
                        }
                    }
                    Timer::LateBy(ns) => {
                        let state = &mut self.lines[cpu as usize];
                        state.line.excuse_held();
                        (state.armed, state.late) = (Some(now + ns), true);
                        self.queue.push(now + ns, Event::Deadline { line: cpu });
                    }
                }
            }
        }
    }

    /// vIC §3.3: the kernel has posted a completion for a monitor. Must it get an IPI at once?
    pub(super) fn ask_gate(&mut self, cpu: u32) {
        let now = self.now;
        if !self.is_in_guest(cpu) {
            self.look_for_completions(cpu);
            return;
        }
        let state = &mut self.lines[cpu as usize];
        if state.shared.is_empty() {
            return;
        }
        let Some(gate) = &state.gate else { return };
        match gate.should_send(now) {
            Ipi::Send => {
                self.measure.ipis += 1;
                self.delay(cpu, self.costs.ipi);
                self.look_for_completions(cpu);
            }
            Ipi::Defer { until } => {
                if !std::mem::replace(&mut state.gate_armed, true) {
                    let tick = (now / self.costs.timer + 1) * self.costs.timer;
                    self.queue.push(until.min(tick), Event::Gate { cpu });
                }
            }
        }
    }

    /// The gate is asked again, or the guest's timer interrupts: then the monitor looks without an IPI.
    pub(super) fn gate_opens(&mut self, cpu: u32) {
        self.lines[cpu as usize].gate_armed = false;
        if self.now.is_multiple_of(self.costs.timer) {
            self.look_for_completions(cpu);
        } else {
            self.ask_gate(cpu);
        }
    }

    /// The monitor has control and takes what was posted for it. Whether it interrupts its guest.
    pub(super) fn look_for_completions(&mut self, cpu: u32) -> bool {
        let before = self.lines[cpu as usize].line.interrupts();
        if self.lines[cpu as usize].shared.is_empty() {
            return false;
        }
        let mut shared = std::mem::take(&mut self.lines[cpu as usize].shared);
        for (id, turn) in shared.drain(..) {
            if self.requests.is_current(id, turn) {
                self.complete(cpu, id);
            }
        }
        self.lines[cpu as usize].shared = shared;
        self.end_batch(cpu);
        self.lines[cpu as usize].line.interrupts() > before
    }

    /// A handler has found a completion.
    pub(super) fn answer(&mut self, id: u32) {
        let request = self.requests.remove(id);
        let is_awaited = self.threads[request.thread as usize].answer(request.since);
        self.note_requests(request.thread);
        if is_awaited {
            self.wake(request.thread);
        }
    }
}
