//! Connects to a virtio-blk target over vhost-user, negotiates features, and sets up its queues.

use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvTimeoutError, channel};

use coalesce_cli::{connect_to_new, counted};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use crate::Error;
use crate::device::{Device, SETUP_TIMEOUT, check_space, need};
use crate::memory::{FIRST_ADDRESS, Memory, file};
use crate::options::Options;
use crate::virtio_queue::{Layout, VirtioQueue};

const SECTOR_BYTES: u64 = 512;
/// `struct virtio_blk_config` up to the number of queues. Some targets refuse to read beyond their last field.
const CONFIG_BYTES: usize = 36;

const EVENT_IDX: u64 = 1 << VIRTIO_RING_F_EVENT_IDX;
const VERSION_1: u64 = 1 << VIRTIO_F_VERSION_1;
const READ_ONLY: u64 = 1 << VIRTIO_BLK_F_RO;
const BLK_SIZE: u64 = 1 << VIRTIO_BLK_F_BLK_SIZE;
const FLUSH: u64 = 1 << VIRTIO_BLK_F_FLUSH;
const MQ: u64 = 1 << VIRTIO_BLK_F_MQ;

/// Connects to the target and starts its queues.
pub fn open<T: Send + 'static>(options: &Options) -> Result<Device<VirtioQueue<T>>, Error> {
    let stream = connect_to_new(&options.socket, SETUP_TIMEOUT).map_err(|error| Error::Connect(error.to_string()))?;
    let connection = stream.try_clone()?;
    // The set-up runs in a thread, because the crate `vhost` waits for an answer for ever, whatever the socket's timeout.
    let (sender, receiver) = channel();
    let for_thread = options.clone();
    std::thread::spawn(move || sender.send(set_up::<T>(&for_thread, stream)));
    match receiver.recv_timeout(SETUP_TIMEOUT) {
        Ok(device) => device,
        Err(RecvTimeoutError::Timeout) => {
            // Ends the thread. A failure does not matter, because nothing depends on the thread.
            let _ = connection.shutdown(Shutdown::Both);
            let why = "it does not answer; is another client connected to it, or is it an NVMe disk (--device nvme)?";
            Err(Error::Connect(why.into()))
        }
        Err(RecvTimeoutError::Disconnected) => Err(Error::Protocol("the set-up thread panicked")),
    }
}

fn set_up<T>(options: &Options, stream: UnixStream) -> Result<Device<VirtioQueue<T>>, Error> {
    let connection = stream.try_clone()?.into();
    let mut target = Frontend::from_stream(stream, options.queues.into());
    let (features, has_mq) = negotiate(options, &mut target)?;
    let config = Config::read(&mut target)?;
    let queues_max = if has_mq { target.get_queue_num().map_err(refused("the number of queues"))? } else { 1 };
    let capacity_bytes = config.capacity_sectors.saturating_mul(SECTOR_BYTES);
    check_device(options, features, &config, capacity_bytes, queues_max)?;

    let event_idx = features & EVENT_IDX != 0;
    let layout = Layout::new(options.in_flight_max(), options.block_size_bytes);
    let count = usize::from(options.queues);
    // One region, as some targets take only a few.
    let memory = file(count * layout.len())?;
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: FIRST_ADDRESS,
        memory_size: (count * layout.len()) as u64,
        userspace_addr: FIRST_ADDRESS,
        mmap_offset: 0,
        mmap_handle: memory.as_raw_fd(),
    };
    target.set_mem_table(&[region]).map_err(refused("memory"))?;
    let start = |index: usize| {
        let at = index * layout.len();
        let queue =
            VirtioQueue::new(Memory::map(&memory, at, layout.len(), FIRST_ADDRESS + at as u64)?, layout, event_idx)?;
        start_queue(&mut target, index, &queue, layout).map_err(refused("a queue"))?;
        Ok(queue)
    };
    let queues = (0..count).map(start).collect::<Result<_, Error>>()?;
    Ok(Device { queues, capacity_bytes, event_idx, is_mapped: false, connection })
}

