//! The guest part: the kit in guest/ boots a Linux with all disks, runs the jobs with fio, and prints RESULT lines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::jobs::{self, Job, ROUNDS, ROWS};
use crate::options::Options;
use crate::process::{Group, Stop};
use crate::progress::Progress;
use crate::results::{Cell, Latency, Part, Place, Sample, Section};
use crate::target::{Target, last_line};

/// What fio needs around each run of an emulated guest, at most.
const OVERHEAD_SECONDS: f64 = 4.0;
/// Booting under emulation, at most.
const BOOT_SECONDS: f64 = 120.0;

/// Runs the jobs in a guest, or says loudly why not: what was measured before is worth a report. An error: a signal.
pub fn run(options: &Options, target: &Target, stop: &Arc<Stop>) -> Result<Section> {
    let section = match prepare(target, stop) {
        Ok(Ok(())) => measure(options, target, stop),
        Ok(Err(missing)) => {
            Ok(Section { notice: Some(format!("SKIPPED: guest part: {missing}")), ..Section::default() })
        }
        Err(error) => Err(error),
    };
    section.or_else(|error| {
        stop.check()?;
        Ok(Section { notice: Some(format!("FAILED: guest part: {error:#}")), failed: true, ..Section::default() })
    })
}

fn kit(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest").join(program)
}

/// Makes the guest, or says what is missing for it.
fn prepare(target: &Target, stop: &Arc<Stop>) -> Result<Result<(), String>> {
    let ready = kit("ready.sh");
    let Ok(answer) = Command::new(&ready).output() else {
        return Ok(Err(format!("{} cannot be run: build this program in its repository", ready.display())));
    };
    if !answer.status.success() {
        return Ok(Err(String::from_utf8_lossy(&answer.stdout).trim().to_owned()));
    }
    // Made beforehand, and not by run-guest.sh, to tell what is missing from what is broken.
    let progress = Progress::begin("making the guest (the first time it downloads a kernel and fio)", 1)?;
    progress.now("");
    let log = target.work_dir().join("make-guest.log");
    let mut command = Command::new(kit("make-guest.sh"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
    let status = Group::spawn(&mut command, stop)?.wait()?;
    stop.check()?;
    Ok(if status.success() { Ok(()) } else { Err(last_line(&log)) })
}

fn measure(options: &Options, target: &Target, stop: &Arc<Stop>) -> Result<Section> {
    let policies = options.policies.0.len();
    let runs = (Job::ALL.len() * policies * ROUNDS) as u64;
    let target_before = target.stats()?;
    let log = target.work_dir().join("run-guest.log");
    let mut command = Command::new(kit("run-guest.sh"));
    command.arg("demo").args(target.sockets()).args(parameters(options.guest_seconds));
    let timeout_seconds = BOOT_SECONDS + runs as f64 * (options.guest_seconds + OVERHEAD_SECONDS);
    command.env("TIMEOUT", timeout_seconds.ceil().to_string()).env_remove("RUNTIME").env_remove("COUNT");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);

    let progress = Progress::begin("Linux guest", runs)?;
    progress.now("booting");
    let mut group = Group::spawn(&mut command, stop)?;
    let stdout = group.child.stdout.take().context("the guest's lines")?;
    let mut guest = Guest::default();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("the guest's lines")?;
        match guest.read(&String::from_utf8_lossy(&line)) {
            Line::Result(what) => {
                progress.now(&what);
                progress.step();
            }
            Line::Complaint(line) => progress.say(&line),
            Line::Other => {}
        }
    }
    let status = group.wait()?;
    drop(progress);
    stop.check()?;
    if !status.success() {
        guest.complaints.push(last_line(&log));
    }
    let part = Part {
        place: Place::Guest,
        cells: guest.cells(policies),
        baseline: options.policies.baseline(),
        seconds: options.guest_seconds,
        guest_interrupts: guest.interrupts(policies),
        raw: guest.results,
        target_before,
        target_after: target.stats()?,
        about: guest.about,
    };
    let results: usize = part.cells.iter().map(|cell| cell.rounds.len()).sum();
    let failed = !guest.complaints.is_empty() || results < ROWS.len() * policies * ROUNDS;
    let why = guest.complaints.first().map_or("a job's result is missing", String::as_str);
    let notice = failed.then(|| format!("FAILED: guest part: {why}"));
    Ok(Section { part: (!part.cells.is_empty()).then_some(part), notice, failed })
}

