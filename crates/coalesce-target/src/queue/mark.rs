//! What the policy is told about a request: at its submission, and at its completion.

use coalesce_delivery::Delivery;
use coalesce_policy::{Class, Clues, Completion, Hint, HintSource, Ticket, at_completion, infer};

/// What a request carries for the policy from its submission to its completion.
#[derive(Debug, Default)]
pub struct Mark {
    hint: (Hint, Option<HintSource>),
    ticket: Option<Ticket>,
}

impl Mark {
    /// A request is submitted.
    pub fn new<E>(delivery: &mut Delivery<E>, clues: &Clues) -> Self {
        let hint = infer(delivery.policy().spec().hints(), clues);
        Self { hint, ticket: delivery.on_submit(0, clues.outstanding) }
    }

    /// It completes, with `cif` commands in flight, counting it. The completion for the policy, and the source of its hint.
    pub fn complete<E>(self, delivery: &Delivery<E>, cif: u32, class: Class) -> (Completion, Option<HintSource>) {
        let policy = delivery.policy();
        let (hint, source) = at_completion(policy.spec().hints(), self.hint, cif, policy.expects_more());
        (Completion { cif, hint, class, ticket: self.ticket, ..Completion::default() }, source)
    }
}
