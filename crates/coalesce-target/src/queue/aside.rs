//! Policies that others have replaced, and that may come back with what they had learned.

use coalesce_policy::{SetAside, Spec};
use std::collections::VecDeque;

/// So many at most, of some hundred bytes each; then the one that was replaced first is forgotten.
const ASIDE_MAX: usize = 8;

/// The policies that a queue has set aside: one of each text form.
#[derive(Debug, Default)]
pub(super) struct Aside(VecDeque<SetAside>);

impl Aside {
    /// Keeps a policy, instead of an older one of the same text form.
    pub(super) fn keep(&mut self, policy: SetAside) {
        self.take(policy.spec());
        self.0.truncate(ASIDE_MAX - 1);
        self.0.push_front(policy);
    }

    /// The policy of this text form, if it is there.
    pub(super) fn take(&mut self, spec: &Spec) -> Option<SetAside> {
        let at = self.0.iter().position(|policy| policy.spec() == spec)?;
        self.0.remove(at)
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coalesce_policy::AnyPolicy;

    #[test]
    fn the_latest_policies_are_kept_one_of_each_text_form() {
        let auto = |percent: usize| -> Spec { format!("auto:budget={percent}%").parse().unwrap() };
        let mut aside = Aside::default();
        for percent in (1..=ASIDE_MAX + 1).chain([3]) {
            let policy = AnyPolicy::new(auto(percent), 1_000_000_000).unwrap();
            aside.keep(policy.set_aside(0).unwrap());
        }
        assert_eq!(aside.0.len(), ASIDE_MAX);
        assert!(aside.take(&auto(1)).is_none(), "the first one is forgotten");
        assert!(aside.take(&auto(3)).is_some() && aside.take(&auto(3)).is_none());
        aside.clear();
        assert!(aside.take(&auto(5)).is_none());
    }
}
