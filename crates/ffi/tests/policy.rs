//! A policy behind the C handle decides as the same policy in Rust.

use ::coalesce_policy::{
    AnyPolicy, Bypassed, Completion, Decision, Hint, Policy as _, Submission, Submissions, Ticket,
};
use coalesce::hint::*;
use coalesce::instant::COALESCE_NEVER;
use coalesce::policy::*;
use coalesce::status::*;
use coalesce::strict::COALESCE_NO_TICKET;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

const HZ: u64 = 1_000_000_000;

fn make(text: &str) -> Result<*mut coalesce_policy, String> {
    let text = CString::new(text).expect("no zero");
    let mut message = [0_u8; 200];
    // SAFETY: all of it is ours.
    let policy = unsafe { coalesce_policy_new(text.as_ptr(), HZ, message.as_mut_ptr().cast(), message.len()) };
    if policy.is_null() {
        return Err(CStr::from_bytes_until_nul(&message).expect("a text").to_string_lossy().into());
    }
    Ok(policy)
}

fn status(decision: Decision) -> coalesce_status {
    match decision {
        Decision::Deliver(_) => COALESCE_DELIVER,
        Decision::DeliverUrgent => COALESCE_DELIVER_URGENT,
        Decision::Hold(_) => COALESCE_HOLD,
    }
}

unsafe extern "C" fn count(context: *mut c_void, reason: *const c_char, is_hold: bool, count: u64) {
    // SAFETY: the map below, and a text of the library's.
    let (map, reason) = unsafe { (&mut *context.cast::<BTreeMap<(bool, String), u64>>(), CStr::from_ptr(reason)) };
    map.insert((is_hold, reason.to_string_lossy().into()), count);
}

fn submit(policy: *mut coalesce_policy, hint: u32) -> coalesce_mark {
    let struct_size = size_of::<coalesce_request>() as u32;
    let request =
        coalesce_request { struct_size, flags: 0, outstanding: 64, batch_len: 1, ioprio: 0, hint, group: 0, before: 0 };
    let mut mark = coalesce_mark { ticket: 0, hint: 0, source: 0 };
    // SAFETY: the policy is ours, and so is the memory.
    assert_eq!(unsafe { coalesce_policy_on_submit(policy, 1, &raw const request, &raw mut mark) }, COALESCE_OK);
    mark
}

/// Completes a request with 64 commands in flight.
fn complete(policy: *mut coalesce_policy, now: u64, mark: coalesce_mark) -> coalesce_status {
    let struct_size = size_of::<coalesce_completion>() as u32;
    let (slice_end, class_of) = (COALESCE_NEVER, COALESCE_CLASS_IO);
    let completion =
        coalesce_completion { struct_size, cif: 64, outstanding: 64, class_of, mark, slice_end, before: 0 };
    // SAFETY: as above.
    unsafe { coalesce_policy_on_completion(policy, now, &raw const completion) }
}

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[test]
fn a_clock_that_goes_back_is_counted() {
    for (text, times) in [("vic", 2), ("cint", 2), ("cint:barrier=strict", 2), ("auto", 0), ("none", 0), ("nvme", 0)] {
        let handle = make(text).expect(text);
        // SAFETY: all of it is ours.
        unsafe {
            for now in [5_000, 4_000, 4_000, 9_000, 1] {
                assert_eq!(coalesce_policy_on_consumed(handle, now), COALESCE_OK, "{text}");
            }
            assert_eq!(coalesce_policy_times_back(handle), times, "{text}");
            coalesce_policy_free(handle);
        }
    }
}

