//! The thread's loop: takes requests, has them performed, posts their completions, interrupts when the policy says so, and
//! sleeps.

use super::QueueConfig;
use super::aside::Aside;
use super::mailbox::{Change, Control, Inbox, Part, RunReport};
use super::pause::Pause;
use super::poll::AdaptivePoll;
use super::reactor::{Event, Reactor};
use super::requests::{Finished, Requests, Slot, Taken};
use super::state::State;
use crate::backend::{Operation, Outcome, Step};
use crate::disk::Disk;
use crate::record::Recording;
use crate::source::{Source, Task};
use crate::stats::latency::Kind;
use crate::stats::{BudgetStats, DeviceStats, Latencies, QueueStats};
use anyhow::Result;
use coalesce_delivery::Delivery;
use coalesce_policy::{Class, Completion, Decision, Hint, Policy as _, Spec, SpecError, Submission};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Instant, SystemTime};
use tracing::{info, warn};

/// The approximate limit of the data in one batch, in bytes. A memory disk without a latency performs a whole batch
/// before the queue handles anything else, except for large requests, which it performs in pieces.
const BATCH_BYTES_MAX: u64 = 16 << 20;

/// A queue, on its thread.
pub(super) struct Queue<S: Source> {
    index: usize,
    disk: Arc<Disk>,
    inbox: Inbox<S>,
    reactor: Reactor,
    events: Vec<Event>,
    state: State<S>,
    requests: Requests<S::Token>,
    batch: Vec<usize>, // ids of requests just taken
    pause: Pause,
    is_full_logged: bool,
    delivery: Delivery<S::Entry>,
    aside: Aside,
    stats: DeviceStats,
    latencies: Latencies,
    poll: AdaptivePoll,
    run_report: Option<RunReport>,
    draining: Option<Sender<()>>,
    recording: Option<Recording>,
    policy_since: SystemTime,
    counted_since: SystemTime,
}

impl<S: Source> Queue<S> {
    pub(super) fn new(index: usize, disk: Arc<Disk>, config: &QueueConfig, inbox: Inbox<S>) -> Result<Self> {
        let owner = (disk.name.clone(), index as u64);
        let recording = config.recorder.as_ref().map(|recorder| recorder.queue(&disk.name, index, disk.epoch));
        Ok(Self {
            index,
            disk,
            reactor: Reactor::new(u32::from(config.size_max), inbox.wake().clone(), owner)?,
            inbox,
            events: Vec::new(),
            state: State::Stopped(None),
            requests: Requests::new(usize::from(config.size_max)),
            batch: Vec::new(),
            pause: Pause::default(),
            is_full_logged: false,
            delivery: Delivery::new(config.policy.clone())?,
            aside: Aside::default(),
            stats: DeviceStats::default(),
            latencies: Latencies::default(),
            poll: AdaptivePoll::new(config.poll_ns),
            run_report: None,
            draining: None,
            recording,
            policy_since: SystemTime::now(),
            counted_since: SystemTime::now(),
        })
    }

    #[inline(never)] // scripts/cost.sh counts its instructions
    pub(super) fn run(mut self) {
        self.counted_since = SystemTime::now();
        let _ = nix::sys::prctl::set_timerslack(1); // ns; deadlines are some µs away, and the default slack is 50 µs
        while self.handle_messages() {
            let mut busy = self.reap();
            busy |= self.resume_postponed();
            busy |= self.take_requests();
            self.after_completions();
            self.end_drain();
            self.reactor.submit();
            if !busy {
                self.wait();
            }
        }
    }

    /// The time of the policy's clock, in ns.
    fn now(&self) -> u64 {
        self.disk.now()
    }

    /// Handles the waiting control messages. Returns false if the thread must end.
    fn handle_messages(&mut self) -> bool {
        while let Some(message) = self.inbox.next() {
            if matches!(message, Control::End) {
                self.stop();
                return false;
            }
            self.handle(message);
        }
        true
    }

