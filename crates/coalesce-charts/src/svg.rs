//! Writes SVG.

use crate::html::escape;
use crate::scale::Scale;
use crate::series::Series;
use std::fmt::{Display, Write as _};

/// The top of a panel's marks, below title and explanation.
pub const TOP: f64 = 46.0;
/// Room for ticks and the axis label.
pub const BOTTOM: f64 = 38.0;

/// The texts around a panel.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The title, in bold.
    pub title: &'a str,
    /// The explanation below the title.
    pub about: &'a str,
    /// The label of the x axis, with its unit.
    pub axis: &'a str,
}

/// The outline of a style's marker. Styles differ in shape as well as in colour.
pub fn shape(style: usize, (x, y): (f64, f64), r: f64) -> String {
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

/// An SVG that is being written. Writing to a String cannot fail, so errors are ignored.
pub struct Svg {
    text: String,
    width: f64,
}

impl Svg {
    /// Begins an SVG. `numbers` describes the marks for screen readers.
    pub fn new(class: &str, head: &Head, (width, height): (f64, f64), numbers: &[impl AsRef<str>]) -> Self {
        let Head { title, about, axis } = head;
        let numbers = numbers.iter().map(AsRef::as_ref).collect::<Vec<_>>().join("; ");
        let text = format!(r#"<svg class="{class}" viewBox="0 0 {width} {height}" role="img">"#);
        let mut svg = Self { text, width };
        svg.add(format_args!("<title>{}</title>", escape(title)));
        svg.add(format_args!("<desc>{}</desc>", escape(&format!("{about}; {axis}. {numbers}"))));
        svg.text((0.0, 15.0), "title", head.title);
        svg.text((0.0, 31.0), "about", head.about);
        svg
    }

    pub fn add(&mut self, what: impl Display) {
        let _ = write!(self.text, "{what}");
    }

    pub fn begin(&mut self, series: Series, hover: &str) {
        self.add(format_args!(r#"<g class="c{}"><title>{}</title>"#, series.style, escape(hover)));
    }

    pub fn end(&mut self) {
        self.add("</g>");
    }

    pub fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        self.add(format_args!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, escape(text)));
    }

    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.add(format_args!(r#"<path class="{class}" d="M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}"/>"#));
    }

    pub fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        self.add(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        ));
    }

    pub fn dot(&mut self, (x, y): (f64, f64), r: f64) {
        self.add(format_args!(r#"<circle class="dot" cx="{x:.1}" cy="{y:.1}" r="{r}"/>"#));
    }

    pub fn marker(&mut self, style: usize, at: (f64, f64), r: f64, hollow: bool) {
        let class = if hollow { "hollow" } else { "fill" };
        self.add(format_args!(r#"<path class="{class}" d="{}"/>"#, shape(style, at, r)));
    }

    pub fn x_axis(&mut self, x: &Scale, (top, bottom): (f64, f64), label: &str) {
        for (value, text) in &x.ticks {
            self.line("grid", (x.at(*value), top), (x.at(*value), bottom));
            self.text((x.at(*value), bottom + 14.0), "tick middle", text);
        }
        self.text((self.width / 2.0, bottom + 31.0), "axis middle", label);
    }

    pub fn y_axis(&mut self, y: &Scale, (left, right): (f64, f64), (top, bottom): (f64, f64), label: &str) {
        for (value, text) in &y.ticks {
            self.line("grid", (left, y.at(*value)), (right, y.at(*value)));
            self.text((left - 6.0, y.at(*value) + 4.0), "tick end", text);
        }
        let (x, y) = (10.0, f64::midpoint(top, bottom));
        let label = escape(label);
        self.add(format_args!(
            r#"<text class="axis middle" x="{x}" y="{y}" transform="rotate(-90 {x} {y})">{label}</text>"#
        ));
    }

    pub fn finish(mut self) -> String {
        self.add("</svg>\n");
        self.text
    }
}
