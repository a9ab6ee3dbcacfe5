//! Connects to a virtio-blk target, negotiates features, and sets up its queues.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};

use nix::sys::socket::{Shutdown, UnixAddr, getpeername, shutdown};
use virtio_driver::{VirtioBlkFeatureFlags, VirtioFeatureFlags, VirtioTransport};

use crate::Error;
use crate::device::{Device, QUEUE_ENTRIES_MIN, SETUP_TIMEOUT};
use crate::memory::{Buffers, Ring};
use crate::options::Options;
use crate::protocol::{BlkConfig, Transport};
use crate::virtio_queue::VirtioQueue;

const SECTOR_BYTES: u64 = 512;

/// Descriptors of one request: header, data, status.
const DESCRIPTORS_PER_REQUEST: u16 = 3;

/// Connects to the target and starts its queues.
pub fn open<T: Send + 'static>(options: &Options) -> Result<Device<VirtioQueue<T>>, Error> {
    // The driver crate does not expose its socket. The new socket is found by comparing the open ones before and
    // after, so only one thread may connect at a time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let before = open_sockets();
    let connection = || find_connection(&options.socket, &before);

    // The set-up runs in a thread, because a target that never answers would block the driver crate for ever.
    let (sender, receiver) = channel();
    let for_thread = options.clone();
    std::thread::spawn(move || sender.send(set_up::<T>(&for_thread)));
    match receiver.recv_timeout(SETUP_TIMEOUT) {
        Ok(device) => device.map(|device| Device { connection: connection(), ..device }),
        Err(RecvTimeoutError::Timeout) => {
            if let Some(socket) = connection() {
                // Ends the thread. A failure does not matter, because nothing depends on the thread.
                let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
            }
            let why = "it does not answer; is another client connected to it, or is it an NVMe disk (--device nvme)?";
            Err(Error::Connect(why.into()))
        }
        Err(RecvTimeoutError::Disconnected) => Err(Error::Protocol("the set-up thread panicked")),
    }
}

fn set_up<T>(options: &Options) -> Result<Device<VirtioQueue<T>>, Error> {
    let mut transport = connect(options)?;
    let features = transport.get_features();
    let blk = VirtioBlkFeatureFlags::from_bits_truncate(features);
    let event_idx = VirtioFeatureFlags::from_bits_truncate(features).contains(VirtioFeatureFlags::RING_EVENT_IDX);
    let config = transport.get_config()?;
    let capacity_bytes = config.capacity_sectors.to_native().saturating_mul(SECTOR_BYTES);
    check_device(options, blk, features, &config, transport.max_queues())?;

    let (count, in_flight_max) = (usize::from(options.queues), options.in_flight_max());
    let entries = (in_flight_max * DESCRIPTORS_PER_REQUEST).next_power_of_two().max(QUEUE_ENTRIES_MIN);
    let buffers = (0..count)
        .map(|_| Buffers::new(&mut transport, in_flight_max, options.block_size_bytes))
        .collect::<Result<Vec<_>, _>>()?;
    let queues = Ring::start(transport, count, entries)?
        .into_iter()
        .zip(buffers)
        .enumerate()
        .map(|(index, (ring, buffers))| VirtioQueue::new(index, ring, buffers, event_idx))
        .collect::<Result<_, _>>()?;
    Ok(Device { queues, capacity_bytes, event_idx, connection: None })
}

fn connect(options: &Options) -> Result<Transport, Error> {
    let path = options.socket.to_str().ok_or_else(|| Error::Usage("--socket must be valid UTF-8".into()))?;
    let mut wanted = VirtioFeatureFlags::VERSION_1.bits();
    wanted |= (VirtioBlkFeatureFlags::RO
        | VirtioBlkFeatureFlags::BLK_SIZE
        | VirtioBlkFeatureFlags::FLUSH
        | VirtioBlkFeatureFlags::MQ)
        .bits();
    if options.event_idx {
        wanted |= VirtioFeatureFlags::RING_EVENT_IDX.bits();
    }
    Transport::new(path, wanted).map_err(|error| match error.to_string() {
        what if what.contains("required protocol features") => {
            Error::Missing("one of the vhost-user protocol features REPLY_ACK, CONFIG, CONFIGURE_MEM_SLOTS".into())
        }
        what if what.contains("PROTOCOL_FEATURES") => Error::Missing("vhost-user protocol features".into()),
        what if matches!(
            error.kind(),
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied
        ) =>
        {
            Error::Connect(what)
        }
        what => Error::Connect(format!(
            "{what}; is another client connected, as a disk serves one at a time, or is it an NVMe disk (--device nvme)?"
        )),
    })
}

fn check_device(
    options: &Options,
    blk: VirtioBlkFeatureFlags,
    features: u64,
    config: &BlkConfig,
    queues_max: Option<usize>,
) -> Result<(), Error> {
    let need = |ok: bool, what: String| if ok { Ok(()) } else { Err(Error::Missing(what)) };
    let by_config = if blk.contains(VirtioBlkFeatureFlags::MQ) { config.queues.to_native().into() } else { 1 };
    let offered = by_config.min(queues_max.unwrap_or(1));
    let device_block = if blk.contains(VirtioBlkFeatureFlags::BLK_SIZE) { config.block_bytes.to_native() } else { 512 };
    let queue_blocks = config.capacity_sectors.to_native() * SECTOR_BYTES
        / u64::from(options.block_size_bytes)
        / u64::from(options.queues);

    need(features & VirtioFeatureFlags::VERSION_1.bits() != 0, "VIRTIO_F_VERSION_1".into())?;
    need(usize::from(options.queues) <= offered, format!("{} queues: it has {offered}", options.queues))?;
    let writes = options.write_share_percent() > 0;
    need(!(writes && blk.contains(VirtioBlkFeatureFlags::RO)), "writing: it is read-only".into())?;
    let flush = options.fsync_every.is_none() || blk.contains(VirtioBlkFeatureFlags::FLUSH);
    need(flush, "VIRTIO_BLK_F_FLUSH, which --fsync-every needs".into())?;
    let aligned = options.block_size_bytes >= device_block;
    need(aligned, format!("blocks of {} bytes: its own have {device_block}", options.block_size_bytes))?;
    // With --verify, requests in flight go to different blocks. Without it, one block is enough.
    let blocks_min = if options.verify { u64::from(options.in_flight_max()) } else { 1 };
    need(queue_blocks >= blocks_min, format!("enough space: a queue's part of it is {queue_blocks} blocks"))
}

/// The open sockets of this process.
fn open_sockets() -> BTreeSet<RawFd> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return BTreeSet::new() };
    entries
        .flatten()
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:")))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// A duplicate of the socket that is connected to `path` and was not open `before`.
fn find_connection(path: &Path, before: &BTreeSet<RawFd>) -> Option<OwnedFd> {
    let leads_to_target = |fd: &RawFd| {
        // The peer's address is the path that the target was given. It may be relative to another directory.
        getpeername::<UnixAddr>(*fd).is_ok_and(|peer| peer.path().and_then(Path::file_name) == path.file_name())
    };
    let fd = open_sockets().difference(before).copied().find(leads_to_target)?;
    // SAFETY: the descriptor is open, and is borrowed only for its duplication.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().ok()
}
