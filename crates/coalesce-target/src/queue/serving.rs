//! A queue: takes requests, has them performed, posts their completions, and interrupts when the policy says so. The thread of its
//! [`Group`](super::group::Group) visits it.

use super::QueueConfig;
use super::aside::Aside;
use super::load::{FIRST, Work};
use super::mailbox::{Change, Control, Inbox, Part, RunReport};
use super::pause::Pause;
use super::reactor::{Event, Reactor, Watched};
use super::requests::{Finished, Requests, Slot, Taken};
use super::state::State;
use crate::backend::{Operation, Outcome, Step};
use crate::disk::Disk;
use crate::record::Recording;
use crate::source::{Source, Task};
use crate::stats::latency::Kind;
use crate::stats::{BudgetStats, DeviceStats, Latencies, PollStats, QueueStats};
use anyhow::Result;
use coalesce_delivery::Delivery;
use coalesce_policy::{Class, Completion, Decision, Hint, Policy as _, Spec, SpecError, Submission};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Instant, SystemTime};
use tracing::{info, warn};

/// The approximate limit of the work in one batch, in bytes that are copied in the same time. A memory disk without a latency
/// performs a whole batch before the queue handles anything else, except for large requests, which it performs in pieces.
const BATCH_WORK_MAX: u64 = 16 << 20;

/// What waits until nothing is in flight any more.
enum Ending<S: Source> {
    Stop(Sender<Option<S::Position>>),
    Start(Box<S>, bool),
    End(Sender<()>),
}

/// A queue. One thread at a time has it.
pub(super) struct Queue<S: Source> {
    index: usize,
    disk: Arc<Disk>,
    inbox: Inbox<S>,
    state: State<S>,
    ending: Option<Ending<S>>,
    ended: Option<Sender<()>>,
    thread: usize,   // its group's
    is_moving: bool, // to another thread: it takes no requests
    work: Work,
    requests: Requests<S::Token>,
    batch: Vec<usize>, // ids of requests just taken
    pause: Pause,
    is_full_logged: bool,
    delivery: Delivery<S::Entry>,
    aside: Aside,
    stats: DeviceStats,
    latencies: Latencies,
    polls: PollStats,
    run_report: Option<RunReport>,
    draining: Option<Sender<()>>,
    recording: Option<Recording>,
    policy_since: SystemTime,
    counted_since: SystemTime,
}

impl<S: Source> Queue<S> {
    pub(super) fn new(index: usize, disk: Arc<Disk>, config: &QueueConfig, inbox: Inbox<S>) -> Result<Self, SpecError> {
        let recording = config.recorder.as_ref().map(|recorder| recorder.queue(&disk.name, index, disk.now()));
        Ok(Self {
            index,
            disk,
            inbox,
            state: State::Stopped(None),
            ending: None,
            ended: None,
            thread: FIRST,
            is_moving: false,
            work: Work::default(),
            requests: Requests::new(usize::from(config.size_max)),
            batch: Vec::new(),
            pause: Pause::default(),
            is_full_logged: false,
            delivery: Delivery::new(config.policy.clone())?,
            aside: Aside::default(),
            stats: DeviceStats::default(),
            latencies: Latencies::default(),
            polls: PollStats::default(),
            run_report: None,
            draining: None,
            recording,
            policy_since: SystemTime::now(),
            counted_since: SystemTime::now(),
        })
    }

    /// Its number in the disk.
    pub(super) const fn number(&self) -> usize {
        self.index
    }

    /// One turn of its thread. Returns whether there was work.
    pub(super) fn visit(&mut self, reactor: &mut Reactor) -> bool {
        self.stats.enters += reactor.take_enters();
        self.handle_messages(reactor);
        let mut busy = self.resume_postponed(reactor);
        busy |= self.take_requests(reactor);
        self.after_completions();
        self.end_drain();
        busy
    }

    /// Counting begins now.
    pub(super) fn begin(&mut self) {
        self.counted_since = SystemTime::now();
    }

    /// Adds what the thread's poll has counted.
    pub(super) const fn note_polls(&mut self, polls: &PollStats) {
        self.polls.add(polls);
    }

    /// What it has done in this window.
    pub(super) const fn work(&self) -> Work {
        self.work
    }

    /// Begins another window.
    pub(super) fn reset_work(&mut self) {
        self.work = Work::default();
    }

    /// Whether its handle was dropped, and nothing of it is left to do.
    pub(super) const fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Where to say that it is dropped.
    pub(super) const fn take_ended(&mut self) -> Option<Sender<()>> {
        self.ended.take()
    }

    /// It is to move to another thread: it takes no requests any more.
    pub(super) const fn prepare_move(&mut self) {
        self.is_moving = true;
    }

