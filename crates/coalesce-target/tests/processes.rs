//! A process for each disk: what ends or blocks one of them leaves the others alone, it is restarted, and it has
//! given up what serving does not take.

mod raw;

use coalesce_target::supervision::sandbox;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::{Pid, Uid, User};
use raw::*;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The victim's image is in the target's directory.
fn two_disks(directory: &TempDir) -> [Disk; 2] {
    let image = directory.path().join("image");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    [Disk::file("victim", &image).policy("none"), Disk::memory("other", "1M").policy("none")]
}

fn start() -> Target {
    start_with(&[])
}

/// A target with options besides those of the disks.
fn start_with(options: &[&str]) -> Target {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &two_disks(&directory));
    Target::spawn(directory, |command| command.args(options))
}

fn about(target: &Target, disk: &str) -> Value {
    let list = target.call("list", &json!({})).unwrap();
    list.as_array().unwrap().iter().find(|about| about["ctrlr"] == disk).unwrap().clone()
}

fn wait_until_serving_again(target: &Target, disk: &str, restarts: u64) {
    wait_until("it serves again", || {
        let about = about(target, disk);
        about["restarts"].as_u64() >= Some(restarts) && about["connected"] == false
    });
}

#[test]
fn a_process_that_ends_is_started_again_and_no_other_disk_notices() {
    let target = start();
    let mut other = Driver::start(&target.path("other"), &Setup::new(1, 64));
    let data = pattern(3, 4096);
    assert_eq!(other.queue().run(Op::Write(0, &data)).status, OK);
    target.set_policy("victim", "vic:cif_threshold=3");
    let signals = [Signal::SIGKILL, Signal::SIGABRT, Signal::SIGILL, Signal::SIGFPE];
    for (restarts, signal) in (1..).zip(signals) {
        let victim = Driver::start(&target.path("victim"), &Setup::new(1, 64));
        kill(target.pid_of("victim"), signal).unwrap();
        victim.wire.wait_closed();
        assert_eq!(other.queue().run(Op::Read(0, 4096)).data, data, "on the connection that it had");
        wait_until_serving_again(&target, "victim", restarts);
        assert_serves(&target.path("victim"));
    }
    assert_eq!(about(&target, "other")["restarts"], 0);
    let policy = target.stats("victim", 0)["policy"].clone();
    assert!(policy.as_str().unwrap().starts_with("vic:cif_threshold=3"), "what was set is set again: {policy}");
    for line in ["error: victim: its process", "warning: victim: serves again"] {
        wait_until("it is said", || target.log().contains(line));
    }
}

/// A program inherits the signals that its parent ignores. With SIGCHLD ignored, the kernel does not report a child's end.
#[test]
fn a_process_is_started_again_also_where_sigchld_was_ignored() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &two_disks(&directory));
    let mut target = Target::spawn(directory, |command| {
        let ignore = || {
            // SAFETY: no handler runs.
            unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
            Ok(())
        };
        // SAFETY: signal(2) may be called after a fork.
        unsafe { command.pre_exec(ignore) }
    });
    kill(target.pid_of("victim"), Signal::SIGKILL).unwrap();
    wait_until_serving_again(&target, "victim", 1);
    assert_serves(&target.path("victim"));
    target.signal(Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(0), "{}", target.log());
}

/// A guest that went on with an empty disk would not know: its front end finds nobody.
#[test]
fn a_memory_disk_is_lost_with_its_process() {
    let target = Target::start(&[Disk::memory("victim", "1M"), Disk::memory("other", "1M")]);
    kill(target.pid_of("victim"), Signal::SIGKILL).unwrap();
    wait_until("its socket is gone", || !target.path("victim").exists());
    wait_until("it is logged", || target.log().contains("its memory with it: the disk is no longer served"));
    let stats = target.call("get_stats", &json!({})).unwrap();
    assert!(stats[0]["error"].as_str().unwrap().contains("its memory is lost"), "{stats}");
    assert_serves(&target.path("other"));
    assert_eq!(about(&target, "victim")["pid"], Value::Null);
}

