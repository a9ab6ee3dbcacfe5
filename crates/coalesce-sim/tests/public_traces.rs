//! Public traces as comma-separated values: MSR Cambridge's and SYSTOR '17's have completions; SPC's, Alibaba's and Tencent's
//! have arrivals, which a replay refuses.

mod reading;

use coalesce_sim::trace::{Format, Moment, Op, Options, Step, Trace};
use reading::{counts, error, of_text, steps};

const MSR: &str = "\
128166372003061629,hm,0,Read,383496192,32768,1130
128166372003062629,hm,1,Write,310983680,4096,20
128166372003061729,src1,0,Read,383528960,4096,50
";

const SYSTOR: &str = "\
Timestamp,Response,IOType,LUN,Offset,Size
1456135200.000013000,0.000806000,R,0,899056122368,131072
1456135200.000015000,0.000100000,W,4,899056122368,4096
1456135200.000016000,,,4,899056122368,4096
";

const SPC: &str = "0,20941264,8192,W,0.551706\n1,3072, 512, r, 0.554041, 7, x\n";
const ALIBABA: &str = "3,R,126703661056,4096,1577808000000046\n4,W,19496058880,77824,1577808000000426\n";
const TENCENT: &str = "1538323200,12910952,128,0,1063\n1538323200,6338688,8,1,1627\n";

fn arrivals(text: &str) -> (Vec<Step>, Trace) {
    let mut trace = of_text(text, Options::default());
    let all = std::iter::from_fn(|| trace.arrival().unwrap()).collect();
    (all, trace)
}

#[test]
fn response_times_are_read() {
    let us = |ns: u64| ns / 1000;
    for (text, format, origin, expected, resolution) in [
        (
            MSR,
            Format::Msr,
            1_172_163_600_306_162_900,
            vec![(0, "hm/0"), (10, "src1/0"), (15, "src1/0"), (100, "hm/1"), (102, "hm/1"), (113, "hm/0")],
            100,
        ),
        (
            SYSTOR,
            Format::Systor,
            1_456_135_200_000_013_000,
            vec![(0, "lun 0"), (2, "lun 4"), (102, "lun 4"), (806, "lun 0")],
            1000,
        ),
    ] {
        let mut trace = of_text(text, Options::default());
        let steps = steps(&mut trace);
        let found = steps.iter().map(|step| (us(step.at - origin), trace.queues()[step.queue].as_str()));
        assert_eq!(found.collect::<Vec<_>>(), expected, "{format:?}");
        assert_eq!((trace.format(), trace.resolution()), (Some(format), resolution));
        assert_eq!((trace.counts().unmatched, trace.counts().in_flight_end, trace.counts().malformed), (0, 0, 0));
    }
    let with_heading = format!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\r\n{MSR}");
    assert_eq!(counts(&with_heading).completions, 3);
    assert_eq!(counts(MSR).out_of_order, 1, "in order of arrival");
    assert_eq!(counts(SYSTOR).other, 2, "the heading, and a request without a response");
}

/// Also with quoted fields, as spreadsheets write them.
#[test]
fn what_a_request_does_is_read() {
    let ops = |text: &str| {
        let (arrivals, _) = arrivals(text);
        let op = |step: &Step| if let Moment::Submit { request, .. } = step.what { Some(request.op) } else { None };
        arrivals.iter().filter_map(op).collect::<Vec<_>>()
    };
    assert_eq!(ops(&MSR.replace("hm", "\"hm\"").replace("Write", "\"Write\"")), [Op::Read, Op::Read, Op::Write]);
    assert_eq!(ops(SYSTOR), [Op::Read, Op::Write, Op::Other]);
    assert_eq!(ops(SPC), [Op::Write, Op::Read]);
    assert_eq!(ops(ALIBABA), [Op::Read, Op::Write]);
    assert_eq!(ops(TENCENT), [Op::Read, Op::Write]);
}

