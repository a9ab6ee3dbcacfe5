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
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use vhost::vhost_user::{self, Listener, VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{Error, VhostUserBackend, VhostUserDaemon, VringMutex, VringRwLock, VringT};
use virtio_queue::{DescriptorChain, QueueOwnedT as _};
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

struct Disk<V> {
    mem: Memory,
    worker: Sender<(V, Chain)>,
}

impl<V: VringT<Memory> + Clone + Send + Sync + 'static> Disk<V> {
    fn new(mem: Memory) -> Self {
        let (worker, requests) = mpsc::channel::<(V, Chain)>();
        thread::spawn(move || {
            let mut data = vec![0; SECTORS * SECTOR];
            for (vring, chain) in requests {
                let head = chain.head_index();
                // A guest that breaks the rules gets an answer of no bytes.
                let written = answer(&mut data, chain).unwrap_or(0);
                vring.add_used(head, written).expect("the used ring is in the guest's memory");
                if vring.needs_notification().unwrap_or(true) {
                    vring.signal_used_queue().expect("an eventfd");
                }
            }
        });
        Self { mem, worker }
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
        loop {
            vring.disable_notification().map_err(io::Error::other)?;
            loop {
                let mem = self.mem.memory();
                let chains: Vec<Chain> = vring.get_mut().get_queue_mut().iter(mem).map_err(io::Error::other)?.collect();
                if chains.is_empty() {
                    break;
                }
                for chain in chains {
                    self.worker.send((vring.clone(), chain)).expect("the worker runs as long as the disk");
                }
            }
            if !vring.enable_notification().map_err(io::Error::other)? {
                return Ok(());
            }
        }
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
