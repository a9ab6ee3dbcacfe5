//! A panel: what each of several variants saves, against what it costs in latency, both as ratios to a baseline.

use coalesce_charts::chart::{Head, Point, Spread, WIDTH, X_RANGE, Y_RANGE, points, standalone};
use coalesce_charts::scale::Scale;
use coalesce_charts::series::Series;

use crate::paired::Interval;
use crate::table::told;

/// Axes do not show more than this: beyond it lies noise.
const RATIO_MAX: f64 = 4.0;

/// One variant.
#[derive(Clone, Debug)]
pub struct Mark<'a> {
    /// Its name, colour and marker.
    pub series: Series<'a>,
    /// Its latency over the baseline's.
    pub latency: Interval,
    /// The same of what is to be saved.
    pub saved: Interval,
    /// Whether a difference is told on either axis.
    pub is_sure: bool,
}

/// The panel, `None` without a mark. `saved` names what the y axis has, `of` whose latency the x axis has.
#[must_use]
pub fn panel<'a>(title: &str, saved: &str, of: &str, marks: &[Mark<'a>]) -> Option<String> {
    if marks.is_empty() {
        return None;
    }
    let point = |mark: &Mark<'a>| Point {
        series: mark.series,
        hover: format!("{}: latency {}, {saved} {}", mark.series.label, told(&mark.latency), told(&mark.saved)),
        x: spread(mark.latency),
        y: spread(mark.saved),
        is_sure: mark.is_sure,
    };
    let ends = |of: fn(&Mark<'_>) -> Interval| {
        let ends = marks.iter().map(of).flat_map(|interval| [interval.low, interval.high]);
        ends.fold((1.0, 1.0), |(min, max): (f64, f64), end| (min.min(end), max.max(end.min(RATIO_MAX))))
    };
    let ((x_min, x_max), (y_min, y_max)) = (ends(|mark| mark.latency), ends(|mark| mark.saved));
    let (axis, y_axis) = (format!("latency of a {of} / baseline's"), format!("{saved} / baseline's"));
    let head = Head { title, about: saved, axis: &axis };
    let scales = (&Scale::ratio(x_min, x_max, X_RANGE), &Scale::ratio(y_min, y_max, Y_RANGE));
    Some(points(&head, scales, &y_axis, &marks.iter().map(point).collect::<Vec<_>>()))
}

/// What a place of the demonstration is called, by its name.
#[must_use]
pub fn heading(place: &str) -> &'static str {
    match place {
        "native" => "Native client",
        "guest" => "Linux guest, virtio-blk",
        "counted" => "Linux guest, virtio-blk, its instructions counted",
        "nvme" => "Linux guest, NVMe",
        _ => "Bare-metal guest, NVMe",
    }
}

/// A panel as a file of its own.
#[must_use]
pub fn file(panel: &str) -> String {
    standalone(panel, WIDTH) + "\n"
}

const fn spread(Interval { median, low, high }: Interval) -> Spread {
    (low, median, high)
}
