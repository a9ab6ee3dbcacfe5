//! What was found, for people and for other programs: one page of HTML that needs nothing else, or CSV.

pub mod csv;
mod figures;
pub mod lanes;
#[cfg(feature = "cli")]
mod outputs;
pub mod page;
pub mod summary;
pub mod text;

#[cfg(feature = "cli")]
pub use outputs::{Outputs, refuse_mistaken, write};

use crate::event::Event;
use hdrhistogram::Histogram;
use summary::Summary;

/// Percentiles of a curve. Those on the axis of nines get a marker.
pub const PERCENTS: [f64; 15] =
    [50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 93.0, 95.0, 97.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// A distribution of durations.
#[derive(Clone, Debug, Default)]
pub struct Percentiles {
    /// How many.
    pub count: u64,
    /// The mean, in ns.
    pub mean: f64,
    /// Percentiles: percent, and the value in ns that this share does not exceed; ascending.
    pub points: Vec<(f64, u64)>,
    /// The longest, in ns.
    pub max: u64,
}

impl Percentiles {
    /// Of what was recorded.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let point = |percent: f64| (percent, histogram.value_at_quantile(percent / 100.0));
        Self {
            count: histogram.len(),
            mean: histogram.mean(),
            points: PERCENTS.map(point).into(),
            max: histogram.max(),
        }
    }

    /// What `percent` of them are not longer than, in ns, if that is known.
    #[must_use]
    pub fn at(&self, percent: f64) -> Option<u64> {
        self.points.iter().find(|point| point.0.total_cmp(&percent).is_eq()).map(|point| point.1)
    }
}

/// Holding, as parts of the time of all requests from submission to interrupt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// All of it.
    pub share: f64,
    /// What of it trials did, by which a latency budget learns.
    pub trials: f64,
    /// What of it a licence did, which trials have found.
    pub licensed: f64,
}

/// What one policy did, simulated or replayed.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Its text form.
    pub policy: String,
    /// Interrupts, where they are counted.
    pub interrupts: Option<u64>,
    /// Interrupts for each completion.
    pub interrupts_per_io: f64,
    /// Commands per second, where the requester reacts to the policy.
    pub iops: Option<f64>,
    /// CPU cycles per command: simulated, or of a stated cost.
    pub cycles_per_io: Option<f64>,
    /// The mean time that a request takes its requester, in ns, where it is known: what a command's time in the device and a
    /// hold are a part of.
    pub request_time: Option<f64>,
    /// How much of that was holding, where it is known by reason.
    pub held: Option<Held>,
    /// The fewest interrupts for as much holding, where that was looked for.
    pub optimum: Option<u64>,
    /// From submission until the requester could know.
    pub latency: Percentiles,
    /// From completion to interrupt.
    pub delay: Percentiles,
    /// The longest that the policy promises to hold a completion, in ns.
    pub bound: Option<u64>,
    /// How often it broke that promise.
    pub late: u64,
    /// How often another rule did not hold.
    pub wrong: u64,
    /// Interrupts by reason.
    pub reasons: Vec<(String, u64)>,
    /// A part of what happened on one line; the same part for all policies of a section, if any.
    pub timeline: Vec<Event>,
}

/// Policies under the same conditions.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The conditions, in a few words; empty: there is only one section.
    pub title: String,
    /// More about them.
    pub about: String,
    /// The policies.
    pub entries: Vec<Entry>,
}

/// All that a report says.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Its title.
    pub title: String,
    /// What it is about, in a sentence or two.
    pub lead: String,
    /// What one has to know to repeat it: name and value.
    pub facts: Vec<(String, String)>,
    /// What must not be overlooked.
    pub notes: Vec<String>,
    /// What is said before the details of the first section, if it is a replay.
    pub summary: Option<Summary>,
    /// What was found.
    pub sections: Vec<Section>,
}
