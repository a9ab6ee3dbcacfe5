//! Panels: rows with one mark for each policy, and curves.
//!
//! Every panel is as wide as a phone's screen. A page places as many side by side as fit, so text keeps its size.

use crate::CSS;
use crate::scale::Scale;
use crate::series::Series;
use crate::svg::{BOTTOM, Svg, TOP, shape};

pub use crate::svg::Head;

/// Width of a panel, in its own units (about CSS pixels).
pub const WIDTH: f64 = 360.0;
/// Height of one row of a panel of rows.
const ROW: f64 = 21.0;
/// Room for names to the left of rows.
const NAMES: f64 = 74.0;
/// Room for numbers to the right of rows.
const NUMBERS: f64 = 50.0;
/// Smallest distance between two lines of text.
const LINE: f64 = 12.5;

/// One line of a panel of rows.
#[derive(Clone, Debug)]
pub struct RowMark<'a> {
    /// The policy.
    pub series: Series<'a>,
    /// The mark.
    pub mark: Mark,
    /// The number to the right.
    pub number: String,
    /// The tooltip.
    pub hover: String,
}

/// The mark in a row.
#[derive(Clone, Debug)]
pub enum Mark {
    /// A bar from zero.
    Bar(f64),
    /// A point with the spread of the rounds, on a line from 1.
    Ratio {
        /// The point.
        value: f64,
        /// The smallest and the largest round.
        spread: (f64, f64),
    },
    /// Percentiles: small, filled, hollow.
    Percentiles(Vec<f64>),
}

/// The range of the rows' x axis, in units of the panel.
pub const ROWS_RANGE: (f64, f64) = (NAMES, WIDTH - NUMBERS);

/// A panel with one row per policy.
#[must_use]
pub fn rows(head: &Head, x: &Scale, rows: &[RowMark]) -> String {
    let bottom = TOP + ROW * rows.len() as f64;
    let numbers: Vec<_> = rows.iter().map(|row| row.hover.as_str()).collect();
    let mut svg = Svg::new("panel", head, (WIDTH, bottom + BOTTOM), &numbers);
    svg.x_axis(x, (TOP - 4.0, bottom), head.axis);
    let one = matches!(rows.first(), Some(RowMark { mark: Mark::Ratio { .. }, .. }));
    if one {
        svg.line("one", (x.at(1.0), TOP - 4.0), (x.at(1.0), bottom));
    }
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        svg.begin(row.series, &row.hover);
        // An invisible rectangle, so that the tooltip appears anywhere in the row.
        svg.rect("hit", 0.0, y - ROW / 2.0, WIDTH, ROW);
        svg.text((NAMES - 8.0, y + 4.0), "name end", row.series.label);
        match &row.mark {
            Mark::Bar(value) => {
                svg.rect("fill", x.at(0.0), y - 6.5, (x.at(*value) - x.at(0.0)).max(1.0), 13.0);
            }
            Mark::Ratio { value, spread } => {
                svg.line("stem", (x.at(1.0), y), (x.at(*value), y));
                svg.line("spread", (x.at(spread.0), y), (x.at(spread.1), y));
                svg.marker(row.series.style, (x.at(*value), y), 5.0, x.is_beyond(*value));
            }
            Mark::Percentiles(values) => {
                if let (Some(&first), Some(&last)) = (values.first(), values.last()) {
                    svg.line("stem", (x.at(first), y), (x.at(last), y));
                }
                for (nth, &value) in values.iter().enumerate() {
                    match nth {
                        0 => svg.rect("fill", x.at(value) - 1.5, y - 6.0, 3.0, 12.0),
                        _ => svg.marker(row.series.style, (x.at(value), y), 5.0, nth > 1),
                    }
                }
            }
        }
        svg.text((WIDTH - NUMBERS + 8.0, y + 4.0), "number", &row.number);
        svg.end();
    }
    svg.finish()
}

/// One curve.
#[derive(Clone, Debug)]
pub struct Curve<'a> {
    /// The policy.
    pub series: Series<'a>,
    /// Percentile, value, and whether enough requests support it.
    pub points: Vec<(f64, f64, bool)>,
}

/// Height of a panel with curves.
const CURVES_HEIGHT: f64 = 250.0;
/// The range of its x axis, in units of the panel.
pub const X_RANGE: (f64, f64) = (52.0, WIDTH - 88.0);
/// The range of its y axis, in units of the panel.
pub const Y_RANGE: (f64, f64) = (CURVES_HEIGHT - BOTTOM, TOP + 6.0);