#[test]
fn a_disk_that_cannot_be_started_again_is_tried_until_it_can() {
    let directory = TempDir::new().unwrap();
    let image = directory.path().join("image");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let target = Target::start_in(directory, &[Disk::file("victim", &image), Disk::memory("other", "1M")]);
    let elsewhere = target.path("elsewhere");
    std::fs::rename(&image, &elsewhere).unwrap();
    kill(target.pid_of("victim"), Signal::SIGKILL).unwrap();
    wait_until("it is said", || target.log().matches("No such file").count() >= 2);
    assert_serves(&target.path("other"));
    let stats = target.call("get_stats", &json!({})).unwrap();
    assert!(stats[0]["error"].as_str().unwrap().contains("it is being restarted"), "{stats}");
    std::fs::rename(&elsewhere, &image).unwrap();
    wait_until_serving_again(&target, "victim", 1);
    assert_serves(&target.path("victim"));
}

/// As when a guest's memory or an image never answers.
#[test]
fn a_stuck_process_blocks_no_other_disk() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut target = start_with(&["--metrics", &address, "--stop-timeout", "1s"]);
    let mut other = Driver::start(&target.path("other"), &Setup::new(1, 64));
    let stuck = target.pid_of("victim");
    kill(stuck, Signal::SIGSTOP).unwrap();

    assert_eq!(target.stats("other", 0)["queue"], 0);
    target.set_policy("other", "cint");
    let stats = target.call("get_stats", &json!({ "idle": true })).unwrap();
    assert!(stats[0]["error"].as_str().unwrap().contains("disk victim: does not answer"), "{stats}");
    assert_eq!(stats[1]["queues"][0]["queue"], 0);
    let page = metrics(&address);
    assert!(page.contains("coalesce_up{ctrlr=\"victim\"} 0\ncoalesce_up{ctrlr=\"other\"} 1\n"), "{page}");
    assert!(page.contains("coalesce_interrupts_total{ctrlr=\"other\""), "{page}");
    let refused = target.call("set_policy", &json!({ "ctrlr": "victim", "policy": "none" })).unwrap_err();
    assert!(refused.contains("disk victim: does not answer"), "{refused}");
    for _ in 0..40 {
        let _ = std::os::unix::net::UnixStream::connect(target.path("control"))
            .map(|mut stream| stream.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"reset_stats\"}\n"));
    }
    kill(stuck, Signal::SIGCONT).unwrap();
    wait_until("it answers again", || {
        target.call("get_stats", &json!({ "ctrlr": "victim" })).unwrap()[0]["queues"].is_array()
    });

    kill(stuck, Signal::SIGSTOP).unwrap();
    assert_eq!(other.queue().run(Op::Flush).status, OK);
    target.signal(Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(1), "{}", target.log());
    assert!(target.log().contains("error: disk victim: does not answer"), "{}", target.log());
    assert!(!target.log().contains("disk other"), "it stopped in order: {}", target.log());
    wait_until("the stuck process has ended", || kill(stuck, None).is_err());
}