    fn handle(&mut self, message: Control<S>) {
        match message {
            Control::Start(source, is_enabled) => self.start(source, is_enabled),
            Control::Enable(is_enabled, answer) => {
                self.state.enable(is_enabled);
                let _ = answer.send(());
            }
            Control::Drain(answer) => {
                self.state.enable(false);
                self.draining = Some(answer);
            }
            Control::Change(part, change, answer) => {
                self.change(part, change);
                let _ = answer.send(());
            }
            Control::Stop(answer) => {
                let _ = answer.send(self.stop());
            }
            Control::End => {}
            Control::SetPolicy(spec, keep_learned, answer) => {
                let _ = answer.send(self.set_policy(spec, keep_learned));
            }
            Control::SetRunning(report, answer) => {
                self.set_running(report);
                let _ = answer.send(());
            }
            Control::CountBeyond(bytes, answer) => {
                let _ = answer.send(self.requests.beyond(bytes));
            }
            Control::GetStats(answer) => {
                let _ = answer.send(self.query());
            }
            Control::ResetStats(answer) => {
                self.collect_counts();
                self.delivery.reset_stats();
                self.stats = DeviceStats::default();
                self.latencies = Latencies::default();
                self.poll.reset_stats();
                self.counted_since = SystemTime::now();
                let _ = answer.send(());
            }
        }
    }

    /// `keep_learned`: the policy before keeps what it has learned, and this one goes on with what it had learned.
    pub(super) fn set_policy(&mut self, spec: Spec, keep_learned: bool) -> Result<(), SpecError> {
        let now = self.now();
        if !keep_learned {
            self.aside.clear();
        } else if *self.delivery.policy().spec() == spec {
            return Ok(());
        } else if let Some(policy) = self.delivery.policy().set_aside(now) {
            self.aside.keep(policy);
        }
        let ring = self.state.completing();
        let decided = match self.aside.take(&spec) {
            Some(policy) => self.delivery.resume(ring, now, policy),
            None => self.delivery.reconfigure(ring, now, spec)?,
        };
        self.policy_since = SystemTime::now();
        self.note_decided(now, decided.map(Some));
        self.apply_host_settings();
        Ok(())
    }

    /// Stores the report, and tells the policy, which delivers everything held. Without a source, or with a broken ring,
    /// the policy is told when the next source starts.
    fn set_running(&mut self, report: RunReport) {
        self.run_report = Some(report);
        let now = self.now();
        let Some(source) = self.state.completing() else { return };
        let decided = match report.running {
            true => self.delivery.on_schedule(source, now),
            false => self.delivery.on_deschedule(source, now),
        };
        self.note_decided(now, decided.map(Some));
    }

    /// Whether the last report says that the guest does not run. Without a new report it counts as running after `until`.
    fn guest_is_descheduled(&mut self) -> bool {
        let Some(report) = self.run_report.filter(|report| !report.running) else { return false };
        if report.until > Instant::now() {
            return true;
        }
        self.set_running(RunReport { running: true, ..report });
        false
    }

    /// The end of the guest's time slice, if it was reported. It may be over; then the policy ignores it.
    fn slice_end(&self) -> Option<u64> {
        let report = self.run_report.filter(|report| report.running)?;
        let end = report.until.saturating_duration_since(self.disk.epoch).as_nanos();
        u64::try_from(end).ok()
    }

    /// Adds the counts of the reactor and of the source to the statistics.
    fn collect_counts(&mut self) {
        self.pause.count(self.disk.now(), &mut self.stats);
        self.stats.enters += self.reactor.take_enters();
        self.stats.kicks += self.state.source_mut().map_or(0, Source::count_kicks);
    }

    fn query(&mut self) -> QueueStats {
        self.collect_counts();
        let policy = self.delivery.policy();
        let budget = policy.spec().budget().zip(policy.spent()).map(|(share, spent)| BudgetStats::new(share, spent));
        QueueStats::new(
            self.index,
            self.state.source().and_then(Source::host_stats),
            (policy.spec().to_string(), self.policy_since, self.counted_since),
            (policy.held().into(), self.requests.in_flight()),
            (policy.stats(), policy.hints_counted(), budget),
            self.delivery.stats(),
            (self.stats.clone(), &self.latencies, self.poll.stats().clone()),
        )
    }

