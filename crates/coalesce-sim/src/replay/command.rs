//! `coalesce-sim replay`: the command line, and what it prints.

use super::optimum::{Budget, Wanted};
use super::replay_beside_optimum;
use super::report::{about_latencies, notes, report, table, to_json};
use crate::contender::{Contender, own};
use crate::cycles::Cycles;
use crate::report::page::picture;
use crate::report::{Outputs, refuse_mistaken, write};
use crate::trace::{Format, Options, Trace};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use coalesce_cli::counted;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Completions up to which the optimum is looked for without being asked: it takes memory, and about a second for each policy.
const OPTIMUM_MAX: u64 = 1 << 20;
/// Completions from whose beginning cint is calibrated.
const CALIBRATION_MAX: u64 = 1 << 18;

/// Calibrates cint for a trace, which it opens several times. Returns the policy, and how many completions it has seen.
pub type Calibrate = fn(open: &dyn Fn() -> Result<Trace>, cycles: Cycles) -> Result<(Contender, u64)>;

/// How a trace is read.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// The trace; - is standard input
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Format of the trace [default: detected from its first line]
    #[arg(long, value_enum)]
    pub format: Option<Format>,

    /// Skip malformed lines, and count them
    #[arg(long)]
    pub lenient: bool,

    /// blkparse, events of the block layer: one interrupt vector per submitting CPU, instead of one per device
    #[arg(long)]
    pub per_cpu: bool,
}

impl TraceArgs {
    /// Opens the trace.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(&self) -> Result<Trace> {
        let Self { format, lenient, per_cpu, .. } = *self;
        Trace::open(&self.trace, Options { format, lenient, per_cpu })
    }
}

/// Replay a trace: what each policy would have done with the same completions at the same times
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Command {
    #[command(flatten)]
    trace: TraceArgs,

    /// Policy to replay, may be repeated: any of docs/policies.md, xen_as_published,
    /// cint_storm_as_published
    /// [default: none, nvme (a fixed timer), vic, cint with Δ and thr for this trace, auto with 2 %, 5 % and 10 %]
    #[arg(long = "policy", value_name = "TEXT")]
    policies: Vec<Contender>,

    /// Print JSON: fio's names, times in ns
    #[arg(long)]
    json: bool,

    /// Start of the report's timelines, from the trace's first event: 2s, 350ms [default: in its second half]
    #[arg(long, value_name = "TIME", value_parser = coalesce_policy::parse_duration)]
    at: Option<u64>,

    #[command(flatten)]
    cycles: Cycles,

    /// Compare with the fewest interrupts possible at a budget, too, and in a trace of any length: see THE OPTIMUM below
    #[arg(long)]
    optimum: bool,

    /// How much of the time of all requests, from submission to interrupt, an optimum for all policies may add by
    /// holding: 5%, 0.5%
    #[arg(long, value_name = "SHARE", default_value = "5%", requires = "optimum")]
    budget: Budget,

    /// How long that optimum may hold a completion: 200us [default: no limit but the budget]
    #[arg(long, value_name = "TIME", requires = "optimum", value_parser = coalesce_policy::parse_duration)]
    max_hold: Option<u64>,

    /// Write the report's timelines as a picture of their own (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    outputs: Outputs,
}

const EXAMPLES: &str = "\
WHAT IS PRINTED
  Whether auto, the default, is worth it, or why the trace cannot tell; then a line for
  each policy:
    interrupts   and for each I/O
    CPU          time over that of an interrupt for each I/O, with the stated cycles
    time us      mean that a request takes its requester, from its submission until the
                 interrupt for it: the requester reaps at once; and its percentiles
    held %       of the time of all requests: the part from completion to interrupt, as
                 it was, not as the policy counts it
    x optimum    over the fewest interrupts for as much holding: see THE OPTIMUM
  Where a latency budget has learned, a line says how much of what it held its share
  paid for, how much trials took, and how much was held with a licence that they found.
  Then the delays, from completion to interrupt.

THE OPTIMUM
  A policy decides without knowing what will complete next. The optimum says,
  with the whole trace known, how much that costs:
  - beside each policy, the fewest interrupts that could have delivered the same
    completions with no more wait in total, and no longer single wait, than the
    policy has or allows. `x optimum` is 1.00 if nothing can be gained. Without
    --optimum, for traces of up to 1 048 576 completions: it needs memory for each.
  - for all policies (--optimum), the fewest interrupts if waiting adds no more than
    --budget to the time of all requests. A policy that holds more than this may
    raise fewer: compare `held %`.
  No policy beats the first. It delivers at once what is urgent, if the policy did:
  what failed or is said to be urgent, flushes, durable writes, and requests of
  real-time priority. The second always does.

