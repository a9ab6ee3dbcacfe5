//! The program as its users run it: what it says, what it leaves behind, and what it never touches.

mod built;
mod raw;

use coalesce_policy::Spec;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use promql_parser::parser::{Expr, LabelModifier, VectorSelector};
use raw::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};
use tempfile::TempDir;

// ---------------------------------------------------------------------------------------------------------------------
// Running it
// ---------------------------------------------------------------------------------------------------------------------

static BENCH: LazyLock<PathBuf> = LazyLock::new(|| built::program("coalesce-bench"));

/// How a run ended.
#[derive(Debug)]
struct Ended {
    program: String,
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.map(|mut pipe| pipe.read_to_string(&mut text));
        text
    })
}

/// Waits for an end that must come by itself.
fn end(command: &mut Command) -> Ended {
    let mut process = Process(command.stdin(Stdio::null()).spawn().unwrap());
    let (stdout, stderr) = (collect(process.0.stdout.take()), collect(process.0.stderr.take()));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = process.0.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < 6 * HANG, "hung: {command:?}");
        sleep(Duration::from_millis(1));
    };
    let program = Path::new(command.get_program()).file_name().unwrap().to_str().unwrap().into();
    Ended { program, code: status.code(), stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

fn command_of(program: &Path, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    command_of(Path::new(BINARY), directory, arguments)
}

fn run(directory: &TempDir, arguments: &[&str]) -> Ended {
    end(&mut command(directory.path(), arguments))
}

fn bench(directory: &TempDir, arguments: &[&str]) -> Ended {
    end(&mut command_of(&BENCH, directory.path(), arguments))
}

/// A target with these arguments and a control socket, in a directory where it may use short names.
fn serve(directory: TempDir, arguments: &[&str]) -> Target {
    Target::spawn(directory, |command| {
        let arguments = [&["serve", "--control", "control"], arguments].concat();
        *command = self::command(Path::new(command.get_args().last().unwrap()).parent().unwrap(), &arguments);
        command.stdout(Stdio::null())
    })
}

fn assert_one_line(ended: &Ended, parts: &[&str], what: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{what}: {ended:?}");
    let line = ended.stderr.strip_suffix('\n').unwrap_or_else(|| panic!("{what}: {ended:?}"));
    assert!(line.starts_with(&ended.program) && !line.contains('\n'), "{what}: {line}");
    assert!(parts.iter().all(|part| line.contains(part)), "{what}: {line}, without one of {parts:?}");
}

fn assert_usage(ended: &Ended, parts: &[&str], what: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{what}: {ended:?}");
    assert!(ended.stderr.starts_with("error: "), "{what}: {ended:?}");
    let missing: Vec<_> = parts.iter().filter(|part| !ended.stderr.contains(**part)).collect();
    assert!(missing.is_empty(), "{what}: {}, without {missing:?}", ended.stderr);
}

/// What is in a directory, in order.
fn names(directory: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn write(directory: &TempDir, name: &str, bytes: impl AsRef<[u8]>) {
    std::fs::write(directory.path().join(name), bytes).unwrap();
}

fn read(directory: &TempDir, name: &str) -> Vec<u8> {
    std::fs::read(directory.path().join(name)).unwrap()
}

// ---------------------------------------------------------------------------------------------------------------------
// Help
// ---------------------------------------------------------------------------------------------------------------------

/// It takes space only where it is written.
#[test]
fn a_memory_disk_larger_than_memory_is_served_with_a_warning() {
    for (size, is_warned) in [("32T", true), ("64M", false)] {
        let target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", size]);
        wait_until("its line in the log", || target.log().contains("serves virtio-blk at s"));
        assert_eq!(target.log().contains("bytes of memory: a guest that writes more"), is_warned, "{}", target.log());
    }
}

/// More of them than a guest may have lines in a second.
#[test]
fn each_disk_is_introduced_at_the_start_with_its_device_socket_data_queues_and_policy() {
    let directory = TempDir::new().unwrap();
    write(&directory, "image", vec![0; 513 * 512]);
    let more: String = (0..20).map(|i| format!("[[disk]]\nsocket = 's{i}'\nmemory = '64M'\nqueues = 1\n")).collect();
    let toml = "
        [[disk]]
        socket = 'plain'
        memory = '1G'
        [[disk]]
        name = 'second'
        device = 'nvme'
        socket = 'n'
        file = 'image'
        read_only = true
        queues = 2
        policy = 'vic:cif_threshold=2'
    ";
    write(&directory, "c.toml", toml.to_owned() + &more);
    let target = serve(directory, &["--config", "c.toml", "--metrics", "127.0.0.1:0"]);
    let last = "s19: serves virtio-blk at s19: memory, 64M (67108864 bytes), 1 queue, policy auto\n";
    wait_until("the last line", || target.log().contains(last));
    for line in [
        "plain: serves virtio-blk at plain: memory, 1G (1073741824 bytes), 16 queues, policy auto\n",
        "second: serves nvme at n: image, 262656 bytes, 2 queues, policy vic:cif_threshold=2, read-only\n",
        "metrics at http://127.0.0.1:",
    ] {
        assert!(target.log().contains(line), "{line} is missing: {}", target.log());
    }
    assert_eq!(target.log().matches(": serves ").count(), 22, "none is dropped: {}", target.log());
}

#[test]
fn every_subcommand_explains_itself() {
    let directory = TempDir::new().unwrap();
    for (arguments, words) in [
        (&["--help"][..], &["serve", "policies", "top", "call", "--socket-path <PATH>", "--fd <FDNUM>"][..]),
        (
            &["serve", "--help"],
            &[
                "--socket <PATH>",
                "--file <IMG>",
                "--memory <SIZE>",
                "--latency <TIME>",
                "--queues <N>",
                "--policy <TEXT>",
                "--control <PATH>",
                "--metrics <ADDR:PORT>",
                "--metrics-remote",
                "neither TLS nor a password",
                "--record <FILE>",
                "--read-only",
                "--raw",
                "--direct",
                "--migratable",
                "--config <TOML>",
                "--serial",
                "--block-size",
                "SIGTERM",
            ],
        ),
        (&["policies", "--help"], &["policy"]),
        (&["call", "--help"], &["--control <PATH>", "get_stats", "set_policy", "set_running", "get_policy", "list"]),
        (&["help", "serve"], &["--socket <PATH>"]),
    ] {
        let ended = run(&directory, arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        for word in words {
            assert!(ended.stdout.contains(word), "{arguments:?}: {word} is missing: {}", ended.stdout);
        }
    }
    for arguments in [&["--version"][..], &["serve", "--version"]] {
        let ended = run(&directory, arguments);
        assert!(ended.code == Some(0) && ended.stdout.contains(env!("CARGO_PKG_VERSION")), "{ended:?}");
    }
}

/// These are no subcommands, but somebody may think or remember so.
#[test]
fn what_another_program_does_is_said_with_its_name() {
    let directory = TempDir::new().unwrap();
    for (arguments, command) in [
        (&["bench"][..], "coalesce-bench"),
        (&["bench", "--help"], "coalesce-bench --help"),
        (&["bench", "--socket", "s", "-q"], "coalesce-bench --socket s -q"),
        (&["explain", "r", "--policy", "vic"], "coalesce-sim explain r --policy vic"),
    ] {
        let said = format!("coalesce-target: another program does this: {command}");
        assert_one_line(&run(&directory, arguments), &[&said], command);
    }
    assert!(!run(&directory, &["--help"]).stdout.contains("bench"));
}

#[test]
fn policies_lists_every_policy_with_every_key_and_every_default_is_accepted() {
    let directory = TempDir::new().unwrap();
    let ended = run(&directory, &["policies"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let target = serve(directory, &["--socket", "s", "--memory", "1M"]);
    let mut rest = ended.stdout.as_str();
    for policy in Spec::policies() {
        target.set_policy("s", policy.name);
        let heading = format!("\n{}\n    {}\n", policy.name, policy.about);
        rest = rest.split_once(&heading).unwrap_or_else(|| panic!("{heading} is missing: {rest}")).1;
        for key in &policy.keys {
            let lines = [key.name, key.about, &key.allowed, &format!("[default: {}]", key.default)];
            for part in lines {
                assert!(rest.contains(part), "{}: {part} is missing: {rest}", policy.name);
            }
            target.set_policy("s", &format!("{}:{}={}", policy.name, key.name, key.default));
        }
    }
}

#[test]
fn a_reader_that_leaves_before_the_end_is_no_error() {
    let target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M"]);
    let program = Path::new(BINARY);
    for (program, arguments) in [
        (program, &["policies"][..]),
        (program, &["call", "--control", "control", "get_stats"]),
        (&BENCH, &["--socket", "s", "--ops", "10", "--json"]),
        (&BENCH, &["--socket", "s", "--ops", "10"]),
        (program, &["--help"]),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = end(command_of(program, target.directory.path(), arguments).stdout(writer));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        wait_until("its connection is closed", || connected(&target, "s") == json!(false));
    }
}

#[test]
fn output_that_cannot_be_written_is_one_clear_line() {
    let target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M"]);
    let program = Path::new(BINARY);
    for (program, arguments) in [
        (program, &["policies"][..]),
        (program, &["call", "--control", "control", "get_stats"]),
        (&BENCH, &["--socket", "s", "--ops", "10", "--json"]),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = end(command_of(program, target.directory.path(), arguments).stdout(full));
        assert_one_line(&ended, &["standard output", "No space left on device"], &format!("{arguments:?}"));
    }
}

fn connected(target: &Target, disk: &str) -> Value {
    let list = target.call("list", &json!({})).unwrap();
    let found = list.as_array().unwrap().iter().find(|about| about["ctrlr"] == disk).unwrap();
    found["connected"].clone()
}

// ---------------------------------------------------------------------------------------------------------------------
// What is refused
// ---------------------------------------------------------------------------------------------------------------------

/// A directory with much in it that cannot be served.
fn odds_and_ends() -> TempDir {
    let directory = TempDir::new().unwrap();
    write(&directory, "image", vec![7; 1 << 16]);
    write(&directory, "odd", vec![7; 1000]);
    write(&directory, "one", "7");
    write(&directory, "empty", "");
    write(&directory, "raw.toml", "[[disk]]\nsocket = 's'\nmemory = '1M'\nraw = true\n");
    std::fs::create_dir(directory.path().join("directory")).unwrap();
    nix::unistd::mkfifo(&directory.path().join("pipe"), Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("nowhere", directory.path().join("dangling")).unwrap();
    directory
}

#[test]
fn what_cannot_be_served_is_one_clear_line_that_names_it() {
    let directory = odds_and_ends();
    let before = names(&directory);
    let long = "x".repeat(108);
    for (arguments, parts) in [
        (&["--socket", "s", "--file", "missing"][..], &["image missing", "No such file"][..]),
        (&["--socket", "s", "--file", "dangling"], &["image dangling", "No such file"]),
        (&["--socket", "s", "--file", "missing", "--read-only"], &["image missing", "No such file"]),
        (&["--socket", "s", "--file", "missing", "--direct"], &["image missing", "No such file"]),
        (&["--socket", "s", "--file", "directory"], &["image directory", "neither a file nor a block device"]),
        (&["--socket", "s", "--file", "directory", "--read-only"], &["image directory", "neither a file nor a block"]),
        (&["--socket", "s", "--file", "pipe"], &["image pipe", "neither a file nor a block device"]),
        (&["--socket", "s", "--file", "pipe", "--read-only"], &["image pipe", "neither a file nor a block device"]),
        (&["--socket", "s", "--file", "/dev/null"], &["image /dev/null", "neither a file nor a block device"]),
        (&["--socket", "s", "--file", "odd"], &["image odd is 1000 bytes long, not a multiple of 512"]),
        (&["--socket", "s", "--file", "one"], &["image one is 1 byte long, not a multiple of 512"]),
        (&["--socket", "s", "--file", "empty"], &["image empty is empty; allowed: a multiple of 512 bytes, not 0"]),
        (&["--socket", "s", "--file", "image", "--block-size", "65537"], &["block_size is 65537", "512 to 65536"]),
        (&["--socket", "s", "--file", "image", "--block-size", "1000"], &["block_size is 1000", "powers of two"]),
        (&["--socket", "s", "--memory", "512", "--block-size", "4K"], &["block_size is 4096", "divide 512"]),
        (&["--socket", "s", "--memory", "0"], &["a memory disk of 0 bytes", "multiple of 512 and not 0"]),
        (&["--socket", "s", "--memory", "1000"], &["a memory disk of 1000 bytes", "multiple of 512"]),
        (&["--socket", "s", "--memory", "1"], &["a memory disk of 1 byte:", "multiple of 512"]),
        (&["--socket", "s", "--memory", "120T"], &["a memory disk of 131941395333120 bytes", "some 80 TiB"]),
        (&["--socket", "s", "--memory", "4194304T"], &["a memory disk of 4611686018427387904 bytes", "some 80 TiB"]),
        (&["--socket", "s"], &["disk s", "either a file or memory"]),
        (&["--socket", "s", "--memory", "1M", "--direct"], &["disk s", "direct is for files"]),
        (&["--config", "raw.toml"], &["raw.toml", "disk s", "raw is for files"]),
        (
            &["--socket", "s", "--memory", "1M", "--migratable"],
            &["disk s", "migratable is for virtio-blk disks over a file"],
        ),
        (
            &["--socket", "s", "--file", "image", "--migratable", "--device", "nvme"],
            &["disk s", "NVMe has no dirty log"],
        ),
        (&["--socket", "s", "--memory", "1M", "--serial", &long], &["serial has 108 bytes", "at most 20"]),
        (&["--socket", "image", "--memory", "1M"], &["socket image", "is not a socket", "left alone"]),
        (&["--socket", "directory", "--memory", "1M"], &["socket directory", "is not a socket", "left alone"]),
        (&["--socket", "dangling", "--memory", "1M"], &["socket dangling", "is not a socket", "left alone"]),
        (&["--socket", "pipe", "--memory", "1M"], &["socket pipe", "is not a socket", "left alone"]),
        (&["--socket", "no/s", "--memory", "1M"], &["socket no/s", "No such file"]),
        (&["--socket", "image/s", "--memory", "1M"], &["socket image/s", "Not a directory"]),
        (&["--socket", &long, "--memory", "1M"], &[&long, "108 bytes", "allowed: at most 107"]),
        (&["--socket", "s", "--memory", "1M", "--control", "image"], &["socket image", "is not a socket"]),
        (&["--socket", "s", "--memory", "1M", "--control", "s"], &["socket s", "a socket of its own"]),
        (&["--config", "missing"], &["configuration missing", "No such file"]),
        (&["--config", "directory"], &["configuration directory", "Is a directory"]),
    ] {
        let ended = run(&directory, &[&["serve"], arguments].concat());
        assert_one_line(&ended, parts, &format!("{arguments:?}"));
        assert_eq!(names(&directory), before, "{arguments:?}: nothing is left behind, nothing is gone");
    }
    assert_eq!((read(&directory, "image"), read(&directory, "odd")), (vec![7; 1 << 16], vec![7; 1000]));
}

/// What QEMU calls the format, where the image has its mark, and the mark.
const MARKS: [(&str, usize, &[u8]); 16] = [
    ("qcow", 0, b"QFI\xfb\0\0\0\x01"),
    ("qcow2", 0, b"QFI\xfb\0\0\0\x02"),
    ("qcow2", 0, b"QFI\xfb\0\0\0\x03"),
    ("qed", 0, b"QED\0"),
    ("vmdk", 0, b"KDMV\x01\0\0\0"),
    ("vmdk", 0, b"COWD"),
    ("vmdk", 0, b"# Disk DescriptorFile\nversion=1\n"),
    ("vdi", 0x40, b"\x7f\x10\xda\xbe"),
    ("vhdx", 0, b"vhdxfile"),
    ("vpc", 0, b"conectix"),
    ("vpc", (1 << 16) - 512, b"conectix"),
    ("parallels", 0, b"WithoutFreeSpace"),
    ("parallels", 0, b"WithouFreSpacExt"),
    ("bochs", 0, b"Bochs Virtual HD Image"),
    ("cloop", 0, b"#!/bin/sh\n#V2.0 Format\n"),
    ("dmg", (1 << 16) - 512, b"koly"),
];

#[test]
fn an_image_of_another_format_is_served_only_if_it_is_said_to_be_raw() {
    let directory = TempDir::new().unwrap();
    for (format, at, mark) in MARKS {
        let mut image = vec![0; 1 << 16];
        image[at..at + mark.len()].copy_from_slice(mark);
        write(&directory, "image", &image);
        for more in [&[][..], &["--read-only"], &["--device", "nvme"]] {
            let ended = run(&directory, &[&["serve", "--socket", "s", "--file", "image"], more].concat());
            let said = format!("image image is of format {format}, ");
            assert_one_line(&ended, &[&said, "qemu-img convert -O raw", "--raw", "raw = true"], format);
        }
        assert!(read(&directory, "image") == image, "{format}");
        if at < 512 {
            write(&directory, "image", &image[..1000]); // as qemu-img leaves some
            let ended = run(&directory, &["serve", "--socket", "s", "--file", "image"]);
            assert_one_line(&ended, &[&format!("image image is of format {format}, ")], format);
        }
    }
    // What a guest may well leave in a raw image is no mark.
    for other in [&b"LUKS\xba\xbe\0\x02"[..], b"\xeb\x63\x90", b"QFI", b"\0"] {
        write(&directory, "image", [other, &vec![0; (1 << 16) - other.len()]].concat());
        let target = serve(
            TempDir::new().unwrap(),
            &["--socket", "s", "--file", directory.path().join("image").to_str().unwrap()],
        );
        assert_serves(&target.path("s"));
    }
    let (_, _, mark) = MARKS[1];
    write(&directory, "image", [mark, &vec![0; (1 << 16) - mark.len()]].concat());
    write(&directory, "c.toml", "[[disk]]\nsocket = 's'\nfile = 'image'\nraw = true\n");
    let target = serve(directory, &["--config", "c.toml"]);
    assert_serves(&target.path("s"));
    drop(target);
    let directory = TempDir::new().unwrap();
    write(&directory, "image", [mark, &vec![0; (1 << 16) - mark.len()]].concat());
    let target = serve(directory, &["--socket", "s", "--file", "image", "--raw"]);
    assert_serves(&target.path("s"));
}

/// It is its own disk, and what a guest writes there must not keep another process from serving it.
#[test]
fn a_disk_whose_guest_writes_the_mark_of_a_format_is_served_again_after_a_crash() {
    let directory = TempDir::new().unwrap();
    write(&directory, "image", vec![0; 1 << 16]);
    let target = serve(directory, &["--socket", "s", "--file", "image"]);
    let mut driver = Driver::start(&target.path("s"), &Setup::new(1, 64));
    let data = [MARKS[1].2, &[0; 504]].concat();
    assert_eq!(driver.queue().run(Op::Write(0, &data)).status, OK);
    let before = target.pid_of("s");
    nix::sys::signal::kill(before, Signal::SIGKILL).unwrap();
    drop(driver);
    wait_until("another process serves", || {
        let pid = target.call("list", &json!({})).unwrap()[0]["pid"].as_i64();
        pid.is_some_and(|pid| pid != i64::from(before.as_raw()))
    });
    assert_serves(&target.path("s"));
}

#[test]
fn what_is_wrong_on_the_command_line_is_named_with_what_is_allowed() {
    let directory = TempDir::new().unwrap();
    let memory = ["serve", "--socket", "s", "--memory"];
    let more = ["serve", "--socket", "s", "--memory", "1M"];
    for (first, arguments, parts) in [
        (&[][..], &[][..], &["serve", "policies", "call"][..]),
        (&[], &["sing"], &["'sing'", "--help"]),
        (&["serve"], &[], &["--socket <PATH>", "--config <TOML>"]),
        (&["serve"], &["--memory", "1M"], &["--socket <PATH>", "--config <TOML>"]),
        (&memory, &["1M", "--file", "x"], &["--memory", "--file"]),
        (&memory, &["1X"], &["--memory <SIZE>", "unknown unit X", "K, M, G, T"]),
        (&memory, &["1KB"], &["--memory <SIZE>", "unknown unit KB", "K, M, G, T"]),
        (&memory, &["much"], &["--memory <SIZE>", "size much"]),
        (&memory, &["1.5G"], &["--memory <SIZE>", "size 1.5G", "K, M, G or T"]),
        (&memory, &["16777216T"], &["--memory <SIZE>", "size 16777216T is too large"]),
        (&more, &["--queues", "0"], &["--queues <N>", "queues is 0; allowed: 1 to 16"]),
        (&more, &["--queues", "17"], &["--queues <N>", "queues is 17; allowed: 1 to 16"]),
        (&more, &["--queues", "65536"], &["--queues <N>", "queues is 65536; allowed: 1 to 16"]),
        (&more, &["--queues", "two"], &["--queues <N>", "queues is two; allowed: 1 to 16"]),
        (&more, &["--block-size", "4X"], &["--block-size <BYTES>", "unknown unit X", "K, M, G, T"]),
        (&more, &["--poll", "1"], &["--poll <TIME>", "poll 1 has no unit", "1us"]),
        (&more, &["--poll", "1h"], &["--poll <TIME>", "poll 1h has an unknown unit", "ns, us, ms, s"]),
        (&more, &["--poll", "11ms"], &["--poll <TIME>", "allowed: 0 to 10ms"]),
        (&more, &["--latency", "1"], &["--latency <TIME>", "latency 1 has no unit", "1us"]),
        (&more, &["--latency", "1001ms"], &["--latency <TIME>", "allowed: 0 to 1s"]),
        (&more, &["--latency", "2ms..1ms"], &["--latency <TIME>", "2ms..1ms: 1ms is less than 2ms"]),
        (&["serve", "--socket", "s", "--file", "f"], &["--latency", "1ms"], &["--latency <TIME>", "--file"]),
        (&["serve", "--config", "c"], &["--latency", "1ms"], &["--config", "--latency"]),
        (&more, &["--metrics", "9600"], &["--metrics", "9600 is not ADDR:PORT", "127.0.0.1:9600"]),
        (&more, &["--metrics", "localhost:9600"], &["--metrics", "is not ADDR:PORT", "a name instead of ADDR"]),
        (&more, &["--iops", "5k"], &["--iops <N>", "iops is 5k; allowed: 1 to 1000000000, or 0: no limit"]),
        (&more, &["--iops", "1000000001"], &["--iops <N>", "iops is 1000000001; allowed: 1 to 1000000000"]),
        (&more, &["--log", "loud"], &["--log <LEVEL>", "log level is loud; allowed: error, warn, info, debug, off"]),
        (&more, &["--log", "trace"], &["log level is trace; allowed: error"]),
        (&more, &["--queue", "2"], &["'--queue'", "--queues"]),
        (&more, &["--config", "c"], &["--config", "--socket"]),
        (&["serve", "--config", "c"], &["--queues", "2"], &["--config", "--queues"]),
        (&["serve", "--config", "c"], &["--policy", "none"], &["--config", "--policy"]),
        (&["serve", "--config", "c"], &["--memory", "1M"], &["--config", "--memory"]),
        (&["serve", "--config", "c"], &["--read-only"], &["--config", "--read-only"]),
        (&["serve", "--config", "c"], &["--direct"], &["--config", "--direct"]),
        (&["call"], &["list"], &["--control <PATH>"]),
        (&["call", "--control", "c"], &[], &["<METHOD>"]),
        (&["policies"], &["vic"], &["'vic'"]),
    ] {
        let ended = run(&directory, &[first, arguments].concat());
        if first.is_empty() && arguments.is_empty() {
            assert_eq!(ended.code, Some(2));
            assert!(parts.iter().all(|part| ended.stderr.contains(part)), "{ended:?}");
        } else {
            assert_usage(&ended, parts, &format!("{first:?} {arguments:?}"));
        }
        assert!(names(&directory).is_empty(), "{arguments:?}: something is left behind");
    }
    let ended = end(command(directory.path(), &[&more[..], &["--queues", "1"]].concat()).env("COALESCE_LOG", "loud"));
    assert_usage(&ended, &["COALESCE_LOG is loud; allowed: error, warn, info, debug, off"], "of the environment");
}

const WRONG_POLICIES: [(&str, &[&str]); 12] = [
    ("vix", &["unknown policy \"vix\"", "auto, budget, cint, vic, none, nvme, batch, dim, spdk_vhost"]),
    ("", &["unknown policy \"\"", "auto, budget, cint, vic, none, nvme, batch, dim, spdk_vhost"]),
    ("VIC", &["unknown policy \"VIC\"", "vic"]),
    ("vic:threshold=2", &["vic: unknown key \"threshold\"", "cif_threshold, iops_threshold, epoch"]),
    ("none:thr=1", &["none: unknown key \"thr\""]),
    ("cint:delta=5", &["cint: delta=5 has no unit", "5us"]),
    ("cint:delta=5parsec", &["cint: delta=5parsec has an unknown unit", "ns, us, ms, s"]),
    ("nvme:thr=256", &["nvme: thr=256 is out of range", "0 to 255"]),
    ("nvme:thr=-1", &["nvme: thr=-1 is not a number", "0 to 255"]),
    ("cint:ooo=maybe", &["cint: ooo=maybe", "on, off"]),
    ("cint:ooo", &["cint: \"ooo\" is not key=value"]),
    ("nvme:thr=1,thr=2", &["nvme: thr is given twice"]),
];

#[test]
fn a_wrong_policy_is_named_with_what_is_allowed_wherever_it_is_given() {
    let target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M", "--policy", "dim"]);
    let directory = TempDir::new().unwrap();
    for (text, parts) in WRONG_POLICIES {
        let ended = run(&directory, &["serve", "--socket", "s", "--memory", "1M", "--policy", text]);
        assert_usage(&ended, &[&["--policy <TEXT>"], parts].concat(), text);

        write(&directory, "c.toml", format!("[[disk]]\nsocket = 's'\nmemory = '1M'\npolicy = '{text}'\n"));
        let ended = run(&directory, &["serve", "--config", "c.toml"]);
        let what = &ended.stderr;
        assert!(ended.code == Some(1) && what.contains("configuration c.toml") && what.contains("line 4"), "{what}");
        assert!(parts.iter().all(|part| what.contains(part)), "{what}");

        let params = json!({ "ctrlr": "s", "policy": text }).to_string();
        let ended = run(&target.directory, &["call", "--control", "control", "set_policy", &params]);
        assert_one_line(&ended, parts, text);
    }
    // A policy that is valid, but not for every device.
    let (policy, parts) = ("nvme:host=on", ["disk s: policy nvme:host=on", "only an NVMe disk"]);
    let params = json!({ "ctrlr": "s", "policy": policy }).to_string();
    assert_one_line(&run(&target.directory, &["call", "--control", "control", "set_policy", &params]), &parts, policy);
    let ended = run(&directory, &["serve", "--socket", "s", "--memory", "1M", "--policy", policy]);
    assert_one_line(&ended, &parts, policy);
    assert_eq!(target.stats("s", 0)["policy"], "dim", "nothing has changed");
}

#[test]
fn a_wrong_configuration_is_named_with_its_line_and_what_is_allowed() {
    let directory = TempDir::new().unwrap();
    write(&directory, "image", vec![0; 4096]);
    let disk = "[[disk]]\nsocket = 's'\nmemory = '1M'\n";
    let another = "[[disk]]\nsocket = 's2'\nmemory = '1M'\n";
    for (first, rest, parts) in [
        ("", "", &["no disk", "[[disk]]"][..]),
        ("", "control = 'c'", &["no disk", "[[disk]]"]),
        ("", "[[disk", &["line 1", "expected `]"]),
        (
            "",
            "disks = 1",
            &[
                "line 1",
                "unknown field `disks`",
                "`control`, `metrics`, `metrics_remote`, `record`, `user`, `sandbox`, `stop_timeout`, `disk`",
            ],
        ),
        ("", "[disk]\nsocket = 's'", &["line 1", "expected a sequence"]),
        ("", "[[disk]]\nmemory = '1M'", &["line 1", "missing field `socket`"]),
        ("", "[[disk]]\nsocket = 's'", &["line 1", "disk s", "either a file or memory"]),
        (disk, "file = 'image'", &["line 1", "disk s", "either a file or memory"]),
        (disk, "queue = 2", &["line 4", "unknown field `queue`", "`queues`", "`policy`", "`read_only`"]),
        (disk, "queues = 17", &["line 4", "queues is 17; allowed: 1 to 16"]),
        (disk, "queues = -1", &["line 4", "queues is -1; allowed: 1 to 16"]),
        (disk, "queues = '1'", &["line 4", "string \"1\""]),
        (disk, "block_size = '1000'", &["line 1", "block_size is 1000", "512 to 65536"]),
        (disk, "block_size = '1Q'", &["line 4", "unknown unit Q", "K, M, G, T"]),
        (disk, "serial = 'a serial number that is too long'", &["line 1", "serial has 32 bytes", "20"]),
        (disk, "poll = '1'", &["line 4", "poll 1 has no unit"]),
        (disk, "direct = true", &["line 1", "direct is for files"]),
        (disk, "read_only = 'yes'", &["line 4", "expected a boolean"]),
        (disk, "name = ''", &["line 1", "name is \"\"", "allowed: one or more printable characters"]),
        (disk, "name = \"a\\nb\"", &["line 1", "name is \"a\\nb\"", "allowed: one or more printable characters"]),
        (disk, "name = \"a\\u0000b\"", &["line 1", "name is \"a\\0b\"", "allowed: one or more printable characters"]),
        (disk, "[[disk]]\nsocket = 'x/s'\nmemory = '1M'", &["line 4", "disk s: another disk has the same name"]),
        (disk, "[[disk]]\nname = 'y'\nsocket = 's'\nmemory = '1M'", &["line 4", "disk y", "socket s", "disk s"]),
        (another, "metrics = '0.0.0.0:1'", &["line 4", "unknown field `metrics`"]),
        ("metrics = 'localhost:1'\n", disk, &["line 1", "localhost:1 is not ADDR:PORT"]),
        ("control = 7\n", disk, &["line 1", "integer `7`"]),
    ] {
        write(&directory, "c.toml", format!("{first}{rest}"));
        let ended = run(&directory, &["serve", "--config", "c.toml"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{rest}");
        let said = &ended.stderr;
        assert!(said.starts_with("coalesce-target: configuration c.toml"), "{rest}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{rest}: {said}, without one of {parts:?}");
        assert_eq!(names(&directory), ["c.toml", "image"], "{rest}: something is left behind");
    }
    write(&directory, "c.toml", b"\xff\xfe");
    assert_one_line(&run(&directory, &["serve", "--config", "c.toml"]), &["c.toml", "UTF-8"], "not a text");
}

#[test]
fn a_socket_where_somebody_else_listens_is_left_alone() {
    let directory = TempDir::new().unwrap();
    let listener = UnixListener::bind(directory.path().join("theirs")).unwrap();
    listener.set_nonblocking(true).unwrap();
    for arguments in
        [&["--socket", "theirs", "--memory", "1M"][..], &["--socket", "s", "--memory", "1M", "--control", "theirs"]]
    {
        let ended = run(&directory, &[&["serve"], arguments].concat());
        assert_one_line(&ended, &["socket theirs: is in use by another process"], &format!("{arguments:?}"));
        assert_eq!(names(&directory), ["theirs"]);
        assert!(listener.accept().is_err(), "nobody has connected");
    }
    let ours = UnixStream::connect(directory.path().join("theirs")).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    (&theirs).write_all(b"x").unwrap();
    (&ours).read_exact(&mut [0]).unwrap();
}

#[test]
fn a_second_target_at_the_same_sockets_is_refused_and_the_first_goes_on() {
    let mut first = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M"]);
    let mut driver = Driver::start(&first.path("s"), &Setup::new(1, 64));
    for (arguments, part) in [
        (&["--socket", "s", "--memory", "1M"][..], "disk s: socket s: is in use"),
        (&["--socket", "t", "--memory", "1M", "--control", "control"], "socket control: is in use"),
    ] {
        let ended = run(&first.directory, &[&["serve"], arguments].concat());
        assert_one_line(&ended, &[part, "by another process"], part);
        assert_eq!(names(&first.directory), ["control", "s"]);
    }
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
    drop(driver);
    first.assert_sound();
}

#[test]
fn an_image_has_one_writer_or_any_number_of_readers() {
    let directory = odds_and_ends();
    let image = directory.path().join("image").display().to_string();
    let elsewhere = TempDir::new().unwrap();
    for (first, second, ok) in [
        (&[][..], &[][..], false),
        (&["--read-only"], &[], false),
        (&[], &["--read-only"], false),
        (&["--direct"], &[], false),
        (&["--read-only"], &["--read-only"], true),
    ] {
        let what = format!("{first:?} {second:?}");
        let ours = TempDir::new().unwrap();
        let target = serve(ours, &[&["--socket", "first", "--file", &image], first].concat());
        if ok {
            serve(TempDir::new().unwrap(), &[&["--socket", "second", "--file", &image], second].concat());
        } else {
            let ended = run(&elsewhere, &[&["serve", "--socket", "second", "--file", &image], second].concat());
            assert_one_line(&ended, &[&format!("image {image}: is locked"), "has it open"], &what);
            assert!(names(&elsewhere).is_empty(), "{what}: a socket is left behind");
        }
        if first.is_empty() {
            assert_serves(&target.path("first"));
        }
    }
    // Nor do two disks of one target share an image.
    write(
        &elsewhere,
        "c.toml",
        format!("[[disk]]\nsocket = 'a'\nfile = '{image}'\n[[disk]]\nsocket = 'b'\nfile = '{image}'"),
    );
    let ended = run(&elsewhere, &["serve", "--config", "c.toml"]);
    assert_one_line(&ended, &["disk b", "is locked", "another disk"], "two disks");
    assert_eq!(names(&elsewhere), ["c.toml"], "the socket of the first is gone");
}

#[test]
fn a_target_that_cannot_start_as_a_whole_leaves_nothing_behind() {
    let directory = odds_and_ends();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = metrics.local_addr().unwrap().to_string();
    let good = "[[disk]]\nsocket = 'a'\nmemory = '1M'\n";
    for (rest, arguments, part) in [
        ("[[disk]]\nsocket = 'b'\nfile = 'missing'", &[][..], "disk b: image missing"),
        ("[[disk]]\nsocket = 'image'\nmemory = '1M'", &[], "disk image: socket image"),
        ("", &["--control", "image"], "socket image: exists and is not a socket"),
        ("", &["--control", "c", "--metrics", &busy], "Address already in use"),
    ] {
        write(&directory, "c.toml", format!("{good}{rest}"));
        let before = names(&directory);
        let ended = run(&directory, &[&["serve", "--config", "c.toml"], arguments].concat());
        assert_one_line(&ended, &[part], part);
        assert_eq!(names(&directory), before, "{part}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// How it ends
// ---------------------------------------------------------------------------------------------------------------------

#[test]
fn sockets_that_a_kill_left_behind_are_taken_over() {
    let mut target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M"]);
    for _ in 0..2 {
        assert_serves(&target.path("s"));
        target.kill();
        assert_eq!(names(&target.directory), ["control", "s"], "a kill leaves them behind");
        target = serve(target.into_directory(), &["--socket", "s", "--memory", "1M"]);
    }
}

#[test]
fn a_signal_delivers_everything_held_and_removes_every_socket() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let disks = [Disk::memory("m", "1M").policy(HOLD_FOREVER).queues(2), Disk::memory("idle", "1M")];
        let mut target = Target::start(&disks);
        let mut driver = Driver::start(&target.path("m"), &Setup::new(2, 256));
        for (i, queue) in driver.queues.iter_mut().enumerate() {
            hold(queue, 16);
            wait_until("held", || target.count("m", i, "held") == 16);
            assert_eq!(queue.count_interrupts(), 0);
        }
        target.signal(signal);
        assert_eq!(target.wait().code(), Some(0), "{}", target.log());
        for queue in &mut driver.queues {
            assert_eq!((queue.count_interrupts(), queue.take_all().len()), (1, 16), "{signal}");
        }
        assert_eq!(names(&target.directory), ["config.toml"], "{signal}");
        assert!(target.log().contains(signal.as_str()), "{}", target.log());
    }
}

/// A region of requests in flight says of each whether it was taken and not answered.
fn taken_and_not_answered(driver: &Driver) -> usize {
    use std::os::fd::AsRawFd as _;
    let file = driver.inflight.as_ref().unwrap().1.as_raw_fd();
    let bytes = std::fs::read(format!("/proc/self/fd/{file}")).unwrap();
    (0..usize::from(driver.setup.size)).filter(|head| bytes[16 + 16 * head] != 0).count()
}

#[test]
fn a_signal_finishes_what_is_in_flight() {
    for direct in [false, true] {
        let directory = TempDir::new().unwrap();
        let image = directory.path().join("image");
        std::fs::write(&image, vec![0; 1 << 20]).unwrap();
        let disk = Disk::file("f", &image).line(&format!("direct = {direct}"));
        let mut target = Target::start_in(directory, &[disk]);
        let mut driver = Driver::start_with_inflight(&target.path("f"), &Setup::new(1, 256));
        let data: Vec<_> = (0..80).map(|slot| pattern(slot, 4096)).collect();
        let queue = driver.queue();
        for (slot, data) in (0..).zip(&data) {
            let head = queue.prepare(slot, &Op::Write(u64::from(slot) * 8, data));
            queue.offer(head);
        }
        queue.publish();
        queue.spin(1);
        target.signal(Signal::SIGTERM);
        assert_eq!(target.wait().code(), Some(0), "{}", target.log());
        assert_eq!(taken_and_not_answered(&driver), 0);
        let queue = driver.queue();
        assert!(queue.count_interrupts() > 0, "completed requests have interrupted");
        let image = read(&target.directory, "image");
        for used in queue.take_used() {
            let slot = used.id as usize / 3; // descriptors of a request
            assert_eq!(queue.status(slot as u16), OK);
            assert!(image[slot * 4096..][..4096] == data[slot], "what was answered is in the file");
        }
        assert_eq!(names(&target.directory), ["config.toml", "image"]);
    }
}

#[test]
fn a_kill_in_mid_write_leaves_what_was_flushed_on_the_disk() {
    let directory = TempDir::new().unwrap();
    let image = directory.path().join("image");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let mut target = Target::start_in(directory, &[Disk::file("f", &image).policy("auto")]);
    let mut flushed = vec![0; 1 << 20];
    for round in 0..5 {
        let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 256));
        let queue = driver.queue();
        for slot in 0..40 {
            let data = pattern(round * 40 + slot, 4096);
            flushed[slot as usize * 4096..][..4096].copy_from_slice(&data);
            let head = queue.prepare(slot as u16, &Op::Write(slot * 8, &data));
            queue.offer(head);
        }
        queue.publish();
        assert_eq!(queue.wait(40).len(), 40);
        assert_eq!(queue.run(Op::Flush).status, OK);
        // Behind what is flushed: sector 1024 is in the second half.
        for slot in 0..80 {
            let head = queue.prepare(slot, &Op::Write(1024 + u64::from(slot) * 8, &[round as u8 + 1; 4096]));
            queue.offer(head);
        }
        queue.publish();
        queue.spin(1);
        target.kill();
        assert!(read(&target.directory, "image")[..40 * 4096] == flushed[..40 * 4096], "round {round}");
        target = target.restart();
        let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 256));
        let done = driver.queue().run(Op::Read(0, 4096));
        assert!(done.status == OK && done.data == flushed[..4096], "round {round}: after a restart");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Disks
// ---------------------------------------------------------------------------------------------------------------------

#[test]
fn several_disks_of_one_configuration_are_each_their_own() {
    let directory = TempDir::new().unwrap();
    write(&directory, "image", vec![9; 1 << 16]);
    let toml = "
        metrics = '127.0.0.1:0'
        [[disk]]
        socket = 'a.sock'
        memory = '2M'
        queues = 3
        policy = 'vic:cif_threshold=2'
        [[disk]]
        name = 'second \"one\"'
        socket = 'b.sock'
        file = 'image'
        read_only = true
        serial = 'number two'
        block_size = '4K'
        poll = '0'
        event_idx = false
        iops = 1000
        bytes_per_second = '1G'
    ";
    write(&directory, "c.toml", toml);
    let target = serve(directory, &["--config", "c.toml"]);
    let mut list = target.call("list", &json!({})).unwrap();
    let pids: BTreeSet<_> =
        list.as_array_mut().unwrap().iter_mut().map(|about| about["pid"].take().as_u64().unwrap()).collect();
    assert_eq!(pids.len(), 2, "a process for each disk");
    assert_eq!(
        list,
        json!([
            {
                "ctrlr": "a", "device": "virtio-blk", "socket": "a.sock", "file": null, "size": 2 << 20, "block_size": 512,
                "queues": 3, "read_only": false, "connected": false, "pid": null, "restarts": 0,
                "limits": { "iops": 0, "bytes_per_second": 0 },
            },
            {
                "ctrlr": "second \"one\"", "device": "virtio-blk", "socket": "b.sock", "file": "image", "size": 1 << 16,
                "block_size": 4096, "queues": 16, "read_only": true, "connected": false, "pid": null, "restarts": 0,
                "limits": { "iops": 1000, "bytes_per_second": 1 << 30 },
            },
        ])
    );
    let mut a = Driver::start(&target.path("a.sock"), &Setup::new(3, 64));
    let mut b = Driver::start(&target.path("b.sock"), &Setup::new(1, 64));
    assert_eq!((a.features & F_RO, b.features & F_RO), (0, F_RO));
    assert_eq!((a.features & F_EVENT_IDX, b.features & F_EVENT_IDX), (F_EVENT_IDX, 0));
    let data = pattern(1, 4096);
    assert_eq!((a.queues[2].run(Op::Write(8, &data)).status, b.queue().run(Op::Write(8, &data)).status), (OK, IOERR));
    assert_eq!((a.queue().run(Op::Read(8, 4096)).data, b.queue().run(Op::Read(8, 4096)).data), (data, vec![9; 4096]));
    for (driver, serial) in [(&mut a, "a"), (&mut b, "number two")] {
        let id = driver.queue().run(Op::GetId);
        let text = String::from_utf8(id.data).unwrap();
        assert_eq!((id.status, text.trim_end_matches('\0')), (OK, serial));
    }
    assert_eq!(read(&target.directory, "image"), vec![9; 1 << 16]);
    let policies = target.call("get_policy", &json!({ "ctrlr": "a" })).unwrap();
    assert_eq!(policies[0]["policies"].as_array().unwrap().len(), 3);
    assert!(policies[0]["policies"][0].as_str().unwrap().starts_with("vic:cif_threshold=2"), "{policies}");
}

#[test]
fn a_read_only_disk_is_not_written_and_its_client_gets_an_error() {
    let directory = TempDir::new().unwrap();
    write(&directory, "image", vec![5; 1 << 20]);
    let target = serve(directory, &["--socket", "s", "--file", "image", "--read-only"]);
    let load = ["--socket", "s", "--ops", "100", "--rw"];
    assert_one_line(&bench(&target.directory, &[&load[..], &["randwrite"]].concat()), &["read-only"], "bench");
    let ended = bench(&target.directory, &[&load[..], &["randread"]].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(read(&target.directory, "image"), vec![5; 1 << 20]);
}

// ---------------------------------------------------------------------------------------------------------------------
// The control socket
// ---------------------------------------------------------------------------------------------------------------------

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

#[test]
fn errors_of_the_control_socket_have_the_codes_of_json_rpc_and_say_what_is_allowed() {
    let target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M", "--queues", "2"]);
    for (request, code, id, parts) in [
        ("hello", PARSE_ERROR, json!(null), &["not JSON"][..]),
        ("{\"jsonrpc\": \"2.0\", \"id\": 1", PARSE_ERROR, json!(null), &["not JSON"]),
        ("[]", INVALID_REQUEST, json!(null), &["2.0", "method"]),
        ("7", INVALID_REQUEST, json!(null), &["2.0", "method"]),
        (r#"{"id": 1, "method": "list"}"#, INVALID_REQUEST, json!(1), &["2.0"]),
        (r#"{"jsonrpc": "1.0", "id": 1, "method": "list"}"#, INVALID_REQUEST, json!(1), &["2.0"]),
        (r#"{"jsonrpc": "2.0", "id": "x"}"#, INVALID_REQUEST, json!("x"), &["method"]),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": 7}"#, INVALID_REQUEST, json!(1), &["method"]),
        (
            r#"{"jsonrpc": "2.0", "id": "a", "method": "get_status"}"#,
            METHOD_NOT_FOUND,
            json!("a"),
            &["\"get_status\"", "list, get_policy, set_policy, set_running, get_stats"],
        ),
        (
            r#"{"jsonrpc": "2.0", "id": null, "method": "list", "params": {"ctrlr": "s"}}"#,
            INVALID_PARAMS,
            json!(null),
            &["unknown field `ctrlr`"],
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "get_stats", "params": {"disk": "s"}}"#,
            INVALID_PARAMS,
            json!(1),
            &["unknown field `disk`", "`ctrlr`", "`queue`", "`idle`"],
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "get_stats", "params": {"queue": 2}}"#,
            INVALID_PARAMS,
            json!(1),
            &["disk s: queue is 2", "0 to 1"],
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "get_stats", "params": {"ctrlr": "t"}}"#,
            INVALID_PARAMS,
            json!(1),
            &["unknown ctrlr \"t\"", "allowed: s"],
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "set_policy", "params": {"policy": "none"}}"#,
            INVALID_PARAMS,
            json!(1),
            &["missing field `ctrlr`"],
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "set_policy", "params": {"ctrlr": "s", "queue": 2, "policy": "none"}}"#,
            INVALID_PARAMS,
            json!(1),
            &["queue is 2", "0 to 1"],
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "set_policy", "params": {"ctrlr": "s", "policy": "nvme:thr=256"}}"#,
            INVALID_PARAMS,
            json!(1),
            &["thr=256", "0 to 255"],
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "set_running", "params": {"ctrlr": "s", "running": true, "for_us": 0}}"#,
            INVALID_PARAMS,
            json!(1),
            &["for_us is 0", "1 to 1000000"],
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "set_running", "params": {"ctrlr": "s", "running": true}}"#,
            INVALID_PARAMS,
            json!(1),
            &["missing field `for_us`"],
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "set_running", "params": {"ctrlr": "s", "queue": 2, "running": true, "for_us": 1}}"#,
            INVALID_PARAMS,
            json!(1),
            &["queue is 2", "0 to 1"],
        ),
    ] {
        let answer = control(&target.path("control"), format!("{request}\n").as_bytes());
        assert_eq!((&answer["jsonrpc"], answer.get("id"), answer.get("result")), (&json!("2.0"), Some(&id), None));
        assert_eq!(answer["error"]["code"], code, "{request}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(parts.iter().all(|part| message.contains(part)), "{request}: {message}, without one of {parts:?}");
    }
}

#[test]
fn one_connection_takes_any_number_of_requests_and_answers_all_but_notifications() {
    let target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M", "--queues", "1"]);
    let mut stream = UnixStream::connect(target.path("control")).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    let set = |policy: &str| json!({ "jsonrpc": "2.0", "method": "set_policy", "params": { "ctrlr": "s", "policy": policy } });
    let requests = [
        json!({ "jsonrpc": "2.0", "id": "first", "method": "list" }),
        set("dim"),
        json!({ "jsonrpc": "2.0", "method": "no such method" }),
        set("no such policy"),
        json!({ "jsonrpc": "2.0", "id": [2], "method": "get_policy", "params": null }),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "get_stats", "params": { "idle": true } }),
    ];
    let lines: String = requests.iter().map(|request| format!("{request}\r\n")).collect();
    stream.write_all(lines.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let answers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<_> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!("first"), &json!([2]), &json!(3)]);
    assert_eq!(answers[1]["result"], json!([{ "ctrlr": "s", "policies": ["dim"] }]));
    assert_eq!(answers[2]["result"][0]["queues"][0]["policy"], "dim");
}

