//! What recorders say of events that they lost, on their standard error or among the lines.

/// How many events a line says were lost; `None`: it is no such line.
///
/// ```text
/// CPU:3 [LOST 12 EVENTS]                      ftrace; trace-cmd: CPU:3 [12 EVENTS DROPPED]
/// Lost 12 events                              bpftrace; of libbpf's tools: lost 12 events on CPU #3
/// Possibly lost 12 samples                    bcc
/// You have 12 (  0.1%) dropped events         blktrace
/// Processed 90 events and lost 12 chunks!     perf
/// ```
pub fn events(line: &str) -> Option<u64> {
    let words: Vec<_> = line.split_ascii_whitespace().map(|word| word.trim_matches(['[', ']', '!'])).collect();
    let count = match *words {
        ["lost" | "Lost", count, "events"]
        | ["lost" | "Lost", count, "events", "on", "CPU", _]
        | ["Possibly", "lost", count, "samples"]
        | ["You", "have", count, .., "dropped", "events"]
        | ["Processed", _, "events", "and", "lost", count, "chunks"] => count,
        [cpu, "LOST", count, "EVENTS"] | [cpu, count, "EVENTS", "DROPPED"] if cpu.starts_with("CPU:") => count,
        [cpu, "EVENTS", "DROPPED"] if cpu.starts_with("CPU:") => "1", // at least
        _ => return None,
    };
    count.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_what_a_recorder_says_is_taken_for_it() {
        for (line, lost) in [
            ("CPU:3 [LOST 12 EVENTS]", Some(12)),
            ("CPU:0 [7 EVENTS DROPPED]", Some(7)),
            ("CPU:0 [EVENTS DROPPED]", Some(1)),
            ("Lost 5 events", Some(5)),
            ("lost 64 events on CPU #1", Some(64)),
            ("Possibly lost 3 samples", Some(3)),
            ("You have 18 ( 0.1%) dropped events", Some(18)),
            ("Processed 100 events and lost 2 chunks!", Some(2)),
            ("8,0 0 1 0.1 1 D R 8 + 8 [lost 5 events]", None),
            ("lost many events", None),
        ] {
            assert_eq!(super::events(line), lost, "{line}");
        }
    }
}
