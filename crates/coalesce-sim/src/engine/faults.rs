//! What goes wrong, as the seed says.

use super::World;
use super::queue::{Event, Fault};
use super::random::{Random, Sampler};
use crate::plan::{Distribution, Faults as Spec};
use coalesce_policy::Class;

/// A driver looks again for a command that is not answered.
pub(super) const DRIVER_TIMEOUT: u64 = 30_000_000;
/// A shell looks again at a deadline that was missed.
const WATCHDOG: u64 = 50_000_000;

/// How a timer fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    OnTime,
    LateBy(u64),
}

/// Faults at work.
#[derive(Debug)]
pub(super) struct Faults {
    spec: Spec,
    gaps: [(Fault, Option<Sampler>); 3],
    random: Random,
}

impl Faults {
    pub(super) fn new(spec: Option<Spec>, random: Random) -> Self {
        let spec = spec.unwrap_or_default();
        let gaps = [
            (Fault::Jump, spec.clock_jumps.map(|jumps| jumps.every)),
            (Fault::Stall, spec.device_stalls.map(|stalls| stalls.every)),
            (Fault::Reset, spec.queue_resets_every),
        ];
        let gaps =
            gaps.map(|(fault, every)| (fault, every.map(|every| Sampler::new(&Distribution::Exponential(every)))));
        Self { spec, gaps, random }
    }

    /// How long after now this happens next, if it does at all.
    fn gap(&mut self, fault: Fault) -> Option<u64> {
        let (_, sampler) = self.gaps.iter().find(|(of, _)| *of == fault)?;
        Some(sampler.as_ref()?.sample(&mut self.random).max(1))
    }

    pub(super) fn timer(&mut self) -> Timer {
        if self.random.per_1000(self.spec.missing_deadlines_per_1000) {
            return Timer::LateBy(WATCHDOG);
        }
        match self.spec.late_deadlines {
            Some(late) if self.random.per_1000(late.per_1000) => Timer::LateBy(1 + self.random.below(late.by.0)),
            _ => Timer::OnTime,
        }
    }

    pub(super) fn loses_doorbell(&mut self) -> bool {
        self.random.per_1000(self.spec.lost_doorbells_per_1000)
    }

    pub(super) fn class(&mut self) -> Class {
        if self.random.per_1000(self.spec.failed_commands_per_1000) { Class::Failed } else { Class::Io }
    }
}

impl World {
    pub(super) fn plan_faults(&mut self) {
        for fault in [Fault::Jump, Fault::Stall, Fault::Reset] {
            self.plan_fault(fault);
        }
    }

    fn plan_fault(&mut self, fault: Fault) {
        if let Some(gap) = self.faults.gap(fault) {
            self.queue.push(self.now + gap, Event::Fault(fault));
        }
    }

    /// Something goes wrong, and will again.
    pub(super) fn fault(&mut self, fault: Fault) {
        if self.is_ending {
            return;
        }
        match fault {
            Fault::Jump => self.jump_clock(),
            Fault::Stall => {
                let longest = self.faults.spec.device_stalls.map_or(0, |stalls| stalls.r#for.0);
                self.device.stall(self.now + 1 + self.faults.random.below(longest));
            }
            Fault::Reset => self.reset(),
        }
        self.plan_fault(fault);
    }

    fn jump_clock(&mut self) {
        let longest = self.faults.spec.clock_jumps.map_or(0, |jumps| jumps.by.0);
        let by = i64::try_from(1 + self.faults.random.below(longest)).unwrap_or(i64::MAX);
        let by = if self.faults.random.per_1000(500) { -by } else { by };
        for state in &mut self.lines {
            state.line.jump_clock(by);
        }
    }

    /// A command is aborted, or a queue is reset with all it has in flight; the driver submits them again.
    fn reset(&mut self) {
        let cpu = u32::try_from(self.faults.random.below(self.lines.len() as u64)).unwrap_or(0);
        let mut aborted = self.requests.in_flight(cpu);
        if aborted.is_empty() {
            return;
        }
        let line = &mut self.lines[cpu as usize].line;
        let interrupt = if self.faults.random.per_1000(500) {
            let one = self.faults.random.below(aborted.len() as u64) as usize;
            aborted = vec![aborted[one]];
            line.cancel(self.now, self.requests.get(aborted[0]).mark)
        } else {
            line.reset(self.now)
        };
        self.after(cpu, interrupt);
        self.lines[cpu as usize].unheard.retain(|request| !aborted.contains(request));
        for id in aborted {
            let mark = self.lines[cpu as usize].line.submit(self.now, &self.requests.get(id).submission);
            let request = self.requests.get_mut(id);
            request.turn = request.turn.wrapping_add(1);
            request.mark = mark;
            self.ring_doorbell(cpu, id);
        }
        // Aborted commands are served long after this, and there may be as many again before.
        self.queue.retain(|event| match event {
            Event::Served { request, turn } => self.requests.is_current(request, turn),
            _ => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Wanted;
    use crate::plan::{Device, Kind, Plan, Thread};
    use crate::units::Time;

    /// The events of commands that were aborted would come long after them, and be more each time.
    #[test]
    fn aborted_commands_leave_no_event_behind() {
        let mut plan = Plan::new("resets", Device::new(1, Distribution::Fixed(Time::us(10))));
        plan.threads = vec![Thread { depth: Some(1000), ..Thread::new("deep", Kind::Async) }];
        plan.policies = vec!["none".into()];
        plan.faults = Some(Spec { queue_resets_every: Some(Time::us(20)), ..Spec::default() });
        let point = plan.points().unwrap().remove(0);
        let mut world = World::new(&point, &"none".parse().unwrap(), &Wanted::default()).unwrap();
        world.start(&point);
        world.run_until(10_000_000, None);
        let (events, commands) = (world.queue.len(), world.requests.len());
        assert!(commands == 1000 && events < commands + 10, "{events} events for {commands} commands");
    }
}
