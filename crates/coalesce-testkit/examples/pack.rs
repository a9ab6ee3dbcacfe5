//! Packs golden traces into one file of fixed-size records, for firmware that has no JSON: see
//! `firmware-demo/lab/vectors.h`.
//!
//!     cargo run -p coalesce-testkit --example pack -- OUTPUT vectors/*.jsonl

use coalesce_testkit::{Call, Event, Hint, Ticket};
use serde_json::Value;
use std::error::Error;
use std::path::Path;

/// No ticket, no deadline, no end of a timeslice, no limit.
const NEVER: u64 = u64::MAX;

/// A call with every argument that any call has.
struct Packable {
    verb: u8, // of `enum vector_call`
    now: u64,
    cif: u32,
    outstanding: u32,
    hint: Hint,
    ticket: Option<Ticket>,
    slice_end: Option<u64>,
    choice: u8,
}

impl Packable {
    const fn new(verb: u8, now: u64) -> Self {
        Self { verb, now, cif: 0, outstanding: 0, hint: Hint::Plain, ticket: None, slice_end: None, choice: 0 }
    }
}

struct Packed(Vec<u8>);

impl Packed {
    fn u64(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    fn name(&mut self, name: &str, size: usize) -> Result<(), Box<dyn Error>> {
        let zeroes = size.checked_sub(name.len()).ok_or_else(|| format!("{name} is longer than {size} bytes"))?;
        self.0.extend(name.bytes());
        self.0.extend(std::iter::repeat_n(0, zeroes));
        Ok(())
    }

    /// `struct vector_config`
    fn config(&mut self, config: &Value) -> Result<(), Box<dyn Error>> {
        let number = |name: &str| match &config[name] {
            Value::Null => Ok(0),
            Value::Bool(switch) => Ok(u64::from(*switch)),
            value => value.as_u64().ok_or_else(|| format!("{name} is {value}")),
        };
        self.u64(number("tick_hz")?);
        self.u64(config["max_hold_ns"].as_u64().unwrap_or(NEVER));
        for name in ["epoch_ns", "margin_ns", "delta_ns", "storm_max_rate"] {
            self.u64(number(name)?);
        }
        for name in [
            "cif_threshold",
            "iops_threshold",
            "max_skip",
            "live_clamp",
            "thr",
            "storm_shift",
            "in_flight",
            "ooo",
            "budget",
        ] {
            self.u32(u32::try_from(number(name)?)?);
        }
        self.u32(0); // to a multiple of 8 bytes
        Ok(())
    }

    /// `struct vector_event`
    fn event(&mut self, event: &Event) -> Result<(), Box<dyn Error>> {
        let call = match event.call {
            Call::OnSubmit { group, ticket, now, outstanding } => {
                let outstanding = outstanding.unwrap_or(0);
                Packable { choice: group, ticket, outstanding, ..Packable::new(0, now.unwrap_or(0)) }
            }
            Call::OnCompletion { now, cif, outstanding, hint, ticket, slice_end } => {
                let outstanding = outstanding.unwrap_or(0);
                Packable { cif, outstanding, hint, ticket, slice_end, ..Packable::new(1, now) }
            }
            Call::OnDeadline { now } => Packable::new(2, now),
            Call::OnBatchEnd { now } => Packable::new(3, now),
            Call::OnConsumed { now } => Packable::new(4, now),
            Call::OnSchedule { now } => Packable::new(5, now),
            Call::OnDeschedule { now } => Packable::new(6, now),
            Call::OnCancel { now, ticket } => Packable { ticket, ..Packable::new(7, now) },
            Call::ResetTracking {} => Packable::new(8, 0),
            Call::Flush { now } => Packable::new(9, now),
            Call::Reconfigure { now, choice } => Packable { choice, ..Packable::new(10, now) },
        };
        let hint = match call.hint {
            Hint::Plain => 0,
            Hint::Barrier => 1,
            Hint::Urgent => 2,
        };
        let decision = match event.decision.as_deref() {
            None => 0,
            Some("deliver") => 1,
            Some("deliver_urgent") => 2,
            Some("hold") => 3,
            Some("refused") => 4,
            Some(other) => return Err(format!("unknown decision {other}").into()),
        };
        self.u64(call.now);
        for number in [call.ticket.map(Ticket::to_number), call.slice_end, event.deadline] {
            self.u64(number.unwrap_or(NEVER));
        }
        self.u32(call.cif);
        self.u32(call.outstanding);
        self.0.extend([call.verb, hint, decision, call.choice]);
        self.name(event.reason.as_deref().unwrap_or_default(), 20)
    }

    /// `struct vector_trace`, and what follows it.
    fn trace(&mut self, path: &Path) -> Result<(), Box<dyn Error>> {
        let text = std::fs::read_to_string(path)?;
        let mut lines = text.lines();
        let header: Value = serde_json::from_str(lines.next().unwrap_or_default())?;
        let configurations = header["configurations"].as_array().ok_or("no configurations in the first line")?;
        let events = lines.map(serde_json::from_str).collect::<Result<Vec<Event>, _>>()?;
        let machine = match header["machine"].as_str() {
            Some("vic") => 0,
            Some("cint") => 1,
            Some("budget") => 2,
            Some("auto") => 3,
            _ => return Err("no machine in the first line".into()),
        };
        if header["window"].as_u64().is_some_and(|commands| commands != 64) {
            return Err("a window that is not of 64 commands".into());
        }
        self.name(path.file_name().and_then(|name| name.to_str()).ok_or("no name")?, 32)?;
        self.u32(machine);
        self.u32(u32::try_from(header["groups"].as_u64().unwrap_or(0))?);
        self.u32(u32::try_from(configurations.len())?);
        self.u32(u32::try_from(events.len())?);
        configurations.iter().try_for_each(|config| self.config(config))?;
        events.iter().try_for_each(|event| self.event(event))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let output = arguments.next().ok_or("usage: pack OUTPUT TRACE...")?;
    let traces: Vec<_> = arguments.collect();
    let mut packed = Packed(Vec::new());
    packed.u64(traces.len() as u64);
    for trace in &traces {
        let path = Path::new(trace);
        packed.trace(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    std::fs::write(output, packed.0)?;
    Ok(())
}
