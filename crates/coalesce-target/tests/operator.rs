//! The mistakes of operators, and of the programs that they run: whatever is asked of a target, signalled to it or forgotten
//! on its sockets, its disks serve on, nothing that is held is lost, and nobody is locked out.

mod raw;

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction, signal};
use nix::unistd::{Pid, Uid};
use raw::*;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::os::unix::thread::JoinHandleExt as _;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use vmm_sys_util::sock_ctrl_msg::ScmSocket as _;

/// Writes the configuration of a disk that is served again when its process has ended.
fn configure(directory: &TempDir, policy: &str) {
    let image = directory.path().join("image");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    write_config(directory, &[Disk::file("disk", &image).policy(policy).queues(2)]);
}

fn start() -> Target {
    start_with(|command| command)
}

fn start_with(change: impl FnOnce(&mut Command) -> &mut Command) -> Target {
    let directory = TempDir::new().unwrap();
    configure(&directory, "none");
    Target::spawn(directory, change)
}

/// A disk's process that does not run for now, as one whose medium does not answer.
struct Stopped(Pid);

impl Stopped {
    fn new(target: &Target, disk: &str) -> Self {
        let pid = target.pid_of(disk);
        kill(pid, Signal::SIGSTOP).unwrap();
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT); // it may have been killed
    }
}

fn policies(target: &Target) -> Value {
    target.call("get_policy", &json!({ "ctrlr": "disk" })).unwrap()[0]["policies"].clone()
}

/// Kills the disk's process, and waits until another serves.
fn end_its_process(target: &Target) {
    let before = target.pid_of("disk");
    kill(before, Signal::SIGKILL).unwrap();
    wait_until("it serves again", || {
        let list = target.call("list", &json!({})).unwrap();
        list[0]["pid"].as_i64().is_some_and(|pid| pid != i64::from(before.as_raw())) && list[0]["connected"] == false
    });
}