/// The parameters of the kit's job for runs of this length.
pub fn parameters(seconds: f64) -> [String; 2] {
    [format!("RUNTIME={}ms", (seconds * 1e3).round()), format!("ROUNDS={ROUNDS}")]
}

/// What the guest said.
#[derive(Debug, Default)]
struct Guest {
    results: Vec<Value>,
    /// Of each virtio device: its number, and the interrupts of its request queues.
    irqs: Vec<(u32, u64)>,
    complaints: Vec<String>,
    about: String,
}

#[derive(Debug, PartialEq)]
enum Line {
    Result(String),
    Complaint(String),
    Other,
}

impl Guest {
    fn read(&mut self, line: &str) -> Line {
        if let Some(json) = line.strip_prefix("RESULT ") {
            let Ok(result) = serde_json::from_str::<Value>(json) else {
                return self.complain(&format!("not JSON: {line}"));
            };
            let text = |key| result[key].as_str().unwrap_or_default();
            let (what, is_second_half) = (format!("{} {}", text("job"), text("disk")), text("job") == "mixed-async");
            let ok = ["rc", "errors"].iter().all(|&key| result[key] == 0);
            self.results.push(result);
            return match (ok, is_second_half) {
                (false, _) => self.complain(line),
                (true, false) => Line::Result(what),
                (true, true) => Line::Other, // its run was counted with the first half
            };
        }
        if let Some(irq) = line.strip_prefix("IRQ ") {
            self.irqs.extend(parse_irq(irq));
        } else if let Some(about) = line.strip_prefix("GUEST-READY ") {
            self.about = describe(about);
        } else if line.starts_with("GUEST-ERROR") || line.starts_with("GUEST-FIO") {
            return self.complain(line);
        }
        Line::Other
    }

    fn complain(&mut self, line: &str) -> Line {
        self.complaints.push(line.to_owned());
        Line::Complaint(line.to_owned())
    }

    fn cells(&self, policies: usize) -> Vec<Cell> {
        let mut cells = BTreeMap::<_, Vec<_>>::new();
        for (row, policy, sample) in self.results.iter().filter_map(parse_result) {
            cells.entry((row, policy)).or_default().push(sample);
        }
        cells.retain(|&(_, policy), _| policy < policies);
        cells.into_iter().map(|((row, policy), rounds)| Cell { row, policy, rounds }).collect()
    }

    /// Interrupts by disk. The guest has no other virtio devices, so the order is the same.
    fn interrupts(&self, disks: usize) -> Vec<u64> {
        let mut irqs = self.irqs.clone();
        irqs.sort_unstable();
        let counts: Vec<_> = irqs.into_iter().map(|(_, count)| count).collect();
        if counts.len() == disks { counts } else { Vec::new() }
    }
}

/// What the kit says about the guest once it has booted: words NAME=VALUE.
fn describe(ready: &str) -> String {
    let value = |name: &str| ready.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    // The kit names what executes the guest's instructions only if that is not QEMU itself.
    let accelerator = value("accel").unwrap_or("TCG, software emulation");
    format!("Linux {} under QEMU ({accelerator})", value("kernel").unwrap_or("of unknown version"))
}

/// Row, policy, and sample of one RESULT; none: it failed, or is of a job that nobody knows here.
fn parse_result(result: &Value) -> Option<(usize, usize, Sample)> {
    let row = jobs::row(result["job"].as_str()?)?;
    let policy = parse_disk(result["disk"].as_str()?)?;
    if result["rc"] != 0 || result["errors"] != 0 {
        return None;
    }
    // Whatever percentiles there are: lat_us_p50, lat_us_p99_9.
    let percentile = |(key, value): (&String, &Value)| {
        let percent: f64 = key.strip_prefix("lat_us_p")?.replace('_', ".").parse().ok()?;
        Some((percent, value.as_f64()? * 1e3))
    };
    let mut percentiles: Vec<_> = result.as_object()?.iter().filter_map(percentile).collect();
    percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
    let sample = Sample {
        iops: result["iops"].as_f64()?,
        latency: Latency { n: result["ios"].as_u64()?, percentile: percentiles },
        requests: result["requests"].as_u64()?,
        interrupts: result["irqs"].as_u64()?,
    };
    Some((row, policy, sample))
}

/// vda is the disk of the first policy.
fn parse_disk(name: &str) -> Option<usize> {
    match name.strip_prefix("vd")?.as_bytes() {
        [letter @ b'a'..=b'z'] => Some(usize::from(letter - b'a')),
        _ => None,
    }
}

