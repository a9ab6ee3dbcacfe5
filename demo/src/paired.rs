//! Compares variants of one thing on a machine that also does other things.
//!
//! A *turn* runs one variant for a short time. A *block* has one turn of each variant, in random order. Variant 0 is the
//! baseline and variant 1 the baseline again: the *control*. What counts is the ratio of two turns of one block.
//!
//! If two variants do not differ, their random order alone decides which of their two turns is the better one. That is a fair
//! coin for each block, whatever the noise: heavy tails, drift, a first turn that is always fast. The claim that
//! they differ, by the interval of [`Interval::of_ratios`], assumes nothing else.
//!
//! Few numbers are decided beforehand and share the error of a page: its claims. Each of the others has an interval of its own: a
//! page explores hundreds of them, so some of those intervals are wrong.

mod cpu_time;
mod interval;
mod measure;
mod signed_rank;
mod verdict;

pub use cpu_time::{CpuTime, cpu_time};
pub use interval::Interval;
pub use measure::{Block, CLAIMS, ERROR, Plan, Turn, measure};
pub use verdict::{Comparison, Verdict, compare};
