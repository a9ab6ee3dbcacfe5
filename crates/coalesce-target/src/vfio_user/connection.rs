//! One connection of a client: its messages, in order.
//!
//! A message that asks for what it may not have is refused with an errno, and the connection goes on. It ends when the
//! client breaks the rules so that its next message cannot be found, or cannot be understood.

use super::irq::Vectors;
use super::memory::{DmaMemory, PAGE, REGIONS_MAX, Unmapped};
use super::pci::{CONFIG_LEN, ConfigSpace, Effect, Identity, Table, table_bar_len};
use super::wire::{
    DmaMap, DmaUnmap, FILES_MAX, HEADER_LEN, Header, MESSAGE_MAX, Refused, RegionAccess, SetIrqs, TRANSFER_MAX,
    Version, command, device_info, flag, irq_info, parse_device_info, parse_irq_info, parse_region_info, region_info,
};
use super::{CHANGE_ENDS_AFTER, PATIENCE, PIN_PAUSE, PciDevice};
use crate::os::received::receive;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use serde_json::{Value, json};
use std::ffi::CStr;
use std::fs::File;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;
use tracing::warn;

/// Regions of a PCI device, as VFIO numbers them.
mod region {
    pub const BAR0: u32 = 0;
    pub const BAR4: u32 = 4;
    pub const CONFIG: u32 = 7;
    pub const COUNT: u32 = 9;
}

/// Kinds of interrupts, as VFIO numbers them.
mod irq {
    pub const INTX: u32 = 0;
    pub const MSIX: u32 = 2;
    /// Errors. A device without error reporting has no such kind.
    pub const ERROR: u32 = 3;
    pub const COUNT: u32 = 5;
}

/// A client that is connected, and the device that it sees. Dropping it resets the device, and gives the client's memory
/// and eventfds back.
#[derive(Debug)]
pub struct Connection<D: PciDevice> {
    name: String,
    stream: UnixStream,
    device: D,
    memory: DmaMemory,
    vectors: Vectors,
    config: ConfigSpace,
    table: Table,
    unmask: Option<File>,       // an eventfd that unmasks the pin: KVM signals it
    unmask_at: Option<Instant>, // the pin, at the latest: see `PIN_PAUSE`
    bar0_len: u32,
    is_negotiated: bool,
    change_ends_at: Option<Instant>, // of guest memory: see `CHANGE_ENDS_AFTER`
    has_warned: bool,
    message: Vec<u8>, // the payload of a message
    reply: Vec<u8>,
}

/// Why a message has no answer with a result.
#[derive(Debug)]
enum Failure {
    /// The client gets an error.
    Refused(Refused),
    /// The client gets an error, and the connection ends.
    Fatal(Refused),
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl<D: PciDevice> Connection<D> {
    /// A new connection over `stream`. `name` is for the log.
    #[must_use]
    pub fn new(
        name: &str,
        stream: UnixStream,
        identity: &Identity,
        device: D,
        memory: DmaMemory,
        vectors: Vectors,
    ) -> Self {
        let count = vectors.count();
        Self {
            name: name.to_owned(),
            stream,
            device,
            memory,
            config: ConfigSpace::new(identity, count),
            table: Table::new(count),
            unmask: None,
            unmask_at: None,
            bar0_len: identity.bar0_len,
            vectors,
            is_negotiated: false,
            change_ends_at: None,
            has_warned: false,
            message: vec![0; MESSAGE_MAX],
            reply: Vec::with_capacity(MESSAGE_MAX),
        }
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &D {
        &self.device
    }

    /// The device, for what does not come from the client. It may complete commands and interrupt.
    pub const fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Handles the next message, which it waits for. False: the client has disconnected.
    ///
    /// # Errors
    /// The client broke the protocol, or its memory stays in use. This ends the connection.
    pub fn handle_message(&mut self) -> Result<bool> {
        let mut files = Vec::new();
        let mut header = [0; HEADER_LEN];
        if !self.receive(&mut header, &mut files)? {
            return Ok(false);
        }
        let header = Header::parse(&header);
        let Some(len) = header.payload_len() else {
            bail!("a message has {} bytes; allowed: {HEADER_LEN} to {MESSAGE_MAX}", header.size);
        };
        let mut message = std::mem::take(&mut self.message);
        let received = self.receive(&mut message[..len], &mut files);
        let outcome = match received {
            Ok(true) => self.handle(&header, &message[..len], files).map(|()| true),
            Ok(false) => Err(anyhow!("a message ends after its header")),
            Err(error) => Err(error),
        };
        self.message = message;
        outcome
    }

    /// When [`attend`](Self::attend) is due, even if no message comes.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.change_ends_at.into_iter().chain(self.unmask_at).min()
    }

    /// A descriptor that becomes readable when [`attend`](Self::attend) is due.
    #[must_use]
    pub fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.unmask.as_ref().map(File::as_fd)
    }

