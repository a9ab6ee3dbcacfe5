//! What happened in a turn.

use serde::Serialize;

/// What happened in a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Its length.
    pub seconds: f64,
    /// Requests that completed.
    pub completions: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them.
    pub writes: u64,
    /// Flushes among them.
    pub flushes: u64,
    /// Requests with real-time I/O priority.
    pub realtime: u64,
    /// Interrupts that the target sent.
    pub interrupts: u64,
    /// Completions held under a licence: its trials had found that holding pays.
    pub licensed: u64,
    /// Interrupts that the guest's kernel took; none: there is no guest.
    pub taken: Option<u64>,
    /// System calls of the target's queues.
    pub system_calls: u64,
    /// Times that a thread of client or target gave up its CPU to wait.
    pub context_switches: u64,
    /// Those of the threads that take the client's interrupts: all of the load generator, or the CPUs of the virtual machine.
    pub client_sleeps: u64,
    /// Time that threads of client and target could run and had no CPU; none: the kernel does not count it.
    pub waited_ns: Option<u64>,
    /// Instructions of the guest's CPUs, where they are counted.
    pub instructions: u64,
    /// Those of its interrupts among them, from the interrupt to the return from it.
    pub interrupt_instructions: u64,
    /// Rounds of the loop that computes beside the client; none: no loop does.
    pub computed: Option<u64>,
    /// CPU time of the client: the load generator, or all of the virtual machine.
    pub client_cpu_ns: u64,
    /// CPU time of the disk's process.
    pub target_cpu_ns: u64,
}

impl Counts {
    /// What happened since `earlier`, without the context switches and the time waited.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            seconds: self.seconds - earlier.seconds,
            completions: self.completions.saturating_sub(earlier.completions),
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            realtime: self.realtime.saturating_sub(earlier.realtime),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
            licensed: self.licensed.saturating_sub(earlier.licensed),
            taken: self.taken.zip(earlier.taken).map(|(now, earlier)| now.saturating_sub(earlier)),
            system_calls: self.system_calls.saturating_sub(earlier.system_calls),
            computed: self.computed.zip(earlier.computed).map(|(now, earlier)| now.saturating_sub(earlier)),
            instructions: self.instructions.saturating_sub(earlier.instructions),
            interrupt_instructions: self.interrupt_instructions.saturating_sub(earlier.interrupt_instructions),
            client_cpu_ns: self.client_cpu_ns.saturating_sub(earlier.client_cpu_ns),
            target_cpu_ns: self.target_cpu_ns.saturating_sub(earlier.target_cpu_ns),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_what_two_looks_differ_by() {
        let look = |n: u64| Counts { seconds: n as f64, completions: 10 * n, interrupts: n, ..Counts::default() };
        assert_eq!(look(5).since(&look(3)), look(2));
    }
}
