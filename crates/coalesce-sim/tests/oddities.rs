//! What recorders print that is not quite their format is read for what it says, or refused for what it is.

mod reading;

use coalesce_sim::trace::{Moment, Op, Options, Trace};
use reading::{counts, error, of_text, path, steps};

/// From submission to completion, in µs, on which queue; in order of completion.
fn latencies(text: &str) -> Vec<(u64, String)> {
    let mut trace = of_text(text, Options::default());
    let (mut found, mut submitted) = (Vec::new(), std::collections::HashMap::new());
    for step in steps(&mut trace) {
        match step.what {
            Moment::Submit { .. } => {
                submitted.insert(step.slot, step.at);
            }
            Moment::Complete { .. } => {
                found.push(((step.at - submitted[&step.slot]) / 1000, trace.queues()[step.queue].clone()));
            }
            Moment::Lost => panic!("{step:?}"),
        }
    }
    found
}

/// Its size, in bytes, stands where others have the sector, and is missing when it completes.
#[test]
fn a_passthrough_command_is_matched_although_it_has_no_sector() {
    let text = "\
254,0    1        1     0.000310545   157  D  RS 56 + 8 [dd]
254,0    1        2     0.000400000   158  D   R 20 [cat]
254,0    1        3     0.000500000   158  D   R 252 (12 01 00 00 fc 00 ..) [sg_inq]
254,0    1        4     0.000600440   157  C  RS 56 + 8 [0]
254,0    1        5     0.035147175   158  C   R [0]
254,0    1        6     0.036147175   158  C   R (12 01 00 00 fc 00 ..) [0]
254,0    1        7     0.040000000   159  D  RS 0 + 8 [dd]
254,0    1        8     0.041000000   159  D   R 8 [cat]
254,0    1        9     0.042000000   159  C  RS 0 + 8 [0]
";
    let counts = counts(text);
    assert_eq!((counts.submissions, counts.completions, counts.unmatched, counts.in_flight_end), (5, 4, 0, 1));
    let slots: Vec<_> = steps(&mut of_text(text, Options::default())).iter().map(|step| step.slot.unwrap()).collect();
    assert_eq!(slots[8], slots[6], "that of sector 0 completes, not the one without a sector");
}

/// The block layer makes a flush of a write without data that asks for one, and ends both.
#[test]
fn a_request_that_asked_for_a_flush_does_not_complete_twice() {
    let text = "\
254,0    1      234     0.439848261   136  D  FN [kworker/1:1H]
254,0    1      244     0.467317918   154  C  FN 0 [0]
254,0    1      245     0.467703887   154  C  WS 0 [0]
";
    let counts = counts(text);
    assert_eq!((counts.completions, counts.unmatched, counts.other), (1, 0, 1));
}

const DM: &str = "\
253,0   0        1     0.000010000  4711  Q   R 100000 + 8 [fio]
253,0   1        2     0.000020000  4711  Q   W 100008 + 8 [fio]
253,0   0        3     0.000090000  4711  C   R 100000 + 8 [0]
253,0   0        4     0.000100000  4711  C   W 100008 + 8 [0]
253,0   1        5     0.000110000  4711  Q   R 100016 + 8 [fio]
253,0   1        6     0.000180000  4711  C   R 100016 + 8 [0]
";

/// A dm or md device has no requests, so no D: it is given what is queued.
#[test]
fn a_device_of_devices_is_replayed_from_its_queueing() {
    let found = counts(DM);
    assert_eq!((found.queued, found.submissions, found.completions, found.other), (3, 3, 3, 0));
    assert_eq!((found.unmatched, found.in_flight_max, found.in_flight_end), (0, 2, 0));
    assert_eq!(latencies(DM).iter().map(|(us, _)| *us).collect::<Vec<_>>(), [80, 80, 70]);
    let mut trace = of_text(DM, Options { per_cpu: true, ..Options::default() });
    assert_eq!(steps(&mut trace).iter().map(|step| step.queue).collect::<Vec<_>>(), [0, 1, 0, 1, 1, 1]);
    let first = "253,0   0        0     0.000001000  4711  C   R 4 + 8 [0]\n"; // it was in flight before the trace
    assert_eq!(counts(&(first.to_owned() + DM)).queued, 3);
    let issued = "253,0   0        0     0.000001000  4711  D   R 4 + 8 [fio]\n";
    assert_eq!(counts(&(issued.to_owned() + DM)).queued, 0, "a device with D is given what is issued");
    let allocated = "253,0   0        0     0.000001000  4711  G   R 4 + 8 [fio]\n";
    assert_eq!(counts(&(allocated.to_owned() + DM)).queued, 0, "a device with requests is given what is issued");
}

