//! The computer: what things cost its CPUs, and who shares them.

use crate::units::{Clock, Cost, Time};
use serde::{Deserialize, Serialize};

/// CPUs, and what things cost them.
///
/// The defaults are for the machine of the cinterrupts paper: 2 GHz, an interrupt of 1500 cycles (§2.2, Figure 3), and
/// that a quarter of what a read of 4 KiB costs with libaio at a depth of 256 (Figure 3): 6250 cycles. How these divide
/// among the steps is an estimate; together with the presets they give the latency of a synchronous read (Table 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// The clock that cycles are counted in.
    pub clock: Clock,
    /// Cores; CPU n is on core n modulo `cores`. 0: as many as CPUs.
    pub cores: u32,
    /// A system call that submits.
    pub submit_call: Cost,
    /// Each command that it submits, down to the doorbell.
    pub submit: Cost,
    /// An interrupt: entry, handler and exit, without what it finds.
    pub interrupt: Cost,
    /// Each completion that a handler finds.
    pub complete: Cost,
    /// To let another thread run, or the same after it slept.
    pub context_switch: Cost,
    /// Each completion that a thread takes.
    pub reap: Cost,
    /// From the device's decision to the CPU's interrupt.
    pub wire: Time,
    /// A CPU that has nothing to do needs so long until it takes an interrupt: it leaves a sleep state, or its host does.
    pub idle_exit: Time,
    /// The driver suppresses interrupts from one interrupt until its handler has emptied the ring: virtio's EVENT_IDX.
    /// Otherwise every delivery interrupts, as with NVMe.
    pub event_idx: bool,
    /// The host takes the CPUs for a while, each at random times. None: they are always there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal: Option<Steal>,
}

/// A CPU that a host takes and gives back: stolen time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steal {
    /// Mean time that a CPU is left alone, exponentially distributed.
    pub every: Time,
    /// The shortest time that it is taken for; all up to `to` are equally likely.
    pub from: Time,
    /// The longest.
    pub to: Time,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            clock: Clock(2_000_000_000),
            cores: 0,
            submit_call: Cost::Cycles(500),
            submit: Cost::Cycles(2400),
            interrupt: Cost::Cycles(1500),
            complete: Cost::Cycles(1000),
            context_switch: Cost::Cycles(1500),
            reap: Cost::Cycles(1300),
            wire: Time(0),
            idle_exit: Time(0),
            event_idx: false,
            steal: None,
        }
    }
}

/// A hypervisor under the CPUs: each of them is a virtual CPU then, pinned to its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hypervisor {
    /// How long a virtual CPU runs while others wait for the core (30 ms: Xen's credit scheduler).
    pub timeslice: Time,
    /// To let another virtual CPU run.
    pub switch: Cost,
    /// Guests on each core that always compute: they steal time.
    pub hogs: u32,
    /// A virtual CPU that wakes runs at once (Xen's BOOST); otherwise it waits for its turn.
    pub boost: bool,
    /// The policy knows when the slice ends.
    pub tells_slice_end: bool,
    /// The policy learns when the guest is put on a core and taken off it.
    pub tells_schedule: bool,
    /// How much later than the true end of the slice the policy sees it: the error of the two clocks.
    pub clock_error: Time,
    /// vIC §3.3: completions reach a running guest's monitor by an inter-processor interrupt, unless the last virtual
    /// interrupt is not longer ago than this. None: the monitor sees each completion at once, at no cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipi_threshold: Option<Time>,
    /// What an inter-processor interrupt costs the guest's CPU.
    pub ipi: Cost,
    /// The monitor looks for completions at least so often while the guest runs: the guest's timer interrupts.
    pub timer: Time,
}

impl Default for Hypervisor {
    fn default() -> Self {
        Self {
            timeslice: Time::ms(30),
            switch: Cost::Time(2_000),
            hogs: 0,
            boost: true,
            tells_slice_end: false,
            tells_schedule: false,
            clock_error: Time(0),
            ipi_threshold: None,
            ipi: Cost::Time(2_000),
            timer: Time::ms(1),
        }
    }
}