/// The result of a call.
fn called(target: &Target, arguments: &[&str]) -> Value {
    let ended = run(&target.directory, &[&["call", "--control", "control"], arguments].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn a_policy_is_changed_and_counts_are_read_with_call_while_the_disk_is_served() {
    let target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M", "--queues", "2"]);
    let mut driver = Driver::start(&target.path("s"), &Setup::new(2, 64));
    let policies = || called(&target, &["get_policy"])[0]["policies"].clone();
    assert_eq!(policies(), json!(["auto", "auto"]));
    for (method, params, expected) in [
        ("set_policy", json!({ "ctrlr": "s", "policy": "dim" }), json!(["dim", "dim"])),
        ("set_policy", json!({ "ctrlr": "s", "queue": 1, "policy": "none" }), json!(["dim", "none"])),
        (
            "vhost_controller_set_coalescing",
            json!({ "ctrlr": "s", "delay_base_us": 60, "iops_threshold": 70_000 }),
            json!(vec!["spdk_vhost:delay_base_us=60,iops_threshold=70000"; 2]),
        ),
    ] {
        assert_eq!(called(&target, &[method, &params.to_string()]), true);
        assert_eq!(policies(), expected);
        for queue in &mut driver.queues {
            assert_eq!(queue.run(Op::Flush).status, OK);
        }
    }
    let completions = |stats: &Value| {
        let queues = stats[0]["queues"].as_array().unwrap().clone();
        queues.iter().map(|queue| queue["completions"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(completions(&called(&target, &["get_stats", "{\"ctrlr\": \"s\"}"])), [3, 3]);
    assert_eq!(called(&target, &["reset_stats"]), true);
    assert_eq!(completions(&called(&target, &["get_stats", "{\"idle\": true}"])), [0, 0]);
    assert_eq!(called(&target, &["list"])[0]["connected"], true);
}

/// Most guests have fewer CPUs than a disk has queues.
#[test]
fn queues_that_have_done_nothing_are_counted_and_shown_only_if_asked_for() {
    let target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M"]);
    let mut driver = Driver::start(&target.path("s"), &Setup::new(3, 64));
    let numbers = |stats: &Value| {
        let queues = stats[0]["queues"].as_array().unwrap().iter();
        (queues.map(|queue| queue["queue"].as_u64().unwrap()).collect::<Vec<_>>(), stats[0]["idle_queues"].clone())
    };
    let shown = |params: &str| numbers(&called(&target, &["get_stats", params]));
    assert_eq!(shown("{}"), (vec![], json!(16)));
    assert_eq!(driver.queues[2].run(Op::Flush).status, OK);
    assert_eq!(shown("{}"), (vec![2], json!(15)));
    assert_eq!(shown("{\"ctrlr\": \"s\", \"idle\": true}"), ((0..16).collect(), json!(0)));
    assert_eq!(shown("{\"queue\": 2}"), (vec![2], json!(15)));
    assert_eq!(shown("{\"queue\": 15}"), (vec![15], json!(14)), "the one that is asked for is not left out");
    driver.queues[1].kick.write(1).unwrap(); // as QEMU does when it starts a ring
    wait_until("it has woken up", || target.count("s", 1, "device/kicks") > 0);
    assert_eq!(shown("{}"), (vec![2], json!(15)));
    let refused = run(&target.directory, &["call", "--control", "control", "get_stats", "{\"queue\": 16}"]);
    assert_one_line(&refused, &["disk s: queue is 16; allowed: 0 to 15"], "a queue too many");
    assert_eq!(called(&target, &["reset_stats"]), true);
    assert_eq!(shown("{}"), (vec![], json!(16)));
}

#[test]
fn a_call_that_fails_is_one_clear_line() {
    let target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M"]);
    write(&target.directory, "plain", "");
    for (arguments, parts) in [
        (&["missing", "list"][..], &["control socket missing", "No such file"][..]),
        (&["plain", "list"], &["control socket plain", "refused"]),
        (&["s", "list"], &["control socket s gives no answer: is it the socket of a disk?"]),
        (&["control", "lsit"], &["unknown method \"lsit\"", "list, get_policy"]),
        (&["control", "list", "{"], &["the parameters are not JSON"]),
        (&["control", "list", "7"], &["params"]),
        (&["control", "get_stats", "{\"ctrlr\": \"t\"}"], &["unknown ctrlr \"t\"; allowed: s"]),
    ] {
        let ended = run(&target.directory, &[&["call", "--control"], arguments].concat());
        assert_one_line(&ended, parts, &format!("{arguments:?}"));
    }
}

/// Accepts clients, and does this to each on a thread of its own.
fn serve_clients(path: &Path, answer: impl Fn(UnixStream) + Clone + Send + 'static) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let answer = answer.clone();
            thread::spawn(move || answer(stream));
        }
    });
}

/// A socket that has as many clients waiting as its queue takes. Nobody accepts them.
fn full_socket(path: &Path) -> Vec<std::os::fd::OwnedFd> {
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
    let new = |flags| socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
    let address = UnixAddr::new(path).unwrap();
    let mut sockets = vec![new(SockFlag::SOCK_CLOEXEC)];
    bind(std::os::fd::AsRawFd::as_raw_fd(&sockets[0]), &address).unwrap();
    listen(&sockets[0], Backlog::new(0).unwrap()).unwrap();
    loop {
        let client = new(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK);
        match connect(std::os::fd::AsRawFd::as_raw_fd(&client), &address) {
            Ok(()) => sockets.push(client),
            Err(error) => {
                assert_eq!(error, nix::errno::Errno::EAGAIN);
                return sockets;
            }
        }
    }
}

/// Whoever has the socket of a target that has ended, or a target that was taken over.
#[test]
fn call_and_top_are_hung_and_flooded_by_nobody() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    serve_clients(&path("endless"), |mut stream| while stream.write_all(&[b' '; 1 << 16]).is_ok() {});
    serve_clients(&path("drip"), |mut stream| {
        while stream.write_all(b" ").is_ok() {
            sleep(Duration::from_millis(20));
        }
    });
    serve_clients(&path("silent"), |mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let _clients = full_socket(&path("full"));
    let start = Instant::now();
    thread::scope(|scope| {
        for (socket, part) in [
            ("endless", "an answer of more than 16 MiB"),
            ("drip", "no whole answer within 15 s"),
            ("silent", "no whole answer within 15 s"),
            ("full", "its queue of clients is full"),
        ] {
            let call = [&["call", "--control", socket][..], &["list"]].concat();
            let directory = &directory;
            scope.spawn(move || {
                let mut command = command(directory.path(), &call);
                let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
                let limit_memory = move || {
                    // SAFETY: the limit is there.
                    nix::errno::Errno::result(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) })?;
                    Ok(())
                };
                // SAFETY: setrlimit(2) may be called after a fork.
                unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, limit_memory) };
                assert_one_line(&end(&mut command), &["control socket", socket, part], socket);
            });
            let top = ["top", "--once", "--interval", "10ms", "--control", socket];
            scope.spawn(move || {
                let ended = run(directory, &top);
                assert_one_line(&ended, &["control socket", socket], socket);
            });
        }
    });
    assert!(start.elapsed() < 4 * HANG, "{:?}", start.elapsed());
}