#[test]
fn it_decides_as_in_rust() {
    for text in [
        "auto",
        "auto:barrier=strict",
        "budget",
        "cint",
        "cint:barrier=strict,ooo=off",
        "vic",
        "none",
        "nvme",
        "batch",
        "dim",
        "spdk_vhost",
    ] {
        let handle = make(text).expect(text);
        let mut twin = AnyPolicy::new(text.parse().expect(text), HZ).expect(text);
        let (mut numbers, mut now, mut in_flight) = (Numbers(7), 0, Vec::new());
        // SAFETY: all of it is ours.
        unsafe {
            for _ in 0..20_000 {
                now += numbers.below(4) * 3_000;
                match numbers.below(20) {
                    0..=7 => {
                        let request = coalesce_request {
                            struct_size: size_of::<coalesce_request>() as u32,
                            flags: numbers.below(8) as u32,
                            outstanding: in_flight.len() as u32 + 1,
                            batch_len: numbers.below(4) as u32,
                            ioprio: [0, 0x2000, 0x4004, 0x6000][numbers.below(4) as usize],
                            hint: 0,
                            group: numbers.below(18) as u32,
                            before: numbers.below(3) as u32,
                        };
                        let mut mark = coalesce_mark { ticket: 0, hint: 0, source: 0 };
                        assert_eq!(
                            coalesce_policy_on_submit(handle, now, &raw const request, &raw mut mark),
                            COALESCE_OK
                        );
                        let submission = Submission {
                            flush: request.flags & COALESCE_REQUEST_FLUSH != 0,
                            durable: request.flags & COALESCE_REQUEST_DURABLE != 0,
                            last_of_batch: request.flags & COALESCE_REQUEST_LAST != 0,
                            ioprio: request.ioprio as u16,
                            batch_len: request.batch_len as usize,
                            outstanding: request.outstanding,
                            hint: Hint::Plain,
                            group: request.group as u8,
                            before: request.before,
                        };
                        let twins = twin.on_submit(now, &submission);
                        assert_eq!(mark.ticket, twins.ticket.map_or(COALESCE_NO_TICKET, Ticket::to_number));
                        in_flight.push((mark, twins));
                    }
                    8..=16 if !in_flight.is_empty() => {
                        let cif = in_flight.len() as u32;
                        let before = numbers.below(12).saturating_sub(8) as u32;
                        let (mark, twins) = in_flight.swap_remove(numbers.below(cif.into()) as usize);
                        let completion = coalesce_completion {
                            struct_size: size_of::<coalesce_completion>() as u32,
                            cif,
                            outstanding: cif + now as u32 % 4,
                            class_of: COALESCE_CLASS_IO,
                            mark,
                            slice_end: COALESCE_NEVER,
                            before,
                        };
                        let (outstanding, before) = (completion.outstanding, before as u16);
                        let last = Completion { mark: twins, outstanding, ..Completion::with_cif(cif) };
                        let expected = twin.on_completions(now, before, &last);
                        assert_eq!(
                            coalesce_policy_on_completion(handle, now, &raw const completion),
                            status(expected),
                            "{text}: {expected:?}"
                        );
                    }
                    17 => {
                        assert_eq!(coalesce_policy_on_deadline(handle, now), status(twin.on_deadline(now)), "{text}")
                    }
                    18 if twin.wants_batch_end() => {
                        assert_eq!(coalesce_policy_on_batch_end(handle, now), status(twin.on_batch_end(now)), "{text}")
                    }
                    19 if !twin.may_hold() => {
                        let (interrupts, outstanding) = (numbers.below(16) as u32, numbers.below(3) as u32);
                        let done = Bypassed { interrupts: interrupts as u16, outstanding, ..Bypassed::default() };
                        twin.on_bypassed(now, &done);
                        let done = coalesce_bypassed {
                            struct_size: size_of::<coalesce_bypassed>() as u32,
                            interrupts,
                            suppressed: 0,
                            outstanding,
                            completions: 0,
                        };
                        assert_eq!(coalesce_policy_on_bypassed(handle, now, &raw const done), COALESCE_OK, "{text}");
                    }
                    19 if numbers.below(50) == 0 => {
                        assert_eq!(coalesce_policy_flush(handle, now), status(twin.flush(now)), "{text}");
                    }
                    _ => {}
                }
                let deadline = twin.deadline().map_or(COALESCE_NEVER, |deadline| deadline.max(1));
                assert_eq!(coalesce_policy_deadline(handle), deadline, "{text}");
                assert_eq!(coalesce_policy_held(handle), u64::from(twin.held()), "{text}");
                assert_eq!(coalesce_policy_max_hold(handle), twin.max_hold().unwrap_or(COALESCE_NEVER), "{text}");
                assert_eq!(coalesce_policy_untracked(handle), twin.untracked(), "{text}");
                assert_eq!(coalesce_policy_wants_batch_end(handle), twin.wants_batch_end());
                assert_eq!(coalesce_policy_wants_submit(handle), twin.wants_submit() != Submissions::None);
                assert_eq!(coalesce_policy_wants_each_submit(handle), twin.wants_submit() == Submissions::Each);
                assert_eq!(coalesce_policy_may_hold(handle), twin.may_hold());
            }
            let mut counted = BTreeMap::<(bool, String), u64>::new();
            assert_eq!(coalesce_policy_stats(handle, Some(count), (&raw mut counted).cast()), COALESCE_OK);
            let delivered = twin.stats().delivered().map(|(name, count)| ((false, name.to_owned()), count));
            let held = twin.stats().held().map(|(name, count)| ((true, name.to_owned()), count));
            assert_eq!(counted, delivered.chain(held).collect());
            assert!(counted.values().sum::<u64>() > 5_000, "{text}: {counted:?}");
            coalesce_policy_free(handle);
        }
    }
}

