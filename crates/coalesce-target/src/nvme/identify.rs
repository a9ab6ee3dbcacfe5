//! What the controller says of itself: the data of Identify (NVMe 1.4 §5.15) and of log pages (§5.14).

use super::admin::{EVENT_REQUESTS_MAX, Fault};
use super::features::{CRITICAL_KELVIN, HOT, KELVIN, NAMESPACE_NOTICES, WARNING_KELVIN};
use super::spec::{MDTS, NSID, VERSION, admin, log, nvm};
use crate::disk::{Counter, Disk, QueueTotals};
use std::os::unix::ffi::OsStrExt as _;

/// PCI vendor and device. Nobody has assigned them to us; drivers bind to the class.
pub const VENDOR: u16 = 0x1cc0;
/// As above.
pub const DEVICE: u16 = 0xc0a1;

/// Bytes of an Identify data structure.
pub const IDENTIFY_LEN: usize = 4096;

const MODEL: &str = "coalesce-target NVMe disk";
const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

/// A data structure with numbers and texts at given offsets.
struct Page(Vec<u8>);

impl Page {
    fn new(len: usize) -> Self {
        Self(vec![0; len])
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn put16(&mut self, offset: usize, value: u16) {
        self.put(offset, &value.to_le_bytes());
    }

    fn put32(&mut self, offset: usize, value: u32) {
        self.put(offset, &value.to_le_bytes());
    }

    fn put64(&mut self, offset: usize, value: u64) {
        self.put(offset, &value.to_le_bytes());
    }

    /// A text of `len` bytes, padded with spaces. What is not printable becomes `?`.
    fn put_text(&mut self, offset: usize, len: usize, text: &[u8]) {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let shown = text[..end].iter().map(|byte| if (b' '..=b'~').contains(byte) { *byte } else { b'?' });
        let bytes: Vec<_> = shown.chain(std::iter::repeat(b' ')).take(len).collect();
        self.put(offset, &bytes);
    }
}

/// A number that another disk is unlikely to have, and that this one keeps: FNV-1a of its name, serial number and place.
/// A guest refuses the second of two controllers with the same number.
fn unique_id(disk: &Disk) -> [u8; 16] {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let place = disk.place.as_os_str().as_bytes();
    let bytes = disk.name.bytes().chain([0]).chain(disk.limits.serial).chain(place.iter().copied());
    bytes.fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)).to_be_bytes()
}

/// The controller (CNS 01h). `has_shadow`: whether Doorbell Buffer Config is offered.
#[must_use]
pub fn controller(disk: &Disk, has_shadow: bool) -> Vec<u8> {
    let mut page = Page::new(IDENTIFY_LEN);
    page.put16(0, VENDOR);
    page.put16(2, VENDOR); // subsystem
    page.put_text(4, 20, &disk.limits.serial);
    page.put_text(24, 40, MODEL.as_bytes());
    page.put_text(64, 8, FIRMWARE.as_bytes());
    page.0[77] = MDTS;
    page.put32(80, VERSION);
    page.put32(92, NAMESPACE_NOTICES); // the only optional events
    page.0[111] = 1; // an I/O controller
    page.put16(256, u16::from(has_shadow) << 8); // Doorbell Buffer Config
    page.0[258] = 3; // Abort Command Limit, 0's based
    page.0[259] = EVENT_REQUESTS_MAX as u8 - 1; // 0's based
    page.0[260] = 1 << 1 | 1; // one firmware slot, read only
    page.0[261] = 1 << 2 | 1 << 1; // log pages: extended data, effects of commands
    page.put16(266, WARNING_KELVIN);
    page.put16(268, CRITICAL_KELVIN);
    page.0[512] = 0x66; // submission queue entries: 2^6 bytes
    page.0[513] = 0x44; // completion queue entries: 2^4 bytes
    page.put32(516, NSID); // the number of namespaces
    page.put16(520, 1 << 3 | 1 << 2); // Write Zeroes, Dataset Management
    page.0[525] = 0b11 << 1 | 1; // a write cache, and Flush for all namespaces
    let id = unique_id(disk).map(|byte| format!("{byte:02x}")).concat();
    let (a, b, c, d, e) = (&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]);
    page.put(768, format!("nqn.2014-08.org.nvmexpress:uuid:{a}-{b}-{c}-{d}-{e}").as_bytes());
    page.put16(2048, 1000); // power state 0: at most 10 W
    page.0
}

/// The namespace (CNS 00h).
#[must_use]
pub fn namespace(disk: &Disk) -> Vec<u8> {
    let mut page = Page::new(IDENTIFY_LEN);
    let blocks = disk.limits.size.get() / u64::from(disk.limits.block_size);
    for offset in [0, 8, 16] {
        page.put64(offset, blocks); // size, capacity, utilisation
    }
    page.0[33] = 1 << 3; // Write Zeroes may deallocate
    page.0[99] = u8::from(disk.limits.read_only);
    page.put(104, &unique_id(disk));
    page.put32(128, disk.limits.block_size.ilog2() << 16); // format 0
    page.0
}

