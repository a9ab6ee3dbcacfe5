//! A ring that a guest does anything with, on a device that is taken step by step: no thread, and hardly a system call.

use crate::guest::{DISK_LEN, ELSEWHERE, Place, REGION_LEN, RINGS, Rarely, Request, START};
use arbitrary::Arbitrary;
use coalesce_delivery::Ring as _;
use coalesce_target::backend::{Backend, Buffers, MemoryBackend, Operation, Outcome, Step as BackendStep};
use coalesce_target::disk::{Limits, SERIAL_LEN};
use coalesce_target::os::bus_error::Peer;
use coalesce_target::os::shared_memory::{Protection, SharedMapping};
use coalesce_target::source::Source as _;
use coalesce_target::vhost::blk::{Request as Taken, Status, Task};
use coalesce_target::vhost::inflight::{InflightRegion, region_len};
use coalesce_target::vhost::memory::{GuestMemory, GuestRegion, Regions};
use coalesce_target::vhost::vring::{Broken, Entry, Popped, Setup, Vring};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use vm_memory::{Bytes as _, GuestAddress};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

const SMALL_LEN: u64 = 0x1000;
const SIZE_MAX: u16 = 256;
/// Space for the record of requests in flight.
const RECORD_LEN: usize = region_len(SIZE_MAX) * 2;

/// What happens next.
#[derive(Arbitrary, Clone, Debug)]
pub enum Step {
    /// The guest makes a request available.
    Offer(Request),
    /// The guest makes a head available, whatever is there.
    OfferHead(u16),
    /// The device takes some.
    Take(u8),
    /// One that was taken ends.
    End(u8),
    /// The guest writes somewhere.
    Poke(Place, [u8; 8]),
    /// The guest publishes any index.
    SetAvailIdx(u16),
    /// The device looks around, as it does between requests.
    Look,
    /// Guest memory is mapped anew, with one region elsewhere.
    SetMemory(bool),
    /// The device ends, and another begins where the ring is.
    Restart,
    /// The front end writes into the record of requests in flight.
    PokeRecord(u16, u64),
}

/// A ring and what becomes of it.
#[derive(Arbitrary, Debug)]
pub struct Input {
    size_bits: u8,
    rings: [Rarely<Place>; 3],
    memory: bool,
    event_idx: bool,
    can_flush: bool,
    write_back: bool,
    read_only: bool,
    used_idx: u16,
    next_avail: Rarely<u16>,
    steps: Vec<Step>,
}

/// The record of requests in flight, as the front end keeps it.
#[derive(Arbitrary, Debug)]
pub struct Record {
    entries_bits: u8,
    index: Rarely<u8>,
    version: Rarely<u16>,
    size: Rarely<u16>,
    last_batch_head: u16,
    used_idx: Rarely<u16>,
    entries: Vec<(u8, u8, u8)>,
}

/// What there is once for all inputs.
pub struct Host {
    memories: [Arc<GuestMemory>; 2],
    regions: [Span; 4],
    record: Arc<SharedMapping>,
    disk: Backend,
    kick: EventFd,
}

/// Memory of this process.
#[derive(Clone, Copy)]
struct Span {
    start: *mut u8,
    len: usize,
}

impl Span {
    fn of(mapping: &SharedMapping) -> Self {
        Self { start: mapping.as_ptr(), len: mapping.size() }
    }
}

impl Default for Host {
    fn default() -> Self {
        let front_end = Arc::new(Peer::new(File::open("/dev/null").unwrap().into()));
        let share = |len: u64| {
            let file = File::from(memfd_create(c"guest", MFdFlags::MFD_CLOEXEC).unwrap());
            file.set_len(len).unwrap();
            SharedMapping::new(file, 0, len, Protection::ReadWrite, front_end.clone()).unwrap()
        };
        let places = [
            (START, REGION_LEN),
            (START + REGION_LEN, REGION_LEN),
            (ELSEWHERE[0], SMALL_LEN),
            (ELSEWHERE[1], SMALL_LEN),
        ];
        let shared = places.map(|(start, len)| {
            let mapping = share(len);
            (Span::of(&mapping), Arc::new(GuestRegion::new(mapping, GuestAddress(start)).unwrap()))
        });
        let memories = [2, 3].map(|elsewhere| {
            let parts = [0, 1, elsewhere].map(|i| shared[i].1.clone());
            Arc::new(Regions::from_arc_regions(parts.into()).unwrap().into())
        });
        Self {
            memories,
            regions: shared.map(|(span, _)| span),
            record: Arc::new(share(RECORD_LEN as u64)),
            disk: Backend::Memory(MemoryBackend::new(DISK_LEN, 0..=0).unwrap()),
            kick: EventFd::new(EFD_NONBLOCK).unwrap(),
        }
    }
}