    fn start(&mut self, source: Box<S>, is_enabled: bool) {
        self.stop();
        self.state = State::new(source, is_enabled);
        self.is_full_logged = false;
        if let Some(report) = self.run_report {
            self.set_running(report);
        }
        self.apply_host_settings();
        self.interrupt_if_owed();
    }

    /// Gives the policy what the host asks for, if the policy obeys it.
    fn apply_host_settings(&mut self) {
        let now = self.now();
        if self.delivery.policy().spec().is_by_host()
            && let Some(source) = self.state.completing()
            && let Some(aggregation) = source.aggregation()
        {
            let decided = self.delivery.set_by_host(source, now, aggregation);
            self.note_decided(now, decided.map(Some));
        }
    }

    fn change(&mut self, part: Part, change: Change<S>) {
        if part == Part::Kick {
            self.disarm_kick();
        }
        if let Some(source) = self.state.source_mut() {
            change(source);
        }
        match part {
            Part::Interrupt => self.interrupt_if_owed(),
            Part::Holding => {
                self.flush();
                self.apply_host_settings();
            }
            Part::Kick | Part::Other => {}
        }
    }

    /// Completes the requests in flight, delivers everything held, and drops the source. Returns its position or that
    /// of the last one.
    fn stop(&mut self) -> Option<S::Position> {
        if let State::Stopped(position) = self.state {
            return position;
        }
        self.pause.end(self.disk.now(), &mut self.stats);
        self.pause.forget();
        while self.requests.in_flight() > 0 {
            while let Some(message) = self.inbox.next_about_policy() {
                self.handle(message);
            }
            if !self.resume_postponed() {
                self.reactor.arm_wake();
                let now = self.now();
                self.reactor.wait(self.delivery.deadline().map(|deadline| deadline.saturating_sub(now)));
            }
            self.reap();
            self.after_completions();
        }
        self.flush();
        self.disarm_kick();
        if let Some(recording) = &mut self.recording {
            recording.hand_over();
        }
        let now = self.now();
        self.delivery.forget(now);
        self.aside.clear(); // the next source may have other requesters
        self.collect_counts();
        self.state.stop()
    }

    fn flush(&mut self) {
        let now = self.now();
        if let Some(source) = self.state.completing() {
            let decided = self.delivery.flush(source, now);
            self.note_decided(now, decided.map(Some));
        }
    }

    /// Records a decision that no completion caused, or notes that the ring is broken.
    fn note_decided(&mut self, now: u64, decided: Result<Option<Decision>, S::Broken>) {
        if let (Ok(decision), Some(recording)) = (&decided, &mut self.recording) {
            recording.decide(now, *decision);
        }
        self.check_ring(decided.map(drop));
    }

    fn interrupt_if_owed(&mut self) {
        if let Some(source) = self.state.source_mut().filter(|source| source.owes_interrupt()) {
            self.delivery.interrupt(source);
        }
    }

    /// Waits until io_uring no longer polls for kicks.
    fn disarm_kick(&mut self) {
        self.reactor.disarm_kick();
        while self.reactor.is_kick_armed() {
            self.reactor.wait(None);
            self.reap();
        }
        self.reactor.next_kick();
    }

    /// Marks the source as broken if a ring operation shows that the guest broke its ring, as it may at any time;
    /// interrupts for what is posted, and drops the rest.
    fn check_ring(&mut self, ring: Result<(), S::Broken>) {
        if let Err(why) = ring
            && self.state.set_broken()
        {
            warn!(disk = self.disk.name, queue = self.index as u64, "the ring is broken: {why}");
            self.stats.broken_rings += 1;
            let now = self.now();
            if let Some(source) = self.state.source_mut() {
                self.delivery.abandon(source, now);
                source.report_broken();
            }
        }
    }

    /// Takes the submitted requests, and begins them. Returns whether there were any.
    fn take_requests(&mut self) -> bool {
        let is_whole = self.take_batch();
        let batch = std::mem::take(&mut self.batch);
        self.record_batch(&batch);
        let now = self.now();
        for (i, &id) in batch.iter().enumerate() {
            self.mark(now, id, batch.len(), is_whole && i + 1 == batch.len());
        }
        for &id in &batch {
            let step = self.requests.begin(id, &self.disk.backend);
            self.proceed(id, step);
        }
        self.batch = batch;
        !self.batch.is_empty()
    }