const PLAIN: coalesce_completion = coalesce_completion {
    struct_size: size_of::<coalesce_completion>() as u32,
    cif: 100,
    outstanding: 0,
    class_of: COALESCE_CLASS_IO,
    mark: coalesce_mark { ticket: COALESCE_NO_TICKET, hint: 0, source: COALESCE_NO_SOURCE },
    slice_end: COALESCE_NEVER,
    before: 0,
};

/// Includes more completions than are possible.
#[test]
fn completions_that_came_together_are_all_held() {
    for (text, before, held) in [("vic:profile=paper,epoch=1ms", 3, 0), ("cint:thr=20,in_flight=off", 3, 4)] {
        let handle = make(text).expect("a policy");
        let completion = coalesce_completion { before, ..PLAIN };
        // SAFETY: it is ours.
        unsafe {
            let expected = if held > 0 { COALESCE_HOLD } else { COALESCE_DELIVER };
            assert_eq!(coalesce_policy_on_completion(handle, 1, &raw const completion), expected, "{text}");
            assert_eq!(coalesce_policy_held(handle), held, "{text}");
            let many = coalesce_completion { before: u32::MAX, ..completion };
            assert_eq!(coalesce_policy_on_completion(handle, 2, &raw const many), COALESCE_DELIVER, "{text}");
            assert_eq!(coalesce_policy_held(handle), 0, "{text}");
            coalesce_policy_free(handle);
        }
    }
}

#[test]
fn another_policy_takes_over_held_completions() {
    let handle = make("cint").expect("a policy");
    let mut message = [0_u8; 200];
    let completion = PLAIN;
    // SAFETY: all of it is ours.
    unsafe {
        assert_eq!(coalesce_policy_on_completion(handle, 1, &raw const completion), COALESCE_HOLD);
        let (out, size) = (message.as_mut_ptr().cast::<c_char>(), message.len());
        assert_eq!(coalesce_policy_reconfigure(handle, 2, c"vic:epoch=1".as_ptr(), out, size), COALESCE_E_CONFIG);
        assert!(CStr::from_ptr(out).to_string_lossy().contains("has no unit"));
        assert_eq!(coalesce_policy_held(handle), 1, "nothing has changed");
        assert_eq!(coalesce_policy_reconfigure(handle, 2, c"vic".as_ptr(), out, size), COALESCE_DELIVER);
        let mut text = [0; 8];
        assert_eq!(coalesce_policy_print(handle, text.as_mut_ptr(), text.len()), 3);
        assert_eq!(CStr::from_ptr(text.as_ptr()), c"vic");
        coalesce_policy_free(handle);
    }
}

#[test]
fn the_hint_of_a_command_is_where_the_policy_says() {
    for (text, cdw12, cdw13, hint) in [
        ("none", 1 << 16, 0, COALESCE_HINT_URGENT),
        ("auto", 2 << 16, 0, COALESCE_HINT_BARRIER),
        ("auto:bits=cdw13:8", 2 << 16, 0, COALESCE_HINT_PLAIN),
        ("cint:bits=cdw13:8", 0, 2 << 8, COALESCE_HINT_BARRIER),
        ("cint:bits=none", 1 << 16, 3 << 4, COALESCE_HINT_URGENT),
    ] {
        let handle = make(text).expect("a policy");
        // SAFETY: it is ours.
        unsafe {
            assert_eq!(coalesce_policy_hint(handle, cdw12, cdw13), hint, "{text}");
            coalesce_policy_free(handle);
        }
    }
}

