//! A published figure, and how near a simulation must come to it.

/// What a figure is measured in, and where "no effect" lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// One quantity over another: 1 is no effect.
    Times,
    /// A change in per cent: 0 is no effect.
    Change,
    /// A share of a processor or of a cost, in per cent.
    Share,
    /// Interrupts per completed command.
    PerIo,
    /// A thousand per second.
    Kilo,
    /// Microseconds.
    Micros,
    /// Cycles of a processor, in thousands, per command.
    Kilocycles,
    /// A number of completions.
    Count,
}

impl Unit {
    /// As printed behind a figure.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Times => "x",
            Self::Change | Self::Share => "%",
            Self::PerIo => "/IO",
            Self::Kilo => "K/s",
            Self::Micros => "us",
            Self::Kilocycles => "Kcyc",
            Self::Count => "",
        }
    }

    /// The figure that means that nothing changed, where there is one.
    #[must_use]
    pub const fn no_effect(self) -> Option<f64> {
        match self {
            Self::Times => Some(1.0),
            Self::Change => Some(0.0),
            _ => None,
        }
    }
}

/// What a paper claims: the figure itself, or a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Claim {
    /// The figure, give or take so much of it, and why so much.
    Near(f64, &'static str),
    /// The figure, give or take so many of its unit, and why so many.
    Within(f64, &'static str),
    /// At least the figure.
    AtLeast,
    /// At most the figure.
    AtMost,
}

/// A published figure.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Unique; `paper.figure.case`.
    pub id: &'static str,
    /// What was measured.
    pub what: &'static str,
    /// The figure as the text states it.
    pub published: f64,
    /// Its unit.
    pub unit: Unit,
    /// What is claimed about it.
    pub claim: Claim,
}

/// A row of a table of rows.
pub(super) const fn row(id: &'static str, what: &'static str, published: f64, unit: Unit, claim: Claim) -> Row {
    Row { id, what, published, unit, claim }
}

/// What a table rounds away.
pub const ROUNDING: Claim = Claim::Near(0.015, "the table's rounding");
/// Times and rates of a machine of which a few costs are known.
pub const HOST: Claim = Claim::Near(0.15, "a host made of ten costs, not the machine");
/// Interrupts of one policy over those of another.
pub const INTERRUPTS: Claim = Claim::Near(0.2, "arrivals are drawn from a distribution, not from the drive");
/// A stated difference in time, which the policy alone makes.
pub const WAIT: Claim = Claim::Within(0.5, "half the paper's last digit");
/// One row of Algorithm 1 up or down.
pub const STEP: Claim = Claim::Near(0.2, "one row of Algorithm 1 up or down");
/// Changes in per cent: vIC's Table 3 itself goes 2.3, 1.3, 4.1, 0.4 where one would expect it to grow.
pub const SCATTER: Claim = Claim::Within(3.0, "the scatter of the published column itself");
/// "The same", "matches".
pub const SAME: Claim = Claim::Near(0.05, "what the text calls the same");
