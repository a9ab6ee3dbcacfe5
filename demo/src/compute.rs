//! A loop that computes while the client's CPU has nothing better to do: natively here, in a guest `guest/compute.s`.

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, bail};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};

/// Steps of a round: some microseconds, so that counting costs nothing beside it.
const STEPS: u32 = 4096;

/// The loop. It ends with this value.
#[derive(Debug)]
pub struct Computation {
    rounds: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Computation {
    /// Gives a process and the loop one CPU, of which the loop gets what the process leaves (SCHED_IDLE).
    pub fn beside(process: Pid) -> Result<Self> {
        let cpu = last_cpu()?;
        let threads = format!("/proc/{process}/task");
        for thread in fs::read_dir(&threads).with_context(|| threads.clone())? {
            let thread = thread?.file_name().to_string_lossy().parse().context("a thread of the client")?;
            sched_setaffinity(Pid::from_raw(thread), &cpu).context("a CPU for the client")?;
        }
        let mut this = Self { rounds: Arc::default(), ended: Arc::default(), thread: None };
        let (rounds, ended) = (this.rounds.clone(), this.ended.clone());
        let (sender, ids) = channel();
        this.thread = Some(std::thread::spawn(move || {
            let _ = sender.send(gettid());
            let mut state = 1_u32;
            while !ended.load(Ordering::Relaxed) {
                for _ in 0..STEPS {
                    state = black_box(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        }));
        let id = ids.recv().context("the loop has not begun")?;
        sched_setaffinity(id, &cpu).context("a CPU for the loop")?;
        let mut chrt = Command::new("chrt");
        chrt.args(["--idle", "--pid", "0", &id.to_string()]).stdin(Stdio::null());
        let output = chrt.output().context("chrt (package util-linux)")?;
        if !output.status.success() {
            bail!("chrt: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(this)
    }

    /// Where its rounds are counted.
    pub fn rounds(&self) -> Rounds {
        Rounds::Counter(self.rounds.clone())
    }
}

/// The rounds of a loop.
#[derive(Clone, Debug)]
pub enum Rounds {
    /// That of this program.
    Counter(Arc<AtomicU64>),
    /// That of a guest: it writes a byte to this file for each.
    File(PathBuf),
}

impl Rounds {
    /// How many there were so far.
    pub fn count(&self) -> Result<u64> {
        Ok(match self {
            Self::Counter(counter) => counter.load(Ordering::Relaxed),
            Self::File(path) => fs::metadata(path).with_context(|| path.display().to_string())?.len(),
        })
    }
}

impl Drop for Computation {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The last CPU that this process may use.
fn last_cpu() -> Result<CpuSet> {
    let all = sched_getaffinity(Pid::this()).context("the CPUs of this process")?;
    let last = (0..CpuSet::count()).rev().find(|&cpu| all.is_set(cpu).unwrap_or(false));
    let mut one = CpuSet::new();
    one.set(last.context("no CPU")?)?;
    Ok(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_computes_on_the_clients_cpu_until_it_ends() {
        let mut client = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Pid::from_raw(client.id().try_into().unwrap());
        let computation = Computation::beside(process).unwrap();
        assert_eq!(sched_getaffinity(process).unwrap(), last_cpu().unwrap());
        let rounds = computation.rounds();
        while rounds.count().unwrap() < 10 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(computation);
        let after = rounds.count().unwrap();
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(rounds.count().unwrap(), after);
        client.kill().unwrap();
        client.wait().unwrap();
    }
}
