//! Reports that are one file: figures as SVG, HTML and CSS around them; nothing from elsewhere, no script.
//!
//! Text is text, colours follow the page (light, dark, print), and every mark says its numbers when pointed at. A policy has
//! the same colour and marker everywhere ([`series::styles`]).

#![forbid(unsafe_code)]

pub mod chart;
pub mod html;
pub mod scale;
pub mod series;
mod svg;
pub mod timeline;

/// The style of a page.
pub const CSS: &str = include_str!("page.css");
