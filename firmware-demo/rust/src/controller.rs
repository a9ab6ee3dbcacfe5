//! The controller handles events one at a time, in the order of their timestamps, and sleeps when there is none.

use crate::board::{self, Done, NEVER};
use crate::coalescing::Coalescing;
use crate::command::{ReadOrWrite, hint};
use crate::features::Features;
use crate::host::{
    CC_ENABLE, CSTS_FATAL, CSTS_READY, Cause, EVENT_DOORBELL_VALUE, IO_QUEUES, QUEUES, REGISTERS, SQ_ENTRIES, Status,
};
use crate::queue::{Entry, Queue, SLOTS, SlotId};
use crate::vector::Vector;
use coalesce_decision::{Class, Completion, Submission};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use heapless::spsc::Consumer;

pub struct Controller<V> {
    queues: [Queue; QUEUES],
    vectors: [Coalescing<V>; IO_QUEUES],
    features: Features,
    finished: Consumer<'static, Done>,
    now: u64, // the timestamp of the current event
    is_fatal: bool,
}

impl<V: Vector> Controller<V> {
    pub const fn new(vectors: [Coalescing<V>; IO_QUEUES], finished: Consumer<'static, Done>) -> Self {
        let queues = [Queue::new(0), Queue::new(1), Queue::new(2)];
        Self { queues, vectors, features: Features::NEW, finished, now: 0, is_fatal: false }
    }

    /// Runs from the instant `start` until the host disables the controller.
    pub fn run(&mut self, start: u64) {
        (self.now, self.is_fatal, self.features) = (start, false, Features::NEW);
        self.queues.iter_mut().for_each(Queue::reset);
        self.vectors.iter_mut().for_each(Coalescing::reset);
        while self.finished.dequeue().is_some() {}
        REGISTERS.csts.store(CSTS_READY, Release);

        while is_enabled() {
            if !self.work() {
                self.sleep();
            }
        }

        board::flash_abort();
        board::board_arm_deadline(NEVER);
        for id in 1..QUEUES {
            if !self.is_fatal {
                self.read_doorbells(id); // of a host that polled before it disabled the controller
                self.vectors[id - 1].flush(self.now);
            }
        }
        REGISTERS.csts.store(0, Release);
    }

    /// Requests of the host come before the next event, those that arrive meanwhile included, up to a bound.
    fn work(&mut self) -> bool {
        for _ in 0..SQ_ENTRIES {
            let mut has_rung = false;
            for id in 0..QUEUES {
                has_rung |= !self.is_fatal && self.serve_doorbells(id);
            }
            if !has_rung {
                break;
            }
        }
        !self.is_fatal && self.take_event()
    }

    /// Interrupts are blocked between the last check and the sleep. An interrupt in between ends the sleep.
    fn sleep(&self) {
        let deadline = if self.is_fatal { NEVER } else { self.earliest_deadline().1 };
        board::board_arm_deadline(deadline);
        let before = board::board_block();
        let is_idle = self.is_fatal
            || !self.finished.ready() && !board::flash_is_past(deadline) && !self.queues.iter().any(Queue::has_rung);
        if is_enabled() && is_idle {
            board::board_sleep();
        }
        board::board_restore(before);
    }

    // ---- Events ----

    fn serve_doorbells(&mut self, id: usize) -> bool {
        let has_rung = self.queues[id].has_rung();
        self.look_at_doorbells(id);
        while !self.is_fatal
            && let Some((slot, entry)) = self.queues[id].fetch()
        {
            self.begin(id, slot, &entry);
        }
        has_rung
    }

    fn look_at_doorbells(&mut self, id: usize) {
        if self.queues[id].has_rung() {
            self.read_doorbells(id);
            self.post(id); // there may be room now
        }
    }

    /// Reads the doorbells. If the host has reaped everything by itself, no interrupt is due.
    fn read_doorbells(&mut self, id: usize) {
        if self.queues[id].read_doorbells().is_err() {
            self.report_doorbell(id);
        }
        let now = self.now;
        if self.queues[id].is_reaped()
            && let Some(vector) = self.vector(id)
            && vector.deadline().is_some()
        {
            vector.on_consumed(now);
        }
    }