/// Each client names one of them.
#[test]
fn limits_that_are_set_at_once_are_all_in_force() {
    let target = start();
    let stopped = Stopped::new(&target, "disk");
    let asked = [json!({ "ctrlr": "disk", "iops": 1000 }), json!({ "ctrlr": "disk", "bytes_per_second": "1" })]
        .map(|limits| Asked::new(&target, "set_limits", &limits));
    std::thread::sleep(std::time::Duration::from_millis(20)); // until each is asked, or waits for its turn
    drop(stopped);
    asked.into_iter().for_each(|asked| drop(asked.answer().unwrap()));
    for is_restarted in [false, true] {
        let limits = target.call("list", &json!({})).unwrap()[0]["limits"].clone();
        assert_eq!(limits, json!({ "iops": 1000, "bytes_per_second": 1 }));
        let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
        driver.queue().offer_many(5, &Op::Read(0, 4096));
        driver.queue().publish();
        assert_eq!(driver.queue().wait(1).len(), 1);
        assert_eq!(target.count("disk", 0, "device/reads"), 1, "the others wait for bytes");
        drop(driver);
        if !is_restarted {
            end_its_process(&target);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Policies
// ---------------------------------------------------------------------------------------------------------------------

fn set_policy(target: &Target, queue: Option<usize>, policy: &str) -> Asked {
    let mut params = json!({ "ctrlr": "disk", "policy": policy });
    if let Some(queue) = queue {
        params["queue"] = queue.into();
    }
    Asked::new(target, "set_policy", &params)
}

#[test]
fn wrong_policies_at_once_never_keep_a_disk_from_starting() {
    let target = start();
    for _ in 0..5 {
        let stopped = Stopped::new(&target, "disk");
        let wrong: Vec<_> = (96..100).map(|queue| set_policy(&target, Some(queue), "dim")).collect();
        drop(stopped);
        for asked in wrong {
            let refused = asked.answer().unwrap_err();
            assert!(refused.contains("allowed: 0 to 1"), "{refused}");
        }
        end_its_process(&target);
        assert_eq!(policies(&target), json!(["none", "none"]));
        assert_serves(&target.path("disk"));
    }
}

#[test]
fn a_policy_that_is_refused_undoes_no_other_change() {
    let target = start();
    for policy in ["dim", "cint"] {
        let stopped = Stopped::new(&target, "disk");
        let wrong = set_policy(&target, Some(99), "none");
        let right = set_policy(&target, Some(1), policy);
        drop(stopped);
        wrong.answer().unwrap_err();
        right.answer().unwrap();
        let before = policies(&target);
        assert!(before[1].as_str().unwrap().starts_with(policy), "{before}");
        end_its_process(&target);
        assert_eq!(policies(&target), before, "what was set is set again");
    }
}

/// Whoever asks for what, at once.
#[test]
fn what_is_in_force_is_in_force_again_after_a_restart() {
    let target = start();
    for round in 0..3 {
        std::thread::scope(|scope| {
            for client in 0..5 {
                let target = &target;
                scope.spawn(move || {
                    let mut random = Random(1 + client + 100 * round);
                    for _ in 0..20 {
                        let queue = random.pick(&[None, Some(0), Some(1), Some(2), Some(usize::MAX)]);
                        let policy =
                            random.pick(&["none", "dim", "batch", "cint", "vic:cif_threshold=3", "nvme:host=on"]);
                        let is_right = queue.is_none_or(|queue| queue < 2) && policy != "nvme:host=on";
                        let answer = set_policy(target, queue, policy).answer();
                        assert_eq!(answer.is_ok(), is_right, "{queue:?} {policy}: {answer:?}");
                    }
                });
            }
        });
        let before = policies(&target);
        end_its_process(&target);
        assert_eq!(policies(&target), before);
    }
    assert_serves(&target.path("disk"));
}

/// It is asked as its supervisor asks it.
#[test]
fn a_policy_that_cannot_be_applied_is_logged_and_does_not_prevent_a_start() {
    let directory = TempDir::new().unwrap();
    let listener = UnixListener::bind(directory.path().join("s")).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(HANG)).unwrap();
    let mut command = Command::new(BINARY);
    command.arg("worker").stdin(std::os::fd::OwnedFd::from(theirs)).stderr(Stdio::piped());
    let mut worker = command.spawn().unwrap();
    drop(command); // and with it its end of the socket
    ours.send_with_fds(&[&[0_u8][..]], &[listener.as_raw_fd()]).unwrap();
    let policies = json!([
        { "queue": 99, "policy": "dim", "keep_learned": false },
        { "queue": 0, "policy": "none", "keep_learned": false },
        { "queue": null, "policy": "nvme:host=on", "keep_learned": false },
        { "queue": 0, "policy": "what no version knows", "keep_learned": false },
    ]);
    let disk = json!({ "socket": "s", "memory": "1M", "queues": 1, "policy": "auto" });
    let setup = json!({ "disk": disk, "policies": policies, "record_epoch_ns": null, "identity": null,
        "sandbox": true, "log": "info" });
    let mut answers = BufReader::new(ours.try_clone().unwrap()).lines();
    let mut ask = |id: u64, request: Value| {
        ours.write_all(format!("{}\n", json!({ "id": id, "request": request })).as_bytes()).unwrap();
        let mut answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["id"], id);
        answer["outcome"].take()
    };
    let started = ask(1, json!({ "start": setup }));
    assert_eq!(started["Ok"]["queues"], 1, "{started}");
    assert_serves(&directory.path().join("s"));
    assert_eq!(ask(2, json!("stats"))["Ok"]["queues"][0]["policy"], "none", "the one that could be applied is");
    assert_eq!(ask(3, json!("stop")), json!({ "Ok": null }));
    let said = std::io::read_to_string(worker.stderr.take().unwrap()).unwrap();
    assert!(worker.wait().unwrap().success(), "{said}");
    for part in ["queue is 99; allowed: 0 to 0", "only an NVMe disk", "what no version knows: unknown policy"] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
}

#[test]
fn a_policy_change_that_timed_out_is_made_and_remembered_when_the_process_goes_on() {
    let target = start();
    let stopped = Stopped::new(&target, "disk");
    let late = set_policy(&target, None, "dim").answer().unwrap_err();
    assert!(late.contains("does not answer") && late.contains("changes if it goes on"), "{late}");
    let not_asked = set_policy(&target, None, "batch").answer().unwrap_err();
    assert!(not_asked.contains("does not answer") && not_asked.contains("nothing has changed"), "{not_asked}");
    drop(stopped);
    wait_until("it is made", || policies(&target) == json!(["dim", "dim"]));
    end_its_process(&target);
    assert_eq!(policies(&target), json!(["dim", "dim"]), "and is made again");
}

#[test]
fn a_policy_change_that_timed_out_is_not_made_when_the_process_is_restarted() {
    let target = start();
    let stopped = Stopped::new(&target, "disk");
    let late = set_policy(&target, None, "dim").answer().unwrap_err();
    assert!(late.contains("stays if it is restarted"), "{late}");
    end_its_process(&target);
    drop(stopped);
    assert_eq!(policies(&target), json!(["none", "none"]));
}

/// Interrupts for each request mean little if nobody knows which policy they are of.
#[test]
fn statistics_say_since_when_they_count_and_since_when_the_policy_is_in_force() {
    let target = start();
    let of = |key: &str| target.count("disk", 0, &format!("{key}_since_us"));
    let (counted, policy) = (of("counted"), of("policy"));
    assert!(policy <= counted, "all of it is of one policy: {policy}, {counted}");
    set_policy(&target, Some(9), "dim").answer().unwrap_err();
    set_policy(&target, Some(1), "dim").answer().unwrap();
    assert_eq!((of("counted"), of("policy")), (counted, policy), "nothing has changed");
    set_policy(&target, None, "dim").answer().unwrap();
    assert_eq!(of("counted"), counted);
    assert!(of("policy") > counted, "of more than one");
    let policy = of("policy");
    target.call("reset_stats", &json!({})).unwrap();
    assert_eq!(of("policy"), policy);
    assert!(of("counted") >= policy, "of one again");
    end_its_process(&target);
    assert!(of("counted") >= of("policy") && of("policy") > policy, "it begins again");
}

// ---------------------------------------------------------------------------------------------------------------------
// Questions
// ---------------------------------------------------------------------------------------------------------------------

/// A disk whose completions are held.
fn holding() -> (Target, Driver) {
    let target = Target::start(&[Disk::memory("disk", "1M").policy(HOLD_FOREVER)]);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 256));
    hold(driver.queue(), 16);
    wait_until("held", || target.count("disk", 0, "held") == 16);
    (target, driver)
}

