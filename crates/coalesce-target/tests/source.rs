//! A queue serves what is not a virtqueue: here a completion queue that two submission queues share, as NVMe has them.

use coalesce_delivery::Ring;
use coalesce_target::backend::{Backend, Buffers, MemoryBackend, Operation, Outcome};
use coalesce_target::disk::{Disk, Limits, SERIAL_LEN, Totals};
use coalesce_target::os::call::CallRings;
use coalesce_target::queue::{Control, Part, PreparedQueues, QueueConfig, QueueHandle, RunReport};
use coalesce_target::source::{Request, Source, Task};
use coalesce_target::stats::QueueStats;
use coalesce_target::throttle::Throttle;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// How long nothing happens where nothing should: a mistake shows much sooner.
const QUIET: Duration = Duration::from_millis(200);

/// The command of endless requests.
const ENDLESS: u16 = u16::MAX;

/// A block of the host's memory.
type Block = Arc<[AtomicU8; 512]>;

fn block(byte: u8) -> Block {
    Arc::new(std::array::from_fn(|_| AtomicU8::new(byte)))
}

struct Submission {
    command: u16,
    task: Task,
    data: Option<Block>,
}

/// The host's memory: submission queues, and a completion queue with room for some.
#[derive(Default)]
struct Host {
    submissions: [VecDeque<Submission>; 2],
    is_nonsense: bool,
    completions: Vec<(usize, u16, Outcome)>,
    room: usize,          // completion queue entries that are neither used nor reserved
    takes: Option<usize>, // requests that can be taken yet; none: all
    is_held_up: bool,     // by completions that are held
    endless: Endless,
    delays: Option<Arc<Mutex<Host>>>, // the next completion here makes that host late
}

/// Requests that are answered at once, of which there are always more.
#[derive(Default)]
struct Endless {
    per_visit: u32, // 0: there are none
    found: u32,     // in this visit
    answered: u64,
    is_late: bool, // the next one is found by the last look before the thread sleeps
    follows: Option<(Arc<Mutex<Host>>, u64)>, // it ends when no more requests of that host are answered
    alone: u32,    // looks since the last answer
}

impl Endless {
    const fn has_one(&self) -> bool {
        self.per_visit > 0 && !self.is_late
    }

    /// Whether one is found.
    fn find(&mut self) -> bool {
        if let Some((other, answered)) = &mut self.follows {
            let now = other.lock().unwrap().endless.answered;
            let is_alone = now > 0 && std::mem::replace(answered, now) == now;
            self.alone = if is_alone { self.alone + 1 } else { 0 };
            if self.alone > 20 {
                self.per_visit = 0;
            }
        }
        self.found = if self.has_one() && self.found < self.per_visit { self.found + 1 } else { 0 };
        self.found > 0
    }
}

/// The controller's side of it.
struct QueuePair {
    host: Arc<Mutex<Host>>,
    doorbell: Arc<EventFd>,
    interrupts: Sender<()>,
    next: usize, // submission queue whose turn it is
    taken: u64,
}

struct Token {
    queue: usize,
    command: u16,
    _data: Option<Block>, // keeps the memory
}

const fn request(task: Task, token: Token) -> Request<Token> {
    Request { task, ioprio: 0, group: 0, descriptors: 0, is_taken_over: false, token }
}

impl Ring for QueuePair {
    type Entry = (usize, u16, Outcome);
    type Broken = &'static str;

    fn post(&mut self, entry: Self::Entry) -> Result<(), &'static str> {
        let mut host = self.host.lock().unwrap();
        if entry.1 == ENDLESS {
            host.endless.answered += 1;
            return Ok(());
        }
        host.completions.push(entry);
        if let Some(other) = host.delays.take() {
            other.lock().unwrap().endless.is_late = true;
        }
        Ok(())
    }

    fn may_hold(&self) -> bool {
        !self.host.lock().unwrap().is_held_up
    }

    fn wants_interrupt(&mut self) -> bool {
        true
    }

    fn is_consumed(&mut self) -> bool {
        false
    }

    fn interrupt(&mut self) -> bool {
        self.interrupts.send(()).is_ok()
    }
}

// SAFETY: the token keeps the only memory that a request has.
unsafe impl Source for QueuePair {
    type Token = Token;
    type Position = u64;

