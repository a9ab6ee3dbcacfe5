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
