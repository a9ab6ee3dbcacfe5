//! A kernel that refuses io_uring_enter(2) to one thread of a program while a test wants it to: a seccomp filter asks this
//! process about each call (seccomp_unotify(2)).

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Where a program has the file through which it asks. A number that no other file has by then.
const LISTENER: i32 = 700;

/// Makes a program, and all that it starts, ask about each io_uring_enter(2).
pub fn ask(command: &mut Command) -> &mut Command {
    let install = || {
        let code = |code: u32, jump_if_not, k| libc::sock_filter { code: code as u16, jt: 0, jf: jump_if_not, k };
        let mut program = [
            code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0), // the number of the call
            code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_io_uring_enter as u32),
            code(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_USER_NOTIF),
            code(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the program is as long as it says; nothing else has a pointer.
        unsafe {
            Errno::result(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
            let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
            let listener = Errno::result(libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program))?;
            Errno::result(libc::dup2(listener as i32, LISTENER))?; // stays open when the program begins
        }
        Ok(())
    };
    // SAFETY: only system calls, after a fork.
    unsafe { command.pre_exec(install) }
}

#[repr(C)]
#[derive(Debug, Default)]
struct Question {
    id: u64,
    thread: u32,
    flags: u32,
    call: [u64; 8],
}

#[repr(C)]
#[derive(Debug)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

// <linux/seccomp.h>
const RECEIVE: libc::c_ulong = 0xC050_2100;
const SEND: libc::c_ulong = 0xC018_2101;
const CONTINUE: u32 = 1;

/// Answers a program that asks.
pub struct Kernel {
    refuses: Arc<AtomicBool>,
    refused: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Kernel {
    /// Answers `pid`. The thread called `thread` of any process is refused its calls while [`refuse`](Self::refuse) says so.
    pub fn new(pid: Pid, thread: &str) -> Self {
        let (refuses, refused) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let listener = listener_of(pid).unwrap();
        let (switch, count, name) = (refuses.clone(), refused.clone(), format!("{thread}\n"));
        let thread = std::thread::spawn(move || {
            let is_refused = |thread: u32| {
                let is_it = || std::fs::read_to_string(format!("/proc/{thread}/comm")).is_ok_and(|comm| comm == name);
                switch.load(Ordering::SeqCst) && is_it()
            };
            while let Some((id, asking)) = next(&listener) {
                let mut answer = Answer { id, value: 0, error: 0, flags: CONTINUE };
                if is_refused(asking) {
                    (answer.error, answer.flags) = (-libc::EPERM, 0);
                    count.fetch_add(1, Ordering::SeqCst);
                }
                // SAFETY: the answer has the size that the request says. A thread that has ended needs none.
                unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw mut answer) };
            }
        });
        Self { refuses, refused, thread: Some(thread) }
    }

    /// Refuses from now on, or does not.
    pub fn refuse(&self, refuse: bool) {
        self.refuses.store(refuse, Ordering::SeqCst);
    }

    /// Calls that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }
}

impl Drop for Kernel {
    /// To be dropped after the program has ended.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take().filter(|_| !std::thread::panicking()) {
            thread.join().unwrap();
        }
    }
}

fn listener_of(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: neither call has a pointer, and each gives a new descriptor.
    unsafe {
        let process = Errno::result(libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0))?;
        let process = OwnedFd::from_raw_fd(process as i32);
        let listener = Errno::result(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), LISTENER, 0))?;
        Ok(OwnedFd::from_raw_fd(listener as i32))
    }
}

/// The next question: its number, and the thread that asks. None: nobody is left to ask.
fn next(listener: &OwnedFd) -> Option<(u64, u32)> {
    loop {
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE).unwrap();
        if !fds[0].revents().unwrap().contains(PollFlags::POLLIN) {
            return None;
        }
        let mut question = Question::default(); // the kernel wants zeroes
        // SAFETY: the question has the size that the request says.
        if unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut question) } == 0 {
            return Some((question.id, question.thread));
        } // else the thread that asked has ended
    }
}
