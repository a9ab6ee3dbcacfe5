//! The reasons and parameters of the Rust crates have the numbers and names of the header.

use coalesce::field::*;
use coalesce::reason::*;
use coalesce_decision::{Field, HoldReason, Reason};
use std::ffi::CStr;

#[test]
fn each_number_of_a_reason_has_its_name() {
    // SAFETY: it answers with a text that stays.
    let name = |number: u32| unsafe { CStr::from_ptr(coalesce_reason_name(number)) }.to_str().unwrap();
    for &reason in Reason::ALL {
        assert_eq!(name(reason as u32), reason.name());
    }
    for &reason in HoldReason::ALL {
        assert_eq!(name(reason as u32), reason.name());
    }
    assert_eq!((name(COALESCE_REASON_NONE), name(27), name(u32::MAX)), ("none", "unknown", "unknown"));
}

macro_rules! check {
    ($($rust:expr => $c:expr),+ $(,)?) => { $(assert_eq!($rust as u32, $c, stringify!($rust));)+ };
}

#[test]
fn the_header_has_the_numbers_of_reasons() {
    check!(
        HoldReason::Probe => COALESCE_REASON_HOLD_PROBE,
        HoldReason::Licensed => COALESCE_REASON_HOLD_LICENSED,
        Reason::MaxHold => COALESCE_REASON_MAX_HOLD,
        Reason::SliceEnd => COALESCE_REASON_SLICE_END,
        Reason::LowCif => COALESCE_REASON_LOW_CIF,
        Reason::Ratio => COALESCE_REASON_RATIO,
        Reason::Always => COALESCE_REASON_ALWAYS,
        Reason::LiveClamp => COALESCE_REASON_LIVE_CLAMP,
        Reason::Flush => COALESCE_REASON_FLUSH,
        Reason::Schedule => COALESCE_REASON_SCHEDULE,
        Reason::Deschedule => COALESCE_REASON_DESCHEDULE,
        Reason::Delta => COALESCE_REASON_DELTA,
        Reason::Storm => COALESCE_REASON_STORM,
        Reason::Error => COALESCE_REASON_ERROR,
        Reason::Barrier => COALESCE_REASON_BARRIER,
        Reason::Urgent => COALESCE_REASON_URGENT,
        Reason::Count => COALESCE_REASON_COUNT,
        Reason::InFlight => COALESCE_REASON_IN_FLIGHT,
        Reason::BatchEnd => COALESCE_REASON_BATCH_END,
        Reason::Time => COALESCE_REASON_TIME,
        Reason::LeadingEdge => COALESCE_REASON_LEADING_EDGE,
        Reason::Disabled => COALESCE_REASON_DISABLED,
        Reason::Admin => COALESCE_REASON_ADMIN,
        Reason::Budget => COALESCE_REASON_BUDGET,
        Reason::Silence => COALESCE_REASON_SILENCE,
        Reason::Slowdown => COALESCE_REASON_SLOWDOWN,
        HoldReason::Ratio => COALESCE_REASON_HOLD_RATIO,
        HoldReason::NothingHeld => COALESCE_REASON_HOLD_NOTHING_HELD,
        HoldReason::Early => COALESCE_REASON_HOLD_EARLY,
        HoldReason::Reconfigured => COALESCE_REASON_HOLD_RECONFIGURED,
        HoldReason::Burst => COALESCE_REASON_HOLD_BURST,
        HoldReason::Storm => COALESCE_REASON_HOLD_STORM,
        HoldReason::Cancelled => COALESCE_REASON_HOLD_CANCELLED,
        HoldReason::Aggregate => COALESCE_REASON_HOLD_AGGREGATE,
        HoldReason::Batch => COALESCE_REASON_HOLD_BATCH,
        HoldReason::Company => COALESCE_REASON_HOLD_COMPANY,
    );
}

#[test]
fn the_header_has_the_numbers_of_parameters() {
    check!(
        Field::TickHz => COALESCE_FIELD_TICK_HZ,
        Field::CifThreshold => COALESCE_FIELD_CIF_THRESHOLD,
        Field::Epoch => COALESCE_FIELD_EPOCH_NS,
        Field::MaxSkip => COALESCE_FIELD_MAX_SKIP,
        Field::MaxHold => COALESCE_FIELD_MAX_HOLD_NS,
        Field::Margin => COALESCE_FIELD_MARGIN_NS,
        Field::IpiThreshold => COALESCE_FIELD_IPI_THRESHOLD_NS,
        Field::Delta => COALESCE_FIELD_DELTA_NS,
        Field::Thr => COALESCE_FIELD_THR,
        Field::StormMaxRate => COALESCE_FIELD_STORM_MAX_RATE,
        Field::StormShift => COALESCE_FIELD_STORM_SHIFT,
        Field::InFlight => COALESCE_FIELD_IN_FLIGHT,
        Field::Budget => COALESCE_FIELD_BUDGET,
        Field::Barrier => 22, // C has no such parameter
    );
}