    fn take(&mut self, _: &Disk, buffers: &mut Buffers) -> Result<Option<Request<Token>>, &'static str> {
        let mut host = self.host.lock().unwrap();
        if host.is_nonsense {
            return Err("the tail is outside the queue");
        }
        if host.room == 0 || host.takes == Some(0) {
            return Ok(None);
        }
        for queue in [self.next, 1 - self.next] {
            if let Some(Submission { command, task, data }) = host.submissions[queue].pop_front() {
                if let Some(data) = &data {
                    buffers.push(data.as_ptr().cast::<u8>().cast_mut(), data.len());
                }
                host.room -= 1;
                host.takes = host.takes.map(|takes| takes - 1);
                self.next = 1 - queue;
                self.taken += 1;
                return Ok(Some(request(task, Token { queue, command, _data: data })));
            }
        }
        if host.endless.find() {
            return Ok(Some(request(Task::Answer(Outcome::Ok), Token { queue: 0, command: ENDLESS, _data: None })));
        }
        Ok(None)
    }

    fn complete(&mut self, token: Token, outcome: Outcome) -> Self::Entry {
        (token.queue, token.command, outcome)
    }

    fn backlog(&self) -> Result<u32, &'static str> {
        let host = self.host.lock().unwrap();
        let submitted: usize = host.submissions.iter().map(VecDeque::len).sum();
        Ok(u32::from(host.endless.has_one()) + submitted.min(host.room) as u32)
    }

    fn unreaped(&self) -> u32 {
        self.host.lock().unwrap().completions.len() as u32
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.as_fd())
    }

    fn enable_kicks(&mut self) -> Result<bool, &'static str> {
        self.host.lock().unwrap().endless.is_late = false;
        self.backlog().map(|backlog| backlog > 0)
    }

    fn disable_kicks(&mut self) -> Result<(), &'static str> {
        Ok(())
    }

    fn owes_interrupt(&self) -> bool {
        false
    }

    fn report_broken(&mut self) {
        let _ = self.interrupts.send(());
    }

    fn position(&self) -> u64 {
        self.taken
    }
}

/// A queue, and the host that uses it.
struct Bench {
    queue: QueueHandle<QueuePair>,
    host: Arc<Mutex<Host>>,
    doorbell: Arc<EventFd>,
    interrupts: Receiver<()>,
}

impl Bench {
    fn start(room: usize) -> Self {
        Self::with_policy("none", room)
    }

    fn with_policy(policy: &str, room: usize) -> Self {
        Self::several(1, policy, room).pop().unwrap()
    }

    /// Several queues of one disk, each with a host of its own.
    fn several(count: usize, policy: &str, room: usize) -> Vec<Self> {
        Self::several_over(MemoryBackend::new(1 << 20, 0..=0).unwrap(), count, policy, room)
    }

    fn several_over(memory: MemoryBackend, count: usize, policy: &str, room: usize) -> Vec<Self> {
        let backend = Backend::Memory(memory);
        let limits = Limits {
            size: (1 << 20).into(),
            block_size: 512,
            read_only: false,
            serial: [0; SERIAL_LEN],
            max_memory: 0,
        };
        let disk = Arc::new(Disk {
            name: "pair".into(),
            place: "/nvme".into(),
            backend,
            limits,
            call_rings: CallRings::new(0).unwrap(),
            write_back: AtomicBool::new(true),
            epoch: Instant::now(),
            throttle: Throttle::default(),
            totals: Totals::default(),
        });
        let config = QueueConfig { policy: policy.parse().unwrap(), poll_ns: 0, size_max: 256, recorder: None };
        let queues = PreparedQueues::new(count, &disk, &config).unwrap().start().unwrap();
        queues.into_iter().map(|queue| Self::over(queue, room)).collect()
    }

    fn over(queue: QueueHandle<QueuePair>, room: usize) -> Self {
        let host = Arc::new(Mutex::new(Host { room, ..Host::default() }));
        let doorbell = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap());
        let (sender, interrupts) = channel();
        let (host_too, doorbell_too) = (host.clone(), doorbell.clone());
        let pair = QueuePair { host: host_too, doorbell: doorbell_too, interrupts: sender, next: 0, taken: 0 };
        queue.send(Control::Start(Box::new(pair), true));
        Self { queue, host, doorbell, interrupts }
    }

    fn submit(&self, queue: usize, command: u16, task: Task, data: Option<&Block>) {
        let submission = Submission { command, task, data: data.cloned() };
        self.host.lock().unwrap().submissions[queue].push_back(submission);
        self.doorbell.write(1).unwrap();
    }

    /// From now on each visit finds this number of endless requests.
    fn keep_busy(&self, requests: u32) {
        self.host.lock().unwrap().endless.per_visit = requests;
        self.doorbell.write(1).unwrap();
    }

    /// The number of endless requests that were answered. Takes the interrupts.
    fn answered(&self) -> u64 {
        while self.interrupts.try_recv().is_ok() {}
        self.host.lock().unwrap().endless.answered
    }

    /// Waits for interrupts until `count` completions are posted, and reaps them.
    fn reap(&self, count: usize) -> Vec<(usize, u16, Outcome)> {
        loop {
            self.interrupts.recv_timeout(PATIENCE).expect("an interrupt");
            let mut host = self.host.lock().unwrap();
            if host.completions.len() >= count {
                return std::mem::take(&mut host.completions);
            }
        }
    }
}

