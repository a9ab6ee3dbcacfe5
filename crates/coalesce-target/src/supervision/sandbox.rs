//! The sandbox of a disk's process. Before it reads from a front end, the process gives up its user, its privileges,
//! the file system, the network, other processes, and every system call that serving does not need. A front end that
//! controls the process can then reach only the disk's image, which its guest may write anyway, and what the front end
//! itself has sent.

use crate::link::Identity;
use crate::os::call::{REGISTER_EVENTFD, UNREGISTER_EVENTFD};
use anyhow::{Context as _, Result, bail};
use caps::CapSet;
use landlock::{ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetStatus, Scope};
use libc::rlimit;
use nix::errno::Errno;
use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};
use std::collections::BTreeMap;
use tracing::warn;

/// Switches to another user, irrevocably. Must be called when everything is open, and before another thread exists.
///
/// # Errors
/// This process may not become that user.
pub fn become_user(identity: &Identity) -> Result<()> {
    let groups: Vec<_> = identity.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).context("its groups")?;
    setgid(Gid::from_raw(identity.gid)).context("its group")?;
    setuid(Uid::from_raw(identity.uid)).context("its user")?;
    // The kernel clears this setting when the user changes.
    set_pdeathsig(Signal::SIGKILL).context("parent-death signal")
}

/// What a limit is called in errors.
const FILE_SIZE: &str = "the limit on the size of files";

/// Limits the size of files to `len` bytes, or to what this process may have if that is less. The process itself cannot raise it
/// again, as no system call is allowed that does; its supervisor can: see [`raise_file_size`].
///
/// # Errors
/// The limit is refused.
pub fn limit_file_size(len: u64) -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).context(FILE_SIZE)?;
    if hard < len {
        warn!(
            "files may have {hard} bytes at most (ulimit -Hf, LimitFSIZE=), and {len} are served: writes beyond that fail"
        );
    }
    setrlimit(Resource::RLIMIT_FSIZE, len.min(hard), hard).context(FILE_SIZE)
}

/// Lets a disk's process write files of `len` bytes, if it is limited to less.
///
/// # Errors
/// It may not have files of that size, or this process may not say so.
pub fn raise_file_size(pid: u32, len: u64) -> Result<()> {
    let pid = pid.try_into().context("a process id")?;
    let mut limit = rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: nothing is read, and the limit is filled in.
    Errno::result(unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, std::ptr::null(), &raw mut limit) })
        .context(FILE_SIZE)?;
    let rlimit { rlim_cur: soft, rlim_max: hard } = limit;
    if soft >= len {
        return Ok(());
    }
    if hard < len {
        bail!("files may have {hard} bytes at most (ulimit -Hf, LimitFSIZE=): allowed for size: no more");
    }
    limit.rlim_cur = len;
    // SAFETY: the limit is read, and nothing is filled in.
    Errno::result(unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut()) })
        .context(FILE_SIZE)?;
    Ok(())
}

/// Gives up privileges and the file system. Must be called before another thread exists, because threads inherit this.
///
/// # Errors
/// The kernel refuses an operation that every kernel has. A missing feature is logged, and the process runs without it.
pub fn give_up_privileges() -> Result<()> {
    set_no_new_privs().context("no new privileges")?;
    if caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETPCAP).unwrap_or(false) {
        caps::clear(None, CapSet::Bounding).context("the bounding set of capabilities")?;
    }
    for set in [CapSet::Ambient, CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        caps::clear(None, set).with_context(|| format!("the {set:?} capabilities"))?;
    }
    let abi = ABI::V6;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .restrict_self()?;
    if status.ruleset == RulesetStatus::NotEnforced {
        warn!("sandbox: this kernel has no Landlock: file system and network are not closed");
    }
    Ok(())
}

