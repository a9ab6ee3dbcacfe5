//! The back end of the vhost-user protocol: a front end (a virtual machine monitor, or our load generator) shares the
//! memory and the rings of its guest.
//!
//! The crate `vhost-user-backend` is not used. Its threads wait without a time limit, so a deadline would need a timer.
//! It cannot resume requests after a restart. It stops a ring without waiting for the requests in flight.

pub mod blk;
pub mod chain;
pub mod channel;
pub mod dirty_log;
pub mod front_end;
pub mod inflight;
pub mod memory;
pub mod vring;

use crate::disk::Disk;
use crate::os::bus_error::Peer;
use crate::os::call::{Call, CallRings};
use crate::os::shared_memory::{Protection, SharedMapping};
use crate::queue::{Control, Part, QueueHandle};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use coalesce_cli::counted;
use dirty_log::{DirtyLog, LOG_LEN_MAX, Logs};
use inflight::{InflightRegion, region_len};
use memory::{GuestMemory, GuestRegion, Regions};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tracing::{info, warn};
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight, VhostUserLog,
    VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Backend, Error, GpuBackend, Result as Answer, VhostUserBackendReqHandlerMut};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vm_memory::{
    GuestAddress, GuestMemory as _, GuestMemoryBackend as _, GuestMemoryRegion as _, Permissions, VolatileMemory as _,
};
use vmm_sys_util::eventfd::EventFd;
use vring::{Broken, Position, Setup, Vring};

/// The largest queue size, in entries.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// The most regions of guest memory: as many as the kernel's vhost has, and QEMU uses.
const MEMORY_SLOTS: u64 = 509;
/// The largest in-flight record, in bytes: the size of a huge page, and more than all queues need.
pub const INFLIGHT_LEN_MAX: u64 = 2 << 20;

/// Bytes of an in-flight record behind those of its queues: the first says how the guest has set its write cache. 0: not yet.
const CACHE_MODE_LEN: u64 = 64;
const WRITE_BACK: u8 = 1;
const WRITE_THROUGH: u8 = 2;

/// A region of guest memory. The front end gives the addresses of rings in its own address space, so the region's place
/// there is needed too.
#[derive(Debug)]
struct Mapping {
    front_end: u64,
    guest: u64,
    size: u64,
}

/// A ring as the front end has configured it.
#[derive(Debug, Default)]
struct RingState {
    size: u16,
    addresses: Option<[u64; 3]>,
    next_avail: u16,
    is_enabled: bool,
    is_away: bool, // it is in no guest memory, and rests until it is again
    used_in_log: Option<GuestAddress>,
    phase: Phase,
}

impl RingState {
    /// Whether all of it is in guest memory.
    fn is_in(&self, memory: &GuestMemory) -> bool {
        let Some([descriptors, available, used]) = self.addresses else { return false };
        let size = u64::from(self.size);
        [(descriptors, 16 * size), (available, 6 + 2 * size), (used, used_ring_len(self.size))]
            .into_iter()
            .all(|(at, len)| memory.check_range(GuestAddress(at), len as usize, Permissions::ReadWrite))
    }

    /// Has the queue take requests, or not.
    fn apply(&self, queue: &QueueHandle<Vring>) {
        if matches!(self.phase, Phase::Running) {
            queue.ask(|answer| Control::Enable(self.is_enabled && !self.is_away, answer));
        }
    }
}

/// Whether a queue serves a ring.
#[derive(Debug)]
enum Phase {
    /// No queue serves it. These eventfds are for its next start.
    Stopped(Box<Eventfds>),
    /// A queue serves it, and has its eventfds.
    Running,
}

impl Default for Phase {
    fn default() -> Self {
        Self::Stopped(Box::default())
    }
}

#[derive(Debug, Default)]
struct Eventfds {
    kick: Option<EventFd>,
    call: Option<Call>,
    error: Option<Call>,
}

