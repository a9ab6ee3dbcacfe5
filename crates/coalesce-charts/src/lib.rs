//! Reports in a single file: SVG figures within HTML and CSS, without scripts and external resources.
//!
//! Text stays selectable, colours follow the page (light, dark, print), and every mark has a tooltip with its numbers.
//! A policy has the same colour and marker everywhere ([`series::styles`]).

#![forbid(unsafe_code)]

pub mod chart;
pub mod html;
pub mod scale;
pub mod series;
mod svg;
pub mod timeline;

/// The style of a page.
pub const CSS: &str = include_str!("page.css");

/// A count with its noun, which has an "s" unless there is one.
///
/// ```
/// # use coalesce_charts::counted;
/// assert_eq!([0_u64, 1, 2].map(|count| counted(count, "queue")), ["0 queues", "1 queue", "2 queues"]);
/// ```
#[must_use]
pub fn counted(count: impl Into<u64>, noun: &str) -> String {
    match count.into() {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}
