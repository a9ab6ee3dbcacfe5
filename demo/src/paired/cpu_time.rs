//! CPU time: of the machine, what a hypervisor gave to others; of a process.

use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// CPU time of the whole machine so far, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    wanted: u64,
    stolen: u64,
}

impl CpuTime {
    /// Of this machine.
    ///
    /// # Errors
    /// /proc/stat cannot be read.
    pub fn now() -> Result<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").context("/proc/stat")?)
            .context("/proc/stat has no CPU times")
    }

    /// Reads the text of /proc/stat; none: it has no line for all CPUs with a field for stolen time (Linux 2.6.11).
    pub fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Option<Vec<u64>> = line.split_whitespace().take(8).map(|field| field.parse().ok()).collect();
        // proc_stat(5). Idle CPUs lose nothing, so idle and iowait do not count.
        let &[user, nice, system, _idle, _iowait, irq, softirq, stolen] = fields?.as_slice() else { return None };
        Some(Self { wanted: user + nice + system + irq + softirq + stolen, stolen })
    }

    /// Of the CPU time that somebody wanted since `earlier`, the share that was stolen: 0 to 1.
    pub const fn lost_since(self, earlier: Self) -> f64 {
        let wanted = self.wanted.saturating_sub(earlier.wanted);
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        if wanted == 0 { 0.0 } else { stolen as f64 / wanted as f64 }
    }
}

/// CPU time of a process so far, of its threads that have ended, too.
///
/// # Errors
/// There is no such process.
pub fn cpu_time(process: Pid) -> Result<Duration> {
    let time = clock_getcpuclockid(process).and_then(clock_gettime);
    Ok(time.with_context(|| format!("the CPU time of process {process}"))?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_wanted() {
        let before = CpuTime::parse("cpu  10 20 30 4000 500 0 7 3 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n").unwrap();
        let after = CpuTime::parse("cpu  40 20 50 9000 900 5 12 43 8 8\n").unwrap();
        assert!((after.lost_since(before) - 0.4).abs() < 1e-9);
        assert!(before.lost_since(before).abs() < 1e-9 && before.lost_since(after).abs() < 1e-9);
    }

    #[test]
    fn other_texts_are_none() {
        for text in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3 4", "cpu  1 2 3 4 5 6 7 x"] {
            assert_eq!(CpuTime::parse(text), None, "{text}");
        }
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        assert!(CpuTime::parse(&stat).unwrap().wanted > 0);
    }
}
