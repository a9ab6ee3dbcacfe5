//! Parameters and errors as texts.

use coalesce::budget::*;
use coalesce::cint::*;
use coalesce::error::*;
use coalesce::field::*;
use coalesce::reason::*;
use coalesce::stats::*;
use coalesce::status::*;
use coalesce::text::*;
use coalesce::vic::*;
use std::ffi::{CStr, CString, c_char};
use std::mem::zeroed;
use std::ptr::{null, null_mut};

const HZ: u64 = 1_000_000_000;

/// The output of a function that prints.
fn printed(print: impl Fn(*mut c_char, usize) -> usize) -> String {
    let length = print(null_mut(), 0);
    let mut text = vec![0x55_u8; length + 1];
    assert_eq!(print(text.as_mut_ptr().cast(), text.len()), length);
    let whole = CString::from_vec_with_nul(text).expect("a zero at its end only").into_string().expect("UTF-8");
    if length > 3 {
        let mut cut = [0x55_u8; 4];
        assert_eq!(print(cut.as_mut_ptr().cast(), 4), length, "the length of the whole text");
        assert_eq!(cut, [whole.as_bytes()[0], whole.as_bytes()[1], whole.as_bytes()[2], 0]);
    }
    whole
}

type Parse<C> = unsafe extern "C" fn(*const c_char, u64, *mut C, usize, *mut c_char, usize) -> coalesce_status;

fn parsed<C>(parse: Parse<C>, text: &str) -> Result<C, String> {
    let text = CString::new(text).expect("no zero");
    let mut message = [0_u8; 200];
    // SAFETY: all of it is ours, and zeroes are such a configuration.
    unsafe {
        let mut config = zeroed::<C>();
        let (out, size) = (&raw mut config, size_of::<C>());
        match parse(text.as_ptr(), HZ, out, size, message.as_mut_ptr().cast(), message.len()) {
            COALESCE_OK => Ok(config),
            COALESCE_E_CONFIG => Err(CStr::from_bytes_until_nul(&message).expect("a text").to_string_lossy().into()),
            status => panic!("status {status}"),
        }
    }
}

fn vic(text: &str) -> Result<coalesce_vic_config, String> {
    parsed(coalesce_vic_config_parse, text)
}

fn cint(text: &str) -> Result<coalesce_cint_config, String> {
    parsed(coalesce_cint_config_parse, text)
}

fn budget(text: &str) -> Result<coalesce_budget_config, String> {
    parsed(coalesce_budget_config_parse, text)
}

#[test]
fn a_parsed_text_is_printed_in_the_same_form() {
    for text in ["vic", "vic:profile=paper", "vic:cif_threshold=2,epoch=100ms", "vic:max_hold=off"] {
        let config = vic(text).expect(text);
        // SAFETY: all of it is ours.
        assert_eq!(printed(|out, size| unsafe { coalesce_vic_config_print(&raw const config, out, size) }), text);
    }
    for text in ["cint", "cint:profile=p3700", "cint:delta=20us,thr=8,ooo=off,storm=100000,storm_shift=5,in_flight=off"]
    {
        let config = cint(text).expect(text);
        // SAFETY: all of it is ours.
        assert_eq!(printed(|out, size| unsafe { coalesce_cint_config_print(&raw const config, out, size) }), text);
    }
}

#[test]
fn a_parsed_budget_is_printed_in_the_same_form() {
    for text in ["budget", "budget:budget=12.5%", "budget:max_hold=20us,thr=8,ooo=on,storm=100000,storm_shift=5"] {
        let config = budget(text).expect(text);
        // SAFETY: all of it is ours.
        assert_eq!(printed(|out, size| unsafe { coalesce_budget_config_print(&raw const config, out, size) }), text);
    }
    for (text, problem) in [
        ("auto", "not a budget policy"),
        ("budget:hints=all", "set by the program"),
        ("budget:budget=51%", "allowed: 0.01% to 50%"),
    ] {
        let message = budget(text).expect_err(text);
        assert!(message.contains(problem), "{text}: {message}");
    }
}

#[test]
fn defaults_by_text_and_by_function_agree() {
    // SAFETY: all of it is ours.
    unsafe {
        let mut config = zeroed::<coalesce_vic_config>();
        coalesce_vic_config_default(&raw mut config, size_of::<coalesce_vic_config>(), HZ);
        assert_eq!(vic("vic"), Ok(config));
        coalesce_vic_config_paper(&raw mut config, size_of::<coalesce_vic_config>(), HZ);
        assert_eq!(vic("vic:profile=paper"), Ok(config));
        let mut config = zeroed::<coalesce_cint_config>();
        coalesce_cint_config_default(&raw mut config, size_of::<coalesce_cint_config>(), HZ);
        assert_eq!(cint("cint"), Ok(config));
        coalesce_cint_config_p3700(&raw mut config, size_of::<coalesce_cint_config>(), HZ);
        assert_eq!(cint("cint:profile=p3700"), Ok(config));
        let mut config = zeroed::<coalesce_budget_config>();
        coalesce_budget_config_default(&raw mut config, size_of::<coalesce_budget_config>(), HZ);
        assert_eq!(budget("budget"), Ok(config));
    }
}