    /// Takes the submitted requests. Returns false if some may be left that soon follow.
    fn take_batch(&mut self) -> bool {
        self.batch.clear();
        if self.pause.until().is_some() {
            self.pause.end(self.disk.now(), &mut self.stats);
        }
        let mut bytes = 0;
        while bytes < BATCH_BYTES_MAX {
            if !matches!(self.state, State::Running(_)) {
                return false;
            }
            if self.requests.is_full() {
                self.log_full();
                return false;
            }
            match self.take_next() {
                Ok(Some(taken)) => {
                    let slot = self.requests.get(taken.id);
                    bytes += slot.bytes;
                    self.stats.malformed += u64::from(slot.task == Task::Malformed);
                    self.stats.taken_over += u64::from(taken.is_taken_over);
                    let is_refused = matches!(slot.task, Task::Malformed | Task::Answer(Outcome::Error));
                    self.batch.push(taken.id);
                    if is_refused {
                        return false; // to find that out may have taken as long as a large request
                    }
                }
                Ok(None) => return true,
                Err(broken) => {
                    self.check_ring(Err(broken));
                    return true;
                }
            }
        }
        false
    }

    /// Takes the next request, if there is one and the limits of the disk let it.
    fn take_next(&mut self) -> Result<Option<Taken>, S::Broken> {
        let State::Running(source) = &mut self.state else { return Ok(None) };
        if !self.disk.throttle.is_on() || source.takes_over() {
            return self.requests.take(&mut **source, &self.disk);
        }
        let now = self.disk.now();
        match self.disk.throttle.turn(now) {
            Ok(turn) => {
                let taken = self.requests.take(&mut **source, &self.disk)?;
                if let Some(Taken { id, .. }) = taken {
                    let (requests, bytes) = self.requests.get(id).cost();
                    turn.charge(requests, bytes);
                    self.pause.note_taken(&mut self.stats);
                }
                Ok(taken)
            }
            Err(until) => {
                let exempt = self.requests.take_exempt(&mut **source);
                if exempt.is_none() && source.is_waiting()? {
                    self.pause.begin(now, until, source.backlog()?);
                }
                Ok(exempt)
            }
        }
    }

    /// Logs that the queue is full, once for each source.
    fn log_full(&mut self) {
        if !std::mem::replace(&mut self.is_full_logged, true) {
            let (disk, queue) = (&self.disk.name, self.index as u64);
            info!(disk, queue, "the queue is full: further requests wait until some in flight complete");
        }
    }

    fn note_kick(&mut self) {
        self.stats.kicks += 1;
        if let Some(doubt) = self.state.source_mut().and_then(Source::after_kick) {
            warn!(disk = self.disk.name, queue = self.index as u64, "{doubt}");
        }
    }

    fn record_batch(&mut self, batch: &[usize]) {
        if self.recording.is_none() {
            return;
        }
        let now = self.now();
        for &id in batch {
            let &Slot { task, bytes, ioprio, .. } = self.requests.get(id);
            if let Some(recording) = &mut self.recording {
                recording.submit(now, id, operation(&task).copied(), bytes, ioprio);
            }
        }
    }

    fn mark(&mut self, now: u64, id: usize, batch_len: usize, last_of_batch: bool) {
        let outstanding = self.in_flight() + self.unreaped();
        let slot = self.requests.get_mut(id);
        let operation = operation(&slot.task);
        let spec = self.delivery.policy().spec();
        self.stats.realtime += u64::from(slot.ioprio >> 13 == 1);
        let submission = Submission {
            flush: matches!(operation, Some(Operation::Flush)),
            durable: matches!(operation, Some(Operation::Write { durable: true, .. })),
            ioprio: slot.ioprio,
            hint: slot.token().map_or(Hint::Plain, |token| S::hint(token, spec)),
            group: slot.group,
            batch_len,
            last_of_batch,
            outstanding,
            before: 0,
        };
        slot.taken_at = now;
        slot.mark = self.delivery.on_submit(now, &submission);
    }

    /// Requests that have completed and that the guest has not reaped.
    fn unreaped(&self) -> u32 {
        self.state.source().map_or(0, Source::unreaped) + self.delivery.unposted() as u32
    }

