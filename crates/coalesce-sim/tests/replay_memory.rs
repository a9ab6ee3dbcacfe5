//! A trace's length does not matter. Alone in its process, as that is what is measured.

use coalesce_sim::replay::replay;
use coalesce_sim::trace::{Options, Trace};
use std::io::{BufReader, Read};

/// Lines that are made while they are read.
struct Endless {
    left: u64,
    line: Vec<u8>,
    place: usize,
    time: u64,
}

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.place == self.line.len() {
            if self.left == 0 {
                return Ok(0);
            }
            self.left -= 1;
            self.time += 3;
            let Self { time, .. } = self;
            self.line = format!("{}.{:09} fio 1 nvme0n1 R 8 4096 0.010\n", *time / 1_000_000, *time % 1_000_000 * 1000)
                .into_bytes();
            self.place = 0;
        }
        let len = into.len().min(self.line.len() - self.place);
        into[..len].copy_from_slice(&self.line[self.place..self.place + len]);
        self.place += len;
        Ok(len)
    }
}

/// The peak of this process's memory, in KiB.
fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// What was read is forgotten: 1.8 million lines more need less than eight bytes each.
#[test]
fn memory_does_not_depend_on_length() {
    let peak = |lines| {
        let heading: &[u8] = b"TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n";
        let input = heading.chain(Endless { left: lines, line: Vec::new(), place: 0, time: 100 });
        let mut trace = Trace::new(Box::new(BufReader::new(input)), Options::default());
        let replay = replay(&mut trace, &["cint", "auto"].map(|text| text.parse().unwrap()), None).unwrap();
        assert_eq!((replay.outcomes[0].completions, trace.counts().in_flight_max), (lines, 4));
        memory_peak()
    };
    let (few, many) = (peak(200_000), peak(2_000_000));
    assert!(many.saturating_sub(few) * 1024 < 1_800_000 * 8, "{few} KiB for 200,000 lines, {many} KiB for 2,000,000");
}
