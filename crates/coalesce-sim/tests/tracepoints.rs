//! Events of Linux's NVMe driver and of its block layer, as the several tools print them.

mod reading;

use coalesce_sim::trace::{Counts, Format, Moment, Op, Options, Request, Trace};
use reading::{counts, error, of_text, path, steps};

const BY_CPU: Options = Options { format: None, lenient: false, per_cpu: true };

fn requests(text: &str) -> Vec<Request> {
    let of = |moment| if let Moment::Submit { request, .. } = moment { Some(request) } else { None };
    steps(&mut of_text(text, Options::default())).iter().filter_map(|step| of(step.what)).collect()
}

/// ftrace of a guest with an NVMe and a virtio-blk disk, that ran fio, a flush, a discard, and commands of the administrator;
/// what perf and bpftrace said of a guest's NVMe disk, and perf of a disk on a host.
#[test]
fn captures_are_read_whole() {
    for (name, lines, other, commands, resolution, queues) in [
        ("guest-nvme.ftrace", 147, 45, 45, 1000, "nvme0/2 nvme0/0 nvme0/1"),
        ("guest-block.ftrace", 109, 1, 48, 1000, "259,0 0,0 254,0"),
        ("guest-nvme.perf", 80, 0, 40, 1, "nvme0/2"),
        ("guest-nvme.bpftrace", 61, 0, 30, 1, "nvme0/2"),
        ("host-block.perf", 80, 0, 40, 1, "254,0"),
    ] {
        let mut trace = Trace::open(&path(name), Options::default()).unwrap();
        let steps = steps(&mut trace);
        assert_eq!((trace.format(), trace.resolution()), (Some(Format::Tracepoint), resolution), "{name}");
        assert_eq!(trace.queues().join(" "), queues, "{name}");
        assert!(steps.is_sorted_by_key(|step| step.at), "{name}");
        let in_flight_max = trace.counts().in_flight_max;
        let (submissions, completions) = (commands, commands);
        let expected = Counts { lines, other, submissions, completions, in_flight_max, ..Counts::default() };
        assert_eq!(trace.counts(), expected, "{name}");
    }
}

/// perf of Debian 12 knows the driver's format, and not the functions in it.
#[test]
fn fields_as_they_are_recorded_say_the_same() {
    let text = std::fs::read_to_string(path("guest-nvme.perf")).unwrap();
    let found = requests(&text);
    let count = |op| found.iter().filter(|request| request.op == op && !request.durable).count();
    assert_eq!([Op::Read, Op::Write].map(count), [19, 21]);
    let fua = text.replace("00, 00, 07, 00, 00, 00, 00", "00, 00, 07, 00, 00, 40, 00"); // bit 30 of CDW12
    let durable = |request: &Request| request.durable;
    assert_eq!(requests(&fua).into_iter().filter(durable).count(), 21);
    let wrong = |from: &str, to: &str| error(&text.replace(from, to));
    assert!(wrong(" cid=", " id=").contains("has no cid="));
    assert!(wrong("qid=2 ", "qid=x ").contains("qid is \"x\", not a number"));
    assert!(wrong("status=0", "state=0").contains("has no status="));
}

fn setup(time: &str, queue: u32, id: u32, command: &str) -> String {
    format!(
        "fio-155 [001] ..... {time}: nvme_setup_cmd: nvme0: disk=nvme0n1, qid={queue}, cmdid={id}, nsid=1, flags=0x0, meta=0x0, cmd=({command})\n"
    )
}

fn complete(time: &str, queue: u32, id: u32, status: &str) -> String {
    format!(
        "<idle>-0 [001] d.h1. {time}: nvme_complete_rq: nvme0: disk=nvme0n1, qid={queue}, cmdid={id}, res=0x0, retries=0, flags=0x0, status={status}\n"
    )
}

/// Numbers are those of a queue; their upper bits count, and in some kernels only where a command begins.
#[test]
fn commands_match_by_queue_and_number() {
    let text = [
        setup("1.000001", 1, 5, "nvme_cmd_read slba=0, len=7, ctrl=0x0, dsmgmt=0, reftag=0"),
        setup("1.000002", 2, 5, "nvme_cmd_read slba=0, len=7, ctrl=0x0, dsmgmt=0, reftag=0"),
        complete("1.000003", 2, 5, "0x0"),
        setup("1.000004", 2, 4096 + 5, "nvme_cmd_read slba=0, len=7, ctrl=0x0, dsmgmt=0, reftag=0"),
        complete("1.000005", 2, 5, "0x0"),
        complete("1.000006", 1, 5, "0x4002"),
        setup("1.000007", 1, 6, "nvme_cmd_read slba=0, len=7, ctrl=0x0, dsmgmt=0, reftag=0"),
        setup("1.000008", 1, 6, "nvme_cmd_read slba=0, len=7, ctrl=0x0, dsmgmt=0, reftag=0"),
    ];
    let counts = counts(&text.concat());
    assert_eq!((counts.submissions, counts.completions, counts.failed, counts.unmatched), (5, 3, 1, 0));
    assert_eq!((counts.in_flight_max, counts.in_flight_end, counts.resubmitted), (2, 1, 1));
}

