//! What arrives at threads of kind `trace`, read from their files.

use super::{Arrival, Point, Thread, Wrong};
use crate::trace::{Moment, Options, Trace};
use std::path::Path;
use std::sync::Arc;

/// Arrivals of one thread's window, at most: they are kept in memory.
pub const ARRIVALS_MAX: usize = 1 << 20;
/// Times as coarse as this are those of public traces without decimals.
const SECOND: u64 = 1_000_000_000;

impl Point {
    /// Reads what arrives at threads of kind `trace`, as far as the simulation is long. What one of `others` has read is not read
    /// again.
    ///
    /// # Errors
    /// A trace that cannot be read, has nothing in its window, or more than [`ARRIVALS_MAX`].
    pub fn load(&mut self, others: &[Self]) -> Result<(), Wrong> {
        self.load_with(others, |path| Trace::open(path, Options::default()))
    }

    /// As [`load`](Self::load), of traces that `open` finds by their paths.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(&mut self, others: &[Self], open: impl Fn(&Path) -> anyhow::Result<Trace>) -> Result<(), Wrong> {
        let end = self.plan.warmup.0.saturating_add(self.plan.duration.0);
        for i in 0..self.plan.threads.len() {
            let (thread, directory) = (&self.plan.threads[i], &self.plan.directory);
            let Some(path) = &thread.trace else { continue };
            let is_same = |other: &&Thread| {
                (&other.trace, other.window, other.speed_up) == (&thread.trace, thread.window, thread.speed_up)
            };
            let as_long = others
                .iter()
                .filter(|other| (other.plan.warmup, other.plan.duration) == (self.plan.warmup, self.plan.duration));
            let known =
                as_long.flat_map(|other| &other.plan.threads).find(is_same).and_then(|other| other.recorded.clone());
            let recorded = match known {
                Some(known) => known,
                None => {
                    let path = directory.join(path);
                    open(&path)
                        .map_err(|error| format!("{error:#}"))
                        .and_then(|mut trace| read(&mut trace, &path, thread, end))
                        .map_err(|message| Wrong::at(["threads", &i.to_string(), "trace"], message))?
                }
            };
            self.plan.threads[i].recorded = Some(recorded);
        }
        Ok(())
    }
}

/// The arrivals of a thread until simulated time `end`.
fn read(trace: &mut Trace, path: &Path, thread: &Thread, end: u64) -> Result<Arc<[Arrival]>, String> {
    let name = path.display();
    let window = thread.window.unwrap_or_default();
    let speed = thread.speed_up.map_or(1000, |factor| factor.0);
    let simulated = |ns: u64| u64::try_from(u128::from(ns) * 1000 / u128::from(speed)).unwrap_or(u64::MAX);
    let (mut first, mut arrivals) = (None, Vec::new());
    while let Some(step) = trace.arrival().map_err(|error| format!("{name}: {error:#}"))? {
        let at = step.at - *first.get_or_insert(step.at);
        let Some(since) = at.checked_sub(window.from.0) else { continue };
        if window.to.is_some_and(|to| at >= to.0) || simulated(since) >= end {
            break;
        }
        let Moment::Submit { request, .. } = step.what else { continue };
        if arrivals.len() == ARRIVALS_MAX {
            return Err(format!(
                "{name}: more than {ARRIVALS_MAX} arrivals in the window, which is all that is allowed: shorten it, or the plan"
            ));
        }
        let queue = u32::try_from(step.queue).unwrap_or(u32::MAX);
        arrivals.push(Arrival { at: since, queue, request });
    }
    if arrivals.is_empty() {
        let lines = trace.counts().lines;
        return Err(format!("{name}: nothing arrives from {} on, in {lines} lines", window.from));
    }
    if trace.resolution() >= SECOND {
        arrivals.chunk_by_mut(|one, next| one.at == next.at).for_each(|alike| spread(alike, trace.resolution()));
    }
    arrivals.iter_mut().for_each(|arrival| arrival.at = simulated(arrival.at));
    Ok(arrivals.into())
}

/// What arrived in one second, nobody knows when, arrives at equal distances.
fn spread(alike: &mut [Arrival], over: u64) {
    let count = alike.len() as u64;
    for (nth, arrival) in (0..).zip(alike) {
        arrival.at = arrival.at.saturating_add(over * nth / count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_of_the_last_second_that_can_be_counted_stay_in_order() {
        let arrival = Arrival { at: u64::MAX - SECOND / 2, queue: 0, request: Default::default() };
        let mut alike = [arrival; 4];
        spread(&mut alike, SECOND);
        assert!(alike.is_sorted_by_key(|arrival| arrival.at), "{alike:?}");
        assert_eq!((alike[1].at, alike[3].at), (arrival.at + SECOND / 4, u64::MAX));
    }
}
