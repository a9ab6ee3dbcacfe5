//! Whether a policy is worth it: what is said before the details, once for people at a terminal and on a page.

use super::Entry;
use super::text::{aligned, mean_us, us};
use crate::cycles::Cycles;
use coalesce_cli::counted;

/// What `coalesce-target` does if nothing is said.
const AUTO: &str = "auto";
/// So much less CPU time is worth a change, in percent.
const WORTH: f64 = 5.0;
/// Less than this is nothing.
const NOTHING: f64 = 1.0;
/// Trials cost so much once, in percent of the requests' time, that a trace in which they cost more says nothing of what follows.
const TRIALS_MAX: f64 = 5.0;
/// Completions on a queue before the first licence, where nothing disturbs its trials: docs/budget.md.
const LICENCE: u64 = 2700;

/// The heads of [`Summary::lines`].
pub const HEADS: [&str; 10] =
    ["policy", "interrupts", "per I/O", "CPU", "time us", "p50 us", "p99 us", "p99.9 us", "held %", "x optimum"];
/// The heads of [`Summary::learning`].
pub const LEARNING_HEADS: [&str; 5] = ["learning", "held %", "paid for", "in trials", "licensed"];

/// What is said before the details.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The answer, in a sentence or two; empty: the default policy is not among those compared.
    pub answer: String,
    /// What the CPU time assumes.
    pub about: String,
    /// A line for each policy.
    pub lines: Vec<[String; 10]>,
    /// A line for each policy that has learned something.
    pub learning: Vec<[String; 5]>,
}

impl Summary {
    /// Of what was replayed. `completions`: the most that one queue had. `no_answer`: why nothing can be said of what the default
    /// policy is worth.
    #[must_use]
    pub fn of(entries: &[Entry], cycles: Cycles, completions: u64, no_answer: Option<String>) -> Self {
        Self {
            answer: answer(entries, cycles, completions, no_answer),
            about: format!("CPU, over that of an interrupt for each I/O: {}", cycles.about()),
            lines: entries.iter().map(|entry| line(entry, cycles)).collect(),
            learning: entries.iter().filter_map(learning).collect(),
        }
    }

    /// For a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { answer, about, lines, learning } = self;
        let end = if answer.is_empty() { "" } else { "\n\n" };
        let mut text = format!("{answer}{end}{about}\n\n{}", aligned(&HEADS, lines));
        if !learning.is_empty() {
            text += &format!("\n{}", aligned(&LEARNING_HEADS, learning));
        }
        text
    }
}

fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}

fn latency(entry: &Entry, percent: f64) -> Option<u64> {
    entry.latency.at(percent).filter(|_| entry.latency.count > 0)
}

fn line(entry: &Entry, cycles: Cycles) -> [String; 10] {
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let latency = |percent| known(latency(entry, percent).map(us));
    let over = |interrupts: u64, optimum: u64| format!("{:.2}", interrupts as f64 / optimum.max(1) as f64);
    [
        entry.policy.clone(),
        known(entry.interrupts.map(|count| count.to_string())),
        format!("{:.3}", entry.interrupts_per_io),
        format!("{:.2}", cycles.over_none(entry.interrupts_per_io)),
        known(entry.request_time.map(mean_us)),
        latency(50.0),
        latency(99.0),
        latency(99.9),
        known(entry.held.map(|held| percent(held.share))),
        known(entry.interrupts.zip(entry.optimum).map(|(interrupts, optimum)| over(interrupts, optimum))),
    ]
}

fn learning(entry: &Entry) -> Option<[String; 5]> {
    let held = entry.held.filter(|held| held.trials + held.licensed > 0.0)?;
    let paid = held.share - held.trials - held.licensed;
    Some([entry.policy.clone(), percent(held.share), percent(paid), percent(held.trials), percent(held.licensed)])
}

