//! `coalesce-sim explain`: the command line, and what it prints.

use super::super::command::TraceArgs;
use super::{Explained, Stretch, explain};
use crate::contender::Contender;
use crate::event::What;
use crate::units::Time;
use anyhow::{Context as _, Result};
use clap::Args;
use coalesce_policy::{Decision, Event as Meaning, Reason};
use serde_json::{Value, json};
use std::io::{BufWriter, ErrorKind, Write};

/// Held completions that the lane shows: more look the same.
const LANE_MAX: usize = 24;

/// Explain a stretch of a trace: each decision of a policy, and its reason
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Command {
    #[command(flatten)]
    trace: TraceArgs,

    /// The policy: any of docs/policies.md, xen_as_published, cint_storm_as_published
    #[arg(long, value_name = "TEXT", default_value = "auto")]
    policy: Contender,

    /// Where the stretch begins, from the trace's first event: 2s, 350ms
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = coalesce_policy::parse_duration)]
    at: u64,

    /// How long the stretch is: 1s, 500us
    #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = coalesce_policy::parse_duration)]
    length: u64,

    /// The queue [default: the first on which something happens in the stretch]
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// Print a line of JSON for each decision, with the names of docs/traces.md, times in ns
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
WHAT IS PRINTED
  A line for each decision, in order of time:
    time us      since the first event of the trace
    about        what the policy decides about: a completion (urgent or barrier, if that
                 is its hint), its deadline, the end of a poll
    in flight    commands in flight on the queue; a completion counts itself
    decision     hold, or an interrupt and how many completions it covers; the reason
    next us      until the policy's deadline, if it holds anything
    spent us     of a latency budget, since the beginning of the trace: what holding has
                 added to the time of all requests, of the share that it may add. Its
                 trials may cost more than the share, up to a limit: learning_ns of
                 --json
    held         a = for each completion that is held; | is the interrupt that ends
                 the hold
  At the end, how often each reason decided, and what it means.

EXAMPLES
  What auto does in the second after the first minute, in a pager:
      coalesce-sim explain disk.jsonl --at 60s | less
  Why did that read wait? The ten milliseconds around it, on its queue:
      coalesce-sim explain disk.jsonl --policy vic --at 1250ms --for 10ms --queue s/2
  Every interrupt in the first hour that came more than 100 us after a completion:
      coalesce-sim explain disk.jsonl --for 3600s --json | \\
          jq 'select(.held_ns > 100000)'
  The same stretch as a figure, beside other policies:
      coalesce-sim replay disk.jsonl --at 60s --html page.html

The policy sees the trace from its beginning, so it has learned what it would have learned. The requester does not react: \
it submits when it did.";

