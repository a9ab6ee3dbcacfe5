//! Where completions are posted, and who is interrupted.

use coalesce_policy::{Decision, Policy};

/// The ring of a consumer: where completions are posted.
pub trait Ring {
    /// A completion on its way to the consumer.
    type Entry;
    /// Why the ring cannot be used any more.
    type Broken;

    /// Posts a completion.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    fn post(&mut self, entry: Self::Entry) -> Result<(), Self::Broken>;

    /// Entries that can be posted before the consumer reaps any. The default is no limit: a used ring has room for every
    /// request that the guest can submit.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// Whether a completion may be held. If not, everything is delivered at once, whatever the policy decides. The default
    /// is that it may.
    fn may_hold(&self) -> bool {
        true
    }

    /// Whether the consumer polls for this completion. Then it is posted at once, even under a policy that posts late. The
    /// default is that it does not.
    fn is_polled(&self, _entry: &Self::Entry) -> bool {
        false
    }

    /// Whether the consumer wants to be interrupted for what was posted since the last call of this function.
    fn wants_interrupt(&mut self) -> bool;

    /// Whether the consumer has reaped everything that was posted, and waits for more.
    fn is_consumed(&mut self) -> bool;

    /// Interrupts the consumer. False: there is no way to.
    fn interrupt(&mut self) -> bool;

    /// The policy has decided, and this comes next: for a trace, and for a consumer that wants to know whether it is interrupted
    /// for an urgent completion alone. The default does nothing.
    fn decided<P: Policy>(&mut self, _decision: Decision, _policy: &P) {}
}
