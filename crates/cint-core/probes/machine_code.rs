//! What is inlined into its caller or generic: `scripts/check-cores.sh` looks at the machine code.
#![no_std]

use cint_core::{
    Cint, Completion, Decision, Entry, Event, Hint, Mark, Policy as _, Reaper, Strict, Submission, Ticket, Tracker,
};

type Groups = Tracker<8, 4>;

/// On a completion.
pub fn on_completion(cint: &mut Cint, now: u64, hint: Hint, cif: u32) -> Decision {
    cint.on_completion(now, &Completion { cif, ..Completion::of(hint) })
}

/// The deadline.
pub fn deadline(cint: &Cint) -> Option<u64> {
    cint.deadline()
}

/// On a submission.
pub fn on_submit(tracker: &mut Groups, group: u8) -> Option<Ticket> {
    tracker.on_submit(group)
}

/// A completion's event.
pub fn event(tracker: &mut Groups, ticket: Option<Ticket>, hint: Hint) -> Event {
    tracker.on_completion(ticket, hint)
}

/// A reset.
pub fn reset_tracking(tracker: &mut Groups) {
    tracker.reset_tracking();
}

/// An interrupt, at the consumer.
pub fn reap(reaper: &mut Reaper<16>, read: fn(u16) -> Entry, take: fn(Entry)) -> Option<u16> {
    reaper.reap(read, take)
}

/// An urgent interrupt, at the consumer.
pub fn reap_urgent(
    reaper: &mut Reaper<16>,
    read: fn(u16) -> Entry,
    is_urgent: fn(Entry) -> bool,
    take: fn(Entry),
) -> Option<u16> {
    reaper.reap_urgent(read, is_urgent, take)
}

/// A submission, a completion and an abort with strict Barriers.
pub fn strict(strict: &mut Strict<Cint, 8, 4>, now: u64, group: u8, completion: &Completion) -> (Mark, [Decision; 2]) {
    let mark = strict.on_submit(now, &Submission { group, ..Submission::ALONE });
    (mark, [strict.on_completion(now, completion), strict.on_cancel(now, mark)])
}
