//! Golden traces in `vectors/`: every language must decide the same. `UPDATE_VECTORS=1` writes them anew.

mod machine;

use budget_core::{Params, Share, StormParams};
use coalesce_testkit::{Hint, Mix, Op, When, check_vector};
use machine::Machine;
use serde_json::{Value, json};
use std::path::PathBuf;

fn to_json(params: &Params) -> Value {
    json!({
        "tick_hz": params.tick_hz,
        "budget": params.budget.as_basis_points(),
        "max_hold_ns": params.max_hold_ns,
        "thr": params.thr,
        "ooo": params.ooo,
        "storm_max_rate": params.storm.map(|storm| storm.max_rate),
        "storm_shift": params.storm.map(|storm| storm.shift),
    })
}

fn from_json(value: &Value) -> Params {
    let number = |name: &str| value[name].as_u64().expect("a number");
    let narrow = |name: &str| number(name).try_into().expect("16 bits");
    Params {
        tick_hz: number("tick_hz"),
        budget: Share::basis_points(narrow("budget")),
        max_hold_ns: number("max_hold_ns"),
        thr: narrow("thr"),
        ooo: value["ooo"].as_bool().expect("a switch"),
        storm: value["storm_max_rate"]
            .as_u64()
            .map(|max_rate| StormParams { max_rate, shift: number("storm_shift").try_into().expect("8 bits") }),
    }
}

fn check(name: &str, configurations: &[Params], mix: &Mix, ops: &[Op]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name);
    let configurations = configurations.iter().map(to_json).collect::<Vec<_>>();
    let header = json!({ "machine": "budget", "configurations": configurations });
    check_vector(&path, &header, mix, ops, |header| {
        let configurations = header["configurations"].as_array().expect("a list");
        Machine::new(&configurations.iter().map(from_json).collect::<Vec<_>>())
    });
}

/// 1 µs a tick.
const DEFAULT: Params = Params { tick_hz: 1_000_000, ..Params::DEFAULT };
const OOO: Params = Params { ooo: true, ..DEFAULT };

fn check_random(name: &str, configurations: &[Params], mix: &Mix) {
    check(name, configurations, mix, &mix.same_ops(250));
}

fn mix(spans: &[u64]) -> Mix {
    Mix { hints: true, reaping: true, ..Mix::new(spans) }
}

#[test]
fn default() {
    check_random("budget-default.jsonl", &[DEFAULT], &Mix { back: true, consumed: true, ..mix(&[1, 6, 100]) });
}

/// A guest that is slower than its device, and reaps when it waits for us. Probes find how many it submits before.
#[test]
fn busy_guest() {
    let complete = |count| Op::Complete { which: 0, hint: Hint::Plain, count };
    let some = |count| [Op::Advance(25), Op::Submit { group: 0, count }, Op::Advance(2), complete(count)];
    let rest = [Op::Deadline(When::OnTime), Op::Advance(300), Op::Reaping(true), Op::Reaping(false)];
    let round = [[1, 1, 2, 1, 1, 1, 1].map(some).concat(), rest.to_vec()].concat();
    let ops = [vec![Op::Reaping(false)], round.repeat(50)].concat();
    check("budget-busy-guest.jsonl", &[Params { budget: Share::percent(20), ..DEFAULT }], &mix(&[]), &ops);
}

#[test]
fn out_of_order() {
    check_random("budget-ooo.jsonl", &[Params { thr: 4, budget: Share::percent(20), ..OOO }], &mix(&[1, 6, 100]));
}

#[test]
fn storm() {
    let storm = Some(StormParams { max_rate: 10_000, shift: 5 });
    check_random("budget-storm.jsonl", &[Params { storm, ..OOO }], &mix(&[0, 1, 100]));
}

#[test]
fn reconfigured() {
    let others = [
        DEFAULT,
        Params { budget: Share::percent(20), thr: 8, ..OOO },
        Params { storm: Some(StormParams { max_rate: 10_000, shift: 5 }), max_hold_ns: 200_000, ..DEFAULT },
        Params { tick_hz: 2_000_000, ..DEFAULT }, // refused
    ];
    check_random("budget-reconfigured.jsonl", &others, &Mix { configurations: 4, ..mix(&[1, 3, 20, 100]) });
}