#[test]
fn what_a_command_does_is_known() {
    let durable = |op, durable| Request { op, durable, ..Request::default() };
    for (queue, command, expected) in [
        (1, "nvme_cmd_read slba=0, len=7, ctrl=0x4000, dsmgmt=0, reftag=0", durable(Op::Read, false)),
        (1, "nvme_cmd_write slba=0, len=7, ctrl=0x0, dsmgmt=0, reftag=0", durable(Op::Write, false)),
        (1, "nvme_cmd_write slba=0, len=7, ctrl=0x4000, dsmgmt=0, reftag=0", durable(Op::Write, true)),
        (1, "nvme_cmd_flush cdw10=00 00 00 00", durable(Op::Flush, false)),
        (1, "nvme_cmd_flush", durable(Op::Flush, false)),
        (1, "nvme_cmd_dsm nr=0, attributes=4", durable(Op::Other, false)),
        (0, "nvme_admin_identify cns=1, ctrlid=0", durable(Op::Other, false)),
    ] {
        assert_eq!(requests(&setup("1.0", queue, 1, command)), [expected], "{command}");
    }
    let block = |rwbs: &str, priority: &str| {
        requests(&format!("fio 1 [0] 1.000000: block:block_rq_issue: 8,0 {rwbs} 4096 () 8 + 8 {priority}[a (b) c]\n"))
            [0]
    };
    assert_eq!(block("WFS", ""), durable(Op::Write, true));
    assert_eq!(block("FF", ""), durable(Op::Flush, false));
    assert_eq!(block("R", "rt,0,4 "), Request { ioprio: 1 << 13 | 4, ..durable(Op::Read, false) });
    assert_eq!(block("R", "0x2,0,3 "), Request { ioprio: 2 << 13 | 3, ..durable(Op::Read, false) });
    assert_eq!(block("R", "none,0,0 "), durable(Op::Read, false));
}

/// bpftrace prints what its program says: `docs/traces.md` has one.
#[test]
fn bpftrace_prints_ns_and_opcodes() {
    let text = "\
Attaching 2 probes...
[1] 1000000001 nvme_setup_cmd: nvme0: qid=1, cmdid=5, opcode=0x1
[1] 1000000002 nvme_setup_cmd: nvme0: qid=0, cmdid=5, opcode=0x2
Lost 3 events
[0] 1000010003 nvme_complete_rq: nvme0: qid=1, cmdid=5, status=0x0
[0] 1000010004 nvme_complete_rq: nvme0: qid=0, cmdid=5, status=0x0
";
    let mut trace = of_text(text, Options::default());
    let steps = steps(&mut trace);
    assert_eq!(
        steps.iter().map(|step| step.at).collect::<Vec<_>>(),
        [1_000_000_001, 1_000_000_002, 1_000_010_003, 1_000_010_004]
    );
    assert_eq!((trace.resolution(), trace.counts().lost, trace.counts().completions), (1, 3, 2));
    assert_eq!(requests(text).iter().map(|request| request.op).collect::<Vec<_>>(), [Op::Write, Op::Other]);
}

/// With other events, headings, calls, lost events and names with spaces between.
#[test]
fn what_else_is_in_such_a_trace_is_passed_over() {
    let text = "\
version = 6
cpus=2
CPU 0 is empty
          <idle>-0     [001] d.h1.     6.506000: sched_switch: prev_comm=a: b ==> next_comm=x
   Web Content 155     [001]     6.506504:   block:block_rq_issue: 259,0 R 4096 () 7904 + 8 [Web Content]
\tffffffff81a0 blk_mq_start_request+0x1 ([kernel.kallsyms])

CPU:1 [LOST 7 EVENTS]
          <idle>-0     [001] d.h1.     6.506900: block_rq_complete: 259,0 R () 7904 + 8 [0]
           fio-155     [001] d.h1.     6.506900: <stack trace>
 => blk_update_request
";
    let counts = counts(text);
    assert_eq!((counts.submissions, counts.completions, counts.lost), (1, 1, 7));
}