impl Host {
    /// Inputs find the same guest memory, record and disk.
    fn clear(&self) {
        for span in self.regions.into_iter().chain([Span::of(&self.record)]) {
            // SAFETY: the mapping lives as long as this, and nobody else uses it.
            unsafe { span.start.write_bytes(0, span.len) };
        }
        let mut nothing = [0_u8; DISK_LEN as usize];
        let mut buffers = Buffers::default();
        buffers.push(nothing.as_mut_ptr(), nothing.len());
        let zeroes = Operation::Write { offset: 0, durable: false };
        assert!(matches!(self.disk.begin(&zeroes, &mut buffers), BackendStep::Finished(Outcome::Ok)));
    }

    /// Whether it is all in one region of guest memory.
    fn is_guest_memory(&self, base: usize, len: usize) -> bool {
        self.regions.iter().any(|region| {
            let start = region.start as usize;
            start <= base && base + len <= start + region.len
        })
    }

    fn record_at<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= self.record.size());
        // SAFETY: as checked.
        unsafe { self.record.as_ptr().add(at).cast::<[u8; N]>().read() }
    }

    fn write_record(&self, at: usize, bytes: &[u8]) {
        if at + bytes.len() <= self.record.size() {
            // SAFETY: as checked.
            unsafe { self.record.as_ptr().add(at).copy_from(bytes.as_ptr(), bytes.len()) };
        }
    }
}

/// A request that the device has taken.
struct InFlight {
    head: u16,
    request: Option<Taken>,
    buffers: Buffers,
}

/// The ring, and both who use it.
struct Run<'a> {
    host: &'a Host,
    input: &'a Input,
    record: Option<(usize, u16)>, // index of the queue, entries
    size: u16,
    rings: [u64; 3],
    memory: usize,
    limits: Limits,
    durable: bool,
    vring: Option<Vring>,
    avail_idx: u16,
    used_idx: u16,
    in_flight: Vec<InFlight>,
    /// What is left of what the device before this one had taken, oldest first.
    again: Vec<u16>,
    /// Heads that the record must have; none: somebody wrote into it, or a head is there twice.
    recorded: Option<BTreeSet<u16>>,
}

/// Takes the ring through all steps.
pub fn run(host: &Host, input: &Input, record: Option<&Record>) {
    host.clear();
    let size = 1 << (input.size_bits % 9);
    let at = |ring: usize| input.rings[ring].get().map_or(RINGS[ring], |place| place.address());
    let mut run = Run {
        host,
        input,
        record: None,
        size,
        rings: [at(0), at(1), at(2)],
        memory: usize::from(input.memory),
        limits: Limits {
            size: host.disk.size().into(),
            block_size: 512,
            read_only: input.read_only,
            serial: [b's'; SERIAL_LEN],
            max_memory: 1 << 40,
        },
        durable: !(input.can_flush && input.write_back),
        vring: None,
        avail_idx: input.next_avail.get().unwrap_or(input.used_idx),
        used_idx: input.used_idx,
        in_flight: Vec::new(),
        again: Vec::new(),
        recorded: None,
    };
    run.write(run.rings[2].wrapping_add(2), &input.used_idx.to_le_bytes());
    run.write(run.rings[1].wrapping_add(2), &run.avail_idx.to_le_bytes());
    if let Some(record) = record {
        run.fill_record(record);
    }
    // What was taken before must be there.
    let mut steps = input.steps.iter().peekable();
    while let Some(step) = steps.next_if(|step| matches!(step, Step::Offer(_) | Step::OfferHead(_) | Step::Poke(..))) {
        run.step(step);
    }
    run.start(run.avail_idx);
    steps.for_each(|step| run.step(step));
    run.take(u8::MAX);
    while !run.in_flight.is_empty() {
        run.end(0);
    }
    run.look();
}