#[test]
fn nothing_that_a_target_says_is_obeyed_by_a_terminal() {
    let directory = TempDir::new().unwrap();
    let answer_with = |name: &str, answer: Value| {
        let line = format!("{answer}\n");
        serve_clients(&directory.path().join(name), move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(line.as_bytes());
        });
    };
    let evil = "\u{1b}]0;title\u{7}\u{9b}2J";
    answer_with("error", json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": 1, "message": evil } }));
    answer_with(
        "result",
        json!({ "jsonrpc": "2.0", "id": 1, "result": [{ (evil): evil, "ctrlr": evil, "error": evil }] }),
    );
    serve_clients(&directory.path().join("text"), move |mut stream| {
        drop(stream.write_all(format!("{evil}\n").as_bytes()))
    });
    for arguments in [
        &["call", "--control", "error", "list"][..],
        &["call", "--control", "result", "list"],
        &["call", "--control", "text", "list"],
        &["top", "--once", "--interval", "10ms", "--control", "error"],
        &["top", "--once", "--interval", "10ms", "--control", "result"],
        &["top", "--once", "--interval", "10ms", "--json", "--control", "result"],
        &["top", "--once", "--interval", "10ms", "--control", "text"],
    ] {
        let Ended { stdout, stderr, .. } = run(&directory, arguments);
        let said = stdout + &stderr;
        assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{arguments:?}: {said:?}");
        assert!(said.contains("2J") || arguments.contains(&"text"), "{arguments:?}: {said:?}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Metrics
// ---------------------------------------------------------------------------------------------------------------------

type Labels = BTreeMap<String, String>;

/// What a page of metrics says, checked against the rules of its text form.
#[derive(Debug, Default)]
struct Page {
    /// Kinds of the families.
    kinds: BTreeMap<String, String>,
    helped: BTreeSet<String>,
    units: BTreeMap<String, String>,
    samples: BTreeMap<(String, Labels), f64>,
    /// Bounds and counts of the buckets, in their order.
    buckets: BTreeMap<(String, Labels), Vec<(f64, f64)>>,
}

impl Page {
    fn new(text: &str) -> Self {
        let mut page = Self::default();
        let body = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end: {text}"));
        let mut family = String::new();
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                let [what, name, rest]: [&str; 3] = rest.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
                let is_new = match what {
                    "HELP" => page.helped.insert(name.into()) && !rest.is_empty(),
                    "TYPE" => page.kinds.insert(name.into(), rest.into()).is_none(),
                    "UNIT" => page.units.insert(name.into(), rest.into()).is_none(),
                    _ => false,
                };
                assert!(is_new, "{line}");
                family = name.into();
            } else {
                page.sample(&family, line);
            }
        }
        page
    }

    fn sample(&mut self, family: &str, line: &str) {
        let (name, rest) = line.split_once('{').unwrap_or_else(|| panic!("{line}"));
        let (mut labels, rest) = parse_labels(rest).unwrap_or_else(|| panic!("{line}"));
        let value: f64 = rest.strip_prefix(' ').and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        let kind = self.kinds.get(family).unwrap_or_else(|| panic!("{line}: no type"));
        let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line}: not of {family}"));
        let allowed = match kind.as_str() {
            "counter" => &["_total"][..],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_sum", "_count", "_bucket"],
            kind => panic!("{family} is a {kind}"),
        };
        assert!(allowed.contains(&suffix) && value.is_finite() && value >= 0.0, "{line}");
        if suffix == "_bucket" {
            let bound = labels.remove("le").unwrap().parse().unwrap();
            self.buckets.entry((family.into(), labels)).or_default().push((bound, value));
        } else {
            assert!(self.samples.insert((name.into(), labels), value).is_none(), "{line}: twice");
        }
    }

    fn value(&self, name: &str, labels: &Labels) -> f64 {
        let value = self.samples.get(&(name.into(), labels.clone()));
        *value.unwrap_or_else(|| panic!("{name} {labels:?} is missing: {self:#?}"))
    }

    fn count(&self, name: &str, labels: &Labels) -> u64 {
        self.value(name, labels) as u64
    }

    fn check_buckets(&self, family: &str, labels: &Labels, count: f64) -> &[(f64, f64)] {
        let buckets = &self.buckets[&(family.into(), labels.clone())];
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "bounds ascend, counts add up: {buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "the last bucket has all");
        buckets
    }
}

