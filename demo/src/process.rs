//! Child processes that are gone when this program is, and what a signal does.

use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt as _;

/// A child that was asked to end is killed after this time: the target finishes what is in flight, QEMU just ends.
const GRACE: Duration = Duration::from_secs(10);

/// Whether a signal asked this program to end, and the processes that it must reach.
///
/// Nothing here unwinds a thread: the children end, their parents see an error, and the way out is the
/// ordinary one, which removes every file.
#[derive(Debug, Default)]
pub struct Stop {
    requested: AtomicBool,
    groups: Mutex<Vec<Pid>>,
}

impl Stop {
    /// From now on SIGINT, SIGTERM and SIGHUP end the children.
    pub fn install() -> Result<Arc<Self>> {
        let stop = Arc::new(Self::default());
        let handler = stop.clone();
        ctrlc::set_handler(move || {
            handler.requested.store(true, Ordering::SeqCst);
            for &group in handler.groups().iter() {
                let _ = killpg(group, Signal::SIGTERM); // it may just have ended
            }
        })
        .context("signals")?;
        Ok(stop)
    }

    /// Whether a signal came.
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }

    /// An error if a signal came.
    pub fn check(&self) -> Result<()> {
        if self.requested() { bail!("stopped by a signal") } else { Ok(()) }
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A child in a process group of its own, which ends with this value at the latest.
#[derive(Debug)]
pub struct Group {
    /// The child.
    pub child: Child,
    id: Pid,
    stop: Arc<Stop>,
}

impl Group {
    /// Starts `command`.
    pub fn spawn(command: &mut Command, stop: &Arc<Stop>) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        // A group of its own: Ctrl-C reaches only this program, which then ends the children in the right order.
        let child = command.process_group(0).spawn().with_context(|| format!("cannot run {program}"))?;
        let id = Pid::from_raw(i32::try_from(child.id()).context("a process id")?);
        stop.groups().push(id);
        let group = Self { child, id, stop: stop.clone() };
        stop.check()?; // the signal may have come before the handler knew the child
        Ok(group)
    }

    /// Waits until the child has ended by itself.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait().context("cannot wait for a child")?;
        self.forget();
        Ok(status)
    }

    /// The child's status if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait().context("cannot wait for a child")?;
        if status.is_some() {
            self.forget();
        }
        Ok(status)
    }

    /// Asks the child to end, and waits until it has.
    pub fn end(&mut self) {
        let begin = Instant::now();
        let mut signal = Some(Signal::SIGTERM);
        while let Ok(None) = self.try_wait() {
            if let Some(signal) = signal.take() {
                let _ = killpg(self.id, signal); // it may just have ended
            } else if begin.elapsed() > GRACE {
                let _ = killpg(self.id, Signal::SIGKILL);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn forget(&self) {
        self.stop.groups().retain(|&id| id != self.id);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_ends_with_its_value() {
        let stop = Arc::new(Stop::default());
        let id = Group::spawn(Command::new("sleep").arg("1000"), &stop).unwrap().id;
        assert_eq!(nix::sys::signal::kill(id, None), Err(nix::errno::Errno::ESRCH));
        assert!(stop.groups().is_empty());
    }

    #[test]
    fn nothing_is_started_after_a_signal() {
        let stop = Arc::new(Stop::default());
        stop.requested.store(true, Ordering::SeqCst);
        assert!(Group::spawn(Command::new("sleep").arg("1000"), &stop).is_err());
        assert!(stop.groups().is_empty());
    }
}
