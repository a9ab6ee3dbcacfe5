//! The program as management software starts it: by the conventions of QEMU's docs/interop/vhost-user.rst.

mod raw;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use raw::*;
use serde_json::{Value, json};
use std::io::Read as _;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The number that a descriptor has in the program.
const FD: i32 = 600;

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    /// Runs it with these arguments, with an image of 1 MiB at `image`, and with `socket` as descriptor [`FD`].
    fn start(directory: &TempDir, arguments: &[&str], socket: Option<&dyn AsFd>) -> Self {
        std::fs::write(directory.path().join("image"), vec![0; 1 << 20]).unwrap();
        let mut command = Command::new(BINARY);
        command.current_dir(directory.path()).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(socket) = socket.map(|socket| socket.as_fd().as_raw_fd()) {
            let inherit = move || {
                // SAFETY: only a system call, after a fork; the parent has the socket open.
                Ok(Errno::result(unsafe { libc::dup2(socket, FD) }).map(drop)?)
            };
            // SAFETY: as above.
            unsafe { command.pre_exec(inherit) };
        }
        Self(command.spawn().unwrap())
    }

    /// Waits for an end that must come by itself. Its code, and what it said on standard output and error.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut code = None;
        wait_until("the program does not end", || {
            code = self.0.try_wait().unwrap().map(|status| status.code());
            code.is_some()
        });
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (code.unwrap(), stdout, stderr)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }

    /// The disk's own process.
    fn worker(&self) -> Pid {
        let id = self.0.id();
        let mut children = String::new();
        wait_until("there is a process for the disk", || {
            children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
            !children.is_empty()
        });
        Pid::from_raw(children.trim().parse().unwrap())
    }
}

#[test]
fn the_capabilities_are_those_of_a_block_backend_and_nothing_else_is_done() {
    let directory = TempDir::new().unwrap();
    for more in [&[][..], &["--socket-path", "s", "--blk-file", "image", "--read-only"]] {
        let (code, stdout, stderr) =
            Program::start(&directory, &[&["--print-capabilities"], more].concat(), None).end();
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        let capabilities: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(capabilities, json!({ "type": "block", "features": ["read-only", "blk-file"] }));
        assert!(!directory.path().join("s").exists());
    }
}

#[test]
fn it_serves_a_file_at_a_path_until_sigterm() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("s");
    for read_only in [false, true] {
        let options = ["--socket-path=s", "--blk-file=image", "--read-only"];
        let program = Program::start(&directory, &options[..2 + usize::from(read_only)], None);
        wait_until("it listens", || UnixStream::connect(&socket).is_ok());
        let mut driver = Driver::start(&socket, &Setup::new(1, 64));
        assert_eq!(driver.queue().run(Op::Write(0, &[1; 512])).status == OK, !read_only);
        driver.stop_queue(0);
        program.signal(Signal::SIGTERM);
        let (code, _, stderr) = program.end();
        assert_eq!(code, Some(0), "{stderr}");
        assert!(!socket.exists(), "its socket is removed");
    }
}

/// The program on one end of a connection that it inherits, and the other end.
fn connected() -> (TempDir, Program, UnixStream) {
    let directory = TempDir::new().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let program = Program::start(&directory, &["--fd=600", "--blk-file=image"], Some(&theirs));
    drop(theirs);
    (directory, program, ours)
}

#[test]
fn it_serves_a_connection_that_it_inherits_until_the_front_end_leaves() {
    let (_directory, program, ours) = connected();
    let mut driver = Driver::over(Wire::over(ours), &Setup::new(1, 64));
    assert_drives(&mut driver);
    drop(driver);
    let (code, _, stderr) = program.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("image: connected") && stderr.contains("the front end has left"), "{stderr}");
}

/// Whoever opened it may have wanted to wait for nothing.
#[test]
fn an_inherited_connection_that_waits_for_nothing_is_waited_for() {
    let directory = TempDir::new().unwrap();
    let start = |arguments: &[&str]| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let program = Program::start(&directory, arguments, Some(&theirs));
        ours.set_read_timeout(Some(HANG)).unwrap();
        (program, ours)
    };
    let pause = || std::thread::sleep(std::time::Duration::from_millis(20));

    let (program, ours) = start(&["--fd=600", "--blk-file=image"]);
    let wire = Wire::over(ours);
    let question = [GET_FEATURES, VERSION, 0].map(u32::to_le_bytes).concat();
    for part in question.chunks(5) {
        wire.send_bytes(part, &[]).unwrap();
        pause();
    }
    assert_eq!(wire.receive().unwrap().0, GET_FEATURES);
    assert_drives(&mut Driver::over(wire, &Setup::new(1, 64)));
    assert_eq!(program.end().0, Some(0));

    let (program, mut ours) = start(&["serve", "--device", "nvme", "--socket", "/dev/fd/600", "--file", "image"]);
    let payload = b"\0\0\0\0{\"capabilities\":{}}\0";
    let header = [1 | 1 << 16, 16 + payload.len() as u32, 0, 0].map(u32::to_ne_bytes).concat(); // of message 1: the version
    for part in [&header[..], payload].concat().chunks(9) {
        std::io::Write::write_all(&mut ours, part).unwrap();
        pause();
    }
    let mut answer = [0; 16];
    ours.read_exact(&mut answer).unwrap();
    assert_eq!(
        (&answer[..4], &answer[8..]),
        (&header[..4], &[1, 0, 0, 0, 0, 0, 0, 0][..]),
        "an answer without an error"
    );
    drop(ours);
    assert_eq!(program.end().0, Some(0));
}

