//! A disk in memory that completes its requests on a thread of its own, as devices do that wait for a host's disk or a
//! network: with our vring, or with one of `vhost-user-backend`'s, to compare them.
//!
//! ```text
//! cargo run --release -p coalesce-vring --example worker_disk -- /tmp/disk auto     # or none, nvme:thr=4,..., rwlock, mutex
//! cargo run --release -p coalesce-load -- --socket /tmp/disk --depth 32
//! ```
//!
//! It serves one client after the other, and prints what the vring decided for each.

use coalesce_vring::{CoalescedVring, VringControl, with_policy};
use std::io::{self, Read as _, Write as _};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use vhost::vhost_user::{self, Listener, VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{Error, VhostUserBackend, VhostUserDaemon, VringMutex, VringRwLock, VringT};
use virtio_queue::{DescriptorChain, QueueOwnedT as _, QueueT as _};
use vm_memory::{GuestAddressSpace as _, GuestMemoryAtomic, GuestMemoryLoadGuard, GuestMemoryMmap as Mmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};

const SECTOR: usize = 512;
const SECTORS: usize = 16 << 11; // 16 MiB
const F_VERSION_1: u64 = 1 << 32;
const F_EVENT_IDX: u64 = 1 << 29;
const QUEUES: usize = 1;

type Memory = GuestMemoryAtomic<Mmap>;
/// A request that the guest has made available.
type Chain = DescriptorChain<GuestMemoryLoadGuard<Mmap>>;

/// What the worker does, in this order.
enum Work<V> {
    Answer(V, Chain),
    /// Says that all before is done.
    Tell(Sender<()>),
}

struct Disk<V> {
    mem: Memory,
    worker: Sender<Work<V>>,
    /// Held from taking requests until the worker has got them.
    taking: Mutex<()>,
}

impl<V: VringT<Memory> + Clone + Send + Sync + 'static> Disk<V> {
    fn new(mem: Memory) -> Self {
        let (worker, works) = mpsc::channel();
        thread::spawn(move || {
            let mut data = vec![0; SECTORS * SECTOR];
            for work in works {
                match work {
                    Work::Answer(vring, chain) => complete(&mut data, &vring, chain),
                    Work::Tell(done) => drop(done.send(())),
                }
            }
        });
        Self { mem, worker, taking: Mutex::new(()) }
    }

    /// What the guest has made available, if the ring has not stopped since its kick.
    fn take(&self, vring: &V) -> io::Result<Vec<Chain>> {
        let mut state = vring.get_mut();
        let queue = state.get_queue_mut();
        if !queue.ready() {
            return Ok(Vec::new());
        }
        queue.iter(self.mem.memory()).map(Iterator::collect).map_err(io::Error::other)
    }

    fn give(&self, work: Work<V>) {
        self.worker.send(work).expect("the worker runs as long as the disk");
    }
}

fn complete<V: VringT<Memory>>(data: &mut [u8], vring: &V, chain: Chain) {
    let head = chain.head_index();
    // A guest that breaks the rules gets an answer of no bytes.
    let written = answer(data, chain).unwrap_or(0);
    vring.add_used(head, written).expect("the used ring is in the guest's memory");
    if vring.needs_notification().unwrap_or(true) {
        vring.signal_used_queue().expect("an eventfd");
    }
}

/// Reads or writes. Returns how many bytes the guest finds.
fn answer(data: &mut [u8], chain: Chain) -> io::Result<u32> {
    let mem = chain.memory().clone();
    let mut request = chain.clone().reader(&mem).map_err(io::Error::other)?;
    let mut answer = chain.writer(&mem).map_err(io::Error::other)?;
    let mut header = [0; 16];
    request.read_exact(&mut header)?;
    let [kind, _, sector, _] = [0, 4, 8, 12].map(|at| u32::from_le_bytes(header[at..at + 4].try_into().expect("four")));
    let rest = data.get_mut(sector as usize * SECTOR..).unwrap_or_default();
    let is_done = match kind {
        0 => {
            let count = answer.available_bytes().saturating_sub(1);
            rest.get(..count).map(|bytes| answer.write_all(bytes)).is_some()
        }
        1 => {
            let count = request.available_bytes();
            rest.get_mut(..count).map(|bytes| request.read_exact(bytes)).is_some()
        }
        4 => true, // flush
        _ => false,
    };
    answer.write_all(&[if is_done { 0 } else { 1 }])?;
    Ok(answer.bytes_written() as u32)
}

