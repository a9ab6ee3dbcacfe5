//! The papers' figures: what was published, and what comes out of a simulation of the same set-up.

pub mod cint;
pub mod row;
pub mod vic;
pub mod xen;
