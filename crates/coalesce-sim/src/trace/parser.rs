//! How a line of each format is recognised, and the parsers.

use super::sink::Sink;
use super::{Format, biosnoop, blkparse, csv, fio, json, tracepoint};

/// The format of a line, if it can only be of one.
pub fn format_of(line: &str) -> Option<Format> {
    let is_format = |format: &Format| match format {
        Format::Blkparse => blkparse::is_event(line),
        Format::Biosnoop => biosnoop::is_header(line),
        Format::Fio => fio::is_sample(line),
        Format::Json => line.trim_start().starts_with('{'),
        Format::Tracepoint => tracepoint::is_event(line),
        Format::Msr | Format::Systor | Format::Spc | Format::Alibaba | Format::Tencent => false,
    };
    csv::format_of(line).or_else(|| Format::ALL.into_iter().find(is_format))
}

/// A format's parser. What it does not understand is an error that says why, without the line's number.
#[derive(Debug)]
pub enum Parser {
    Blkparse(blkparse::Blkparse),
    Biosnoop(biosnoop::Biosnoop),
    Fio { resolution: u64 },
    Json,
    Tracepoint(tracepoint::Tracepoint),
    Csv(Box<csv::Csv>),
}

impl Parser {
    pub fn new(format: Format, per_cpu: bool) -> Self {
        match format {
            Format::Blkparse => Self::Blkparse(blkparse::Blkparse::new(per_cpu)),
            Format::Biosnoop => Self::Biosnoop(biosnoop::Biosnoop::default()),
            Format::Fio => Self::Fio { resolution: 1 },
            Format::Json => Self::Json,
            Format::Tracepoint => Self::Tracepoint(tracepoint::Tracepoint::new(per_cpu)),
            Format::Msr | Format::Systor | Format::Spc | Format::Alibaba | Format::Tencent => {
                Self::Csv(Box::new(csv::Csv::new(format)))
            }
        }
    }

    pub fn line(&mut self, line: &str, sink: &mut Sink) -> Result<(), String> {
        match self {
            Self::Blkparse(blkparse) => blkparse.line(line, sink),
            Self::Biosnoop(biosnoop) => biosnoop.line(line, sink),
            Self::Fio { resolution } => fio::line(line, sink).map(|of_line| *resolution = of_line),
            Self::Json => json::line(line, sink),
            Self::Tracepoint(tracepoint) => tracepoint.line(line, sink),
            Self::Csv(csv) => csv.line(line, sink),
        }
    }

    /// How many events are looked ahead, so that they come in order. Where a line is a whole command it appears when that
    /// ends: those that began before others and end after them are among the next.
    pub const fn window(&self) -> usize {
        match self {
            Self::Blkparse(_) | Self::Tracepoint(_) => 1 << 12,
            Self::Json => 1 << 16,   // queues of a target write in turns, a thousand lines each
            Self::Csv(_) => 1 << 14, // in order of arrival: completions of what is in flight are ahead
            Self::Biosnoop(_) | Self::Fio { .. } => 1 << 17,
        }
    }

    pub fn resolution(&self) -> u64 {
        match self {
            Self::Blkparse(_) | Self::Json => 1,
            Self::Biosnoop(biosnoop) => biosnoop.resolution(),
            Self::Fio { resolution } => *resolution,
            Self::Tracepoint(tracepoint) => tracepoint.resolution(),
            Self::Csv(csv) => csv.resolution(),
        }
    }

    /// Whether a key belongs to one command in flight at most.
    pub fn has_unique_keys(&self) -> bool {
        match self {
            Self::Blkparse(_) => false,
            Self::Tracepoint(tracepoint) => tracepoint.has_unique_keys(),
            Self::Biosnoop(_) | Self::Fio { .. } | Self::Json | Self::Csv(_) => true,
        }
    }

    /// Whether it says when commands complete.
    pub fn has_completions(&self) -> bool {
        !matches!(self, Self::Csv(csv) if !csv.has_completions())
    }
}
