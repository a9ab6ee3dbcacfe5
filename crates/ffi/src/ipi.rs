//! The gate for inter-processor interrupts: `coalesce_ipi_gate_...`. Two threads share a gate.

use crate::error::coalesce_error;
use crate::instant::instant;
use crate::status::*;
use crate::tagged::{Machine, Tagged, kind, put};
use vic_core::{Ipi, IpiGate, IpiParams};

/// Defers an inter-processor interrupt if the last virtual interrupt is recent (vIC §3.3). Opaque. After initialisation
/// any number of threads may use it at the same time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_ipi_gate {
    /// Private to the library.
    pub opaque: [u64; 3],
}

type State = Tagged<IpiGate>;

impl Machine for IpiGate {
    type State = coalesce_ipi_gate;
    const KIND: u32 = kind(b'I');
}

/// The paper's threshold (vIC §4.5), in ns.
pub const COALESCE_IPI_GATE_PAPER_NS: u64 = 100_000;
const _: () = assert!(COALESCE_IPI_GATE_PAPER_NS == IpiParams::PAPER.threshold_ns);

/// Initialises a gate that lets an IPI pass if the last virtual interrupt is more than `threshold_ns` (0 to 1 s) ago.
///
/// `gate_size` is `sizeof(coalesce_ipi_gate)`; `error` may be null.
///
/// # Safety
/// `gate` is null or points to `gate_size` bytes that nobody else uses; `error` is null or points to a
/// `coalesce_error`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_ipi_gate_init(
    gate: *mut coalesce_ipi_gate,
    gate_size: usize,
    threshold_ns: u64,
    tick_hz: u64,
    error: *mut coalesce_error,
) -> coalesce_status {
    let machine = IpiGate::new(IpiParams { tick_hz, threshold_ns }).map_err(Into::into);
    // SAFETY: the caller's promise.
    unsafe { State::make(gate, gate_size, machine, error) }
}

/// Notes that the VMM has delivered a virtual interrupt.
///
/// # Safety
/// `gate` is null or points to a `coalesce_ipi_gate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_ipi_gate_delivered(gate: *mut coalesce_ipi_gate, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    match unsafe { State::look(gate) } {
        Ok(state) => {
            state.machine.delivered(now);
            COALESCE_OK
        }
        Err(status) => status,
    }
}

/// Whether the kernel must interrupt the guest's CPU, after it has posted a completion. `COALESCE_HOLD`: not yet; ask
/// again at the instant `*until` if the VMM has not run by then. Anything else: send the IPI now. `until` may be
/// null.
///
/// # Safety
/// As `coalesce_ipi_gate_delivered`; `until` is null or points to a `uint64_t`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_ipi_gate_should_send(
    gate: *const coalesce_ipi_gate,
    now: u64,
    until: *mut u64,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    match unsafe { State::look(gate) } {
        Ok(state) => match state.machine.should_send(now) {
            Ipi::Send => COALESCE_DELIVER,
            Ipi::Defer { until: next } => {
                // SAFETY: the caller's promise.
                unsafe { put(until, instant(next)) };
                COALESCE_HOLD
            }
        },
        Err(status) => status,
    }
}
