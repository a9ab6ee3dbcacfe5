//! Logs of fio's `write_lat_log`: `time, value, direction, block size[, offset], priority[, issue time]`.
//!
//! The time is in ms, which is too coarse for anything that coalescing is about. With `log_issue_time=1` (and
//! `log_offset=1`), the clat log has the time of issue in ns: completion is then issue time plus latency, exactly.
//! Averages (`log_avg_msec`) are not commands: their block size is 0. Nor are the lines of `_bw` and `_iops` logs, which look
//! like those of latencies; of an `_iops` log without averages the value is 1.
//!
//! The slat log has the same fields. Its lines are written when the command is submitted, so that issue time plus value, which is
//! no completion, can be later than the ms in which the line was written. In a clat log it cannot.

use super::sink::BEGIN;
use super::text::number;
use super::{Op, Request, Sink};

const MS: u64 = 1_000_000;
/// fio rounds the time of a line to µs on its way to ms.
const ROUNDING: u64 = 1000;

/// Why a log of this name is no trace.
pub fn refusal(name: &str) -> Option<&'static str> {
    let is = |kind: &str| name.contains(&format!("_{kind}."));
    match () {
        () if is("slat") => Some("slat is the time that fio takes to submit"),
        () if is("bw") => Some("fio's bw log has bandwidths in KiB/s"),
        () if is("iops") => Some("fio's iops log has rates"),
        () => None,
    }
}

/// Whether this is a line of such a log.
pub fn is_sample(line: &str) -> bool {
    let mut fields = line.split(',').map(str::trim);
    let is_number = |text: &str| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    (4..=7).contains(&line.split(',').count()) && fields.all(is_number)
}

/// Understands a line, and says how fine its time is, in ns.
pub fn line(line: &str, sink: &mut Sink) -> Result<u64, String> {
    let fields: Vec<_> = line.split(',').map(str::trim).collect();
    // Priority and offset came one after the other into fio's logs: 4, 5, 6 fields, and 7 with the issue time.
    let issue = match fields.len() {
        4..=6 => None,
        7 => Some(number::<u64>("issue time", fields[6])?),
        8 => return Err("has 8 fields: averages with maxima are not commands".into()),
        count => return Err(format!("has {count} fields, not 4 to 7")),
    };
    let time: u64 = number("time", fields[0])?;
    let latency: u64 = number("latency", fields[1])?;
    let op = match number::<u32>("direction", fields[2])? {
        0 => Op::Read,
        1 => Op::Write,
        2 => Op::Other,
        3..=5 => Op::Flush,
        other => return Err(format!("direction is {other}, not 0 to 5")),
    };
    let bytes: u64 = number("block size", fields[3])?;
    if bytes == 0 && matches!(op, Op::Read | Op::Write | Op::Other) {
        return Err("block size is 0: an average (log_avg_msec), or of a bw or iops log; record a clat log without \
                    log_avg_msec"
            .into());
    }
    if latency == 1 {
        return Err("value is 1, a rate and not a latency in ns: it is of an iops log; replay the clat log".into());
    }
    let priority = match fields.get(5).or(fields.get(4)) {
        Some(text) => match text.strip_prefix("0x") {
            Some(digits) => {
                u16::from_str_radix(digits, 16).map_err(|_| format!("priority is {text:?}, not 16 bits"))?
            }
            None if *text == "1" => 1 << 13, // real time, the highest class
            None if fields.len() == 5 => 0,  // an offset, from before there were priorities
            None if *text == "0" => 0,
            None => return Err(format!("priority is {text:?}, not 0, 1 or 0x...")),
        },
        None => 0,
    };
    let at = match issue {
        Some(0) => return Err("issue time is 0: use the clat log".into()),
        Some(issue) => {
            let at = issue.saturating_add(latency);
            if at > time.saturating_add(1).saturating_mul(MS).saturating_add(ROUNDING) {
                return Err(format!(
                    "was logged at {time} ms, before its issue time and its value are over ({:.3} ms): it is of a slat or lat \
                     log; replay the clat log",
                    at as f64 / MS as f64
                ));
            }
            at
        }
        None => time.checked_mul(MS).and_then(|at| at.checked_add(BEGIN)).ok_or("time is too large")?,
    };
    let queue = sink.queue("fio");
    sink.command(at, latency, queue, Request { op, ioprio: priority, ..Request::default() });
    Ok(if issue.is_some() { 1 } else { MS })
}