/// A panel with latency over percentiles; `marked` are the percentiles that get a marker.
#[must_use]
pub fn curves(head: &Head, y_axis: &str, marked: &[f64], curves: &[Curve]) -> String {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let (low, high) = all().fold((f64::MAX, f64::MIN), |(low, high), p| (low.min(p.1), high.max(p.1)));
    let last = all().map(|point| point.0).fold(50.0, f64::max);
    let is_marked = |percent: f64| marked.iter().any(|mark| mark.total_cmp(&percent).is_eq());
    let lines = curves.iter().map(|curve| {
        let markers: Vec<_> = curve.points.iter().filter(|point| is_marked(point.0)).copied().collect();
        let numbers = markers.iter().map(|(percent, value, _)| format!("p{percent} {value:.1} µs"));
        Line {
            series: curve.series,
            hover: format!("{}: {}", curve.series.label, numbers.collect::<Vec<_>>().join(", ")),
            points: curve.points.iter().map(|point| (point.0, point.1)).collect(),
            markers,
        }
    });
    let (x, y) = (Scale::nines(last, X_RANGE), Scale::log(low, high, Y_RANGE));
    plot(head, (&x, &y), y_axis, &lines.collect::<Vec<_>>(), None)
}

/// One line of a plot.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// The policy.
    pub series: Series<'a>,
    /// The tooltip.
    pub hover: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// Its markers: filled, or hollow if few requests support the point.
    pub markers: Vec<(f64, f64, bool)>,
}

