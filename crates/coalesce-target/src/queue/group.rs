//! Queues that share a thread (SPDK: a poll group). The thread visits those that are awake, and sleeps when none has work.
//!
//! All queues of a disk begin in its first group, whose thread finds their requests without a switch from one to the other.
//! [`load`](super::load) says which of them moves to a thread of its own, and back. A queue moves with nothing in flight, and with
//! what it holds, so nothing is between two threads, and no lock is on the path.

use super::load::{self, FIRST, REST, STAY, Time, WINDOW, WINDOW_MAX};
use super::poll::{AdaptivePoll, Wait};
use super::reactor::{Event, Reactor, Watched};
use super::serving::Queue;
use crate::disk::{Disk, QUEUES_MAX};
use crate::source::Source;
use anyhow::{Context as _, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use tracing::debug;

const _: () = assert!(QUEUES_MAX <= u32::BITS as usize, "a bit of `Group::awake` for each");

/// Visits without work, while others have some, after which a queue lets its guest kick.
const IDLE_VISITS: u32 = 64;
/// Turns between two looks at the clock, while the thread does not sleep.
const TURNS: u32 = 256;

/// What other threads know of a group.
#[derive(Debug)]
pub(super) struct Door<S: Source> {
    arrivals: Sender<Box<Queue<S>>>,
    wake: EventFd, // is polled, never read
    is_closed: AtomicBool,
    queues: AtomicUsize, // with those that are on their way
    busy: AtomicU32,     // of 1024, in the window that ended then:
    busy_at: AtomicU64,  // ns of the disk's clock
}

impl<S: Source> Door<S> {
    /// That of a group to which this many queues come at the start.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub(super) fn new(arrivals: Sender<Box<Queue<S>>>, queues: usize) -> Result<Self> {
        Ok(Self {
            arrivals,
            wake: EventFd::from_flags(EfdFlags::EFD_NONBLOCK).context("eventfd")?,
            is_closed: AtomicBool::new(false),
            queues: queues.into(),
            busy: AtomicU32::new(0),
            busy_at: AtomicU64::new(0),
        })
    }

    /// Ends the group's thread as soon as it has no queue.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let _ = self.wake.write(1); // fails only at the counter's maximum; then it is readable
    }

    /// Sends a queue to the group.
    pub(super) fn enter(&self, queue: Box<Queue<S>>) {
        let _ = self.arrivals.send(queue); // fails only after a panic of the thread
        let _ = self.wake.write(1);
    }

    fn busy(&self, now: u64) -> u32 {
        let is_recent = now.saturating_sub(self.busy_at.load(Ordering::Relaxed)) < WINDOW_MAX;
        if is_recent { self.busy.load(Ordering::Relaxed) } else { 0 }
    }
}

/// A group, on its thread.
pub(super) struct Group<S: Source> {
    place: usize,
    doors: Arc<[Door<S>]>,
    arrivals: Receiver<Box<Queue<S>>>,
    disk: Arc<Disk>,
    reactor: Reactor,
    events: Vec<(usize, Event)>,
    queues: Vec<Option<Box<Queue<S>>>>, // by number
    awake: u32,                         // a bit for each
    idle_visits: Vec<u32>,              // since each had work
    moving: Option<(usize, usize)>,     // a queue, and where it goes as soon as nothing of it is in flight
    poll: AdaptivePoll,
    turns: u32,
    window: u64,     // when it began
    idle_ns: u64,    // in the window
    moves_from: u64, // before, none moves
    cpus: usize,
}

impl<S: Source> Group<S> {
    pub(super) fn new(
        place: usize,
        doors: Arc<[Door<S>]>,
        arrivals: Receiver<Box<Queue<S>>>,
        disk: Arc<Disk>,
        reactor: Reactor,
        (poll_ns, cpus): (u64, usize),
    ) -> Self {
        let places = doors.len();
        Self {
            place,
            arrivals,
            disk,
            reactor,
            events: Vec::new(),
            queues: (0..places).map(|_| None).collect(),
            awake: 0,
            idle_visits: vec![0; places],
            moving: None,
            poll: AdaptivePoll::new(poll_ns),
            turns: 0,
            window: 0,
            idle_ns: 0,
            moves_from: 0,
            cpus,
            doors,
        }
    }

    /// Serves until the door is closed and no queue is left.
    #[inline(never)] // scripts/cost.sh counts its instructions
    pub(super) fn run(mut self) {
        let _ = nix::sys::prctl::set_timerslack(1); // ns; deadlines are some µs away, and the default slack is 50 µs
        self.admit();
        while !self.doors[self.place].is_closed.load(Ordering::Acquire) || self.members().next().is_some() {
            let mut busy = self.dispatch();
            busy |= self.visit();
            self.reactor.submit();
            self.turns += 1;
            if !busy {
                self.wait();
            } else if self.turns >= TURNS || self.moving.is_some() {
                self.balance();
            }
        }
    }

