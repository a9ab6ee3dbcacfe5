//! Plans at random: every feature of a plan, and every fault, in combinations that nobody would write.
//!
//! A seed is a plan. One that breaks a rule becomes a test (`tests/seeds.rs`).

#[cfg(feature = "cli")]
pub mod command;

use crate::engine::Random;
use crate::plan::{
    Component, Device, Distribution, Faults, Hypervisor, Jumps, Kind, Late, Lognormal, Operation, Plan, Priority, Said,
    Stalls, Steal, Thread,
};
use crate::units::{Cost, Rate, Time};

/// Another stream than those of the simulation with the same seed.
const STREAM: u64 = 1 << 33;

/// The plan of a seed: a few milliseconds, one policy.
#[must_use]
pub fn plan(seed: u64) -> Plan {
    let mut random = Swarm(Random::new(seed, STREAM));
    let mut plan = Plan::new(&format!("fuzz {seed}"), random.device());
    plan.seed = seed;
    plan.duration = Time::ms(random.number(1, 30).into());
    plan.policies = vec![random.policy()];
    plan.machine.cores = random.number(0, 3);
    plan.machine.wire = random.time(0, 2_000);
    if random.one_in(3) {
        plan.machine.interrupt = Cost::Time(u64::from(random.number(0, 5_000)));
    }
    plan.hypervisor = random.one_in(3).then(|| random.hypervisor());
    let threads = random.number(1, 5);
    plan.threads = (0..threads).map(|i| random.thread(i)).collect();
    plan.faults = random.one_in(2).then(|| random.faults());
    if random.one_in(4) {
        plan.machine.idle_exit = random.time(0, 30_000);
    }
    if random.one_in(3) && plan.machine.cores == 0 && plan.hypervisor.is_none_or(|hypervisor| hypervisor.hogs == 0) {
        let (from, to) = (random.time(1_000, 500_000), random.time(500_000, 5_000_000));
        plan.machine.steal = Some(Steal { every: random.time(100_000, 20_000_000), from, to });
    }
    plan
}

struct Swarm(Random);

