//! vic-core's gate over loom's atomics.

#[path = "../../src/ipi.rs"]
mod ipi;

mod atomic {
    pub use loom::sync::atomic::{AtomicU64, Ordering};
}

pub use ipi::{Ipi, IpiGate, IpiParams};