    /// Commands in flight, without one that completes now: requests that are taken or wait to be taken. What waits for the limits
    /// of the disk is not in flight: it completes no sooner than they say, so no policy may hold a completion for it.
    fn in_flight(&self) -> u32 {
        let taken = self.requests.in_flight() as u32;
        if self.pause.until().is_some() {
            return taken;
        }
        taken + self.state.source().and_then(|source| source.backlog().ok()).unwrap_or(0)
    }

    fn proceed(&mut self, id: usize, mut step: Step) {
        while matches!(step, Step::Finished(Outcome::Ok)) && self.advance(id) {
            step = self.requests.begin(id, &self.disk.backend);
        }
        match step {
            Step::Finished(outcome) => self.finish(id, outcome),
            // SAFETY: the token keeps the buffers mapped, and the slot keeps it until the operation has completed and
            // been reaped. The disk keeps its descriptors open, and keeps the latencies to which a timeout points.
            Step::Submit(entry) => unsafe { self.reactor.push(id, entry) },
            Step::Again => self.requests.postpone(id),
        }
    }

    /// Moves a request to its next operation. Returns false if it has none.
    fn advance(&mut self, id: usize) -> bool {
        self.state.source_mut().is_some_and(|source| self.requests.advance(id, source))
    }

    /// Resumes the next postponed request. Returns whether there was one.
    fn resume_postponed(&mut self) -> bool {
        let Some(id) = self.requests.next_postponed() else { return false };
        self.resume(id, 0);
        true
    }

    fn resume(&mut self, id: usize, result: i32) {
        if let Some(step) = self.requests.resume(id, &self.disk.backend, result) {
            self.proceed(id, step);
        }
    }

    /// Completes a request, and lets the policy decide about its interrupt.
    fn finish(&mut self, id: usize, outcome: Outcome) {
        let Some(Finished { task, bytes, taken_at, mark, token }) = self.requests.finish(id) else { return };
        let class = if outcome == Outcome::Ok { Class::Io } else { Class::Failed };
        let cif = self.in_flight() + 1; // its slot is free already
        let outstanding = cif + self.unreaped();
        let slice_end = self.slice_end();
        let completion = Completion { mark, cif, outstanding, class, slice_end };
        let recorded = self.recording.is_some().then(|| self.delivery.policy().mark_at(mark, cif).event);
        let now = self.now();
        self.count(&task, bytes, outcome, now.saturating_sub(taken_at));
        let Some(source) = self.state.completing() else { return };
        let entry = source.complete(token, outcome);
        let decided = self.delivery.complete(source, now, entry, &completion);
        if let (Some(recording), Some(event)) = (&mut self.recording, recorded) {
            recording.complete(now, id, outcome != Outcome::Ok, event, decided.as_ref().ok().copied());
        }
        self.check_ring(decided.map(drop));
    }

    fn count(&mut self, task: &Task, bytes: u64, outcome: Outcome, ns: u64) {
        let stats = &mut self.stats;
        let done = if outcome == Outcome::Ok { bytes } else { 0 };
        let kind = match operation(task) {
            Some(Operation::Read { .. }) => {
                stats.reads += 1;
                stats.bytes_read += done;
                Kind::Read
            }
            Some(Operation::Write { .. }) => {
                stats.writes += 1;
                stats.bytes_written += done;
                Kind::Write
            }
            Some(Operation::Flush) => {
                stats.flushes += 1;
                Kind::Flush
            }
            Some(Operation::Discard { .. } | Operation::WriteZeroes { .. }) | None => {
                stats.others += 1;
                Kind::Other
            }
        };
        stats.failed += u64::from(outcome == Outcome::Error);
        self.latencies[kind as usize].note(ns);
    }

    /// After a round of completions: ends the policy's poll, handles a passed deadline, and delivers what must not be held.
    fn after_completions(&mut self) {
        let now = self.now();
        let Some(source) = self.state.completing() else { return };
        let mut decided = self.delivery.on_batch_end(source, now);
        if decided.is_ok() && self.delivery.deadline().is_some_and(|deadline| deadline <= now) {
            decided = self.delivery.on_deadline(source, now).map(Some);
        }
        self.note_decided(now, decided);
        // A guest that does not run takes all pending interrupts as one when it runs again, so a hold would save nothing.
        let is_descheduled = self.guest_is_descheduled();
        if self.delivery.policy().held() > 0 && (is_descheduled || self.must_deliver()) {
            self.flush();
        }
    }