/// Sets a limit of a disk's process, and a front end meets it. What that said.
fn at_limit(resource: libc::__rlimit_resource_t, extra: u64, name: &str) -> (Target, std::io::Result<()>) {
    let target = start();
    let pid = target.pid_of("victim");
    let status = status_of(pid, name);
    let now: u64 = status.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10;
    let limit = libc::rlimit { rlim_cur: now + extra, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is there, and the old one is not asked for.
    let result = unsafe { libc::prlimit(pid.as_raw(), resource, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(result, 0);
    let wire = Wire::connect(&target.path("victim"));
    let regions = [Region::new(1 << 32, 1 << 30)];
    let files = [regions[0].file.as_raw_fd()];
    let share = |_| wire.tell(SET_MEM_TABLE, &memory_table(&regions), &files);
    let outcome = wire.negotiate(u64::MAX).and_then(share);
    (target, outcome)
}

#[test]
fn guest_memory_for_which_there_is_no_address_space_is_refused_and_said() {
    let (mut target, outcome) = at_limit(libc::RLIMIT_AS, 256 << 20, "VmSize");
    assert!(outcome.is_err());
    wait_until("it is said", || target.log().contains("SET_MEM_TABLE"));
    wait_until("why", || target.log().contains("Cannot allocate memory"));
    for disk in ["other", "victim"] {
        assert_serves(&target.path(disk));
    }
    target.assert_sound();
}

/// A disk's process that gets no more memory may end. It is restarted, and no other disk notices.
#[test]
fn a_disk_that_gets_no_more_memory_harms_no_other() {
    let (target, _) = at_limit(libc::RLIMIT_DATA, 0, "VmData");
    let mut other = Driver::start(&target.path("other"), &Setup::new(1, 64));
    for _ in 0..50 {
        let wire = Wire::connect(&target.path("victim"));
        let _ = wire.negotiate(u64::MAX);
        assert_eq!(other.queue().run(Op::Flush).status, OK);
    }
    wait_until("it answers", || {
        target.call("get_stats", &json!({ "ctrlr": "victim" })).unwrap()[0]["queues"].is_array()
    });
    assert_eq!(about(&target, "other")["restarts"], 0);
}

#[test]
fn processes_end_with_their_supervisor() {
    let mut target = start();
    let pids = ["victim", "other"].map(|disk| target.pid_of(disk));
    target.kill();
    wait_until("they have ended", || pids.iter().all(|pid| has_ended(*pid)));
}

/// Its adoptive parent may take its time to reap it.
fn has_ended(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
}

/// A terminal signals each process of a group, and so do service managers: the disks still end in order.
#[test]
fn signals_to_a_disks_process_are_the_supervisors_business() {
    let mut target = Target::start(&[Disk::memory("victim", "1M").policy(HOLD_FOREVER)]);
    let mut driver = Driver::start(&target.path("victim"), &Setup::new(1, 256));
    hold(driver.queue(), 16);
    wait_until("held", || target.count("victim", 0, "held") == 16);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        kill(target.pid_of("victim"), signal).unwrap();
    }
    assert_eq!((target.count("victim", 0, "held"), driver.queue().count_interrupts()), (16, 0));
    target.signal(Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(0), "{}", target.log());
    assert_eq!(driver.queue().count_interrupts(), 1);
}

/// A front end whose connection closes believes its rings to be where they were then.
#[test]
fn what_is_held_is_delivered_before_the_connection_closes() {
    let target = Target::start(&[Disk::memory("victim", "1M").policy(HOLD_FOREVER).queues(8)]);
    let mut driver = Driver::start(&target.path("victim"), &Setup::new(8, 256));
    driver.queues.iter_mut().for_each(|queue| hold(queue, 16));
    wait_until("held", || (0..8).all(|i| target.count("victim", i, "held") == 16));
    target.signal(Signal::SIGTERM);
    driver.wire.wait_closed();
    for queue in &mut driver.queues {
        assert_eq!(queue.count_interrupts(), 1);
    }
}

/// A line of `/proc/PID/status`.
fn status_of(pid: Pid, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().to_owned()
}

#[test]
fn a_disks_process_has_no_privileges_unless_they_are_asked_for() {
    let target = start();
    for task in std::fs::read_dir(format!("/proc/{}/task", target.pid_of("victim"))).unwrap() {
        let task = Pid::from_raw(task.unwrap().file_name().to_str().unwrap().parse().unwrap());
        let of = |name| status_of(task, name);
        assert_eq!((of("NoNewPrivs"), of("Seccomp")), ("1".into(), "2".into()), "of every thread");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(of(set), "0000000000000000", "{set}");
        }
    }
    let open = start_with(&["--sandbox", "off"]);
    assert_eq!(status_of(open.pid_of("victim"), "Seccomp"), "0");
    assert_serves(&open.path("victim"));
}

/// No file that disks share is open in it: neither the record nor standard error, nor one that a shell left open.
#[test]
fn a_disks_process_has_no_file_but_its_image() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &two_disks(&directory));
    let [record, image, left_open] = ["record", "image", "left_open"].map(|name| directory.path().join(name));
    let left_open = File::create(left_open).unwrap();
    fcntl(&left_open, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let target = Target::spawn(directory, |command| command.arg("--record").arg(&record));
    let stderr_of = |pid: Pid| std::fs::read_link(format!("/proc/{pid}/fd/2")).unwrap();
    for (disk, has) in [("victim", vec![image]), ("other", vec![])] {
        let pid = target.pid_of(disk);
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let open = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        let mut files: Vec<_> = open.filter(|path| path.is_absolute() && path != Path::new("/dev/null")).collect();
        files.sort_unstable();
        files.dedup();
        assert_eq!(files, has, "disk {disk}");
        assert_ne!(stderr_of(pid), stderr_of(target.pid()), "disk {disk}");
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max file size")).unwrap();
        assert!(!limit.trim_start().starts_with("unlimited"), "{limit}");
    }
}

