//! What a queue of a trace costs. Alone in its process, as that is what is measured.

use coalesce_sim::replay::replay;
use coalesce_sim::trace::{Options, Trace};
use std::io::Cursor;

/// The peak of this process's memory, in KiB.
fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// As many queues as are allowed, after a queue with many commands in flight: 40 KiB for a queue and a policy are enough.
#[test]
fn a_queue_needs_no_more_than_what_happens_on_it() {
    let submit = |queue, id| format!("{{\"time_ns\":5,\"event\":\"submit\",\"queue\":{queue},\"id\":{id}}}\n");
    let complete = |queue| format!("{{\"time_ns\":9000000,\"event\":\"complete\",\"queue\":{queue},\"id\":100000}}\n");
    let mut text: String = (0..100_000).map(|id| submit(0, id)).collect();
    (0..1024).for_each(|queue| text += &submit(queue, 100_000));
    (0..1024).for_each(|queue| text += &complete(queue));
    let before = memory_peak();
    let policies = ["none", "nvme", "spdk_vhost", "dim", "vic", "cint", "auto"].map(|text| text.parse().unwrap());
    let mut trace = Trace::new(Box::new(Cursor::new(text)), Options::default());
    let replay = replay(&mut trace, &policies, None).unwrap();
    assert_eq!((trace.queues().len(), replay.outcomes[0].completions), (1024, 1024));
    let used = memory_peak().saturating_sub(before);
    assert!(used < 1024 * 7 * 40, "{used} KiB");
}
