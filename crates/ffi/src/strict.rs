//! Strict Barriers: `coalesce_window_...`. A batch is complete when its last command and every command submitted before it
//! have completed (cinterrupts §4.3).

use crate::auto::coalesce_auto_state;
use crate::block::Block;
use crate::budget::{Either, coalesce_budget_state, completion};
use crate::cint::coalesce_cint_state;
use crate::error::coalesce_error;
use crate::field::COALESCE_FIELD_COMMANDS;
use crate::hint::{COALESCE_HINT_FAILED_BARRIER, event};
use crate::status::*;
use crate::tagged::{Tagged, kind};
use budget_core::{Auto, Budget, Mark, Policy as _};
use cint_core::{Cint, Event, Window, Word};

impl Block for Window {
    type Word = Word;
    const KIND: u32 = kind(b'W');
}

/// No ticket. The command is not tracked, and its hint is used unchanged.
pub const COALESCE_NO_TICKET: u64 = u64::MAX;

/// The number of words of 64 commands; `None` if `commands` is not a valid size of a window.
fn words(commands: u32) -> Option<u32> {
    (commands.is_power_of_two() && (64..=4096).contains(&commands)).then_some(commands >> 6)
}

/// The size in bytes of a window of `commands` commands, a power of two from 64 to 4096; 0 for other numbers. For a
/// constant, use `uint64_t window[COALESCE_WINDOW_WORDS(commands)]`.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_window_size(commands: u32) -> usize {
    words(commands).map_or(0, Window::size)
}

/// Initialises a window for one group of submitters. It tracks up to `commands` commands, from the oldest incomplete
/// one to the newest submitted one. `window_size` is in bytes and at least `coalesce_window_size(commands)`; `error`
/// may be null. On an error the memory is unchanged.
///
/// For a window in use call `coalesce_window_reset` instead: after this call the tickets that it has issued are taken for new ones.
///
/// A window, like a state, contains no pointers and owns nothing. The lock of a machine also protects its windows.
///
/// # Safety
/// `window` is null or points to `window_size` bytes, aligned to 8, that nobody else uses; `error` is null or points to
/// a `coalesce_error`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_window_init(
    window: *mut u64,
    window_size: usize,
    commands: u32,
    error: *mut coalesce_error,
) -> coalesce_status {
    let block = words(commands).map(|words| (Window::NEW, words)).ok_or(coalesce_error::new(
        COALESCE_FIELD_COMMANDS,
        commands.into(),
        (64, 4096),
    ));
    // SAFETY: the caller's promises.
    unsafe { Window::make(window, window_size, block, error) }
}

/// Notes a submitted command, and returns its ticket. Pass the ticket once, with the command's completion.
/// `COALESCE_NO_TICKET`: the window is full or invalid, or has used all 2^56 positions; the command is not tracked, and
/// its Barrier is relaxed.
///
/// # Safety
/// `window` is null or points to a window that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_window_on_submit(window: *mut u64) -> u64 {
    // SAFETY: the caller's promise.
    let window = unsafe { Window::open(window) };
    window.ok().and_then(|(window, words)| window.on_submit(words)).unwrap_or(COALESCE_NO_TICKET)
}

/// Notes that the controller was reset. All tickets become invalid, and none is issued again.
///
/// # Safety
/// As `coalesce_window_on_submit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_window_reset(window: *mut u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    match unsafe { Window::open(window) } {
        Ok((window, _)) => {
            window.reset();
            COALESCE_OK
        }
        Err(status) => status,
    }
}

/// `coalesce_cint_on_completion` with strict Barriers: it takes the command's window and ticket. A ticket that was
/// never issued, or is passed twice, delivers (`COALESCE_REASON_ERROR`). An invalid window returns its error, which
/// delivers too.
///
/// # Safety
/// As `coalesce_cint_on_completion` and `coalesce_window_on_submit`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_on_completion_strict(
    state: *mut coalesce_cint_state,
    window: *mut u64,
    now: u64,
    ticket: u64,
    hint: u32,
    cif: u32,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        with_event(finish(window, ticket, hint), |event| {
            Tagged::<Cint>::decide(state, |cint| cint.on_event(now, event, cif.max(1)))
        })
    }
}

/// `coalesce_budget_on_completion` with strict Barriers, as `coalesce_cint_on_completion_strict`.
///
/// # Safety
/// As `coalesce_budget_on_completion` and `coalesce_window_on_submit`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_on_completion_strict(
    state: *mut coalesce_budget_state,
    window: *mut u64,
    now: u64,
    ticket: u64,
    hint: u32,
    cif: u32,
    outstanding: u32,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        with_event(finish(window, ticket, hint), |event| {
            Tagged::<Budget>::decide(state, |budget| budget.on_completion(now, &completion(event, cif, outstanding)))
        })
    }
}

/// `coalesce_auto_on_completion` with strict Barriers, as `coalesce_cint_on_completion_strict`.
///
/// # Safety
/// As `coalesce_auto_on_completion` and `coalesce_window_on_submit`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_auto_on_completion_strict(
    state: *mut coalesce_auto_state,
    window: *mut u64,
    now: u64,
    ticket: u64,
    hint: u32,
    cif: u32,
    outstanding: u32,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        with_event(finish(window, ticket, hint), |event| {
            Tagged::<Auto>::decide(state, |auto| auto.on_completion(now, &completion(event, cif, outstanding)))
        })
    }
}

/// Notes that a command was aborted and will not complete, and decides. `hint`: its own, as an aborted Barrier is the end of its
/// batch. With relaxed Barriers, `window` may be null and `ticket` is `COALESCE_NO_TICKET`.
///
/// # Safety
/// As `coalesce_cint_on_completion_strict`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_on_cancel(
    state: *mut coalesce_cint_state,
    window: *mut u64,
    now: u64,
    ticket: u64,
    hint: u32,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        with_event(finish(window, ticket, hint), |event| {
            Tagged::<Cint>::decide(state, |cint| cint.on_cancel(now, Mark { event, ..Mark::default() }))
        })
    }
}

/// `coalesce_cint_on_cancel` for a latency budget, with a regulator or without.
///
/// # Safety
/// As `coalesce_budget_on_completion_strict`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_on_cancel(
    state: *mut coalesce_budget_state,
    window: *mut u64,
    now: u64,
    ticket: u64,
    hint: u32,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        with_event(finish(window, ticket, hint), |event| {
            Tagged::<Either>::decide(state, |Either(budget)| budget.on_cancel(now, Mark { event, ..Mark::default() }))
        })
    }
}

/// The event for the machine when a command completes or is aborted.
///
/// # Safety
/// As `coalesce_window_on_submit`.
unsafe fn finish(window: *mut u64, ticket: u64, hint: u32) -> Result<Event, coalesce_status> {
    let said = event(hint);
    if ticket == COALESCE_NO_TICKET {
        return Ok(said);
    }
    // SAFETY: the caller's promise.
    let (window, words) = unsafe { Window::open(window) }?;
    Ok(match window.on_completion(words, ticket, said) {
        Event::Plain if hint == COALESCE_HINT_FAILED_BARRIER => Event::Urgent, // others of its batch have not completed
        event => event,
    })
}

/// Asks the machine for a decision. If the window is invalid, the machine delivers, and the error is returned.
fn with_event(event: Result<Event, coalesce_status>, decide: impl FnOnce(Event) -> coalesce_status) -> coalesce_status {
    match event {
        Ok(event) => decide(event),
        Err(status) => decide(Event::Error).min(status),
    }
}
