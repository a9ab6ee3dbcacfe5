//! biosnoop: a line for each command when it has completed, with its latency.
//!
//! ```text
//! TIME(s)     COMM           PID     DISK      T SECTOR     BYTES    LAT(ms)
//! 0.000004    supervise      1950    xvda1     W 13092560   4096       0.74
//! ```
//!
//! There are several versions (bcc with -Q or -P, libbpf, bpftrace): the heading says which columns there are. The time is
//! that of the completion. A command's name may have spaces: columns before it are counted from the left, others from the
//! right. It may be empty, and bcc prints no space after BYTES: what is wider than its column runs into the next.

use super::sink::BEGIN;
use super::text::{SECOND, ns};
use super::{Op, Request, Sink};

/// Which columns there are, and where.
#[derive(Debug, Default)]
pub struct Biosnoop {
    columns: Option<Columns>,
    day: TimeOfDay,
}

#[derive(Debug)]
struct Columns {
    count: usize,
    time: Time,
    latency: Column,
    latency_unit: u64,
    disk: Option<Column>,
    minor: Option<Column>, // bpftrace names a disk by two numbers
    kind: Option<Column>,
    after_bytes: Option<(usize, bool)>,   // from the right, and whether it is a letter
    comm: Option<std::ops::Range<usize>>, // in characters
}

/// What the first column is.
#[derive(Clone, Copy, Debug)]
enum Time {
    /// A number of these ns.
    Unit(u64),
    /// `17:58:57.814`, of libbpf's with -t.
    OfDay,
    /// `2026-06-25 09:57:11.309563`, of bcc's with -t: two fields.
    Dated,
}

/// What makes times of a day grow over midnight.
#[derive(Clone, Copy, Debug, Default)]
struct TimeOfDay {
    days: u64,
    last: u64,
}

const DAY: u64 = 86_400 * SECOND;

impl TimeOfDay {
    /// ns since the first day began.
    fn at(&mut self, text: &str) -> Option<u64> {
        let (hours, rest) = text.split_once(':')?;
        let (minutes, seconds) = rest.split_once(':')?;
        let (hours, minutes, seconds) = (ns(hours, 1)?, ns(minutes, 1)?, ns(seconds, SECOND)?);
        if hours > 23 || minutes > 59 || seconds > 60 * SECOND {
            return None;
        }
        let now = (hours * 60 + minutes) * 60 * SECOND + seconds;
        if self.days > 0 && now > self.last + DAY / 2 {
            return Some((self.days - 1).saturating_mul(DAY).saturating_add(now)); // a late line of the day before
        }
        self.days += u64::from(now + DAY / 2 < self.last);
        self.last = now;
        Some(self.days.saturating_mul(DAY).saturating_add(now))
    }
}

/// A column, from the left or from the right.
#[derive(Clone, Copy, Debug)]
enum Column {
    Left(usize),
    Right(usize),
}

impl Column {
    fn of<'a>(self, fields: &[&'a str]) -> &'a str {
        match self {
            Self::Left(index) => fields[index],
            Self::Right(index) => fields[fields.len() - 1 - index],
        }
    }
}

/// Whether this is the heading.
pub fn is_header(line: &str) -> bool {
    line.starts_with("TIME")
}

/// What bpftrace says before it begins.
pub fn is_preamble(line: &str) -> bool {
    line.starts_with("Attach") || line.starts_with("Tracing block")
}

/// `NAME(unit)`: the unit in ns.
fn unit(head: &str) -> Option<u64> {
    match head.split_once('(')?.1 {
        "s)" => Some(1_000_000_000),
        "ms)" => Some(1_000_000),
        "us)" => Some(1000),
        _ => None,
    }
}

impl Columns {
    fn of(header: &str) -> Result<Self, String> {
        let heads: Vec<_> = header.split_ascii_whitespace().collect();
        let find = |name: &str| heads.iter().position(|head| head.split('(').next() == Some(name));
        let comm = find("COMM").unwrap_or(0);
        let start = |index: usize| heads[index].as_ptr() as usize - header.as_ptr() as usize;
        let column = |name| {
            find(name)
                .map(|index| if index < comm { Column::Left(index) } else { Column::Right(heads.len() - 1 - index) })
        };
        let unit = |name| {
            let unit = find(name).and_then(|index| unit(heads[index]));
            unit.ok_or_else(|| format!("the heading has no {name} in s, ms or us"))
        };
        let time = match heads[0] {
            "TIMESTAMP" => Time::OfDay,
            "TIME" => Time::Dated,
            _ => Time::Unit(unit("TIME")?),
        };
        Ok(Self {
            count: heads.len(),
            time,
            latency: column("LAT").ok_or("the heading has no LAT")?,
            latency_unit: unit("LAT")?,
            disk: column("DISK"),
            minor: find("DISK").filter(|disk| heads.get(disk + 1) == Some(&"ID")).and_then(|_| column("ID")),
            kind: column("T"),
            after_bytes: find("BYTES").and_then(|bytes| {
                let after = heads.get(bytes + 1)?;
                Some((heads.len() - 2 - bytes, *after == "P"))
            }),
            comm: find("COMM").and_then(|comm| Some(start(comm)..start((comm + 1 < heads.len()).then_some(comm + 1)?))),
        })
    }

