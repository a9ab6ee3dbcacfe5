//! What is configured, written down and read again: `cargo test -p vic-core --features serde --test serde`
#![cfg(feature = "serde")]

use vic_core::{Params, Ratio};

#[test]
fn what_is_written_is_read_again() {
    for params in [Params::PAPER, Params::DEFAULT, Params { margin_ns: 5, ..Params::DEFAULT }] {
        let text = serde_json::to_string(&params).unwrap();
        assert!(text.starts_with(r#"{"tick_hz":1000000000,"cif_threshold":4,"#), "{text}");
        assert_eq!(serde_json::from_str::<Params>(&text).unwrap(), params);
    }
    let ratio = Ratio { count_up: 3, skip_up: 4 };
    assert_eq!(serde_json::from_str::<Ratio>(&serde_json::to_string(&ratio).unwrap()).unwrap(), ratio);
}
