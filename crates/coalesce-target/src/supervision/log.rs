//! The log: one line on standard error for each event that matters to an operator (connections, refusals, limits,
//! failed I/O, broken rings, restarts).
//!
//! Guests and front ends cause most of these events, so each call site is limited to [`LINES_PER_SECOND`], unless its target
//! is [`OF_THE_OPERATOR`]. The next line that is logged states how many were dropped. Under systemd each line begins with
//! its priority, as journald expects.
//!
//! A disk's process logs to a pipe of its own, and the supervisor copies its lines ([`relay`]). So no disk writes to
//! the standard error that all disks share.

use coalesce_cli::counted;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, warn};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// The most lines per second from one call site.
pub const LINES_PER_SECOND: u32 = 10;
/// The target of events that only the operator causes: their number is not limited.
pub const OF_THE_OPERATOR: &str = "operator";
/// The most lines per second copied from one disk's process.
const RELAYED_PER_SECOND: u32 = 250;
/// The longest line with its newline, in bytes: what one write puts into a pipe as a whole (`PIPE_BUF`).
const LINE_MAX: usize = libc::PIPE_BUF;
/// The bytes of a line reserved for remarks: dropped lines, and bytes that were cut off.
const REMARKS_MAX: usize = 160;

/// Logs events of this level and above to standard error, for the whole process.
pub fn start(level: LevelFilter) {
    let lines = Lines { journal: std::env::var_os("JOURNAL_STREAM").is_some(), limits: Mutex::default() };
    // It fails only if a subscriber is already set. That one stays.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines.with_filter(level)));
}

/// Writes events as lines.
struct Lines {
    journal: bool,
    limits: Mutex<HashMap<Identifier, Limit>>,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let callsite = event.metadata().callsite();
        let dropped = if event.metadata().target() == OF_THE_OPERATOR {
            Some(0)
        } else {
            let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            limits.entry(callsite.clone()).or_default().pass(Instant::now(), LINES_PER_SECOND)
        };
        let Some(dropped) = dropped else { return };
        let mut line = Line::default();
        event.record(&mut line);
        let text = line.text(*event.metadata().level(), self.journal, dropped);
        if !write_line(text.as_bytes()) {
            let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            limits.entry(callsite).or_default().dropped += dropped + 1;
        }
    }
}

/// Copies the log of a disk's process to standard error, line by line, until the process ends. It never waits for the
/// reader of standard error. A guest may control the process, so rate and length are bounded and control characters are
/// replaced.
pub fn relay(disk: &str, from: impl Read) {
    let mut reader = BufReader::new(from);
    let mut limit = Limit::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LINE_MAX as u64 - 1).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        line.iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b' ');
        line.push(b'\n');
        let Some(dropped) = limit.pass(Instant::now(), RELAYED_PER_SECOND) else { continue };
        if !write_line(&line) {
            limit.dropped += dropped + 1;
        } else if dropped > 0 {
            warn!(disk, "dropped: {} that its process logged", counted(dropped, "line"));
        }
    }
}

/// Writes a whole line to standard error. Returns false if there is no room for it.
fn write_line(line: &[u8]) -> bool {
    let mut stderr = std::io::stderr().lock();
    let has_room = has_room(stderr.as_fd());
    if has_room {
        let _ = stderr.write_all(line); // standard error may be closed
    }
    has_room
}

/// Whether a line can be written without waiting for the reader: a pipe that is not full has room for [`LINE_MAX`]
/// bytes. Another process that writes to the same pipe may take that room first; the line then waits for the reader.
fn has_room(stderr: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(stderr, PollFlags::POLLOUT)], PollTimeout::ZERO) != Ok(0)
}

/// The lines that one call site, or one disk, has logged in the current second.
#[derive(Debug, Default)]
struct Limit {
    second: Option<Instant>,
    lines: u32,
    dropped: u64,
}

