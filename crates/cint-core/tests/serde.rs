//! What is configured, written down and read again: `cargo test -p cint-core --features serde --test serde`
#![cfg(feature = "serde")]

use cint_core::{Params, StormParams, SystemCall};

#[test]
fn what_is_written_is_read_again() {
    let storm = Some(StormParams { max_rate: 100_000, shift: 7 });
    for params in [Params::OPTANE, Params::DEFAULT, Params { storm, ..Params::DEFAULT }] {
        let text = serde_json::to_string(&params).unwrap();
        assert!(text.starts_with(r#"{"tick_hz":1000000000,"delta_ns":6000,"thr":32,"#), "{text}");
        assert_eq!(serde_json::from_str::<Params>(&text).unwrap(), params);
    }
    let call = SystemCall::IoSubmit { last: true };
    assert_eq!(serde_json::to_string(&call).unwrap(), r#"{"io_submit":{"last":true}}"#);
    assert_eq!(serde_json::from_str::<SystemCall>(r#"{"io_submit":{"last":true}}"#).unwrap(), call);
}
