//! Each decision that a policy takes on one queue in a stretch of a trace, with its reason and what it knew.

#[cfg(feature = "cli")]
pub mod command;

use super::Replayed;
use crate::contender::Contender;
use crate::event::{Event, State, Timeline, What};
use crate::trace::Trace;
use crate::units::Time;
use anyhow::{Result, bail};
use coalesce_policy::Decision;

/// Which part of a trace is explained.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// Where it begins, in ns after the trace's first event.
    pub at: u64,
    /// How long it is, in ns.
    pub length: u64,
    /// The name of its queue; `None`: the first on which something happens in it.
    pub queue: Option<String>,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explained {
    /// When, in ns after the trace's first event.
    pub since_first: u64,
    /// The time of the trace, in ns.
    pub at: u64,
    /// What is decided about.
    pub about: What,
    /// What is decided.
    pub decision: Decision,
    /// The number of completions that its interrupt covers.
    pub covers: u32,
    /// For how long the oldest of those was held, in ns; `None`: no interrupt.
    pub held: Option<u64>,
    /// The queue after it.
    pub after: State,
}

/// Calls `each` with every decision of a stretch, in order of time. The policy sees the trace from its beginning. Returns the
/// number of the queue among those of the trace.
///
/// # Errors
/// The trace is malformed, its clock cannot carry a parameter, nothing happens in the stretch, or `each` fails.
pub fn explain(
    trace: &mut Trace,
    contender: &Contender,
    stretch: &Stretch,
    mut each: impl FnMut(&Explained) -> Result<()>,
) -> Result<usize> {
    let mut replayed = Replayed::new(contender);
    let (mut first, mut last, mut queue) = (None, 0, None);
    let (mut about, mut oldest) = (What::Other, None);
    let mut tell = |replayed: &mut Replayed, queue: usize, first: u64| {
        for (Event { at, what }, after) in replayed.queues[queue].line.drain() {
            let since_first = at - first;
            let (decision, covers, held) = match what {
                What::Completion { .. } | What::Deadline | What::BatchEnd | What::Other => {
                    (about, oldest) = (what, after.oldest);
                    continue;
                }
                What::Hold { reason } => (Decision::Hold(reason), 0, None),
                What::Interrupt { reason, covers } => {
                    (Decision::Deliver(reason), covers, oldest.map(|since| at - since))
                }
                What::UrgentAlone => (Decision::DeliverUrgent, 1, Some(0)),
                // The consumer of a replay reaps when it is interrupted, and only then.
                What::Suppressed { .. } | What::Consumed { .. } => continue,
            };
            if since_first - stretch.at < stretch.length {
                each(&Explained { since_first, at, about, decision, covers, held, after })?;
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    while let Some(step) = trace.step()? {
        let first = *first.get_or_insert(step.at);
        let since_first = step.at - first;
        replayed.grow(step.queue + 1)?;
        let is_wanted = stretch.queue.as_ref().is_none_or(|name| *name == trace.queues()[step.queue]);
        if queue.is_none()
            && is_wanted
            && (stretch.at..stretch.at.saturating_add(stretch.length)).contains(&since_first)
        {
            replayed.queues[step.queue].line.keep(Timeline::new(first + stretch.at, usize::MAX));
            queue = Some(step.queue);
        }
        replayed.step(&step, None);
        if let Some(queue) = queue {
            tell(&mut replayed, queue, first)?;
        }
        last = step.at;
        if queue == Some(step.queue) && since_first - stretch.at >= stretch.length {
            break;
        }
    }
    let Some(queue) = queue else {
        let span = last - first.unwrap_or(last);
        let on = stretch.queue.as_ref().map_or_else(String::new, |name| format!(" on queue {name:?}"));
        bail!(
            "nothing happens{on} from {} on, for {}: the trace is {} long, its queues are {:?}",
            Time(stretch.at),
            Time(stretch.length),
            Time(span),
            trace.queues()
        );
    };
    replayed.finish(last);
    tell(&mut replayed, queue, first.unwrap_or(last))?;
    Ok(queue)
}