/// Labels up to the bracket that ends them, and what follows.
fn parse_labels(text: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    let mut rest = text;
    loop {
        let (name, after) = rest.split_once("=\"")?;
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        let mut value = String::new();
        let mut chars = after.chars();
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => value.push(match chars.next()? {
                    'n' => '\n',
                    other @ ('"' | '\\') => other,
                    _ => return None,
                }),
                other => value.push(other),
            }
        }
        assert!(labels.insert(name.into(), value).is_none(), "{name} twice");
        match chars.next()? {
            ',' => rest = chars.as_str(),
            '}' => return Some((labels, chars.as_str())),
            _ => return None,
        }
    }
}

/// Head and body of an answer.
fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.into(), body.into())
}

/// An address of this machine where nobody listens.
fn free_address(ip: &str) -> Option<String> {
    TcpListener::bind((ip, 0)).ok().map(|listener| listener.local_addr().unwrap().to_string())
}

#[test]
fn metrics_are_well_formed_and_agree_with_get_stats() {
    let directory = TempDir::new().unwrap();
    let names = ["one", "a \"name\" with \\ in it"];
    let disks: String = names
        .iter()
        .enumerate()
        .map(|(i, name)| format!("[[disk]]\nname = '{name}'\nsocket = '{i}'\nmemory = '1M'\nqueues = 2\n"))
        .map(|disk| disk + "iops = 100000000\nbytes_per_second = '1T'\n")
        .collect();
    write(&directory, "c.toml", disks);
    let address = free_address("127.0.0.1").unwrap();
    let target = serve(directory, &["--config", "c.toml", "--record", "r", "--metrics", &address]);
    for policy in ["nvme:thr=8,time=100us", "auto"] {
        for (socket, name) in ["0", "1"].into_iter().zip(names) {
            target.set_policy(name, policy);
            let load = ["--socket", socket, "--ops", "2000", "--queues", "2", "--depth", "4"];
            let ended = bench(&target.directory, &[&load[..], &["--rw", "randwrite", "--fsync-every", "10"]].concat());
            assert_eq!(ended.code, Some(0), "{ended:?}");
            wait_until("its connection is closed", || connected(&target, name) == json!(false));
        }
        let stats = target.call("get_stats", &json!({})).unwrap();
        let (head, text) = get(&address, "/metrics");
        assert!(
            head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text; version=1.0.0"),
            "{head}"
        );
        let page = Page::new(&text);
        check_metrics(&page, &stats);
        if policy == "auto" {
            check_queries(&page); // with a budget, every metric is there
            check_documented(&page);
        }
    }
    assert!(get(&address, "/").0.starts_with("HTTP/1.1 404"));
}

