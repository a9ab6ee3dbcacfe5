//! Enables a controller, and creates its queues (NVMe 1.4 §7.6.1).

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use coalesce_cli::counted;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::client::{Client, no_answer};
use super::queue::{CC, CQE_BYTES, DOORBELLS, Layout, NSID, NvmeQueue, SQE_BYTES, Shared};
use crate::Error;
use crate::device::{Device, QUEUE_ENTRIES_MIN, SETUP_TIMEOUT, check_space, need};
use crate::memory::{FIRST_ADDRESS, Memory, PAGE, file};
use crate::options::Options;

/// Registers.
const CAP: u64 = 0x00;
const CSTS: u64 = 0x1c;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;

/// The configuration space: the command register, with memory space and bus mastering on.
const COMMAND: u64 = 4;
const MEMORY_AND_MASTER: u16 = 6;

/// Enabled, with entries of 64 and 16 bytes.
const ENABLED: u32 = 1 | 6 << 16 | 4 << 20;
/// Ready, and Controller Fatal Status.
const READY: u32 = 1;
const FATAL: u32 = 2;

/// Admin commands.
const CREATE_SQ: u32 = 0x01;
const CREATE_CQ: u32 = 0x05;
const IDENTIFY: u32 = 0x06;
const SET_FEATURES: u32 = 0x09;
const DOORBELL_BUFFER_CONFIG: u32 = 0x7c;

const ADMIN_ENTRIES: u16 = (PAGE / SQE_BYTES) as u16;
/// Where the parts of the admin queue's memory are.
const ADMIN_COMPLETIONS: usize = PAGE;
const ADMIN_DATA: usize = 2 * PAGE;
const ADMIN_BYTES: usize = 3 * PAGE;
/// The pause between two looks at what the controller does.
const PAUSE: Duration = Duration::from_micros(50);

/// The admin queue. The driver polls it, as there is nothing else to do meanwhile.
struct Admin<'a> {
    shared: &'a Shared,
    memory: Memory,
    next: u16,
    deadline: Instant,
}

