//! Texts, on hosts: parameters in their text form, and errors as sentences.

use crate::budget::coalesce_budget_config;
use crate::cint::coalesce_cint_config;
use crate::error::coalesce_error;
use crate::field::{COALESCE_FIELD_COMMANDS, coalesce_field_name};
use crate::status::*;
use crate::tagged::read_config;
use crate::vic::coalesce_vic_config;
use coalesce_policy::{BudgetSpec, CintSpec, HintSpec, Spec};
use core::ffi::{CStr, c_char};
use core::fmt::Display;
use std::borrow::Cow;
use std::boxed::Box;
use std::error::Error;
use std::format;
use std::string::{String, ToString};

/// Writes as much of a text as fits, with a terminating zero. Returns the length of the whole text without the zero.
///
/// # Safety
/// `out` is null, or points to `size` bytes.
pub(crate) unsafe fn write_text(out: *mut c_char, size: usize, text: &dyn Display) -> usize {
    let text = text.to_string();
    if !out.is_null() && size > 0 {
        let mut end = text.len().min(size - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        // SAFETY: `end` bytes and the zero fit.
        unsafe {
            out.copy_from_nonoverlapping(text.as_ptr().cast(), end);
            out.add(end).write(0);
        }
    }
    text.len()
}

/// Reads a text; null is an error.
///
/// # Safety
/// `text` is null, or a zero-terminated text.
pub(crate) unsafe fn read_text<'a>(text: *const c_char) -> Result<Cow<'a, str>, Box<dyn Error>> {
    if text.is_null() {
        return Err("no text: the pointer is null".into());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// Writes an error as a sentence, such as "thr is 0; allowed: 1 to 65535". Returns the length of the whole sentence, as
/// `snprintf` does; 0: `error` is null, or names no parameter, and `text` is empty.
///
/// # Safety
/// `error` is null or points to a `coalesce_error`; `text` is null or points to `text_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_error_print(
    error: *const coalesce_error,
    text: *mut c_char,
    text_size: usize,
) -> usize {
    // SAFETY: the caller's promise; any bytes are such an error.
    let error = (!error.is_null()).then(|| unsafe { error.read_unaligned() }).filter(|error| error.field != 0);
    let Some(coalesce_error { field, because, value, min, max, because_value }) = error else {
        // SAFETY: the caller's promise.
        return unsafe { write_text(text, text_size, &"") };
    };
    // SAFETY: it is a text of this library.
    let name = unsafe { CStr::from_ptr(coalesce_field_name(field)) }.to_string_lossy();
    let allowed = match field {
        COALESCE_FIELD_COMMANDS => format!("allowed: powers of two from {min} to {max}"),
        _ if min == max => format!("allowed: {min}"),
        _ => format!("allowed: {min} to {max}"),
    };
    // SAFETY: it is a text of this library.
    let other = unsafe { CStr::from_ptr(coalesce_field_name(because)) }.to_string_lossy();
    let reason = if because == 0 { String::new() } else { format!(" where {other} is {because_value}") };
    // SAFETY: the caller's promise.
    unsafe { write_text(text, text_size, &format_args!("{name} is {value}; {allowed}{reason}")) }
}

/// Parses a text into a configuration for a clock of `tick_hz`.
///
/// # Safety
/// As `coalesce_vic_config_parse`.
unsafe fn parse<C>(
    text: *const c_char,
    tick_hz: u64,
    config: *mut C,
    config_size: usize,
    message: *mut c_char,
    message_size: usize,
    read: impl FnOnce(Spec) -> Result<C, String>,
) -> coalesce_status {
    if text.is_null() || config.is_null() {
        return COALESCE_E_NULL;
    }
    if config_size != size_of::<C>() {
        return COALESCE_E_SIZE;
    }
    // SAFETY: the caller's promise.
    let spec = unsafe { read_text(text) }.and_then(|text| Ok(Spec::parse(&text, tick_hz)?));
    match spec.and_then(|spec| Ok(read(spec)?)) {
        Ok(value) => {
            // SAFETY: the caller's promise.
            unsafe { config.write_unaligned(value) };
            COALESCE_OK
        }
        Err(problem) => {
            // SAFETY: the caller's promise.
            unsafe { write_text(message, message_size, &problem) };
            COALESCE_E_CONFIG
        }
    }
}

/// Parses parameters such as "vic", "vic:profile=paper" or "vic:cif_threshold=2,epoch=100ms", for a clock of `tick_hz`
/// ticks per second. On `COALESCE_E_CONFIG`, `message` has the reason as a sentence; it may be null.
///
/// # Safety
/// `text` is null or a zero-terminated text; `config` is null or points to `config_size` bytes; `message` is null or
/// points to `message_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_config_parse(
    text: *const c_char,
    tick_hz: u64,
    config: *mut coalesce_vic_config,
    config_size: usize,
    message: *mut c_char,
    message_size: usize,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        parse(text, tick_hz, config, config_size, message, message_size, |spec| match spec {
            Spec::Vic(params) => Ok(coalesce_vic_config::new(&params, tick_hz)),
            _ => Err(format!("{spec}: not a vic policy")),
        })
    }
}

