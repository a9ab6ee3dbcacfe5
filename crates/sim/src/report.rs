//! What was found, for people and for other programs.

pub mod text;