    /// Admits the queues that came.
    fn admit(&mut self) {
        while let Ok(mut queue) = self.arrivals.try_recv() {
            queue.settle(self.place);
            let number = queue.number();
            self.queues[number] = Some(queue);
            self.awake |= 1 << number;
            self.idle_visits[number] = 0;
            if self.place != FIRST {
                self.moves_from = self.disk.now() + STAY;
            }
        }
    }

    /// Gives the events of io_uring to their queues. Returns whether there were any.
    fn dispatch(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.reactor.reap(&mut events);
        let busy = !events.is_empty();
        for (number, event) in events.drain(..) {
            self.rouse(number);
            match self.queues.get_mut(number) {
                Some(Some(queue)) => queue.note(event, &mut self.reactor),
                Some(None) => {} // an old event of one that has moved
                None => self.admit(),
            }
        }
        self.events = events;
        busy
    }

    fn rouse(&mut self, number: usize) {
        if self.awake & 1 << number == 0
            && let Some(Some(queue)) = self.queues.get_mut(number)
        {
            self.awake |= 1 << number;
            self.idle_visits[number] = 0;
            queue.rouse();
        }
    }

    /// Visits the queues that are awake. Returns whether one had work.
    fn visit(&mut self) -> bool {
        let mut polls = if self.awake == 0 { None } else { self.poll.take_stats() };
        let mut busy = false;
        for number in bits(self.awake) {
            let Some(queue) = &mut self.queues[number] else { continue };
            if let Some(polls) = polls.take() {
                queue.note_polls(&polls);
            }
            let had_work = queue.visit(&mut self.reactor);
            let is_gone =
                queue.has_ended() || self.moving.is_some_and(|(moving, _)| moving == number && queue.is_still());
            busy |= had_work;
            self.idle_visits[number] = if had_work { 0 } else { self.idle_visits[number] + 1 };
            if is_gone {
                self.let_go(number);
            } else if self.idle_visits[number] > IDLE_VISITS {
                self.idle_visits[number] = 0;
                if queue.next_look().is_none() {
                    self.doze(number);
                }
            }
        }
        busy
    }

    /// Lets a queue wait for its guest's kick. Returns false, and goes on to visit it, if it has a request.
    fn doze(&mut self, number: usize) -> bool {
        let dozes = self.queues[number].as_mut().is_none_or(|queue| queue.doze(&mut self.reactor));
        if dozes {
            self.awake &= !(1 << number);
        }
        dozes
    }

    /// Parts from a queue that has ended, or moves.
    fn let_go(&mut self, number: usize) {
        let Some(mut queue) = self.queues[number].take() else { return };
        self.awake &= !(1 << number);
        let to = self.moving.take_if(|(moving, _)| *moving == number);
        self.doors[self.place].queues.fetch_sub(1, Ordering::Relaxed);
        if let Some(answer) = queue.take_ended() {
            if let Some((_, to)) = to {
                self.doors[to].queues.fetch_sub(1, Ordering::Relaxed);
            }
            drop(queue);
            let _ = answer.send(());
        } else if let Some((_, to)) = to {
            self.reactor.unwatch(number, Watched::Kick);
            self.reactor.unwatch(number, Watched::Wake);
            self.doors[to].enter(queue);
        }
    }

    /// Waits for work: polls for a while, then sleeps until an event, or until a queue is to look.
    fn wait(&mut self) {
        let start = self.disk.now();
        let wait = if self.reactor.is_still() { Wait::Guest } else { Wait::Disk };
        let Some(polled_ns) = self.poll_for_work(start, wait) else { return self.poll.paid() };
        if !bits(self.awake).all(|number| self.doze(number)) {
            return self.rouse_for_time(); // while others have work, nobody would look at the clock for those that doze already
        }
        let door = &self.doors[self.place];
        self.reactor.watch(self.doors.len(), Watched::Wake, door.wake.as_fd());
        let before = self.disk.now();
        let next_judgement = self.moving.map(|_| self.window + WINDOW);
        let until = self.members().filter_map(|queue| queue.next_look()).chain(next_judgement).min();
        let is_paused = self.is_paused();
        self.reactor.wait(until.map(|until| until.saturating_sub(before)));
        let slept_ns = self.disk.now() - before;
        if !is_paused {
            self.poll.slept(wait, polled_ns, slept_ns);
        }
        self.idle_ns += polled_ns + slept_ns;
        if until.is_some() {
            self.rouse_for_time();
        }
        if self.turns >= TURNS || self.moving.is_some() || before + slept_ns - self.window > 4 * WINDOW {
            self.balance();
        }
    }

