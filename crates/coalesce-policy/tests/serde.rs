//! A policy, written down and read again: `cargo test -p coalesce-policy --features serde --test serde`
#![cfg(all(feature = "serde", feature = "text"))]

use coalesce_policy::{Aggregation, Spec};

#[test]
fn a_spec_is_its_text_form() {
    for policy in Spec::policies() {
        let spec: Spec = policy.name.parse().unwrap();
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(text, format!("\"{spec}\""));
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
    }
    let wrong = serde_json::from_str::<Spec>("\"vic:epoch=100\"").unwrap_err().to_string();
    assert!(wrong.starts_with("vic: epoch=100 has no unit; write 100ms"), "{wrong}");
}

#[test]
fn what_a_host_sets_is_read_again() {
    let aggregation = Aggregation { thr: 3, time: 2 };
    assert_eq!(serde_json::to_string(&aggregation).unwrap(), r#"{"thr":3,"time":2}"#);
    assert_eq!(serde_json::from_str::<Aggregation>(r#"{"thr":3,"time":2}"#).unwrap(), aggregation);
}
