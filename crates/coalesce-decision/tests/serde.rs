//! What policies are told and answer, written down and read again: `cargo test -p coalesce-decision --features serde --test serde`
#![cfg(feature = "serde")]

use coalesce_decision::{
    Barriers, BothBits, Class, Completion, ConfigError, Decision, Event, Field, Hint, HintCounts, HintSource,
    HintSources, HoldReason, Mark, Reason, Share, Spent, StormParams, Submission, Submissions, Ticket,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, expected: &str) {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(text, expected, "{value:?}");
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *value);
}

#[test]
fn what_has_a_name_is_written_by_it() {
    for reason in Reason::ALL {
        check(reason, &format!("\"{}\"", reason.name()));
    }
    for reason in HoldReason::ALL {
        check(reason, &format!("\"{}\"", reason.name()));
    }
    for field in Field::ALL {
        check(field, &format!("\"{}\"", field.name()));
    }
    for source in HintSource::ALL {
        check(&source, &format!("\"{}\"", source.name()));
    }
    for event in [Event::Plain, Event::Barrier, Event::Urgent, Event::Error] {
        check(&event, &format!("\"{}\"", event.name()));
    }
}

#[test]
fn what_is_written_is_read_again() {
    check(&Decision::Deliver(Reason::LowCif), r#"{"deliver":"low_cif"}"#);
    check(&Decision::Hold(HoldReason::Burst), r#"{"hold":"burst"}"#);
    check(&Decision::DeliverUrgent, r#""deliver_urgent""#);
    check(&Hint::Barrier, r#""barrier""#);
    check(&Barriers::Strict, r#""strict""#);
    check(&BothBits::Urgent, r#""urgent""#);
    check(&Submissions::Counted, r#""counted""#);
    check(&Share::percent(5), "500");
    check(&StormParams { max_rate: 9, shift: 7 }, r#"{"max_rate":9,"shift":7}"#);
    check(&Spent { held: 1, outstanding: 2, learning: 3 }, r#"{"held":1,"outstanding":2,"learning":3}"#);
    check(&HintSources::EXPLICIT, "7");
    let mut counts = HintCounts::default();
    counts.count(Some(HintSource::Fua));
    check(&counts, "[0,1,0,0,0,0]");
    check(
        &Field::TickHz.check(1).unwrap_err(),
        r#"{"field":"tick_hz","value":1,"min":1000,"max":10000000000,"because":null}"#,
    );
    let mark = Mark { source: Some(HintSource::Flush), ticket: Some(Ticket::from_number(7)), ..Mark::of(Hint::Urgent) };
    check(
        &Completion { mark, class: Class::Admin, slice_end: Some(4), ..Completion::with_cif(3) },
        r#"{"mark":{"event":"urgent","source":"flush","ticket":7},"cif":3,"outstanding":0,"class":"admin","slice_end":4}"#,
    );
    check(
        &Submission { hint: Hint::Urgent, ..Submission::ALONE },
        r#"{"hint":"urgent","group":0,"flush":false,"durable":false,"ioprio":0,"batch_len":1,"last_of_batch":true,"outstanding":1,"before":0}"#,
    );
}

#[test]
fn an_unknown_name_is_refused() {
    assert!(serde_json::from_str::<Reason>("\"whim\"").is_err());
    assert!(serde_json::from_str::<ConfigError>("{}").is_err());
}