const WRITE: Task = Task::Operation(Operation::Write { offset: 512, durable: false });
const READ: Task = Task::Operation(Operation::Read { offset: 512, durable: false });

#[test]
fn two_submission_queues_share_one_completion_queue_and_its_interrupt() {
    let bench = Bench::start(8);
    bench.submit(0, 7, WRITE, Some(&block(0x5a)));
    assert_eq!(bench.reap(1), [(0, 7, Outcome::Ok)]);
    let data = block(0);
    bench.submit(1, 7, READ, Some(&data));
    bench.submit(0, 8, Task::Answer(Outcome::Error), None);
    bench.submit(0, 9, Task::Malformed, None);
    let mut completions = bench.reap(3);
    completions.sort_unstable_by_key(|completion| completion.1);
    assert_eq!(completions, [(1, 7, Outcome::Ok), (0, 8, Outcome::Error), (0, 9, Outcome::Error)]);
    assert!(data.iter().all(|byte| byte.load(Ordering::Relaxed) == 0x5a));
    assert_eq!(Arc::strong_count(&data), 1, "the memory of a request is free when it has completed");
    let stats = bench.queue.ask(Control::GetStats).unwrap();
    assert_eq!((stats.completions, stats.device.failed, stats.device.malformed), (4, 2, 1));
}

#[test]
fn nothing_is_taken_without_room_for_its_completion() {
    let bench = Bench::start(2);
    let data = block(0);
    for command in 0..3 {
        bench.submit(usize::from(command % 2), command, READ, Some(&data));
    }
    assert_eq!(bench.reap(2).len(), 2);
    assert_eq!(bench.queue.ask(Control::GetStats).unwrap().completions, 2);
    bench.host.lock().unwrap().room += 2;
    bench.doorbell.write(1).unwrap();
    assert_eq!(bench.reap(1).len(), 1);
}

#[test]
fn a_queue_says_where_its_source_stopped_also_when_it_is_asked_again() {
    let bench = Bench::start(8);
    bench.submit(0, 0, READ, Some(&block(0)));
    bench.reap(1);
    let stop = || bench.queue.ask(Control::Stop).unwrap();
    assert_eq!((stop(), stop()), (Some(1), Some(1)));
}

#[test]
fn a_broken_source_is_reported_and_rests() {
    let bench = Bench::start(8);
    bench.host.lock().unwrap().is_nonsense = true;
    bench.doorbell.write(1).unwrap();
    bench.interrupts.recv_timeout(PATIENCE).expect("a report");
    bench.host.lock().unwrap().is_nonsense = false;
    bench.submit(0, 0, READ, Some(&block(0)));
    bench.queue.ask(|answer| Control::Enable(true, answer));
    assert!(bench.interrupts.recv_timeout(QUIET).is_err(), "to enable it does not mend it");
    let stats = bench.queue.ask(Control::GetStats).unwrap();
    assert_eq!((stats.completions, stats.device.broken_rings), (0, 1));
}

const HOLDING: &str = "vic:max_hold=off,iops_threshold=0,cif_threshold=2,epoch=1ms";

/// A queue that holds completions, and has nothing in flight. vIC without `max_hold` has no deadline: it relies on the next
/// completion.
fn that_holds() -> Bench {
    let bench = Bench::with_policy(HOLDING, usize::MAX);
    bench.host.lock().unwrap().takes = Some(0);
    (0..64).for_each(|command| bench.submit(0, command, READ, Some(&block(0))));
    bench.complete_until_held();
    bench
}

impl Bench {
    /// Completes one more, while 64 wait.
    fn complete_one(&self) -> QueueStats {
        let completions = self.queue.ask(Control::GetStats).unwrap().completions;
        self.host.lock().unwrap().takes = Some(1);
        self.submit(0, 64, READ, Some(&block(0)));
        loop {
            let stats = self.queue.ask(Control::GetStats).unwrap();
            if stats.completions > completions {
                return stats;
            }
        }
    }

    /// Completes some until one is held, and forgets the interrupts.
    fn complete_until_held(&self) {
        let start = Instant::now();
        while self.complete_one().held == 0 {
            assert!(start.elapsed() < PATIENCE, "it holds nothing");
        }
        while self.interrupts.try_recv().is_ok() {}
    }