/// A reset, a schedule and a deschedule deliver everything held.
#[test]
fn nothing_held_is_forgotten() {
    for text in ["cint:ooo=off,in_flight=off", "vic:live_clamp=off", "nvme"] {
        for deliver in [coalesce_policy_reset, coalesce_policy_on_schedule, coalesce_policy_on_deschedule] {
            let handle = make(text).expect("a policy");
            // SAFETY: all of it is ours.
            unsafe {
                let mut now = 0;
                while coalesce_policy_held(handle) == 0 {
                    now += 1_000;
                    complete(handle, now, submit(handle, COALESCE_HINT_PLAIN));
                }
                assert_eq!(deliver(handle, now), COALESCE_DELIVER, "{text}");
                assert_eq!(deliver(handle, now), COALESCE_HOLD, "{text}: nothing is held");
                coalesce_policy_free(handle);
            }
        }
    }
}

/// The Barrier of the batch completed before. It is due when the last command of the batch is aborted.
#[test]
fn an_aborted_command_completes_its_batch() {
    let handle = make("cint:barrier=strict,in_flight=off").expect("a policy");
    // SAFETY: all of it is ours.
    unsafe {
        let (plain, barrier) = (submit(handle, COALESCE_HINT_PLAIN), submit(handle, COALESCE_HINT_BARRIER));
        assert_eq!(complete(handle, 1, barrier), COALESCE_HOLD);
        assert_eq!(coalesce_policy_on_cancel(handle, 2, &raw const plain), COALESCE_DELIVER);
        coalesce_policy_free(handle);
    }
}

/// A batch that nobody ends, of a device that looks at deadlines alone.
#[test]
fn nothing_waits_for_a_batch_end_that_nobody_says() {
    for text in
        ["batch", "spdk_vhost", "cint:delta=0s,max_hold=off,in_flight=off", "auto", "cint", "nvme", "dim", "vic"]
    {
        let handle = make(text).expect("a policy");
        let (mut owed, mut now) = (false, 1_000_000);
        for poll in 0..50 {
            let completion = coalesce_completion {
                struct_size: size_of::<coalesce_completion>() as u32,
                cif: 1,
                outstanding: 0,
                class_of: COALESCE_CLASS_IO,
                mark: coalesce_mark {
                    ticket: COALESCE_NO_TICKET,
                    hint: COALESCE_HINT_PLAIN,
                    source: COALESCE_NO_SOURCE,
                },
                slice_end: COALESCE_NEVER,
                before: poll % 3,
            };
            // SAFETY: all of it is ours.
            unsafe {
                owed |= coalesce_policy_on_completion(handle, now, &raw const completion) == COALESCE_HOLD;
                while coalesce_policy_deadline(handle) != COALESCE_NEVER {
                    assert_ne!(coalesce_policy_deadline(handle), 0, "{text}: it would disarm a timerfd");
                    now = now.max(coalesce_policy_deadline(handle));
                    owed &= coalesce_policy_on_deadline(handle, now) == COALESCE_HOLD;
                }
                owed &= coalesce_policy_held(handle) > 0;
            }
            assert!(!owed, "{text}: poll {poll}: nothing is in flight, and no timer is armed");
            now += 100_000;
        }
        // SAFETY: it is ours.
        unsafe { coalesce_policy_free(handle) };
    }
}

/// What a policy took, and prints, it takes again, whatever its clock.
#[test]
fn a_new_configuration_is_for_the_clock_of_the_policy() {
    let cases = [
        ("cint:max_hold=1s", 1_000_000),
        ("auto:max_hold=800ms", 600_000_000),
        ("budget:max_hold=1s", 24_000_000),
        ("auto:storm=4,max_hold=500ms", 1_000_000),
    ];
    for (text, hz) in cases {
        let text = CString::new(text).expect("no zero");
        let mut printed = [0 as c_char; 300];
        // SAFETY: all of it is ours.
        let decision = unsafe {
            let policy = coalesce_policy_new(text.as_ptr(), hz, null_mut(), 0);
            coalesce_policy_print(policy, printed.as_mut_ptr(), 300);
            let decision = coalesce_policy_reconfigure(policy, 1000, printed.as_ptr(), null_mut(), 0);
            coalesce_policy_free(policy);
            decision
        };
        assert_eq!(decision, COALESCE_HOLD, "{text:?} at {hz} Hz");
    }
}