EXAMPLES
  How far each policy is from the best that could be done by delaying requests by 5 %, or by 1 %:
      coalesce-sim replay disk.trace --optimum
      coalesce-sim replay disk.trace --optimum --budget 1% --max-hold 100us
  A disk of this machine for ten seconds, under every policy:
      blktrace -d /dev/nvme0n1 -w 10 -o - | blkparse -i - | coalesce-sim replay -
  An NVMe disk's queues, from the events of Linux's driver (docs/traces.md has more formats):
      perf record -a -e nvme:nvme_setup_cmd,nvme:nvme_complete_rq -- sleep 10
      perf script --ns | coalesce-sim replay -
  Three policies only:
      coalesce-sim replay disk.trace --policy none --policy nvme:thr=7,time=100us \\
          --policy cint:delta=6us
  A trace that a running target recorded:
      coalesce-target serve --socket /tmp/s --memory 1G --record disk.jsonl
      coalesce-sim replay disk.jsonl

The requester of a trace does not react to the policy: it submits when it did. Interrupts and delays are exact for that \
load. The times of completions already contain what the recorded host's own interrupts cost.";

/// What a trace is replayed under if nothing is said, cint as it is calibrated.
const DEFAULT_POLICIES: [&str; 7] = ["none", "nvme", "vic", CINT, "auto:budget=2%", "auto", "auto:budget=10%"];
const CINT: &str = "cint";

impl Command {
    /// Replays, and prints.
    ///
    /// # Errors
    /// The trace is malformed or cannot be read, or is one of the outputs, or two of these are one; or a policy is not right for it.
    pub fn run(&self, calibrate: Calibrate) -> Result<()> {
        refuse_mistaken(&self.trace.trace, self.outputs.files().chain(&self.plot))?;
        let name = self.trace.trace.display();
        let (policies, about_them) = match self.policies.as_slice() {
            [] => self.default_policies(calibrate)?,
            policies => (policies.to_vec(), None),
        };
        let mut trace = self.trace.open()?;
        let most = (!self.optimum).then_some(OPTIMUM_MAX);
        let wanted = Wanted { budget: self.budget, max_hold: self.max_hold, most };
        let replay = replay_beside_optimum(&mut trace, &policies, self.at, wanted);
        let replay = replay.with_context(|| format!("trace {name}"))?;
        if trace.counts().completions == 0 {
            bail!("trace {name}: no completion in {}", counted(trace.counts().lines, "line"));
        }
        let mut notes = notes(&trace);
        notes.extend(about_latencies(&replay));
        notes.extend(about_them);
        if replay.optimum.is_none() {
            notes.push(format!(
                "more than {OPTIMUM_MAX} completions: --optimum says how far from the optimum policies are"
            ));
        }
        let report = report(&trace, &replay, &name.to_string(), &notes, self.cycles);
        self.outputs.write(&report)?;
        if let Some(path) = &self.plot {
            write(path, &picture(&report).context("--plot")?)?;
        }
        let text = if self.json {
            serde_json::to_string_pretty(&to_json(&trace, &replay, &report, self.cycles))? + "\n"
        } else {
            table(&trace, &replay, &report, self.optimum)
        };
        std::io::stdout().write_all(text.as_bytes()).context("standard output")
    }

    /// What a trace is replayed under if nothing is said, and what has to be said of that.
    fn default_policies(&self, calibrate: Calibrate) -> Result<(Vec<Contender>, Option<String>)> {
        let (cint, about) = self.calibrated(calibrate);
        let ours = DEFAULT_POLICIES.iter().map(|&text| match &cint {
            Some(cint) if text == CINT => Ok(cint.clone()),
            _ => text.parse(),
        });
        Ok((ours.chain(own().map(Ok)).collect::<Result<_, _>>()?, about))
    }

    /// cint for this trace; `None`: with its default parameters. And what has to be said of it.
    fn calibrated(&self, calibrate: Calibrate) -> (Option<Contender>, Option<String>) {
        let path = &self.trace.trace;
        if path == Path::new("-") || !path.metadata().is_ok_and(|about| about.is_file()) {
            return (None, Some("cint has its default Δ and thr, as only a file can be read several times".into()));
        }
        let open = || {
            let mut trace = self.trace.open()?;
            trace.stop_after(CALIBRATION_MAX);
            Ok(trace)
        };
        match calibrate(&open, self.cycles) {
            Ok((cint, seen)) => {
                let about = (seen >= CALIBRATION_MAX)
                    .then(|| format!("cint is calibrated from the first {CALIBRATION_MAX} completions"));
                (Some(cint), about)
            }
            Err(error) => (None, Some(format!("cint has its default Δ and thr: {error:#}"))),
        }
    }
}
