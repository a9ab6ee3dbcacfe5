//! The process of one disk. A guest and its front end reach only this process, which has no other disk.

use crate::config::Device;
use crate::front_end::FrontEnd;
use crate::link::{DiskStats, PolicyChange, Questions, Request, Setup, SliceChange};
use crate::nvme::front_end::NvmeUser;
use crate::os::{bus_error, signals};
use crate::queue::RunReport;
use crate::record;
use crate::record::{Writer, monotonic_ns};
use crate::server::{DiskParts, DiskServer};
use crate::supervision::{log, sandbox};
use crate::vhost::front_end::VhostUserBlk;
use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::io::PipeWriter;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tracing::warn;
use vmm_sys_util::sock_ctrl_msg::ScmSocket as _;

/// The most descriptors that come with the first byte: the socket and, if there is a record, a pipe to it.
const DESCRIPTORS_MAX: usize = 2;

/// Serves the disk that the supervisor, at the other end of standard input, asks for, until it asks to stop.
///
/// # Errors
/// There is no supervisor.
pub fn run() -> Result<()> {
    close_inherited_files().context("inherited descriptors")?;
    // Only the supervisor ends this process, even if a terminal or a service manager signals the whole process group.
    signals::ignore_all().context("signals")?;
    set_pdeathsig(Signal::SIGKILL).context("parent-death signal")?;
    // After a panic nothing about this disk can be trusted, and there is no other in this process.
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |about| {
        say(about);
        std::process::abort();
    }));

    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut descriptors = receive_descriptors(&stream)?.into_iter();
    let mut questions = Questions::new(stream);
    let Some((id, Request::Start(setup))) = questions.receive() else { bail!("no setup arrived") };
    let door = descriptors.next().context("no socket came")?;
    let record = descriptors.next();
    match setup.disk.device {
        Device::VirtioBlk => serve::<VhostUserBlk>(questions, id, &setup, door, record),
        Device::Nvme => serve::<NvmeUser>(questions, id, &setup, door, record),
    }
}

/// Serves one disk to front ends of one kind. `id`: of the request to start.
fn serve<F: FrontEnd>(
    mut questions: Questions,
    id: u64,
    setup: &Setup,
    door: OwnedFd,
    record: Option<OwnedFd>,
) -> Result<()> {
    let (disk, writer) = match start::<F>(setup, door, record) {
        Ok(started) => started,
        Err(error) => {
            questions.answer(id, Err(error));
            return Ok(());
        }
    };
    questions.answer(id, Ok(json!(disk.about())));

    while let Some((id, request)) = questions.receive() {
        if matches!(request, Request::Stop) {
            disk.stop();
            questions.answer(id, writer.map_or(Ok(()), Writer::finish).map(|()| Value::Null));
            return Ok(());
        }
        questions.answer(id, answer(&disk, request));
    }
    // The supervisor was killed, and the kernel is about to kill this process too. The next process continues the
    // requests in flight.
    std::process::exit(1);
}

/// Closes the files that a shell or a service manager left open in the supervisor. This disk does not need them.
fn close_inherited_files() -> nix::Result<()> {
    // SAFETY: this process has not opened any file yet.
    Errno::result(unsafe { libc::close_range(3, libc::c_uint::MAX, 0) }).map(drop)
}

fn receive_descriptors(stream: &UnixStream) -> Result<Vec<OwnedFd>> {
    let mut byte = [0_u8];
    let mut slices = [libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 }];
    let mut descriptors = [-1; DESCRIPTORS_MAX];
    // SAFETY: the slice is the byte, which may have any value.
    let (_, count) =
        unsafe { stream.recv_with_fds(&mut slices, &mut descriptors) }.context("there is no supervisor")?;
    // SAFETY: the kernel has just created these descriptors for this process.
    Ok(descriptors[..count].iter().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }).collect())
}

/// Starts the disk, and gives up every right that serving does not need.
fn start<F: FrontEnd>(
    setup: &Setup,
    door: OwnedFd,
    record: Option<OwnedFd>,
) -> Result<(DiskServer<F>, Option<Writer>)> {
    log::start(setup.log.parse().context("level of the log")?);
    bus_error::survive()?;
    let record = record.zip(setup.record_epoch_ns).map(|(pipe, epoch_ns)| (pipe, record::channel(epoch_ns)));
    let recorder = record.as_ref().map(|(_, (recorder, _))| recorder);
    // Opened while the process has all its rights: the image, and the io_urings, whose memory is pinned.
    let mut parts = DiskParts::<F>::open(&setup.disk, recorder)?;
    for PolicyChange { queue, policy, .. } in &setup.policies {
        // What cannot be applied must not keep the disk from being served.
        if let Err(error) = policy.parse().map_err(Into::into).and_then(|policy| parts.set_policy(*queue, &policy)) {
            warn!(disk = setup.disk.name(), "a policy that was set before is not set again: {policy}: {error:#}");
        }
    }
    if let Some(size) = setup.size {
        parts.set_size(size);
    }
    if let Some(identity) = &setup.identity {
        sandbox::become_user(identity)?;
    }
    if setup.sandbox {
        sandbox::limit_file_size(parts.file_len_max()).context("sandbox")?;
        sandbox::give_up_privileges().context("sandbox")?;
    }
    let spawn = |(pipe, (recorder, arrivals))| Writer::spawn(PipeWriter::from(pipe), recorder, arrivals);
    let writer = record.map(spawn).transpose()?;
    let restrict = || match setup.sandbox {
        true => sandbox::restrict_system_calls(setup.disk.migratable).context("sandbox"),
        false => Ok(()),
    };
    let disk = DiskServer::start(parts, door.into(), restrict)?;
    Ok((disk, writer))
}

fn answer(disk: &DiskServer<impl FrontEnd>, request: Request) -> Result<Value> {
    match request {
        Request::Stats => Ok(json!(DiskStats { connected: disk.is_connected(), queues: disk.stats() })),
        Request::ResetStats => {
            disk.reset_stats();
            Ok(Value::Null)
        }
        Request::SetPolicy(change) => {
            disk.set_policy(change.queue, &change.policy.parse()?, change.keep_learned).map(|()| Value::Null)
        }
        Request::SetRunning(SliceChange { queue, running, until_ns }) => {
            let until = Instant::now() + Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
            disk.set_running(queue, RunReport { running, until }).map(|()| Value::Null)
        }
        Request::SetLimits(change) => {
            disk.set_limits(change);
            Ok(Value::Null)
        }
        Request::Measure(wanted) => Ok(json!(disk.measure(wanted)?)),
        Request::Resize(size) => Ok(json!(disk.resize(size)?)),
        Request::Start(_) | Request::Stop => bail!("the disk is already served"),
    }
}
