//! What the types of a plan cannot say.

use super::{Device, Distribution, Faults, Hypervisor, Kind, Machine, Plan, Steal, Thread, Window};
use crate::units::{Clock, Cost, Time};
use std::fmt;
use std::path::Path;

/// A value of a plan that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Where it is: keys and indices.
    pub path: Vec<String>,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl Wrong {
    pub(crate) fn at<'a>(path: impl IntoIterator<Item = &'a str>, message: impl Into<String>) -> Self {
        Self { path: path.into_iter().map(str::to_owned).collect(), message: message.into() }
    }

    fn within(mut self, path: &[&str]) -> Self {
        self.path.splice(0..0, path.iter().map(|key| (*key).to_owned()));
        self
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.join("."), self.message)
    }
}

impl std::error::Error for Wrong {}

type Checked = Result<(), Wrong>;

/// The longest time that a plan may name: a year.
const TIME_MAX: u64 = 365 * 24 * 3600 * 1_000_000_000;
/// The most that a single step may cost.
const COST_MAX: u64 = 1_000_000_000;
/// The longest that a thread may work by itself: an hour.
const THINK_MAX: u64 = 3600 * 1_000_000_000;
/// Tables of threads: each has histograms.
const GROUPS_MAX: u64 = 256;
/// Threads, over all tables.
const THREADS_MAX: u64 = 4096;
/// CPUs that threads may use.
const CPUS_MAX: u64 = 4096;
/// Commands outstanding, over all threads.
const OUTSTANDING_MAX: u64 = 1 << 20;

fn range(key: &str, value: u64, min: u64, max: u64) -> Checked {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Wrong::at([key], format!("is {value}; allowed: {min} to {max}")))
}

fn time(key: &str, value: Time, min: u64) -> Checked {
    if (min..=TIME_MAX).contains(&value.0) {
        return Ok(());
    }
    Err(Wrong::at([key], format!("is {value}; allowed: {} to {}", Time(min), Time(TIME_MAX))))
}

impl Plan {
    /// Checks everything but sweeps.
    ///
    /// # Errors
    /// The first value that is not allowed.
    pub fn validate(&self) -> Checked {
        time("duration", self.duration, 1)?;
        time("warmup", self.warmup, 0)?;
        if self.policies.is_empty() {
            return Err(Wrong::at(["policies"], "is empty; name at least one policy"));
        }
        self.contenders()?;
        self.machine.validate().map_err(|wrong| wrong.within(&["machine"]))?;
        if let Some(hypervisor) = &self.hypervisor {
            hypervisor.validate(&self.machine).map_err(|wrong| wrong.within(&["hypervisor"]))?;
        }
        self.device.validate().map_err(|wrong| wrong.within(&["device"]))?;
        if self.threads.is_empty() {
            return Err(Wrong::at(["threads"], "is empty; nobody uses the device"));
        }
        if self.threads.len() as u64 > GROUPS_MAX {
            let message = format!("has {} tables; allowed: at most {GROUPS_MAX}", self.threads.len());
            return Err(Wrong::at(["threads"], message));
        }
        for (i, thread) in self.threads.iter().enumerate() {
            thread.validate(self.machine.clock).map_err(|wrong| wrong.within(&["threads", &i.to_string()]))?;
            if self.threads[..i].iter().any(|other| other.name == thread.name) {
                return Err(Wrong::at(["threads", &i.to_string(), "name"], "is taken by another thread"));
            }
        }
        let all = |what: &str, value: u64, max: u64| match value {
            value if value <= max => Ok(()),
            _ => Err(Wrong::at(["threads"], format!("{what} {value}; allowed: at most {max}"))),
        };
        let sum = |of: fn(&Thread) -> u32| {
            self.threads.iter().map(|thread| u64::from(thread.count) * u64::from(of(thread))).sum()
        };
        all("threads are", sum(|_| 1), THREADS_MAX)?;
        all("commands outstanding are up to", sum(Thread::outstanding), OUTSTANDING_MAX)?;
        all("CPUs are", self.cpus() as u64, CPUS_MAX)?;
        self.check_steal()?;
        if let Some(faults) = &self.faults {
            faults.validate().map_err(|wrong| wrong.within(&["faults"]))?;
        }
        Ok(())
    }