/// Connects to a controller, and starts its queues.
pub fn open<T>(options: &Options) -> Result<Device<NvmeQueue<T>>, Error> {
    let deadline = Instant::now() + SETUP_TIMEOUT;
    let client = Client::connect(&options.socket, deadline)?;
    let connection = client.connection()?;

    let vectors = client.vectors()?;
    let queues = u32::from(options.queues);
    need(
        queues < vectors,
        format!(
            "{}: it has {} for them",
            counted(queues, "queue"),
            counted(vectors.saturating_sub(1), "interrupt vector")
        ),
    )?;
    let (cap_low, cap_high) = (client.read32(CAP)?, client.read32(CAP + 4)?);
    let entries_max = (cap_low & 0xffff) + 1;
    let stride = 4 << (cap_high & 0xf);
    let registers = client.registers()?;
    let doorbells = DOORBELLS..DOORBELLS + (2 * u64::from(queues) + 2) * stride;
    need(registers.len >= doorbells.end, "registers for all doorbells".into())?;
    need(cap_high >> 5 & 1 != 0 && cap_high >> 16 & 0xf == 0, "the NVM command set and pages of 4 KiB".into())?;
    let entries = (options.in_flight_max() + 1).next_power_of_two().max(QUEUE_ENTRIES_MIN);
    need(u32::from(entries) <= entries_max, format!("queues of {entries} entries: its own have {entries_max}"))?;

    client.configure(COMMAND, MEMORY_AND_MASTER)?;
    client.write32(CC, 0)?;
    wait_ready(&client, 0, deadline)?;
    let memory = share(&client, FIRST_ADDRESS, ADMIN_BYTES)?;
    client.write32(AQA, u32::from(ADMIN_ENTRIES - 1) << 16 | u32::from(ADMIN_ENTRIES - 1))?;
    client.write64(ASQ, memory.address(0))?;
    client.write64(ACQ, memory.address(ADMIN_COMPLETIONS))?;
    // The admin queue interrupts, too. It is polled, but for SPDK a vector without an eventfd is an error.
    client.assign(0, eventfd()?.as_fd())?;
    client.write32(CC, ENABLED)?;
    wait_ready(&client, READY, deadline)?;

    let mapped = registers.map(doorbells)?;
    let is_mapped = mapped.is_some();
    let mut shared =
        Shared { client, mapped, shadow: None, stride, sectors_per_block: 1, hint_bits: options.hint_bits };
    let mut address = FIRST_ADDRESS + memory.len();
    let mut admin = Admin { shared: &shared, memory, next: 0, deadline };
    let controller = admin.identify(1, 0)?;
    let namespace = admin.identify(0, NSID)?;
    let (capacity_bytes, block_bytes) = check(options, &controller, &namespace)?;
    let granted =
        admin.execute("the number of queues", SET_FEATURES, &[(10, 7), (11, (queues - 1) << 16 | (queues - 1))])?;
    let granted = (granted & 0xffff).min(granted >> 16) + 1;
    need(granted >= queues, format!("{}: it has {granted}", counted(queues, "queue")))?;

    let has_shadow = options.event_idx && !is_mapped && controller[257] & 1 != 0;
    let shadow = if has_shadow {
        let shadow = share(&shared.client, address, 2 * PAGE)?;
        address += shadow.len();
        let pages = [shadow.address(0), shadow.address(PAGE)];
        admin.execute_at("shadow doorbells", DOORBELL_BUFFER_CONFIG, pages, &[])?;
        Some(shadow)
    } else {
        None
    };

    let layout = Layout::new(entries, options.in_flight_max(), options.block_size_bytes);
    let mut parts = Vec::new();
    for id in 1..=options.queues {
        let memory = share(&shared.client, address, layout.len())?;
        address += memory.len();
        let interrupts = eventfd()?;
        shared.client.assign(id.into(), interrupts.as_fd())?;
        let (which, id_of) = (u32::from(id) | u32::from(entries - 1) << 16, u32::from(id) << 16);
        let completions = NvmeQueue::<T>::completions_address(&memory, entries);
        admin.execute_at("a completion queue", CREATE_CQ, [completions, 0], &[(10, which), (11, id_of | 0b11)])?;
        let submissions = NvmeQueue::<T>::submissions_address(&memory);
        admin.execute_at("a submission queue", CREATE_SQ, [submissions, 0], &[(10, which), (11, id_of | 1)])?;
        parts.push((id, memory, interrupts));
    }
    let admin = admin.memory; // the controller may still write there
    (shared.shadow, shared.sectors_per_block) = (shadow, block_bytes / 512);
    let shared = Arc::new(shared);
    let queue = |(id, memory, interrupts)| NvmeQueue::new(Arc::clone(&shared), memory, layout, id, interrupts);
    let queues = parts.into_iter().map(queue).collect();
    drop(admin);
    Ok(Device { queues, capacity_bytes, event_idx: has_shadow, is_mapped, connection })
}

/// Shares memory with the controller, whose addresses of it begin at `address`.
fn share(client: &Client, address: u64, bytes: usize) -> Result<Memory, Error> {
    let len = bytes.next_multiple_of(PAGE);
    let file = file(len)?;
    client.map(address, file.as_fd(), len as u64)?;
    Memory::map(&file, 0, len, address)
}

fn eventfd() -> Result<EventFd, Error> {
    Ok(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?)
}