/// The queries of the dashboard and of the alerts are PromQL; what they ask for exists, and the labels by which they ask.
fn check_queries(page: &Page) {
    let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
    let read = |name| std::fs::read_to_string(format!("{packaging}/{name}"));
    let Ok(text) = read("grafana-dashboard.json") else { return }; // a published crate has neither
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let variables = dashboard.pointer("/templating/list").unwrap().as_array().unwrap();
    let variables = variables.iter().filter(|variable| variable["type"] == "query");
    let queries = targets.map(|target| &target["expr"]).chain(variables.map(|query| &query["query"]));
    let mut queries: Vec<_> = queries.map(|query| query.as_str().unwrap()).collect();
    assert!(queries.len() > panels.len(), "{queries:?}");
    let rules = read("prometheus-rules.yml").unwrap();
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert_eq!(alerts.len(), rules.matches("- alert: ").count(), "{alerts:?}");
    queries.extend(alerts);
    let samples = page.samples.keys().map(|(name, labels)| (name.clone(), labels));
    let buckets = page.buckets.keys().map(|(family, labels)| (format!("{family}_bucket"), labels));
    let mut exist = BTreeMap::<String, BTreeSet<&str>>::new();
    for (name, labels) in samples.chain(buckets) {
        let of_buckets = name.ends_with("_bucket").then_some("le");
        exist.entry(name).or_default().extend(labels.keys().map(String::as_str).chain(of_buckets));
    }
    // What Prometheus adds: of which address it is, and of each address whether it answers.
    exist.values_mut().for_each(|labels| labels.extend(["instance"]));
    exist.insert("up".into(), ["instance", "job"].into());
    for query in queries {
        // What Grafana puts in for its variables, and its own function for a variable's values.
        let text = query.replace("$__rate_interval", "1m").replace("$ctrlr", "one|two");
        let values = text.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')?.split_once(", "));
        let (text, label) = values.map_or((text.as_str(), None), |(text, label)| (text, Some(label)));
        let parsed = promql_parser::parser::parse(text).unwrap_or_else(|error| panic!("{query}: {error}"));
        let mut asked = Asked { exist: &exist, query, metrics: 0 };
        let labels = asked.ask(&parsed);
        assert!(asked.metrics > 0 && label.is_none_or(|label| labels.contains(label)), "{query}");
    }
}

