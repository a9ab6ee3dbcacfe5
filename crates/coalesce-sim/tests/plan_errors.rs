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
