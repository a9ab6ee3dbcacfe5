//! biosnoop: a line for each command when it has completed, with its latency.
//!
//! ```text
//! TIME(s)     COMM           PID     DISK      T SECTOR     BYTES    LAT(ms)
//! 0.000004    supervise      1950    xvda1     W 13092560   4096       0.74
//! ```
//!
//! There are several versions (bcc with -Q or -P, libbpf, bpftrace): the heading says which columns there are. The time is
//! that of the completion. A command's name may have spaces: columns before it are counted from the left, others from the
//! right.

use super::text::ns;
use super::{Op, Request, Sink};

/// Which columns there are, and where.
#[derive(Debug, Default)]
pub struct Biosnoop {
    columns: Option<Columns>,
}

#[derive(Debug)]
struct Columns {
    count: usize,
    time_unit: u64,
    latency: Column,
    latency_unit: u64,
    disk: Option<Column>,
    kind: Option<Column>,
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
        let column = |name| {
            find(name)
                .map(|index| if index < comm { Column::Left(index) } else { Column::Right(heads.len() - 1 - index) })
        };
        let unit = |name| {
            let unit = find(name).and_then(|index| unit(heads[index]));
            unit.ok_or_else(|| format!("the heading has no {name} in s, ms or us"))
        };
        Ok(Self {
            count: heads.len(),
            time_unit: unit("TIME")?,
            latency: column("LAT").ok_or("the heading has no LAT")?,
            latency_unit: unit("LAT")?,
            disk: column("DISK"),
            kind: column("T"),
        })
    }
}

impl Biosnoop {
    /// How fine the times are, in ns: us where they are in s, as six digits are printed.
    pub fn resolution(&self) -> u64 {
        self.columns.as_ref().map_or(1, |columns| if columns.time_unit == 1_000_000 { 1_000_000 } else { 1000 })
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
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        if fields.len() < columns.count {
            return Err(format!("has {} fields, the heading has {}", fields.len(), columns.count));
        }
        let at = ns(fields[0], columns.time_unit).ok_or_else(|| format!("time is {:?}, not a number", fields[0]))?;
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
        let queue = sink.queue(columns.disk.map_or("disk", |disk| disk.of(&fields)));
        sink.command(at, latency, queue, Request { op, ..Request::default() });
        Ok(())
    }
}
