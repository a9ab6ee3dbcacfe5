//! Golden traces in `vectors/`: every language must decide the same. `UPDATE_VECTORS=1` writes them anew.

mod machine;

use budget_core::{Auto, Config, Level, Params, Share, StormParams};
use coalesce_testkit::{
    Completion, Decision, Hint, Mix, Op, Policy, Promises, Tested, When, check_vector, forward, record,
};
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

fn check_machine<P: Tested>(
    [machine, name]: [&str; 2],
    configurations: &[Params],
    mix: &Mix,
    ops: &[Op],
    build: impl Fn(&[Params]) -> P,
) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name);
    let configurations = configurations.iter().map(to_json).collect::<Vec<_>>();
    let header = json!({ "machine": machine, "configurations": configurations });
    check_vector(&path, &header, mix, ops, |header| {
        let configurations = header["configurations"].as_array().expect("a list");
        build(&configurations.iter().map(from_json).collect::<Vec<_>>())
    });
}

fn check(name: &str, configurations: &[Params], mix: &Mix, ops: &[Op]) {
    check_machine(["budget", name], configurations, mix, ops, Machine::new);
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

/// The default policy, of a caller that says nothing of its submissions: what completions say of them is enough, and a trace half as long.
#[derive(Debug)]
struct Regulated {
    auto: Auto,
    configs: Vec<Config>,
}

impl Regulated {
    fn new(choice: &[Params]) -> Self {
        let configs: Vec<_> = choice.iter().map(|&params| Config::new(params).expect("valid")).collect();
        Self { auto: Auto::new(configs[0]), configs }
    }
}

impl Policy for Regulated {
    forward!(self => self.auto; on_completion, deadline, on_deadline, flush, on_consumed, held, on_cancel, reset_tracking);
}

impl Tested for Regulated {
    fn promises(&self) -> Promises {
        Promises { hold_max: self.auto.budget().config().max_hold(), ..Promises::default() }
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        self.auto.reconfigure(self.configs[usize::from(choice)], now).ok()
    }
}

/// The operations of a load whose next completion comes `held` ticks after a hold, and `delivered` ticks after an interrupt.
struct Answering {
    auto: Auto,
    ops: Vec<Op>,
    now: u64,
    is_held: bool,
    left: u8, // in flight after the last completion
}

impl Answering {
    fn new() -> Self {
        let config = Config::new(DEFAULT).expect("valid");
        Self { auto: Auto::new(config), ops: vec![], now: 0, is_held: false, left: 0 }
    }

    /// A completion of one of so many in flight.
    fn complete(&mut self, in_flight: u8, [held, delivered]: [u64; 2]) {
        let ticks = if self.is_held { held } else { delivered };
        self.now += ticks;
        while let Some(deadline) = self.auto.deadline().filter(|deadline| *deadline <= self.now) {
            let _ = self.auto.on_deadline(deadline);
        }
        let completion = Completion::with_cif(in_flight.into());
        self.is_held = !self.auto.on_completion(self.now, &completion).is_deliver();
        self.ops.extend([
            Op::Advance(ticks),
            Op::Submit { group: 0, count: in_flight.saturating_sub(self.left) },
            Op::Complete { which: 0, hint: Hint::Plain, count: 1 },
        ]);
        self.left = in_flight - 1;
    }

    fn check(&self, name: &str, reasons: &[&str]) {
        let mix = Mix::new([]);
        let trace = record(Regulated::new(&[DEFAULT]), &mix, &self.ops);
        let is_there = |reason: &&&str| trace.iter().any(|event| event.reason.as_deref() == Some(**reason));
        let missing: Vec<_> = reasons.iter().filter(|reason| !is_there(reason)).collect();
        assert!(missing.is_empty(), "{name} has no {missing:?}");
        check_machine(["auto", name], &[DEFAULT], &mix, &self.ops, Regulated::new);
    }
}

/// A licence, its suspension when one command is left, and its return with the others.
#[test]
fn a_licence() {
    let mut load = Answering::new();
    while load.auto.budget().level() != Level::Licensed {
        load.complete(2, [10, 30]);
    }
    (0..100).for_each(|_| load.complete(2, [10, 30]));
    while load.auto.budget().level() == Level::Licensed {
        load.complete(1, [600, 100]);
    }
    (0..100).for_each(|_| load.complete(1, [600, 100]));
    (0..420).for_each(|_| load.complete(2, [10, 30]));
    load.check("auto-licence.jsonl", &["company", "probe", "licensed", "count", "silence", "low_cif", "budget"]);
}

/// A hold costs as much as a completion, which are too rare for a licence: trials of the account alone, and its first cut.
#[test]
fn a_cut() {
    let mut load = Answering::new();
    (0..2_000).for_each(|_| load.complete(16, [600, 300]));
    load.check("auto-cut.jsonl", &["company", "slowdown", "budget"]);
}
