//! What is no trace of commands, or in a format that is not read, and what to run instead. Each is known by what it begins with.

use super::text::{SECOND, ns};

/// What a file begins with that is no text, and what it is and what makes a trace of it.
const MAGICS: [(&[u8], &str); 12] = [
    (b"\x07tae", BLKTRACE), // BLK_IO_TRACE_MAGIC and its version, in little and in big endian
    (b"eat\x07", BLKTRACE),
    (b"PERFILE2", "perf's recording: perf script --ns -i FILE | coalesce-sim replay -"),
    (b"\x17\x08Dtracing", "trace-cmd's recording: trace-cmd report -i FILE | coalesce-sim replay -"),
    (b"\x1f\x8b", "compressed (gzip): zcat FILE | coalesce-sim replay -"),
    (b"\x28\xb5\x2f\xfd", "compressed (zstd): zstdcat FILE | coalesce-sim replay -"),
    (b"\xfd7zXZ\0", "compressed (xz): xzcat FILE | coalesce-sim replay -"),
    (b"BZh", "compressed (bzip2): bzcat FILE | coalesce-sim replay -"),
    (b"PK\x03\x04", "an archive (zip): unzip -p FILE | coalesce-sim replay -"),
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
    (b"SQLite format 3", "a database, not text"),
];
const BLKTRACE: &str = "blktrace's recording: for NAME.blktrace.N, blkparse -i NAME | coalesce-sim replay -";
const UTF_16: &str = "in UTF-16: iconv -f UTF-16 -t UTF-8 FILE | coalesce-sim replay -";
const FIO: &str = "a summary of fio (its output, json or json+), which has no commands: run fio with --write_lat_log=NAME \
                   --log_offset=1 --log_issue_time=1 and replay NAME_clat.1.log";
const IOSTAT: &str = "iostat, whose lines are averages over an interval and not commands: record with biosnoop, blktrace or \
                      perf (docs/traces.md)";

/// What a tar's first header has, and where (POSIX).
const USTAR: (usize, &[u8]) = (257, b"ustar");
const TAR: &str = "an archive (tar): tar -xOf FILE MEMBER | coalesce-sim replay - (tar -tf FILE names its members)";
// Arrivals in other formats, and what makes SPC's of them.
const DISKSIM: &str = "DiskSim, SSDsim or MQSim (time, device, sector, sectors, 1 for a read), without the unit of its time: for \
                       ns, awk '{ printf \"%s,%s,%d,%s,%.9f\\n\", $2, $3, 512 * $4, $5 % 2 ? \"R\" : \"W\", $1 / 1e9 }' FILE \
                       makes arrivals in SPC's format of it; for ms, divide by 1e3";
const FIU: &str = "FIU (time in ns, process, sector, sectors, R or W, device, digest): arrivals, of which awk \
                   '{ printf \"%s:%s,%s,%d,%s,%.9f\\n\", $7, $8, $4, 512 * $5, $6, $1 / 1e9 }' FILE makes SPC's format";
const K5CLOUD: &str = "K5cloud (volume, seconds, R or W, offset, length): arrivals, of which awk \
                       'BEGIN { FS = OFS = \",\" } { print $1, $4, $5, $3, $2 }' FILE makes SPC's format";

/// Events that perf trace may print.
const PERF_TRACE: [&str; 4] =
    ["block:block_rq_issue", "block:block_rq_complete", "nvme:nvme_setup_cmd", "nvme:nvme_complete_rq"];

/// What bytes are that no text begins with, and what to run instead.
pub fn binary(begin: &[u8]) -> Option<&'static str> {
    let (at, ustar) = USTAR;
    if begin.get(at..).is_some_and(|rest| rest.starts_with(ustar)) {
        return Some(TAR);
    }
    MAGICS.iter().find(|(magic, _)| begin.starts_with(magic)).map(|(_, what)| *what)
}

/// What a line is of that begins no trace, and what to run instead.
pub fn text(line: &str) -> Option<&'static str> {
    let word = line.split_ascii_whitespace().next().unwrap_or_default();
    let has = |part: &str| line.contains(part);
    match word {
        "avg-cpu:" => Some(IOSTAT),
        "Device" | "Device:" if has("r/s") || has("tps") => Some(IOSTAT),
        "Linux" if line.ends_with("CPU)") => Some(IOSTAT),
        _ if has("\"sysstat\"") => Some(IOSTAT),
        // Our own lines are a whole object each.
        "{" if line.trim() == "{" || has("\"fio version\"") => Some(FIO),
        _ if has("(g=0): rw=") || (word.starts_with("fio-") && line.trim() == word) => Some(FIO),
        _ if PERF_TRACE.iter().any(|event| has_glued(line, event)) => {
            Some("perf trace, which prints no clock: use perf record, then perf script --ns | coalesce-sim replay -")
        }
        _ => arrivals(line),
    }
}

/// Arrivals in formats that are not read.
fn arrivals(line: &str) -> Option<&'static str> {
    let is_number = |field: &str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
    let is_seconds = |field: &str| field.contains('.') && ns(field, SECOND).is_some();
    let by_comma: Vec<_> = line.split(',').map(str::trim).collect();
    if let [volume, time, "R" | "W", offset, length] = by_comma[..] {
        return ([volume, offset, length].into_iter().all(is_number) && is_seconds(time)).then_some(K5CLOUD);
    }
    let fields: Vec<_> = line.split_ascii_whitespace().collect();
    match fields[..] {
        [time, device, sector, sectors, flags] => {
            let are_numbers = [device, sector, sectors, flags].into_iter().all(is_number);
            (are_numbers && ns(time, SECOND).is_some()).then_some(DISKSIM)
        }
        [time, process, _, sector, sectors, "R" | "W", major, minor, ..] => {
            [time, process, sector, sectors, major, minor].into_iter().all(is_number).then_some(FIU)
        }
        _ => None,
    }
}

/// What perf trace prints runs on behind an event's name; perf script leaves a space.
fn has_glued(line: &str, event: &str) -> bool {
    let rest = line.split_once(event).map_or("", |(_, rest)| rest);
    rest.starts_with('(') || rest.strip_prefix(':').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '))
}
