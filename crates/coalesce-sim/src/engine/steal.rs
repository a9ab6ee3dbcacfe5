//! A host takes CPUs from the machine at random and gives them back: what a guest calls stolen time.
//!
//! Unlike the hypervisor's time slices this is not about who else has work: a CPU loses its core in the middle of a step, a
//! handler or a sleep, and does nothing until it has it again. An interrupt waits meanwhile.

use super::World;
use super::queue::Event;
use super::random::{Random, Sampler};
use crate::plan::{Distribution, Steal as Spec};

/// Streams of random numbers, from this one on: one for each CPU.
const STREAM: u64 = 1 << 34;

/// When CPUs are taken, and for how long.
#[derive(Debug)]
pub(super) struct Steal {
    gap: Sampler,
    from: u64,
    to: u64,
    random: Vec<Random>, // by CPU, so that they do not depend on each other
}

impl Steal {
    pub(super) fn new(spec: Spec, seed: u64, cpus: usize) -> Self {
        Self {
            gap: Sampler::new(&Distribution::Exponential(spec.every)),
            from: spec.from.0,
            to: spec.to.0,
            random: (0..cpus as u64).map(|cpu| Random::new(seed, STREAM + cpu)).collect(),
        }
    }

    /// How long the CPU is left alone now.
    fn gap(&mut self, cpu: u32) -> u64 {
        self.gap.sample(&mut self.random[cpu as usize]).max(1)
    }

    /// How long it is taken for.
    fn length(&mut self, cpu: u32) -> u64 {
        self.from + self.random[cpu as usize].below(self.to - self.from + 1)
    }
}

impl World {
    /// When each CPU is taken first.
    pub(super) fn plan_steals(&mut self) {
        (0..super::index(self.cpus.len())).for_each(|cpu| self.plan_steal(cpu));
    }

    fn plan_steal(&mut self, cpu: u32) {
        if let Some(steal) = &mut self.steal {
            self.queue.push(self.now + steal.gap(cpu), Event::Steal { cpu });
        }
    }

    /// The CPU is taken, unless the run is ending.
    pub(super) fn steal(&mut self, cpu: u32) {
        let Some(steal) = self.steal.as_mut().filter(|_| !self.is_ending) else { return };
        self.queue.push(self.now + steal.length(cpu), Event::GiveBack { cpu });
        self.stop_cpu(cpu);
    }

    /// The CPU is back, and goes on where it was.
    pub(super) fn give_back(&mut self, cpu: u32) {
        self.measure.steal_ns += self.now - self.cpus[cpu as usize].ready_since;
        self.resume_cpu(cpu, 0);
        self.plan_steal(cpu);
    }
}
