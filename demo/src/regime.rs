//! What decides which way a result goes: whether client and disk had CPUs, and whether the client slept.

use std::fmt::{Display, Formatter, Result};

use serde_json::{Value, json};

use crate::counts::Counts;

/// From this share on the CPUs are contended.
const CONTENDED_MIN: f64 = 0.2;
/// From this number of sleeps for each interrupt on, the regime is that the client sleeps.
const SLEEPS_MIN: f64 = 0.1;

/// Of one job, under the baseline: what a policy changes is its effect, and no condition of it.
#[derive(Clone, Copy, Debug)]
pub struct Regime {
    /// The share of the time that client and disk waited for a CPU while they could run; none: the kernel does not count it.
    waited: Option<f64>,
    /// How often the client's CPU was given up, for each interrupt.
    sleeps: f64,
}

impl Regime {
    /// Of turns of the baseline.
    pub fn of<'a>(turns: impl Iterator<Item = &'a Counts>) -> Self {
        let (mut waited, mut ran, mut sleeps, mut interrupts) = (Some(0), 0, 0, 0);
        for turn in turns {
            waited = waited.zip(turn.waited_ns).map(|(sum, more)| sum + more);
            ran += turn.client_cpu_ns + turn.target_cpu_ns;
            sleeps += turn.client_sleeps;
            interrupts += turn.interrupts;
        }
        let waited = waited.map(|waited| waited as f64 / (waited + ran).max(1) as f64);
        Self { waited, sleeps: sleeps as f64 / interrupts.max(1) as f64 }
    }

    /// Its name. Verdicts in regimes of different names do not contradict each other.
    pub const fn name(&self) -> &'static str {
        match (self.waited, self.sleeps >= SLEEPS_MIN) {
            (None, true) => "CPUs unknown, client sleeps",
            (None, false) => "CPUs unknown, client awake",
            (Some(waited), true) if waited >= CONTENDED_MIN => "CPUs contended, client sleeps",
            (Some(waited), false) if waited >= CONTENDED_MIN => "CPUs contended, client awake",
            (Some(_), true) => "CPUs free, client sleeps",
            (Some(_), false) => "CPUs free, client awake",
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({ "name": self.name(), "waited": self.waited, "sleeps": self.sleeps })
    }
}

/// "CPUs free, client awake (waited for a CPU 5 % of the time, slept 0.02 times for an interrupt)".
impl Display for Regime {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} (", self.name())?;
        if let Some(waited) = self.waited {
            write!(f, "waited for a CPU {:.0} % of the time, ", waited * 100.0)?;
        }
        write!(f, "slept {:.2} times for an interrupt)", self.sleeps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_named_after_what_was_counted() {
        let turn = |waited_ns, client_sleeps| Counts {
            waited_ns,
            client_sleeps,
            interrupts: 100,
            client_cpu_ns: 60,
            target_cpu_ns: 40,
            ..Counts::default()
        };
        let regime = |turns: &[Counts]| Regime::of(turns.iter());
        let calm = regime(&[turn(Some(5), 3), turn(Some(5), 1)]);
        assert_eq!(
            calm.to_string(),
            "CPUs free, client awake (waited for a CPU 5 % of the time, slept 0.02 times for an interrupt)"
        );
        assert_eq!(regime(&[turn(Some(25), 10)]).name(), "CPUs contended, client sleeps");
        assert_eq!(regime(&[turn(Some(24), 9)]).name(), "CPUs free, client awake");
        assert_eq!(regime(&[turn(Some(24), 9), turn(None, 9)]).name(), "CPUs unknown, client awake");
    }
}
