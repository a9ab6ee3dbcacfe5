//! This project's own lines: one JSON object for each submission and completion, as `coalesce-target --record` writes them.
//! `docs/traces.md` explains every member.

use super::{Op, RawWhat, Request, Sink};
use coalesce_policy::Hint;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    time_ns: u64,
    event: Event,
    #[serde(borrow, default)]
    disk: Option<Cow<'a, str>>,
    #[serde(default)]
    queue: u32,
    id: Option<u64>,
    #[serde(default)]
    op: LineOp,
    #[serde(default, rename = "bytes")]
    _bytes: u64,
    #[serde(default)]
    ioprio: u16,
    #[serde(default)]
    durable: bool,
    #[serde(default)]
    failed: bool,
    hint: Option<LineHint>,
    decision: Option<LineDecision>,
    #[serde(rename = "reason")]
    _reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    Submit,
    Complete,
    Interrupt,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LineOp {
    #[default]
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
    Other,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum LineHint {
    Plain,
    Urgent,
    Barrier,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum LineDecision {
    Deliver,
    UrgentAlone,
    Hold,
}

pub fn line(text: &str, sink: &mut Sink) -> Result<(), String> {
    let line: Line = serde_json::from_str(text).map_err(|error| without_place(&error))?;
    let queue = match &line.disk {
        Some(disk) => sink.queue(&format!("{disk}/{}", line.queue)),
        None => sink.queue(&line.queue.to_string()),
    };
    let id = || line.id.ok_or("has no id");
    let what = match line.event {
        Event::Submit => RawWhat::Submit(queue, request(&line)),
        Event::Complete => {
            sink.counts.interrupts += u64::from(line.decision.as_ref().is_some_and(|made| *made != LineDecision::Hold));
            RawWhat::Complete(queue, line.failed)
        }
        Event::Interrupt => {
            sink.counts.interrupts += 1;
            sink.other();
            return Ok(());
        }
    };
    sink.event(line.time_ns, queue as u64, id()?, what);
    Ok(())
}

fn request(line: &Line) -> Request {
    Request {
        op: match line.op {
            LineOp::Read => Op::Read,
            LineOp::Write => Op::Write,
            LineOp::Flush => Op::Flush,
            LineOp::Discard | LineOp::WriteZeroes | LineOp::Other => Op::Other,
        },
        durable: line.durable,
        ioprio: line.ioprio,
        hint: match line.hint {
            Some(LineHint::Urgent) => Hint::Urgent,
            Some(LineHint::Barrier) => Hint::Barrier,
            Some(LineHint::Plain) | None => Hint::Plain,
        },
    }
}

/// serde_json counts lines itself, always 1 here.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}
