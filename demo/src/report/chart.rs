//! Pictures: SVG by hand, so that text is text, colours follow the page, and every mark says its numbers when pointed at.
//!
//! Every panel is as wide as a phone, and a page lays out as many beside each other as fit. So letters keep their size.

use std::fmt::{Display, Write as _};

use super::html::escape;
use super::scale::Scale;

/// Width of a panel, in its own units (about CSS pixels).
const WIDTH: f64 = 360.0;
/// Where rows begin: below title and explanation.
const TOP: f64 = 46.0;
/// Height of one row of a panel of rows.
const ROW: f64 = 21.0;
/// Room for ticks and the axis label.
const BOTTOM: f64 = 38.0;
/// Room for names to the left of rows.
const NAMES: f64 = 74.0;
/// Room for numbers to the right of rows.
const NUMBERS: f64 = 50.0;
/// Smallest distance between two lines of text.
const LINE: f64 = 12.5;

/// What is written around a panel.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// In bold.
    pub title: &'a str,
    /// Below the title.
    pub about: &'a str,
    /// What the x axis shows, with its unit.
    pub axis: &'a str,
}

/// A policy in a picture.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// Its label.
    pub label: &'a str,
    /// Number of its colour and marker.
    pub style: usize,
}

/// One line of a panel of rows.
#[derive(Clone, Debug)]
pub struct RowMark<'a> {
    /// Whose it is.
    pub series: Series<'a>,
    /// What is drawn.
    pub mark: Mark,
    /// The number to the right.
    pub number: String,
    /// Shown when pointed at.
    pub hover: String,
}

/// What is drawn in a row.
#[derive(Clone, Debug)]
pub enum Mark {
    /// A bar from zero.
    Bar(f64),
    /// A point with the spread of single rounds, on a line from 1.
    Ratio {
        /// The point.
        value: f64,
        /// From and to.
        spread: (f64, f64),
    },
    /// Percentiles: small, filled, hollow.
    Percentiles(Vec<f64>),
}

/// Where the x axis of rows lies.
pub const ROWS_RANGE: (f64, f64) = (NAMES, WIDTH - NUMBERS);

/// A panel with one row per policy.
pub fn rows(head: &Head, x: &Scale, rows: &[RowMark]) -> String {
    let bottom = TOP + ROW * rows.len() as f64;
    let numbers: Vec<_> = rows.iter().map(|row| row.hover.as_str()).collect();
    let mut svg = Svg::new(head, bottom + BOTTOM, &numbers);
    svg.x_axis(x, (TOP - 4.0, bottom), head.axis);
    let one = matches!(rows.first(), Some(RowMark { mark: Mark::Ratio { .. }, .. }));
    if one {
        svg.line("one", (x.at(1.0), TOP - 4.0), (x.at(1.0), bottom));
    }
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        svg.begin(row.series, &row.hover);
        // Invisible, so that pointing anywhere at the row will do.
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
    /// Whose it is.
    pub series: Series<'a>,
    /// Percentile, value, and whether many requests are behind it.
    pub points: Vec<(f64, f64, bool)>,
}

/// Height of a panel with curves.
const CURVES_HEIGHT: f64 = 250.0;
/// Where its axes lie.
const CURVES: (f64, f64, f64, f64) = (52.0, WIDTH - 66.0, TOP + 6.0, CURVES_HEIGHT - BOTTOM);

