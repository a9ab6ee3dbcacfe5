//! The keys of each policy: one table serves reading, printing and explaining.

use crate::baseline::{NvmeParams, SpdkVhostParams};
use crate::budget_spec::BudgetSpec;
use crate::cint_spec::CintSpec;
use crate::error::SpecError;
use crate::hint_bits::HintBits;
use crate::hint_spec::HintSpec;
use crate::value::{Malformed, Value, duration, number, percent};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use coalesce_decision::ticks::TICKS_MAX;
use coalesce_decision::{Barriers, HintSource, HintSources, Share};

/// What a key takes.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Number(u64, u64),
    Duration(u64, u64),
    /// In basis points (1/100 %).
    Percent(u64, u64),
    /// A number or `off`.
    NumberOrOff(u64, u64),
    /// A duration or `off`.
    DurationOrOff(u64, u64),
    /// A multiple of 100 µs, as NVMe counts them.
    HundredMicroseconds(u64),
    Choice(&'static [&'static str]),
    /// Words joined by `+`, or `all`, or `none`.
    Words(&'static [&'static str]),
    /// Bits of an NVMe command.
    HintBits,
    /// What some clock allows, and what a clock in nanoseconds allows, which is less, and is what errors name.
    OfClock(&'static Self, &'static Self),
}

const SWITCH: Kind = Kind::Choice(&["on", "off"]);
const OFF: &str = "off";

impl Kind {
    fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Self::NumberOrOff(..) | Self::DurationOrOff(..) if text == OFF => Ok(Value::Word(OFF.into())),
            Self::Number(min, max) | Self::NumberOrOff(min, max) => {
                self.in_range(number(text).map(Value::Number), min..=max, text)
            }
            Self::Duration(min, max) | Self::DurationOrOff(min, max) => {
                self.in_range(duration(text).map(Value::Duration), min..=max, text)
            }
            Self::Percent(min, max) => self.in_range(percent(text).map(Value::Percent), min..=max, text),
            Self::HundredMicroseconds(max) => {
                let value = self.in_range(duration(text).map(Value::Duration), 0..=max, text)?;
                match value {
                    Value::Duration(ns) if ns % 100_000 == 0 => Ok(value),
                    _ => Err(format!("is not a multiple of 100us; allowed: {}", self.allowed())),
                }
            }
            Self::Choice(words) if words.contains(&text) => Ok(Value::Word(text.into())),
            Self::Choice(_) => Err(format!("is unknown; allowed: {}", self.allowed())),
            Self::Words(_) if text == "all" || text == "none" => Ok(Value::Word(text.into())),
            Self::Words(words) => match text.split('+').find(|word| !words.contains(word)) {
                None => Ok(Value::Word(text.into())),
                Some(word) => Err(format!("has an unknown word \"{word}\"; allowed: {}", self.allowed())),
            },
            Self::HintBits => match HintBits::parse(text) {
                Ok(_) => Ok(Value::Word(text.into())),
                Err(problem) => Err(format!("{problem}; allowed: {}", self.allowed())),
            },
            Self::OfClock(some, in_ns) => some.parse(text).or_else(|_| in_ns.parse(text)),
        }
    }

    fn in_range(
        self,
        value: Result<Value, Malformed>,
        range: core::ops::RangeInclusive<u64>,
        text: &str,
    ) -> Result<Value, String> {
        match value {
            Ok(value @ (Value::Number(n) | Value::Duration(n) | Value::Percent(n))) if range.contains(&n) => Ok(value),
            Ok(_) => Err(Malformed::OutOfRange),
            Err(malformed) => Err(malformed),
        }
        .map_err(|malformed| malformed.problem(text, &self.allowed(), |text| self.parse(text).is_ok()))
    }

    fn allowed(self) -> String {
        match self {
            Self::Number(min, max) => format!("{min} to {max}"),
            Self::NumberOrOff(min, max) => format!("{min} to {max}, or off"),
            Self::Duration(min, max) => format!("{} to {}", Value::Duration(min), Value::Duration(max)),
            Self::Percent(min, max) => format!("{} to {}", Value::Percent(min), Value::Percent(max)),
            Self::DurationOrOff(min, max) => {
                format!("{} to {}, or off", Value::Duration(min), Value::Duration(max))
            }
            Self::HundredMicroseconds(max) => format!("0 to {} in steps of 100us", Value::Duration(max)),
            Self::Choice(words) => words.join(", "),
            Self::Words(words) => format!("{} joined by +, or all, or none", words.join(", ")),
            Self::HintBits => HintBits::ALLOWED.into(),
            Self::OfClock(_, in_ns) => in_ns.allowed(),
        }
    }
}