/// The active namespaces above `nsid` (CNS 02h).
#[must_use]
pub fn active_namespaces(nsid: u32) -> Vec<u8> {
    let mut page = Page::new(IDENTIFY_LEN);
    if nsid < NSID {
        page.put32(0, NSID);
    }
    page.0
}

/// The identifiers of the namespace (CNS 03h).
#[must_use]
pub fn descriptors(disk: &Disk) -> Vec<u8> {
    const NGUID: u8 = 2;
    let mut page = Page::new(IDENTIFY_LEN);
    let id = unique_id(disk);
    page.put(0, &[NGUID, id.len() as u8, 0, 0]);
    page.put(4, &id);
    page.0
}

/// What log pages say that a disk does not know.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The number of errors of the host's doorbells, and the last one with its queue.
    pub faults: (u64, Option<(u16, Fault)>),
    /// Whether the temperature has reached a threshold.
    pub is_hot: bool,
    /// Whether the namespace has changed since the host read that it had.
    pub has_changed: bool,
}

/// A log page; `None`: there is no such page.
#[must_use]
pub fn log_page(page: u8, disk: &Disk, Conditions { faults, is_hot, has_changed }: Conditions) -> Option<Vec<u8>> {
    match page {
        log::ERROR => Some(errors(faults)),
        log::HEALTH => Some(health(disk, faults.0, is_hot)),
        log::FIRMWARE => Some(firmware()),
        log::CHANGED_NAMESPACES => Some(changed_namespaces(has_changed)),
        log::EFFECTS => Some(effects()),
        _ => None,
    }
}

/// The last error. It belongs to no command.
fn errors((count, last): (u64, Option<(u16, Fault)>)) -> Vec<u8> {
    let mut page = Page::new(64);
    if let Some((queue, _)) = last {
        page.put64(0, count);
        page.put16(8, queue);
        page.put16(10, u16::MAX); // no command
        page.put16(14, u16::MAX); // no parameter
    }
    page.0
}

/// SMART / Health Information. What it counts begins when the disk's process starts. A client that connects is a host that
/// switches power on.
fn health(disk: &Disk, errors: u64, is_hot: bool) -> Vec<u8> {
    const UNIT: u64 = 512_000;
    let totals = &disk.totals;
    let sum = |of: fn(&QueueTotals) -> &Counter| totals.queues.iter().map(|queue| of(queue).get()).sum::<u64>();
    let mut page = Page::new(512);
    for (offset, value) in [
        (32, sum(|queue| &queue.bytes_read).div_ceil(UNIT)),
        (48, sum(|queue| &queue.bytes_written).div_ceil(UNIT)),
        (64, sum(|queue| &queue.reads)),
        (80, sum(|queue| &queue.writes)),
        (112, totals.connections.get()),
        (128, disk.epoch.elapsed().as_secs() / 3600),
        (144, totals.lost.get()),
        (160, sum(|queue| &queue.errors)),
        (176, errors),
    ] {
        page.put64(offset, value);
    }
    page.0[0] = if is_hot { HOT as u8 } else { 0 };
    page.put16(1, KELVIN);
    page.put(3, &[100, 10]); // available spare and its threshold, in percent
    page.0
}

fn changed_namespaces(has_changed: bool) -> Vec<u8> {
    let mut page = Page::new(4096);
    page.put32(0, if has_changed { NSID } else { 0 });
    page.0
}

fn firmware() -> Vec<u8> {
    let mut page = Page::new(512);
    page.0[0] = 1; // slot 1 is active
    page.put_text(8, 8, FIRMWARE.as_bytes());
    page.0
}

fn effects() -> Vec<u8> {
    const SUPPORTED: u32 = 1;
    const CHANGES_BLOCKS: u32 = 1 << 1;
    const NVM: usize = 1024;
    let mut page = Page::new(4096);
    for opcode in [
        admin::DELETE_SQ,
        admin::CREATE_SQ,
        admin::GET_LOG_PAGE,
        admin::DELETE_CQ,
        admin::CREATE_CQ,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::DOORBELL_BUFFER_CONFIG,
    ] {
        page.put32(4 * usize::from(opcode), SUPPORTED);
    }
    for opcode in [nvm::FLUSH, nvm::READ] {
        page.put32(NVM + 4 * usize::from(opcode), SUPPORTED);
    }
    for opcode in [nvm::WRITE, nvm::WRITE_ZEROES, nvm::DATASET_MANAGEMENT] {
        page.put32(NVM + 4 * usize::from(opcode), SUPPORTED | CHANGES_BLOCKS);
    }
    page.0
}
