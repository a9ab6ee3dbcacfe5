//! Interrupt coalescing for devices that are built on `vhost-user-backend`.
//!
//! [`CoalescedVring`] takes the place of `VringMutex` or `VringRwLock`. Nothing else of a device changes, unless it calls the vring while it
//! holds its `get_ref()`: that goes well with `VringRwLock`, and never returns with `VringMutex` or with ours.
//!
//! ```
//! type Vring = coalesce_vring::CoalescedVring; // in its VhostUserBackend or VhostUserBackendMut
//! ```
//!
//! The device adds used descriptors and calls `signal_used_queue`, as before. The vring counts what was added since the last
//! call, asks its policy, and signals or holds. The policy is `auto`, unless the daemon is made in [`with_policy`], which also returns
//! the [control](VringControl) of each vring: to change its policy and to look at its statistics, from any thread and before the first
//! kick.
//!
//! **The deadline is in the device's own event loop.** The kick that the vring gives to the loop is an epoll descriptor of the front
//! end's kick and a timer. The loop calls `read_kick` when either fires. If it was the timer alone, the vring delivers what it holds,
//! and the loop does not call the device.
//!
//! **No lock is held while somebody is woken.** A thread that adds used descriptors and the loop that takes requests meet in short
//! sections alone: who is woken by a signal finds the vring free. But where a ring stops, or its descriptors change.
//!
//! **Asked last.** `needs_notification` says yes while something is undecided. The guest is asked (EVENT_IDX) only when the policy has
//! decided to deliver, as its answer is valid only then. Of two workers that have added and were both told yes, the first decides for
//! both, and with EVENT_IDX the signal of the second does nothing.
//!
//! It holds only while the loop watches it: a ring that is stopped, disabled or has no kick is signalled at once, and stopping,
//! disabling or dropping it delivers what it holds. Every error signals, too. A loop that ends, because the device or another ring's
//! kick fails, ends without a word: when it is 10 ms late, nothing is held any more, and what is held then goes with the next signal.
//!
//! A device that completes elsewhere than in its event loop, as `examples/worker_disk.rs` does, implements `stop_vring`, as with any vring:
//! it waits there until all that the ring has given is completed, without a lock that this needs. What completes later, the front end
//! does not know of.
//!
//! Where the device completes on a thread of its own and the client sleeps without EVENT_IDX, holds let threads sleep that share a CPU when
//! they wake. `auto` finds out in its first second or two, and may cost a third of the IOPS until then; pin the threads, or choose `none`,
//! where that matters (`docs/budget.md`, Limits).
//!
//! A call is signalled at once where the ring had none. A process before may have ended with something held for it.
//!
//! It knows no hints: all completions are Plain, and strict Barriers are refused. Commands in flight are those that the guest has made
//! available and that are not used yet.

#![forbid(unsafe_code)]

mod vring;
mod watch;

pub use coalesce_delivery::DeliveryStats;
pub use coalesce_policy::{Spec, SpecError, Stats};
pub use vring::{CoalescedVring, VringControl, with_policy};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