    /// Starts another source for the same host.
    fn start_again(&mut self) {
        let (sender, interrupts) = channel();
        let (host, doorbell) = (self.host.clone(), self.doorbell.clone());
        let pair = QueuePair { host, doorbell, interrupts: sender, next: 0, taken: 0 };
        self.queue.send(Control::Start(Box::new(pair), true));
        self.interrupts = interrupts;
    }

    /// Says whether the guest runs, and that this holds for the time.
    fn set_running(&self, running: bool, time: Duration) {
        let report = RunReport { running, until: Instant::now() + time };
        self.queue.ask(|answer| Control::SetRunning(report, answer));
    }
}

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_guest_that_loses_its_cpu_or_gets_it_back_has_what_is_held() {
    for running in [false, true] {
        let bench = that_holds();
        bench.set_running(running, HOUR);
        bench.interrupts.recv_timeout(PATIENCE).expect("an interrupt");
        assert_eq!(bench.queue.ask(Control::GetStats).unwrap().held, 0);
    }
}

/// So nothing is late if the one who says so ends.
#[test]
fn for_a_guest_that_has_no_cpu_nothing_is_held() {
    let mut bench = that_holds();
    bench.set_running(false, HOUR);
    bench.interrupts.recv_timeout(PATIENCE).expect("an interrupt");
    for _ in 0..64 {
        assert_eq!(bench.complete_one().held, 0);
        bench.interrupts.recv_timeout(PATIENCE).expect("an interrupt");
    }
    bench.set_running(true, Duration::ZERO);
    bench.complete_until_held();
    bench.queue.ask(Control::Stop).unwrap();
    bench.set_running(false, HOUR);
    bench.start_again();
    assert!((0..64).all(|_| bench.complete_one().held == 0), "what was said before the source started counts");
}

#[test]
fn what_is_said_about_a_guest_counts_for_nothing_when_its_time_is_over() {
    let bench = that_holds();
    bench.set_running(false, Duration::from_millis(20));
    bench.complete_until_held();
}

#[test]
fn completions_are_delivered_near_the_end_of_a_time_slice() {
    let bench = that_holds();
    let set = |answer| Control::SetPolicy(format!("{HOLDING},margin=100ms").parse().unwrap(), false, answer);
    bench.queue.ask(set).unwrap().unwrap();
    let ends = || bench.queue.ask(Control::GetStats).unwrap().delivered.get("slice_end").copied();
    let start = Instant::now();
    while ends().is_none() {
        assert!(start.elapsed() < PATIENCE, "none is delivered for the end of the slice");
        bench.set_running(true, Duration::from_millis(90));
        bench.complete_one();
    }
    bench.set_running(true, HOUR); // delivers what is held until the end of the slice
    let before = ends();
    bench.complete_until_held();
    assert_eq!(ends(), before, "an end that is far says nothing");
}

#[test]
fn a_source_that_is_disabled_holds_nothing() {
    let bench = that_holds();
    bench.queue.ask(|answer| Control::Enable(false, answer));
    bench.interrupts.recv_timeout(PATIENCE).expect("an interrupt");
    assert_eq!(bench.queue.ask(Control::GetStats).unwrap().held, 0);
}

/// NVMe: a command has come that has no room for its completion.
#[test]
fn a_source_that_is_held_up_by_what_is_held_gets_it() {
    let bench = that_holds();
    bench.host.lock().unwrap().is_held_up = true;
    bench.doorbell.write(1).unwrap();
    bench.interrupts.recv_timeout(PATIENCE).expect("an interrupt");
    assert_eq!(bench.queue.ask(Control::GetStats).unwrap().held, 0);
}

#[test]
fn a_disabled_source_waits_and_another_doorbell_rings() {
    let bench = Bench::start(8);
    bench.queue.ask(|answer| Control::Enable(false, answer));
    bench.submit(0, 3, READ, Some(&block(0)));
    assert!(bench.interrupts.recv_timeout(QUIET).is_err(), "it takes requests while it is disabled");
    bench.queue.ask(|answer| Control::Enable(true, answer));
    assert_eq!(bench.reap(1), [(0, 3, Outcome::Ok)]);
    let doorbell = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap());
    let doorbell_too = doorbell.clone();
    bench.queue.change(Part::Kick, move |pair| pair.doorbell = doorbell_too);
    let submission = Submission { command: 4, task: READ, data: Some(block(0)) };
    bench.host.lock().unwrap().submissions[1].push_back(submission);
    doorbell.write(1).unwrap();
    assert_eq!(bench.reap(1), [(1, 4, Outcome::Ok)]);
}