    /// Whether nothing of it is in flight on this thread.
    pub(super) const fn is_still(&self) -> bool {
        self.requests.in_flight() == 0
    }

    /// It is with this thread now.
    pub(super) const fn settle(&mut self, thread: usize) {
        (self.thread, self.is_moving) = (thread, false);
    }

    /// The time of the policy's clock, in ns.
    fn now(&self) -> u64 {
        self.disk.now()
    }

    /// Handles the waiting control messages. While a source ends, only those about the policy.
    fn handle_messages(&mut self, reactor: &mut Reactor) {
        loop {
            if self.ending.is_some() && self.requests.in_flight() == 0 {
                self.end_source(reactor);
            }
            if self.ending.is_some() {
                let Some(message) = self.inbox.next_about_policy() else { return };
                self.handle(message, reactor);
            } else {
                let Some(message) = self.inbox.next() else { return };
                self.handle(message, reactor);
            }
        }
    }

    fn handle(&mut self, message: Control<S>, reactor: &mut Reactor) {
        match message {
            Control::Start(source, is_enabled) => self.begin_end(Ending::Start(source, is_enabled)),
            Control::Enable(is_enabled, answer) => {
                self.state.enable(is_enabled);
                let _ = answer.send(());
            }
            Control::Drain(answer) => {
                self.state.enable(false);
                self.draining = Some(answer);
            }
            Control::Change(part, change, answer) => {
                self.change(part, change, reactor);
                let _ = answer.send(());
            }
            Control::Stop(answer) => self.begin_end(Ending::Stop(answer)),
            Control::End(answer) => self.begin_end(Ending::End(answer)),
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
                self.polls = PollStats::default();
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

    /// Adds the counts of the source to the statistics.
    fn collect_counts(&mut self) {
        self.pause.count(self.disk.now(), &mut self.stats);
        self.stats.kicks += self.state.source_mut().map_or(0, Source::count_kicks);
    }

    fn query(&mut self) -> QueueStats {
        self.collect_counts();
        let policy = self.delivery.policy();
        let budget = policy.spec().budget().zip(policy.spent()).map(|(share, spent)| BudgetStats::new(share, spent));
        QueueStats::new(
            (self.index, self.thread),
            self.state.source().and_then(Source::host_stats),
            (policy.spec().to_string(), self.policy_since, self.counted_since),
            (policy.held().into(), self.requests.in_flight()),
            (policy.stats(), policy.hints_counted(), budget),
            self.delivery.stats(),
            (self.stats.clone(), &self.latencies, self.polls.clone()),
        )
    }

    fn start(&mut self, source: Box<S>, is_enabled: bool) {
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

    fn change(&mut self, part: Part, change: Change<S>, reactor: &mut Reactor) {
        if part == Part::Kick {
            reactor.unwatch(self.index, Watched::Kick);
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

    /// Begins to end a source, if there is one: no more requests are taken.
    fn begin_end(&mut self, ending: Ending<S>) {
        self.pause.end(self.disk.now(), &mut self.stats);
        self.pause.forget();
        self.state.enable(false);
        self.ending = Some(ending);
    }

    /// Nothing is in flight: delivers everything held and drops the source. Then what waited for that.
    fn end_source(&mut self, reactor: &mut Reactor) {
        let Some(ending) = self.ending.take() else { return };
        let position = match self.state {
            State::Stopped(position) => position,
            _ => self.drop_source(reactor),
        };
        match ending {
            Ending::Stop(answer) => drop(answer.send(position)),
            Ending::Start(source, is_enabled) => self.start(source, is_enabled),
            Ending::End(answer) => {
                reactor.unwatch(self.index, Watched::Wake);
                self.ended = Some(answer);
            }
        }
    }

    /// Returns its position.
    fn drop_source(&mut self, reactor: &mut Reactor) -> Option<S::Position> {
        self.flush();
        reactor.unwatch(self.index, Watched::Kick);
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
    fn take_requests(&mut self, reactor: &mut Reactor) -> bool {
        let is_whole = self.take_batch();
        if self.batch.is_empty() {
            return false;
        }
        let batch = std::mem::take(&mut self.batch);
        self.record_batch(&batch);
        let now = self.now();
        for (i, &id) in batch.iter().enumerate() {
            self.mark(now, id, batch.len(), is_whole && i + 1 == batch.len());
        }
        self.work.note(batch.len(), batch.iter().map(|&id| self.requests.get(id).work).sum());
        for &id in &batch {
            let step = self.requests.begin(id, &self.disk.backend);
            self.proceed(id, step, reactor);
        }
        self.batch = batch;
        true
    }

    /// Takes the submitted requests. Returns false if some may be left that soon follow.
    fn take_batch(&mut self) -> bool {
        self.batch.clear();
        if self.pause.until().is_some() {
            self.pause.end(self.disk.now(), &mut self.stats);
        }
        let mut work = 0;
        while work < BATCH_WORK_MAX {
            if self.is_moving || !matches!(self.state, State::Running(_)) {
                return false;
            }
            if self.requests.is_full() {
                self.log_full();
                return false;
            }
            match self.take_next() {
                Ok(Some(taken)) => {
                    let slot = self.requests.get(taken.id);
                    work += slot.work;
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
        match self.disk.throttle.turn(self.index, now) {
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
                let exempt = self.requests.take_exempt(&mut **source, &self.disk);
                if exempt.is_none() && source.is_waiting()? {
                    self.disk.throttle.note_waiting(self.index, until);
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

    fn proceed(&mut self, id: usize, mut step: Step, reactor: &mut Reactor) {
        let mut zeroed = 0;
        while matches!(step, Step::Finished(Outcome::Ok)) && self.advance(id) {
            if zeroed > BATCH_WORK_MAX {
                step = Step::Again; // with the operation that is next
                break;
            }
            zeroed += self.requests.get(id).zeroes(&self.disk.backend);
            step = self.requests.begin(id, &self.disk.backend);
        }
        match step {
            Step::Finished(outcome) => self.finish(id, outcome),
            // SAFETY: the token keeps the buffers mapped, and the slot keeps it until the operation has completed and
            // been reaped. The disk keeps its descriptors open, and keeps the latencies to which a timeout points.
            Step::Submit(entry) => unsafe { reactor.push(self.index, id, entry) },
            Step::Again => self.requests.postpone(id),
        }
    }

    /// Moves a request to its next operation. Returns false if it has none.
    fn advance(&mut self, id: usize) -> bool {
        self.state.source_mut().is_some_and(|source| self.requests.advance(id, source))
    }

    /// Resumes the next postponed request. Returns whether there was one.
    fn resume_postponed(&mut self, reactor: &mut Reactor) -> bool {
        let Some(id) = self.requests.next_postponed() else { return false };
        self.resume(id, 0, reactor);
        true
    }

    fn resume(&mut self, id: usize, result: i32, reactor: &mut Reactor) {
        if let Some(step) = self.requests.resume(id, &self.disk.backend, result) {
            self.proceed(id, step, reactor);
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

    /// Handles an event.
    pub(super) fn note(&mut self, event: Event, reactor: &mut Reactor) {
        match event {
            Event::Done { id, result } => self.resume(id, result, reactor),
            Event::Kick => self.note_kick(),
            Event::Other => {}
        }
    }

    /// Its thread visits it from now on, so its guest need not kick.
    pub(super) fn rouse(&mut self) {
        let ring = self.taking().map_or(Ok(()), Source::disable_kicks);
        self.check_ring(ring);
    }

    /// Lets events rouse it, and hands over its recording. Returns false if a request came meanwhile, for which no event follows.
    pub(super) fn doze(&mut self, reactor: &mut Reactor) -> bool {
        if let Some(recording) = &mut self.recording {
            recording.hand_over();
        }
        match self.taking().map_or(Ok(false), Source::enable_kicks) {
            Ok(false) => {}
            Ok(true) => return false,
            Err(broken) => self.check_ring(Err(broken)),
        }
        reactor.watch(self.index, Watched::Wake, self.inbox.wake().as_fd());
        if let Some(kick) = self.state.source().and_then(Source::kick) {
            reactor.watch(self.index, Watched::Kick, kick);
        }
        true
    }

    /// When something is due without an event: the policy's deadline, or the end of a pause.
    pub(super) fn next_look(&self) -> Option<u64> {
        self.delivery.deadline().into_iter().chain(self.pause.until()).min()
    }

    /// When the policy delivers what it holds.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.delivery.deadline()
    }

    /// Whether it waits for a limit of its disk.
    pub(super) const fn is_paused(&self) -> bool {
        self.pause.until().is_some()
    }

    /// Whether there are requests that it may take.
    pub(super) fn has_requests(&mut self) -> bool {
        self.taking().is_some_and(|source| !matches!(source.backlog(), Ok(0)))
    }

    /// The source, if requests may be taken.
    fn taking(&mut self) -> Option<&mut S> {
        match &mut self.state {
            State::Running(source) if !self.requests.is_full() && self.pause.until().is_none() && !self.is_moving => {
                Some(source)
            }
            _ => None,
        }
    }
}

const fn operation(task: &Task) -> Option<&Operation> {
    match task {
        Task::Operation(operation) => Some(operation),
        Task::Answer(_) | Task::Malformed => None,
    }
}