/// Agrees on features. Returns those of virtio, and whether the target may have several queues.
fn negotiate(options: &Options, target: &mut Frontend) -> Result<(u64, bool), Error> {
    let needed = VhostUserProtocolFeatures::REPLY_ACK | VhostUserProtocolFeatures::CONFIG;
    let stranger = |error: vhost::Error| {
        Error::Connect(format!(
            "{error}; is another client connected, as a disk serves one at a time, or is it an NVMe disk (--device nvme)?"
        ))
    };
    target.set_owner().map_err(stranger)?;
    let has_protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    let offered = target.get_features().map_err(stranger)?;
    if offered & has_protocol == 0 {
        return Err(Error::Missing("vhost-user protocol features".into()));
    }
    let protocol = target.get_protocol_features().map_err(stranger)?;
    if !protocol.contains(needed) {
        return Err(Error::Missing("one of the vhost-user protocol features REPLY_ACK and CONFIG".into()));
    }
    let protocol = protocol & (needed | VhostUserProtocolFeatures::MQ);
    target.set_protocol_features(protocol).map_err(stranger)?;
    target.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    let mut wanted = VERSION_1 | READ_ONLY | BLK_SIZE | FLUSH | MQ | has_protocol;
    if options.event_idx {
        wanted |= EVENT_IDX;
    }
    target.set_features(offered & wanted).map_err(refused("features"))?;
    Ok((offered & wanted, protocol.contains(VhostUserProtocolFeatures::MQ)))
}

fn start_queue<T>(
    target: &mut Frontend,
    index: usize,
    queue: &VirtioQueue<T>,
    layout: Layout,
) -> Result<(), vhost::Error> {
    let addresses = VringConfigData {
        queue_max_size: layout.entries,
        queue_size: layout.entries,
        flags: 0,
        desc_table_addr: queue.address(0),
        used_ring_addr: queue.address(layout.used),
        avail_ring_addr: queue.address(layout.available),
        log_addr: None,
    };
    let (call, kick) = queue.eventfds();
    target.set_vring_num(index, layout.entries)?;
    target.set_vring_base(index, 0)?;
    target.set_vring_addr(index, &addresses)?;
    target.set_vring_call(index, call)?;
    target.set_vring_kick(index, kick)?;
    target.set_vring_enable(index, true)
}

/// The error for a target that answered `what` with no.
fn refused(what: &str) -> impl Fn(vhost::Error) -> Error + '_ {
    move |error| Error::Connect(format!("it refuses {what}: {error}"))
}

/// The part of the configuration space that is needed.
struct Config {
    capacity_sectors: u64,
    block_bytes: u32,
    queues: u16,
}

impl Config {
    fn read(target: &mut Frontend) -> Result<Self, Error> {
        let (_, bytes) = target
            .get_config(0, CONFIG_BYTES as u32, VhostUserConfigFlags::empty(), &[0; CONFIG_BYTES])
            .map_err(refused("its configuration"))?;
        Ok(Self {
            capacity_sectors: u64::from_le_bytes(std::array::from_fn(|i| bytes[i])),
            block_bytes: u32::from_le_bytes(std::array::from_fn(|i| bytes[20 + i])),
            queues: u16::from_le_bytes(std::array::from_fn(|i| bytes[34 + i])),
        })
    }
}

fn check_device(
    options: &Options,
    features: u64,
    config: &Config,
    capacity_bytes: u64,
    queues_max: u64,
) -> Result<(), Error> {
    let by_config = if features & MQ != 0 { config.queues.into() } else { 1 };
    let offered = queues_max.min(by_config);
    let device_block = if features & BLK_SIZE != 0 { config.block_bytes } else { SECTOR_BYTES as u32 };

    need(features & VERSION_1 != 0, "VIRTIO_F_VERSION_1".into())?;
    need(u64::from(options.queues) <= offered, format!("{}: it has {offered}", counted(options.queues, "queue")))?;
    let writes = options.write_share_percent() > 0;
    need(!(writes && features & READ_ONLY != 0), "writing: it is read-only".into())?;
    let flush = options.fsync_every.is_none() || features & FLUSH != 0;
    need(flush, "VIRTIO_BLK_F_FLUSH, which --fsync-every needs".into())?;
    let aligned = options.block_size_bytes >= device_block;
    need(aligned, format!("blocks of {} bytes: its own have {device_block}", options.block_size_bytes))?;
    check_space(options, capacity_bytes)
}
