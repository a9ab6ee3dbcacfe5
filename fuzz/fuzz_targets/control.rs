//! What people and scripts write to the target. The first byte says what it is: `{` a line on the control socket, `[` a
//! configuration, `/` a request for metrics behind it, anything else a policy behind it.
//!
//! A line gets one line of JSON-RPC as its answer, with its id, unless it has none. Of a configuration that is taken, each
//! disk is the same when it is written for its process and read there; and so is a policy that is written. A request for
//! metrics means the same however its bytes arrive, and its path is a part of them.
#![no_main]

use coalesce_target::config::{Config, DiskConfig};
use coalesce_target::supervision::supervisor::Disks;
use coalesce_target::supervision::{control, metrics};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fn line(line: &[u8]) {
    let id = serde_json::from_slice::<Value>(line).ok().and_then(|request| request.get("id").cloned());
    let (disks, _) = Disks::new().unwrap();
    let Some(answer) = control::answer(line, &disks, true) else { return assert_eq!(id, None) };
    assert!(!answer.to_string().contains('\n'));
    assert_eq!(answer["jsonrpc"], "2.0");
    assert_eq!(answer["id"], id.unwrap_or(Value::Null));
    assert!(answer.get("result").is_some() != answer.get("error").is_some(), "{answer}");
}

fn configuration(text: &str) {
    let Ok(config) = Config::parse(text, "configuration") else { return };
    let _ = config.check();
    for disk in &config.disks {
        let written = serde_json::to_string(disk).unwrap();
        let again: DiskConfig = serde_json::from_str(&written).unwrap();
        assert_eq!(format!("{again:?}"), format!("{disk:?}"));
    }
}

fn policy(text: &str) {
    let Ok(spec) = text.parse::<coalesce_policy::Spec>() else { return };
    assert_eq!(spec.to_string().parse(), Ok(spec));
}

fn request(bytes: &[u8]) {
    let whole = metrics::request_path(bytes);
    if let Ok(Some(path)) = whole {
        assert!(bytes.windows(path.len()).any(|part| part == path.as_bytes()), "{path}");
        assert!(!path.is_empty() && path.bytes().all(|byte| byte > b' '), "{path}");
    }
    let pieces = (0..=bytes.len()).step_by(1 + bytes.len() / 16).map(|len| metrics::request_path(&bytes[..len]));
    if let Some(first) = pieces.into_iter().find(|outcome| *outcome != Ok(None)) {
        assert_eq!(first, whole);
    }
}

fuzz_target!(|bytes: &[u8]| {
    match (bytes.first(), std::str::from_utf8(bytes)) {
        (Some(b'{'), _) => line(bytes),
        (Some(b'['), Ok(text)) => configuration(text),
        (Some(b'/'), _) => request(&bytes[1..]),
        (Some(_), Ok(text)) => policy(text.get(1..).unwrap_or_default()),
        _ => {}
    }
});