/// One connection of a front end to one disk.
#[derive(Debug)]
pub struct Connection {
    disk: Arc<Disk>,
    queues: Arc<[QueueHandle<Vring>]>,
    event_idx: bool,
    features: u64,
    front_end: Arc<Peer>,
    mappings: Vec<Mapping>,
    memory: Arc<GuestMemory>,
    rings: Vec<RingState>,
    inflight: Option<InflightRegion>,
    cache_mode_at: Option<usize>, // in the in-flight record, if that has room for it
    log: Option<Arc<DirtyLog>>,
    next_channel: Option<UnixStream>, // of the message that is about to be handled
    channel: Option<UnixStream>,      // on which the front end hears from here
}

impl Connection {
    /// A new connection over `stream`. `event_idx`: whether to offer EVENT_IDX.
    #[must_use]
    pub fn new(disk: Arc<Disk>, queues: Arc<[QueueHandle<Vring>]>, event_idx: bool, stream: OwnedFd) -> Self {
        let rings = queues.iter().map(|_| RingState::default()).collect();
        Self {
            disk,
            queues,
            event_idx,
            features: 0,
            front_end: Arc::new(Peer::new(stream)),
            mappings: Vec::new(),
            memory: Arc::default(),
            rings,
            inflight: None,
            cache_mode_at: None,
            log: None,
            next_channel: None,
            channel: None,
        }
    }

    /// The channel that the next message offers, if it is that message: see [`channel`].
    pub fn expect_channel(&mut self, channel: Option<UnixStream>) {
        self.next_channel = channel;
    }

    /// Whether the front end can be told that the configuration space has changed.
    #[must_use]
    pub const fn has_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// Tells the front end that the configuration space has changed; it reads that, and tells its guest. A front end that does
    /// not read from the channel is not told any more.
    pub fn announce_config(&mut self) {
        let Some(channel) = &self.channel else { return };
        if let Err(error) = channel::announce_config(channel) {
            warn!(
                disk = self.disk.name,
                "the front end takes no message, so its guest is not told of the size: {error}"
            );
            self.channel = None;
        }
    }

    fn offered(&self) -> u64 {
        let mut bits = vec![
            VIRTIO_F_VERSION_1,
            VIRTIO_RING_F_INDIRECT_DESC,
            VIRTIO_BLK_F_SEG_MAX,
            VIRTIO_BLK_F_BLK_SIZE,
            VIRTIO_BLK_F_FLUSH,
            VIRTIO_BLK_F_TOPOLOGY,
            VIRTIO_BLK_F_CONFIG_WCE,
            VIRTIO_BLK_F_MQ,
        ];
        bits.extend(self.event_idx.then_some(VIRTIO_RING_F_EVENT_IDX));
        bits.extend(match self.disk.limits.read_only {
            true => [VIRTIO_BLK_F_RO; 2],
            false => [VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES],
        });
        let mut of_protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES;
        of_protocol.set(VhostUserVirtioFeatures::LOG_ALL, self.disk.backend.is_migratable());
        bits.into_iter().fold(of_protocol.bits(), |all, bit| all | 1 << bit)
    }

    fn ring(&mut self, index: impl Into<u64>) -> Result<(&mut RingState, &QueueHandle<Vring>)> {
        let (index, n) = (index.into(), self.rings.len());
        let ring = usize::try_from(index).ok().and_then(|i| self.rings.get_mut(i).zip(self.queues.get(i)));
        ring.with_context(|| format!("there is no queue {index}; allowed: 0 to {}", n - 1))
    }