impl Run<'_> {
    fn guest(&self) -> &GuestMemory {
        &self.host.memories[self.memory]
    }

    /// The guest writes, if there is memory.
    fn write(&self, address: u64, bytes: &[u8]) {
        let _ = self.guest().write_slice(bytes, GuestAddress(address));
    }

    fn read_u16(&self, address: u64) -> u16 {
        self.guest().read_obj(GuestAddress(address)).map_or(0, u16::from_le)
    }

    fn fill_record(&mut self, record: &Record) {
        let entries = 1_u16 << (record.entries_bits % 9).max(self.input.size_bits % 9);
        let index = usize::from(record.index.get().unwrap_or(0) % 4);
        self.record = Some((index, entries));
        let at = index * region_len(entries);
        let size = record.size.get().unwrap_or(self.size);
        self.host.write_record(at + 8, &record.version.get().unwrap_or(1).to_le_bytes());
        self.host.write_record(at + 10, &size.to_le_bytes());
        self.host.write_record(at + 12, &record.last_batch_head.to_le_bytes());
        self.host.write_record(at + 14, &record.used_idx.get().unwrap_or(self.used_idx).to_le_bytes());
        for &(head, taken, counter) in &record.entries {
            let at = at + 16 + 16 * usize::from(head % 64);
            self.host.write_record(at, &[if taken > 250 { taken } else { 1 }]);
            self.host.write_record(at + 8, &u64::from(counter).to_le_bytes());
        }
    }

    /// What the record says is taken and not answered, oldest first, to a ring whose used index is this.
    fn read_record(&self, used_idx: u16) -> Vec<u16> {
        let Some((index, entries)) = self.record else { return Vec::new() };
        let at = index * region_len(entries);
        if at + region_len(entries) > self.host.record.size() {
            return Vec::new(); // refused
        }
        let field = |at| u16::from_le_bytes(self.host.record_at(at));
        if (field(at + 8), field(at + 10)) != (1, self.size) {
            return Vec::new();
        }
        let answered = if field(at + 14) == used_idx { None } else { Some(field(at + 12)) };
        let mut taken: Vec<_> = (0..self.size)
            .filter(|head| Some(*head) != answered)
            .map(|head| (head, at + 16 + 16 * usize::from(head)))
            .filter(|(_, at)| self.host.record_at(*at) == [1])
            .map(|(head, at)| (u64::from_le_bytes(self.host.record_at(at + 8)), head))
            .collect();
        taken.sort_unstable();
        taken.into_iter().map(|(_, head)| head).collect()
    }

    fn start(&mut self, next_avail: u16) {
        self.in_flight.clear();
        let region = || InflightRegion { region: self.host.record.clone(), entries: self.record.unwrap().1 };
        let setup = Setup {
            size: self.size,
            addresses: self.rings,
            next_avail,
            event_idx: self.input.event_idx,
            can_flush: self.input.can_flush,
            inflight: self.record.map(|(index, _)| (region(), index)),
        };
        let used_idx = self.read_u16(self.rings[2].wrapping_add(2));
        let again = self.read_record(used_idx);
        let memory = self.host.memories[self.memory].clone();
        self.vring = Vring::start(setup, memory, self.host.kick.try_clone().unwrap()).ok();
        if let Some(vring) = &self.vring {
            assert_eq!(vring.size(), self.size);
            self.used_idx = used_idx;
            self.again = again;
            self.recorded = Some(self.again.iter().copied().collect());
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Offer(request) => {
                request.lay_out(self.rings[0], self.size, &|address, bytes| self.write(address, bytes));
                self.offer(request.head(self.size));
            }
            Step::OfferHead(head) => self.offer(*head),
            Step::Take(most) => self.take(*most),
            Step::End(which) => self.end((*which).into()),
            Step::Poke(place, bytes) => self.write(place.address(), bytes),
            Step::SetAvailIdx(index) => {
                self.avail_idx = *index;
                self.write(self.rings[1].wrapping_add(2), &index.to_le_bytes());
            }
            Step::Look => self.look(),
            Step::SetMemory(memory) => {
                self.memory = usize::from(*memory);
                let memory = self.host.memories[self.memory].clone();
                if let Some(vring) = &mut self.vring {
                    vring.set_memory(memory);
                }
            }
            Step::Restart => {
                self.check_record();
                let next_avail = self.vring.take().map_or(self.avail_idx, |vring| vring.position().next_avail);
                self.start(next_avail);
            }
            Step::PokeRecord(at, value) => {
                self.recorded = None;
                self.host.write_record(usize::from(*at), &value.to_le_bytes());
            }
        }
    }

    fn offer(&mut self, head: u16) {
        let slot = u64::from(self.avail_idx % self.size);
        self.write(self.rings[1].wrapping_add(4 + 2 * slot), &head.to_le_bytes());
        self.avail_idx = self.avail_idx.wrapping_add(1);
        self.write(self.rings[1].wrapping_add(2), &self.avail_idx.to_le_bytes());
    }

    /// The device takes requests, until it has as many as the ring has entries.
    fn take(&mut self, most: u8) {
        for _ in 0..most {
            let Some(vring) = self.vring.as_mut().filter(|_| self.in_flight.len() < usize::from(self.size)) else {
                return;
            };
            let mut buffers = Buffers::default();
            match vring.pop(&self.limits, self.durable, &mut buffers) {
                Ok(Some(popped)) => self.taken(popped, buffers),
                Ok(None) => return,
                Err(Broken(_)) => self.vring = None,
            }
        }
    }

    fn taken(&mut self, Popped { head, request, is_again }: Popped, buffers: Buffers) {
        assert!(head < self.size, "head {head} of a ring of {}", self.size);
        if is_again {
            assert_eq!(Some(&head), self.again.first(), "what was taken before comes again, in its order, once");
            self.again.remove(0);
        } else {
            assert!(self.again.is_empty(), "what was taken before comes first");
            self.recorded = self.recorded.take().and_then(|mut heads| heads.insert(head).then_some(heads));
        }
        for iovec in buffers.rest() {
            let (base, len) = (iovec.iov_base as usize, iovec.iov_len);
            assert!(self.host.is_guest_memory(base, len), "a buffer of {len} bytes that is not the guest's");
        }
        if let Ok(request) = &request {
            self.check(request, &buffers);
        }
        self.in_flight.push(InFlight { head, request: request.ok(), buffers });
    }

    /// What the back end is given is inside the disk and allowed.
    fn check(&self, request: &Taken, buffers: &Buffers) {
        let len = buffers.len() as u64;
        let inside = |offset: u64, len: u64| offset.checked_add(len).is_some_and(|end| end <= DISK_LEN);
        let (is_inside, written, writes) = match request.task {
            Task::Operation(Operation::Read { offset, durable }) => {
                assert!(!durable);
                (inside(offset, len), len, false)
            }
            Task::Operation(Operation::Write { offset, durable }) => {
                assert_eq!(durable, self.durable);
                (inside(offset, len), 0, true)
            }
            Task::Operation(Operation::Flush) => (true, 0, false),
            Task::Operation(Operation::Discard { offset, len }) => (inside(offset, len), 0, true),
            Task::Operation(Operation::WriteZeroes { offset, len, by_hand, durable, .. }) => {
                assert!(!by_hand && durable == self.durable);
                (inside(offset, len), 0, true)
            }
            Task::Answer(Status::Ok) => {
                assert!(request.written as usize <= SERIAL_LEN);
                return;
            }
            Task::Answer(_) => {
                assert_eq!(request.written, 0);
                return;
            }
        };
        assert!(is_inside && len.is_multiple_of(512), "{request:?}, {len} bytes");
        assert_eq!(u64::from(request.written), written, "{request:?}");
        assert!(!(writes && self.input.read_only), "{request:?}");
    }

    /// One of those in flight is done and answered.
    fn end(&mut self, which: usize) {
        if self.in_flight.is_empty() {
            return;
        }
        let InFlight { head, request, mut buffers } = self.in_flight.remove(which % self.in_flight.len());
        let (status, written) = match &request {
            None => (None, 0),
            Some(Taken { task: Task::Answer(status), status: at, written, .. }) => (Some((*at, *status)), written + 1),
            Some(Taken { task: Task::Operation(operation), status: at, written, .. }) => {
                let BackendStep::Finished(outcome) = self.host.disk.begin(operation, &mut buffers) else {
                    unreachable!()
                };
                assert_eq!(outcome, Outcome::Ok, "{operation:?}");
                (Some((*at, Status::Ok)), written + 1)
            }
        };
        let Some(vring) = &mut self.vring else { return };
        if let Some((at, status)) = status {
            vring.set_status(at, status);
        }
        if vring.post(Entry { head, written }).is_err() {
            self.vring = None;
            self.recorded = None;
            return;
        }
        self.used_idx = self.used_idx.wrapping_add(1);
        assert_eq!(self.read_u16(self.rings[2].wrapping_add(2)), self.used_idx, "the used index counts one by one");
        if let Some(heads) = &mut self.recorded {
            assert!(heads.remove(&head), "head {head} was answered and not in flight");
        }
        self.check_record();
    }

    /// The record has what is in flight, and nothing else.
    fn check_record(&self) {
        if let (Some(_), Some(heads)) = (&self.record, &self.recorded) {
            let recorded: BTreeSet<_> = self.read_record(self.used_idx).into_iter().collect();
            assert_eq!(&recorded, heads, "what the record says is in flight");
        }
    }

    fn look(&mut self) {
        let Some(vring) = &mut self.vring else { return };
        let (size, untaken) = (u32::from(self.size), vring.unreaped());
        assert!(untaken <= size);
        let _ = vring.owes_interrupt();
        let _ = vring.is_consumed();
        let _ = vring.wants_interrupt();
        assert!(vring.backlog().unwrap_or(0) <= size);
        let _ = vring.enable_kicks();
        let _ = vring.disable_kicks();
    }
}
