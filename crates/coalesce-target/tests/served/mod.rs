//! A disk that is served in this process, and a client for it.
#![allow(dead_code, reason = "not every test uses all of it")]

use coalesce_load::{Options, Report, run};
use coalesce_target::config::{Device, DiskConfig, Mode, Size};
use coalesce_target::server::{DiskParts, DiskServer};
use coalesce_target::stats::QueueStats;
use coalesce_target::vhost::front_end::VhostUserBlk;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use tempfile::TempDir;

pub struct Served {
    pub directory: TempDir,
    pub disk: DiskServer<VhostUserBlk>,
}

impl Served {
    /// A memory disk of 64 MiB, unless `change` makes it another.
    pub fn new(policy: &str, change: impl FnOnce(&TempDir, &mut DiskConfig)) -> Self {
        let directory = TempDir::new().unwrap();
        let mut config = DiskConfig {
            name: Some("disk".into()),
            device: Device::VirtioBlk,
            socket: directory.path().join("socket"),
            socket_mode: Mode::default(),
            socket_group: None,
            file: None,
            memory: Some(Size(64 << 20)),
            queues: 1,
            policy: policy.parse().unwrap(),
            read_only: false,
            direct: false,
            serial: None,
            block_size: None,
            poll: None,
            event_idx: true,
            max_memory: Size(1 << 40),
        };
        change(&directory, &mut config);
        let listener = UnixListener::bind(&config.socket).unwrap();
        let disk = {
            let parts = DiskParts::open(&config, None).unwrap();
            DiskServer::start(parts, listener, || Ok(())).unwrap()
        };
        Self { directory, disk }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// A run of `ops` requests per queue.
    pub fn options(&self, ops: u64) -> Options {
        Options { socket: self.socket(), ops: Some(ops), warmup_seconds: 0.0, ..Options::default() }
    }

    /// Runs, and expects that every request was answered well. What the client and the disk counted.
    pub fn load(&self, options: &Options) -> (Report, Vec<QueueStats>) {
        self.disk.reset_stats();
        let report = run(options, |_| ()).unwrap();
        assert!(!report.failed(), "{:?}", report.failures);
        assert_eq!((report.total.errors, report.total.unfinished), (0, 0));
        (report, self.disk.stats())
    }
}