impl Swarm {
    fn number(&mut self, min: u32, max: u32) -> u32 {
        min + u32::try_from(self.0.below(u64::from(max - min) + 1)).unwrap_or(0)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.0.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.0.below(from.len() as u64)).unwrap_or(0)]
    }

    /// Small times as often as large ones.
    fn time(&mut self, min: u64, max: u64) -> Time {
        let bits = 64 - (max - min).leading_zeros();
        let shift = self.number(0, bits);
        Time((min + self.0.below((max - min) >> shift.min(63) | 1)).min(max))
    }

    fn policy(&mut self) -> String {
        let switch = ["on", "off"];
        match self.number(0, 9) {
            0 => "none".into(),
            1 => "batch".into(),
            2 => "dim".into(),
            3 => "xen_as_published".into(),
            4 => format!("nvme:thr={},time={}", self.number(0, 40), Time::us(u64::from(self.number(0, 10)) * 100)),
            5 => {
                format!(
                    "spdk_vhost:delay_base_us={},iops_threshold={}",
                    self.number(0, 100),
                    self.number(10_000, 200_000)
                )
            }
            6 | 7 => format!(
                "vic:cif_threshold={},iops_threshold={},epoch={},max_skip={},max_hold={},live_clamp={},margin={}",
                self.number(2, 16),
                self.number(0, 5_000),
                self.time(1_000_000, 20_000_000),
                self.number(2, 100),
                self.time_or_off(1_000, 1_000_000),
                self.pick(&switch),
                self.time(0, 300_000),
            ),
            8 => format!(
                "auto:budget={}.{:02}%,thr={},ooo={},barrier={},max_hold={},storm={},storm_shift={},hints={}",
                self.number(1, 49),
                self.number(0, 99),
                self.number(1, 64),
                self.pick(&switch),
                self.pick(&["relaxed", "strict"]),
                self.time(200_000, 3_000_000),
                self.pick(&["off", "10k", "100k", "1M"]),
                self.number(5, 16),
                self.pick(&["none", "all", "batch", "single+idle"]),
            ),
            _ => format!(
                "cint:delta={},thr={},ooo={},barrier={},max_hold={},storm={},storm_shift={},in_flight={},hints={}",
                self.time(0, 50_000),
                self.number(1, 64),
                self.pick(&switch),
                self.pick(&["relaxed", "strict"]),
                // Not shorter than the storm guard's interval.
                self.time_or_off(200_000, 1_000_000),
                self.pick(&["off", "10k", "100k", "1M"]),
                self.number(5, 16),
                self.pick(&["off", "2", "4", "16"]),
                self.pick(&["none", "all", "batch", "single+idle"]),
            ),
        }
    }

    fn time_or_off(&mut self, min: u64, max: u64) -> String {
        if self.one_in(4) { "off".into() } else { self.time(min, max).to_string() }
    }

    fn device(&mut self) -> Device {
        let time = |random: &mut Self| random.time(100, 300_000);
        let service = |random: &mut Self| match random.number(0, 2) {
            0 => Distribution::Fixed(time(random)),
            1 => Distribution::Exponential(time(random)),
            _ => {
                let mean = time(random);
                Distribution::Lognormal(Lognormal { mean, stddev: Time(mean.0 / 3) })
            }
        };
        let service = if self.one_in(4) {
            let part = |random: &mut Self| Component { weight: random.number(1, 9), of: service(random) };
            Distribution::Mixture(vec![part(self), part(self)])
        } else {
            service(self)
        };
        let gather = if self.one_in(2) { self.time(0, 20_000) } else { Time(0) };
        let transfer = Some(self.time(0, 10_000));
        let (striped, port) = (self.one_in(4), if self.one_in(4) { self.time(0, 5_000) } else { Time(0) });
        let new = Device::new(self.number(1, 32), service);
        Device { striped, port, transfer, gather, gather_max: self.number(0, 8), ..new }
    }

    fn hypervisor(&mut self) -> Hypervisor {
        Hypervisor {
            timeslice: self.time(50_000, 10_000_000),
            hogs: self.number(0, 2),
            boost: self.one_in(2),
            tells_slice_end: self.one_in(2),
            tells_schedule: self.one_in(2),
            clock_error: self.time(0, 300_000),
            ipi_threshold: if self.one_in(2) { Some(self.time(0, 500_000)) } else { None },
            ..Hypervisor::default()
        }
    }

    fn thread(&mut self, i: u32) -> Thread {
        let said = [Said::Nothing, Said::Urgent, Said::Barrier];
        let kind = self.pick(&[Kind::Sync, Kind::Batch, Kind::Async, Kind::Open, Kind::Mix, Kind::Compute]);
        let mut thread = Thread::new(&format!("thread {i}"), kind);
        thread.count = self.number(1, 4);
        thread.cpu = self.number(0, 3);
        thread.spread = self.one_in(2);
        thread.hint = self.pick(&said);
        if self.one_in(3) {
            thread.think = Some(Cost::Time(u64::from(self.number(0, 50_000))));
        }
        if self.one_in(4) {
            (thread.on, thread.off) = (Some(self.time(100_000, 5_000_000)), Some(self.time(100_000, 5_000_000)));
        }
        if self.one_in(6) {
            thread.priority = Priority::Idle;
        }
        match kind {
            Kind::Batch => thread.batch = Some(self.number(1, 32)),
            Kind::Async => {
                let depth = self.number(1, 256);
                (thread.depth, thread.batch) = (Some(depth), Some(self.number(1, depth)));
                thread.rate = self.one_in(4).then(|| Rate(u64::from(self.number(100, 100_000))));
            }
            Kind::Open => {
                thread.depth = Some(self.number(1, 256));
                thread.rate = Some(Rate(u64::from(self.number(100, 200_000))));
            }
            Kind::Mix => {
                let count = self.number(1, 4);
                let operation = |random: &mut Self| Operation {
                    weight: random.number(1, 10),
                    commands: random.number(0, 8),
                    hint: random.pick(&said),
                    flush: random.one_in(4),
                    think: Cost::Time(u64::from(random.number(1, 30_000))),
                };
                thread.operations = (0..count).map(|_| operation(self)).collect();
            }
            Kind::Sync | Kind::Compute | Kind::Trace => {}
        }
        thread
    }

    fn faults(&mut self) -> Faults {
        let every = |random: &mut Self| random.time(100_000, 10_000_000);
        let late = |random: &mut Self| Late { per_1000: random.number(1, 1000), by: random.time(1, 5_000_000) };
        let jumps = |random: &mut Self| Jumps { every: every(random), by: random.time(1, 1_000_000_000) };
        let stalls = |random: &mut Self| Stalls { every: every(random), r#for: random.time(1, 10_000_000) };
        Faults {
            late_deadlines: self.one_in(2).then(|| late(self)),
            missing_deadlines_per_1000: if self.one_in(3) { self.number(1, 1000) } else { 0 },
            clock_jumps: self.one_in(3).then(|| jumps(self)),
            lost_doorbells_per_1000: if self.one_in(4) { self.number(1, 500) } else { 0 },
            failed_commands_per_1000: if self.one_in(4) { self.number(1, 1000) } else { 0 },
            device_stalls: self.one_in(3).then(|| stalls(self)),
            queue_resets_every: self.one_in(3).then(|| every(self)),
        }
    }
}