/// What was decided, and how often.
#[derive(Default)]
struct Reasons {
    decided: Vec<((bool, &'static str), &'static str, u64)>, // interrupt or hold, and why; its meaning
    interrupts: u64,
    completions: u64,
}

impl Command {
    /// Explains, and prints.
    ///
    /// # Errors
    /// The trace is malformed or cannot be read, the policy is not right for it, or nothing happens in the stretch.
    pub fn run(&self) -> Result<()> {
        let output = BufWriter::new(std::io::stdout().lock());
        match self.write(output) {
            // A pager that was left, or head.
            Err(error)
                if error
                    .downcast_ref::<std::io::Error>()
                    .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn write(&self, mut output: impl Write) -> Result<()> {
        let mut trace = self.trace.open()?;
        let stretch = Stretch { at: self.at, length: self.length, queue: self.queue.clone() };
        let mut reasons = Reasons::default();
        let mut is_first = true;
        let queue = explain(&mut trace, &self.policy, &stretch, |decision| {
            if self.json {
                return Ok(writeln!(output, "{}", to_json(decision))?);
            }
            if std::mem::take(&mut is_first) {
                writeln!(output, "{}", line(&HEADS))?;
            }
            reasons.count(decision);
            Ok(writeln!(output, "{}", line(&cells(decision).each_ref().map(String::as_str)))?)
        })
        .with_context(|| format!("trace {}", self.trace.trace.display()))?;
        if !self.json {
            let name = &trace.queues()[queue];
            if is_first {
                let (at, length) = (Time(self.at), Time(self.length));
                writeln!(output, "nothing is decided on queue {name} from {at} on, for {length}")?;
            } else {
                write!(output, "\n{}", reasons.in_words(&self.policy, name))?;
            }
            let others: Vec<_> = trace.queues().iter().enumerate().filter(|(other, _)| *other != queue).collect();
            if !others.is_empty() {
                let names: Vec<_> = others.iter().map(|(_, name)| name.as_str()).collect();
                writeln!(output, "other queues so far, for --queue: {}", names.join(", "))?;
            }
        }
        Ok(output.flush()?)
    }
}

const HEADS: [&str; 7] = ["time us", "about", "in flight", "decision", "next us", "spent us", "held"];

fn line([time, about, in_flight, decision, next, spent, held]: &[&str; 7]) -> String {
    let line = format!("{time:>11}  {about:<10}  {in_flight:>9}  {decision:<27}  {next:>8}  {spent:>14}  {held}");
    line.trim_end().to_owned()
}

fn cells(explained: &Explained) -> [String; 7] {
    let Explained { since_first, at, about, decision, covers, after, .. } = *explained;
    let us = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
    let (about, in_flight) = match about {
        What::Completion { hint: Meaning::Plain, cif } => ("completion", cif),
        What::Completion { hint, cif } => (hint.name(), cif),
        What::Deadline => ("deadline", after.in_flight),
        What::BatchEnd => ("poll ends", after.in_flight),
        _ => ("trace ends", after.in_flight),
    };
    let reason = decision.reason_name();
    let held = "=".repeat(after.held.min(LANE_MAX));
    let (decision, lane) = match decision {
        Decision::Hold(_) => (format!("hold: {reason}"), held),
        Decision::Deliver(_) => {
            (format!("interrupt for {covers}: {reason}"), "=".repeat((covers as usize).min(LANE_MAX)) + "|")
        }
        Decision::DeliverUrgent => (format!("interrupt alone: {reason}"), held + " =|"),
    };
    [
        us(since_first),
        about.to_owned(),
        in_flight.to_string(),
        decision,
        after.deadline.map_or_else(String::new, |deadline| us(deadline.saturating_sub(at))),
        after.spent.map_or_else(String::new, |spent| format!("{} of {}", spent.held / 1000, after.allowed / 1000)),
        lane,
    ]
}

fn to_json(explained: &Explained) -> Value {
    let Explained { at, about, decision, covers, held, after, .. } = *explained;
    let (event, hint) = match about {
        What::Completion { hint, .. } => ("complete", Some(hint.name())),
        What::Deadline => ("deadline", None),
        What::BatchEnd => ("batch_end", None),
        _ => ("flush", None),
    };
    let cif = match about {
        What::Completion { cif, .. } => Some(cif),
        _ => None,
    };
    json!({
        "time_ns": at,
        "event": event,
        "hint": hint,
        "cif": cif,
        "decision": match decision {
            Decision::Deliver(_) => "deliver",
            Decision::DeliverUrgent => "urgent_alone",
            Decision::Hold(_) => "hold",
        },
        "reason": decision.reason_name(),
        "covers": covers,
        "held_ns": held,
        "in_flight": after.in_flight,
        "held": after.held,
        "deadline_ns": after.deadline,
        "spent_ns": after.spent.map(|spent| spent.held),
        "budget_ns": after.spent.map(|_| after.allowed),
        "learning_ns": after.spent.map(|spent| spent.learning),
    })
}

impl Reasons {
    fn count(&mut self, explained: &Explained) {
        self.completions += u64::from(matches!(explained.about, What::Completion { .. }));
        self.interrupts += u64::from(explained.decision.is_deliver());
        let decision = (explained.decision.is_deliver(), explained.decision.reason_name());
        match self.decided.iter_mut().find(|(known, ..)| *known == decision) {
            Some((_, _, count)) => *count += 1,
            None => self.decided.push((decision, meaning(explained.decision), 1)),
        }
    }

    fn in_words(&self, policy: &Contender, queue: &str) -> String {
        let Self { completions, interrupts, .. } = self;
        let mut text = format!("{policy} on queue {queue}: interrupts {interrupts}, completions {completions}\n");
        for ((is_deliver, reason), meaning, count) in &self.decided {
            let decision = if *is_deliver { "interrupt" } else { "hold" };
            text += &format!("{count:>8}  {:<22} {meaning}\n", format!("{decision}: {reason}"));
        }
        text
    }
}

const fn meaning(decision: Decision) -> &'static str {
    match decision {
        Decision::Deliver(reason) => reason.meaning(),
        Decision::DeliverUrgent => Reason::Urgent.meaning(),
        Decision::Hold(reason) => reason.meaning(),
    }
}