/// Keeps `depth` reads in flight until it is told to stop, with a pause after each round. Each command completes once.
fn load(bench: &Bench, depth: u16, pause: Duration, is_over: impl Fn(&Bench) -> bool) -> u64 {
    let (mut reads, data) = (0, block(0));
    while !is_over(bench) {
        for _ in 0..100 {
            bench.host.lock().unwrap().room = usize::MAX;
            (0..depth).for_each(|command| bench.submit(usize::from(command % 2), command, READ, Some(&data)));
            let mut commands: Vec<_> = bench.reap(depth.into()).into_iter().map(|(_, command, _)| command).collect();
            commands.sort_unstable();
            assert!(commands.into_iter().eq(0..depth), "each once");
            while bench.interrupts.try_recv().is_ok() {}
            reads += u64::from(depth);
            std::thread::sleep(pause);
        }
    }
    reads
}

#[test]
fn a_queue_with_long_visits_moves_to_a_thread_of_its_own_and_back_and_loses_nothing() {
    let mut queues = Bench::several(3, "none", usize::MAX);
    let (b, a, idle) = (queues.pop().unwrap(), queues.pop().unwrap(), queues.pop().unwrap());
    let stats = |bench: &Bench| bench.queue.ask(Control::GetStats).unwrap();
    let is_done = AtomicBool::new(false);
    let (pause, deadline) = (Duration::from_micros(100), Instant::now() + 3 * PATIENCE);
    std::thread::scope(|scope| {
        let is_done = &is_done;
        let light = scope.spawn(move || {
            let is_over = |_: &Bench| is_done.load(Ordering::Relaxed) || Instant::now() >= deadline; // or it has failed
            let reads = load(&a, 1, pause, is_over);
            (a, reads)
        });
        let mut reads = 0;
        for _ in 0..3 {
            for (depth, is_apart) in [(256, true), (1, false)] {
                let is_there = |bench: &Bench| {
                    assert!(Instant::now() < deadline, "it does not move");
                    (stats(bench).thread != 0) == is_apart
                };
                reads += load(&b, depth, pause, is_there);
            }
        }
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(stats(&b).completions, reads);
        let (a, reads) = light.join().unwrap();
        assert_eq!(stats(&a).completions, reads);
        assert_eq!([&a, &idle].map(|bench| stats(bench).thread), [0, 0], "nobody else moves");
    });
}

/// A queue that has nothing to do but to look at the clock dozes before the thread sleeps; and then it does not sleep.
#[test]
fn a_deadline_is_met_while_another_queue_keeps_the_thread_awake() {
    let mut queues = Bench::several(2, "nvme:thr=255,time=20ms", usize::MAX);
    let (other, holding) = (queues.pop().unwrap(), queues.pop().unwrap());
    let policy = "none".parse().unwrap();
    other.queue.ask(|answer| Control::SetPolicy(policy, false, answer)).unwrap().unwrap();
    other.keep_busy(4);
    while other.answered() < 1000 {}
    holding.host.lock().unwrap().delays = Some(other.host.clone());
    holding.submit(0, 7, READ, Some(&block(0)));
    holding.interrupts.recv_timeout(PATIENCE).expect("an interrupt at its deadline");
    other.keep_busy(0);
}

/// Its long visits are a reason to move, and a request that takes seconds is one to stay. It is served as before, whether the other
/// queue goes on meanwhile or rests.
#[test]
fn a_queue_that_cannot_move_is_served_where_it_is() {
    const SLOW: Duration = Duration::from_secs(4);
    for rests in [false, true] {
        let memory = MemoryBackend::new(1 << 20, SLOW.as_nanos() as u64..=SLOW.as_nanos() as u64).unwrap();
        let mut queues = Bench::several_over(memory, 2, "none", usize::MAX);
        let (other, long) = (queues.pop().unwrap(), queues.pop().unwrap());
        long.submit(0, 7, READ, Some(&block(0)));
        other.host.lock().unwrap().endless.follows = rests.then(|| (long.host.clone(), 0));
        long.keep_busy(200);
        other.keep_busy(4);
        let (mut answered, mut since, mut longest) = (0, Instant::now(), Duration::ZERO);
        while long.host.lock().unwrap().completions.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
            other.answered();
            if answered != long.answered() {
                (answered, since) = (long.answered(), Instant::now());
            }
            longest = longest.max(since.elapsed());
        }
        assert!(longest < SLOW / 2, "not served for {longest:?}; the other queue rests: {rests}");
        [long, other].iter().for_each(|bench| bench.keep_busy(0));
    }
}