/// Parses parameters such as "cint", "cint:profile=p3700" or "cint:delta=6us,thr=32", as `coalesce_vic_config_parse`
/// does. The keys `barrier` and `hints` are not parameters of the machine, so only their defaults are accepted.
///
/// # Safety
/// As `coalesce_vic_config_parse`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_config_parse(
    text: *const c_char,
    tick_hz: u64,
    config: *mut coalesce_cint_config,
    config_size: usize,
    message: *mut c_char,
    message_size: usize,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        parse(text, tick_hz, config, config_size, message, message_size, |spec| {
            let Spec::Cint(cint) = &spec else { return Err(format!("{spec}: not a cint policy")) };
            check_hints(&spec, &cint.hints, &CintSpec::DEFAULT.hints)?;
            Ok(coalesce_cint_config::new(&cint.params(tick_hz), tick_hz))
        })
    }
}

/// Parses parameters such as "budget" or "budget:budget=10%,ooo=on", as `coalesce_cint_config_parse` does.
///
/// # Safety
/// As `coalesce_vic_config_parse`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_config_parse(
    text: *const c_char,
    tick_hz: u64,
    config: *mut coalesce_budget_config,
    config_size: usize,
    message: *mut c_char,
    message_size: usize,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        parse(text, tick_hz, config, config_size, message, message_size, |spec| {
            let Spec::Budget(budget) = &spec else {
                return Err(format!(
                    "{spec}: not a budget policy; allowed: budget with its keys, for a coalesce_auto_state, too"
                ));
            };
            check_hints(&spec, &budget.hints, &BudgetSpec::DEFAULT.hints)?;
            Ok(coalesce_budget_config::new(&budget.params(tick_hz), tick_hz))
        })
    }
}

/// A machine has no parameters for these.
fn check_hints(spec: &Spec, hints: &HintSpec, default: &HintSpec) -> Result<(), String> {
    let is_default = (hints.barrier, hints.sources, hints.bits) == (default.barrier, default.sources, default.bits);
    is_default
        .then_some(())
        .ok_or_else(|| format!("{spec}: barrier, hints and bits are set by the program, not in the machine"))
}

/// Writes parameters in their text form, which `coalesce_vic_config_parse` reads. Returns the length of the whole text,
/// as `snprintf` does; 0: the configuration is null, of another size, or a parameter is out of range.
///
/// # Safety
/// `config` is null or points to as many bytes as its `struct_size` says; `text` is null or points to `text_size`
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_config_print(
    config: *const coalesce_vic_config,
    text: *mut c_char,
    text_size: usize,
) -> usize {
    // SAFETY: the caller's promises.
    unsafe {
        match read_config(config).and_then(|config| config.check().and(config.params())) {
            Ok(params) => write_text(text, text_size, &Spec::Vic(params)),
            Err(_) => 0,
        }
    }
}

/// Writes parameters in their text form, which `coalesce_cint_config_parse` reads, as `coalesce_vic_config_print` does.
///
/// # Safety
/// As `coalesce_vic_config_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_config_print(
    config: *const coalesce_cint_config,
    text: *mut c_char,
    text_size: usize,
) -> usize {
    // SAFETY: the caller's promises.
    unsafe {
        match read_config(config).and_then(|config| config.check().and(config.params())) {
            Ok(params) => write_text(text, text_size, &Spec::Cint(CintSpec::of(&params))),
            Err(_) => 0,
        }
    }
}

/// Writes parameters in their text form, which `coalesce_budget_config_parse` reads, as `coalesce_vic_config_print`
/// does.
///
/// # Safety
/// As `coalesce_vic_config_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_config_print(
    config: *const coalesce_budget_config,
    text: *mut c_char,
    text_size: usize,
) -> usize {
    // SAFETY: the caller's promises.
    unsafe {
        match read_config(config).and_then(|config| config.check().and(config.params())) {
            Ok(params) => write_text(text, text_size, &Spec::Budget(BudgetSpec::of(&params))),
            Err(_) => 0,
        }
    }
}