    /// An invalid doorbell value is ignored and reported. On the admin queue it is fatal: without that queue the host
    /// can only reset the controller.
    fn report_doorbell(&mut self, id: usize) {
        let event = EVENT_DOORBELL_VALUE | (id as u32) << 16;
        let _ = REGISTERS.event.compare_exchange(0, event, Release, Relaxed); // only the first event is kept
        if id == 0 {
            self.is_fatal = true;
            board::flash_abort();
            REGISTERS.csts.store(CSTS_READY | CSTS_FATAL, Release);
        }
    }

    /// Handles the event with the earliest timestamp: a completed flash command, or a deadline. `false`: there is none.
    fn take_event(&mut self) -> bool {
        let (vector, deadline) = self.earliest_deadline();
        let is_past = board::flash_is_past(deadline); // before reading the ring: then it has all up to the deadline
        let done = self.finished.peek().copied();
        match done {
            Some(done) if done.stamp <= deadline => {
                let _ = self.finished.dequeue();
                self.now = done.stamp;
                let status = if done.has_failed() { Status::UnrecoveredRead } else { Status::Success };
                let slot = usize::from(done.slot);
                self.finish(1 + slot / SLOTS, SlotId::new(slot), status, 0);
            }
            _ if done.is_some() || is_past => {
                self.now = self.now.max(deadline);
                self.vectors[vector].on_deadline(self.now);
            }
            _ => return false,
        }
        true
    }

    /// The vector with the earliest deadline, and that deadline.
    fn earliest_deadline(&self) -> (usize, u64) {
        let [first, second] = self.vectors.each_ref().map(|vector| vector.deadline().unwrap_or(NEVER));
        if first <= second { (0, first) } else { (1, second) }
    }

    // ---- Commands ----

    fn begin(&mut self, id: usize, slot: SlotId, entry: &Entry) {
        let now = self.now;
        let Some(vector) = self.vector(id) else {
            (1..QUEUES).for_each(|io| self.look_at_doorbells(io)); // what the host rang before it rang the admin queue's
            let is_busy = self.queues[1..].iter().any(|queue| queue.in_flight() > 0 || !queue.is_reaped());
            match self.features.execute(&mut self.vectors, entry, is_busy, now) {
                Ok(result) => self.finish(id, slot, Status::Success, result),
                Err(status) => self.finish(id, slot, status, 0),
            }
            return;
        };
        let submission = Submission { hint: hint(entry), ..Submission::ALONE };
        self.queues[id].command(slot).mark = vector.on_submit(now, &submission);
        match ReadOrWrite::try_from(entry) {
            Ok(ReadOrWrite { is_write, block, address }) => {
                let slot = (id - 1) * SLOTS + slot.index();
                board::flash_start(slot as u32, is_write, block, address, now);
            }
            Err(status) => self.finish(id, slot, status, 0),
        }
    }

    fn finish(&mut self, id: usize, slot: SlotId, status: Status, result: u32) {
        self.queues[id].finish(slot, status, result);
        self.post(id);
    }

    /// Posts completed commands while the completion queue has room. Each entry is posted before the decision about it.
    fn post(&mut self, id: usize) {
        while let Some(command) = self.queues[id].post() {
            let (now, cif, outstanding) = (self.now, self.queues[id].in_flight() + 1, self.queues[id].outstanding());
            let class = if command.status == Status::Success { Class::Io } else { Class::Failed };
            let completion = Completion { mark: command.mark, cif, outstanding, class, slice_end: None };
            match self.vector(id) {
                Some(vector) => vector.on_completion(now, &completion),
                None => self.vectors[0].interrupt(Cause::Admin), // never coalesced
            }
        }
    }

    /// The vector of a queue; `None` for the admin queue.
    fn vector(&mut self, id: usize) -> Option<&mut Coalescing<V>> {
        self.vectors.get_mut(id.checked_sub(1)?)
    }
}

fn is_enabled() -> bool {
    REGISTERS.cc.load(Acquire) & CC_ENABLE != 0
}