/// The documentation's table has every metric with its labels, and no other.
fn check_documented(page: &Page) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");
    let Ok(text) = std::fs::read_to_string(path) else { return }; // as above
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `coalesce_")?.split('|');
        let name = format!("coalesce_{}", cells.next()?.trim_end().strip_suffix('`')?);
        let labels = cells.next()?.trim().split(", ").map(|label| label.trim_matches('`').to_owned());
        Some((name, labels.filter(|label| !label.is_empty()).collect::<BTreeSet<_>>()))
    };
    let documented: BTreeMap<_, _> = text.lines().filter_map(row).collect();
    let samples = page.samples.keys().filter(|(name, _)| !name.ends_with("_sum") && !name.ends_with("_count"));
    let buckets = page.buckets.keys();
    let mut served = BTreeMap::<String, BTreeSet<String>>::new();
    for (name, labels) in samples.chain(buckets) {
        let labels = labels.keys().filter(|label| *label != "ctrlr").cloned();
        served.entry(name.clone()).or_default().extend(labels);
    }
    assert_eq!(documented, served);
}

/// Walks through a PromQL query.
struct Asked<'a> {
    /// The labels of each metric.
    exist: &'a BTreeMap<String, BTreeSet<&'a str>>,
    query: &'a str,
    /// How many of them the query asks for.
    metrics: usize,
}