    /// What to do if the front end shares no memory at all.
    fn hint(&self) -> &'static str {
        if self.mappings.is_empty() { ": QEMU needs share=on for its memory backend" } else { "" }
    }

    /// Translates an address of the front end's address space into a guest address.
    fn to_guest(&self, address: u64) -> Result<u64> {
        let inside = |mapping: &&Mapping| address.checked_sub(mapping.front_end).is_some_and(|at| at < mapping.size);
        let mapping = self.mappings.iter().find(inside);
        let mapping = mapping
            .with_context(|| format!("{address:#x} is outside the memory that the front end shares{}", self.hint()))?;
        Ok(address - mapping.front_end + mapping.guest)
    }

    /// The end of guest memory.
    fn end_of_memory(&self) -> u64 {
        self.memory.regions().iter().map(|region| region.start_addr().0 + region.len()).max().unwrap_or(0)
    }

    /// What is logged of a ring's writes.
    fn logs(&self, ring: &RingState) -> Result<Logs> {
        let Some(log) = &self.log else { return Ok(Logs::default()) };
        let covered = |end: u64| {
            let (size, needed) = (log.size(), DirtyLog::needed(end));
            ensure!(
                needed <= size,
                "the log of dirty pages has {size} bytes; up to address {end:#x} it needs {needed}"
            );
            Ok(log.clone())
        };
        let logs_data = self.features & VhostUserVirtioFeatures::LOG_ALL.bits() != 0;
        let used = |at: GuestAddress| {
            let len = used_ring_len(ring.size);
            let end = at.0.checked_add(len).with_context(|| format!("a used ring at {:#x} exceeds the log", at.0))?;
            Ok::<_, anyhow::Error>((covered(end)?, at))
        };
        Ok(Logs {
            data: logs_data.then(|| covered(self.end_of_memory())).transpose()?,
            used: ring.used_in_log.map(used).transpose()?,
        })
    }

    /// Sets for every queue what it logs. Returns when all know, because the front end then reads the log.
    fn set_logs(&self) -> Result<()> {
        for (ring, queue) in self.rings.iter().zip(self.queues.iter()) {
            let logs = self.logs(ring)?;
            if matches!(ring.phase, Phase::Running) {
                queue.change(Part::Other, move |vring| vring.set_logs(logs));
            }
        }
        Ok(())
    }

    /// Changes the guest memory. Returns when every queue uses it, because the front end may unmap memory once it has
    /// the answer. A layout changes region by region: a ring that is in none for a while completes what is in flight, and
    /// rests. Gives what was there before.
    fn set_memory(&mut self, memory: Regions) -> Result<Arc<GuestMemory>> {
        let memory = Arc::new(GuestMemory::from(memory));
        for (ring, queue) in self.rings.iter_mut().zip(self.queues.iter()) {
            if matches!(ring.phase, Phase::Running) && !ring.is_away && !ring.is_in(&memory) {
                queue.ask(Control::Drain);
                ring.is_away = true;
            }
        }
        let old = std::mem::replace(&mut self.memory, memory);
        self.set_logs()?;
        for (ring, queue) in self.rings.iter_mut().zip(self.queues.iter()) {
            let memory = self.memory.clone();
            queue.change(Part::Other, move |vring| vring.set_memory(memory));
            if ring.is_away && ring.is_in(&self.memory) {
                ring.is_away = false;
                ring.apply(queue);
            }
        }
        Ok(old)
    }

    /// What of the negotiated features matters to a ring: EVENT_IDX and FLUSH.
    fn ring_features(&self) -> (bool, bool) {
        let has = |feature: u32| self.features & 1 << feature != 0;
        (has(VIRTIO_RING_F_EVENT_IDX), has(VIRTIO_BLK_F_FLUSH))
    }

    /// Tells running rings what was negotiated anew: legacy drivers may kick before they have said what they can.
    fn set_ring_features(&self) {
        let (event_idx, can_flush) = self.ring_features();
        for queue in self.queues.iter() {
            queue.change(Part::Interrupt, move |vring| vring.set_features(event_idx, can_flush));
        }
    }

    /// Starts a ring if the front end has sent everything that a start needs.
    fn start(&mut self, index: u8) -> Result<()> {
        let (event_idx, can_flush) = self.ring_features();
        let inflight = self.inflight.clone().map(|region| (region, usize::from(index)));
        let (memory, disk) = (self.memory.clone(), self.disk.clone());
        let logs = self.rings.get(usize::from(index)).map_or(Ok(Logs::default()), |ring| self.logs(ring))?;
        let is_first = !self.is_running();
        let (ring, queue) = self.ring(index)?;
        let (Some(addresses), Phase::Stopped(eventfds)) = (ring.addresses, &mut ring.phase) else { return Ok(()) };
        let Some(kick) = eventfds.kick.take() else { return Ok(()) };
        if is_first {
            disk.backend.claim()?;
        }
        let setup = Setup { size: ring.size, addresses, next_avail: ring.next_avail, event_idx, can_flush, inflight };
        let mut vring = Vring::start(setup, memory, kick).map_err(|Broken(why)| anyhow!(why))?;
        vring.set_logs(logs);
        vring.set_call(eventfds.call.take());
        vring.set_error(eventfds.error.take());
        let to_take_over = vring.to_take_over();
        if to_take_over > 0 {
            info!(disk = disk.name, queue = u64::from(index), "takes over {}", counted(to_take_over as u64, "request"));
        }
        queue.send(Control::Start(Box::new(vring), ring.is_enabled));
        ring.phase = Phase::Running;
        ring.is_away = false;
        Ok(())
    }

    fn stop(&mut self, index: u32) -> Result<Position> {
        let (ring, queue) = self.ring(index)?;
        let mut position = Position { next_avail: ring.next_avail, is_broken: false };
        if matches!(std::mem::take(&mut ring.phase), Phase::Running)
            && let Some(Some(stopped)) = queue.ask(Control::Stop)
        {
            position = stopped;
            ring.next_avail = position.next_avail;
        }
        if !self.is_running() {
            self.disk.backend.release(); // everything in flight has completed
        }
        Ok(position)
    }

    /// Whether a queue serves a ring.
    fn is_running(&self) -> bool {
        self.rings.iter().any(|ring| matches!(ring.phase, Phase::Running))
    }

    fn stop_all(&mut self) {
        for index in 0..self.rings.len() {
            let _ = self.stop(index as u32); // the index exists
        }
    }

    /// Maps the in-flight record.
    fn map_inflight(&mut self, file: File, inflight: &VhostUserInflight) -> Result<()> {
        self.check_inflight(inflight)?;
        let (size, len) = (inflight.mmap_size, inflight_len(inflight));
        let is_allowed = (len..=INFLIGHT_LEN_MAX).contains(&size);
        ensure!(is_allowed, "the in-flight record has {size} bytes; allowed: {len} to {INFLIGHT_LEN_MAX}");
        let region =
            SharedMapping::new(file, inflight.mmap_offset, size, Protection::ReadWrite, self.front_end.clone())?;
        self.inflight = Some(InflightRegion { region: Arc::new(region), entries: inflight.queue_size });
        self.cache_mode_at = (size >= len + CACHE_MODE_LEN).then_some(len as usize);
        match self.cache_mode().map(|mode| mode.load(Ordering::Acquire)) {
            Some(WRITE_BACK) => self.disk.write_back.store(true, Ordering::Relaxed),
            Some(WRITE_THROUGH) => self.disk.write_back.store(false, Ordering::Relaxed),
            _ => self.record_cache_mode(),
        }
        Ok(())
    }

    /// Where the in-flight record says how the guest has set its write cache. A guest that has switched it off sends no flushes, and
    /// its front end says so once only: QEMU does not repeat SET_CONFIG when it connects again.
    fn cache_mode(&self) -> Option<&AtomicU8> {
        self.inflight.as_ref()?.region.get_atomic_ref(self.cache_mode_at?).ok()
    }

    fn record_cache_mode(&self) {
        if let Some(mode) = self.cache_mode() {
            let is_write_back = self.disk.write_back.load(Ordering::Relaxed);
            mode.store(if is_write_back { WRITE_BACK } else { WRITE_THROUGH }, Ordering::Release);
        }
    }

    /// A guest that has switched its write cache off sends no flushes for what it wrote before, be it still in flight. A failure fails
    /// its flushes from now on, and is logged.
    fn empty_cache(&self) {
        for (ring, queue) in self.rings.iter().zip(self.queues.iter()) {
            if matches!(ring.phase, Phase::Running) {
                queue.ask(Control::Drain);
                ring.apply(queue);
            }
        }
        let _ = self.disk.backend.flush_now();
    }

    fn check_inflight(&self, inflight: &VhostUserInflight) -> Result<()> {
        let (queues, most) = (inflight.num_queues, self.queues.len());
        let is_allowed = (1..=most).contains(&usize::from(queues));
        ensure!(is_allowed, "the number of queues is {queues}; allowed: 1 to {most}");
        check_queue_size(inflight.queue_size).map(drop)
    }

    /// Maps a region of guest memory. `others` is the number of bytes already mapped.
    fn map(&self, region: &VhostUserMemoryRegion, file: File, others: u64) -> Result<GuestRegion> {
        let (guest, size, max_memory) = (region.guest_phys_addr, region.memory_size, self.disk.limits.max_memory);
        let is_allowed = others.checked_add(size).is_some_and(|all| all <= max_memory);
        ensure!(is_allowed, "guest memory has {others} + {size} bytes: max_memory allows {max_memory}");
        let leaves = || anyhow!("{size} bytes at {guest:#x} exceed the address space");
        region.user_addr.checked_add(size).ok_or_else(leaves)?;
        let front_end = self.front_end.clone();
        let mapping = SharedMapping::new(file, region.mmap_offset, size, Protection::ReadWrite, front_end)?;
        GuestRegion::new(mapping, GuestAddress(guest)).ok_or_else(leaves)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop_all();
        if let Some(what) = self.front_end.lost() {
            warn!(disk = self.disk.name, "memory that the front end shares {what}: its connection was closed");
        }
    }
}

