//! Time lines of completions, holds and interrupts, with one lane for each policy.

use crate::scale::Scale;
use crate::series::Series;
use crate::svg::{BOTTOM, Head, Svg};
use coalesce_cli::counted;

/// Width of a time line, in its own units: that of a page.
pub const WIDTH: f64 = 1000.0;
/// Width of the names on the left, and of the margin on the right.
const NAMES: f64 = 96.0;
const MARGIN: f64 = 14.0;
/// The top of the lanes, below title, explanation and key.
const TOP: f64 = 66.0;
/// Height of a lane, and of the marks in it.
const LANE: f64 = 44.0;
const BAR: f64 = 30.0;
const TICK: f64 = 15.0;

/// The range of the x axis.
pub const RANGE: (f64, f64) = (NAMES, WIDTH - MARGIN);

/// The events under one policy.
#[derive(Clone, Debug)]
pub struct Lane<'a> {
    /// The policy.
    pub series: Series<'a>,
    /// A few letters below its name.
    pub about: String,
    /// The completions.
    pub completions: Vec<Completion>,
    /// The intervals in which completions were held.
    pub holds: Vec<(f64, f64)>,
    /// The interrupts.
    pub interrupts: Vec<Interrupt>,
}

/// A completed command.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Its time.
    pub at: f64,
    /// Whether its hint is Urgent or Barrier.
    pub marked: bool,
    /// The tooltip.
    pub hover: String,
}

/// An interrupt.
#[derive(Clone, Debug)]
pub struct Interrupt {
    /// Its time.
    pub at: f64,
    /// The tooltip.
    pub hover: String,
}

/// A time line with a lane for each policy.
#[must_use]
pub fn timeline(head: &Head, x: &Scale, lanes: &[Lane]) -> String {
    let bottom = TOP + LANE * lanes.len() as f64;
    let in_words = |lane: &Lane| {
        let completions = counted(lane.completions.len() as u64, "completion");
        let interrupts = counted(lane.interrupts.len() as u64, "interrupt");
        format!("{}: {completions}, {interrupts}", lane.series.label)
    };
    let numbers: Vec<_> = lanes.iter().map(in_words).collect();
    let mut svg = Svg::new("strip", head, (WIDTH, bottom + BOTTOM), &numbers);
    key(&mut svg);
    svg.x_axis(x, (TOP, bottom), head.axis);
    for (index, lane) in lanes.iter().enumerate() {
        let base = TOP + LANE * (index as f64 + 1.0) - 7.0;
        svg.begin(lane.series, &numbers[index]);
        svg.text((0.0, base - 16.0), "name", lane.series.label);
        svg.text((0.0, base - 2.0), "about", &lane.about);
        svg.line("base", (x.at(0.0), base), (RANGE.1, base));
        svg.end();
        for &(from, to) in &lane.holds {
            svg.begin(lane.series, &format!("held for {:.1} µs", to - from));
            svg.rect("held", x.at(from), base - TICK - 4.0, (x.at(to) - x.at(from)).max(0.5), TICK + 4.0);
            svg.end();
        }
        for interrupt in &lane.interrupts {
            svg.begin(lane.series, &interrupt.hover);
            svg.line("bar", (x.at(interrupt.at), base - BAR), (x.at(interrupt.at), base));
            svg.end();
        }
        for completion in &lane.completions {
            svg.begin(lane.series, &completion.hover);
            completed(&mut svg, (x.at(completion.at), base), completion.marked);
            svg.end();
        }
    }
    svg.finish()
}

/// Draws a tick, with a head if its hint is Urgent or Barrier.
fn completed(svg: &mut Svg, (x, base): (f64, f64), marked: bool) {
    svg.line("tick-up", (x, base), (x, base - TICK));
    if marked {
        svg.dot((x, base - TICK), 2.4);
    }
}

/// Draws the key.
fn key(svg: &mut Svg) {
    let base = 54.0;
    let example = Series { label: "", style: 0 };
    svg.begin(example, "key");
    let mut x = 0.0;
    for (what, room) in [
        ("completion", 92.0),
        ("completion of an Urgent or Barrier", 222.0),
        ("held: posted, no interrupt yet", 194.0),
        ("interrupt", 0.0),
    ] {
        match what {
            "interrupt" => svg.line("bar", (x + 4.0, base - 14.0), (x + 4.0, base + 3.0)),
            _ if what.starts_with("held") => svg.rect("held", x, base - 10.0, 14.0, 13.0),
            _ => {
                svg.line("tick-up", (x + 4.0, base + 3.0), (x + 4.0, base - 8.0));
                if what != "completion" {
                    svg.dot((x + 4.0, base - 8.0), 2.4);
                }
            }
        }
        svg.text((x + if what.starts_with("held") { 19.0 } else { 11.0 }, base + 1.5), "about", what);
        x += room;
    }
    svg.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_one_mark() {
        let at = |at: f64| Completion { at, marked: at > 1.5, hover: String::new() };
        let lane = Lane {
            series: Series { label: "cint", style: 3 },
            about: "2 interrupts".into(),
            completions: vec![at(1.0), at(2.0), at(9.0)],
            holds: vec![(1.0, 8.0)],
            interrupts: vec![
                Interrupt { at: 8.0, hover: "Δ <passed>".into() },
                Interrupt { at: 9.0, hover: "urgent".into() },
            ],
        };
        let head = Head { title: "t", about: "a", axis: "µs" };
        let svg = timeline(&head, &Scale::linear(10.0, RANGE), &[lane]);
        let count = |what: &str| svg.matches(what).count();
        // The key has one more of each, and two ticks.
        assert_eq!(
            [count("class=\"tick-up\""), count("class=\"held\""), count("class=\"bar\""), count("<circle")],
            [5, 2, 3, 3]
        );
        assert!(svg.contains("<title>Δ &lt;passed&gt;</title>") && svg.contains("held for 7.0 µs"));
    }
}