/// A process that was taken over may log without end, and what a terminal obeys.
#[test]
fn what_a_disks_process_logs_is_bounded_in_rate_and_length_and_is_text() {
    let target = start();
    let mut stderr = File::options().write(true).open(format!("/proc/{}/fd/2", target.pid_of("victim"))).unwrap();
    let start = std::time::Instant::now();
    stderr.write_all(b"\x1b[2Jthis is text\n").unwrap();
    stderr.write_all(&[vec![b'z'; 100_000], vec![b'\n']].concat()).unwrap();
    for _ in 0..5000 {
        stderr.write_all(b"flood\n").unwrap();
    }
    wait_until("it is said", || {
        stderr.write_all(b"more\n").unwrap();
        target.log().contains("that its process logged")
    });
    let log = target.log();
    let most = 250 * (start.elapsed().as_secs() as usize + 2);
    assert!(log.contains(" [2Jthis is text\n") && !log.contains('\x1b'), "no control characters");
    let longest = log.lines().map(str::len).max().unwrap();
    assert!(longest < 4096, "a line of {longest} bytes");
    assert!(log.contains("zzz"), "a long line comes in parts");
    assert!(log.matches("flood\n").count() <= most, "{} lines", log.matches("flood\n").count());
    assert_serves(&target.path("other"));
}

const CONFINED: &str = "COALESCE_TEST_CONFINED";

#[test]
fn a_forbidden_call_is_refused() {
    let myself = std::env::current_exe().unwrap();
    let arguments = ["--ignored", "--exact", "confined", "--nocapture", "--test-threads=1"];
    let output = Command::new(myself).args(arguments).env(CONFINED, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("all refused"), "{said}");
}

/// What [`a_forbidden_call_is_refused`] runs in a process of its own.
#[test]
#[ignore = "gives up what other tests need"]
fn confined() {
    assert!(std::env::var_os(CONFINED).is_some());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let image = tempfile::tempfile().unwrap();
    image.set_len(4 << 20).unwrap();
    // SAFETY: no handler runs.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.unwrap();
    sandbox::limit_file_size(4 << 20).unwrap();
    image.write_all_at(&[1], (4 << 20) - 1).unwrap();
    let error = image.write_at(&[1], 4 << 20).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG), "the image does not grow");
    sandbox::give_up_privileges().unwrap();
    assert!(File::open("/etc/passwd").is_err(), "Landlock closes the file system");
    assert!(File::create("/tmp/coalesce-confined").is_err());
    assert!(TcpStream::connect(address).is_err(), "and the network");
    sandbox::restrict_system_calls(false).unwrap();
    let refused = |what: &str, outcome: std::io::Result<()>| {
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EPERM), "{what}");
    };
    let answer = |result: libc::c_long| if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) };
    refused("a socket", TcpStream::connect(address).map(drop));
    refused("a file", File::open("/etc/passwd").map(drop));
    refused("a larger file", setrlimit(Resource::RLIMIT_FSIZE, 5 << 20, RLIM_INFINITY).map_err(Into::into));
    refused("another place in a file", (&image).seek(SeekFrom::Start(0)).map(drop));
    assert_eq!((&image).seek(SeekFrom::End(0)).unwrap(), 4 << 20, "its length");
    refused("a process", Command::new("true").spawn().map(drop));
    refused("a thread", std::thread::Builder::new().spawn(|| ()).map(drop));
    refused("a signal", kill(Pid::parent(), None).map_err(Into::into));
    // SAFETY: none of these has a pointer, and none succeeds.
    unsafe {
        refused("ptrace", answer(libc::ptrace(libc::PTRACE_TRACEME)));
        refused("userfaultfd", answer(libc::syscall(libc::SYS_userfaultfd, 0)));
        let file = listener.as_raw_fd();
        refused("a signal through a file", answer(libc::fcntl(file, libc::F_SETOWN, libc::getpid()).into()));
        refused("another signal", answer(libc::fcntl(file, 10 /* F_SETSIG */, libc::SIGKILL).into()));
        refused("a file that waits for nobody, in every process", answer(libc::fcntl(2, libc::F_SETFL, 0).into()));
        let mut stat = std::mem::zeroed::<libc::stat>();
        let looked = libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, c"/etc/passwd".as_ptr(), &raw mut stat, 0);
        refused("a look at a path", answer(looked));
        let mut statx = std::mem::zeroed::<libc::statx>();
        let looked = libc::syscall(libc::SYS_statx, -1, c"/etc/passwd".as_ptr(), 0, 0, &raw mut statx);
        refused("another look at a path", answer(looked));
        refused("a file that is cut off", answer(libc::ftruncate(image.as_raw_fd(), 0).into()));
        refused("bpf", answer(libc::syscall(libc::SYS_bpf, 0, 0, 0)));
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapped = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
        refused(
            "code that is written",
            if mapped == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(()) },
        );
    }
    println!("all refused");
}