#[test]
fn a_front_end_that_breaks_the_protocol_on_an_inherited_connection_loses_it() {
    let (_directory, program, ours) = connected();
    let wire = Wire::over(ours);
    wire.send(u32::MAX, VERSION, &[], &[]).unwrap();
    wire.wait_closed();
    let (code, _, stderr) = program.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("disconnected: "), "{stderr}");
}

/// What the front end said to the first process is lost with it, so another could not go on.
#[test]
fn an_inherited_connection_ends_with_the_process_of_its_disk() {
    let (_directory, program, ours) = connected();
    let mut driver = Driver::over(Wire::over(ours), &Setup::new(1, 64));
    assert_drives(&mut driver);
    kill(program.worker(), Signal::SIGKILL).unwrap();
    driver.wire.wait_closed();
    let (code, _, stderr) = program.end();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.ends_with("coalesce-target: the disk's process has ended, and its connection with it\n"),
        "{stderr}"
    );
}

/// As a service manager has it: the socket is its own, and stays.
#[test]
fn it_serves_a_listener_that_it_inherits_and_leaves_it_in_place() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let early = Wire::connect(&path); // before it is started
    let program = Program::start(&directory, &["--fd=600", "--blk-file=image"], Some(&listener));
    assert_drives(&mut Driver::over(early, &Setup::new(1, 64)));
    assert_serves(&path);
    kill(program.worker(), Signal::SIGKILL).unwrap();
    assert_serves(&path); // by another process
    program.signal(Signal::SIGTERM);
    let (code, _, stderr) = program.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(path.metadata().unwrap().file_type().is_socket());
}

#[test]
fn what_is_no_socket_to_inherit_is_refused_with_what_is_allowed() {
    let directory = TempDir::new().unwrap();
    let (datagram, _other) = UnixDatagram::pair().unwrap();
    let (stream, _peer) = UnixStream::pair().unwrap();
    let (file, internet) = (tempfile::tempfile().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let disks = "[[disk]]\nsocket = '/dev/fd/600'\nmemory = '1M'\n[[disk]]\nsocket = 's'\nmemory = '1M'\n";
    std::fs::write(directory.path().join("two.toml"), disks).unwrap();
    let control = ["serve", "--socket", "s", "--memory", "1M", "--control", "/dev/fd/600"];
    for (arguments, socket, parts) in [
        (&["--fd=2", "--blk-file=image"][..], None, ["socket /dev/fd/2", "allowed: 3 or more"]),
        (&["--fd=600", "--blk-file=image"], None, ["socket /dev/fd/600", "has not inherited it"]),
        (&["--fd=600", "--blk-file=image"], Some(&file as &dyn AsFd), ["socket /dev/fd/600", "not a socket"]),
        (&["--fd=600", "--blk-file=image"], Some(&datagram), ["socket /dev/fd/600", "not a Unix stream socket"]),
        (&["--fd=600", "--blk-file=image"], Some(&internet), ["socket /dev/fd/600", "not a Unix stream socket"]),
        (&["serve", "--config", "two.toml"], Some(&stream), ["connected already", "sockets that listen"]),
        (&control, Some(&stream), ["control socket /dev/fd/600", "one that listens"]),
    ] {
        let (code, _, stderr) = Program::start(&directory, arguments, socket).end();
        let last = stderr.lines().last().unwrap_or_default();
        assert_eq!(code, Some(1), "{arguments:?}: {stderr}");
        assert!(parts.iter().all(|part| last.contains(part)), "{arguments:?}: {last}, without one of {parts:?}");
    }
    for (arguments, part) in [
        (&["--fd=600"][..], "--blk-file"),
        (&["--blk-file=image"], "--socket-path"),
        (&["--fd=600", "--socket-path=s", "--blk-file=image"], "cannot be used with"),
        (&["--fd=600", "serve", "--socket", "s"], "cannot be used with"),
        (&["--fd=x", "--blk-file=image"], "--fd <FDNUM>"),
    ] {
        let (code, _, stderr) = Program::start(&directory, arguments, None).end();
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(part), "{arguments:?}: {stderr}");
    }
}
