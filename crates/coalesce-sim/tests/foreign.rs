//! What is no trace of commands is refused by its name, with what to run instead.

use coalesce_sim::trace::{Options, Trace};
use std::io::Cursor;

const LENIENT: Options = Options { format: None, lenient: true, per_cpu: false };

fn refused(bytes: &[u8], options: Options) -> String {
    Trace::new(Box::new(Cursor::new(bytes.to_vec())), options).step().unwrap_err().to_string()
}

#[test]
fn binary_files_are_known_by_their_first_bytes() {
    for (begin, says) in [
        (&b"\x07tae\x01\x00\x00\x00"[..], "it is blktrace's recording: for NAME.blktrace.N, blkparse -i NAME"),
        (b"eat\x07\x00\x00\x00\x01", "it is blktrace's recording"),
        (b"PERFILE2h\x00", "it is perf's recording: perf script --ns -i FILE"),
        (b"\x17\x08\x44tracing6", "it is trace-cmd's recording: trace-cmd report -i FILE"),
        (b"\x1f\x8b\x08\x00", "it is compressed (gzip): zcat FILE"),
        (b"\x28\xb5\x2f\xfd\x04", "it is compressed (zstd): zstdcat FILE"),
        (b"\xfd7zXZ\x00\x00", "it is compressed (xz): xzcat FILE"),
        (b"BZh91AY", "it is compressed (bzip2): bzcat FILE"),
        (b"PK\x03\x04\x14", "it is an archive (zip): unzip -p FILE"),
        (b"\xff\xfeT\x00I\x00", "it is in UTF-16: iconv -f UTF-16 -t UTF-8 FILE"),
    ] {
        for options in [Options::default(), LENIENT] {
            let refused = refused(begin, options);
            assert!(refused.contains(says), "{refused}");
            assert!(refused.contains("| coalesce-sim replay -"), "{refused}");
        }
    }
}

#[test]
fn text_is_known_by_its_first_lines() {
    let iostat =
        "iostat, whose lines are averages over an interval and not commands: record with biosnoop, blktrace or perf";
    let fio = "a summary of fio (its output, json or json+), which has no commands: run fio with --write_lat_log=NAME";
    let perf = "perf trace, which prints no clock: use perf record, then perf script --ns";
    for (line, text, says) in [
        (1, "Linux 6.1.0-56-amd64 (host) \t11/26/26 \t_x86_64_\t(2 CPU)\n\navg-cpu:  %user\n", iostat),
        (1, "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n", iostat),
        (1, "Device            r/s     rkB/s   rrqm/s  %rrqm r_await\n", iostat),
        (1, "Device             tps    kB_read/s\n", iostat),
        (1, "{\"sysstat\": {\n", iostat),
        (1, "{\n  \"fio version\" : \"fio-3.33\",\n", fio),
        (1, "{ \"fio version\": \"fio-3.33\", \"jobs\": [] }\n", fio),
        (1, "x: (g=0): rw=randrw, bs=(R) 4096B-4096B\n", fio),
        (1, "fio-3.33\nStarting 1 process\n", fio),
        (1, "     0.000 auditd/391 block:block_rq_issue:259,0 WS 8192 () 16046032 + 16 [auditd]\n", perf),
        (1, "     0.000 fio/391 nvme:nvme_setup_cmd:nvme0: qid=1, cmdid=4\n", perf),
        (1, "0.000 fio/391 block:block_rq_issue(dev: 259, sector: 8)\n", perf),
        (2, "Attaching 2 probes...\nDevice             tps    kB_read/s\n", iostat),
    ] {
        for options in [Options::default(), LENIENT] {
            let refused = refused(text.as_bytes(), options);
            assert!(refused.starts_with(&format!("line {line}: it is of {says}")), "{text}: {refused}");
        }
    }
    assert!(refused(b"{\"time_ns\":5,\n", Options::default()).contains("EOF"), "our own line, cut off");
}
