//! What is counted of a turn, by the target and by the kernel, from outside of both.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use coalesce_demo::paired::{CpuTime, cpu_time};
use nix::unistd::Pid;

use crate::compute::Rounds;
use crate::counts::Counts;
use crate::place::Place;
use crate::taken::Taken;
use crate::target::Target;

/// Seconds without a completion after which a turn ends nevertheless.
const STALL_MAX: f64 = 10.0;

/// Who loads a disk.
#[derive(Clone, Debug)]
pub struct Client {
    /// The load generator, or the virtual machine.
    pub process: Pid,
    /// What a loop beside it has computed.
    pub computed: Option<Rounds>,
    /// What a guest has taken.
    pub taken: Option<Rc<Taken>>,
}

/// Looks at a disk and at its client.
#[derive(Debug)]
pub struct Probe<'a> {
    target: &'a Target,
    disk: &'static str,
    /// Where the guest's instructions are to be had.
    counter: Option<PathBuf>,
    server: Pid,
    client: Client,
    epoch: Instant,
}

impl<'a> Probe<'a> {
    /// For the disk of a place, loaded by this client.
    pub fn new(target: &'a Target, place: Place, client: Client) -> Result<Self> {
        let disk = place.name();
        let counter = (place == Place::Counted).then(|| target.counter());
        Ok(Self { target, disk, counter, server: target.pid(disk)?, client, epoch: Instant::now() })
    }

    /// What happened so far, since some time in the past; without what is counted by thread.
    fn now(&self) -> Result<Counts> {
        let queues = self.target.stats(self.disk)?;
        let seconds = self.epoch.elapsed().as_secs_f64();
        let sum = |pointer: &str| {
            let counts = queues.iter().map(|queue| queue.pointer(pointer).and_then(serde_json::Value::as_u64));
            counts.sum::<Option<u64>>().with_context(|| format!("the target's statistics have no {pointer}"))
        };
        let interrupts = sum("/interrupts")?;
        let holds = queues.iter().filter_map(|queue| queue.pointer("/holds/licensed")?.as_u64());
        let (instructions, interrupt_instructions) = match &self.counter {
            Some(counter) => instructions(counter).with_context(|| counter.display().to_string())?,
            None => (0, 0),
        };
        Ok(Counts {
            seconds,
            completions: sum("/completions")?,
            reads: sum("/device/reads")?,
            writes: sum("/device/writes")?,
            flushes: sum("/device/flushes")?,
            realtime: sum("/device/realtime")?,
            interrupts,
            licensed: holds.sum(),
            system_calls: sum("/device/enters")? + interrupts,
            computed: self.client.computed.as_ref().map(Rounds::count).transpose()?,
            instructions,
            interrupt_instructions,
            client_cpu_ns: cpu_ns(self.client.process)?,
            target_cpu_ns: cpu_ns(self.server)?,
            // Last, as it takes the longest.
            taken: self.client.taken.as_ref().map(|taken| taken.count()).transpose()?,
            ..Counts::default()
        })
    }

    /// Requests that completed so far.
    pub fn completions(&self) -> Result<u64> {
        Ok(self.now()?.completions)
    }

    /// What happens in this time, without what is counted by thread.
    pub fn counts_in(&self, length: Duration) -> Result<Counts> {
        let before = self.now()?;
        std::thread::sleep(length);
        Ok(self.now()?.since(&before))
    }

    /// What happens in a turn of this length, or until something completes: a busy machine may stop a guest for longer than a
    /// turn. And the share of CPU time that is stolen meanwhile.
    pub fn turn(&self, length: Duration) -> Result<(Counts, f64)> {
        let (cpu, threads, before) = (CpuTime::now()?, self.threads()?, self.now()?);
        let after = loop {
            std::thread::sleep(length);
            let after = self.now()?;
            if after.completions > before.completions || after.seconds > before.seconds + STALL_MAX {
                break after;
            }
        };
        // A thread that has ended meanwhile has taken its count with it.
        let since = |(path, now): (PathBuf, Thread)| match threads.get(&path) {
            Some(earlier) => now.since(*earlier),
            None => now,
        };
        let passed: Vec<_> = self.threads()?.into_iter().map(since).collect();
        let of_client = || passed.iter().filter(|thread| thread.process == self.client.process);
        let is_machine = of_client().any(|thread| thread.is_cpu);
        let counts = Counts {
            client_sleeps: of_client()
                .filter(|thread| thread.is_cpu || !is_machine)
                .map(|thread| thread.switches)
                .sum(),
            context_switches: passed.iter().map(|thread| thread.switches).sum(),
            waited_ns: passed.iter().filter_map(|thread| thread.waited_ns).reduce(|a, b| a + b),
            ..after.since(&before)
        };
        Ok((counts, CpuTime::now()?.lost_since(cpu)))
    }

