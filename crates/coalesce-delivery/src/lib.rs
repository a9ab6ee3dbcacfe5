//! The one place from which interrupts are sent. It fixes the order of the steps:
//!
//! 1. a completion is *posted*: the consumer can see it;
//! 2. the policy decides;
//! 3. only if it delivers, the consumer is asked whether it wants to be interrupted (EVENT_IDX, `NO_INTERRUPT`);
//! 4. if it does, it is.
//!
//! If the consumer were asked before the policy decides to hold, an interrupt would be lost: its wish is for the *next*
//! completion posted, and it answers only once.
//!
//! Every front end runs this code over its own [`Ring`], and the simulator over a simulated one. Each call
//! returns the decision after it has acted on it, so the caller has nothing left to do.
//!
//! Out-of-order Urgent works with every driver: the held Plain completions are not posted while an urgent completion
//! interrupts alone.
//!
//! Without the feature `std` it needs no allocator: a device that posts each completion when it comes keeps only a [`Count`] of
//! what is held.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "std")]
extern crate std;

mod deferred;
mod delivery;
mod keep;
mod ring;
mod stats;

pub use deferred::{Deferred, Interrupt};
pub use delivery::Delivery;
pub use keep::{Count, Keep, Kept};
pub use ring::Ring;
pub use stats::DeliveryStats;