/// It ended in order: what was held was delivered, and nothing is left behind.
fn assert_ended_in_order(mut target: Target, mut driver: Driver, what: &str) {
    assert_eq!(target.wait().code(), Some(0), "{what}: {}", target.log());
    assert_eq!((driver.queue().count_interrupts(), driver.queue().take_all().len()), (1, 16), "{what}");
    for socket in ["disk", "control"] {
        assert!(!target.path(socket).exists(), "{what}: {socket} is left behind");
    }
}

#[test]
fn the_time_of_a_request_ends_before_it_is_held() {
    let (target, driver) = holding();
    let stats = target.stats("disk", 0);
    let timed: u64 =
        stats["latency_ns"].as_object().unwrap().values().map(|times| times["count"].as_u64().unwrap()).sum();
    assert_eq!((timed, &stats["held"], &stats["hold_ns"]["count"]), (16, &json!(16), &json!(0)), "{stats}");
    drop(driver);
}

#[test]
fn questions_without_an_answer_do_not_keep_a_disk_from_stopping_in_order() {
    let (target, driver) = holding();
    let stopped = Stopped::new(&target, "disk");
    let _asked: Vec<_> = ["get_stats", "list", "reset_stats", "get_policy"]
        .into_iter()
        .cycle()
        .take(60)
        .map(|method| Asked::new(&target, method, &json!({})))
        .collect();
    target.signal(Signal::SIGTERM);
    wait_until("it begins to stop", || target.log().contains("finishing"));
    drop(stopped);
    assert_ended_in_order(target, driver, "with 60 clients");
}