    /// Rouses the queues for which something is due without an event.
    fn rouse_for_time(&mut self) {
        for number in 0..self.queues.len() {
            if self.queues[number].as_ref().is_some_and(|queue| queue.next_look().is_some()) {
                self.rouse(number);
            }
        }
    }

    fn members(&self) -> impl Iterator<Item = &Queue<S>> {
        self.queues.iter().flatten().map(|queue| &**queue)
    }

    fn is_paused(&self) -> bool {
        self.members().any(Queue::is_paused)
    }

    /// Polls for work. Returns `None` if there is some, and otherwise the time spent, in ns. It polls until a near deadline, because
    /// a sleep would overshoot it; the sleep that follows then ends at once. While a queue waits for a limit of the disk, the thread
    /// sleeps: the bucket has room for what a sleep overshoots.
    fn poll_for_work(&mut self, start: u64, wait: Wait) -> Option<u64> {
        let mut end = if self.is_paused() { start } else { start + self.poll.length_ns(wait) };
        let deadline = self.members().filter_map(Queue::deadline).min();
        if let Some(deadline) = deadline.filter(|&deadline| deadline <= start + self.poll.max_ns(Wait::Guest)) {
            end = end.max(deadline);
        }
        let mut now = start;
        while now < end && self.awake != 0 {
            let is_due = deadline.is_some_and(|deadline| deadline <= now);
            if is_due || self.has_requests() || self.reactor.has_events() {
                self.idle_ns += now - start; // no work, although it ends with some
                return None;
            }
            std::hint::spin_loop();
            now = self.disk.now();
        }
        Some(now - start)
    }

    fn has_requests(&mut self) -> bool {
        bits(self.awake).any(|number| self.queues[number].as_mut().is_some_and(|queue| queue.has_requests()))
    }

    /// At the end of a window, lets a queue move to where it is served better.
    fn balance(&mut self) {
        self.turns = 0;
        if self.doors.len() == 1 {
            return;
        }
        let now = self.disk.now();
        let length = now - self.window;
        let tells = || self.moving.is_some() || self.members().any(|queue| queue.work().tells());
        if length < WINDOW || length < WINDOW_MAX && !tells() {
            return;
        }
        let time = Time { length, busy: length.saturating_sub(self.idle_ns) };
        (self.window, self.idle_ns) = (now, 0);
        let door = &self.doors[self.place];
        door.busy.store(time.share(), Ordering::Relaxed);
        door.busy_at.store(now, Ordering::Relaxed);
        let works: Vec<_> = self.members().map(|queue| (queue.number(), queue.work())).collect();
        self.queues.iter_mut().flatten().for_each(|queue| queue.reset_work());
        if let Some((number, to)) = self.moving.take() {
            return self.stays(now, number, to);
        }
        if now < self.moves_from {
            return;
        }
        let moves = if self.place == FIRST {
            load::apart(&works, time, self.has_spare_cpu()).zip(self.empty_group())
        } else {
            let joins = |work| load::joins(work, time, self.doors[FIRST].busy(now));
            works.iter().find(|(_, work)| joins(*work)).map(|(number, _)| (*number, FIRST))
        };
        if let Some((number, to)) = moves
            && let Some(queue) = &mut self.queues[number]
        {
            debug!(disk = self.disk.name, queue = number as u64, "moves from thread {} to {to}", self.place);
            self.doors[to].queues.fetch_add(1, Ordering::Relaxed);
            queue.prepare_move();
            self.moving = moves;
            self.rouse(number);
        }
    }

    /// What a queue has in flight takes so long that it does not move now. Meanwhile it took no requests, and asked for no kicks.
    fn stays(&mut self, now: u64, number: usize, to: usize) {
        self.doors[to].queues.fetch_sub(1, Ordering::Relaxed);
        self.moves_from = now + REST;
        if let Some(queue) = &mut self.queues[number] {
            queue.settle(self.place);
        }
        self.rouse(number);
    }

    /// A group without a queue. Only the first one lets queues go to such a group, so it stays empty until then.
    fn empty_group(&self) -> Option<usize> {
        self.doors.iter().skip(1).position(|door| door.queues.load(Ordering::Relaxed) == 0).map(|i| i + 1)
    }

    /// Whether more than half of the CPUs are not used by threads of this disk.
    fn has_spare_cpu(&self) -> bool {
        let used = self.doors.iter().filter(|door| door.queues.load(Ordering::Relaxed) > 0).count();
        used < self.cpus / 2
    }
}

/// The numbers of the bits that are set, from the lowest.
fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < u32::BITS).then_some(bit as usize)
    })
}
