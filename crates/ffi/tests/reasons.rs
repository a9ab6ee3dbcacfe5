//! The cores' reasons have the numbers and names of the header.

use coalesce::status::coalesce_reason_name;
use std::ffi::CStr;

fn name(number: u8) -> &'static str {
    // SAFETY: it answers with a text that stays.
    unsafe { CStr::from_ptr(coalesce_reason_name(number.into())) }.to_str().unwrap()
}

macro_rules! check {
    ($($reason:path),+ $(,)?) => { $(assert_eq!(name($reason as u8), $reason.name());)+ };
}

#[test]
fn of_vic() {
    use vic_core::{HoldReason, Reason};
    check!(Reason::MaxHold, Reason::SliceEnd, Reason::LowCif, Reason::Ratio, Reason::Always, Reason::LiveClamp);
    check!(Reason::Flush, Reason::Schedule, Reason::Deschedule);
    check!(HoldReason::Ratio, HoldReason::NothingHeld, HoldReason::Early, HoldReason::Reconfigured);
}

#[test]
fn of_cint() {
    use cint_core::{HoldReason, Reason};
    check!(
        Reason::Delta,
        Reason::MaxHold,
        Reason::Storm,
        Reason::Error,
        Reason::Barrier,
        Reason::Urgent,
        Reason::Count
    );
    check!(Reason::InFlight, Reason::BatchEnd, Reason::Flush);
    check!(HoldReason::Burst, HoldReason::Storm, HoldReason::NothingHeld, HoldReason::Early);
    check!(HoldReason::Reconfigured, HoldReason::Cancelled);
}
