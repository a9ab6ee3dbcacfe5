//! Hints of the requester about a command, and their encodings: `coalesce_hint_...` (cinterrupts §3.3, §3.4, §4.1).

use cint_core::{Barriers, BothBits, Event, Hint, SystemCall};

/// No hint, or no hurry: the policy decides.
pub const COALESCE_HINT_PLAIN: u32 = 0;
/// The last command of a batch: interrupt when the batch is complete.
pub const COALESCE_HINT_BARRIER: u32 = 1;
/// Somebody waits for this command: interrupt at once.
pub const COALESCE_HINT_URGENT: u32 = 2;
/// Of a completion: a Barrier that failed. Interrupt at once, and it is the end of its batch.
pub const COALESCE_HINT_FAILED_BARRIER: u32 = 3;
/// The hint with this number, if there is one.
pub(crate) fn known(number: u32) -> Option<Hint> {
    match number {
        COALESCE_HINT_PLAIN => Some(Hint::Plain),
        COALESCE_HINT_BARRIER => Some(Hint::Barrier),
        COALESCE_HINT_URGENT => Some(Hint::Urgent),
        _ => None,
    }
}

/// The event of a completion whose hint has this number: an unknown hint delivers. Through [`known`] a decision of a budget takes six
/// instructions more.
#[inline(always)]
pub(crate) const fn event(number: u32) -> Event {
    const EVENTS: [Event; 4] = [Event::Plain, Event::Barrier, Event::Urgent, Event::Barrier]; // by COALESCE_HINT_...
    if number < EVENTS.len() as u32 { EVENTS[number as usize] } else { Event::Error }
}

/// The number of a hint.
pub(crate) const fn number(hint: Hint) -> u32 {
    match hint {
        Hint::Plain => COALESCE_HINT_PLAIN,
        Hint::Barrier => COALESCE_HINT_BARRIER,
        Hint::Urgent => COALESCE_HINT_URGENT,
    }
}

const fn both(urgent: bool) -> BothBits {
    if urgent { BothBits::Urgent } else { BothBits::Plain }
}

/// The hint in two bits: bit 0 is Urgent, bit 1 is Barrier, other bits are ignored. Both bits together mean Urgent if
/// `both_is_urgent`, otherwise Plain. Use it for hints in other bits than those of `coalesce_hint_from_cdw12`; shift
/// them first.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_hint_from_bits(bits: u32, both_is_urgent: bool) -> u32 {
    number(Hint::from_bits((bits & 0b11) as u8, both(both_is_urgent)))
}

/// The hint in bits 17:16 of Command Dword 12 of an NVMe read or write, our choice of the reserved bits that
/// cinterrupts §4.2.1 asks for: bit 16 is Urgent, bit 17 is Barrier. Both bits together mean Urgent if
/// `both_is_urgent`, otherwise Plain. NVMe 1.0 to 1.4 and the NVM Command Set 1.0 reserve these bits. Later versions
/// define bits 19:16 as CETYPE, the command extension type, which a host sets for a controller with Key Per I/O. With
/// such a controller, use `coalesce_hint_from_access_latency`, or agree on other bits and use
/// `coalesce_hint_from_bits`.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_hint_from_cdw12(cdw12: u32, both_is_urgent: bool) -> u32 {
    number(Hint::from_cdw12(cdw12, both(both_is_urgent)))
}

/// The hint in bits 5:4, the access latency, of Command Dword 13 of an NVMe read or write: 11b, low, is Urgent.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_hint_from_access_latency(cdw13: u32) -> u32 {
    number(Hint::from_access_latency(cdw13))
}

/// The hint of a request merged from two (§4.1.1): Urgent wins over Barrier, and Barrier over Plain. An unknown hint
/// counts as Urgent.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_hint_merge(a: u32, b: u32) -> u32 {
    let or_urgent = |number| known(number).unwrap_or(Hint::Urgent);
    number(or_urgent(a).merge(or_urgent(b)))
}

/// The hint of one part of a split request (§4.1.1). Each part keeps the hint, except that a strict Barrier stays with
/// the last part. An unknown hint counts as Urgent.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_hint_split(hint: u32, is_last: bool, barriers_are_strict: bool) -> u32 {
    let barriers = if barriers_are_strict { Barriers::Strict } else { Barriers::Relaxed };
    number(known(hint).unwrap_or(Hint::Urgent).split(is_last, barriers))
}

/// `read`, `pread`, `readv`, `preadv`
pub const COALESCE_CALL_READ: u32 = 0;
/// `write`, `pwrite`, `writev`, `pwritev`
pub const COALESCE_CALL_WRITE: u32 = 1;
/// `preadv2`, `pwritev2`
pub const COALESCE_CALL_VECTORED2: u32 = 2;
/// One request of an `io_submit`
pub const COALESCE_CALL_IO_SUBMIT: u32 = 3;
/// `sync`, `fsync`, `fdatasync`, `syncfs`
pub const COALESCE_CALL_SYNC: u32 = 4;
/// One request of an `msync`
pub const COALESCE_CALL_MSYNC: u32 = 5;

/// The file descriptor has `O_NONBLOCK`, or a vectored call has `RWF_NOWAIT`.
pub const COALESCE_CALL_NONBLOCK: u32 = 1;
/// The file descriptor has `O_DIRECT`.
pub const COALESCE_CALL_DIRECT: u32 = 2;
/// The paper's `RWF_URGENT`.
pub const COALESCE_CALL_URGENT: u32 = 4;
/// The paper's `RWF_BARRIER`.
pub const COALESCE_CALL_BARRIER: u32 = 8;
/// `MS_SYNC`
pub const COALESCE_CALL_MS_SYNC: u32 = 16;
/// It is the last request of its call.
pub const COALESCE_CALL_LAST: u32 = 32;

/// The hint of a request by the system call that caused it (cinterrupts Table 1). `call` and `flags` are
/// `COALESCE_CALL_...`; flags that do not apply to the call are ignored. A call that blocks its caller is Urgent. A
/// call that submits a batch puts a Barrier on its last request. An unknown call is Urgent.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_hint_from_call(call: u32, flags: u32) -> u32 {
    let has = |flag| flags & flag != 0;
    let (nonblock, last) = (has(COALESCE_CALL_NONBLOCK), has(COALESCE_CALL_LAST));
    number(match call {
        COALESCE_CALL_READ => SystemCall::Read { blocking: !nonblock }.hint(),
        COALESCE_CALL_WRITE => SystemCall::Write { blocking: !nonblock, direct: has(COALESCE_CALL_DIRECT) }.hint(),
        COALESCE_CALL_VECTORED2 => {
            let (urgent, barrier) = (has(COALESCE_CALL_URGENT), has(COALESCE_CALL_BARRIER));
            SystemCall::Vectored2 { nowait: nonblock, urgent, barrier }.hint()
        }
        COALESCE_CALL_IO_SUBMIT => SystemCall::IoSubmit { last }.hint(),
        COALESCE_CALL_SYNC => SystemCall::Sync.hint(),
        COALESCE_CALL_MSYNC => SystemCall::Msync { sync: has(COALESCE_CALL_MS_SYNC), last }.hint(),
        _ => Hint::Urgent,
    })
}