    /// The threads of client and target.
    fn threads(&self) -> Result<BTreeMap<PathBuf, Thread>> {
        let mut all = threads(self.server)?;
        all.extend(threads(self.client.process)?);
        Ok(all)
    }
}

/// What guest/plugin/count.c answers, over all CPUs: instructions, and those of interrupts.
fn instructions(socket: &Path) -> Result<(u64, u64)> {
    let mut answer = String::new();
    UnixStream::connect(socket)?.read_to_string(&mut answer)?;
    let lines = answer.lines().map(|line| {
        let mut numbers = line.split(' ').map_while(|number| number.parse::<u64>().ok());
        numbers.next().zip(numbers.next())
    });
    let sum = lines.reduce(|sum, line| sum.zip(line).map(|(sum, line)| (sum.0 + line.0, sum.1 + line.1)));
    sum.flatten().with_context(|| format!("no numbers: {answer:?}"))
}

fn cpu_ns(process: Pid) -> Result<u64> {
    Ok(cpu_time(process)?.as_nanos() as u64)
}

/// What the kernel has counted of a thread so far.
#[derive(Clone, Copy, Debug)]
struct Thread {
    process: Pid,
    /// Whether it is a CPU of a virtual machine, by the name that QEMU's debug-threads=on gives it.
    is_cpu: bool,
    /// Voluntary context switches.
    switches: u64,
    /// Time on a run queue without a CPU.
    waited_ns: Option<u64>,
}

impl Thread {
    /// None: it has ended.
    fn now(process: Pid, path: &Path) -> Option<Self> {
        let status = fs::read_to_string(path.join("status")).ok()?;
        let switches =
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()?;
        let waited_ns = waited_ns(&fs::read_to_string(path.join("schedstat")).unwrap_or_default());
        let is_cpu = status.starts_with("Name:\tCPU ");
        Some(Self { process, is_cpu, switches, waited_ns })
    }

    fn since(self, earlier: Self) -> Self {
        let waited = self.waited_ns.zip(earlier.waited_ns);
        Self {
            switches: self.switches.saturating_sub(earlier.switches),
            waited_ns: waited.map(|(now, earlier)| now.saturating_sub(earlier)),
            ..self
        }
    }
}

/// Of a thread's /proc/PID/task/TID/schedstat (Documentation/scheduler/sched-stats.rst): time on a CPU, time on a run queue, time
/// slices. Without CONFIG_SCHED_INFO there is no such file, or it has zeroes; so has that of a thread that has never run.
fn waited_ns(schedstat: &str) -> Option<u64> {
    let fields: Vec<_> = schedstat.split_whitespace().map_while(|field| field.parse().ok()).collect();
    match fields[..] {
        [_, waited, slices] if slices > 0 => Some(waited),
        _ => None,
    }
}

/// A process's threads.
fn threads(process: Pid) -> Result<BTreeMap<PathBuf, Thread>> {
    let threads = format!("/proc/{process}/task");
    let threads = fs::read_dir(&threads).with_context(|| threads)?;
    let threads = threads.filter_map(|thread| Some(thread.ok()?.path()));
    Ok(threads.filter_map(|path| Thread::now(process, &path).map(|thread| (path, thread))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calling thread: other tests' threads come and go.
    fn this() -> Thread {
        Thread::now(Pid::this(), Path::new("/proc/thread-self")).unwrap()
    }

    #[test]
    fn waiting_costs_a_switch_and_no_cpu_time_and_computing_the_other_way_round() {
        let (before, cpu) = (this().switches, cpu_ns(Pid::this()).unwrap());
        std::thread::sleep(Duration::from_millis(1));
        assert!(this().switches > before);
        while cpu_ns(Pid::this()).unwrap() < cpu + 1_000_000 {}
        assert!(threads(Pid::this()).unwrap().values().any(|thread| thread.switches > before));
    }

    #[test]
    fn waiting_is_the_second_field_of_what_has_run() {
        for (text, waited) in
            [("43996478 48388169 134\n", Some(48_388_169)), ("0 0 1\n", Some(0)), ("0 0 0\n", None), ("", None)]
        {
            assert_eq!(waited_ns(text), waited, "{text}");
        }
    }
}
