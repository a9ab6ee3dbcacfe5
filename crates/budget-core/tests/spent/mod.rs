//! What a budget has spent, as tests compare it.

use coalesce_testkit::{Policy, Spent};

/// The times of held and of outstanding commands.
pub fn spent(policy: &impl Policy) -> (u64, u64) {
    let Spent { held, outstanding, .. } = policy.spent().expect("a budget");
    (held, outstanding)
}
