//! The numbers of a turn.

use coalesce_demo::paired::Interval;

use crate::counts::Counts;
use crate::jobs::Job;
use crate::place::Place;

/// An interval of a count with a smaller factor from end to end is exact: what is left is an interrupt at either end of a turn.
const EXACT_MAX: f64 = 1.01;

/// How a number came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Counted: a busy machine changes it little.
    Count,
    /// A time, or a rate: the machine's noise is in it.
    Time,
}

/// A number of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, with its unit.
    pub name: &'static str,
    /// Counted or not.
    pub kind: Kind,
    /// Which.
    pub what: What,
}

impl Metric {
    /// Whether this ratio of two counts is the same in every turn.
    pub fn is_exact(&self, ratio: &Interval) -> bool {
        self.kind == Kind::Count && ratio.high / ratio.low < EXACT_MAX
    }
}

/// Which number of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Interrupts per completion that the target sends.
    Interrupts,
    /// Those that the guest takes.
    Taken,
    /// Interrupts per unit of the job's first rate.
    InterruptsPerUnit,
    /// System calls of the target per completion.
    SystemCalls,
    /// Context switches of client and target per completion.
    ContextSwitches,
    /// Instructions of the guest per completion.
    Instructions,
    /// Those of its interrupts among them.
    InterruptInstructions,
    /// CPU time of client and target per completion, in µs.
    Cpu,
    /// The client's share of it.
    ClientCpu,
    /// The target's share of it.
    TargetCpu,
    /// The nth rate of the job, per second.
    Rate(usize),
}

impl What {
    /// Its value.
    pub fn of(self, job: Job, counts: &Counts) -> f64 {
        let per = |value: u64, count: u64| value as f64 / count.max(1) as f64;
        let per_io = |value| per(value, counts.completions);
        let work = |n: usize| job.rates().get(n).map_or(0, |rate| (rate.of)(counts));
        match self {
            Self::Interrupts => per_io(counts.interrupts),
            Self::Taken => counts.taken.map_or(f64::NAN, per_io),
            Self::InterruptsPerUnit => per(counts.interrupts, work(0)),
            Self::SystemCalls => per_io(counts.system_calls),
            Self::ContextSwitches => per_io(counts.context_switches),
            Self::Instructions => per_io(counts.instructions),
            Self::InterruptInstructions => per_io(counts.interrupt_instructions),
            Self::Cpu => per_io(counts.client_cpu_ns + counts.target_cpu_ns) / 1e3,
            Self::ClientCpu => per_io(counts.client_cpu_ns) / 1e3,
            Self::TargetCpu => per_io(counts.target_cpu_ns) / 1e3,
            Self::Rate(n) => work(n) as f64 / counts.seconds,
        }
    }
}

/// The numbers of a job: what matters most first.
pub fn metrics(job: Job, place: Place) -> Vec<Metric> {
    let (count, time) =
        (|name, what| Metric { name, kind: Kind::Count, what }, |name, what| Metric { name, kind: Kind::Time, what });
    let mut metrics = vec![count("interrupts/IO", What::Interrupts)];
    if place == Place::Counted {
        metrics.push(count("instructions/IO", What::Instructions));
        metrics.push(count("of interrupts", What::InterruptInstructions));
        return metrics;
    }
    if place != Place::Native {
        metrics.push(count("taken/IO", What::Taken));
    }
    if job == Job::Sqlite {
        metrics.push(count("interrupts/transaction", What::InterruptsPerUnit));
    }
    if !has_loop_inside(job, place) {
        metrics.push(time("CPU µs/IO", What::Cpu));
    }
    metrics.extend(job.rates().iter().enumerate().map(|(n, rate)| time(rate.name, What::Rate(n))));
    metrics.extend([count("system calls/IO", What::SystemCalls), count("context switches/IO", What::ContextSwitches)]);
    if !has_loop_inside(job, place) {
        metrics.push(time("client", What::ClientCpu));
    }
    metrics.push(time("target", What::TargetCpu));
    metrics
}

/// Whether the client's CPU time is that of the loop as well: the loop is in the guest.
pub fn has_loop_inside(job: Job, place: Place) -> bool {
    job == Job::Compute && place != Place::Native
}