    /// The fields of a line, each of its column.
    fn fields<'a>(&self, line: &'a str) -> Result<Vec<&'a str>, String> {
        let date = usize::from(matches!(self.time, Time::Dated));
        let mut fields: Vec<_> = line.split_ascii_whitespace().skip(date).collect();
        if let Some((from_right, is_letter)) = self.after_bytes
            && let Some(index) = fields.len().checked_sub(1 + from_right)
            && let Some((bytes, after)) = split_bytes(fields[index], is_letter)
        {
            fields.splice(index..=index, [bytes, after]);
        }
        let has_no_comm = || {
            let place = self.comm.clone()?;
            line.get(place).map(|comm| comm.trim().is_empty())
        };
        if fields.len() + 1 == self.count && has_no_comm() == Some(true) {
            return Ok(fields);
        }
        match fields.len() {
            count if count < self.count => Err(format!("has {count} fields, the heading has {}", self.count)),
            _ => Ok(fields),
        }
    }
}

/// BYTES and what is printed behind it without a space: a letter, which is missing at a disk's first command, or a time of a
/// second and more with two decimals. The time begins where BYTES are whole sectors.
fn split_bytes(text: &str, is_letter: bool) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if is_letter {
        return (digits > 0 && text.len() <= digits + 1).then(|| text.split_at(digits));
    }
    let width = "BYTES  ".len();
    let mut places = width..=digits.checked_sub("1000".len()).filter(|last| *last >= width && text.len() > digits)?;
    let is_sectors = |at: &usize| {
        text[..*at].parse().is_ok_and(|bytes: u64| bytes.is_multiple_of(512)) && !text[*at..].starts_with('0')
    };
    places.find(is_sectors).map(|at| text.split_at(at))
}

impl Biosnoop {
    /// How fine the times are, in ns: us where they are in s, as six digits are printed.
    pub fn resolution(&self) -> u64 {
        match self.columns.as_ref().map(|columns| columns.time) {
            Some(Time::Unit(1_000_000) | Time::OfDay) => 1_000_000,
            Some(_) => 1000,
            None => 1,
        }
    }

    pub fn line(&mut self, line: &str, sink: &mut Sink) -> Result<(), String> {
        if is_header(line) {
            self.columns = Some(Columns::of(line)?);
            sink.other();
            return Ok(());
        }
        let Some(columns) = &self.columns else {
            if is_preamble(line) {
                sink.other();
                return Ok(());
            }
            return Err("comes before the heading that names the columns".into());
        };
        if line.trim() == "MAJOR MINOR" {
            sink.other(); // bpftrace has a second line of headings
            return Ok(());
        }
        let fields = columns.fields(line)?;
        let at = match columns.time {
            Time::Unit(unit) => ns(fields[0], unit)
                .ok_or_else(|| format!("time is {:?}, not a number", fields[0]))?
                .saturating_add(BEGIN),
            Time::OfDay | Time::Dated => {
                self.day.at(fields[0]).ok_or_else(|| format!("time is {:?}, not HH:MM:SS.DIGITS", fields[0]))?
            }
        };
        let latency = columns.latency.of(&fields);
        let latency =
            ns(latency, columns.latency_unit).ok_or_else(|| format!("latency is {latency:?}, not a number"))?;
        let op = columns.kind.map(|kind| kind.of(&fields).trim_start_matches('F'));
        let op = match op.and_then(|kind| kind.chars().next()) {
            Some('R') | None if op != Some("") => Op::Read,
            Some('W') => Op::Write,
            None => Op::Flush,
            _ => Op::Other,
        };
        let disk = columns.disk.map_or("disk", |disk| disk.of(&fields));
        let queue = match columns.minor {
            Some(minor) => sink.queue(&format!("{disk},{}", minor.of(&fields))),
            None => sink.queue(disk),
        };
        sink.command(at, latency, queue, Request { op, ..Request::default() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_into_its_neighbour_is_taken_apart() {
        for (text, is_letter, expected) in [
            ("1048576R", true, Some(("1048576", "R"))),
            ("4096", true, Some(("4096", ""))),
            ("R", true, None),
            ("1048576?", true, Some(("1048576", "?"))),
            ("10485761234.56", false, Some(("1048576", "1234.56"))),
            ("214748364801234.56", false, Some(("21474836480", "1234.56"))),
            ("4096   ", false, None),
            ("12345678", false, None),
            ("999999.99", false, None),
        ] {
            assert_eq!(split_bytes(text, is_letter), expected, "{text}");
        }
    }
}