#[test]
fn many_clients_at_once_learn_the_truth_about_a_healthy_disk() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let target = start_with(|command| command.args(["--metrics", &address]));
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    for ops in 1..4 {
        assert_eq!(driver.queue().run(Op::Flush).status, OK);
        let stopped = Stopped::new(&target, "disk");
        let pages: Vec<_> = (0..20)
            .map(|_| {
                let mut stream = TcpStream::connect(&address).unwrap();
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                stream
            })
            .collect();
        let asked: Vec<_> = (0..40).map(|_| Asked::new(&target, "get_stats", &json!({}))).collect();
        let change = set_policy(&target, None, "dim");
        drop(stopped);
        change.answer().unwrap();
        for asked in asked {
            let stats = asked.answer().unwrap();
            assert_eq!(stats[0]["queues"][0]["completions"], ops, "{stats}");
        }
        for mut page in pages {
            let mut text = String::new();
            page.read_to_string(&mut text).unwrap();
            assert!(text.contains("coalesce_up{ctrlr=\"disk\"} 1\n"), "{text}");
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Signals
// ---------------------------------------------------------------------------------------------------------------------

/// A terminal that closes signals more than once: the kernel does, and the shell.
#[test]
fn a_terminal_that_closes_ends_a_target_in_order() {
    for signal in [Signal::SIGHUP, Signal::SIGQUIT] {
        let (target, driver) = holding();
        let stopped = Stopped::new(&target, "disk");
        target.signal(signal);
        wait_until("it begins to stop", || target.log().contains(&format!("{signal}: finishing")));
        target.signal(signal);
        target.signal(Signal::SIGHUP);
        drop(stopped);
        assert_ended_in_order(target, driver, signal.as_str());
    }
}

/// nohup(1) ignores SIGHUP for the program that it starts, and a shell without job control SIGINT and SIGQUIT for what is in
/// its background.
#[test]
fn a_signal_that_the_parent_ignores_is_ignored() {
    const IGNORED: [Signal; 3] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT];
    let ignore = || {
        // SAFETY: no handler runs.
        IGNORED.into_iter().try_for_each(|ignored| unsafe { signal(ignored, SigHandler::SigIgn) }.map(drop))?;
        Ok(())
    };
    // SAFETY: signal(2) may be called after a fork.
    let mut target = start_with(|command| unsafe { command.pre_exec(ignore) });
    IGNORED.into_iter().for_each(|ignored| target.signal(ignored));
    assert_serves(&target.path("disk"));
    target.assert_sound();
    target.signal(Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(0), "{}", target.log());
    assert!(target.log().contains("SIGTERM: finishing"), "{}", target.log());
}

/// As of timeout(1), which signals its child and then the child's group.
#[test]
fn two_signals_at_once_are_one() {
    for pause_ms in 0..8 {
        let (target, driver) = holding();
        target.signal(Signal::SIGTERM);
        std::thread::sleep(std::time::Duration::from_millis(pause_ms));
        target.signal(Signal::SIGTERM);
        assert_ended_in_order(target, driver, "SIGTERM twice");
    }
}

#[test]
fn a_later_signal_ends_a_target_that_cannot_stop() {
    let (mut target, _driver) = holding();
    kill(target.pid_of("disk"), Signal::SIGSTOP).unwrap();
    wait_until("it has ended", || {
        target.signal(Signal::SIGTERM);
        !target.is_alive()
    });
    assert_eq!(target.wait().signal(), Some(Signal::SIGTERM as i32), "{}", target.log());
}

/// Signals that end a process if it does not say otherwise, and that say nothing about its own state.
fn foreign_signals() -> Vec<libc::c_int> {
    use Signal::*;
    let named = [SIGUSR1, SIGUSR2, SIGALRM, SIGPIPE, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT, SIGXCPU, SIGXFSZ];
    named.into_iter().map(|signal| signal as libc::c_int).chain([libc::SIGRTMIN(), libc::SIGRTMAX()]).collect()
}

fn send(pid: Pid, signal: libc::c_int) {
    // SAFETY: it has no pointer.
    Errno::result(unsafe { libc::kill(pid.as_raw(), signal) }).unwrap();
}

#[test]
fn signals_that_mean_nothing_to_a_target_change_nothing() {
    let (mut target, mut driver) = holding();
    let process = target.pid_of("disk");
    for signal in foreign_signals() {
        send(target.pid(), signal);
        send(process, signal);
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        send(process, signal as libc::c_int); // only the supervisor ends a disk's process
    }
    assert_eq!((target.count("disk", 0, "held"), driver.queue().count_interrupts()), (16, 0));
    target.assert_sound();
    target.signal(Signal::SIGTERM);
    assert_ended_in_order(target, driver, "then SIGTERM");
}

// ---------------------------------------------------------------------------------------------------------------------
// Limits of the system
// ---------------------------------------------------------------------------------------------------------------------

#[test]
fn a_limit_on_the_size_of_files_ends_the_record_and_no_disk() {
    let directory = TempDir::new().unwrap();
    let record = directory.path().join("record");
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    write_config(&directory, &[Disk::memory("disk", "1M"), Disk::memory("idle", "1M")]);
    let mut target = Target::spawn(directory, |command| {
        limit_files(command.args(["--metrics", &address, "--record"]).arg(&record), 64 << 10, libc::RLIM_INFINITY)
    });
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    let stats = || target.call("get_stats", &json!({})).unwrap();
    assert_eq!(stats()[0].get("record_error"), None);
    assert!(page(&address).contains("coalesce_recording{ctrlr=\"disk\"} 1\n"));
    wait_until("the limit is reached", || {
        assert_eq!(driver.queue().run(Op::Read(0, 512)).status, OK);
        std::fs::metadata(&record).unwrap().len() >= 60 << 10
    });
    wait_until("it is said", || {
        assert_eq!(driver.queue().run(Op::Read(0, 512)).status, OK);
        stats()[0]["record_error"].as_str().is_some_and(|error| error.contains("File too large"))
    });
    assert_eq!(stats()[1].get("record_error"), None, "of this disk nothing is lost");
    let text = page(&address);
    assert!(text.contains("coalesce_recording{ctrlr=\"disk\"} 0\ncoalesce_recording{ctrlr=\"idle\"} 1\n"), "{text}");
    wait_until("it is logged", || target.log().contains("error: record: File too large"));
    assert_serves(&target.path("idle"));
    for _ in 0..100 {
        assert_eq!(driver.queue().run(Op::Read(0, 512)).status, OK);
    }
    target.assert_sound();
    target.signal(Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(1), "the record is not complete: {}", target.log());
    let text = std::fs::read_to_string(&record).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "whole lines only");
}

