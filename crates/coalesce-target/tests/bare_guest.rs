//! The bare-metal guest of `guest/bare` on disks that the real program serves. It looks at a queue only after an interrupt of that
//! queue's vector, so a lost one is noticed, and it counts those that it takes.

mod guest_kit;

use guest_kit::{Options, Target, number, while_policies_change};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Only a lost interrupt takes longer.
const HANG: Duration = Duration::from_secs(60);

/// A running guest.
struct Guest<'a> {
    process: Child,
    lines: Receiver<String>,
    ready: String,
    target: &'a Target,
}

impl<'a> Guest<'a> {
    /// `accelerator`: none, the best that there is.
    fn boot(target: &'a Target, event_idx: &str, accelerator: Option<&str>) -> Self {
        let mut command = target.bare_guest();
        command.env("EVENT_IDX", event_idx).env("ACCEL", accelerator.unwrap_or_default());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut guest = Self { process, lines, ready: String::new(), target };
        guest.ready = guest.wait_for("GUEST-READY ");
        guest
    }

    /// The rest of a line that begins so.
    fn wait_for(&self, beginning: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(HANG).unwrap_or_else(|error| {
                panic!("{}: no {beginning}: {error}\n{:#?}\n{}", self.ready, self.target.queues(), self.target.log())
            });
            assert!(!line.starts_with("GUEST-ERROR"), "{line}");
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.trim().to_owned();
            }
        }
    }

    /// The disk's statistics, once they stand still: it counts an interrupt after it has sent it.
    fn settled(&self) -> Vec<Value> {
        let counts = |queues: &[Value]| -> Vec<_> {
            queues.iter().flat_map(|queue| ["/interrupts", "/completions"].map(|path| count(queue, path))).collect()
        };
        let mut queues = self.target.queues();
        loop {
            thread::sleep(Duration::from_millis(20));
            let later = self.target.queues();
            if counts(&later) == counts(&queues) {
                return later;
            }
            queues = later;
        }
    }

    /// What a load has counted, in which no read failed and each block was the one that was asked for.
    fn run(&mut self, load: &str) -> Run {
        let before = self.target.queues();
        writeln!(self.process.stdin.as_ref().unwrap(), "run {load}").unwrap();
        let result: Value = serde_json::from_str(&self.wait_for("RESULT ")).unwrap();
        let sum = |name: &str| result["streams"].as_array().unwrap().iter().map(|stream| number(&stream[name])).sum();
        assert_eq!([sum("failed"), sum("bad"), number(&result["strays"])], [0; 3], "{load}: {result}");
        let ios: u64 = sum("ios");
        let after = self.settled();
        let since = |path: &str| -> Vec<u64> {
            after.iter().zip(&before).map(|(after, before)| count(after, path) - count(before, path)).collect()
        };
        let taken = result["taken"].as_array().unwrap()[1..].iter().map(number).collect();
        let run = Run {
            taken,
            sent: since("/interrupts"),
            timed: since("/delivered/time"),
            completions: since("/completions"),
            result,
        };
        assert_eq!(run.completions.iter().sum::<u64>(), ios, "{load}: {run:?}");
        run
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn count(queue: &Value, path: &str) -> u64 {
    queue.pointer(path).map_or(0, number)
}

/// By queue, but for the result, which the guest prints.
#[derive(Debug)]
struct Run {
    taken: Vec<u64>,
    sent: Vec<u64>,
    /// Those of `sent` for which a timer was the reason.
    timed: Vec<u64>,
    completions: Vec<u64>,
    result: Value,
}

/// On each kind of disk; under KVM, where that runs anything, and emulated.
fn in_each_guest(queues: usize, policy: &'static str, check: impl Fn(&mut Guest<'_>)) {
    for (device, event_idx) in [("virtio-blk", "on"), ("virtio-blk", "off"), ("nvme", "off")] {
        let options = Options { device, policy, queues, stamped: true, ..Options::default() };
        let Some(target) = Target::start_with(options) else { continue };
        let check_in = |accelerator| {
            let mut guest = Guest::boot(&target, event_idx, accelerator);
            let ready = format!("disk={device} queues={queues} blocks=4096 event_idx={event_idx} accel=");
            assert!(guest.ready.starts_with(&ready), "{}", guest.ready);
            check(&mut guest);
            println!("{}", guest.ready);
            guest.ready.ends_with("kvm")
        };
        if check_in(None) {
            check_in(Some("tcg"));
        }
    }
}

#[test]
fn fifteen_queues_have_vectors_of_their_own() {
    in_each_guest(15, "auto", |guest| {
        let streams: Vec<_> = (0..15).map(|queue| format!("{queue}:{}", 1 + queue * 3 % 8)).collect();
        let run = guest.run(&format!("300 {}", streams.join(" ")));
        for queue in 0..15 {
            let ios = number(&run.result["streams"][queue]["ios"]);
            assert_eq!(run.completions[queue], ios, "queue {queue}: {run:?}");
            assert!(
                (1..=run.sent[queue]).contains(&run.taken[queue]) && run.sent[queue] <= ios,
                "queue {queue}: {run:?}"
            );
        }
    });
}

#[test]
fn who_waits_for_each_read_takes_an_interrupt_for_each() {
    for policy in ["none", "auto"] {
        in_each_guest(4, policy, |guest| {
            for queue in [0, 3] {
                let run = guest.run(&format!("300 {queue}:1"));
                let wanted: Vec<_> = (0..4).map(|other| if other == queue { 300 } else { 0 }).collect();
                assert_eq!((&run.taken, &run.sent), (&wanted, &wanted), "{policy}: {}", run.result);
            }
        });
    }
}

/// Eight are in flight, and nothing is submitted before all eight are back. A policy that waits for eight (thr is one less) sends one
/// interrupt for them, and one more each time that its timer was sooner, which may be merged with the next.
#[test]
fn what_is_taken_is_what_the_policy_sends() {
    in_each_guest(2, "nvme:thr=7,time=25ms", |guest| {
        let run = guest.run("800 1:8:0:8:1000");
        let (taken, sent) = (run.taken[1], run.sent[1]);
        assert!((run.taken[0], run.sent[0]) == (0, 0) && (100..=sent).contains(&taken), "{run:?}");
        assert!(sent - 100 <= run.timed[1], "{run:?}");
    });
}

/// A reader beside a flood, in a queue of its own and in the same; on/off loads, whose last completion nothing follows; work for each read.
#[test]
fn nothing_is_lost_while_the_policy_changes() {
    const LOADS: [&str; 6] = [
        "200 0:1 1:32",
        "200 2:1 2:32",
        "400 0:16:0:16:200000 1:4:0:40:100000",
        "100 1:3:0:3:2000000",
        "200 0:4:20000 1:1:50000",
        "500 0:64 1:64 2:1",
    ];
    in_each_guest(3, "auto", |guest| {
        let control = guest.target.control();
        let changes = while_policies_change(&control, || {
            for load in LOADS.iter().cycle().take(3 * LOADS.len()) {
                guest.run(load);
            }
        });
        assert!(changes > 5, "{changes}");
    });
}
