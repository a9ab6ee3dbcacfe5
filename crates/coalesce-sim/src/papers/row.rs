//! A published figure, and how near a simulation must come to it.

use super::runs::Runs;
use serde::Serialize;

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
    /// The figure, plus or minus this much in its unit, and the reason for the tolerance.
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
    /// How it follows from the runs; `None`: the model cannot carry it.
    pub simulated: Option<fn(&Runs) -> f64>,
    /// Why the figures differ, or why the model cannot carry this one.
    pub note: &'static str,
}

impl Row {
    /// The same row with the reason of its verdict.
    pub(super) const fn noted(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// What a simulated figure says about the published one.
    #[must_use]
    pub fn judge(&self, simulated: f64) -> Verdict {
        let distance = (simulated - self.published).abs();
        let holds = match self.claim {
            Claim::Near(part, _) => distance <= part * self.published.abs(),
            Claim::Within(by, _) => distance <= by,
            Claim::AtLeast => simulated >= self.published,
            Claim::AtMost => simulated <= self.published,
        };
        let same_side = |none: f64| {
            let effect = self.published - none;
            effect.abs() > 0.0 && (simulated - none) / effect >= DIRECTION
        };
        if holds {
            Verdict::Agrees
        } else if self.unit.no_effect().is_some_and(same_side) {
            Verdict::Direction
        } else {
            Verdict::Differs
        }
    }
}

/// The part of a published effect that must be there to speak of the same direction.
const DIRECTION: f64 = 0.25;

/// What a simulation says about a published figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The claim holds.
    Agrees,
    /// The effect has the published direction, and at least a quarter of its size.
    Direction,
    /// Neither.
    Differs,
    /// The model cannot carry the claim.
    NotModelled,
}

impl Verdict {
    /// As printed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Direction => "direction",
            Self::Differs => "differs",
            Self::NotModelled => "not modelled",
        }
    }
}

/// A row of a table of rows.
pub(super) const fn row(
    id: &'static str,
    what: &'static str,
    published: f64,
    unit: Unit,
    claim: Claim,
    simulated: fn(&Runs) -> f64,
) -> Row {
    Row { id, what, published, unit, claim, simulated: Some(simulated), note: "" }
}

/// A row that the model cannot carry, and why.
pub(super) const fn beyond(
    id: &'static str,
    what: &'static str,
    published: f64,
    unit: Unit,
    claim: Claim,
    why: &'static str,
) -> Row {
    Row { id, what, published, unit, claim, simulated: None, note: why }
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
pub const SCATTER: Claim = Claim::Within(2.0, "the scatter of the published column itself");
/// "The same", "matches".
pub const SAME: Claim = Claim::Near(0.05, "what the text calls the same");

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(published: f64, unit: Unit, claim: Claim, simulated: f64) -> Verdict {
        row("id", "what", published, unit, claim, |_| 0.0).judge(simulated)
    }

    #[test]
    fn a_figure_is_judged_by_its_claim() {
        let near = Claim::Near(0.1, "");
        assert_eq!(judge(2.0, Unit::Times, near, 2.19), Verdict::Agrees);
        assert_eq!(judge(2.0, Unit::Times, near, 1.3), Verdict::Direction);
        assert_eq!(judge(2.0, Unit::Times, near, 1.2), Verdict::Differs);
        assert_eq!(judge(2.0, Unit::Times, near, 0.9), Verdict::Differs);
        assert_eq!(judge(10.0, Unit::Micros, near, 12.0), Verdict::Differs);
        assert_eq!(judge(-18.0, Unit::Change, Claim::Within(3.0, ""), -20.0), Verdict::Agrees);
        assert_eq!(judge(-18.0, Unit::Change, Claim::Within(3.0, ""), -5.0), Verdict::Direction);
        assert_eq!(judge(0.0, Unit::Change, Claim::Within(3.0, ""), 5.0), Verdict::Differs);
        assert_eq!(judge(100.0, Unit::Kilo, Claim::AtMost, 100.1), Verdict::Differs);
        assert_eq!(judge(1.0, Unit::Times, Claim::AtLeast, 1.0), Verdict::Agrees);
    }
}