/// `COALESCE_MARK_NONE` is Plain and has no ticket, so strict Barriers do not take it for a submitted command.
#[test]
fn a_request_that_was_never_submitted_is_plain() {
    let mark = coalesce_mark::from(::coalesce_policy::Mark::default());
    assert_eq!((mark.ticket, mark.hint, mark.source), (COALESCE_NO_TICKET, COALESCE_HINT_PLAIN, COALESCE_NO_SOURCE));
    for text in ["cint:in_flight=off", "cint:barrier=strict,in_flight=off"] {
        let handle = make(text).expect("a policy");
        assert_eq!(complete(handle, 1, mark), COALESCE_HOLD, "{text}");
        // SAFETY: it is ours.
        unsafe { coalesce_policy_free(handle) };
    }
}

#[test]
fn what_a_budget_has_spent_can_be_read() {
    for (text, budget) in [("auto", 500), ("budget:budget=12.5%", 1250), ("cint", 0), ("none", 0)] {
        let handle = make(text).expect("a policy");
        let mut spent = coalesce_spent { held_time: 1, outstanding_time: 1, learning: 1, budget: 1 };
        // SAFETY: all of it is ours.
        unsafe {
            for now in 0..100 {
                let _ = complete(handle, now * 1_000, coalesce_mark { ticket: COALESCE_NO_TICKET, hint: 0, source: 0 });
            }
            assert_eq!(coalesce_policy_spent(handle, null_mut()), COALESCE_E_NULL);
            assert_eq!(coalesce_policy_spent(handle, &raw mut spent), COALESCE_OK, "{text}");
            assert_eq!((spent.budget, spent.outstanding_time > 0), (budget, budget > 0), "{text}");
            assert!(spent.held_time <= spent.outstanding_time && (spent.learning > 0) == (budget > 0), "{text}");
            assert_eq!(coalesce_policy_reset_stats(handle), COALESCE_OK);
            assert_eq!(coalesce_policy_spent(handle, &raw mut spent), COALESCE_OK, "{text}");
            let learning = spent.learning; // up to now, whatever was spent since then
            assert_eq!(spent, coalesce_spent { budget, learning, ..Default::default() }, "{text}");
            coalesce_policy_free(handle);
        }
    }
}

/// The 17th group does not exist.
#[test]
fn what_strict_barriers_cannot_track_is_counted() {
    let handle = make("cint:barrier=strict").expect("a policy");
    let struct_size = size_of::<coalesce_request>() as u32;
    let (ioprio, hint) = (0, COALESCE_HINT_PLAIN);
    let request =
        coalesce_request { struct_size, flags: 0, outstanding: 64, batch_len: 1, ioprio, hint, group: 16, before: 0 };
    let mut mark = coalesce_mark { ticket: 0, hint: 0, source: 0 };
    submit(handle, COALESCE_HINT_PLAIN);
    // SAFETY: all of it is ours.
    unsafe {
        assert_eq!(coalesce_policy_untracked(handle), 0);
        assert_eq!(coalesce_policy_on_submit(handle, 1, &raw const request, &raw mut mark), COALESCE_OK);
        assert_eq!((mark.ticket, coalesce_policy_untracked(handle)), (COALESCE_NO_TICKET, 1));
        coalesce_policy_free(handle);
    }
}

