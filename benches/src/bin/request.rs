//! Serves a memory disk in this process and reads from it in batches: what `scripts/cost.sh` counts the instructions of, per
//! request. Prints what the queue counted: requests, calls of io_uring_enter, kicks, interrupts.

use coalesce_load::{Job, Options, run};
use coalesce_target::config::{Device, DiskConfig, Mode, Size};
use coalesce_target::front_end::FrontEnd;
use coalesce_target::nvme::front_end::NvmeUser;
use coalesce_target::os::socket::Door;
use coalesce_target::server::{DiskParts, DiskServer};
use coalesce_target::vhost::front_end::VhostUserBlk;
use std::ffi::c_long;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

/// io_uring_enter's flag for a timeout.
const EXT_ARG: usize = 8;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, device, policy, batch, ops] = arguments.as_slice() else {
        panic!("request DIRECTORY DEVICE POLICY BATCH REQUESTS")
    };
    let is_nvme = device == "nvme";
    let config = DiskConfig {
        name: Some("disk".into()),
        device: if is_nvme { Device::Nvme } else { Device::VirtioBlk },
        socket: PathBuf::from(directory).join("socket"),
        socket_mode: Mode::default(),
        socket_group: None,
        file: None,
        memory: Some(Size(64 << 20)),
        latency: None,
        queues: 1,
        policy: policy.parse().expect("a policy"),
        read_only: false,
        raw: false,
        direct: false,
        migratable: false,
        serial: None,
        block_size: None,
        poll: Some("0".parse().expect("a time")), // under callgrind time is long, and polling would be counted
        event_idx: true,
        max_memory: Size(1 << 40),
        iops: 0,
        bytes_per_second: Size(0),
    };
    let options = Options {
        socket: config.socket.clone(),
        device: if is_nvme { coalesce_load::Device::Nvme } else { coalesce_load::Device::VirtioBlk },
        job: Job::Batch,
        batch: batch.parse().expect("requests"),
        ops: Some(ops.parse().expect("requests")),
        warmup_seconds: 0.0,
        ..Options::default()
    };
    if is_nvme { serve::<NvmeUser>(&config, &options) } else { serve::<VhostUserBlk>(&config, &options) }
}

fn serve<F: FrontEnd>(config: &DiskConfig, options: &Options) {
    let listener = UnixListener::bind(&config.socket).expect("a socket");
    let parts = DiskParts::open(config, None).expect("a disk");
    let disk = DiskServer::<F>::start(parts, Door::Listener(listener), || Ok(())).expect("a server");
    let report = run(options, |_| ()).expect("a run");
    assert!(!report.failed(), "{:?}", report.failures);
    while disk.is_connected() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for queue in disk.stats() {
        let device = &queue.device;
        println!("{} {} {} {}", queue.completions, device.enters, device.kicks, queue.interrupts);
    }
    disk.stop();
}

/// What io_uring calls. Valgrind 3.19 lets no other thread run while one is in io_uring_enter, so this waits in ppoll.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    static REAL: LazyLock<extern "C" fn(c_long, ...) -> c_long> = LazyLock::new(|| {
        // SAFETY: the C library has this function.
        unsafe { std::mem::transmute(libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr())) }
    });
    let real = *REAL;
    if number != libc::SYS_io_uring_enter || c == 0 {
        return real(number, a, b, c, d, e, f);
    }
    let submitted = real(number, a, b, 0, d, e, f);
    let mut poll = libc::pollfd { fd: a as i32, events: libc::POLLIN, revents: 0 };
    let timeout = match d & EXT_ARG {
        0 => std::ptr::null(),
        // SAFETY: with EXT_ARG this is a structure whose third word of 8 bytes is the address of a timespec.
        _ => unsafe { *(e as *const *const libc::timespec).add(2) },
    };
    // SAFETY: both are valid.
    match unsafe { libc::ppoll(&mut poll, 1, timeout, std::ptr::null()) } {
        0 => {
            // SAFETY: errno is this thread's.
            unsafe { *libc::__errno_location() = libc::ETIME };
            -1
        }
        _ => submitted,
    }
}
