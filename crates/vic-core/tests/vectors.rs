//! Golden traces in `vectors/`: every language must decide the same. `UPDATE_VECTORS=1` writes them anew.

mod machine;

use coalesce_testkit::{Mix, check_vector};
use machine::Machine;
use serde_json::{Value, json};
use std::path::PathBuf;
use vic_core::Params;

fn to_json(params: &Params) -> Value {
    json!({
        "tick_hz": params.tick_hz,
        "cif_threshold": params.cif_threshold,
        "iops_threshold": params.iops_threshold,
        "epoch_ns": params.epoch_ns,
        "max_skip": params.max_skip,
        "max_hold_ns": params.max_hold_ns,
        "live_clamp": params.live_clamp,
        "margin_ns": params.margin_ns,
    })
}

fn from_json(value: &Value) -> Params {
    let number = |name: &str| value[name].as_u64().expect("a number");
    Params {
        tick_hz: number("tick_hz"),
        cif_threshold: number("cif_threshold").try_into().expect("16 bits"),
        iops_threshold: number("iops_threshold").try_into().expect("32 bits"),
        epoch_ns: number("epoch_ns"),
        max_skip: number("max_skip").try_into().expect("16 bits"),
        max_hold_ns: value["max_hold_ns"].as_u64(),
        live_clamp: value["live_clamp"].as_bool().expect("a switch"),
        margin_ns: number("margin_ns"),
    }
}

fn check(name: &str, configurations: &[Params], mix: &Mix) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name);
    let header = json!({ "machine": "vic", "configurations": configurations.iter().map(to_json).collect::<Vec<_>>() });
    check_vector(&path, &header, mix, &mix.same_ops(400), |header| {
        let configurations = header["configurations"].as_array().expect("a list");
        Machine::new(&configurations.iter().map(from_json).collect::<Vec<_>>())
    });
}

/// 1 µs a tick and epochs of 1 ms, so that a short trace has many.
const FAST: Params = Params { tick_hz: 1_000_000, epoch_ns: 1_000_000, ..Params::DEFAULT };

#[test]
fn paper() {
    let paper = Params { tick_hz: 1_000_000, epoch_ns: 1_000_000, ..Params::PAPER };
    check("vic-paper.jsonl", &[paper], &Mix::new([20, 1000]));
}

#[test]
fn default() {
    let mix = Mix { consumed: true, back: true, ..Mix::new([20, 500, 1000]) };
    check("vic-default.jsonl", &[FAST], &mix);
}

#[test]
fn scheduler() {
    let margin = Params { margin_ns: 50_000, ..FAST };
    check("vic-scheduler.jsonl", &[margin], &Mix { schedule: true, ..Mix::new([20, 200, 1000]) });
}

#[test]
fn reconfigured() {
    let others = [
        FAST,
        Params { cif_threshold: 2, max_hold_ns: None, live_clamp: false, ..FAST },
        Params { iops_threshold: 50_000, max_skip: 4, max_hold_ns: Some(30_000), ..FAST },
        Params { tick_hz: 2_000_000, ..FAST }, // refused
    ];
    check("vic-reconfigured.jsonl", &others, &Mix { configurations: 4, ..Mix::new([20, 30, 500, 1000]) });
}