    /// Stolen time is for CPUs that have their cores for themselves: others lose them by turns.
    fn check_steal(&self) -> Checked {
        if self.machine.steal.is_none() {
            return Ok(());
        }
        let wrong = |what: String| Wrong::at(["machine", "steal"], format!("is for CPUs with a core each; {what}"));
        let (cpus, cores) = (self.cpus(), self.machine.cores);
        if (1..cpus).contains(&(cores as usize)) {
            return Err(wrong(format!("cores is {cores}; allowed: 0, or {cpus} and more")));
        }
        match self.hypervisor.map_or(0, |hypervisor| hypervisor.hogs) {
            0 => Ok(()),
            hogs => Err(wrong(format!("hypervisor.hogs is {hogs}; allowed: 0"))),
        }
    }
}

impl Steal {
    fn validate(&self) -> Checked {
        time("every", self.every, 1_000)?;
        time("from", self.from, 1_000)?;
        time("to", self.to, 1_000)?;
        if self.from <= self.to {
            return Ok(());
        }
        Err(Wrong::at(["to"], format!("is {}; allowed: from {} on, its `from`", self.to, self.from)))
    }
}

impl Machine {
    fn validate(&self) -> Checked {
        if !(1_000_000..=100_000_000_000).contains(&self.clock.0) {
            return Err(Wrong::at(["clock"], format!("is {}; allowed: 1MHz to 100GHz", self.clock)));
        }
        range("cores", self.cores.into(), 0, 4096)?;
        time("wire", self.wire, 0)?;
        time("idle_exit", self.idle_exit, 0)?;
        if let Some(steal) = &self.steal {
            steal.validate().map_err(|wrong| wrong.within(&["steal"]))?;
        }
        for (key, cost) in [
            ("submit_call", self.submit_call),
            ("submit", self.submit),
            ("interrupt", self.interrupt),
            ("complete", self.complete),
            ("context_switch", self.context_switch),
            ("reap", self.reap),
        ] {
            self.check_cost(key, cost)?;
        }
        Ok(())
    }

    fn check_cost(&self, key: &str, cost: Cost) -> Checked {
        if cost.ns(self.clock) <= COST_MAX {
            return Ok(());
        }
        Err(Wrong::at([key], format!("is {cost}; allowed: at most {}", Time(COST_MAX))))
    }
}

impl Hypervisor {
    fn validate(&self, machine: &Machine) -> Checked {
        time("timeslice", self.timeslice, 1_000)?;
        time("timer", self.timer, 1_000)?;
        time("clock_error", self.clock_error, 0)?;
        range("hogs", self.hogs.into(), 0, 4096)?;
        machine.check_cost("switch", self.switch)?;
        machine.check_cost("ipi", self.ipi)?;
        match self.ipi_threshold {
            Some(threshold) if threshold.0 > 1_000_000_000 => {
                Err(Wrong::at(["ipi_threshold"], format!("is {threshold}; allowed: 0s to 1s")))
            }
            _ => Ok(()),
        }
    }
}

impl Device {
    fn validate(&self) -> Checked {
        let Some((channels, service, transfer)) = self.resolve() else {
            let missing = if self.channels.is_none() { "channels" } else { "service" };
            return Err(Wrong::at([], format!("has no {missing}, and no preset to take it from")));
        };
        range("channels", channels.into(), 1, 4096)?;
        time("transfer", transfer, 0)?;
        time("port", self.port, 0)?;
        time("gather", self.gather, 0)?;
        service.validate().map_err(|wrong| wrong.within(&["service"]))?;
        if service.mean() + transfer.0 == 0 {
            return Err(Wrong::at(["service"], "a device that takes no time at all never lets time pass"));
        }
        Ok(())
    }
}