fn wait_ready(client: &Client, wanted: u32, deadline: Instant) -> Result<(), Error> {
    loop {
        let csts = client.read32(CSTS)?;
        if csts & FATAL != 0 && wanted != 0 {
            return Err(Error::Connect("the controller reports a fatal status".into()));
        }
        if csts & READY == wanted {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(no_answer());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Checks that the disk is what the options need. Returns its capacity and the size of its blocks, in bytes.
fn check(options: &Options, controller: &[u8], namespace: &[u8]) -> Result<(u64, u64), Error> {
    let blocks = u64::from_le_bytes(std::array::from_fn(|i| namespace[i]));
    let format = 128 + 4 * usize::from(namespace[26] & 0xf);
    let (metadata, shift) = (u16::from_le_bytes([namespace[format], namespace[format + 1]]), namespace[format + 2]);
    need(blocks > 0 && metadata == 0 && (9..32).contains(&shift), "namespace 1 without metadata".into())?;
    let (own, wanted) = (1_u64 << shift, u64::from(options.block_size_bytes));
    need(wanted >= own, format!("blocks of {wanted} bytes: its own have {own}"))?;
    let transfer_max = match controller[77] {
        0 => u64::MAX,
        mdts => (PAGE as u64).checked_shl(mdts.into()).unwrap_or(u64::MAX),
    };
    need(wanted <= transfer_max, format!("requests of {wanted} bytes: the largest have {transfer_max}"))?;
    let is_writing = options.write_share_percent() > 0;
    need(!(is_writing && namespace[99] & 1 != 0), "writing: it is read-only".into())?;
    let capacity_bytes = blocks.saturating_mul(own);
    check_space(options, capacity_bytes)?;
    Ok((capacity_bytes, own))
}

impl Admin<'_> {
    /// The data of Identify.
    fn identify(&mut self, what: u32, nsid: u32) -> Result<Vec<u8>, Error> {
        let data = self.memory.address(ADMIN_DATA);
        self.execute_at("to identify itself", IDENTIFY, [data, 0], &[(1, nsid), (10, what)])?;
        Ok(self.memory.bytes(ADMIN_DATA, PAGE).to_vec())
    }

    /// Executes a command without data. Returns its result.
    fn execute(&mut self, what: &str, opcode: u32, dwords: &[(usize, u32)]) -> Result<u32, Error> {
        self.execute_at(what, opcode, [0, 0], dwords)
    }

    /// Executes a command. Returns its result. `what`: for messages.
    fn execute_at(&mut self, what: &str, opcode: u32, prps: [u64; 2], more: &[(usize, u32)]) -> Result<u32, Error> {
        let (at, count) = (usize::from(self.next % ADMIN_ENTRIES), self.next);
        let mut dwords = [0; SQE_BYTES / 4];
        dwords[0] = opcode | u32::from(count) << 16;
        for (i, prp) in prps.into_iter().enumerate() {
            (dwords[6 + 2 * i], dwords[7 + 2 * i]) = (prp as u32, (prp >> 32) as u32);
        }
        more.iter().for_each(|(at, dword)| dwords[*at] = *dword);
        let bytes: Vec<u8> = dwords.iter().flat_map(|dword| dword.to_le_bytes()).collect();
        self.memory.bytes(at * SQE_BYTES, SQE_BYTES).copy_from_slice(&bytes);
        self.next += 1;
        self.shared.ring(0, self.next % ADMIN_ENTRIES)?;
        let entry = ADMIN_COMPLETIONS + at * CQE_BYTES;
        let phase = u32::from((count / ADMIN_ENTRIES).is_multiple_of(2));
        let last = loop {
            let last = u32::from_le(self.memory.word(entry + 12).load(Ordering::Acquire));
            if last >> 16 & 1 == phase {
                break last;
            }
            if Instant::now() > self.deadline {
                return Err(no_answer());
            }
            std::thread::sleep(PAUSE);
        };
        self.shared.ring(1, self.next % ADMIN_ENTRIES)?;
        match last >> 17 {
            0 => Ok(u32::from_le(self.memory.word(entry).load(Ordering::Relaxed))),
            status => Err(Error::Connect(format!("it refuses {what}: status {status:#x}"))),
        }
    }
}