/// Allows only the system calls that serving needs, in every thread. With `locks`, files can be locked and unlocked. Must be
/// called when all threads exist.
///
/// # Errors
/// The kernel refuses the filter.
pub fn restrict_system_calls(locks: bool) -> Result<()> {
    let filter = SeccompFilter::new(
        rules(locks)?,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into().context("the filter's architecture")?,
    )?;
    let program = BpfProgram::try_from(filter)?;
    match apply_filter_all_threads(&program) {
        Err(error) if Errno::last() == Errno::ENOSYS => {
            warn!("sandbox: this kernel has no seccomp: system calls are not restricted: {error}");
            Ok(())
        }
        outcome => outcome.context("the filter of system calls"),
    }
}

/// The system calls that serving needs.
const ALLOWED: &[i64] = &[
    // Requests.
    libc::SYS_io_uring_enter,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_fdatasync,
    libc::SYS_clock_gettime,
    // Connections: messages, their descriptors, memory, eventfds.
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_ppoll,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    // Memory. No mapping can become executable: see `rules`.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_brk,
    // Threads: they wait for each other and end. None is created.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

fn rules(locks: bool) -> Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let argument = |index, op, value| SeccompCondition::new(index, SeccompCmpArgLen::Dword, op, value);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // No mapping is executable.
    let exec = libc::PROT_EXEC as u64;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![SeccompRule::new(vec![argument(2, SeccompCmpOp::MaskedEq(exec), 0)?])?]);
    }
    // A thread's name and timer slack, set at its start.
    let prctl = [libc::PR_SET_NAME, libc::PR_SET_TIMERSLACK, libc::PR_SET_VMA]
        .map(|what| Ok(SeccompRule::new(vec![argument(0, SeccompCmpOp::Eq, what as u64)?])?));
    rules.insert(libc::SYS_prctl, prctl.into_iter().collect::<Result<_>>()?);
    // Descriptors are duplicated, and files in memory are recognised by their seals. Other operations of fcntl(2) could
    // signal other processes (F_SETOWN), or change files that processes share, such as standard error.
    let fcntl = [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_GET_SEALS].into_iter();
    let fcntl = fcntl
        .chain(locks.then_some(libc::F_OFD_SETLK))
        .map(|what| Ok(SeccompRule::new(vec![argument(1, SeccompCmpOp::Eq, what as u64)?])?));
    rules.insert(libc::SYS_fcntl, fcntl.collect::<Result<_>>()?);
    // The length of an image that has been made longer. fstat(2) does not tell that of a block device.
    rules.insert(libc::SYS_lseek, vec![SeccompRule::new(vec![argument(2, SeccompCmpOp::Eq, libc::SEEK_END as u64)?])?]);
    // The crate `vhost` asks whether the channel of a front end is a Unix stream socket.
    let getsockopt = [libc::SO_DOMAIN, libc::SO_TYPE].map(|option| {
        let of_sockets = argument(1, SeccompCmpOp::Eq, libc::SOL_SOCKET as u64)?;
        Ok(SeccompRule::new(vec![of_sockets, argument(2, SeccompCmpOp::Eq, option as u64)?])?)
    });
    rules.insert(libc::SYS_getsockopt, getsockopt.into_iter().collect::<Result<_>>()?);
    // An in-flight record, without huge pages.
    let huge = u64::from(libc::MFD_HUGETLB);
    rules.insert(libc::SYS_memfd_create, vec![SeccompRule::new(vec![argument(1, SeccompCmpOp::MaskedEq(huge), 0)?])?]);
    // Changes the eventfd of an io_uring. No io_uring is created, and the existing ones are restricted.
    let register = [REGISTER_EVENTFD, UNREGISTER_EVENTFD]
        .map(|what| Ok(SeccompRule::new(vec![argument(1, SeccompCmpOp::Eq, u64::from(what))?])?));
    rules.insert(libc::SYS_io_uring_register, register.into_iter().collect::<Result<_>>()?);
    // A panic ends this process. No other process can be signalled.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![argument(0, SeccompCmpOp::Eq, own)?])?]);
    Ok(rules)
}