impl Asked<'_> {
    /// Checks an expression, and returns the labels that it has.
    fn ask(&mut self, expr: &Expr) -> BTreeSet<String> {
        let query = self.query;
        match expr {
            Expr::VectorSelector(selector) => self.select(selector),
            Expr::MatrixSelector(matrix) => self.select(&matrix.vs),
            Expr::Paren(inner) => self.ask(&inner.expr),
            Expr::NumberLiteral(_) => BTreeSet::new(),
            Expr::Aggregate(aggregate) => {
                let labels = self.ask(&aggregate.expr);
                let Some(modifier) = &aggregate.modifier else { return BTreeSet::new() };
                let LabelModifier::Include(by) = modifier else { panic!("{query}: without") };
                let by: BTreeSet<_> = by.labels.iter().cloned().collect();
                assert!(by.is_subset(&labels), "{query}: {by:?} of {labels:?}");
                by
            }
            Expr::Call(call) => {
                let mut labels = BTreeSet::new();
                for arg in &call.args.args {
                    if let Expr::MatrixSelector(matrix) = &**arg {
                        let name = matrix.vs.name.as_deref().unwrap_or_default();
                        let is_counter = ["_total", "_sum", "_count", "_bucket"].iter().any(|end| name.ends_with(end));
                        assert!(call.func.name == "rate" && is_counter, "{query}: {} of {name}", call.func.name);
                    }
                    labels.extend(self.ask(arg));
                }
                if call.func.name == "histogram_quantile" {
                    assert!(labels.remove("le"), "{query}: no buckets");
                }
                labels
            }
            Expr::Binary(binary) => {
                let [left, right] = [&binary.lhs, &binary.rhs].map(|side| self.ask(side));
                match binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref()) {
                    Some(LabelModifier::Exclude(ignored)) => {
                        assert!(ignored.labels.iter().all(|label| left.contains(label)), "{query}: {ignored:?}");
                        let rest = left.iter().filter(|label| !ignored.labels.contains(label));
                        assert!(rest.eq(&right), "{query}: {left:?} and {right:?}");
                    }
                    Some(on) => panic!("{query}: {on:?}"),
                    None if matches!(*binary.rhs, Expr::NumberLiteral(_)) => {} // a threshold
                    None => assert_eq!(left, right, "{query}: both sides match"),
                }
                left
            }
            other => panic!("{query}: {other:?}"),
        }
    }

    fn select(&mut self, selector: &VectorSelector) -> BTreeSet<String> {
        let (query, name) = (self.query, selector.name.as_deref().unwrap_or_default());
        let labels = self.exist.get(name).unwrap_or_else(|| panic!("{query}: no metric {name:?}"));
        for matcher in &selector.matchers.matchers {
            assert!(labels.contains(matcher.name.as_str()), "{query}: {name} has no label {}", matcher.name);
        }
        self.metrics += 1;
        labels.iter().map(|&label| label.into()).collect()
    }
}

fn check_metrics(page: &Page, stats: &Value) {
    let families: BTreeSet<_> = page.kinds.keys().cloned().collect();
    assert_eq!(page.helped, families, "help and type of each");
    for (family, unit) in &page.units {
        let is_base_unit = ["seconds", "ratios", "bytes"].contains(&unit.as_str());
        assert!(is_base_unit && family.ends_with(&format!("_{unit}")), "{family} is in {unit}");
    }
    for family in &families {
        assert!(family.starts_with("coalesce_"), "{family}");
        let is_other_unit = ["_ns", "_us", "_ms", "_kb", "_total"].iter().any(|suffix| family.ends_with(suffix));
        assert!(!is_other_unit, "{family} is in no base unit");
    }
    for disk in stats.as_array().unwrap() {
        for queue in disk["queues"].as_array().unwrap() {
            check_queue(page, disk["ctrlr"].as_str().unwrap(), queue);
        }
        check_durations(page, disk);
    }
}

fn check_queue(page: &Page, disk: &str, stats: &Value) {
    let number = |path: &str| stats.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}"));
    let labels = Labels::from([("ctrlr".into(), disk.into()), ("queue".into(), stats["queue"].to_string())]);
    for (name, path) in [
        ("completions_total", "/completions"),
        ("interrupts_total", "/interrupts"),
        ("suppressed_total", "/suppressed"),
        ("consumed_total", "/consumed"),
        ("failed_requests_total", "/device/failed"),
        ("malformed_requests_total", "/device/malformed"),
        ("broken_rings_total", "/device/broken_rings"),
        ("kicks_total", "/device/kicks"),
        ("held", "/held"),
        ("in_flight", "/in_flight"),
        ("hold_seconds_count", "/hold_ns/count"),
    ] {
        assert_eq!(page.count(&format!("coalesce_{name}"), &labels), number(path) as u64, "{name} {labels:?}");
    }
    assert!(number("/completions") > 2000.0, "there is something to compare");
    let policy = Labels::from([("policy".into(), stats["policy"].as_str().unwrap().into())]);
    assert_eq!(page.count("coalesce_policy_info", &labels.clone().into_iter().chain(policy).collect()), 1);
    for (name, label, path) in [
        ("coalesce_deliveries_total", "reason", "delivered"),
        ("coalesce_holds_total", "reason", "holds"),
        ("coalesce_hints_total", "source", "hints"),
    ] {
        for (key, count) in stats[path].as_object().unwrap() {
            let mut labels = labels.clone();
            labels.insert(label.into(), key.clone());
            assert_eq!(json!(page.count(name, &labels)), *count, "{name} {labels:?}");
        }
    }
    for (name, path, scale) in [
        ("coalesce_budget_held_seconds_total", "/budget/held_ns", 1e9),
        ("coalesce_budget_outstanding_seconds_total", "/budget/outstanding_ns", 1e9),
        ("coalesce_budget_limit_ratios", "/budget/limit_percent", 100.0),
    ] {
        let is_absent = stats["budget"].is_null();
        assert_eq!(is_absent, !stats["policy"].as_str().unwrap().starts_with("auto"), "{stats}");
        if !is_absent {
            let (value, expected) = (page.value(name, &labels), number(path) / scale);
            assert!(expected > 0.0 && (value - expected).abs() < 1e-9, "{name}: {value}, {expected}");
        }
    }
    let (sum, mean) = (page.value("coalesce_hold_seconds_sum", &labels), number("/hold_ns/mean"));
    assert!((sum - mean * number("/hold_ns/count") / 1e9).abs() < 1e-9, "{sum} s, {mean} ns each");
    page.check_buckets("coalesce_hold_seconds", &labels, number("/hold_ns/count"));
    for operation in OPERATIONS {
        let mut labels = labels.clone();
        labels.insert("operation".into(), operation.into());
        let counted = number(&format!("/device/{operation}{}", if operation == "flush" { "es" } else { "s" })) as u64;
        assert_eq!(page.count("coalesce_requests_total", &labels), counted, "{labels:?}");
        let times = &stats["latency_ns"][operation];
        assert_eq!(times["count"].as_u64().unwrap_or(0), counted, "{operation}: {stats}");
        let bytes = match operation {
            "read" => "/device/bytes_read",
            "write" => "/device/bytes_written",
            _ => continue,
        };
        let bytes = number(bytes) as u64;
        assert_eq!(page.count("coalesce_transferred_bytes_total", &labels), bytes, "{labels:?}");
        assert_eq!(bytes, 4096 * counted, "{stats}");
    }
}

const OPERATIONS: [&str; 4] = ["read", "write", "flush", "other"];