/// A line of /proc/interrupts: the device's number, and its interrupts over all CPUs.
fn parse_irq(line: &str) -> Option<(u32, u64)> {
    let mut words = line.split_whitespace();
    let device = words.next_back()?.strip_prefix("virtio")?.split_once("-req.")?.0.parse().ok()?;
    let counts = words.skip(1).map_while(|word| word.parse::<u64>().ok());
    Some((device, counts.sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"RESULT {"disk":"vdb","job":"mixed-sync","rc":0,"errors":0,"ios":3009,"read_iops":1504,"write_iops":0,"iops":1504,"clat_us_mean":639.0,"clat_us_p50":436.2,"clat_us_p99":2089.0,"lat_us_mean":641.2,"lat_us_p50":440.3,"lat_us_p99":2113.5,"irqs":6447,"irqs_per_io":0.1406,"flushes":0,"requests":45861}"#;

    #[test]
    fn result_lines_become_cells() {
        let mut guest = Guest::default();
        assert_eq!(guest.read(RESULT), Line::Result("mixed-sync vdb".into()));
        assert_eq!(guest.read(&RESULT.replace("-sync", "-async")), Line::Other);
        assert_eq!(guest.read(RESULT), Line::Result("mixed-sync vdb".into()));
        let cells = guest.cells(2);
        assert_eq!((cells[0].rounds.len(), cells[1].rounds.len()), (2, 1));
        assert_eq!((cells.len(), cells[0].row().name, cells[0].policy), (2, "mixed-sync", 1));
        let sample = &cells[0].rounds[0];
        assert_eq!((sample.requests, sample.interrupts, sample.latency.n), (45861, 6447, 3009));
        let percentile: Vec<_> =
            sample.latency.percentile.iter().map(|&(p, ns)| (p as u32, ns.round() as u64)).collect();
        assert_eq!(percentile, [(50, 440_300), (99, 2_113_500)]);
        assert!(guest.complaints.is_empty() && guest.cells(1).is_empty());
    }

    #[test]
    fn more_percentiles_are_taken_as_they_come() {
        let mut guest = Guest::default();
        guest.read(&RESULT.replace("\"irqs\"", "\"lat_us_p99_9\":3000.0,\"lat_us_p90\":600.0,\"irqs\""));
        let percents: Vec<_> = guest.cells(2)[0].percents().map(|p| format!("{p}")).collect();
        assert_eq!(percents, ["50", "90", "99", "99.9"]);
    }

    #[test]
    fn what_failed_is_no_number() {
        let mut guest = Guest::default();
        for line in [
            &RESULT.replace("\"rc\":0", "\"rc\":1"),
            &RESULT.replace("\"errors\":0", "\"errors\":5"),
            "RESULT {",
            "GUEST-ERROR vda depth 1",
            "GUEST-FIO fio: io_u error",
        ] {
            assert!(matches!(guest.read(line), Line::Complaint(_)), "{line}");
        }
        assert!(guest.cells(5).is_empty());
        assert_eq!(guest.complaints.len(), 5);
    }

    #[test]
    fn interrupts_are_summed_over_cpus_and_ordered_by_device() {
        let mut guest = Guest::default();
        guest.read("IRQ  27:      23585          2   PCI-MSI 32769-edge      virtio1-req.0");
        guest.read("IRQ  25:          0      36907   PCI-MSI 16385-edge      virtio0-req.0");
        guest.read("IRQ  26:          0      0   PCI-MSI 16385-edge      virtio0-config");
        assert_eq!(guest.interrupts(2), [36907, 23587]);
        assert!(guest.interrupts(3).is_empty());
    }

    #[test]
    fn the_guest_is_described() {
        let mut guest = Guest::default();
        guest.read("GUEST-READY kernel=6.1.0 disks=vda,vdb uptime=2.4");
        assert_eq!(guest.about, "Linux 6.1.0 under QEMU (TCG, software emulation)");
        guest.read("GUEST-READY kernel=6.1.0 accel=KVM");
        assert_eq!(guest.about, "Linux 6.1.0 under QEMU (KVM)");
    }

    #[test]
    fn disks_are_letters() {
        assert_eq!(
            (parse_disk("vda"), parse_disk("vde"), parse_disk("vdaa"), parse_disk("sda")),
            (Some(0), Some(4), None, None)
        );
    }
}
