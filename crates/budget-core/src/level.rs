//! By which rule completions are held.

/// How much may be held from now on: [`Budget::allow`](crate::Budget::allow).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// By which rule.
    pub level: Level,
    /// ε is 2^-shift of the budget.
    pub shift: u8,
    /// Completions for each interrupt in a trial or with a licence; of no effect else.
    pub limit: u8,
    /// The trials so far, while they gain enough; the maximum with a licence. C0 is multiplied by 1 more than it, at most by 4.
    pub evidence: u8,
}

impl Allowance {
    /// The account with its whole budget, and nothing else.
    pub const STRICT: Self = Self { level: Level::Strict, shift: 0, limit: 1, evidence: 0 };
}

/// By which rule completions are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Level {
    /// What the account pays for.
    Strict,
    /// Nothing.
    Nothing,
    /// Up to `limit` completions for each interrupt, as long as the account and C0 pay for it: a trial of a licence.
    Trial,
    /// The same, and the account is not charged.
    Licensed,
}