impl Distribution {
    fn validate(&self) -> Checked {
        match self {
            Self::Fixed(value) => time("fixed", *value, 0),
            Self::Exponential(mean) => time("exponential", *mean, 1),
            Self::Lognormal(lognormal) => {
                time("mean", lognormal.mean, 1).and_then(|()| time("stddev", lognormal.stddev, 0))?;
                let max = lognormal.mean.0.saturating_mul(10);
                if lognormal.stddev.0 <= max {
                    return Ok(());
                }
                Err(Wrong::at(["stddev"], format!("is {}; allowed: at most {}", lognormal.stddev, Time(max))))
            }
            Self::Mixture(parts) => {
                if parts.iter().all(|part| part.weight == 0) {
                    return Err(Wrong::at(["mixture"], "has no part with a weight above 0"));
                }
                for (i, part) in parts.iter().enumerate() {
                    let wrong_here = |wrong: Wrong| wrong.within(&["mixture", &i.to_string(), "of"]);
                    if matches!(part.of, Self::Mixture(_)) {
                        return Err(wrong_here(Wrong::at([], "is a mixture again; write its parts here")));
                    }
                    part.of.validate().map_err(wrong_here)?;
                }
                Ok(())
            }
        }
    }
}

impl Thread {
    /// The keys that belong to some kinds only: whether each is given, and which kinds take it.
    fn special_keys(&self) -> [(&'static str, bool, &'static [Kind]); 9] {
        [
            ("depth", self.depth.is_some(), &[Kind::Async, Kind::Open, Kind::Trace]),
            ("batch", self.batch.is_some(), &[Kind::Batch, Kind::Async]),
            ("reap_when_full", self.reap_when_full, &[Kind::Async]),
            ("rate", self.rate.is_some(), &[Kind::Open, Kind::Async]),
            ("gaps", self.gaps.is_some(), &[Kind::Open]),
            ("trace", self.trace.is_some(), &[Kind::Trace]),
            ("window", self.window.is_some(), &[Kind::Trace]),
            ("speed_up", self.speed_up.is_some(), &[Kind::Trace]),
            ("operations", !self.operations.is_empty(), &[Kind::Mix]),
        ]
    }

    /// Commands that it has outstanding, at most.
    fn outstanding(&self) -> u32 {
        match self.kind {
            Kind::Compute => 0,
            Kind::Sync => 1,
            Kind::Batch => self.batch.unwrap_or(1),
            Kind::Async | Kind::Open | Kind::Trace => self.depth.unwrap_or(1),
            Kind::Mix => self.operations.iter().map(|operation| operation.commands).max().unwrap_or(0),
        }
    }

    fn validate(&self, clock: Clock) -> Checked {
        if self.name.is_empty() || self.name.contains('.') {
            return Err(Wrong::at(["name"], "is empty, or has a dot in it"));
        }
        range("count", self.count.into(), 1, 4096)?;
        for (key, is_given, kinds) in self.special_keys() {
            if is_given && !kinds.contains(&self.kind) {
                return Err(Wrong::at([key], format!("means nothing here; it is for {}", list(kinds))));
            }
        }
        let needed = match self.kind {
            Kind::Sync | Kind::Compute => [None, None],
            Kind::Batch => [self.batch.is_none().then_some("batch"), None],
            Kind::Async => [self.depth.is_none().then_some("depth"), None],
            Kind::Open => {
                let has_none = self.rate.is_none() && self.gaps.is_none();
                [has_none.then_some("rate or gaps"), self.depth.is_none().then_some("depth")]
            }
            Kind::Trace => [self.trace.is_none().then_some("trace"), self.depth.is_none().then_some("depth")],
            Kind::Mix => [self.operations.is_empty().then_some("operations"), None],
        };
        if let Some(key) = needed.into_iter().flatten().next() {
            return Err(Wrong::at([], format!("has no {key}, which {} needs", name(self.kind))));
        }
        if let Some(depth) = self.depth {
            range("depth", depth.into(), 1, 65_535)?;
        }
        if let Some(batch) = self.batch {
            range("batch", batch.into(), 1, self.depth.unwrap_or(65_535).into())?;
        }
        let check_think = |think: Cost| match think.ns(clock) {
            0..=THINK_MAX => Ok(()),
            _ => Err(Wrong::at(["think"], format!("is {think}; allowed: at most {}", Time(THINK_MAX)))),
        };
        self.think.map_or(Ok(()), check_think)?;
        if let Some(rate) = self.rate {
            range("rate", rate.0, 1, 1_000_000_000)?;
        }
        if let Some(gaps) = &self.gaps {
            if self.rate.is_some() {
                return Err(Wrong::at(["gaps"], "says when commands arrive, and so does rate; allowed: one of them"));
            }
            gaps.validate().map_err(|wrong| wrong.within(&["gaps"]))?;
        }
        self.validate_trace()?;
        match (self.on, self.off) {
            (Some(on), Some(off)) => time("on", on, 1_000).and_then(|()| time("off", off, 1_000))?,
            (None, None) => {}
            (Some(_), None) => return Err(Wrong::at(["on"], "needs off beside it")),
            (None, Some(_)) => return Err(Wrong::at(["off"], "needs on beside it")),
        }
        if self.kind == Kind::Mix && self.operations.iter().all(|operation| operation.weight == 0) {
            return Err(Wrong::at(["operations"], "have no weight above 0"));
        }
        for (i, operation) in self.operations.iter().enumerate() {
            let wrong_here = |wrong: Wrong| wrong.within(&["operations", &i.to_string()]);
            range("commands", operation.commands.into(), 0, 65_535).map_err(wrong_here)?;
            check_think(operation.think).map_err(wrong_here)?;
            if operation.commands == 0 && operation.think.ns(clock) == 0 {
                return Err(wrong_here(Wrong::at(["commands"], "is 0, and think too: time would never pass")));
            }
        }
        Ok(())
    }