#[test]
fn arrivals_without_completions_are_read_and_not_replayed() {
    for (text, format, times, queues, resolution) in [
        (SPC, Format::Spc, [551_706_000, 554_041_000], ["asu 0", "asu 1"], 1000),
        (
            ALIBABA,
            Format::Alibaba,
            [1_577_808_000_000_046_000, 1_577_808_000_000_426_000],
            ["device 3", "device 4"],
            1000,
        ),
        (TENCENT, Format::Tencent, [1_538_323_200_000_000_000; 2], ["volume 1063", "volume 1627"], 1_000_000_000),
    ] {
        let (arrivals, trace) = arrivals(text);
        assert_eq!(arrivals.iter().map(|step| step.at).collect::<Vec<_>>(), times, "{format:?}");
        assert_eq!((trace.format(), trace.resolution()), (Some(format), resolution));
        assert_eq!(trace.queues(), queues, "{format:?}");
        let refused = error(text);
        let says = format!("its format, {}, says when commands arrived and not when they completed", format.name());
        assert!(refused.starts_with(&says), "{refused}");
        assert!(refused.contains("kind = \"trace\""), "{refused}");
    }
}

/// The arrivals of a trace with completions are its submissions.
#[test]
fn a_trace_of_any_format_has_arrivals() {
    let path = reading::path("guest-nvme.ftrace");
    let mut trace = Trace::open(&path, Options::default()).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| trace.arrival().unwrap()).collect();
    assert_eq!(all.len(), 45);
    assert!(all.is_sorted_by_key(|step| step.at));
}

/// A replay has a state for each queue; arrivals alone have none.
#[test]
fn a_cloud_may_have_many_volumes() {
    let text = |volumes: u64| (0..volumes).map(|id| format!("1538323200,8,8,0,{id}\n")).collect::<String>();
    assert_eq!(arrivals(&text(65_536)).1.queues().len(), 65_536);
    let mut trace = of_text(&text(65_537), Options::default());
    let refused = std::iter::from_fn(|| Some(trace.arrival())).find_map(Result::err).unwrap().to_string();
    assert!(
        refused.contains("line 65537: queue \"volume 65536\" is one more than the 65536 that a trace may have"),
        "{refused}"
    );
}

/// Logs of fio's have numbers between commas, too.
#[test]
fn logs_of_fio_are_not_taken_for_them() {
    for text in ["1538323200, 12910952, 0, 4096, 0\n", "1538323200,12910952,0,4096,0\n", "1000,12910952,1,512,0x4001\n"]
    {
        let mut trace = of_text(text, Options::default());
        steps(&mut trace);
        assert_eq!(trace.format(), Some(Format::Fio), "{text}");
    }
}

#[test]
fn a_malformed_record_is_named() {
    for (good, from, to, says) in [
        (MSR, "Write", "Writes", "type is \"Writes\"; allowed: Read, Write"),
        (MSR, "128166372003062629", "12816637200306262x", "timestamp is \"12816637200306262x\", not a number"),
        (
            MSR,
            "128166372003062629",
            "18446744073709551615",
            "timestamp is \"18446744073709551615\", which is after 2500",
        ),
        (MSR, ",4096,20", ",4096,-1", "responsetime is \"-1\", not a count of 100 ns"),
        (MSR, ",4096,20", "", "has 5 fields, not 7: timestamp,hostname,disknumber,type,offset,size,responsetime"),
        (MSR, ",4096,20", ",,,,,,,,,,,,", "has more than 16 fields"),
        (MSR, "hm,1", "\"hm,1", "has a quotation mark that is not closed"),
        (ALIBABA, ",W,", ",X,", "opcode is \"X\"; allowed: R, W"),
        (ALIBABA, "1577808000000426", "-4", "timestamp is \"-4\", not a count of 1000 ns"),
        (SPC, "r, 0.554041, 7, x", "r, 0:554041", "timestamp is \"0:554041\", not in seconds"),
        (TENCENT, "8,1,1627", "8,2,1627", "iotype is \"2\"; allowed: 0, 1"),
    ] {
        let mut trace = of_text(&good.replace(from, to), Options::default());
        let found = loop {
            match trace.arrival() {
                Ok(step) => assert!(step.is_some(), "{to} is accepted"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(found.starts_with("line 2: ") && found.contains(says), "{to}: {found}");
    }
}
