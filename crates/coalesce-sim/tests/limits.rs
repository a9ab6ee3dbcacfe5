//! What a plan or a trace may ask for: a limit each, and an error that names it instead of memory or time without end.

use coalesce_sim::fuzz::command::check;
use coalesce_sim::plan::{PLAN_BYTES_MAX, Plan};
use coalesce_sim::replay::replay;
use coalesce_sim::run::run;
use coalesce_sim::trace::{Options, Trace};
use std::io::Cursor;

/// A plan of these policies, threads and whatever else; what its device does is `service`.
fn plan(policies: &str, service: &str, threads: &str, tables: &str) -> Result<Plan, String> {
    let text = format!(
        "name = \"limits\"\nduration = \"1ms\"\npolicies = [{policies}]\n\
         [device]\nchannels = 1\nservice = {service}\n{threads}\n{tables}"
    );
    Plan::parse("plan.toml", &text).map_err(|error| error.to_string())
}

const FIXED: &str = "{ fixed = \"10us\" }";
const SYNC: &str = "[[threads]]\nname = \"sync\"\nkind = \"sync\"";

fn error(plan: Result<Plan, String>) -> String {
    plan.expect_err("is not allowed")
}

/// `count` values of a sweep.
fn values(count: usize) -> String {
    format!("[{}]", (0..count).map(|i| i.to_string()).collect::<Vec<_>>().join(","))
}

#[test]
fn a_sweep_is_counted_before_it_is_built() {
    let sweep = |counts: &[usize]| {
        let keys = ["\"threads.sync.cpu\"", "\"machine.cores\"", "seed", "\"device.gather_max\""];
        let lines = keys.iter().zip(counts).map(|(key, count)| format!("{key} = {}\n", values(*count)));
        plan("\"none\", \"cint\"", FIXED, SYNC, &format!("[sweep]\n{}", lines.collect::<String>()))
    };
    assert_eq!(sweep(&[100, 50]).unwrap().points().unwrap().len(), 5000);
    let too_many = "plan.toml:10: sweep: asks for 51 x 100 x 2 simulations; allowed: at most 10000";
    assert_eq!(error(sweep(&[100, 51])), too_many);
    assert!(error(sweep(&[1000; 4])).contains("1000 x 1000 x 1000 x 1000 x 2 simulations"));
}

#[test]
fn policies_are_counted() {
    let many = vec!["\"none\""; 8000].join(",");
    assert!(plan(&many, FIXED, SYNC, "").is_ok());
    let seeds = format!("[sweep]\nseed = {}", values(2));
    assert!(error(plan(&many, FIXED, SYNC, &seeds)).contains("sweep: asks for 2 x 8000 simulations"));
}

/// A value with a placeholder in it, and another with one in that: each round is a thousand times longer.
#[test]
fn values_of_a_sweep_do_not_make_a_policy_grow() {
    let [a, b, c] = ["{a}", "{b}", "{c}"].map(|key| key.repeat(200));
    let sweep = format!("[sweep]\na = [\"{b}\"]\nb = [\"{c}\"]\nc = [\"{}\"]", "x".repeat(200));
    let text = error(plan(&format!("\"{a}\", \"none:{{b}}{{c}}\""), FIXED, SYNC, &sweep));
    assert!(text.contains("sweep.a.0: a policy of 120000 bytes; allowed: at most 1024"), "{text}");
    let long = format!("\"{}\"", "x".repeat(2000));
    assert!(error(plan(&long, FIXED, SYNC, "")).contains("policies.0: a policy of 2000 bytes"));
}

#[test]
fn a_plan_is_not_longer_than_its_copies_may_be() {
    let about = |len: usize| plan("\"none\"", FIXED, SYNC, &format!("# {}", "x".repeat(len)));
    assert!(about(60_000).is_ok());
    assert!(error(about(PLAN_BYTES_MAX)).contains("longer than the 65536 bytes"));
    // A file without an end is not read to it.
    let endless = Plan::read("/dev/zero".as_ref()).unwrap_err().to_string();
    assert!(endless.contains("longer than the 65536 bytes"), "{endless}");
}