#[test]
fn an_invalid_text_gives_the_reason() {
    for (text, problem) in [
        ("", "unknown policy"),
        ("cint", "not a vic policy"),
        ("vic:epoch=100", "has no unit"),
        ("vic:cif_threshold=1", "allowed: 2 to 65535"),
    ] {
        let message = vic(text).expect_err(text);
        assert!(message.contains(problem), "{text}: {message}");
    }
    for (text, problem) in [
        ("vic", "not a cint policy"),
        ("auto", "not a cint policy"),
        ("cint:barrier=strict", "set by the program"),
        ("cint:storm=1000,max_hold=1us", "with storm=1000; allowed: 1ms to 500ms"),
    ] {
        let message = cint(text).expect_err(text);
        assert!(message.contains(problem), "{text}: {message}");
    }
    // SAFETY: all of it is ours.
    unsafe {
        let mut config = zeroed::<coalesce_vic_config>();
        let (out, size) = (&raw mut config, size_of::<coalesce_vic_config>());
        assert_eq!(coalesce_vic_config_parse(null(), HZ, out, size, null_mut(), 0), COALESCE_E_NULL);
        assert_eq!(coalesce_vic_config_parse(c"vic".as_ptr(), HZ, null_mut(), size, null_mut(), 0), COALESCE_E_NULL);
        assert_eq!(coalesce_vic_config_parse(c"vic".as_ptr(), HZ, out, size - 1, null_mut(), 0), COALESCE_E_SIZE);
        assert_eq!(coalesce_vic_config_parse(c"vic".as_ptr(), 1, out, size, null_mut(), 0), COALESCE_E_CONFIG);
        assert_eq!(coalesce_vic_config_parse(c"\xff".as_ptr(), HZ, out, size, null_mut(), 0), COALESCE_E_CONFIG);
        assert_eq!(coalesce_vic_config_print(null(), null_mut(), 0), 0);
        config.cif_threshold = 1;
        assert_eq!(coalesce_vic_config_print(&raw const config, null_mut(), 0), 0);
    }
}

#[test]
fn an_error_is_a_sentence() {
    let sentence = |field, value, min, max| {
        let because = if field == COALESCE_FIELD_MAX_HOLD_NS { COALESCE_FIELD_STORM_MAX_RATE } else { 0 };
        let error = coalesce_error { field, because, value, min, max, because_value: 5 };
        // SAFETY: all of it is ours.
        printed(|out, size| unsafe { coalesce_error_print(&raw const error, out, size) })
    };
    assert_eq!(sentence(COALESCE_FIELD_THR, 0, 1, 65_535), "thr is 0; allowed: 1 to 65535");
    assert_eq!(sentence(COALESCE_FIELD_RESERVED, 7, 0, 0), "reserved is 7; allowed: 0");
    assert_eq!(sentence(COALESCE_FIELD_COMMANDS, 7, 64, 4096), "commands is 7; allowed: powers of two from 64 to 4096");
    assert_eq!(
        sentence(COALESCE_FIELD_MAX_HOLD_NS, 10, 1000, 2000),
        "max_hold_ns is 10; allowed: 1000 to 2000 where storm_max_rate is 5"
    );
    assert_eq!(sentence(99, 7, 0, 1), "unknown is 7; allowed: 0 to 1");
    // SAFETY: null is allowed.
    assert_eq!(unsafe { coalesce_error_print(null(), null_mut(), 0) }, 0);
}

/// Whatever of it fits into the machine's field.
#[test]
fn an_error_has_the_value_that_was_given() {
    for storm_shift in [4, 17, 255, 256, 300, 65_535, 65_536, u32::MAX] {
        let mut error = coalesce_error { field: 0, because: 0, value: 0, min: 0, max: 0, because_value: 0 };
        // SAFETY: all of it is ours, and zeroes are such a configuration and such a state.
        let status = unsafe {
            let (mut config, mut state) = (zeroed::<coalesce_cint_config>(), zeroed::<coalesce_cint_state>());
            coalesce_cint_config_default(&raw mut config, size_of_val(&config), HZ);
            (config.storm_max_rate, config.storm_shift) = (100_000, storm_shift);
            coalesce_cint_init(&raw mut state, size_of_val(&state), &raw const config, &raw mut error)
        };
        assert_eq!(
            (status, error.field, error.value),
            (COALESCE_E_CONFIG, COALESCE_FIELD_STORM_SHIFT, storm_shift.into())
        );
    }
}

#[test]
fn decisions_are_counted_by_their_reason() {
    let mut stats = coalesce_stats { decisions: [0; 64] };
    let size = size_of::<coalesce_stats>();
    stats.decisions[COALESCE_REASON_COUNT as usize] = u64::MAX;
    // SAFETY: all of it is ours.
    unsafe {
        for reason in [COALESCE_REASON_HOLD_BURST, COALESCE_REASON_HOLD_BURST, COALESCE_REASON_COUNT, 64, u32::MAX] {
            assert_eq!(coalesce_stats_count(&raw mut stats, size, reason), COALESCE_OK);
        }
        assert_eq!(coalesce_stats_count(&raw mut stats, size - 8, 1), COALESCE_E_SIZE);
        assert_eq!(coalesce_stats_count(null_mut(), size, 1), COALESCE_E_NULL);
    }
    assert_eq!(stats.decisions[COALESCE_REASON_HOLD_BURST as usize], 2);
    assert_eq!(stats.decisions[COALESCE_REASON_COUNT as usize], u64::MAX);
    assert_eq!(stats.decisions[COALESCE_REASON_NONE as usize], 2);
    assert_eq!(stats.decisions.iter().filter(|count| **count > 0).count(), 3);
}