#[test]
fn a_disks_process_becomes_the_user_that_is_asked_for() {
    let Some(nobody) = User::from_name("nobody").unwrap().filter(|_| Uid::effective().is_root()) else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: another user: this is not root"); // not captured
        return;
    };
    let directory = TempDir::new().unwrap();
    let image = directory.path().join("image"); // root's: it is opened before
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    write_config(&directory, &[Disk::file("victim", &image)]);
    let mut target = Target::spawn(directory, |command| command.args(["--user", "nobody"]));
    let uid = status_of(target.pid_of("victim"), "Uid");
    assert!(uid.split_whitespace().all(|uid| uid == nobody.uid.to_string()), "{uid}");
    assert_serves(&target.path("victim"));
    kill(target.pid_of("victim"), Signal::SIGKILL).unwrap();
    wait_until_serving_again(&target, "victim", 1);
    assert_serves(&target.path("victim"));
    target.kill();
}

#[test]
fn a_user_that_is_not_there_is_named() {
    let output = Command::new(BINARY)
        .args(["serve", "--socket", "/nowhere/s", "--memory", "1M", "--user", "no such user"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("user no such user is unknown"), "{said}");
}

#[test]
fn a_record_that_cannot_go_on_is_said_at_once_and_at_the_end() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &two_disks(&directory));
    let record = directory.path().join("record");
    let mut target =
        Target::spawn(directory, |command| limit_files(command.arg("--record").arg(&record), 1, libc::RLIM_INFINITY));
    assert_serves(&target.path("victim"));
    wait_until("it is said", || target.log().contains("error: record: File too large"));
    assert_serves(&target.path("victim"));
    target.signal(Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(1), "{}", target.log());
    assert!(
        target.log().contains("error: disk victim: record: it is not complete: File too large"),
        "{}",
        target.log()
    );
    assert!(!target.log().contains("came faster"), "{}", target.log());
}

#[test]
fn a_record_has_the_lines_of_every_disk_whole() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &two_disks(&directory));
    let record = directory.path().join("record");
    std::fs::write(&record, "{\"time_ns\":1,\"disk\":\"victim\",\"event\":\"submit\"}\nwhat was there before\n")
        .unwrap();
    let mut target = Target::spawn(directory, |command| command.arg("--record").arg(&record));
    let mut drivers = ["victim", "other"].map(|disk| Driver::start(&target.path(disk), &Setup::new(1, 64)));
    for _ in 0..200 {
        for driver in &mut drivers {
            assert_eq!(driver.queue().run(Op::Read(0, 512)).status, OK);
        }
    }
    target.signal(Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(0), "{}", target.log());
    let text = std::fs::read_to_string(&record).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for disk in ["victim", "other"] {
        let submits = lines.iter().filter(|line| line["disk"] == disk && line["event"] == "submit").count();
        assert_eq!(submits, 200, "{disk}");
    }
}

#[test]
fn a_record_does_not_follow_links_and_is_its_owners() {
    let directory = TempDir::new().unwrap();
    let precious = directory.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&precious, &link).unwrap();
    let serve = |record: &Path| {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--memory", "1M", "--socket"]).arg(directory.path().join("s"));
        command.arg("--record").arg(record).stderr(Stdio::piped());
        command
    };
    let output = serve(&link).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("is a symbolic link"), "{said}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");

    let record = directory.path().join("record");
    let mut command = serve(&record);
    // SAFETY: umask cannot fail, and touches nothing of this process.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            libc::umask(0);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let socket = directory.path().join("s");
    // The record begins once everything is open.
    wait_until("it serves", || record.exists() && std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let modes = [&record, &socket].map(|path| path.metadata().unwrap().mode() & 0o777);
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(modes, [0o600; 2], "whatever the umask");
}

#[test]
fn a_socket_has_the_mode_that_its_disk_asks_for() {
    let target = Target::start(&[Disk::memory("victim", "1M").line("socket_mode = \"660\"")]);
    let mode = |name: &str| target.path(name).metadata().unwrap().mode() & 0o777;
    assert_eq!((mode("victim"), mode("control")), (0o660, 0o600));
}

/// Clients that say nothing are still connected when the one that asks has its answer.
#[test]
fn silent_metrics_clients_block_no_other_client() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let _target = start_with(&["--metrics", &address]);
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert!(metrics(&address).contains("coalesce_up"));
    for stream in &silent {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let outcome = (&mut &*stream).read(&mut [0]);
        assert_eq!(outcome.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody waited for its end");
    }
}
