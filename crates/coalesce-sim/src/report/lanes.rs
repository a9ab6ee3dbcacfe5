//! From the events of a line to what a time line shows.

use super::Entry;
use crate::event::{Event, What};
use coalesce_charts::series::Series;
use coalesce_charts::timeline::{Completion, Interrupt, Lane};
use coalesce_policy::Event as Meaning;

/// Completions that are shown.
const SHOWN: usize = 40;

/// The same stretch of time for all policies of a section: from the first event to a few completions later. From when to
/// when, in ns.
pub fn stretch(entries: &[Entry]) -> Option<(u64, u64)> {
    let timelines = || entries.iter().map(|entry| entry.timeline.as_slice()).filter(|events| !events.is_empty());
    let from = timelines().map(|events| events[0].at).min()?;
    let end = |events: &[Event]| {
        let mut completions = events.iter().filter(|event| matches!(event.what, What::Completion { .. }));
        completions.nth(SHOWN).or(events.last()).map_or(from, |event| event.at)
    };
    Some((from, timelines().map(end).min()?.max(from + 1)))
}

/// One policy's lane, in µs after `from`.
pub fn lane<'a>(series: Series<'a>, events: &[Event], (from, to): (u64, u64)) -> Lane<'a> {
    let us = |at: u64| at.saturating_sub(from) as f64 / 1000.0;
    let (mut completions, mut holds, mut interrupts) = (Vec::new(), Vec::new(), Vec::new());
    let mut held: Vec<u64> = Vec::new(); // since when
    let mut undecided = None;
    for Event { at, what } in events.iter().filter(|event| (from..=to).contains(&event.at)).copied() {
        match what {
            What::Completion { hint, cif } => {
                let hover = format!("completed at {:.1} µs: {}, {cif} in flight", us(at), hint.name());
                completions.push(Completion { at: us(at), marked: hint != Meaning::Plain, hover });
                undecided = Some(at);
            }
            What::Deadline | What::BatchEnd | What::Other => {}
            What::Hold { reason } => {
                if let (Some(_), Some(completion)) = (undecided, completions.last_mut()) {
                    completion.hover += &format!("; held: {}", reason.name());
                }
                held.extend(undecided.take());
            }
            What::Interrupt { reason, covers } => {
                let decided = usize::from(undecided.take().is_some());
                // More than were seen: some were held before this stretch began.
                let since = if covers as usize > held.len() + decided { Some(from) } else { held.first().copied() };
                holds.extend(since.filter(|&since| since < at).map(|since| (us(since), us(at))));
                held.clear();
                let hover = format!("interrupt at {:.1} µs for {covers}: {}", us(at), reason.name());
                interrupts.push(Interrupt { at: us(at), hover });
            }
            What::Suppressed { .. } => {
                undecided = None;
                holds.extend(held.first().map(|&since| (us(since), us(at))));
                held.clear();
            }
            What::UrgentAlone => {
                undecided = None;
                interrupts.push(Interrupt {
                    at: us(at),
                    hover: format!("interrupt at {:.1} µs for an urgent one alone", us(at)),
                });
            }
            What::Consumed { count } => {
                let count = held.len().min(count as usize);
                if let (Some(&since), true) = (held.first(), count == held.len()) {
                    holds.push((us(since), us(at)));
                }
                held.drain(..count);
            }
        }
    }
    holds.extend(held.first().map(|&since| (us(since), us(to))));
    let about = format!("{} for {}", interrupts.len(), completions.len());
    Lane { series, about, completions, holds, interrupts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coalesce_policy::{HoldReason, Reason};

    fn events(list: &[(u64, What)]) -> Vec<Event> {
        list.iter().map(|&(at, what)| Event { at, what }).collect()
    }

    const COMPLETION: What = What::Completion { hint: Meaning::Plain, cif: 3 };
    const HOLD: What = What::Hold { reason: HoldReason::Burst };

    fn interrupt(covers: u32) -> What {
        What::Interrupt { reason: Reason::Delta, covers }
    }

    fn drawn(list: &[(u64, What)], to: u64) -> (Vec<(f64, f64)>, Vec<f64>) {
        let lane = lane(Series { label: "x", style: 0 }, &events(list), (1000, to));
        (lane.holds, lane.interrupts.iter().map(|interrupt| interrupt.at).collect())
    }

    #[test]
    fn a_hold_is_from_the_first_held_to_its_interrupt() {
        let list = [
            (2000, COMPLETION),
            (2000, HOLD),
            (3000, COMPLETION),
            (3000, HOLD),
            (9000, What::Deadline),
            (9000, interrupt(2)),
        ];
        assert_eq!(drawn(&list, 20_000), (vec![(1.0, 8.0)], vec![8.0]));
        assert_eq!(drawn(&list, 5000), (vec![(1.0, 4.0)], vec![]), "cut off");
        assert_eq!(drawn(&list[4..], 20_000), (vec![(0.0, 8.0)], vec![8.0]), "begun before");
    }

    #[test]
    fn what_is_held_says_why() {
        let list = [(2000, COMPLETION), (2000, HOLD), (3000, COMPLETION), (3000, interrupt(2))];
        let lane = lane(Series { label: "x", style: 0 }, &events(&list), (1000, 9000));
        let hovers: Vec<_> = lane.completions.iter().map(|completion| completion.hover.as_str()).collect();
        assert_eq!(
            hovers,
            ["completed at 1.0 µs: plain, 3 in flight; held: burst", "completed at 2.0 µs: plain, 3 in flight"]
        );
    }

    #[test]
    fn an_immediate_interrupt_is_no_hold_and_an_urgent_one_ends_none() {
        assert_eq!(drawn(&[(2000, COMPLETION), (2000, interrupt(1))], 9000), (vec![], vec![1.0]));
        let list = [
            (2000, COMPLETION),
            (2000, HOLD),
            (3000, COMPLETION),
            (3000, What::UrgentAlone),
            (4000, What::Consumed { count: 1 }),
        ];
        assert_eq!(drawn(&list, 9000), (vec![(1.0, 3.0)], vec![2.0]));
    }

    #[test]
    fn all_policies_show_the_same_stretch() {
        let timeline =
            |n: u64| events(&(0..n).flat_map(|i| [(i * 10, COMPLETION), (i * 10, interrupt(1))]).collect::<Vec<_>>());
        let entries = [100, 20].map(|n| Entry { timeline: timeline(n), ..Entry::default() });
        assert_eq!(stretch(&entries), Some((0, 190)));
        assert_eq!(stretch(&entries[..1]), Some((0, 400)));
        assert_eq!(stretch(&[]), None);
    }
}