/// How long the requests of a disk took: those of all its queues.
fn check_durations(page: &Page, disk: &Value) {
    for operation in OPERATIONS {
        let labels = [("ctrlr", disk["ctrlr"].as_str().unwrap()), ("operation", operation)];
        let labels: Labels = labels.map(|(name, value)| (name.into(), value.into())).into();
        let times = || disk["queues"].as_array().unwrap().iter().map(|queue| &queue["latency_ns"][operation]);
        let [count, ns] = ["count", "sum"].map(|key| times().filter_map(|times| times[key].as_u64()).sum::<u64>());
        assert_eq!(page.count("coalesce_request_duration_seconds_count", &labels), count, "{labels:?}");
        let seconds = page.value("coalesce_request_duration_seconds_sum", &labels);
        assert!((seconds - ns as f64 / 1e9).abs() < 1e-9, "{labels:?}: {seconds} s, {ns} ns");
        assert!(seconds > 0.0 || !["write", "flush"].contains(&operation), "{labels:?}");
        let buckets = page.check_buckets("coalesce_request_duration_seconds", &labels, count as f64);
        for (bound, upto) in buckets.iter().rev().skip(1) {
            let is_in = |bucket: &&Value| bucket[0].as_f64().is_some_and(|ns| ns <= bound * 1e9 * (1.0 + 1e-12));
            let buckets = times().flat_map(|times| times["buckets"].as_array()).flatten().filter(is_in);
            let counted: u64 = buckets.map(|bucket| bucket[1].as_u64().unwrap()).sum();
            assert_eq!(*upto as u64, counted, "{labels:?} up to {bound} s");
        }
    }
}

#[test]
fn metrics_for_other_machines_must_be_asked_for() {
    let disk = ["serve", "--socket", "s", "--memory", "1M"];
    for address in ["0.0.0.0:9100", "[::]:9100", "192.0.2.1:9100"] {
        let directory = TempDir::new().unwrap();
        let refused = run(&directory, &[&disk[..], &["--metrics", address]].concat());
        let refusal = format!("metrics {address} is not a loopback address");
        let parts = [refusal.as_str(), "127.0.0.0/8 and [::1]", "--metrics-remote"];
        assert_one_line(&refused, &parts, address);
        assert!(names(&directory).is_empty(), "{address}: something is left behind");
    }
    let directory = TempDir::new().unwrap();
    let refused = run(&directory, &[&disk[..], &["--metrics-remote"]].concat());
    assert_one_line(&refused, &["metrics_remote is about the address of metrics: give one"], "no address");

    // The address is in a file, and the flag on the command line.
    let port = free_address("0.0.0.0").unwrap().rsplit_once(':').unwrap().1.to_owned();
    write(&directory, "c.toml", format!("metrics = '0.0.0.0:{port}'\n[[disk]]\nsocket = 's'\nmemory = '1M'\n"));
    let refused = run(&directory, &["serve", "--config", "c.toml"]);
    assert_one_line(&refused, &["is not a loopback address", "metrics_remote = true"], "a configuration");
    let target = serve(directory, &["--config", "c.toml", "--metrics-remote"]);
    let said = format!("metrics at http://0.0.0.0:{port}/metrics, for whoever reaches it");
    wait_until("it is said", || target.log().contains(&said));
    Page::new(&get(&format!("127.0.0.1:{port}"), "/metrics").1);
}

#[test]
fn metrics_answer_at_either_loopback_address() {
    for ip in ["127.0.0.1", "127.1.2.3", "::1"] {
        let Some(address) = free_address(ip) else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: metrics at {ip}: there is no such address"); // not captured
            continue;
        };
        let _target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M", "--metrics", &address]);
        Page::new(&get(&address, "/metrics").1);
    }
}

/// From the definition of the command line itself.
#[test]
fn it_writes_its_manual_and_its_completions() {
    let directory = TempDir::new().unwrap();
    assert_eq!(run(&directory, &["man", "."]).code, Some(0));
    let page = String::from_utf8(read(&directory, "coalesce-target-serve.1")).unwrap();
    assert!(page.contains("max\\-memory") && page.contains("A virtual machine that boots from that disk"), "{page}");
    assert!(!directory.path().join("coalesce-target-worker.1").exists(), "it is not for people");
    let failed = run(&directory, &["man", "nowhere"]);
    assert!(failed.code == Some(1) && failed.stderr.contains("nowhere: No such file"), "{failed:?}");
    for (shell, syntax) in [("bash", "complete -F"), ("zsh", "#compdef coalesce-target"), ("fish", "complete -c")] {
        let script = run(&directory, &["completions", shell]).stdout;
        assert!(script.contains(syntax) && script.contains("max-memory"), "{shell}");
    }
    assert!(run(&directory, &["completions", "sh"]).stderr.contains("bash, elvish"));
}

/// The version names the commit, where the source is a checkout.
#[test]
fn the_version_names_the_commit() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
        output.ok().filter(|output| output.status.success()).map(|output| String::from_utf8(output.stdout).unwrap())
    };
    let version = run(&TempDir::new().unwrap(), &["--version"]).stdout;
    let commit =
        git(&["ls-files", "--error-unmatch", "Cargo.toml"]).and_then(|_| git(&["rev-parse", "--short=12", "HEAD"]));
    let number = concat!("coalesce-target ", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        version.trim_end(),
        commit.map_or(number.to_owned(), |commit| format!("{number} ({})", commit.trim_end()))
    );
}

// ---------------------------------------------------------------------------------------------------------------------
// Bench
// ---------------------------------------------------------------------------------------------------------------------

/// The record of a run agrees with what the target counted, and with itself.
#[test]
fn a_record_has_every_request_completion_and_interrupt() {
    let arguments =
        ["--socket", "s", "--memory", "1M", "--queues", "2", "--record", "r.jsonl", "--policy", "cint:in_flight=off"];
    let mut target = serve(TempDir::new().unwrap(), &arguments);
    let load = [
        "--socket",
        "s",
        "--warmup",
        "0", // fewer events than the record has room for
        "--ops",
        "5000",
        "--depth",
        "8",
        "--queues",
        "2",
        "--rw",
        "randwrite",
        "--fsync-every",
        "16",
    ];
    assert_eq!(bench(&target.directory, &load).code, Some(0));
    wait_until("its connection is closed", || connected(&target, "s") == json!(false));
    let stats = called(&target, &["get_stats"])[0]["queues"].clone();
    target.signal(Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(0), "{}", target.log());
    assert!(!target.log().contains("record"), "nothing is lost: {}", target.log());

    let text = String::from_utf8(read(&target.directory, "r.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (index, stats) in stats.as_array().unwrap().iter().enumerate() {
        let mut in_flight = BTreeSet::new();
        let (mut time, mut completions, mut delivered, mut flushes) = (0, 0, 0, 0);
        for line in lines.iter().filter(|line| line["queue"] == index) {
            assert_eq!(line["disk"], "s");
            let now = line["time_ns"].as_u64().unwrap();
            assert!(now >= time, "{line}");
            time = now;
            let id = line["id"].as_u64();
            match line["event"].as_str().unwrap() {
                "submit" => {
                    assert!(in_flight.insert(id.unwrap()), "{line}");
                    flushes += u64::from(line["op"] == "flush");
                    assert_eq!(line["bytes"], if line["op"] == "flush" { 0 } else { 4096 });
                }
                "complete" => {
                    assert!(in_flight.remove(&id.unwrap()), "{line}");
                    completions += 1;
                    delivered += u64::from(line["decision"] != "hold");
                    assert!(line["reason"].is_string() && line["hint"].is_string(), "{line}");
                }
                "interrupt" => delivered += 1,
                other => panic!("{other}"),
            }
        }
        let counted = |key: &str| stats[key].as_u64().unwrap();
        assert!(in_flight.is_empty());
        assert_eq!(completions, counted("completions"));
        assert_eq!(delivered, counted("interrupts") + counted("suppressed"));
        assert!(flushes > 0 && delivered < completions, "{stats}");
    }
}

#[test]
fn a_record_that_cannot_be_written_is_one_clear_line() {
    let arguments = ["serve", "--socket", "s", "--memory", "1M", "--record", "nowhere/r"];
    let directory = TempDir::new().unwrap();
    assert_one_line(&run(&directory, &arguments), &["record nowhere/r", "No such file"], "record");
    assert_eq!(names(&directory), [""; 0], "no socket is left");
}

#[test]
fn bench_prints_one_json_object_and_nothing_else() {
    let target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M", "--queues", "2"]);
    for length in [["--ops", "3000"], ["--seconds", "1.2"]] {
        let load = ["--socket", "s", "--depth", "4", "--queues", "2", "--json"];
        let ended = bench(&target.directory, &[&load[..], &length].concat());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{length:?}: no progress bar");
        assert_eq!(ended.stdout.lines().count(), 1);
        let json: Value = serde_json::from_str(&ended.stdout).unwrap();
        for job in json["jobs"].as_array().unwrap() {
            assert!(job["iops"].as_f64().unwrap() > 0.0, "{job}");
            let clat = &job["clat_ns"];
            assert_eq!(clat["N"], job["total_ios"]);
            let percentile = |name: &str| clat["percentile"][name].as_u64().unwrap_or_else(|| panic!("{name}: {job}"));
            let values = ["1.000000", "50.000000", "99.000000", "99.900000", "99.990000"].map(percentile);
            assert!(values.is_sorted() && values[0] > 0 && values[4] <= clat["max"].as_u64().unwrap(), "{job}");
        }
        wait_until("its connection is closed", || connected(&target, "s") == json!(false));
    }
}

#[test]
fn a_bench_without_a_target_is_one_clear_line() {
    let directory = odds_and_ends();
    let _silent = UnixListener::bind(directory.path().join("silent")).unwrap();
    let _clients = full_socket(&directory.path().join("full"));
    for (socket, part) in [
        ("missing", "No such file"),
        ("image", "refused"),
        ("directory", "refused"),
        ("silent", "it does not answer"),
        ("full", "its queue of clients is full, and it accepts none"),
    ] {
        for device in ["virtio-blk", "nvme"] {
            let load = ["--device", device, "--socket", socket, "--depth", "4", "--seconds", "0.1"];
            let parts = ["coalesce-bench: ", socket, "cannot connect", part];
            assert_one_line(&bench(&directory, &load), &parts, socket);
        }
    }
}

#[test]
fn a_bench_whose_target_is_killed_ends_with_one_clear_line() {
    let mut target = serve(TempDir::new().unwrap(), &["--socket", "s", "--memory", "1M"]);
    let load = ["--socket", "s", "--seconds", "600", "--warmup", "0"];
    let mut command = command_of(&BENCH, target.directory.path(), &load);
    let bench = thread::spawn(move || end(&mut command));
    wait_until("it loads", || target.count("s", 0, "completions") > 100);
    target.kill();
    let ended = bench.join().unwrap();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.starts_with("coalesce-bench: ") && !ended.stderr.contains("panicked"), "{ended:?}");
}
