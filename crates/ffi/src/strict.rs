//! Strict Barriers: `cint_window_...`. A batch is complete when everything submitted before its last command is
//! (cinterrupts §4.3).

use crate::block::Block;
use crate::cint::cint_state;
use crate::error::{COALESCE_FIELD_COMMANDS, coalesce_error};
use crate::hint::{COALESCE_HINT_PLAIN, known};
use crate::status::*;
use crate::tagged::{Tagged, kind};
use cint_core::{Cint, Event, Hint, Window, Word};

type State = Tagged<Cint>;

impl Block for Window {
    type Word = Word;
    const KIND: u32 = kind(b'W');
}

/// A command that has no ticket: its hint stands as it is.
pub const COALESCE_NO_TICKET: u64 = 0xFFFF_FFFF_FFFF_FFFF;

/// Words of 64 commands; `None`: not a number of commands that a window can have.
fn words(commands: u32) -> Option<u32> {
    (commands.is_power_of_two() && (64..=4096).contains(&commands)).then_some(commands >> 6)
}

/// Bytes of a window of so many commands, which are a power of two, 64 to 4096; 0: they are not. Where a constant is
/// needed: `uint64_t window[CINT_WINDOW_WORDS(commands)]`.
#[unsafe(no_mangle)]
pub extern "C" fn cint_window_size(commands: u32) -> usize {
    words(commands).map_or(0, Window::size)
}

/// Makes a window for one group of submitters: it holds `commands` between the oldest that has not completed and the
/// newest submitted. `window_size` is in bytes, `cint_window_size(commands)` at least; `error` may be null. On an error the
/// memory is as it was.
///
/// A window, like a state, has no pointers and owns nothing. All windows of a machine are protected by what protects it.
///
/// # Safety
/// `window` is null or points to `window_size` bytes, aligned to 8, that nobody else uses; `error` is null or points to a
/// `coalesce_error`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_window_init(
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

/// A command is submitted. Returns its ticket, to be given back with its completion, once. `COALESCE_NO_TICKET`: the window
/// is full, or is none; the command is not tracked, its Barrier is relaxed.
///
/// # Safety
/// `window` is null or points to a window that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_window_on_submit(window: *mut u64) -> u64 {
    // SAFETY: the caller's promise.
    let window = unsafe { Window::open(window) };
    window.ok().and_then(|(window, words)| window.on_submit(words)).unwrap_or(COALESCE_NO_TICKET)
}

/// The controller was reset: every ticket is forgotten, and not given again.
///
/// # Safety
/// As `cint_window_on_submit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_window_reset(window: *mut u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    match unsafe { Window::open(window) } {
        Ok((window, _)) => {
            window.reset();
            COALESCE_OK
        }
        Err(status) => status,
    }
}

/// As `cint_on_completion`, where Barriers are strict: with the command's window and its ticket. A ticket that was never
/// given, or is given back twice, delivers (`COALESCE_REASON_ERROR`); so does a window that is none, with its error.
///
/// # Safety
/// As `cint_on_completion` and `cint_window_on_submit`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_on_completion_strict(
    state: *mut cint_state,
    window: *mut u64,
    now: u64,
    ticket: u64,
    hint: u32,
    cif: u32,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        with_event(finish(window, ticket, hint), |event| State::decide(state, |cint| cint.on_event(now, event, cif)))
    }
}

/// A command was aborted and will not complete. `window` may be null where Barriers are relaxed, with
/// `COALESCE_NO_TICKET`.
///
/// # Safety
/// As `cint_on_completion_strict`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_on_cancel(
    state: *mut cint_state,
    window: *mut u64,
    now: u64,
    ticket: u64,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        with_event(finish(window, ticket, COALESCE_HINT_PLAIN), |event| {
            State::decide(state, |cint| cint.on_cancel(now, event))
        })
    }
}

/// What the end of a command means for the machine.
///
/// # Safety
/// As `cint_window_on_submit`.
unsafe fn finish(window: *mut u64, ticket: u64, hint: u32) -> Result<Event, coalesce_status> {
    let hint = known(hint);
    let event = if ticket == COALESCE_NO_TICKET {
        hint.map_or(Event::Error, Event::from)
    } else {
        // SAFETY: the caller's promise.
        let (window, words) = unsafe { Window::open(window) }?;
        window.on_completion(words, ticket, hint.unwrap_or(Hint::Plain))
    };
    Ok(if hint.is_some() { event } else { Event::Error })
}

/// Lets the machine decide; if the window is none, it delivers, and the caller is told so.
fn with_event(event: Result<Event, coalesce_status>, decide: impl FnOnce(Event) -> coalesce_status) -> coalesce_status {
    match event {
        Ok(event) => decide(event),
        Err(status) => decide(Event::Error).min(status),
    }
}
