//! What of the demonstration is free of disks and clocks: how noisy turns are compared.

#![forbid(unsafe_code)]

pub mod paired;
