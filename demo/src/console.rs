//! A guest's console: lines that say how far it is.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::{Group, Stop};
use crate::target::last_line;

/// A running guest, and what it says.
#[derive(Debug)]
pub struct Console {
    /// Its process.
    pub group: Group,
    lines: Receiver<String>,
    log: PathBuf,
    /// What it has said of itself.
    ready: String,
}

impl Console {
    /// Of the guest that this command runs, whose complaints are to be in `log`.
    pub fn of(command: &mut Command, log: PathBuf, stop: &Arc<Stop>) -> Result<Self> {
        command.stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut group = Group::spawn(command, stop)?;
        let stdout = group.child.stdout.take().context("the guest's lines")?;
        let (sender, lines) = channel();
        // It ends when the guest has, and the process group ends with its value.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { group, lines, log, ready: String::new() })
    }

    /// Waits for a line with this beginning, at most for `patience`, and returns the rest of it.
    pub fn wait_for(&mut self, beginning: &str, patience: Duration, stop: &Stop) -> Result<String> {
        let begin = Instant::now();
        loop {
            stop.check()?;
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => {
                    if let Some(about) = line.strip_prefix("GUEST-READY ") {
                        about.trim().clone_into(&mut self.ready);
                    }
                    if line.starts_with("GUEST-ERROR") || line.starts_with("GUEST-FIO") {
                        bail!("{line}");
                    }
                    if let Some(rest) = line.strip_prefix(beginning) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) if begin.elapsed() > patience => {
                    bail!("the guest does not say {beginning}")
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.group.wait();
                    bail!("the guest has ended: {}", last_line(&self.log))
                }
            }
        }
    }

    /// An error if it says that its load has ended.
    pub fn is_quiet(&self) -> Result<()> {
        match self.lines.try_recv() {
            Ok(line) if line.starts_with("GUEST-INFO") => Ok(()),
            Ok(line) => bail!("the load has ended: {line}"),
            Err(TryRecvError::Disconnected) => bail!("the guest has ended"),
            Err(TryRecvError::Empty) => Ok(()),
        }
    }

    /// Which guest this is.
    pub fn about(&self) -> String {
        describe(&self.ready)
    }

    /// Waits until it has ended, as it should.
    pub fn finish(mut self) -> Result<()> {
        let status = self.group.wait()?;
        if status.success() { Ok(()) } else { bail!("{}", last_line(&self.log)) }
    }
}

/// What the kit says about a guest once it has booted: words NAME=VALUE.
fn describe(ready: &str) -> String {
    let value = |name: &str| ready.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let accelerator = match value("accel") {
        Some("kvm") => "KVM",
        Some("tcg") => "TCG, software emulation",
        _ => "with an unknown accelerator",
    };
    let system = value("kernel").map_or("bare metal".into(), |kernel| format!("Linux {kernel}"));
    format!("{system} under QEMU ({accelerator})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_is_described() {
        for (ready, described) in [
            ("kernel=6.1.0 disks=vda,vdb uptime=2.4 accel=tcg", "Linux 6.1.0 under QEMU (TCG, software emulation)"),
            ("kernel=6.1.0 disks=vda uptime=0.4 accel=kvm", "Linux 6.1.0 under QEMU (KVM)"),
            ("disk=nvme queues=1 accel=kvm", "bare metal under QEMU (KVM)"),
        ] {
            assert_eq!(describe(ready), described);
        }
    }
}
