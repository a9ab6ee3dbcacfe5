//! What of the demonstration is free of disks and clocks: how noisy turns are compared, and shown.

#![forbid(unsafe_code)]

pub mod paired;
pub mod table;
