//! A device of `vhost-user-backend` with our vring: a disk in memory, loaded through its socket.

use coalesce_load::{Options, Report};
use coalesce_vring::{CoalescedVring, Spec};
use std::io::{self, Read as _, Write as _};
use std::ops::Deref as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use vhost::vhost_user::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackendMut, VhostUserDaemon, VringT as _};
use virtio_queue::QueueOwnedT as _;
use vm_memory::{GuestAddressSpace as _, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};

const SECTOR: usize = 512;
const F_VERSION_1: u64 = 1 << 32;
const F_EVENT_IDX: u64 = 1 << 29;
const READ: u32 = 0;
const WRITE: u32 = 1;

/// It answers every request at once, as a device that knows nothing of coalescing would.
struct Disk {
    data: Vec<u8>,
    mem: GuestMemoryAtomic<GuestMemoryMmap>,
    policy: Spec,
    vring: Arc<Mutex<Option<CoalescedVring>>>, // for the test to look at
}

impl Disk {
    /// Handles what the guest has made available. Returns whether there was anything.
    fn serve(&mut self, vring: &CoalescedVring) -> io::Result<bool> {
        let mem = self.mem.memory();
        let chains: Vec<_> = vring.get_mut().get_queue_mut().iter(mem.clone()).map_err(io::Error::other)?.collect();
        let is_any = !chains.is_empty();
        for chain in chains {
            let head = chain.head_index();
            let mut request = chain.clone().reader(mem.deref()).map_err(io::Error::other)?;
            let mut answer = chain.writer(mem.deref()).map_err(io::Error::other)?;
            let mut header = [0; 16];
            request.read_exact(&mut header)?;
            let kind = u32::from_le_bytes(header[..4].try_into().unwrap());
            let sector = u64::from_le_bytes(header[8..].try_into().unwrap()) as usize;
            match kind {
                READ => answer.write_all(&self.data[sector * SECTOR..][..answer_bytes(&answer)])?,
                WRITE => {
                    let count = request.available_bytes();
                    request.read_exact(&mut self.data[sector * SECTOR..][..count])?;
                }
                _ => panic!("request {kind}"),
            }
            answer.write_all(&[0])?;
            vring.add_used(head, u32::try_from(answer.bytes_written()).unwrap()).map_err(io::Error::other)?;
        }
        Ok(is_any)
    }
}

/// What is left but for the status.
fn answer_bytes(answer: &virtio_queue::Writer) -> usize {
    answer.available_bytes() - 1
}

impl VhostUserBackendMut for Disk {
    type Bitmap = ();
    type Vring = CoalescedVring;

    fn num_queues(&self) -> usize {
        1
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

    fn set_event_idx(&mut self, _enabled: bool) {}

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let mut config = [0; 128];
        config[..8].copy_from_slice(&((self.data.len() / SECTOR) as u64).to_le_bytes());
        config[offset as usize..][..size as usize].to_vec()
    }

    fn update_memory(&mut self, _mem: GuestMemoryAtomic<GuestMemoryMmap>) -> io::Result<()> {
        Ok(())
    }

    fn handle_event(&mut self, event: u16, _: EventSet, vrings: &[CoalescedVring], _: usize) -> io::Result<()> {
        let vring = &vrings[usize::from(event)];
        let mut shown = self.vring.lock().unwrap();
        if shown.is_none() {
            vring.set_policy(self.policy.clone()).unwrap();
            *shown = Some(vring.clone());
        }
        drop(shown);
        // As the devices of rust-vmm do: with EVENT_IDX until nothing is left, and the guest is asked.
        loop {
            vring.disable_notification().unwrap();
            while self.serve(vring)? {
                if vring.needs_notification().unwrap() {
                    vring.signal_used_queue()?;
                }
            }
            if !vring.enable_notification().unwrap() {
                return Ok(());
            }
        }
    }

    fn exit_event(&self, _: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()
    }
}

/// A load of the disk under a policy, and what its vring decided: deliveries and holds.
fn load(policy: &str, options: Options) -> (Report, u64, u64) {
    load_meanwhile(policy, options, |_| ())
}