    /// Answers the message that waits until nothing is in flight.
    fn end_drain(&mut self) {
        if self.requests.in_flight() == 0
            && let Some(drained) = self.draining.take()
        {
            let _ = drained.send(());
        }
    }

    /// Whether what is held must be delivered now. After the last request in flight of a disabled source, or of one that waits for
    /// the limits of the disk, no completion follows, even if more requests wait to be taken. And a source may begin to forbid holds
    /// while completions are held.
    fn must_deliver(&self) -> bool {
        let is_idle = self.requests.in_flight() == 0;
        match &self.state {
            State::Disabled(_) if is_idle => true,
            State::Running(_) if is_idle && self.pause.until().is_some() => true,
            State::Disabled(source) | State::Running(source) => !source.may_hold(),
            State::Stopped(_) | State::Broken(_) => false,
        }
    }

    /// Handles the events of io_uring. Returns whether there were any.
    fn reap(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.reactor.reap(&mut events);
        let busy = !events.is_empty();
        for event in events.drain(..) {
            match event {
                Event::Done { id, result } => self.resume(id, result),
                Event::Kick => self.note_kick(),
                Event::Other => {}
            }
        }
        self.events = events;
        busy
    }

    /// Waits for work: polls for a while, then sleeps until an event or the deadline.
    fn wait(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.hand_over();
        }
        let start = self.now();
        let Some(polled_ns) = self.poll_for_work(start) else { return self.poll.paid() };
        match self.taking().map_or(Ok(false), Source::enable_kicks) {
            Ok(false) => {}
            Ok(true) => return,
            Err(broken) => self.check_ring(Err(broken)),
        }
        self.reactor.arm_wake();
        if let Some(kick) = self.state.source().and_then(Source::kick) {
            self.reactor.arm_kick(kick);
        }
        let before = self.now();
        self.reactor.wait(self.next_look().map(|deadline| deadline.saturating_sub(before)));
        let slept_ns = self.now() - before;
        if self.pause.until().is_none() {
            self.poll.slept(polled_ns, slept_ns);
        }
        let ring = self.taking().map_or(Ok(()), Source::disable_kicks);
        self.check_ring(ring);
    }

    /// When something is due without an event: the policy's deadline, or the end of a pause.
    fn next_look(&self) -> Option<u64> {
        self.delivery.deadline().into_iter().chain(self.pause.until()).min()
    }

    /// The source, if requests may be taken.
    fn taking(&mut self) -> Option<&mut S> {
        match &mut self.state {
            State::Running(source) if !self.requests.is_full() && self.pause.until().is_none() => Some(source),
            _ => None,
        }
    }

    /// Polls for work. Returns `None` if there is some, and otherwise the time spent, in ns. It polls until a near
    /// deadline, because a sleep would overshoot it; the sleep that follows then ends at once. A queue that waits for a limit
    /// of its disk sleeps: its bucket has room for what a sleep overshoots.
    fn poll_for_work(&mut self, start: u64) -> Option<u64> {
        let mut end = if self.pause.until().is_some() { start } else { start + self.poll.length_ns() };
        let deadline = self.delivery.deadline();
        if let Some(deadline) = deadline.filter(|&deadline| deadline <= start + self.poll.max_ns()) {
            end = end.max(deadline);
        }
        let mut now = start;
        while now < end {
            let is_due = deadline.is_some_and(|deadline| deadline <= now);
            let has_request = self.taking().is_some_and(|source| !matches!(source.backlog(), Ok(0)));
            if is_due || has_request || self.reactor.has_events() {
                return None;
            }
            std::hint::spin_loop();
            now = self.now();
        }
        Some(now - start)
    }
}

const fn operation(task: &Task) -> Option<&Operation> {
    match task {
        Task::Operation(operation) => Some(operation),
        Task::Answer(_) | Task::Malformed => None,
    }
}