/// One key of the policies with parameters `P`.
pub(crate) struct Key<P> {
    pub(crate) name: &'static str,
    kind: Kind,
    about: &'static str,
    get: fn(&P) -> Value,
    set: fn(&mut P, &Value),
}

impl<P> Key<P> {
    /// Its value.
    pub(crate) fn value(&self, params: &P) -> Value {
        (self.get)(params)
    }
}

/// A key, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyInfo {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// What it takes.
    pub allowed: String,
    /// What it is if it is not given.
    pub default: String,
}

/// A policy with parameters `P`: its name, its named sets of parameters, the default first, and its keys.
pub(crate) struct Family<P: 'static> {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) profiles: &'static [(&'static str, P)],
    pub(crate) keys: &'static [Key<P>],
}

const PROFILE: &str = "profile";

/// The parts of `key=value,key=value`.
pub(crate) fn items(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.into_iter().flat_map(|text| text.split(','))
}

impl<P: Clone> Family<P> {
    /// Reads `key=value,key=value`; `None`: the policy's name stands alone.
    pub(crate) fn parse(&self, text: Option<&str>) -> Result<P, SpecError> {
        let policy = self.name;
        let mut params = self.profiles[0].1.clone();
        let mut seen: Vec<&str> = Vec::new();
        for item in items(text) {
            let Some((key, value)) = item.split_once('=') else {
                return Err(self.no_value(&seen, item));
            };
            if seen.contains(&key) {
                return Err(SpecError::Repeated { policy, key: key.into() });
            }
            let wrong = |problem| SpecError::Value { policy, key: key.into(), value: value.into(), problem };
            if key == PROFILE && self.profiles.len() > 1 {
                if !seen.is_empty() {
                    return Err(wrong("comes too late; it must be the first key, as it sets all others".into()));
                }
                let names: Vec<_> = self.profiles.iter().map(|(name, _)| *name).collect();
                let found = self.profiles.iter().find(|(name, _)| *name == value);
                params = found.ok_or_else(|| wrong(format!("is unknown; allowed: {}", names.join(", "))))?.1.clone();
            } else {
                let found = self.keys.iter().find(|candidate| candidate.name == key);
                let found =
                    found.ok_or_else(|| SpecError::Key { policy, key: key.into(), allowed: self.key_names() })?;
                (found.set)(&mut params, &found.kind.parse(value).map_err(wrong)?);
            }
            seen.push(key);
        }
        Ok(params)
    }

    /// An item without a value, after items with the keys `seen`: a comma may stand for the `+` between words.
    fn no_value(&self, seen: &[&str], item: &str) -> SpecError {
        let policy = self.name;
        let last = seen.last().and_then(|last| self.keys.iter().find(|key| key.name == *last));
        match last.map(|key| (key.name, key.kind)) {
            Some((key, kind @ Kind::Words(_))) if kind.parse(item).is_ok() => {
                let problem = format!("comes after a comma; allowed: {}", kind.allowed());
                SpecError::Value { policy, key: key.into(), value: item.into(), problem }
            }
            _ => SpecError::NoValue { policy, item: item.into() },
        }
    }

    /// Prints what differs from the profile that `params` is nearest to.
    pub(crate) fn print(&self, params: &P) -> String {
        let differences = |profile: &P| -> Vec<String> {
            let differs = |key: &&Key<P>| key.value(params) != key.value(profile);
            self.keys.iter().filter(differs).map(|key| format!("{}={}", key.name, key.value(params))).collect()
        };
        let items = self
            .profiles
            .iter()
            .enumerate()
            .map(|(i, (name, profile))| {
                let named = (i > 0).then(|| format!("{PROFILE}={name}"));
                named.into_iter().chain(differences(profile)).collect::<Vec<_>>()
            })
            .min_by_key(Vec::len)
            .unwrap_or_default();
        if items.is_empty() { self.name.into() } else { format!("{}:{}", self.name, items.join(",")) }
    }

    pub(crate) fn explain(&self) -> Vec<KeyInfo> {
        let names: Vec<_> = self.profiles.iter().map(|(name, _)| *name).collect();
        let profile = (names.len() > 1).then(|| KeyInfo {
            name: PROFILE,
            about: "a named set of parameters; must come first",
            allowed: names.join(", "),
            default: names[0].into(),
        });
        let keys = self.keys.iter().map(|key| KeyInfo {
            name: key.name,
            about: key.about,
            allowed: key.kind.allowed(),
            default: key.value(&self.profiles[0].1).to_string(),
        });
        profile.into_iter().chain(keys).collect()
    }

    fn key_names(&self) -> String {
        let names: Vec<_> = self.explain().iter().map(|key| key.name).collect();
        names.join(", ")
    }
}

// Values of valid kinds, as the tables need them.

fn num(value: &Value) -> u64 {
    match value {
        Value::Number(n) | Value::Duration(n) | Value::Percent(n) => *n,
        Value::Word(_) => 0,
    }
}

fn optional(value: &Value) -> Option<u64> {
    match value {
        Value::Number(n) | Value::Duration(n) | Value::Percent(n) => Some(*n),
        Value::Word(_) => None,
    }
}

fn narrow<T: TryFrom<u64>>(value: &Value) -> T {
    T::try_from(num(value)).unwrap_or_else(|_| unreachable!("the table's range fits the type"))
}

fn is(value: &Value, word: &str) -> bool {
    matches!(value, Value::Word(w) if w == word)
}

fn off_or(value: Option<Value>) -> Value {
    value.unwrap_or_else(|| Value::Word(OFF.into()))
}

fn switch(on: bool) -> Value {
    Value::Word(if on { "on" } else { OFF }.into())
}

const fn ns(field: (u64, u64)) -> Kind {
    Kind::Duration(field.0, field.1)
}

const fn ns_or_off(field: (u64, u64)) -> Kind {
    Kind::DurationOrOff(field.0, field.1)
}

const fn count(field: (u64, u64)) -> Kind {
    Kind::Number(field.0, field.1)
}

const fn count_or_off(field: (u64, u64)) -> Kind {
    Kind::NumberOrOff(field.0, field.1)
}

/// A policy without parameters.
pub(crate) const fn plain(name: &'static str, about: &'static str) -> Family<()> {
    Family { name, about, profiles: &[("default", ())], keys: &[] }
}

pub(crate) const NVME: &Family<NvmeParams> = &Family {
    name: "nvme",
    about: "NVMe Features 08h and 09h: an interrupt after thr + 1 completions, or after time since the first of them",
    profiles: &[("default", NvmeParams { thr: 7, time: 1, vector: true, host: false })],
    keys: &[
        Key {
            name: "thr",
            kind: Kind::Number(0, 255),
            about: "Aggregation Threshold, 0's based: 7 means 8 completions; 0: no coalescing",
            get: |p| Value::Number(p.thr.into()),
            set: |p, v| p.thr = narrow(v),
        },
        Key {
            name: "time",
            kind: Kind::HundredMicroseconds(25_500_000),
            about: "Aggregation Time; 0: no coalescing",
            get: |p| Value::Duration(u64::from(p.time) * 100_000),
            set: |p, v| p.time = narrow(&Value::Number(num(v) / 100_000)),
        },
        Key {
            name: "vector",
            kind: SWITCH,
            about: "off: this vector does not coalesce (Feature 09h)",
            get: |p| switch(p.vector),
            set: |p, v| p.vector = is(v, "on"),
        },
        Key {
            name: "host",
            kind: SWITCH,
            about: "on: the host decides about thr and time, with Set Features 08h; both are 0 until it does (NVMe disks)",
            get: |p| switch(p.host),
            set: |p, v| p.host = is(v, "on"),
        },
    ],
};

pub(crate) const SPDK_VHOST: &Family<SpdkVhostParams> = &Family {
    name: "spdk_vhost",
    about: "SPDK's vhost_controller_set_coalescing: a delay that grows with the rate, up to 60 s",
    profiles: &[("default", SpdkVhostParams { delay_base_us: 50, iops_threshold: 60_000 })],
    keys: &[
        Key {
            name: "delay_base_us",
            kind: Kind::Number(0, SpdkVhostParams::DELAY_MAX_US as u64),
            about: "base delay, in us; 0: no coalescing",
            get: |p| Value::Number(p.delay_base_us.into()),
            set: |p, v| p.delay_base_us = narrow(v),
        },
        Key {
            name: "iops_threshold",
            kind: Kind::Number(100, u32::MAX as u64),
            about: "completions per second above which interrupts are delayed",
            get: |p| Value::Number(p.iops_threshold.into()),
            set: |p, v| p.iops_threshold = narrow(v),
        },
    ],
};

pub(crate) const VIC: &Family<vic_core::Params> = &Family {
    name: "vic",
    about: "vIC (USENIX ATC 2011): a delivery ratio from commands in flight and completion rate",
    profiles: &[("default", vic_core::Params::DEFAULT), ("paper", vic_core::Params::PAPER)],
    keys: &[
        Key {
            name: "cif_threshold",
            kind: count(vic_core::Field::CifThreshold.range()),
            about: "commands in flight below which every completion interrupts",
            get: |p| Value::Number(p.cif_threshold.into()),
            set: |p, v| p.cif_threshold = narrow(v),
        },
        Key {
            name: "iops_threshold",
            kind: Kind::Number(0, u32::MAX as u64),
            about: "completions per second below which every completion interrupts; 0: no threshold",
            get: |p| Value::Number(p.iops_threshold.into()),
            set: |p, v| p.iops_threshold = narrow(v),
        },
        Key {
            name: "epoch",
            kind: ns(vic_core::Field::Epoch.range()),
            about: "interval at which the delivery ratio is recomputed",
            get: |p| Value::Duration(p.epoch_ns),
            set: |p, v| p.epoch_ns = num(v),
        },
        Key {
            name: "max_skip",
            kind: count(vic_core::Field::MaxSkip.range()),
            about: "lowest delivery ratio: one interrupt per max_skip completions",
            get: |p| Value::Number(p.max_skip.into()),
            set: |p, v| p.max_skip = narrow(v),
        },
        Key {
            name: "max_hold",
            kind: ns_or_off(vic_core::Field::MaxHold.range()),
            about: "longest time that a completion may be held; off: no bound",
            get: |p| off_or(p.max_hold_ns.map(Value::Duration)),
            set: |p, v| p.max_hold_ns = optional(v),
        },
        Key {
            name: "live_clamp",
            kind: SWITCH,
            about: "hold no more than the commands in flight now allow, not only those at the start of the epoch",
            get: |p| switch(p.live_clamp),
            set: |p, v| p.live_clamp = is(v, "on"),
        },
        Key {
            name: "margin",
            kind: ns(vic_core::Field::Margin.range()),
            about: "scheduler awareness: how much earlier to deliver before the end of a time slice",
            get: |p| Value::Duration(p.margin_ns),
            set: |p, v| p.margin_ns = num(v),
        },
    ],
};

const SOURCE_NAMES: &[&str] = &["flush", "fua", "ioprio", "batch", "single", "idle"];

fn sources(sources: HintSources) -> Value {
    let words: Vec<_> = HintSource::ALL.iter().filter(|s| sources.has(**s)).map(|s| s.name()).collect();
    Value::Word(match words.len() {
        0 => "none".into(),
        n if n == HintSource::ALL.len() => "all".into(),
        _ => words.join("+"),
    })
}

fn to_sources(value: &Value) -> HintSources {
    match value {
        Value::Word(all) if all == "all" => HintSources::ALL,
        Value::Word(words) => {
            let named = HintSource::ALL.iter().filter(|source| words.split('+').any(|word| word == source.name()));
            named.fold(HintSources::NONE, |set, source| set.with(*source))
        }
        _ => HintSources::NONE,
    }
}

/// The parameters of a policy that decides by hints.
pub(crate) trait HasHints {
    fn hints(&self) -> &HintSpec;
    fn hints_mut(&mut self) -> &mut HintSpec;
}

impl HasHints for CintSpec {
    fn hints(&self) -> &HintSpec {
        &self.hints
    }

    fn hints_mut(&mut self) -> &mut HintSpec {
        &mut self.hints
    }
}

impl HasHints for BudgetSpec {
    fn hints(&self) -> &HintSpec {
        &self.hints
    }

    fn hints_mut(&mut self) -> &mut HintSpec {
        &mut self.hints
    }
}

const MAX_HOLD: (u64, u64) = cint_core::Field::MaxHold.range();

const fn ooo<P: HasHints>() -> Key<P> {
    Key {
        name: "ooo",
        kind: SWITCH,
        about: "on: an urgent completion interrupts alone, out of order, and held ones stay held",
        get: |p| switch(p.hints().ooo),
        set: |p, v| p.hints_mut().ooo = is(v, "on"),
    }
}

const fn barrier<P: HasHints>() -> Key<P> {
    Key {
        name: "barrier",
        kind: Kind::Choice(&["relaxed", "strict"]),
        about: "relaxed: a barrier interrupts when it completes; strict: when all commands of its batch have completed",
        get: |p| Value::Word(if p.hints().barrier == Barriers::Strict { "strict" } else { "relaxed" }.into()),
        set: |p, v| p.hints_mut().barrier = if is(v, "strict") { Barriers::Strict } else { Barriers::Relaxed },
    }
}

const fn storm<P: HasHints>() -> Key<P> {
    Key {
        name: "storm",
        kind: Kind::OfClock(
            const { &count_or_off(cint_core::Field::StormMaxRate.range()) },
            const { &count_or_off((8, 200_000_000)) },
        ),
        about: "storm guard: rate limit, in interrupts per second; off: no limit",
        get: |p| off_or(p.hints().storm_max_rate.map(Value::Number)),
        set: |p, v| p.hints_mut().storm_max_rate = optional(v),
    }
}

const fn storm_shift<P: HasHints>() -> Key<P> {
    Key {
        name: "storm_shift",
        kind: count(cint_core::Field::StormShift.range()),
        about: "storm guard: an interval between interrupts weighs 2^-storm_shift in their moving average",
        get: |p| Value::Number(p.hints().storm_shift.into()),
        set: |p, v| p.hints_mut().storm_shift = narrow(v),
    }
}

const fn hints<P: HasHints>() -> Key<P> {
    Key {
        name: "hints",
        kind: Kind::Words(SOURCE_NAMES),
        about: "sources from which a target may infer hints",
        get: |p| sources(p.hints().sources),
        set: |p, v| p.hints_mut().sources = to_sources(v),
    }
}

const fn bits<P: HasHints>() -> Key<P> {
    Key {
        name: "bits",
        kind: Kind::HintBits,
        about: "NVMe: two bits of a command, where its requester says Urgent and Barrier",
        get: |p| Value::Word(p.hints().bits.to_string()),
        set: |p, v| p.hints_mut().bits = HintBits::parse(&v.to_string()).unwrap_or(HintBits::DEFAULT),
    }
}

pub(crate) const CINT: &Family<CintSpec> = &Family {
    name: "cint",
    about: "cinterrupts (ACM TOS 2022): hints of the requester, and burst detection for all other completions",
    profiles: &[("default", CintSpec::DEFAULT), ("optane", CintSpec::OPTANE), ("p3700", CintSpec::P3700)],
    keys: &[
        Key {
            name: "delta",
            kind: ns(cint_core::Field::Delta.range()),
            about: "time without a completion that ends a burst; 0: the end of the device's poll ends it",
            get: |p| Value::Duration(p.delta_ns),
            set: |p, v| p.delta_ns = num(v),
        },
        Key {
            name: "thr",
            kind: count(cint_core::Field::Thr.range()),
            about: "number of completions that ends a burst",
            get: |p| Value::Number(p.thr.into()),
            set: |p, v| p.thr = narrow(v),
        },
        ooo(),
        barrier(),
        Key {
            name: "max_hold",
            kind: Kind::OfClock(const { &ns_or_off(MAX_HOLD) }, const { &ns_or_off((MAX_HOLD.0, TICKS_MAX)) }),
            about: "longest time that a completion may be held, at most 500 million ticks; off: (thr - 1) * delta",
            get: |p| off_or(p.max_hold_ns.map(Value::Duration)),
            set: |p, v| p.max_hold_ns = optional(v),
        },
        storm(),
        storm_shift(),
        Key {
            name: "in_flight",
            kind: count_or_off(cint_core::Field::InFlight.range()),
            about: "with fewer commands in flight every completion interrupts; to hold n > 1 of them, 2 * n * in_flight must be in flight",
            get: |p| off_or(p.in_flight.map(|threshold| Value::Number(threshold.into()))),
            set: |p, v| p.in_flight = optional(v).map(|n| narrow(&Value::Number(n))),
        },
        hints(),
        bits(),
    ],
};

const BUDGET_KEYS: &[Key<BudgetSpec>] = &[
    Key {
        name: "budget",
        kind: Kind::Percent(budget_core::Field::Budget.range().0, budget_core::Field::Budget.range().1),
        about: "the share that waiting for company may add to the time that requests spend",
        get: |p| Value::Percent(p.budget.as_basis_points().into()),
        set: |p, v| p.budget = Share::basis_points(narrow(v)),
    },
    Key {
        name: "max_hold",
        kind: Kind::OfClock(const { &ns(MAX_HOLD) }, const { &ns((MAX_HOLD.0, TICKS_MAX)) }),
        about: "longest time that a completion may be held, at most 500 million ticks",
        get: |p| Value::Duration(p.max_hold_ns),
        set: |p, v| p.max_hold_ns = num(v),
    },
    Key {
        name: "thr",
        kind: count(budget_core::Field::Thr.range()),
        about: "number of completions that interrupts, whatever the budget has left",
        get: |p| Value::Number(p.thr.into()),
        set: |p, v| p.thr = narrow(v),
    },
    ooo(),
    barrier(),
    storm(),
    storm_shift(),
    hints(),
    bits(),
];

pub(crate) const AUTO: &Family<BudgetSpec> = &Family {
    name: "auto",
    about: "the default: waiting for company adds at most 5 % to the time your requests take, and more only while trials show that it makes them faster, taken together; a request that is marked urgent or is alone does not wait, and no wait is longer than max_hold",
    profiles: &[("default", BudgetSpec::AUTO)],
    keys: BUDGET_KEYS,
};

pub(crate) const BUDGET: &Family<BudgetSpec> = &Family {
    name: "budget",
    about: "auto without regulator and without hints from flush, FUA and I/O priority: the core as firmware has it",
    profiles: &[("default", BudgetSpec::DEFAULT)],
    keys: BUDGET_KEYS,
};
