//! What a browser calls: functions without a bindings generator, and bytes in the memory that both see.
//!
//! Lengths and addresses are in bytes. Every text is UTF-8. The caller asks for room ([`play_room`]), writes into it, and calls.
//! A call that answers returns the length of its JSON, which begins at [`play_answer`] and is there until the next call. An
//! answer with a member `error` says what is wrong. A browser runs one instance on one thread, one call after the other.
#![expect(unsafe_code, reason = "exported names: no function of another crate, and none of C, begins with play_")]

use crate::session::{Session, policies};
use serde::Serialize;
use serde_json::json;
use std::cell::RefCell;

thread_local! {
    static CALLS: RefCell<Calls> = RefCell::default();
}

#[derive(Default)]
struct Calls {
    session: Session,
    room: Vec<u8>,
    answer: String,
}

/// Calls, and keeps the answer.
fn answer<T: Serialize>(call: impl FnOnce(&mut Session, Vec<u8>) -> Result<T, String>) -> usize {
    CALLS.with_borrow_mut(|Calls { session, room, answer }| {
        let result = call(session, std::mem::take(room));
        let text = result.and_then(|value| serde_json::to_string(&value).map_err(|error| error.to_string()));
        *answer = text.unwrap_or_else(|error| json!({ "error": error }).to_string());
        answer.len()
    })
}

/// Room for `len` bytes, zeroes until they are written: the argument of the next call. Its address.
#[unsafe(no_mangle)]
pub extern "C" fn play_room(len: usize) -> *mut u8 {
    CALLS.with_borrow_mut(|calls| {
        calls.room = vec![0; len];
        calls.room.as_mut_ptr()
    })
}

/// Where the last answer begins.
#[unsafe(no_mangle)]
pub extern "C" fn play_answer() -> *const u8 {
    CALLS.with_borrow(|calls| calls.answer.as_ptr())
}

/// Answers with all policies: [`policies`].
#[unsafe(no_mangle)]
pub extern "C" fn play_policies() -> usize {
    answer(|_, _| Ok(policies()))
}

/// The room has a trace: [`Session::set_trace`].
#[unsafe(no_mangle)]
pub extern "C" fn play_trace() {
    CALLS.with_borrow_mut(|Calls { session, room, .. }| session.set_trace(std::mem::take(room)));
}

/// The room has a plan; answers with the text forms of its policies: [`Session::load`].
#[unsafe(no_mangle)]
pub extern "C" fn play_load() -> usize {
    answer(|session, plan| session.load(str::from_utf8(&plan).map_err(|error| error.to_string())?))
}

/// Answers with numbers and a time line: [`Session::simulate`].
#[unsafe(no_mangle)]
pub extern "C" fn play_simulate(nth: usize, events: usize) -> usize {
    answer(|session, _| session.simulate(nth, events))
}