/// Where the devices below are in the trace, only theirs count.
#[test]
fn a_device_above_one_that_is_traced_does_not_count_again() {
    let below = "\
259,0   0        7     0.000012000  4711  A   R 100 + 8 <- (253,0) 100000
259,0   0        8     0.000013000  4711  Q   R 100 + 8 [fio]
259,0   0        9     0.000014000  4711  G   R 100 + 8 [fio]
259,0   0       10     0.000015000  4711  D   R 100 + 8 [fio]
259,0   0       11     0.000085000  4711  C   R 100 + 8 [0]
";
    let (queued, rest) = DM.split_at(DM.find('\n').unwrap() + 1);
    let text = [queued, below, rest].concat();
    assert_eq!(latencies(&text), [(70, "259,0".to_owned())]);
    assert_eq!((counts(&text).unmatched, counts(&text).queued), (0, 0));
}

#[test]
fn devices_whose_commands_are_remembered_are_bounded() {
    let line = |minor: usize| format!("253,{minor} 0 1 0.1 1 Q R 8 + 8 [x]\n");
    let text = |devices| (0..devices).map(line).collect::<String>();
    assert_eq!(error(&text(1024)), "");
    assert!(error(&text(1025)).contains("line 1025: device is one more than the 1024 that a trace may have"));
}

/// bcc prints no space after BYTES, and no letter for a disk's first command.
#[test]
fn columns_without_a_space_between_are_taken_apart() {
    let text = "\
TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  P LAT(ms)
1.000100    fio            1234    nvme0n1   R 980324869  4096        0.64
1.001200    fio            1234    nvme0n1   W 957250401  1048576S    0.15
1.002300    my prog        1234    sda       R 148945737  1048576R    0.10
1.003400    fio            1234    nvme0n1   R 837417235  4096   R    0.05
";
    let on = |us, queue: &str| (us, queue.to_owned());
    assert_eq!(latencies(text), [on(640, "nvme0n1"), on(150, "nvme0n1"), on(100, "sda"), on(50, "nvme0n1")]);
    let kinds: Vec<_> = steps(&mut of_text(text, Options::default()))
        .iter()
        .filter_map(|step| if let Moment::Submit { request, .. } = step.what { Some(request.op) } else { None })
        .collect();
    assert_eq!(kinds, [Op::Read, Op::Write, Op::Read, Op::Read]);

    let text = "\
TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)
19.000000   fio            1234    sda       R 980324869  1048576 999.99
19.100000   fio            1234    sda       R 980324869  10485761234.56
19.200000   web server     1234    sda       R 980324869  4194304012345.67
19.300000   fio            1234    sda       R 980324869  4096   1000.00
";
    assert_eq!(
        latencies(text).iter().map(|(us, _)| *us).collect::<Vec<_>>(),
        [999_990, 1_234_560, 12_345_670, 1_000_000]
    );

    let queued = "\
TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)
19.100000   fio            1234    sda       R 980324869  10485761234.56    0.10
";
    assert_eq!(latencies(queued), [on(100, "sda")]);
}

#[test]
fn a_command_without_a_name_is_one() {
    let text = "\
TIME(s)     COMM           PID     DISK    T    SECTOR     BYTES   LAT(ms)
1.000000    fio            150     vda     R    354752     4096      0.100
1.000787                   150     vdb     WS   221328     4096      0.200
";
    assert_eq!(latencies(text), [(100, "vda".to_owned()), (200, "vdb".to_owned())]);
    let no_disk = text.replace("vdb", "   ").replace("               150", "fio            150");
    assert!(error(&no_disk).contains("line 3: has 7 fields, the heading has 8"), "{}", error(&no_disk));
}