impl Limit {
    /// Whether another line may be logged, at `most` per second. If so, the number of lines dropped since the last one.
    fn pass(&mut self, now: Instant, most: u32) -> Option<u64> {
        let is_over = |start: Instant| now.saturating_duration_since(start) >= Duration::from_secs(1);
        if self.second.is_none_or(is_over) {
            (self.second, self.lines) = (Some(now), 0);
        }
        if self.lines == most {
            self.dropped += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.dropped))
    }
}

/// The parts of a line: where it happened, what happened, and the event's other fields.
#[derive(Debug, Default)]
struct Line {
    disk: String,
    queue: Option<u64>,
    message: String,
    fields: String,
}

impl Line {
    fn text(&self, level: Level, journal: bool, dropped: u64) -> String {
        let (priority, label) = match level {
            Level::ERROR => (3, "error: "),
            Level::WARN => (4, "warning: "),
            Level::INFO => (6, ""),
            Level::DEBUG | Level::TRACE => (7, "debug: "),
        };
        let mut text = if journal { format!("<{priority}>") } else { label.to_owned() };
        if !self.disk.is_empty() {
            let _ = write!(text, "{}: ", self.disk);
        }
        if let Some(queue) = self.queue {
            let _ = write!(text, "queue {queue}: ");
        }
        let _ = write!(text, "{}{}", self.message.escape_debug(), self.fields);
        cut_off(&mut text, LINE_MAX - REMARKS_MAX);
        if dropped > 0 {
            let _ = write!(text, " ({dropped} more lines like this one were dropped)");
        }
        text + "\n"
    }
}

/// Shortens a text to `len` bytes, and appends how many are missing.
fn cut_off(text: &mut String, len: usize) {
    if text.len() > len {
        let end = (0..=len).rfind(|&end| text.is_char_boundary(end)).unwrap_or(0);
        let missing = text.len() - end;
        text.truncate(end);
        let _ = write!(text, "… ({missing} more bytes)");
    }
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "queue" => self.queue = Some(value),
            name => drop(write!(self.fields, ", {name} {value}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "disk" => self.disk = value.escape_debug().to_string(),
            "message" => self.message = value.to_owned(),
            name => drop(write!(self.fields, ", {name} {}", value.escape_debug())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_site_is_rate_limited_and_dropped_lines_are_counted() {
        let start = Instant::now();
        let mut limit = Limit::default();
        let passed = (0..1000).filter(|_| limit.pass(start, LINES_PER_SECOND).is_some()).count();
        assert_eq!(passed, LINES_PER_SECOND as usize);
        assert_eq!(
            limit.pass(start + Duration::from_secs(1), LINES_PER_SECOND),
            Some(1000 - u64::from(LINES_PER_SECOND))
        );
        assert_eq!(limit.pass(start + Duration::from_secs(1), LINES_PER_SECOND), Some(0));
    }

    #[test]
    fn a_line_has_disk_queue_message_and_fields_and_no_newline_inside() {
        let line = Line {
            disk: "a".into(),
            queue: Some(3),
            message: "broken ring\n<0>forged".into(),
            fields: ", head 7".into(),
        };
        assert_eq!(line.text(Level::WARN, false, 0), "warning: a: queue 3: broken ring\\n<0>forged, head 7\n");
        let text = line.text(Level::WARN, true, 2);
        assert!(text.starts_with("<4>a: ") && text.ends_with(" (2 more lines like this one were dropped)\n"), "{text}");
    }

    #[test]
    fn a_long_line_is_cut_to_fit_one_write_and_states_what_is_missing() {
        for pad in 0..4 {
            let message = "x".repeat(pad) + &"\u{20ac}".repeat(5000);
            let line = Line { disk: "a".into(), message, ..Line::default() };
            let text = line.text(Level::ERROR, true, u64::MAX);
            assert!((LINE_MAX - REMARKS_MAX..=LINE_MAX).contains(&text.len()), "{} bytes", text.len());
            let (kept, remarks) = text.split_once('\u{2026}').unwrap();
            let missing = 3 + 3 + pad + 3 * 5000 - kept.len(); // "<3>", "a: "
            let dropped = u64::MAX;
            let expected = format!(" ({missing} more bytes) ({dropped} more lines like this one were dropped)\n");
            assert_eq!(remarks, expected);
        }
    }
}