fn unsupported<T>() -> Answer<T> {
    Err(Error::InvalidOperation("not supported by this device"))
}

/// The answer to a message. An error closes the connection, and its text is logged.
fn answer<T>(message: &str, handle: impl FnOnce() -> Result<T>) -> Answer<T> {
    handle().map_err(|why| Error::ReqHandlerError(io::Error::other(format!("{message}: {why:#}"))))
}

fn check_queue_size(size: impl TryInto<u16> + Display + Copy) -> Result<u16> {
    let is_allowed = |size: &u16| size.is_power_of_two() && *size <= QUEUE_SIZE_MAX;
    let why = || format!("the size of a ring is {size}; allowed: powers of two up to {QUEUE_SIZE_MAX}");
    size.try_into().ok().filter(is_allowed).with_context(why)
}

/// The size of a used ring of `size` entries, with the index of the next kick.
fn used_ring_len(size: u16) -> u64 {
    6 + 8 * u64::from(size)
}

/// The size of the in-flight record of all queues, in bytes.
fn inflight_len(inflight: &VhostUserInflight) -> u64 {
    (region_len(inflight.queue_size) * usize::from(inflight.num_queues)) as u64
}

/// The eventfd that a guest kicks. Any other file is refused, because polling it could block for ever.
fn kick(file: File, rings: &CallRings) -> Result<EventFd> {
    rings.call(&file)?; // the kernel checks that it is an eventfd
    // SAFETY: the descriptor is open, and nobody else owns it.
    Ok(unsafe { EventFd::from_raw_fd(file.into_raw_fd()) })
}