/// A panel with latency over percentiles; `marked` are the percentiles that get a marker.
pub fn curves(head: &Head, y_axis: &str, marked: &[f64], curves: &[Curve]) -> String {
    let (left, right, top, bottom) = CURVES;
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let (low, high) = all().fold((f64::MAX, f64::MIN), |(low, high), p| (low.min(p.1), high.max(p.1)));
    let last = all().map(|point| point.0).fold(50.0, f64::max);
    let x = Scale::nines(last, (left, right));
    let y = Scale::log(low, high, (bottom, top));
    let is_marked = |percent: f64| marked.iter().any(|mark| mark.total_cmp(&percent).is_eq());
    let numbers = |curve: &Curve| {
        let points = curve.points.iter().filter(|point| is_marked(point.0));
        let points = points.map(|(percent, value, _)| format!("p{percent} {value:.1} µs"));
        format!("{}: {}", curve.series.label, points.collect::<Vec<_>>().join(", "))
    };
    let hovers: Vec<_> = curves.iter().map(numbers).collect();
    let mut svg = Svg::new(head, CURVES_HEIGHT, &hovers);
    svg.x_axis(&x, (top, bottom), head.axis);
    svg.y_axis(&y, (left, right), y_axis);
    for (curve, hover) in curves.iter().zip(&hovers) {
        svg.begin(curve.series, hover);
        let line = curve.points.iter().map(|point| format!("{:.1},{:.1}", x.at(point.0), y.at(point.1)));
        svg.add(format_args!(r#"<polyline class="curve" points="{}"/>"#, line.collect::<Vec<_>>().join(" ")));
        for &(percent, value, sure) in &curve.points {
            if is_marked(percent) {
                svg.marker(curve.series.style, (x.at(percent), y.at(value)), 3.6, !sure);
            }
        }
        svg.end();
    }
    // Names beside the ends of the curves, moved apart where these meet.
    let ends = curves.iter().filter_map(|curve| Some((curve, curve.points.last()?)));
    let mut ends: Vec<_> = ends.map(|(curve, end)| (curve.series, x.at(end.0), y.at(end.1))).collect();
    ends.sort_by(|a, b| a.2.total_cmp(&b.2));
    let places = apart(&ends.iter().map(|end| end.2).collect::<Vec<_>>(), top, bottom);
    for ((series, end_x, end_y), place) in ends.into_iter().zip(places) {
        svg.begin(series, series.label);
        svg.line("leader", (end_x + 4.0, end_y), (right + 14.0, place));
        svg.marker(series.style, (right + 18.0, place), 3.2, false);
        svg.text((right + 25.0, place + 4.0), "name", series.label);
        svg.end();
    }
    svg.finish()
}

/// Moves ascending places apart until none is nearer to the next than a line, as far as there is room.
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

/// A marker alone, for the list of policies.
pub fn swatch(style: usize) -> String {
    let shape = shape(style, (8.0, 8.0), 5.0);
    format!(
        r#"<svg class="swatch c{style}" viewBox="0 0 16 16" aria-hidden="true"><path class="fill" d="{shape}"/></svg>"#
    )
}

/// The outline of a style's marker: shapes differ too, not only colours.
fn shape(style: usize, (x, y): (f64, f64), r: f64) -> String {
    let polygon = |points: &[(f64, f64)]| {
        let points = points.iter().map(|(dx, dy)| format!("{:.1} {:.1}", x + dx * r, y + dy * r));
        format!("M{}Z", points.collect::<Vec<_>>().join("L"))
    };
    match style % 6 {
        0 => format!("M{:.1} {y:.1}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z", x - r, d = 2.0 * r),
        1 => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => polygon(&[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)]),
        3 => polygon(&[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)]),
        4 => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        _ => polygon(&[(-1.2, -0.6), (0.0, -1.2), (1.2, -0.6), (1.2, 0.6), (0.0, 1.2), (-1.2, 0.6)]),
    }
}

/// A picture being written. Writing to a String cannot fail, so errors are not looked at.
struct Svg {
    text: String,
}

impl Svg {
    /// `numbers`: what is drawn, in words, for those who do not see it.
    fn new(head: &Head, height: f64, numbers: &[impl AsRef<str>]) -> Self {
        let Head { title, about, axis } = head;
        let numbers = numbers.iter().map(AsRef::as_ref).collect::<Vec<_>>().join("; ");
        let mut svg = Self { text: format!(r#"<svg class="panel" viewBox="0 0 {WIDTH} {height}" role="img">"#) };
        svg.add(format_args!("<title>{}</title>", escape(title)));
        svg.add(format_args!("<desc>{}</desc>", escape(&format!("{about}; {axis}. {numbers}"))));
        svg.text((0.0, 15.0), "title", head.title);
        svg.text((0.0, 31.0), "about", head.about);
        svg
    }

    fn add(&mut self, what: impl Display) {
        let _ = write!(self.text, "{what}");
    }

    fn begin(&mut self, series: Series, hover: &str) {
        self.add(format_args!(r#"<g class="c{}"><title>{}</title>"#, series.style, escape(hover)));
    }

    fn end(&mut self) {
        self.add("</g>");
    }

    fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        self.add(format_args!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, escape(text)));
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.add(format_args!(r#"<path class="{class}" d="M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}"/>"#));
    }

    fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        self.add(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        ));
    }

    fn marker(&mut self, style: usize, at: (f64, f64), r: f64, hollow: bool) {
        let class = if hollow { "hollow" } else { "fill" };
        self.add(format_args!(r#"<path class="{class}" d="{}"/>"#, shape(style, at, r)));
    }

    fn x_axis(&mut self, x: &Scale, (top, bottom): (f64, f64), label: &str) {
        for (value, text) in &x.ticks {
            self.line("grid", (x.at(*value), top), (x.at(*value), bottom));
            self.text((x.at(*value), bottom + 14.0), "tick middle", text);
        }
        self.text((WIDTH / 2.0, bottom + 31.0), "axis middle", label);
    }

    fn y_axis(&mut self, y: &Scale, (left, right): (f64, f64), label: &str) {
        for (value, text) in &y.ticks {
            self.line("grid", (left, y.at(*value)), (right, y.at(*value)));
            self.text((left - 6.0, y.at(*value) + 4.0), "tick end", text);
        }
        let (x, y) = (10.0, f64::midpoint(CURVES.2, CURVES.3));
        let label = escape(label);
        self.add(format_args!(
            r#"<text class="axis middle" x="{x}" y="{y}" transform="rotate(-90 {x} {y})">{label}</text>"#
        ));
    }

    fn finish(mut self) -> String {
        self.add("</svg>\n");
        self.text
    }
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