    fn validate_trace(&self) -> Checked {
        if self.trace.as_deref() == Some(Path::new("-")) {
            let message = "is -, which is no standard input here; allowed: a file (./- is one of that name)";
            return Err(Wrong::at(["trace"], message));
        }
        if let Some(Window { from, to }) = self.window {
            time("from", from, 0).map_err(|wrong| wrong.within(&["window"]))?;
            if let Some(to) = to.filter(|to| *to <= from) {
                return Err(Wrong::at(["window", "to"], format!("is {to}; allowed: after {from}, its `from`")));
            }
        }
        if let Some(speed_up) = self.speed_up.filter(|factor| !(1..=1_000_000_000).contains(&factor.0)) {
            return Err(Wrong::at(["speed_up"], format!("is {speed_up}; allowed: 0.001x to 1000000x")));
        }
        if self.kind == Kind::Trace && self.on.or(self.off).is_some() {
            return Err(Wrong::at(["on"], "means nothing here; a trace has its own pauses"));
        }
        Ok(())
    }
}

const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Sync => "sync",
        Kind::Batch => "batch",
        Kind::Async => "async",
        Kind::Open => "open",
        Kind::Trace => "trace",
        Kind::Mix => "mix",
        Kind::Compute => "compute",
    }
}

fn list(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| name(*kind)).collect::<Vec<_>>().join(", ")
}

impl Faults {
    fn validate(&self) -> Checked {
        range("missing_deadlines_per_1000", self.missing_deadlines_per_1000.into(), 0, 1000)?;
        range("lost_doorbells_per_1000", self.lost_doorbells_per_1000.into(), 0, 1000)?;
        range("failed_commands_per_1000", self.failed_commands_per_1000.into(), 0, 1000)?;
        if let Some(late) = self.late_deadlines {
            range("per_1000", late.per_1000.into(), 0, 1000)
                .and_then(|()| time("by", late.by, 1))
                .map_err(|wrong| wrong.within(&["late_deadlines"]))?;
        }
        if let Some(jumps) = self.clock_jumps {
            time("every", jumps.every, 1_000)
                .and_then(|()| time("by", jumps.by, 1))
                .map_err(|wrong| wrong.within(&["clock_jumps"]))?;
        }
        if let Some(stalls) = self.device_stalls {
            time("every", stalls.every, 1_000)
                .and_then(|()| time("for", stalls.r#for, 1))
                .map_err(|wrong| wrong.within(&["device_stalls"]))?;
        }
        self.queue_resets_every.map_or(Ok(()), |every| time("queue_resets_every", every, 1_000))
    }
}