#[test]
fn threads_and_what_they_have_outstanding_are_counted() {
    let of = |threads: &str| plan("\"none\"", FIXED, threads, "");
    let sync = |i: usize| format!("[[threads]]\nname = \"t{i}\"\nkind = \"sync\"\n");
    assert!(of(&(0..256).map(sync).collect::<String>()).is_ok());
    let text = error(of(&(0..257).map(sync).collect::<String>()));
    assert!(text.contains("threads: has 257 tables; allowed: at most 256"), "{text}");

    let count = |i: usize| format!("{}count = 2049\n", sync(i));
    let text = error(of(&(count(0) + &count(1))));
    assert!(text.contains("threads: threads are 4098; allowed: at most 4096"), "{text}");

    let deep = |count: u32| format!("[[threads]]\nname = \"a\"\nkind = \"async\"\ndepth = 65535\ncount = {count}");
    assert!(of(&deep(16)).is_ok());
    let text = error(of(&deep(17)));
    assert!(text.contains("threads: commands outstanding are up to 1114095; allowed: at most 1048576"), "{text}");
    let mix =
        "[[threads]]\nname = \"a\"\nkind = \"mix\"\ncount = 17\n[[threads.operations]]\nweight = 1\ncommands = 65535";
    assert!(error(of(mix)).contains("commands outstanding are up to 1114095"));
}

/// Work that takes longer than the clock can count, and work that takes no time at all.
#[test]
fn a_thread_works_for_a_time_that_passes_and_ends() {
    let thinks = |think: &str| plan("\"none\"", FIXED, &format!("{SYNC}\nthink = \"{think}\""), "");
    assert!(run(&thinks("3600s").unwrap()).is_ok());
    assert!(error(thinks("18446744073s")).contains("threads.0.think: is 18446744073s; allowed: at most 3600s"));
    let mix = |think: &str| {
        let mix = format!(
            "[[threads]]\nname = \"mix\"\nkind = \"mix\"\n[[threads.operations]]\nweight = 1\ncommands = 0\nthink = \"{think}\""
        );
        plan("\"none\"", FIXED, &mix, "[machine]\nclock = \"100GHz\"")
    };
    assert!(mix("100cycles").is_ok());
    // A hundredth of a nanosecond.
    assert!(error(mix("1cycles")).contains("commands: is 0, and think too: time would never pass"));
    assert!(error(mix("18446744073s")).contains("threads.0.operations.0.think: is 18446744073s"));
}

/// Times that the clock cannot count when they are added up.
#[test]
fn long_times_are_never_over() {
    let year = "31536000s";
    let weights = "{ mixture = [{ weight = 4294967295, of = { fixed = \"31536000s\" } }, { weight = 1, of = { fixed = \"1s\" } }] }";
    assert!(plan("\"none\"", weights, SYNC, "").is_ok());
    let deep = "[[threads]]\nname = \"a\"\nkind = \"async\"\ndepth = 65535\nbatch = 65535";
    let free = "[machine]\nsubmit = \"0s\"\nsubmit_call = \"0s\"";
    let plan = plan("\"none\"", &format!("{{ fixed = \"{year}\" }}"), deep, free).unwrap();
    assert!(run(&plan).unwrap()[0].iops.abs() < f64::EPSILON);
}

#[test]
fn the_last_seeds_are_the_last() {
    assert_eq!(check(u64::MAX - 3..u64::MAX), (3, Vec::new()));
}

/// A command on each of `count` queues.
fn queues(count: usize) -> String {
    let line = |i| format!("{{\"time_ns\":{i},\"event\":\"submit\",\"disk\":\"d\",\"queue\":{i},\"id\":1}}\n");
    (0..count).map(line).collect()
}

fn replayed(text: String, lenient: bool, policies: usize) -> Result<usize, String> {
    let mut trace = Trace::new(Box::new(Cursor::new(text)), Options { lenient, ..Options::default() });
    let contenders = vec!["none".parse().unwrap(); policies];
    replay(&mut trace, &contenders, None).map(|_| trace.queues().len()).map_err(|error| error.to_string())
}

#[test]
fn queues_of_a_trace_are_counted() {
    assert_eq!(replayed(queues(1024), false, 1), Ok(1024));
    for lenient in [false, true] {
        let error = replayed(queues(20_000), lenient, 1).unwrap_err();
        let expected = "line 1025: queue \"d/1024\" is one more than the 1024 that a trace may have";
        assert!(error.starts_with(expected) && error.ends_with("replay the lines of one device at a time"), "{error}");
    }
}

#[test]
fn policies_of_a_replay_are_counted() {
    assert_eq!(replayed(queues(1), false, 32), Ok(1));
    assert_eq!(replayed(queues(1), false, 33).unwrap_err(), "33 policies at once; allowed: at most 32");
}
