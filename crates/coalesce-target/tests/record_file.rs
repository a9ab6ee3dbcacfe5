//! The file that `--record` names: whatever is at that place, and whyever a target does not start, nothing is lost but an older
//! record of a target that starts.

mod raw;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use raw::*;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What a target says that must refuse to start, in this directory.
fn refused(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    command.current_dir(directory).arg("serve").args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let mut code = None;
    wait_until("it does not end", || {
        code = process.0.try_wait().unwrap().map(|status| status.code());
        code.is_some()
    });
    let said = std::io::read_to_string(process.0.stderr.take().unwrap()).unwrap();
    assert_eq!(code, Some(Some(1)), "{arguments:?}: {said}");
    said
}

const OLD: &str = "{\"time_ns\":1,\"disk\":\"s\",\"queue\":0,\"event\":\"submit\",\"id\":1}\n";

#[test]
fn nothing_but_an_older_record_is_overwritten() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let data = pattern(1, 1 << 16);
    for image in ["image", "theirs", "idle", "unserved"] {
        std::fs::write(path(image), &data).unwrap();
        std::fs::hard_link(path(image), path(&format!("{image}-linked"))).unwrap();
    }
    std::fs::write(path("letter"), "Dear all,\n").unwrap();
    std::fs::write(path("short"), "{").unwrap();
    std::fs::write(path("binary"), [0xff; 64]).unwrap();
    std::fs::write(path("old"), OLD).unwrap();
    symlink("old", path("link")).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    nix::unistd::mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(path("socket")).unwrap();
    let disks = [Disk::file("theirs", &path("theirs")), Disk::file("idle", &path("idle")).migratable()];
    let other = TempDir::new().unwrap();
    write_config(&other, &disks);
    let mut running = Target::spawn(other, |command| command);
    for (record, part) in [
        ("image", "is the image of disk s"),
        ("./image", "is the image of disk s"),
        ("image-linked", "is the image of disk s"),
        ("theirs", "is locked"),
        ("theirs-linked", "is locked"),
        ("idle", "is neither empty nor a record"), // its target locks it only while a guest uses it
        ("idle-linked", "is neither empty nor a record"),
        ("unserved", "is neither empty nor a record"),
        ("letter", "is neither empty nor a record"),
        ("short", "is neither empty nor a record"),
        ("binary", "is neither empty nor a record"),
        ("link", "is a symbolic link"),
        ("folder", "is not a regular file"),
        ("pipe", "is not a regular file"),
        ("socket", "is not a regular file"),
        ("/dev/full", "is not a regular file"),
    ] {
        let said = refused(directory.path(), &["--socket", "s", "--file", "image", "--record", record]);
        assert!(said.contains(&format!("record {record}: {part}")), "{record}: {said}");
        assert!(!path("s").exists(), "{record}: its socket is left behind");
    }
    for image in ["image", "theirs", "idle", "unserved"] {
        assert!(std::fs::read(path(image)).unwrap() == data, "{image}");
    }
    let text = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    assert_eq!([text("letter"), text("short"), text("old")], ["Dear all,\n", "{", OLD]);
    assert_serves(&running.path("theirs"));
    running.assert_sound();

    write_config(&directory, &[Disk::memory("s", "1M")]);
    let record = path("old");
    let mut target = Target::spawn(directory, |command| command.arg("--record").arg(&record));
    assert_serves(&target.path("s"));
    target.signal(Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(0), "{}", target.log());
    let text = std::fs::read_to_string(&record).unwrap();
    assert!(text.contains("\"event\":\"complete\"") && !text.contains(OLD), "{text}");
}

#[test]
fn a_target_that_does_not_start_leaves_the_record_as_it_was() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("image"), [0; 4096]).unwrap();
    std::fs::write(path("old"), OLD).unwrap();
    File::create(path("empty")).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    std::fs::write(path("letter"), "Dear all,\n").unwrap();
    for (arguments, part) in [
        (&["--file", "imgae"][..], "image imgae: No such file"),
        (&["--file", "image", "--block-size", "64K"], "block_size is 65536"),
        (&["--file", "image", "--user", "no such user"], "user no such user is unknown"),
        (&["--file", "image", "--metrics", &address], "Address already in use"),
        (&["--file", "image", "--control", "letter"], "socket letter: exists and is not a socket"),
        (&["--file", "image", "--control", "nowhere/c"], "socket nowhere/c: No such file"),
    ] {
        for record in ["old", "empty", "new"] {
            let said = refused(directory.path(), &[&["--socket", "s", "--record", record], arguments].concat());
            assert!(said.contains(part), "{arguments:?}: {said}");
        }
        let text = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        assert_eq!([text("old"), text("empty")], [OLD, ""], "{arguments:?}");
        assert!(!path("new").exists(), "{arguments:?} leaves a file");
    }
}

#[test]
fn a_second_target_leaves_the_record_of_the_first_alone() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &[Disk::memory("s", "1M")]);
    let record = directory.path().join("record");
    let mut target = Target::spawn(directory, |command| command.arg("--record").arg(&record));
    assert_serves(&target.path("s"));
    wait_until("it is recorded", || std::fs::metadata(&record).unwrap().len() > 100);
    for (socket, part) in [("s", "is in use by another process"), ("t", "record record: is locked")] {
        let said = refused(target.directory.path(), &["--socket", socket, "--memory", "1M", "--record", "record"]);
        assert!(said.contains(part), "{said}");
    }
    assert_serves(&target.path("s"));
    target.signal(Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(0), "{}", target.log());
    let text = std::fs::read_to_string(&record).unwrap();
    let count = |event: &str| text.lines().filter(|line| line.contains(event)).count();
    assert_eq!((count("\"submit\""), count("\"complete\"")), (6, 6), "of both clients: {text}");
}

/// What a front end does before the rest of a start has succeeded is recorded too: after what is erased.
#[test]
fn a_front_end_that_comes_before_the_record_begins_is_recorded_from_its_first_request() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &[Disk::memory("s", "1M")]);
    let record = directory.path().join("record");
    std::fs::write(&record, OLD).unwrap();
    let in_use = UnixListener::bind(directory.path().join("control")).unwrap(); // for which the target waits
    let mut target = Target::spawn(directory, |command| command.arg("--record").arg(&record));
    wait_until("the disk is served", || UnixStream::connect(target.path("s")).is_ok());
    assert_serves(&target.path("s"));
    assert_eq!(std::fs::read_to_string(&record).unwrap(), OLD, "it may still not start");
    drop(in_use);
    wait_until("it has begun", || std::fs::read_to_string(&record).unwrap().contains("\"complete\""));
    target.signal(Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(0), "{}", target.log());
    let text = std::fs::read_to_string(&record).unwrap();
    let count = |event: &str| text.lines().filter(|line| line.contains(event)).count();
    assert_eq!((count("\"submit\""), count("\"complete\"")), (3, 3), "{text}");
}