impl VhostUserBackendReqHandlerMut for Connection {
    fn set_owner(&mut self) -> Answer<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Answer<()> {
        self.stop_all();
        Ok(())
    }

    /// Everything that the guest's driver, or the front end for it, sets up anew. Guest memory and the log of dirty pages are not
    /// the device's. Nor is the mode of the write cache: QEMU keeps the configuration space, also after a reset of its guest (from
    /// 9.1 on it sends this message then). The next driver reads there that the cache is off, and sends no flushes.
    fn reset_device(&mut self) -> Answer<()> {
        self.stop_all();
        if let Some(inflight) = self.inflight.take() {
            (0..self.rings.len()).for_each(|index| inflight.forget(index));
        }
        self.rings.fill_with(RingState::default);
        self.features = 0;
        Ok(())
    }

    fn get_features(&mut self) -> Answer<u64> {
        Ok(self.offered())
    }

    fn set_features(&mut self, features: u64) -> Answer<()> {
        answer("SET_FEATURES", || {
            let offered = self.offered();
            // Without VERSION_1 the driver is a legacy one. In a guest with our byte order its rings and requests are the
            // same; for any other order QEMU wants a protocol feature that is not offered.
            ensure!(features & !offered == 0, "the features are {features:#x}; offered: {offered:#x}");
            let before = std::mem::replace(&mut self.features, features);
            if (before ^ features) & (1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_BLK_F_FLUSH) != 0 {
                self.set_ring_features();
            }
            if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
                for (ring, queue) in self.rings.iter_mut().zip(self.queues.iter()) {
                    ring.is_enabled = true; // without the feature no message enables it
                    ring.apply(queue);
                }
            }
            self.set_logs()
        })
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Answer<Option<Vec<VhostUserMemoryRegionBase>>> {
        answer("SET_MEM_TABLE", || {
            let mut mapped = Vec::new();
            let mut size = 0;
            for (region, file) in regions.iter().zip(files) {
                mapped.push(self.map(region, file, size)?);
                size += region.memory_size;
            }
            mapped.sort_unstable_by_key(|region| region.start_addr());
            let memory = Regions::from_regions(mapped)?;
            self.mappings = regions
                .iter()
                .map(|r| Mapping { front_end: r.user_addr, guest: r.guest_phys_addr, size: r.memory_size })
                .collect();
            memory::give_back(self.set_memory(memory)?);
            Ok(None)
        })
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Answer<()> {
        answer("SET_VRING_NUM", || {
            self.ring(index)?.0.size = check_queue_size(num)?;
            Ok(())
        })
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        used_in_log: u64,
    ) -> Answer<()> {
        answer("SET_VRING_ADDR", || {
            let addresses = [self.to_guest(descriptors)?, self.to_guest(available)?, self.to_guest(used)?];
            let ring = self.ring(index)?.0;
            ring.addresses = Some(addresses);
            let is_logged = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG);
            ring.used_in_log = is_logged.then_some(GuestAddress(used_in_log));
            self.set_logs()
        })
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Answer<()> {
        answer("SET_VRING_BASE", || {
            let base = u16::try_from(base).map_err(|_| anyhow!("the base is {base}; allowed: 0 to 65535"))?;
            self.ring(index)?.0.next_avail = base;
            Ok(())
        })
    }

    fn get_vring_base(&mut self, index: u32) -> Answer<VhostUserVringState> {
        answer("GET_VRING_BASE", || {
            let Position { next_avail, is_broken } = self.stop(index)?;
            // A front end that stops a ring itself expects no request of it again.
            if let Some(inflight) = self.inflight.as_ref().filter(|_| is_broken) {
                inflight.forget(index as usize);
            }
            Ok(VhostUserVringState::new(index, u32::from(next_avail)))
        })
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Answer<()> {
        answer("SET_VRING_KICK", || {
            let file = file.context("a ring without kicks is not supported")?;
            let kick = kick(file, &self.disk.call_rings)?;
            let (ring, queue) = self.ring(index)?;
            match &mut ring.phase {
                Phase::Running => queue.change(Part::Kick, move |vring| vring.set_kick(kick)),
                Phase::Stopped(eventfds) => eventfds.kick = Some(kick),
            }
            self.start(index)
        })
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Answer<()> {
        answer("SET_VRING_CALL", || {
            let call = file.as_ref().map(|file| self.disk.call_rings.call(file)).transpose()?;
            let (ring, queue) = self.ring(index)?;
            match &mut ring.phase {
                Phase::Running => queue.change(Part::Interrupt, move |vring| vring.set_call(call)),
                Phase::Stopped(eventfds) => eventfds.call = call,
            }
            Ok(())
        })
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Answer<()> {
        answer("SET_VRING_ERR", || {
            let error = file.as_ref().map(|file| self.disk.call_rings.call(file)).transpose()?;
            let (ring, queue) = self.ring(index)?;
            match &mut ring.phase {
                Phase::Running => queue.change(Part::Other, move |vring| vring.set_error(error)),
                Phase::Stopped(eventfds) => eventfds.error = error,
            }
            Ok(())
        })
    }

    fn get_protocol_features(&mut self) -> Answer<VhostUserProtocolFeatures> {
        let mut features = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::RESET_DEVICE;
        features.set(VhostUserProtocolFeatures::LOG_SHMFD, self.disk.backend.is_migratable());
        Ok(features)
    }

    fn set_protocol_features(&mut self, _: u64) -> Answer<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Answer<u64> {
        Ok(self.queues.len() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Answer<()> {
        answer("SET_VRING_ENABLE", || {
            let (ring, queue) = self.ring(index)?;
            ring.is_enabled = enable;
            ring.apply(queue);
            Ok(())
        })
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Answer<Vec<u8>> {
        let write_back = self.disk.write_back.load(Ordering::Relaxed);
        let mut bytes = blk::config_space(&self.disk.limits, self.queues.len() as u16, write_back);
        let (start, len) = (offset as usize, size as usize);
        bytes.resize(bytes.len().max(start.saturating_add(len)), 0); // fields that are not offered read as zeroes
        bytes.get(start..start + len).map(<[u8]>::to_vec).ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, offset: u32, bytes: &[u8], _: VhostUserConfigFlags) -> Answer<()> {
        answer("SET_CONFIG", || match (offset, bytes) {
            (blk::CONFIG_WRITEBACK, [value @ 0..=1]) => {
                let was_write_back = self.disk.write_back.swap(*value == 1, Ordering::Relaxed);
                self.record_cache_mode();
                if was_write_back && *value == 0 {
                    self.empty_cache();
                }
                Ok(())
            }
            _ => bail!("{bytes:?} at {offset}: only writeback (at 32) can be set, to 0 or 1"),
        })
    }

    /// The crate has checked the message and the socket. Its `Backend` cannot announce a new configuration.
    fn set_backend_req_fd(&mut self, _: Backend) {
        self.channel = self.next_channel.take();
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Answer<(VhostUserInflight, File)> {
        answer("GET_INFLIGHT_FD", || {
            self.check_inflight(wanted)?;
            let size = inflight_len(wanted) + CACHE_MODE_LEN;
            let file = File::from(memfd_create(c"inflight", MFdFlags::MFD_CLOEXEC)?);
            (&file).write_all(&vec![0; usize::try_from(size)?])?; // the sandbox refuses ftruncate
            let inflight = VhostUserInflight::new(size, 0, wanted.num_queues, wanted.queue_size);
            self.map_inflight(file.try_clone()?, &inflight)?;
            Ok((inflight, file))
        })
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Answer<()> {
        answer("SET_INFLIGHT_FD", || self.map_inflight(file, inflight))
    }

    fn get_max_mem_slots(&mut self) -> Answer<u64> {
        Ok(MEMORY_SLOTS)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Answer<Option<VhostUserMemoryRegionBase>> {
        answer("ADD_MEM_REG", || {
            if self.mappings.len() as u64 >= MEMORY_SLOTS {
                bail!("guest memory already has {MEMORY_SLOTS} regions, which is the limit");
            }
            let region_here = self.map(region, file, self.memory.regions().iter().map(GuestRegion::len).sum())?;
            let memory = self.memory.regions().insert_region(Arc::new(region_here))?;
            let (front_end, guest, size) = (region.user_addr, region.guest_phys_addr, region.memory_size);
            self.mappings.push(Mapping { front_end, guest, size });
            drop(self.set_memory(memory)?); // its regions are in use as before
            Ok(None)
        })
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Answer<()> {
        answer("REM_MEM_REG", || {
            let address = GuestAddress(region.guest_phys_addr);
            let (memory, _) = self.memory.regions().remove_region(address, region.memory_size)?;
            self.mappings.retain(|mapping| mapping.guest != region.guest_phys_addr);
            memory::give_back(self.set_memory(memory)?);
            Ok(())
        })
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Answer<()> {
        unsupported()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Answer<File> {
        unsupported()
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Answer<Option<File>> {
        unsupported()
    }

    fn check_device_state(&mut self) -> Answer<()> {
        unsupported()
    }

    fn get_shmem_config(&mut self) -> Answer<VhostUserShMemConfig> {
        unsupported()
    }

    /// `SET_LOG_FD`, an eventfd for a log that was written, has no handler in the crate `vhost`, and QEMU never sends it.
    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Answer<()> {
        answer("SET_LOG_BASE", || {
            let size = log.mmap_size;
            ensure!(size <= LOG_LEN_MAX, "the log has {size} bytes; allowed: 1 to {LOG_LEN_MAX}");
            let front_end = self.front_end.clone();
            let mapping = SharedMapping::new(file, log.mmap_offset, size, Protection::ReadWrite, front_end)?;
            self.log = Some(Arc::new(DirtyLog::new(mapping)));
            self.set_logs()
        })
    }
}
