//! A disk that is served in this process, and a client for it.
#![allow(dead_code, reason = "not every test uses all of it")]

use coalesce_load::{Options, Report, run};
use coalesce_target::config::{Device, DiskConfig, Mode, Size};
use coalesce_target::front_end::FrontEnd;
use coalesce_target::nvme::front_end::NvmeUser;
use coalesce_target::os::socket::Door;
use coalesce_target::server::{DiskParts, DiskServer};
use coalesce_target::stats::QueueStats;
use coalesce_target::vhost::front_end::VhostUserBlk;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct Served<F: FrontEnd = VhostUserBlk> {
    pub directory: TempDir,
    pub disk: DiskServer<F>,
    device: Device,
}

impl Served {
    /// A memory disk of 64 MiB, unless `change` makes it another.
    pub fn new(policy: &str, change: impl FnOnce(&TempDir, &mut DiskConfig)) -> Self {
        Self::of(Device::VirtioBlk, policy, change)
    }
}

impl Served<NvmeUser> {
    /// The same as an NVMe controller.
    pub fn nvme(policy: &str, change: impl FnOnce(&TempDir, &mut DiskConfig)) -> Self {
        Self::of(Device::Nvme, policy, change)
    }
}

impl<F: FrontEnd> Served<F> {
    fn of(device: Device, policy: &str, change: impl FnOnce(&TempDir, &mut DiskConfig)) -> Self {
        let directory = TempDir::new().unwrap();
        let mut config = DiskConfig {
            name: Some("disk".into()),
            device,
            socket: directory.path().join("socket"),
            socket_mode: Mode::default(),
            socket_group: None,
            file: None,
            memory: Some(Size(64 << 20)),
            latency: None,
            queues: 1,
            policy: policy.parse().unwrap(),
            read_only: false,
            raw: false,
            direct: false,
            migratable: false,
            serial: None,
            block_size: None,
            poll: None,
            event_idx: true,
            max_memory: Size(1 << 40),
            iops: 0,
            bytes_per_second: Size(0),
        };
        change(&directory, &mut config);
        let listener = UnixListener::bind(&config.socket).unwrap();
        let disk = {
            let parts = DiskParts::open(&config, None).unwrap();
            DiskServer::start(parts, Door::Listener(listener), || Ok(())).unwrap()
        };
        Self { directory, disk, device }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// A run of `ops` requests per queue.
    pub fn options(&self, ops: u64) -> Options {
        let device = match self.device {
            Device::VirtioBlk => coalesce_load::Device::VirtioBlk,
            Device::Nvme => coalesce_load::Device::Nvme,
        };
        Options { socket: self.socket(), device, ops: Some(ops), warmup_seconds: 0.0, ..Options::default() }
    }

    /// Runs, and expects that every request was answered well. What the client and the disk counted.
    pub fn load(&self, options: &Options) -> (Report, Vec<QueueStats>) {
        // A child process that begins meanwhile has a copy of the last connection, until it runs its own program.
        let start = Instant::now();
        while self.disk.is_connected() {
            assert!(start.elapsed() < Duration::from_secs(20), "the last client is gone");
            std::thread::yield_now();
        }
        self.disk.reset_stats();
        let report = run(options, |_| ()).unwrap();
        assert!(!report.failed(), "{:?}", report.failures);
        assert_eq!((report.total.errors, report.total.unfinished), (0, 0));
        (report, self.disk.stats())
    }
}
