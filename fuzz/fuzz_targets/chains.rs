//! A guest writes anything into its ring, its descriptors and its requests, while the device takes and answers them: no
//! panic, no byte outside guest memory or the disk, no request that the disk does not allow, and one answer each.
#![no_main]

mod guest;
mod ring;

use libfuzzer_sys::fuzz_target;
use ring::{Host, Input, run};

thread_local!(static HOST: Host = Host::default());

fuzz_target!(|input: Input| HOST.with(|host| run(host, &input, None)));