/// A ticket that nobody keeps would hold back every Barrier behind it.
#[test]
fn a_request_whose_mark_nobody_keeps_holds_back_no_barrier() {
    let handle = make("cint:barrier=strict,in_flight=off").expect("a policy");
    let (struct_size, hint) = (size_of::<coalesce_request>() as u32, COALESCE_HINT_PLAIN);
    let request =
        coalesce_request { struct_size, flags: 0, outstanding: 64, batch_len: 1, ioprio: 0, hint, group: 0, before: 0 };
    // SAFETY: all of it is ours.
    let submitted = unsafe { coalesce_policy_on_submit(handle, 1, &raw const request, null_mut()) };
    assert_eq!(submitted, COALESCE_E_NULL);
    let barrier = submit(handle, COALESCE_HINT_BARRIER);
    assert_eq!(complete(handle, 2, barrier), COALESCE_DELIVER);
    // SAFETY: as above.
    unsafe { coalesce_policy_free(handle) };

    let handle = make("cint").expect("a policy");
    // SAFETY: as above.
    unsafe {
        let submitted = coalesce_policy_on_submit(handle, 1, &raw const request, null_mut());
        assert_eq!(submitted, COALESCE_OK, "it does not want each");
        coalesce_policy_free(handle);
    }
}

#[test]
fn strict_barriers_want_each_request() {
    for (text, expected) in [("cint:barrier=strict", true), ("cint", false), ("vic", false)] {
        let handle = make(text).expect("a policy");
        // SAFETY: it is ours.
        unsafe {
            assert_eq!(coalesce_policy_wants_each_submit(handle), expected, "{text}");
            coalesce_policy_free(handle);
        }
    }
}

#[test]
fn a_clock_that_no_policy_can_have_is_refused() {
    for text in [c"none", c"nvme", c"batch", c"dim", c"spdk_vhost", c"vic", c"cint", c"auto"] {
        for tick_hz in [0, 1, 999, 10_000_000_001, u64::MAX] {
            let mut message = [0; 128];
            // SAFETY: all of it is ours.
            let sentence = unsafe {
                assert!(coalesce_policy_new(text.as_ptr(), tick_hz, message.as_mut_ptr(), message.len()).is_null());
                CStr::from_ptr(message.as_ptr()).to_str().expect("a sentence")
            };
            let expected = format!("tick_hz is {tick_hz}; allowed: 1000 to 10000000000");
            assert!(sentence.ends_with(&expected), "{sentence}");
        }
    }
}

#[test]
fn invalid_arguments_give_an_error_and_never_a_hold() {
    assert!(make("vic:cif_threshold=1").expect_err("refused").contains("allowed: 2 to 65535"));
    let handle = make("auto").expect("a policy");
    let mut mark = coalesce_mark { ticket: 0, hint: 0, source: 0 };
    // SAFETY: all of it is ours.
    unsafe {
        assert!(coalesce_policy_new(null(), HZ, null_mut(), 0).is_null());
        coalesce_policy_free(null_mut());
        assert_eq!(coalesce_policy_on_submit(handle, 1, null(), &raw mut mark), COALESCE_E_NULL);
        assert_eq!(mark.hint, coalesce::hint::COALESCE_HINT_URGENT, "on an error its completion interrupts");
        assert_eq!(coalesce_policy_on_completion(handle, 1, null()), COALESCE_E_NULL);
        assert_eq!(coalesce_policy_stats(handle, None, null_mut()), COALESCE_E_NULL);
        for status in [
            coalesce_policy_on_submit(null_mut(), 1, null(), null_mut()),
            coalesce_policy_on_completion(null_mut(), 1, null()),
            coalesce_policy_on_deadline(null_mut(), 1),
            coalesce_policy_on_batch_end(null_mut(), 1),
            coalesce_policy_flush(null_mut(), 1),
            coalesce_policy_on_consumed(null_mut(), 1),
            coalesce_policy_reset(null_mut(), 1),
            coalesce_policy_on_cancel(null_mut(), 1, null()),
            coalesce_policy_on_schedule(null_mut(), 1),
            coalesce_policy_on_deschedule(null_mut(), 1),
            coalesce_policy_reset_stats(null_mut()),
            coalesce_policy_reconfigure(null_mut(), 1, null(), null_mut(), 0),
        ] {
            assert_eq!(status, COALESCE_E_NULL);
        }
        assert_eq!((coalesce_policy_deadline(null()), coalesce_policy_held(null())), (COALESCE_NEVER, 0));
        assert_eq!((coalesce_policy_max_hold(null()), coalesce_policy_untracked(null())), (COALESCE_NEVER, 0));
        assert_eq!(coalesce_policy_times_back(null()), 0);
        coalesce_policy_free(handle);
    }
}
