//! The simulator in a browser: what the page of the playground asks of it.
//!
//! A plan, and a trace for its threads, come in as text; numbers and time lines go out as JSON. The numbers are those that
//! `coalesce-sim run --json` prints for the same plan. [`session`] answers, [`abi`] is what a browser calls.

#![deny(unsafe_code)]

pub mod abi;
pub mod session;
