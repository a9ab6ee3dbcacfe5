//! Signals: which of them end the target, and which mean nothing to it.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::time::Duration;
use std::{io, thread};

/// These tell the target to end in order, or say that its terminal is closed.
const STOPS: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// These end it at once if they come a second time. SIGHUP does not: when a terminal closes, the kernel and the shell both
/// send one.
const TWICE: [Signal; 2] = [Signal::SIGTERM, Signal::SIGINT];

/// What comes earlier than this after the first is the same wish: timeout(1) signals its child, and then its group.
const SECOND_AFTER: Duration = Duration::from_millis(100);

/// These would end a process, too, and say nothing about its own state. Left out are those after which nothing about the
/// process can be trusted, such as SIGSEGV and SIGABRT.
const FOREIGN: [Signal; 11] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGSTKFLT,
    Signal::SIGPIPE,
    Signal::SIGXCPU,
    Signal::SIGXFSZ, // the write that is beyond the limit fails
];

/// The signals that stop the target. A shell ignores SIGINT and SIGQUIT for what is in its background, and nohup(1) ignores
/// SIGHUP: those that this process has inherited as ignored are left so.
pub fn stops() -> impl Iterator<Item = Signal> {
    STOPS.into_iter().filter(|signal| *signal == Signal::SIGTERM || !is_ignored(*signal))
}

/// The target stops, and all its threads block what stops it. From 100 ms on a second SIGTERM or SIGINT ends it at once.
///
/// # Errors
/// The system refuses a thread or a descriptor.
pub fn end_at_second() -> io::Result<()> {
    let twice = SigSet::from_iter(TWICE);
    let arrived = SignalFd::with_flags(&twice, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    thread::Builder::new().name("second signal".into()).spawn(move || {
        thread::sleep(SECOND_AFTER);
        while let Ok(Some(_)) = arrived.read_signal() {}
        let _ = twice.thread_unblock();
        loop {
            thread::park(); // a thread that does not block it must be there
        }
    })?;
    Ok(())
}

/// Ignores the signals that mean nothing to the target, in this process and in those that it starts.
///
/// # Errors
/// The kernel refuses it.
pub fn ignore_foreign() -> nix::Result<()> {
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    FOREIGN.into_iter().map(|signal| signal as libc::c_int).chain(real_time).try_for_each(ignore)
}

/// Ignores those that stop the target, too: its supervisor alone ends a disk's process.
///
/// # Errors
/// The kernel refuses it.
pub fn ignore_all() -> nix::Result<()> {
    ignore_foreign()?;
    STOPS.into_iter().try_for_each(|signal| ignore(signal as libc::c_int))
}

fn ignore(signal: libc::c_int) -> nix::Result<()> {
    // SAFETY: no handler runs.
    match unsafe { libc::signal(signal, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(Errno::last()),
        _ => Ok(()),
    }
}

fn is_ignored(signal: Signal) -> bool {
    // SAFETY: all zeroes is a valid sigaction, which the call fills in.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal as libc::c_int, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
