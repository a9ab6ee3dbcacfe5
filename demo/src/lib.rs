//! What the demonstration and `coalesce-compare` share: how turns are compared, and shown.

#![forbid(unsafe_code)]

pub mod figure;
pub mod json;
pub mod machine;
pub mod paired;
pub mod redraw;
pub mod table;