/// A panel with lines. `chosen` is a highlighted value on the x axis, with its label.
#[must_use]
pub fn plot(
    head: &Head,
    (x, y): (&Scale, &Scale),
    y_axis: &str,
    lines: &[Line],
    chosen: Option<(f64, &str)>,
) -> String {
    let ((left, right), (bottom, top)) = (X_RANGE, Y_RANGE);
    let hovers: Vec<_> = lines.iter().map(|line| line.hover.as_str()).collect();
    let mut svg = Svg::new("panel", head, (WIDTH, CURVES_HEIGHT), &hovers);
    svg.x_axis(x, (top, bottom), head.axis);
    svg.y_axis(y, (left, right), (top, bottom), y_axis);
    for line in lines {
        svg.begin(line.series, &line.hover);
        let points = line.points.iter().map(|point| format!("{:.1},{:.1}", x.at(point.0), y.at(point.1)));
        svg.add(format_args!(r#"<polyline class="curve" points="{}"/>"#, points.collect::<Vec<_>>().join(" ")));
        for &(at, value, sure) in &line.markers {
            svg.marker(line.series.style, (x.at(at), y.at(value)), 3.6, !sure);
        }
        svg.end();
    }
    if let Some((at, why)) = chosen {
        svg.line("chosen", (x.at(at), top), (x.at(at), bottom));
        svg.text((x.at(at), top - 3.0), "choice middle", why);
    }
    // The names stand beside the ends of the curves, moved apart where they would overlap.
    let ends = lines.iter().filter_map(|line| Some((line, line.points.last()?)));
    let mut ends: Vec<_> = ends.map(|(line, end)| (line.series, x.at(end.0), y.at(end.1))).collect();
    ends.sort_by(|a, b| a.2.total_cmp(&b.2));
    names(&mut svg, &ends);
    svg.finish()
}

/// A value with its interval.
pub type Spread = (f64, f64, f64);

/// One point of a panel of points.
#[derive(Clone, Debug)]
pub struct Point<'a> {
    /// The policy.
    pub series: Series<'a>,
    /// The tooltip.
    pub hover: String,
    /// Low end, value and high end on the x axis.
    pub x: Spread,
    /// The same on the y axis.
    pub y: Spread,
    /// Filled, or hollow if it says nothing.
    pub is_sure: bool,
}

/// A panel with a point for each policy and its intervals, on axes that are ratios: lines mark 1.
#[must_use]
pub fn points(head: &Head, (x, y): (&Scale, &Scale), y_axis: &str, points: &[Point]) -> String {
    let ((left, right), (bottom, top)) = (X_RANGE, Y_RANGE);
    let hovers: Vec<_> = points.iter().map(|point| point.hover.as_str()).collect();
    let mut svg = Svg::new("panel", head, (WIDTH, CURVES_HEIGHT), &hovers);
    svg.x_axis(x, (top, bottom), head.axis);
    svg.y_axis(y, (left, right), (top, bottom), y_axis);
    svg.line("one", (x.at(1.0), top), (x.at(1.0), bottom));
    svg.line("one", (left, y.at(1.0)), (right, y.at(1.0)));
    for Point { series, hover, x: (x_low, x_at, x_high), y: (y_low, y_at, y_high), is_sure } in points {
        svg.begin(*series, hover);
        svg.line("spread", (x.at(*x_low), y.at(*y_at)), (x.at(*x_high), y.at(*y_at)));
        svg.line("spread", (x.at(*x_at), y.at(*y_low)), (x.at(*x_at), y.at(*y_high)));
        svg.marker(series.style, (x.at(*x_at), y.at(*y_at)), 4.6, !is_sure);
        svg.end();
    }
    let mut ends: Vec<_> = points.iter().map(|point| (point.series, x.at(point.x.2), y.at(point.y.1))).collect();
    ends.sort_by(|a, b| a.2.total_cmp(&b.2));
    names(&mut svg, &ends);
    svg.finish()
}

/// The names of what ends at these places, at the right edge, moved apart where they would overlap; from top to bottom.
fn names(svg: &mut Svg, ends: &[(Series, f64, f64)]) {
    let ((_, right), (bottom, top)) = (X_RANGE, Y_RANGE);
    let places = apart(&ends.iter().map(|end| end.2).collect::<Vec<_>>(), top, bottom);
    for (&(series, end_x, end_y), place) in ends.iter().zip(places) {
        svg.begin(series, series.label);
        svg.line("leader", (end_x + 4.0, end_y), (right + 14.0, place));
        svg.marker(series.style, (right + 18.0, place), 3.2, false);
        svg.text((right + 25.0, place + 4.0), "name", series.label);
        svg.end();
    }
}

/// Moves ascending positions apart until neighbours are at least one line apart, as far as there is room.
fn apart(places: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut places = places.to_vec();
    let mut least = top;
    for place in &mut places {
        *place = place.max(least);
        least = *place + LINE;
    }
    let mut most = bottom;
    for place in places.iter_mut().rev() {
        *place = place.min(most);
        most = *place - LINE;
    }
    places
}

/// A picture as a file of its own. `width`: [`WIDTH`], or that of a [time line](crate::timeline::WIDTH).
#[must_use]
pub fn standalone(panel: &str, width: f64) -> String {
    let begin = format!(r#"<svg xmlns="http://www.w3.org/2000/svg" width="{}" "#, width.max(2.0 * WIDTH));
    // With a margin, as text may stand out where a page has room for it.
    let (size, wider) = (format!("0 0 {width} "), format!("-8 0 {} ", width + 20.0));
    let panel = panel.replacen("<svg ", &begin, 1).replacen(&size, &wider, 1);
    panel.replacen("<title>", &format!("<style>svg {{ background: var(--card) }}\n{CSS}</style><title>"), 1)
}

/// A single marker, for the list of policies.
#[must_use]
pub fn swatch(style: usize) -> String {
    let shape = shape(style, (8.0, 8.0), 5.0);
    format!(
        r#"<svg class="swatch c{style}" viewBox="0 0 16 16" aria-hidden="true"><path class="fill" d="{shape}"/></svg>"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_overlap_where_there_is_room() {
        let places = apart(&[50.0, 51.0, 52.0, 199.0], 40.0, 200.0);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= LINE - 1e-9), "{places:?}");
        assert!((places[0] - 50.0).abs() < 1e-9);
        let places = apart(&[198.0, 199.0, 200.0], 40.0, 200.0);
        assert!((places[2] - 200.0).abs() < 1e-9 && places[1] <= 187.5 + 1e-9, "{places:?}");
    }

    #[test]
    fn text_is_escaped_and_marks_have_titles() {
        let head = Head { title: "a<b", about: "", axis: "x & y" };
        let series = Series { label: "none", style: 0 };
        let mark = RowMark { series, mark: Mark::Bar(0.5), number: "0.5".into(), hover: "\"half\"".into() };
        let svg = rows(&head, &Scale::linear(1.0, ROWS_RANGE), &[mark]);
        assert!(
            svg.contains("<title>a&lt;b</title>")
                && svg.contains("x &amp; y")
                && svg.contains("<title>&quot;half&quot;</title>")
        );
        assert!(!svg.contains("a<b"));
    }
}
