//! What is no trace of commands is refused by its name, with what to run instead.

use coalesce_sim::trace::{Format, Moment, Op, Options, Trace};
use std::io::{Cursor, Write as _};
use std::process::{Command, Stdio};

const LENIENT: Options = Options { format: None, lenient: true, per_cpu: false };

/// The first block of a tar: the member's name, and what the header has at its byte 257.
fn tar() -> [u8; 512] {
    let mut header = [0; 512];
    header[..20].copy_from_slice(b"MSR-Cambridge/x.csv\n");
    header[257..265].copy_from_slice(b"ustar  \0");
    header
}

fn open(bytes: &[u8], options: Options) -> Trace {
    Trace::new(Box::new(Cursor::new(bytes.to_vec())), options)
}

fn refused(bytes: &[u8], options: Options) -> String {
    open(bytes, options).step().unwrap_err().to_string()
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
        (&tar(), "it is an archive (tar): tar -xOf FILE MEMBER"),
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

/// A plan names a file, and cannot read a pipe.
#[test]
fn for_a_plan_a_file_is_made() {
    for (begin, says) in [
        (&b"BZh91AY"[..], "it is compressed (bzip2): bzcat FILE > TRACE, for a plan"),
        (&tar(), "it is an archive (tar): tar -xOf FILE MEMBER > TRACE, for a plan"),
        (b"0.000 fio/391 nvme:nvme_setup_cmd:nvme0: qid=1\n", "perf record, then perf script --ns > TRACE, for a plan"),
    ] {
        let refused = open(begin, Options::default()).arrival().unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
}

/// The program in the error, as typed: what it makes of these lines is read.
#[test]
fn arrivals_in_other_formats_are_refused_with_what_makes_a_trace_of_them() {
    let (disksim, fiu) = ("of DiskSim, SSDsim or MQSim", "of FIU");
    for (text, says, expected) in [
        (
            "0 0 303567 7 0\n26214000 1 240840 6 1\n",
            disksim,
            [(0, "asu 0", Op::Write), (26_214_000, "asu 1", Op::Read)],
        ),
        (
            "4851300.2  3\t524288  16 33\n4864301 3 524304 16 0\n",
            disksim,
            [(4_851_300, "asu 3", Op::Read), (4_864_301, "asu 3", Op::Write)],
        ),
        (
            "12000 4892 syslogd 904265560 8 W 6 0 531e779a8b\n15000 2559 dd 904265568 16 R 6 1 d41d8cd98f\n",
            fiu,
            [(12_000, "asu 6:0", Op::Write), (15_000, "asu 6:1", Op::Read)],
        ),
        (
            "1157,3.828359000,W,7155568640,4096\n931,3.833921000,R,7132311552,8192\n",
            "of K5cloud",
            [(3_828_359_000, "asu 1157", Op::Write), (3_833_921_000, "asu 931", Op::Read)],
        ),
    ] {
        for options in [Options::default(), LENIENT] {
            let refused = refused(text.as_bytes(), options);
            assert!(refused.starts_with(&format!("line 1: it is {says} (")), "{refused}");
            let program = refused.split('\'').nth(1).unwrap();
            let mut trace = open(awk(program, text).as_bytes(), Options::default());
            let arrivals: Vec<_> = std::iter::from_fn(|| trace.arrival().unwrap()).collect();
            let found = arrivals.iter().map(|step| {
                let Moment::Submit { request, .. } = step.what else { panic!("{step:?}") };
                (step.at, trace.queues()[step.queue].as_str(), request.op)
            });
            assert_eq!(found.collect::<Vec<_>>(), expected, "{text}");
            assert_eq!(trace.format(), Some(Format::Spc));
        }
    }
}

fn awk(program: &str, input: &str) -> String {
    let mut awk = Command::new("awk").arg(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    awk.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = awk.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}
