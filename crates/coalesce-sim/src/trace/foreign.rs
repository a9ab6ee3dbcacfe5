//! What is no trace of commands, and what to run instead. Each is known by what it begins with.

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

/// Events that perf trace may print.
const PERF_TRACE: [&str; 4] =
    ["block:block_rq_issue", "block:block_rq_complete", "nvme:nvme_setup_cmd", "nvme:nvme_complete_rq"];

/// What bytes are that no text begins with, and what to run instead.
pub fn binary(begin: &[u8]) -> Option<&'static str> {
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
        _ => None,
    }
}

/// What perf trace prints runs on behind an event's name; perf script leaves a space.
fn has_glued(line: &str, event: &str) -> bool {
    let rest = line.split_once(event).map_or("", |(_, rest)| rest);
    rest.starts_with('(') || rest.strip_prefix(':').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '))
}