/// biosnoop's clock begins with the first completion.
#[test]
fn what_was_submitted_before_the_clock_began_keeps_its_latency() {
    let text = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n\
                0.000000 fio 1 sda R 8 4096 0.241\n0.000100 fio 1 sda R 16 4096 0.441\n";
    let steps = steps(&mut of_text(text, Options::default()));
    let first = steps[0].at;
    assert_eq!(steps.iter().map(|step| step.at - first).collect::<Vec<_>>(), [0, 100_000, 341_000, 441_000]);
}

/// With -t, biosnoop prints the time of day: that of libbpf's tools to ms, bcc's with the date.
#[test]
fn times_of_day_are_times() {
    let libbpf = "\
TIMESTAMP    COMM           PID     DISK    T    SECTOR     BYTES   LAT(ms)
23:59:59.814 mount          163467  sde     WSM  41944043   524288    1.422
23:59:59.814 mount          163467  sde     WSM  41945067   524288  250.000
00:00:00.500 my prog        163467  sde     R    41946091   524288    1.749
23:59:59.900 mount          163467  sde     R    41946091   524288    0.100
";
    let us = |trace: &[(u64, String)]| trace.iter().map(|(us, _)| *us).collect::<Vec<_>>();
    assert_eq!(us(&latencies(libbpf)), [1422, 250_000, 100, 1749]);
    let bcc = "\
TIME                       COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)
2026-06-25 09:57:11.309563 bash           1991698 sdb       R 903685432  16384     0.24
2026-06-25 09:57:11.311472 my tar         1991698 sdb       R 903685464  516096    1.36
";
    let mut trace = of_text(bcc, Options::default());
    let at: Vec<_> = steps(&mut trace).iter().map(|step| step.at % 1_000_000_000 / 1000).collect();
    assert_eq!((at, trace.resolution()), (vec![309_323, 309_563, 310_112, 311_472], 1000));
    assert!(
        error(&libbpf.replace("00:00:00.5", "24:00:00.5")).contains("line 4: time is \"24:00:00.500\", not HH:MM:SS")
    );
}

/// bpftrace names a disk by two numbers.
#[test]
fn disks_of_one_major_number_are_several() {
    let text = "\
Attached 4 probes
TIME(ms)     DISK ID        COMM             PID    LAT(ms)
             MAJOR MINOR
100          8     0        fio              123          3
101          8     16       a b              123          3
102          8     32                        123          3
103          8     0        fio              123          3
";
    let mut trace = of_text(text, Options::default());
    assert_eq!((steps(&mut trace).len(), trace.queues().join(" ").as_str()), (8, "8,0 8,16 8,32"));
}

#[test]
fn what_a_recorder_lost_is_counted() {
    let bcc = "\
TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)
1.000100    fio            1234    nvme0n1   R 980324869  4096      0.64
Possibly lost 12 samples
1.000200    fio            1234    nvme0n1   R 980324869  4096      0.64
lost 30 events on CPU #1
";
    let counts = counts(bcc);
    assert_eq!((counts.lost, counts.completions, counts.malformed), (42, 2, 0));
}

/// As Windows' tools write it.
#[test]
fn a_byte_order_mark_is_no_text() {
    let record =
        "{\"time_ns\":10,\"event\":\"submit\",\"id\":1}\r\n{\"time_ns\":20,\"event\":\"complete\",\"id\":1}\r\n";
    assert_eq!(counts(&format!("\u{feff}{record}")), counts(record));
    assert_eq!(counts(record).completions, 1);
}

#[test]
fn logs_of_fio_that_are_no_latencies_are_refused() {
    let averages = "91, 2439586, 0, 0, 0\n91, 2442141, 1, 0, 0\n";
    assert!(error(averages).contains("line 1: block size is 0: an average (log_avg_msec)"), "{}", error(averages));
    let iops = "0, 1, 0, 4096, 0\n0, 1, 0, 4096, 0\n";
    assert!(error(iops).contains("line 1: value is 1, a rate and not a latency"), "{}", error(iops));
    for (name, says) in [
        ("job_bw.1.log", "fio's bw log has bandwidths in KiB/s; replay the clat log"),
        ("job_iops.log", "fio's iops log has rates; replay the clat log"),
        ("job_slat.2.log", "slat is the time that fio takes to submit; replay the clat log"),
    ] {
        let refused = Trace::open(&path(name), Options::default()).map(drop).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
}
