//! Compares variants of one thing on a noisy machine.
//!
//! A *turn* runs one variant for a short time. A *block* has one turn of each variant, in random order. Variant 0 is the
//! baseline and variant 1 the baseline again: the *control*. What counts is the ratio of two turns of one block.
//!
//! If two variants do not differ, their random order alone decides which of their two turns is the better one. That is a fair
//! coin for each block, whatever the noise: heavy tails, drift, a first turn that is always fast. The interval of
//! [`Interval::of_median`] assumes nothing else.

mod cpu_time;
mod interval;
mod measure;
mod verdict;

pub use cpu_time::{CpuTime, cpu_time};
pub use interval::Interval;
pub use measure::{Block, ERROR, Plan, Turn, measure};
pub use verdict::{Comparison, Verdict, compare};