impl<V: VringT<Memory> + Clone + Send + Sync + 'static> VhostUserBackend for Disk<V> {
    type Bitmap = ();
    type Vring = V;

    fn num_queues(&self) -> usize {
        QUEUES
    }

    fn max_queue_size(&self) -> usize {
        1024
    }

    fn features(&self) -> u64 {
        F_VERSION_1 | F_EVENT_IDX | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
    }

    fn set_event_idx(&self, _: bool) {}

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let mut config = [0; 256];
        config[..8].copy_from_slice(&(SECTORS as u64).to_le_bytes());
        config.get(offset as usize..).and_then(|rest| rest.get(..size as usize)).unwrap_or_default().to_vec()
    }

    fn update_memory(&self, _: Memory) -> io::Result<()> {
        Ok(())
    }

    fn handle_event(&self, event: u16, _: EventSet, vrings: &[V], _: usize) -> io::Result<()> {
        let vring = &vrings[usize::from(event)];
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            vring.disable_notification().map_err(io::Error::other)?;
            loop {
                let chains = self.take(vring)?;
                if chains.is_empty() {
                    break;
                }
                for chain in chains {
                    self.give(Work::Answer(vring.clone(), chain));
                }
            }
            if !vring.enable_notification().map_err(io::Error::other)? {
                return Ok(());
            }
        }
    }

    /// The front end believes the ring to be where it is then: what was taken must be answered. It is not ready any more, so nothing is
    /// taken after the lock was free.
    fn stop_vring(&self, _: u32) -> io::Result<()> {
        drop(self.taking.lock());
        let (done, is_done) = mpsc::channel();
        self.give(Work::Tell(done));
        is_done.recv().map_err(io::Error::other)
    }

    fn exit_event(&self, _: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()
    }
}

type Daemon<V> = VhostUserDaemon<Arc<Disk<V>>>;

fn daemon<V: VringT<Memory> + Clone + Send + Sync + 'static>() -> Daemon<V> {
    let mem = Memory::new(Mmap::new());
    VhostUserDaemon::new("disk".into(), Arc::new(Disk::new(mem.clone())), mem).expect("threads and descriptors")
}

/// Serves one client, until it goes.
fn serve<V: VringT<Memory> + Clone + Send + Sync + 'static>(
    daemon: &mut Daemon<V>,
    listener: &mut Listener,
) -> Result<(), String> {
    daemon.start(listener).map_err(|error| error.to_string())?;
    match daemon.wait() {
        Err(Error::HandleRequest(vhost_user::Error::Disconnected | vhost_user::Error::PartialMessage)) => Ok(()),
        result => result.map_err(|error| error.to_string()),
    }
}

/// What the policy of each queue decided.
fn print_decisions(queues: &[VringControl]) {
    for (queue, control) in queues.iter().enumerate() {
        let (stats, delivery) = (control.stats(), control.delivery_stats());
        println!("queue {queue}: {} completions, {} interrupts", delivery.completions, delivery.interrupts);
        for (what, counts) in [("delivered", stats.delivered().collect()), ("held", stats.held().collect::<Vec<_>>())] {
            let counts: Vec<_> = counts.iter().filter(|(_, count)| *count > 0).collect();
            println!("queue {queue}: {what}: {counts:?}");
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [socket, vring] = arguments.as_slice() else { return Err("worker_disk SOCKET rwlock|mutex|POLICY".into()) };
    let mut listener = Listener::new(socket, true)?;
    loop {
        match vring.as_str() {
            "rwlock" => serve(&mut daemon::<VringRwLock>(), &mut listener)?,
            "mutex" => serve(&mut daemon::<VringMutex>(), &mut listener)?,
            policy => {
                let (mut daemon, queues) = with_policy(policy.parse()?, daemon::<CoalescedVring>)?;
                serve(&mut daemon, &mut listener)?;
                print_decisions(&queues);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use virtio_queue::desc::split::Descriptor;
    use vm_memory::{Bytes as _, GuestAddress};

    const REQUESTS: u16 = 64;
    const DESCRIPTORS: u64 = 0;
    const AVAIL: u64 = 0x2000;
    const USED: u64 = 0x3000;

    /// A ring with reads of 256 KiB: a header, the data and the status.
    fn ring(mem: &Memory) -> CoalescedVring {
        let memory = mem.memory();
        for i in 0..REQUESTS {
            let (head, of) = (3 * i, |next: u16| DESCRIPTORS + 16 * u64::from(next));
            let header = Descriptor::new(0x4000, 16, 1, head + 1);
            let data = Descriptor::new(0x10_0000, 256 << 10, 1 | 2, head + 2);
            let status = Descriptor::new(0x5000, 1, 2, 0);
            for (next, descriptor) in (head..).zip([header, data, status]) {
                memory.write_obj(descriptor, GuestAddress(of(next))).unwrap();
            }
            memory.write_obj(head, GuestAddress(AVAIL + 4 + 2 * u64::from(i))).unwrap();
        }
        memory.write_obj(REQUESTS, GuestAddress(AVAIL + 2)).unwrap();
        let vring = CoalescedVring::new(mem.clone(), 256).unwrap();
        vring.set_queue_size(256);
        vring.set_queue_info(DESCRIPTORS, AVAIL, USED).unwrap();
        vring.set_queue_ready(true);
        vring
    }

    #[test]
    fn what_a_ring_has_given_is_done_when_it_has_stopped() {
        let mem = Memory::new(Mmap::from_ranges(&[(GuestAddress(0), 2 << 20)]).unwrap());
        let (disk, vring) = (Disk::new(mem.clone()), ring(&mem));
        disk.handle_event(0, EventSet::IN, std::slice::from_ref(&vring), 0).unwrap();
        vring.set_queue_ready(false);
        disk.stop_vring(0).unwrap();
        assert_eq!(vring.queue_used_idx().unwrap(), REQUESTS);
        disk.handle_event(0, EventSet::IN, &[vring], 0).unwrap(); // for a kick from before
    }
}