#[test]
fn requests_of_the_block_layer_match_by_device_and_sector() {
    let line = |time: u32, cpu: u32, event: &str| format!("fio-1 [{cpu:03}] ..... 1.{time:06}: block_rq_{event}\n");
    let text = [
        line(1, 0, "issue: 8,0 R 4096 () 8 + 8 [fio]"),
        line(2, 1, "issue: 8,16 R 4096 () 8 + 8 [fio]"),
        line(3, 0, "issue: 8,0 R 252 (12 01 00) 0 + 0 [sg_inq]"),
        line(4, 0, "requeue: 8,0 R () 8 + 8 [0]"),
        line(5, 0, "issue: 8,0 R 4096 () 8 + 8 [fio]"),
        line(6, 1, "complete: 8,0 R () 18446744073709551615 + 1 [0]"),
        line(7, 0, "complete: 8,16 R () 8 + 8 [0]"),
        line(8, 1, "complete: 8,0 R () 8 + 8 [-5]"),
    ];
    let found = counts(&text.concat());
    assert_eq!((found.submissions, found.completions, found.unmatched, found.requeued), (3, 3, 0, 1));
    assert_eq!((found.failed, found.in_flight_end, found.resubmitted), (1, 0, 0));
    let mut trace = of_text(&text.concat(), BY_CPU);
    let queues: Vec<_> = steps(&mut trace).iter().map(|step| step.queue).collect();
    assert_eq!(queues, [0, 1, 0, 0, 1, 0], "a completion belongs to the queue of its submission");
    assert_eq!(trace.queues()[..2], ["8,0 cpu 0", "8,16 cpu 1"]);
}

/// A disk whose ring is full is given a request again. bpftrace wrote this on a host; without that event a request would have
/// been issued twice.
#[test]
fn a_request_that_is_requeued_is_issued_once() {
    let text = std::fs::read_to_string(path("host-block.bpftrace")).unwrap();
    let found = counts(&text);
    assert_eq!((found.submissions, found.completions, found.requeued, found.unmatched), (35, 35, 2, 0));
    assert_eq!((found.in_flight_max, found.in_flight_end, found.out_of_order, found.late), (8, 0, 2, 0));
    let without: String = text.split_inclusive('\n').filter(|line| !line.contains("block_rq_requeue")).collect();
    assert_eq!(counts(&without).in_flight_end, 2);
}

#[test]
fn a_malformed_event_is_named() {
    let good = setup("1.000001", 1, 5, "nvme_cmd_read slba=0, len=7, ctrl=0x0, dsmgmt=0, reftag=0");
    let block = "a-1 [0] . 1.5: block_rq_issue: 8,0 R 4096 () 8 + 8 [x]\n";
    for (first, wrong, says) in [
        (good.as_str(), "hello".to_owned(), "has no `TIME: EVENT:`"),
        (&good, good.replace("qid=1", "qid=x"), "qid is \"x\", not a number"),
        (&good, good.replace("cmdid=5", "id=5"), "has no cmdid="),
        (&good, good.replace("nvme0:", "sda:"), "controller is \"sda\", not nvmeN"),
        (&good, good.replace("1.000001:", "1000001:"), "time is \"1000001\", not SECONDS.DIGITS"),
        (&good, complete("1.0", 1, 5, "0xz"), "status is \"0xz\", not a number"),
        (&good, block.to_owned(), "block_rq_issue beside events of nvme: both are of the same commands"),
        (block, good.clone(), "nvme_setup_cmd beside events of block"),
        (block, block.replace("8,0", "sda"), "device is \"sda\", not MAJOR,MINOR"),
        (block, block.replace("8 + 8", "8 8"), "has \"8\" behind the sector, not +"),
        (block, block.replace("()", ""), "has no (COMMAND)"),
        (block, block.replace("issue", "complete").replace("[x]", "[x"), "ends before the error"),
        (block, block.replace("8 + 8 [x]", "8 + 8"), "ends before who it was"),
    ] {
        let error = error(&format!("{first}{wrong}\n"));
        assert!(error.starts_with("line 2: ") && error.contains(says), "{wrong}: {error}");
    }
    let mut trace = of_text(&block.replace("[0] ", ""), BY_CPU);
    assert!(trace.step().unwrap_err().to_string().contains("names no CPU in square brackets, which --per-cpu needs"));
}
