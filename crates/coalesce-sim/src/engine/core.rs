//! The hypervisor: virtual CPUs, and guests that only compute, take turns on a core.

use super::World;
use super::cpu::Activity;
use super::queue::Event;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Cpu(u32),
    Hog,
}

/// A core at work.
#[derive(Debug, Default)]
pub(super) struct Core {
    waiting: VecDeque<Member>,
    current: Option<Member>,
    slice_end: u64,
    turn: u32,
    /// Nobody shares it: its one CPU runs always.
    is_alone: bool,
}

impl World {
    /// Every CPU is put into its core's queue, hogs behind them.
    pub(super) fn start_cores(&mut self, hogs: u32) {
        for cpu in 0..self.cpus.len() {
            let core = self.cpus[cpu].core as usize;
            self.cores[core].waiting.push_back(Member::Cpu(cpu as u32));
        }
        for core in 0..self.cores.len() {
            self.cores[core].waiting.extend((0..hogs).map(|_| Member::Hog));
            self.cores[core].is_alone = self.cores[core].waiting.len() == 1;
            if self.cores[core].is_alone {
                for cpu in (0..self.cpus.len()).filter(|cpu| self.cpus[*cpu].core as usize == core).collect::<Vec<_>>()
                {
                    self.dispatch(cpu as u32);
                }
            } else {
                for cpu in &mut self.cpus {
                    cpu.is_running &= cpu.core as usize != core;
                }
                self.run_next(core as u32);
            }
        }
    }

    /// The end of the CPU's slice, as the policy sees it.
    pub(super) fn slice_end(&self, cpu: u32) -> Option<u64> {
        let hypervisor = self.hypervisor.filter(|hypervisor| hypervisor.tells_slice_end)?;
        let state = &self.cpus[cpu as usize];
        let core = &self.cores[state.core as usize];
        (state.is_running && !core.is_alone).then_some(core.slice_end + hypervisor.clock_error.0)
    }

    fn run_next(&mut self, core: u32) {
        let state = &mut self.cores[core as usize];
        state.current = state.waiting.pop_front();
        let Some(current) = state.current else { return };
        let (timeslice, switch) = (self.costs.timeslice, self.costs.switch);
        state.slice_end = self.now + switch + timeslice;
        state.turn = state.turn.wrapping_add(1);
        self.queue.push(state.slice_end, Event::Slice { core, turn: state.turn });
        if let Member::Cpu(cpu) = current {
            self.measure.steal_ns += self.now - self.cpus[cpu as usize].ready_since;
            self.resume_cpu(cpu, switch);
            if self.hypervisor.is_some_and(|hypervisor| hypervisor.tells_schedule) {
                let interrupt = self.lines[cpu as usize].line.on_schedule(self.now);
                self.after(cpu, interrupt);
            }
            self.look_for_completions(cpu);
        }
    }

    /// The CPU or hog on the core makes room, and waits for its turn: at the end of the queue, or before all others.
    fn preempt(&mut self, core: u32, is_first: bool) {
        let state = &mut self.cores[core as usize];
        let Some(current) = state.current.take() else { return };
        if is_first {
            state.waiting.push_front(current);
        } else {
            state.waiting.push_back(current);
        }
        if let Member::Cpu(cpu) = current {
            self.stop_cpu(cpu);
            if self.hypervisor.is_some_and(|hypervisor| hypervisor.tells_schedule) {
                let interrupt = self.lines[cpu as usize].line.on_deschedule(self.now);
                self.after(cpu, interrupt);
            }
        }
    }

    pub(super) fn slice_ends(&mut self, core: u32, turn: u32) {
        let state = &self.cores[core as usize];
        if state.turn == turn && !state.waiting.is_empty() && state.current.is_some() {
            self.preempt(core, false);
            self.run_next(core);
        }
    }

    /// The CPU has nothing to do, and gives its core to others.
    pub(super) fn halt_cpu(&mut self, cpu: u32) {
        let core = self.cpus[cpu as usize].core;
        let state = &mut self.cores[core as usize];
        if state.is_alone || state.current != Some(Member::Cpu(cpu)) {
            return;
        }
        state.current = None;
        self.stop_cpu(cpu);
        self.cpus[cpu as usize].is_halted = true;
        self.run_next(core);
    }

    /// The CPU that had nothing to do has something to do.
    pub(super) fn wake_cpu(&mut self, cpu: u32) {
        let now = self.now;
        let cpu_state = &mut self.cpus[cpu as usize];
        if !std::mem::take(&mut cpu_state.is_halted) {
            return;
        }
        cpu_state.ready_since = now;
        let core = cpu_state.core;
        let state = &mut self.cores[core as usize];
        let runs_at_once = self.hypervisor.is_some_and(|hypervisor| hypervisor.boost) || state.current.is_none();
        if runs_at_once {
            self.preempt(core, true);
            self.cores[core as usize].waiting.push_front(Member::Cpu(cpu));
            self.run_next(core);
        } else {
            state.waiting.push_back(Member::Cpu(cpu));
            if now >= state.slice_end {
                self.preempt(core, false);
                self.run_next(core);
            }
        }
    }

    /// Whether the CPU executes its guest: then its monitor does not look by itself.
    pub(super) fn is_in_guest(&self, cpu: u32) -> bool {
        let state = &self.cpus[cpu as usize];
        state.is_running && state.activity != Activity::Idle
    }
}
