//! A real Linux guest that QEMU migrates from one target to another and back, both on one image, under verified writes. For
//! `scripts/migrate.sh`: without KVM QEMU 7.2 loses a guest now and then, with its own disk too (`docs/migration.md`).

mod guest_kit;

use guest_kit::{Options, Target, number};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const HANG: Duration = Duration::from_secs(120);

/// `COALESCE_MIGRATIONS` says how often.
#[test]
#[ignore = "an emulated guest: run scripts/migrate.sh"]
fn a_guest_that_is_migrated_there_and_back_loses_nothing() {
    let migrations = std::env::var("COALESCE_MIGRATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    thread::scope(|scope| {
        for policy in ["auto", "vic"] {
            scope.spawn(move || migrate_under_load(policy, migrations));
        }
    });
}

fn migrate_under_load(policy: &'static str, migrations: usize) {
    let Some(first) = Target::start_with(Options { policy, migratable: true, queues: 2, ..Options::default() }) else {
        return;
    };
    let targets = [first.beside(), first];
    let directory = TempDir::new().unwrap();
    let mut guest = Guest::start(&targets[1], directory.path(), 0);
    guest.wait_for("GUEST-STEP start");
    guest.stay_after_all(Guest::start(&targets[0], directory.path(), migrations + 1));
    let mut took = Vec::new();
    for number in 1..=migrations {
        let mut next = Guest::start(&targets[(number + 1) % 2], directory.path(), number);
        sleep(Duration::from_secs(2)); // of requests here, before it leaves
        took.push(guest.migrate_to(&mut next));
        guest = next;
    }
    sleep(Duration::from_secs(2));
    let results = guest.finish();
    let soak = results.last().unwrap();
    let requests = targets.each_ref().map(number_of_requests);
    println!("{policy}: {migrations} migrations, downtime and total in ms: {took:?}, requests: {requests:?}, {soak}");
    assert_eq!((soak["job"].as_str(), &soak["errors"]), (Some("soak"), &json!(0)), "{policy}");
    assert!(number(&soak["passes"]) > 0 && number(&soak["flushes"]) > 0, "{soak}");
    assert!(requests.iter().all(|requests| *requests > 0), "{policy}: {requests:?}");
    for target in &targets {
        let log = target.log();
        for bad in ["broken", "has ended", "refused", "locked", "SET_"] {
            assert!(!log.contains(bad), "{policy}: {bad}: {log}");
        }
    }
}

fn number_of_requests(target: &Target) -> u64 {
    let queues = target.queues();
    assert!(queues.iter().all(|queue| queue["in_flight"] == 0 && queue["held"] == 0), "{queues:#?}");
    queues.iter().map(|queue| number(&queue["completions"])).sum()
}

/// A virtual machine, before, while or after it has the guest.
struct Guest {
    process: Killed,
    lines: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
    console: File,
    qmp: Qmp,
    incoming: String,
}

impl Guest {
    /// Boots it, or with a number above 0 waits for a guest that comes.
    fn start(target: &Target, directory: &Path, number: usize) -> Self {
        let path = |name: &str| format!("{}/{name}{number}", directory.display());
        let (control, incoming) = (path("qmp"), format!("unix:{}", path("incoming")));
        let console = path("console");
        mkfifo(&*console, Mode::S_IRWXU).unwrap();
        let mut command = target.guest("soak", &["SECONDS=0"]);
        command.args(["--", "-qmp", &format!("unix:{control},server=on,wait=off")]);
        command.env("MEM", "256").env("TIMEOUT", "3600").env("INPUT", &console);
        command.env("APPEND", "init_on_alloc=0"); // else the guest writes each page before the disk does, and a log is not needed
        let console = File::options().read(true).write(true).open(console).unwrap(); // never waits
        if number > 0 {
            command.args(["-incoming", &incoming]);
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = lines.clone();
        let reader = thread::spawn(move || stdout.lines().for_each(|line| heard.lock().unwrap().push(line.unwrap())));
        let qmp = Qmp::connect(&control);
        Self { process: Killed(process), lines, reader, console, qmp, incoming }
    }

    fn wait_for(&self, what: &str) {
        wait_until(what, || self.lines.lock().unwrap().iter().any(|line| line == what));
    }

    /// Begins to move the guest, so slowly that it does not end, and gives it up.
    fn stay_after_all(&mut self, mut next: Self) {
        self.qmp.call("migrate-set-parameters", &json!({ "max-bandwidth": 1 << 20 }));
        self.qmp.call("migrate", &json!({ "uri": next.incoming }));
        self.wait_for_migration("active");
        sleep(Duration::from_secs(1)); // of requests that are logged
        self.qmp.call("migrate_cancel", &json!({}));
        self.wait_for_migration("cancelled");
        self.qmp.call("migrate-set-parameters", &json!({ "max-bandwidth": 1 << 30 }));
        next.process.0.wait().unwrap(); // it has no guest to wait for
    }

    /// Moves the guest. The downtime and the whole time in ms, as QEMU has them.
    fn migrate_to(&mut self, next: &mut Self) -> [u64; 2] {
        self.qmp.call("migrate", &json!({ "uri": next.incoming }));
        let state = self.wait_for_migration("completed");
        wait_until("it runs there", || next.qmp.call("query-status", &json!({}))["running"] == true);
        self.qmp.call("quit", &json!({}));
        self.process.0.wait().unwrap();
        [&state["downtime"], &state["total-time"]].map(number)
    }

    fn wait_for_migration(&mut self, status: &str) -> Value {
        let mut state = Value::Null;
        wait_until(&format!("the migration is {status}"), || {
            state = self.qmp.call("query-migrate", &json!({}));
            assert_ne!(state["status"], "failed", "{state}");
            state["status"] == status
        });
        state
    }

    /// Ends the job. What it measured.
    fn finish(mut self) -> Vec<Value> {
        self.console.write_all(b"\n").unwrap();
        assert!(self.process.0.wait().unwrap().success(), "{:#?}", self.lines);
        self.reader.join().unwrap();
        let lines = self.lines.lock().unwrap();
        lines
            .iter()
            .filter_map(|line| line.strip_prefix("RESULT "))
            .map(|text| serde_json::from_str(text).unwrap())
            .collect()
    }
}

/// A machine whose test failed ends too, and what it started.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
            let _ = self.0.wait();
        }
    }
}

/// QEMU's monitor.
struct Qmp(BufReader<UnixStream>);

impl Qmp {
    fn connect(path: &str) -> Self {
        let mut stream = None;
        wait_until("QEMU starts", || {
            stream = UnixStream::connect(path).ok();
            stream.is_some()
        });
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        let mut qmp = Self(BufReader::new(stream));
        qmp.next(); // its greeting
        qmp.call("qmp_capabilities", &json!({}));
        qmp
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn call(&mut self, command: &str, arguments: &Value) -> Value {
        let line = json!({ "execute": command, "arguments": arguments }).to_string() + "\n";
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
        loop {
            let mut answer = self.next(); // or an event
            assert!(answer.get("error").is_none(), "{command}: {answer}");
            if let Some(value) = answer.get_mut("return") {
                return value.take();
            }
        }
    }
}

fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < HANG, "hung: {what}");
        sleep(Duration::from_millis(20));
    }
}