/// Whether the default policy is worth it.
fn answer(entries: &[Entry], cycles: Cycles, completions: u64, no_answer: Option<String>) -> String {
    let of = |policy| entries.iter().find(|entry| entry.policy == policy);
    let Some(auto) = of(AUTO) else { return String::new() };
    if let Some(why) = no_answer {
        return format!("No answer: {why}.");
    }
    let saved = (100.0 * (1.0 - cycles.over_none(auto.interrupts_per_io))).round(); // as it is said, so that both agree
    let trials = auto.held.map_or(0.0, |held| 100.0 * held.trials);
    let verdict = match saved {
        _ if completions < LICENCE || trials > TRIALS_MAX => "Too short a trace to tell",
        saved if saved >= WORTH => "Worth it on this load",
        saved if saved >= NOTHING => "Little to gain on this load",
        _ => "Nothing to gain on this load",
    };
    let mut text = format!(
        "{verdict}: {AUTO}, the default, raises {:.2} interrupts for each I/O instead of 1, for {saved:.0} % less CPU time.",
        auto.interrupts_per_io
    );
    if completions < LICENCE {
        text += &format!(
            " The busiest queue has {}, and a first licence, which saves the most, needs about {LICENCE}.",
            counted(completions, "completion")
        );
    }
    if let Some(held) = auto.held {
        text += &format!(" Waiting for them is {:.1} % of the time of the requests", 100.0 * held.share);
        let parts = [(held.trials, "in trials, by which it learns"), (held.licensed, "with a licence")];
        let parts = parts.into_iter().filter(|(share, _)| *share >= 0.0005);
        let parts: Vec<_> = parts.map(|(share, of)| format!("{:.1} % {of}", 100.0 * share)).collect();
        if !parts.is_empty() {
            text += &format!(" ({})", parts.join(", "));
        }
        if let Some(slowest) = latency(auto, 99.0) {
            text += &format!(", and 99 % take at most {} µs", us(slowest));
            let none = of("none").and_then(|none| latency(none, 99.0));
            text += &none.map_or_else(String::new, |none| format!(" instead of {}", us(none)));
        }
        text += ".";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Held, Percentiles};

    fn entry(policy: &str, interrupts_per_io: f64, p99: u64, held: f64) -> Entry {
        Entry {
            policy: policy.into(),
            interrupts: Some((interrupts_per_io * 1000.0) as u64),
            interrupts_per_io,
            latency: Percentiles { count: 1000, mean: 0.0, points: vec![(99.0, p99)], max: p99 },
            held: Some(Held { share: held, trials: held / 4.0, licensed: 0.0 }),
            optimum: Some(250),
            ..Entry::default()
        }
    }

    #[test]
    fn the_answer_is_about_the_default_policy() {
        let none = entry("none", 1.0, 20_000, 0.0);
        let of = |entries: &[Entry]| Summary::of(entries, Cycles { io: 1000, interrupt: 1000 }, LICENCE, None).answer;
        assert_eq!(of(&[none.clone(), entry("vic", 0.5, 20_000, 0.01)]), "");
        let worth = of(&[none.clone(), entry("auto", 0.5, 22_000, 0.04)]);
        assert_eq!(
            worth,
            "Worth it on this load: auto, the default, raises 0.50 interrupts for each I/O instead of 1, for 25 % less CPU \
             time. Waiting for them is 4.0 % of the time of the requests (1.0 % in trials, by which it learns), and 99 % take \
             at most 22.0 µs instead of 20.0."
        );
        assert!(of(&[entry("auto", 0.96, 22_000, 0.0), none]).starts_with("Little to gain"));
        assert!(of(&[entry("auto", 0.999, 22_000, 0.0)]).starts_with("Nothing to gain"));
        for (interrupts_per_io, says) in [(0.908, "5 %"), (0.912, "4 %"), (0.988, "1 %"), (0.992, "0 %")] {
            let answer = of(&[entry("auto", interrupts_per_io, 22_000, 0.0)]);
            let verdict = match says {
                "5 %" => "Worth it",
                "0 %" => "Nothing to gain",
                _ => "Little to gain",
            };
            assert!(answer.starts_with(verdict) && answer.contains(&format!("for {says} less CPU time")), "{answer}");
        }
        assert!(of(&[entry("auto", 0.5, 22_000, 0.21)]).starts_with("Too short a trace to tell"), "5.25 % in trials");
        let licensed = |trials| Held { share: 0.076, trials, licensed: 0.062 };
        for (trials, says) in
            [(0.005, "(0.5 % in trials, by which it learns, 6.2 % with a licence)"), (0.0, "(6.2 % with a licence)")]
        {
            let answer = of(&[Entry { held: Some(licensed(trials)), ..entry("auto", 0.5, 22_000, 0.0) }]);
            assert!(answer.contains(&format!("is 7.6 % of the time of the requests {says}, and 99 %")), "{answer}");
        }
        let unknown = Summary::of(&[entry("auto", 0.5, 9, 0.0)], Cycles::PAPER, LICENCE, Some("nobody knows".into()));
        assert_eq!(unknown.answer, "No answer: nobody knows.");
    }

    /// Whatever it has saved by then.
    #[test]
    fn before_a_first_licence_is_too_early_to_tell() {
        for saved in [0.5, 0.96, 1.0] {
            let of =
                |completions| Summary::of(&[entry("auto", saved, 9, 0.0)], Cycles::PAPER, completions, None).answer;
            let early = of(LICENCE - 1);
            assert!(early.starts_with("Too short a trace to tell: auto, the default, raises"), "{early}");
            let why =
                "The busiest queue has 2699 completions, and a first licence, which saves the most, needs about 2700.";
            assert!(early.contains(why), "{early}");
            let late = of(LICENCE);
            assert!(!late.contains("Too short") && !late.contains("licence"), "{late}");
        }
    }

    #[test]
    fn what_was_learned_is_apart() {
        let entries = [entry("none", 1.0, 9, 0.0), entry("auto", 0.5, 9, 0.08)];
        let summary = Summary::of(&entries, Cycles::PAPER, LICENCE, None);
        assert_eq!(summary.learning, [["auto", "8.00", "6.00", "2.00", "0.00"]]);
        assert_eq!(summary.lines[1][9], "2.00", "500 of 250");
        assert!(summary.text().contains("\nlearning  held %  paid for  in trials  licensed\nauto        8.00"));
    }
}