    /// Does what is due without a message. Harmless at any time.
    pub fn attend(&mut self) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= Instant::now());
        if is_due(self.change_ends_at) {
            self.end_memory_change();
        }
        if is_due(self.unmask_at) {
            self.unmask_pin();
        }
        self.take_unmask();
    }

    /// The client has unmasked the pin by its eventfd, if it has not taken the signal back.
    fn take_unmask(&mut self) {
        let Some(unmask) = &self.unmask else { return };
        let mut count = [0_u8; 8];
        let part = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: count.len() };
        // SAFETY: the descriptor is open, and the part is a buffer that nobody else uses.
        let taken = unsafe { libc::preadv2(unmask.as_raw_fd(), &raw const part, 1, -1, libc::RWF_NOWAIT) };
        match Errno::result(taken) {
            Ok(_) => self.unmask_pin(),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => {
                warn!(disk = self.name, "the eventfd that unmasks the interrupt pin cannot be read: {error}");
                self.unmask = None;
                self.unmask_pin();
            }
        }
    }

    /// The client unmasks the pin. That waits if its guest has not served the device yet.
    fn unmask_pin_when_served(&mut self) {
        if self.device.asserts_pin() && !self.device.serves_pin() {
            self.unmask_at.get_or_insert_with(|| Instant::now() + PIN_PAUSE);
        } else {
            self.unmask_pin();
        }
    }

    fn unmask_pin(&mut self) {
        self.unmask_at = None;
        self.vectors.mask_pin(false);
        self.device.pin_is_unmasked();
    }

    fn continue_memory_change(&mut self) {
        self.change_ends_at = Some(Instant::now() + CHANGE_ENDS_AFTER);
    }

    fn end_memory_change(&mut self) {
        if self.change_ends_at.take().is_some() {
            self.device.memory_changed();
        }
    }

    /// Receives all of `buffer`. False: the client has disconnected before the first byte.
    fn receive(&self, buffer: &mut [u8], files: &mut Vec<OwnedFd>) -> Result<bool> {
        let mut at = 0;
        while at < buffer.len() {
            match receive(&self.stream, &mut buffer[at..], 0) {
                Ok((0, _)) if at == 0 => return Ok(false),
                Ok((0, _)) => bail!("the client has disconnected in the middle of a message"),
                Ok((received, new)) => {
                    at += received;
                    files.extend(new);
                    if files.len() > FILES_MAX {
                        bail!("a message has more than {FILES_MAX} files");
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset && at == 0 => return Ok(false),
                Err(error) => bail!("receiving a message: {error}"),
            }
        }
        Ok(true)
    }

    fn handle(&mut self, header: &Header, payload: &[u8], files: Vec<OwnedFd>) -> Result<()> {
        let Header { command, flags, .. } = *header;
        if flags & flag::TYPE != 0 {
            bail!("a message of type {} is not a command", flags & flag::TYPE);
        }
        let wants_reply = flags & flag::NO_REPLY == 0;
        if !self.is_negotiated && (command != command::VERSION || !wants_reply) {
            bail!("the first message is not a VERSION that wants an answer, but command {command}");
        }
        match (command, self.change_ends_at) {
            (_, None) => {}
            (command::DMA_MAP | command::DMA_UNMAP, Some(_)) => self.continue_memory_change(),
            (_, Some(_)) => self.end_memory_change(),
        }
        self.reply.clear();
        self.reply.resize(HEADER_LEN, 0);
        let outcome = match command {
            command::REGION_READ if !wants_reply => Err(Refused::invalid("a read without an answer").into()),
            _ => self.execute(command, payload, files),
        };
        let Err(failure) = outcome else { return self.answer(header, None) };
        let is_fatal = !self.is_negotiated || matches!(failure, Failure::Fatal(_));
        let (Failure::Refused(Refused { errno, why }) | Failure::Fatal(Refused { errno, why })) = failure;
        self.answer(header, Some(errno))?;
        if is_fatal {
            let _ = self.stream.shutdown(Shutdown::Both); // the device may take long to end
        }
        ensure!(!is_fatal, "command {command}: {why:#}");
        // QEMU asks for interrupts on errors, which there are none of.
        let is_question = command == command::DEVICE_GET_IRQ_INFO;
        if !is_question && !std::mem::replace(&mut self.has_warned, true) {
            warn!(disk = self.name, "refused command {command}, and will not report others: {why:#}");
        }
        Ok(())
    }

    /// Sends the answer to a command, if it wants one: what is in `reply`, or that it failed. A command that fails leaves
    /// nothing there.
    fn answer(&mut self, header: &Header, errno: Option<Errno>) -> Result<()> {
        if header.flags & flag::NO_REPLY != 0 {
            return Ok(());
        }
        let flags = flag::REPLY | errno.map_or(0, |_| flag::ERROR);
        let size = u32::try_from(self.reply.len())?;
        let header = Header { size, flags, errno: errno.map_or(0, |errno| errno as u32), ..*header };
        self.reply[..HEADER_LEN].copy_from_slice(&header.bytes());
        let mut rest = &self.reply[..];
        while !rest.is_empty() {
            match send(self.stream.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::EINTR) => {}
                Err(error) => bail!("sending an answer: {error}"),
            }
        }
        Ok(())
    }

    /// Executes a command. The payload of its answer goes to `reply`, behind the header.
    fn execute(&mut self, command: u16, payload: &[u8], files: Vec<OwnedFd>) -> Result<(), Failure> {
        let takes_files = matches!(command, command::DMA_MAP | command::DEVICE_SET_IRQS);
        if !takes_files && !files.is_empty() {
            return Err(Refused::invalid("it has files").into());
        }
        let short = || Refused::invalid(format!("{} bytes are too few, or its argsz is", payload.len()));
        match command {
            command::VERSION => self.negotiate(&Version::parse(payload).ok_or_else(short)?)?,
            command::DMA_MAP => {
                let map = DmaMap::parse(payload).ok_or_else(short)?;
                let mut files = files.into_iter();
                let (file, None) = (files.next(), files.next()) else {
                    return Err(Refused::invalid("it has several files").into());
                };
                self.memory.map(&map, file)?;
                self.device.map();
            }
            command::DMA_UNMAP => {
                self.unmap(&DmaUnmap::parse(payload).ok_or_else(short)?)?;
                self.reply.extend(payload.get(..DmaUnmap::LEN).ok_or_else(short)?);
            }
            command::DEVICE_GET_INFO => {
                parse_device_info(payload).ok_or_else(short)?;
                let flags = device_info::RESET | device_info::PCI;
                self.put32s(&[device_info::LEN as u32, flags, region::COUNT, irq::COUNT]);
            }
            command::DEVICE_GET_REGION_INFO => {
                let index = parse_region_info(payload).ok_or_else(short)?;
                let len = self.region_len(index)?;
                let flags = if len == 0 { 0 } else { region_info::READ | region_info::WRITE };
                self.put32s(&[region_info::LEN as u32, flags, index, 0]);
                self.put64s(&[len as u64, 0]); // no offset, because it cannot be mapped
            }
            command::DEVICE_GET_IRQ_INFO => {
                let index = parse_irq_info(payload).ok_or_else(short)?;
                let count = self.interrupts(index)?;
                let flags = match index {
                    irq::INTX => irq_info::EVENTFD | irq_info::MASKABLE | irq_info::AUTOMASKED,
                    irq::MSIX => irq_info::EVENTFD,
                    _ => 0,
                };
                self.put32s(&[irq_info::LEN as u32, flags, index, count.into()]);
            }
            command::DEVICE_SET_IRQS => self.set_irqs(&SetIrqs::parse(payload).ok_or_else(short)?, files)?,
            command::REGION_READ => {
                let access = RegionAccess::parse(payload).ok_or_else(short)?;
                let (offset, count) = self.check_access(&access, 0)?;
                self.put64s(&[access.offset]);
                self.put32s(&[access.region, access.count]);
                self.read(access.region, offset, count);
            }
            command::REGION_WRITE => {
                let access = RegionAccess::parse(payload).ok_or_else(short)?;
                let (offset, count) = self.check_access(&access, access.count)?;
                self.write(access.region, offset, &access.data[..count])?;
                self.put64s(&[access.offset]);
                self.put32s(&[access.region, access.count]);
            }
            command::DEVICE_RESET => self.reset()?,
            _ => return Err(Refused::with(Errno::ENOTSUP, "it is not supported").into()),
        }
        Ok(())
    }

    fn put32s(&mut self, values: &[u32]) {
        self.reply.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
    }

    fn put64s(&mut self, values: &[u64]) {
        self.reply.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
    }

    /// Agrees on version 0.0. The answer must not be longer than QEMU's message.
    fn negotiate(&mut self, version: &Version<'_>) -> Result<(), Refused> {
        if self.is_negotiated {
            return Err(Refused::invalid("the version is known already"));
        }
        check_version(version)?;
        self.is_negotiated = true;
        let capabilities = json!({ "capabilities": {
            "max_msg_fds": FILES_MAX,
            "max_data_xfer_size": TRANSFER_MAX,
            "max_dma_maps": REGIONS_MAX,
            "pgsizes": PAGE,
        }});
        self.reply.extend([0; 4]); // version 0.0
        self.reply.extend(capabilities.to_string().into_bytes());
        self.reply.push(0);
        Ok(())
    }

    /// Takes guest memory away. Returns when nothing of it is mapped any more.
    fn unmap(&mut self, unmap: &DmaUnmap) -> Result<(), Failure> {
        let unmapped = match *unmap {
            DmaUnmap { flags: 0, address, size } => vec![self.memory.unmap(address, size)?],
            DmaUnmap { flags: DmaUnmap::ALL, address: 0, size: 0 } => self.memory.unmap_all(),
            DmaUnmap { flags, address, size } => {
                let why = format!("flags {flags:#x}, {size:#x} bytes at {address:#x}: neither one region nor all");
                return Err(Refused::invalid(why).into());
            }
        };
        if !unmapped.is_empty() {
            self.continue_memory_change();
        }
        for region in &unmapped {
            self.device.unmap(region.range.clone());
        }
        let deadline = Instant::now() + PATIENCE;
        match unmapped.iter().find(|region| !region.wait(deadline)) {
            None => Ok(()),
            Some(Unmapped { range, .. }) => Err(still_used(format_args!(" at {range:#x?}"))),
        }
    }

    /// Bytes of a region; 0 if the device has none of this number.
    fn region_len(&self, region: u32) -> Result<usize, Refused> {
        match region {
            region::BAR0 => Ok(self.bar0_len as usize),
            region::BAR4 => Ok(table_bar_len(self.vectors.count()) as usize),
            region::CONFIG => Ok(CONFIG_LEN),
            other if other < region::COUNT => Ok(0),
            _ => Err(Refused::invalid(format!("there is no region {region}"))),
        }
    }

    /// Checks an access that comes with this number of bytes. Returns its offset and its length.
    fn check_access(&self, access: &RegionAccess<'_>, bytes: u32) -> Result<(usize, usize), Refused> {
        let RegionAccess { offset, region, count, data } = *access;
        let len = self.region_len(region)?;
        let range = usize::try_from(offset).ok().zip(usize::try_from(count).ok());
        let range = range.filter(|(offset, count)| offset.checked_add(*count).is_some_and(|end| end <= len));
        let is_whole = data.len() as u64 == u64::from(bytes);
        range.filter(|(_, count)| is_whole && (1..=TRANSFER_MAX).contains(count)).ok_or_else(|| {
            let with = data.len();
            Refused::invalid(format!(
                "{count} bytes at {offset:#x} of region {region}, which has {len}; {with} bytes are with it"
            ))
        })
    }

    fn read(&mut self, region: u32, offset: usize, count: usize) {
        let at = self.reply.len();
        self.reply.resize(at + count, 0);
        let data = &mut self.reply[at..];
        match region {
            region::BAR0 => self.device.read(offset as u64, data),
            region::BAR4 => self.table.read(offset, data, |vector| self.vectors.is_pending(vector)),
            _ => self.config.read(offset, data, self.device.asserts_pin()),
        }
    }

    fn write(&mut self, region: u32, offset: usize, data: &[u8]) -> Result<(), Failure> {
        match region {
            region::BAR0 => {
                self.device.write(offset as u64, data);
                if self.unmask_at.is_some() {
                    self.unmask_pin_when_served();
                }
            }
            region::BAR4 => self.table.write(offset, data),
            _ => {
                match self.config.write(offset, data) {
                    Effect { reset: true, .. } => self.reset()?,
                    Effect { bus_master: Some(on), .. } if !self.device.set_bus_master(on) => {
                        return Err(still_used(format_args!("")));
                    }
                    Effect { .. } => {}
                }
                self.vectors.allow_pin(self.config.disables_pin(), self.config.has_msix());
                self.device.pin_is_unmasked();
            }
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<(), Failure> {
        if !self.device.reset() {
            return Err(still_used(format_args!("")));
        }
        self.vectors.clear_pending();
        self.config.reset();
        self.vectors.allow_pin(false, false);
        self.table.reset();
        Ok(())
    }

    /// The number of interrupts of a kind.
    fn interrupts(&self, index: u32) -> Result<u16, Refused> {
        match index {
            irq::INTX => Ok(1),
            irq::MSIX => Ok(self.vectors.count()),
            irq::ERROR | irq::COUNT.. => Err(Refused::invalid(format!("there are no interrupts of kind {index}"))),
            _ => Ok(0),
        }
    }

    /// Changes the pin. `None`: it has no such action.
    fn set_pin(&mut self, set: &SetIrqs<'_>, files: Vec<OwnedFd>) -> Option<Result<(), Refused>> {
        let (action, kind) = (set.flags & SetIrqs::ACTION, set.flags & SetIrqs::DATA);
        let mut files = files.into_iter();
        let (file, None) = (files.next(), files.next()) else { return None };
        let is_meant = match (kind, set.data, &file) {
            (SetIrqs::DATA_NONE, _, None) => true,
            (SetIrqs::DATA_BOOL, [is_meant], None) => *is_meant != 0,
            (SetIrqs::DATA_EVENTFD, ..) => true,
            _ => return None,
        };
        match (action, kind, set.count) {
            _ if set.flags != action | kind => return None,
            (SetIrqs::ACTION_TRIGGER, SetIrqs::DATA_NONE, 0) => {
                self.vectors.deassign_pin();
                (self.unmask, self.unmask_at) = (None, None);
            }
            (SetIrqs::ACTION_TRIGGER, SetIrqs::DATA_EVENTFD, 1) => match file {
                None => self.vectors.deassign_pin(),
                Some(file) => {
                    if let Err(refused) = self.vectors.assign_pin(file) {
                        return Some(Err(refused));
                    }
                    self.unmask_pin();
                }
            },
            (SetIrqs::ACTION_UNMASK, SetIrqs::DATA_EVENTFD, 1) => {
                let file = file.map(File::from);
                if let Some(Err(refused)) = file.as_ref().map(|file| self.vectors.check_eventfd(file)) {
                    return Some(Err(refused));
                }
                self.unmask = file;
            }
            (SetIrqs::ACTION_TRIGGER | SetIrqs::ACTION_MASK | SetIrqs::ACTION_UNMASK, _, 1) if !is_meant => {}
            (SetIrqs::ACTION_TRIGGER, SetIrqs::DATA_NONE | SetIrqs::DATA_BOOL, 1) => {
                let _ = self.vectors.signal_pin(); // one that is masked stays silent
            }
            (SetIrqs::ACTION_MASK, SetIrqs::DATA_NONE | SetIrqs::DATA_BOOL, 1) => {
                self.vectors.mask_pin(true);
                self.unmask_at = None;
            }
            (SetIrqs::ACTION_UNMASK, SetIrqs::DATA_NONE | SetIrqs::DATA_BOOL, 1) => self.unmask_pin_when_served(),
            _ => return None,
        }
        Some(Ok(()))
    }

    fn set_irqs(&mut self, set: &SetIrqs<'_>, files: Vec<OwnedFd>) -> Result<(), Refused> {
        const NONE: u32 = SetIrqs::ACTION_TRIGGER | SetIrqs::DATA_NONE;
        const BOOL: u32 = SetIrqs::ACTION_TRIGGER | SetIrqs::DATA_BOOL;
        const EVENTFD: u32 = SetIrqs::ACTION_TRIGGER | SetIrqs::DATA_EVENTFD;
        let SetIrqs { flags, index, start, count, data } = *set;
        let has = self.interrupts(index)?;
        let refused = || {
            let (bytes, files) = (data.len(), files.len());
            let what = format!("interrupts of kind {index}: {count} from {start}, of {has}");
            Refused::invalid(format!("{what}, with flags {flags:#x}, {bytes} bytes, {files} files"))
        };
        let end = start.checked_add(count).and_then(|end| u16::try_from(end).ok()).filter(|end| *end <= has);
        let (Ok(start), Some(end)) = (u16::try_from(start), end) else { return Err(refused()) };
        if index == irq::INTX {
            let refused = refused();
            return self.set_pin(set, files).unwrap_or(Err(refused));
        }
        let trigger = |vector| {
            let _ = self.vectors.signal(vector); // one without an eventfd becomes pending
        };
        match (flags, usize::from(end - start), files.len()) {
            (NONE, 0, 0) if start == 0 => self.vectors.deassign(0..has),
            (NONE, 1.., 0) => (start..end).for_each(trigger),
            (BOOL, 1.., 0) if data.len() == usize::from(end - start) => {
                (start..end).zip(data).filter(|(_, is_meant)| **is_meant != 0).for_each(|(vector, _)| trigger(vector));
            }
            (EVENTFD, 1.., 0) => self.vectors.deassign(start..end),
            (EVENTFD, 1.., number) if number == usize::from(end - start) => self.vectors.assign(start, files)?,
            _ => return Err(refused()),
        }
        Ok(())
    }
}

impl<D: PciDevice> Drop for Connection<D> {
    fn drop(&mut self) {
        let _ = self.reset(); // what is still in flight keeps its memory mapped
        drop(self.memory.unmap_all());
        self.vectors.deassign(0..self.vectors.count());
        self.vectors.deassign_pin();
        if let Some(what) = self.memory.client().lost() {
            warn!(disk = self.name, "memory that the client shares {what}: its connection was closed");
        }
        let _ = self.stream.shutdown(Shutdown::Both); // requests in flight keep the socket open
    }
}

fn still_used(place: std::fmt::Arguments<'_>) -> Failure {
    let why = format!("requests in flight have used guest memory{place} for {PATIENCE:?}");
    Failure::Fatal(Refused::with(Errno::ETIMEDOUT, why))
}

fn check_version(version: &Version<'_>) -> Result<()> {
    let Version { major, minor, data } = *version;
    if major != 0 {
        bail!("the version is {major}.{minor}; allowed: 0.0 and newer ones that work with it");
    }
    if data.is_empty() {
        return Ok(());
    }
    let text = CStr::from_bytes_until_nul(data).context("the capabilities have no end")?;
    let offer: Value = serde_json::from_slice(text.to_bytes()).context("the capabilities")?;
    let is_valid = offer.is_object() && offer.get("capabilities").is_none_or(Value::is_object);
    ensure!(is_valid, "the capabilities are not an object");
    Ok(())
}
