//! A device takes over what another left: a ring, and a record of requests in flight with anything in it. What the record
//! has is taken again, oldest first and once; the record then follows what is taken and answered, across any number of
//! restarts; and the guest of `chains.rs` does its worst meanwhile.
#![no_main]

mod guest;
mod ring;

use libfuzzer_sys::fuzz_target;
use ring::{Host, Input, Record, run};

thread_local!(static HOST: Host = Host::default());

fuzz_target!(|input: (Record, Input)| HOST.with(|host| run(host, &input.1, Some(&input.0))));