/// The same, while this happens again and again.
fn load_meanwhile(
    policy: &str,
    options: Options,
    mut meanwhile: impl FnMut(&CoalescedVring) + Send + 'static,
) -> (Report, u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let socket: PathBuf = folder.path().join("disk");
    let vring = Arc::new(Mutex::new(None));
    let mem = GuestMemoryAtomic::new(GuestMemoryMmap::new());
    let disk =
        Disk { data: vec![0; 8 << 20], mem: mem.clone(), policy: policy.parse().unwrap(), vring: Arc::clone(&vring) };
    let mut daemon = VhostUserDaemon::new("disk".into(), Arc::new(Mutex::new(disk)), mem).unwrap();
    let for_daemon = socket.clone();
    let served = thread::spawn(move || daemon.serve(&for_daemon));
    while !Path::new(&socket).exists() {
        thread::sleep(Duration::from_millis(1));
    }
    let options = Options { socket, warmup_seconds: 0.0, ..options };
    let (of_meanwhile, is_over) = (Arc::clone(&vring), Arc::new(AtomicBool::new(false)));
    let ends = Arc::clone(&is_over);
    let other = thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            let vring = of_meanwhile.lock().unwrap().clone();
            vring.iter().for_each(&mut meanwhile);
            thread::sleep(Duration::from_micros(50));
        }
    });
    let report = loop {
        match coalesce_load::run(&options, |_| ()) {
            // The socket has a name a moment before it listens.
            Err(error) if error.to_string().contains("refused") => thread::sleep(Duration::from_millis(1)),
            result => break result.unwrap(),
        }
    };
    is_over.store(true, Ordering::Relaxed);
    other.join().unwrap();
    served.join().unwrap().unwrap();
    assert!(!report.failed(), "{policy}: {:?}", report.failures);
    let vring = vring.lock().unwrap().take().unwrap();
    let (stats, delivery) = (vring.stats(), vring.delivery_stats());
    assert_eq!(delivery.completions, report.total.total_ios, "{policy}");
    assert!(delivery.interrupts <= report.total.interrupts, "{policy}: the rest is about something else");
    let sum = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| counts.map(|(_, count)| count).sum();
    (report, sum(&mut stats.delivered()), sum(&mut stats.held()))
}

fn options(event_idx: bool, depth: u16) -> Options {
    Options { ops: Some(4000), depth, event_idx, ..Options::default() }
}

#[test]
fn every_policy_completes_every_request() {
    for policy in [
        "none",
        "nvme",
        "batch",
        "dim",
        "spdk_vhost",
        "vic:cif_threshold=2,epoch=1ms",
        "cint",
        "cint:in_flight=off",
        "auto",
    ] {
        for event_idx in [false, true] {
            let options = Options { write_percent: Some(50), verify: true, ..options(event_idx, 8) };
            let (report, ..) = load(policy, options);
            assert_eq!((report.total.total_ios, report.total.unfinished), (4000, 0), "{policy}");
        }
    }
}

/// Fewer requests than the threshold are never outstanding, so that only the deadline delivers.
#[test]
fn the_deadline_is_met_in_the_devices_event_loop() {
    for event_idx in [false, true] {
        let options = Options { ops: Some(40), ..options(event_idx, 4) };
        let (report, delivered, held) = load("nvme:thr=200,time=2ms", options);
        assert_eq!(report.total.total_ios, 40);
        assert!(held >= 40 && (1..=40).contains(&delivered), "{delivered} {held}");
        assert!(report.total.interrupts <= 20, "{}", report.total.interrupts);
        assert!(report.elapsed_s >= 0.002 * 9.0, "each of at least ten turns waits: {}", report.elapsed_s);
    }
}

/// The load has no interrupt but those of the vring: a policy of six completions a time has a sixth of them at most.
#[test]
fn what_is_held_is_signalled_once() {
    let (report, delivered, _) = load("nvme:thr=5,time=25ms", Options { ops: Some(600), ..options(false, 6) });
    assert!(report.total.interrupts <= 100 && delivered <= 101, "{} {delivered}", report.total.interrupts);
}

/// Between policies that are asked and those that are not.
#[test]
fn policies_change_under_load() {
    for event_idx in [false, true] {
        let mut policies = ["none", "nvme:thr=5,time=100us", "none", "auto"].iter().cycle();
        let options = Options { ops: Some(40_000), ..options(event_idx, 8) };
        let (report, delivered, held) = load_meanwhile("none", options, move |vring| {
            vring.set_policy(policies.next().unwrap().parse().unwrap()).unwrap();
        });
        assert_eq!((report.total.total_ios, report.total.unfinished), (40_000, 0));
        assert!(delivered > 0 && held > 0, "{delivered} {held}");
    }
}