fn page(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(2 * HANG)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// `ulimit -f` sets both limits, and only root can raise the hard one again.
#[test]
fn an_image_longer_than_files_may_be_is_served_and_what_lies_beyond_cannot_be_written() {
    let directory = TempDir::new().unwrap();
    configure(&directory, "none");
    let target = Target::spawn(directory, |command| without_privileges(limit_files(command, 64 << 10, 64 << 10)));
    wait_until("it is said", || target.log().contains("files may have 65536 bytes at most"));
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    for (sector, can_be_written) in [(0, true), (127, true), (128, false), (2047, false)] {
        assert_eq!(driver.queue().run(Op::Write(sector, &[1; 512])).status == OK, can_be_written, "sector {sector}");
        assert_eq!(driver.queue().run(Op::Read(sector, 512)).status, OK, "sector {sector}");
    }
}

/// A program as one that no root started.
fn without_privileges(command: &mut Command) -> &mut Command {
    let drop_all = || {
        const VERSION_3: u32 = 0x2008_0522;
        let (header, none) = ([VERSION_3, 0], [0_u32; 6]);
        // SAFETY: both are as long as this version has them (capget(2)).
        unsafe {
            Errno::result(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
            // Otherwise root has all of them again when the program begins.
            Errno::result(libc::prctl(libc::PR_SET_SECUREBITS, 1 /* SECBIT_NOROOT */, 0, 0, 0))?;
            Errno::result(libc::syscall(libc::SYS_capset, &raw const header, &raw const none))?;
        }
        Ok(())
    };
    let is_root = Uid::effective().is_root();
    // SAFETY: only system calls, after a fork.
    if is_root { unsafe { command.pre_exec(drop_all) } } else { command }
}

// ---------------------------------------------------------------------------------------------------------------------
// Clients
// ---------------------------------------------------------------------------------------------------------------------

/// The most clients of the control socket.
const CLIENTS: usize = 64;

fn is_closed(mut stream: impl Read) -> bool {
    !matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// As a script leaves them behind that never closes what it has opened.
#[test]
fn idle_clients_lock_nobody_out() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let target = start_with(|command| command.args(["--metrics", &address]));
    let path = target.path("control");
    let half = b"{\"jsonrpc\": \"2.0\", ";
    let idle: Vec<_> = (0..3 * CLIENTS)
        .map(|i| {
            let mut stream = UnixStream::connect(&path).unwrap();
            let _ = stream.write_all(&half[..half.len() * (i % 2)]); // it may have lost its place already
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    let silent: Vec<_> = (0..3 * CLIENTS)
        .map(|_| {
            let stream = TcpStream::connect(&address).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    for _ in 0..10 {
        target.call("get_stats", &json!({})).unwrap();
        assert!(page(&address).contains("coalesce_up"));
    }
    wait_until("the oldest are disconnected", || {
        idle[..CLIENTS].iter().all(is_closed) && silent[..CLIENTS].iter().all(is_closed)
    });
    assert!(!is_closed(idle.last().unwrap()), "the newest keep their places");
    for (name, most) in [("control", 64), ("metrics", 32)] {
        let said = format!("{name}: {most} clients are connected, which is the limit: an idle one is disconnected");
        wait_until("it is logged", || target.log().contains(&said));
    }
}

/// They send requests, and never read an answer.
#[test]
fn clients_that_read_no_answers_lock_nobody_out_for_long() {
    let target = start();
    let path = target.path("control");
    let request = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"get_stats\"}\n".repeat(20);
    let deaf: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let stream = UnixStream::connect(&path).unwrap();
            stream.set_nonblocking(true).unwrap();
            while (&stream).write(&request).is_ok() {}
            stream
        })
        .collect();
    let call = || {
        let mut stream = UnixStream::connect(&path).ok()?;
        stream.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"list\"}\n").ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        line.contains("result").then_some(())
    };
    let start = std::time::Instant::now();
    while call().is_none() {
        assert!(start.elapsed() < 6 * HANG, "nobody gets in");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(deaf);
}

/// All places are taken by those who wait for an answer.
#[test]
fn a_client_too_many_is_told_the_limit() {
    let target = start();
    let stopped = Stopped::new(&target, "disk");
    let asked: Vec<_> = (0..CLIENTS).map(|_| Asked::new(&target, "get_stats", &json!({}))).collect();
    let refused = Asked::nothing(&target).answer().unwrap_err();
    assert_eq!(refused, "64 clients are connected, which is the limit");
    wait_until("it is logged", || target.log().contains("control: refused a client: 64 clients are connected"));
    drop(stopped);
    for asked in asked {
        asked.answer().unwrap();
    }
    target.call("list", &json!({})).unwrap();
}

/// Where others may use the control socket, too, one place is kept for the user of the target, and none of theirs goes to
/// others.
#[test]
fn other_users_do_not_lock_the_operator_out() {
    if !Uid::effective().is_root() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: another user: this is not root"); // not captured
        return;
    }
    let target = start();
    target.open_to_others();
    let mine = Asked::nothing(&target);
    let stopped = Stopped::new(&target, "disk");
    let theirs = std::thread::scope(|scope| {
        let connect = || {
            become_another_user();
            (1..CLIENTS).map(|_| Asked::new(&target, "get_stats", &json!({}))).collect::<Vec<_>>()
        };
        let theirs = scope.spawn(connect).join().unwrap();
        let one_more = || {
            become_another_user();
            Asked::nothing(&target).answer()
        };
        drop(mine); // its place is kept
        wait_until("they are told", || {
            let refused = scope.spawn(one_more).join().unwrap();
            refused.is_err_and(|why| why == "63 clients of other users are connected, which is the limit")
        });
        theirs
    });
    set_policy(&target, None, "dim"); // it is heard
    drop(stopped);
    for asked in theirs {
        asked.answer().unwrap();
    }
}

/// As a unit whose socket is another's, and which is started again and again.
#[test]
fn targets_that_find_their_socket_in_use_keep_no_front_end_out() {
    let target = start();
    let mut rivals: Vec<_> = (0..3)
        .map(|_| {
            let mut command = Command::new(BINARY);
            command.args(["serve", "--memory", "1M", "--socket"]).arg(target.path("disk"));
            Process(command.stderr(Stdio::piped()).spawn().unwrap())
        })
        .collect();
    let connected = || target.call("list", &json!({})).unwrap()[0]["connected"].clone();
    for _ in 0..200 {
        assert_eq!(connected(), false, "the place of its front end is free");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for _ in 0..3 {
        assert_serves(&target.path("disk"));
        wait_until("it is free", || connected() == false);
    }
    let all_wait = rivals.iter_mut().all(|rival| rival.0.try_wait().unwrap().is_none());
    for mut rival in rivals {
        let said = std::io::read_to_string(rival.0.stderr.take().unwrap()).unwrap();
        assert_eq!(rival.0.wait().unwrap().code(), Some(1), "{said}");
        assert!(said.contains("is in use by another process"), "{said}");
    }
    assert!(all_wait, "they did so all the time");
    let log = target.log();
    assert_eq!((log.matches(": connected").count(), log.matches("refused").count()), (3, 0), "nobody else: {log}");
}

/// A start that waits for one socket of a directory.
#[test]
fn a_target_that_waits_for_its_socket_delays_no_other_of_the_directory() {
    let target = start();
    let serve = |socket: &str| {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--memory", "1M", "--socket"]).arg(target.path(socket)).stderr(Stdio::piped());
        Process(command.spawn().unwrap())
    };
    let mut waiting = serve("disk");
    std::thread::sleep(std::time::Duration::from_millis(500)); // it has begun
    let _other = serve("other");
    wait_until("it serves", || UnixStream::connect(target.path("other")).is_ok());
    assert!(waiting.0.try_wait().unwrap().is_none(), "it still waits");
}

/// As by a terminal (SIGTSTP, SIGCONT), while clients are about to ask.
#[test]
fn a_target_that_was_stopped_and_goes_on_answers_its_clients() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut target = start_with(|command| command.args(["--metrics", &address]));
    let (mut scrape, mut call) = (TcpStream::connect(&address).unwrap(), Asked::nothing(&target));
    scrape.set_read_timeout(Some(HANG)).unwrap();
    let request = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"list\"}\n";
    scrape.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    call.0.write_all(&request[..9]).unwrap();
    wait_until("both are read", || unread(&call.0) == 0);
    for _ in 0..5 {
        target.signal(Signal::SIGSTOP);
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", target.pid())).unwrap();
        wait_until("it is stopped", || stat().contains(") T "));
        target.signal(Signal::SIGCONT);
        wait_until("it goes on", || !stat().contains(") T "));
    }
    scrape.write_all(b"Host: x\r\n\r\n").unwrap();
    call.0.write_all(&request[9..]).unwrap();
    call.answer().unwrap();
    let mut text = String::new();
    scrape.read_to_string(&mut text).unwrap();
    assert!(text.contains("coalesce_up"), "{text:?}");
    target.assert_sound();
}

/// The kit of these tests itself, which a debugger or a terminal stops, too.
#[test]
fn a_front_end_that_is_signalled_receives_its_answer() {
    extern "C" fn nothing(_: libc::c_int) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR2, &action) }.unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let receiver = std::thread::spawn(move || Wire::over(ours).receive());
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        // SAFETY: the thread is joined below.
        unsafe { libc::pthread_kill(receiver.as_pthread_t(), libc::SIGUSR2) };
    }
    Wire::over(theirs).send(GET_FEATURES, VERSION, &[], &[]).unwrap();
    assert_eq!(receiver.join().unwrap().unwrap().0, GET_FEATURES);
}

