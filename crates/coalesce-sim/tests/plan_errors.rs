//! What a wrong plan is told: the line, what is wrong, and what is allowed.

use coalesce_sim::plan::Plan;

const GOOD: &str = r#"
name = "good"
duration = "10ms"
policies = ["none", "cint:delta={delta}"]

[machine]
clock = "2GHz"

[device]
channels = 4
service = { lognormal = { mean = "10us", stddev = "3us" } }

[[threads]]
name = "sync"
kind = "sync"

[[threads]]
name = "async"
kind = "async"
depth = 32
batch = 4

[sweep]
delta = ["5us", "10us"]
"threads.async.depth" = [8, 16]
"#;

/// The good plan with `old` replaced: line and message.
fn error(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old}");
    Plan::parse("plan.toml", &GOOD.replacen(old, new, 1)).unwrap_err().to_string()
}

#[test]
fn a_good_plan_is_read() {
    let plan = Plan::parse("plan.toml", GOOD).unwrap();
    assert_eq!(plan.points().unwrap().len(), 4);
}

#[test]
fn stolen_time_is_for_cpus_that_share_no_core() {
    let steal = |cores| {
        let steal = format!("cores = {cores}\nsteal = {{ every = \"1ms\", from = \"1ms\", to = \"1ms\" }}");
        let plan = GOOD.replace("clock = \"2GHz\"", &steal).replace("batch = 4", "batch = 4\ncpu = 1");
        Plan::parse("plan.toml", &plan).map_err(|error| error.to_string())
    };
    assert!(steal(0).is_ok() && steal(2).is_ok());
    let text = "plan.toml:8: machine.steal: is for CPUs with a core each; cores is 1; allowed: 0, or 2 and more";
    assert_eq!(steal(1).unwrap_err(), text);
}

/// The messages, as `plan_errors.txt` has them.
#[test]
fn messages() {
    let cases = [
        ("duration", "durration"),
        ("\"10ms\"", "\"10 ms\""),
        ("\"10ms\"", "10"),
        ("\"10ms\"", "\"0s\""),
        ("\"2GHz\"", "\"2us\""),
        ("\"2GHz\"", "\"1kHz\""),
        ("clock", "clok"),
        ("\"none\"", "\"nne\""),
        ("\"none\", \"cint:delta={delta}\"", "\"none\""),
        ("[device]\n", "[device]\npreset = \"p3701\"\n"),
        ("[[threads]]\n", "[[thread]]\n"),
        ("channels = 4", "channels = 0"),
        ("channels = 4\n", ""),
        ("lognormal", "gauss"),
        ("\"3us\"", "\"300us\""),
        ("kind = \"sync\"", "kind = \"sink\""),
        ("kind = \"sync\"", "kind = \"sync\"\ndepth = 4"),
        ("kind = \"sync\"", "kind = \"open\""),
        ("kind = \"sync\"", "kind = \"sync\"\non = \"1ms\""),
        ("name = \"async\"", "name = \"sync\""),
        ("batch = 4", "batch = 40"),
        ("delta = [", "gamma = ["),
        ("\"10us\"]", "\"10\"]"),
        ("clock = \"2GHz\"", "steal = { every = \"1ms\", from = \"5ms\", to = \"1ms\" }"),
        ("clock = \"2GHz\"", "steal = { every = \"1ms\", from = \"0s\", to = \"1ms\" }"),
        ("clock = \"2GHz\"", "steal = { every = \"1ms\", to = \"1ms\" }"),
        ("[device]", "steal = { every = \"1ms\", from = \"1ms\", to = \"1ms\" }\n[hypervisor]\nhogs = 1\n[device]"),
        ("kind = \"sync\"", "kind = \"open\"\ndepth = 1\nrate = \"1K/s\"\ngaps = { fixed = \"1ms\" }"),
        ("kind = \"sync\"", "kind = \"open\"\ndepth = 1\ngaps = { exponential = \"0s\" }"),
        ("kind = \"sync\"", "kind = \"sync\"\ngaps = { fixed = \"1ms\" }"),
        ("kind = \"sync\"", "kind = \"trace\""),
        ("kind = \"sync\"", "kind = \"trace\"\ntrace = \"x\""),
        ("kind = \"sync\"", "kind = \"sync\"\ntrace = \"x\""),
        ("kind = \"sync\"", "kind = \"trace\"\ndepth = 1\ntrace = \"-\""),
        ("kind = \"sync\"", "kind = \"trace\"\ntrace = \"x\"\ndepth = 1\nspeed_up = \"0x\""),
        ("kind = \"sync\"", "kind = \"trace\"\ntrace = \"x\"\ndepth = 1\nspeed_up = 2"),
        ("kind = \"sync\"", "kind = \"trace\"\ntrace = \"x\"\ndepth = 1\nwindow = { from = \"1s\", to = \"1s\" }"),
        ("kind = \"sync\"", "kind = \"trace\"\ntrace = \"x\"\ndepth = 1\non = \"1ms\"\noff = \"1ms\""),
        ("[8, 16]", "[8, 3]"),
        ("[8, 16]", "[]"),
        ("[8, 16]", "[\"deep\"]"),
        ("threads.async.depth", "threads.asink.depth"),
        ("threads.async.depth", "device.gather_mx"),
        ("threads.async.depth", "devise.gather"),
    ];
    let message = |&(old, new): &(&str, &str)| format!("{old:?} -> {new:?}\n{}\n", error(old, new));
    let messages = cases.iter().map(message).collect::<Vec<_>>().join("\n");
    assert!(messages == include_str!("plan_errors.txt"), "{messages}");
}
