//! Golden traces in `vectors/`: every language must decide the same. `UPDATE_VECTORS=1` writes them anew.

mod machine;

use cint_core::{Params, StormParams};
use coalesce_testkit::{Mix, check_vector};
use machine::{GROUPS, Machine};
use serde_json::{Value, json};
use std::path::PathBuf;

fn to_json(params: &Params) -> Value {
    json!({
        "tick_hz": params.tick_hz,
        "delta_ns": params.delta_ns,
        "thr": params.thr,
        "ooo": params.ooo,
        "max_hold_ns": params.max_hold_ns,
        "storm_max_rate": params.storm.map(|storm| storm.max_rate),
        "storm_shift": params.storm.map(|storm| storm.shift),
        "in_flight": params.in_flight,
    })
}

fn from_json(value: &Value) -> Params {
    let number = |name: &str| value[name].as_u64().expect("a number");
    Params {
        tick_hz: number("tick_hz"),
        delta_ns: number("delta_ns"),
        thr: number("thr").try_into().expect("16 bits"),
        ooo: value["ooo"].as_bool().expect("a switch"),
        max_hold_ns: value["max_hold_ns"].as_u64(),
        storm: value["storm_max_rate"]
            .as_u64()
            .map(|max_rate| StormParams { max_rate, shift: number("storm_shift").try_into().expect("8 bits") }),
        in_flight: value["in_flight"].as_u64().map(|threshold| threshold.try_into().expect("16 bits")),
    }
}

fn check(name: &str, configurations: &[Params], mix: &Mix) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name);
    let configurations: Vec<_> = configurations.iter().map(to_json).collect();
    // The tracker of strict Barriers: the number of groups, each with a window of 64 commands; 0: Barriers are relaxed.
    let header = json!({ "machine": "cint", "groups": mix.groups, "window": 64, "configurations": configurations });
    check_vector(&path, &header, mix, &mix.same_ops(400), |header| {
        let configurations = header["configurations"].as_array().expect("a list");
        Machine::<1>::new(&configurations.iter().map(from_json).collect::<Vec<_>>(), mix.groups)
    });
}

/// 1 µs a tick.
const OPTANE: Params = Params { tick_hz: 1_000_000, ..Params::OPTANE };
const DEFAULT: Params = Params { tick_hz: 1_000_000, ..Params::DEFAULT };

#[test]
fn paper() {
    check("cint-paper.jsonl", &[OPTANE], &Mix { hints: true, ..Mix::new([1, 6]) });
}

#[test]
fn in_order() {
    check("cint-in-order.jsonl", &[Params { ooo: false, ..OPTANE }], &Mix { hints: true, ..Mix::new([1, 6]) });
}

#[test]
fn default() {
    check("cint-default.jsonl", &[DEFAULT], &Mix { hints: true, back: true, consumed: true, ..Mix::new([1, 6, 100]) });
}

#[test]
fn batch_end() {
    let params = Params { delta_ns: 0, max_hold_ns: None, ..DEFAULT };
    check("cint-batch-end.jsonl", &[params], &Mix { hints: true, batch_end: true, ..Mix::new([1, 6]) });
}

#[test]
fn storm() {
    let params = Params { storm: Some(StormParams { max_rate: 100_000, shift: 5 }), in_flight: None, ..DEFAULT };
    check("cint-storm.jsonl", &[params], &Mix { hints: true, ..Mix::new([0, 1, 10]) });
}

#[test]
fn strict_barriers() {
    check("cint-strict.jsonl", &[DEFAULT], &Mix { hints: true, groups: GROUPS as u8, ..Mix::new([1, 6]) });
}

#[test]
fn reconfigured() {
    let others = [
        DEFAULT,
        Params { delta_ns: 3_000, thr: 4, ooo: false, ..DEFAULT },
        Params { storm: Some(StormParams { max_rate: 50_000, shift: 5 }), in_flight: None, ..DEFAULT },
        Params { tick_hz: 2_000_000, ..DEFAULT }, // refused
    ];
    check("cint-reconfigured.jsonl", &others, &Mix { hints: true, configurations: 4, ..Mix::new([1, 3, 6, 20]) });
}