// ---------------------------------------------------------------------------------------------------------------------
// All of it
// ---------------------------------------------------------------------------------------------------------------------

fn said_at_the_end(log: &str) -> impl Iterator<Item = &str> {
    log.lines().skip_while(|line| !line.contains("finishing"))
}

#[test]
fn a_disk_whose_operator_makes_each_mistake_ten_times_serves_signals_and_starts_again() {
    let directory = TempDir::new().unwrap();
    let record = directory.path().join("record");
    configure(&directory, "none");
    let mut target = Target::spawn(directory, |command| {
        limit_files(command.arg("--record").arg(&record), 4 << 10, libc::RLIM_INFINITY)
    });
    let path = target.path("control");
    let mut left_open = Vec::new();
    for round in 0..10 {
        let stopped = Stopped::new(&target, "disk");
        let wrong = [set_policy(&target, Some(98), "none"), set_policy(&target, Some(99), "none")];
        let asked: Vec<_> = (0..50).map(|_| Asked::new(&target, "get_stats", &json!({}))).collect();
        for signal in foreign_signals() {
            send(target.pid(), signal);
            send(stopped.0, signal);
        }
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
            kill(stopped.0, signal).unwrap();
        }
        drop(stopped);
        for asked in wrong {
            asked.answer().unwrap_err();
        }
        for asked in asked {
            asked.answer().unwrap();
        }
        left_open.extend((0..CLIENTS).map(|_| UnixStream::connect(&path).unwrap()));
        if round % 3 == 0 {
            end_its_process(&target); // not each time: the pauses before a restart grow
        }
        assert_serves(&target.path("disk"));
    }
    assert!(target.is_alive(), "{}", target.log());
    set_policy(&target, None, HOLD_FOREVER).answer().unwrap();
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 256));
    for _ in 0..2 {
        driver.queue().take_all();
        hold(driver.queue(), 16); // a file completes in parts, and under this policy the first part is a load
    }
    wait_until("held", || target.count("disk", 0, "held") == 16);
    driver.queue().count_interrupts();
    target.signal(Signal::SIGHUP);
    assert_eq!(target.wait().code(), Some(1), "{}", target.log());
    assert_eq!((driver.queue().count_interrupts(), driver.queue().take_all().len()), (1, 16), "{}", target.log());
    let log = target.log();
    let problems: Vec<_> = said_at_the_end(&log).filter(|line| line.starts_with("error: ")).collect();
    assert!(matches!(problems[..], [one] if one.contains("disk disk: record: it is not complete")), "{problems:?}");
}
