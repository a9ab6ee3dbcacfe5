//! The vring.

use crate::watch::Watch;
use coalesce_delivery::{Delivery, DeliveryStats, Ring};
use coalesce_policy::{
    Barriers, BudgetSpec, Bypassed, Completion, Policy as _, Spec, SpecError, Stats, Submission, Submissions,
};
use nix::unistd::write;
use std::cell::RefCell;
use std::convert::Infallible;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;
use std::{fmt, io};
use vhost_user_backend::{VringMutex, VringState, VringStateGuard, VringStateMutGuard, VringT};
use virtio_queue::{Error, QueueT as _};
use vm_memory::{Address as _, Bytes as _, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};

/// Completions that may be held: with a ring full of others they are fewer than 2^16, which is as many as an answer of the guest
/// (EVENT_IDX) can be about.
const HELD_MAX: u32 = 1 << 15;

/// Signals without asking the policy after which it is told of them.
const UNTOLD_MAX: u16 = 64;

/// Where the avail ring has its entries, and the bytes of one; behind them is the index of EVENT_IDX (virtio 1.2 §2.7.6).
const AVAIL_ENTRIES: u64 = 4;
const AVAIL_ENTRY: u64 = 2;

/// A vring that coalesces `signal_used_queue`. See the crate's documentation.
pub struct CoalescedVring<M: 'static + GuestAddressSpace = GuestMemoryAtomic<GuestMemoryMmap>>(Arc<Parts<M>>);

/// What the clones of a vring share.
struct Parts<M: 'static + GuestAddressSpace> {
    inner: VringMutex<M>, // locked after the coalescer, if both are
    mem: M,
    control: VringControl,
}

impl<M: GuestAddressSpace> fmt::Debug for CoalescedVring<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoalescedVring").field("control", &self.0.control).finish_non_exhaustive()
    }
}

impl<M: GuestAddressSpace> Clone for CoalescedVring<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The policy of a vring, for any thread.
#[derive(Clone, Debug)]
pub struct VringControl(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    coalescer: Mutex<Coalescer>,
    /// Nobody waits for a wake-up but who replaces the call: it must not get one later.
    call: RwLock<Option<File>>,
    used: AtomicU16,    // the used index, as far as `add_used` knows it
    decided: AtomicU16, // the used index up to which the policy was asked
    asked: AtomicU16,   // the used index up to which the guest was
    /// Nothing is held, nothing may be, and the policy is not asked.
    is_bypassed: AtomicBool,
    untold: Untold,
    outstanding: AtomicU16, // the most, of what is untold
    has_failed: AtomicBool, // the last signal may not have reached the guest
}

impl Shared {
    /// The used index is this now, one more than before. Where 65536 were added since a decision, or since the guest was asked, that must
    /// not look like none: they count as 65535.
    fn added_up_to(&self, used: u16) {
        self.used.store(used, Ordering::Release);
        for since in [&self.decided, &self.asked] {
            if since.load(Ordering::Acquire) == used {
                let _ = since.compare_exchange(used, used.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

/// What was [bypassed](Delivery::bypassed) and not reported yet: completions, interrupts and suppressed ones, in 32, 16 and 16 bits. It is
/// reported long before one of them overflows.
#[derive(Debug, Default)]
struct Untold(AtomicU64);

impl Untold {
    /// Adds a signal for `completions`. Returns whether it is time to report.
    fn add(&self, completions: u16, is_wanted: bool) -> bool {
        let one = u64::from(completions) << 32 | if is_wanted { 1 << 16 } else { 1 };
        Self::parts(self.0.fetch_add(one, Ordering::AcqRel)).deliveries() >= UNTOLD_MAX - 1
    }

    fn take(&self) -> Option<Bypassed> {
        // The first look costs less, and mostly there is nothing.
        (self.0.load(Ordering::Acquire) != 0).then(|| Self::parts(self.0.swap(0, Ordering::AcqRel)))
    }

    fn parts(all: u64) -> Bypassed {
        let [completions, rest] = [all >> 32, all & 0xFFFF_FFFF];
        Bypassed { completions, interrupts: (rest >> 16) as u16, suppressed: rest as u16, outstanding: 0 }
    }
}

#[derive(Debug)]
struct Coalescer {
    delivery: Delivery<Infallible>,
    start: Instant,
    seen: Option<u16>, // the avail index up to which the policy knows the submissions; none after a bypass
    is_enabled: bool,
    is_ready: bool,
    watch: Option<Watch>, // without one nobody would meet a deadline
}

impl Coalescer {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn may_hold(&self, now: u64) -> bool {
        self.is_enabled
            && self.is_ready
            && self.delivery.policy().held() < HELD_MAX
            && self.watch.as_ref().is_some_and(|watch| watch.is_watched(now))
    }

    /// Reports to the policy what the guest has made available.
    fn submitted(&mut self, now: u64, avail: u16, used: u16) {
        let policy = self.delivery.policy();
        let new = avail.wrapping_sub(self.seen.replace(avail).unwrap_or(avail));
        if policy.wants_submit() != Submissions::None && new > 0 {
            let outstanding = u32::from(avail.wrapping_sub(used)).saturating_add(policy.held());
            let before = u32::from(new) - 1;
            let _ = self.delivery.on_submit(now, &Submission { outstanding, before, ..Submission::ALONE });
        }
    }

    /// Whether completions are signalled without asking the policy, because it neither holds nor may hold any.
    fn is_bypassed(&self) -> bool {
        let policy = self.delivery.policy();
        policy.held() == 0 && !policy.may_hold()
    }

    /// Descriptors were added since the last decision, `before` of them before the last one.
    fn completed(&mut self, ring: &mut UsedRing<'_>, now: u64, avail: u16, used: u16, before: u16) {
        // It completed: it is in flight no more, and counts itself.
        let cif = u32::from(avail.wrapping_sub(used)) + 1;
        let Ok(_) = self.delivery.posted(ring, now, before, &Completion::with_cif(cif));
        let Ok(_) = self.delivery.on_batch_end(ring, now); // what was added together was found together
        self.arm(ring, now);
    }

    /// Arms the timer for what is held. If that cannot be, it is delivered.
    fn arm(&mut self, ring: &mut UsedRing<'_>, now: u64) {
        let is_armed = match (self.delivery.deadline(), self.may_hold(now), &mut self.watch) {
            (None, ..) => self.delivery.policy().held() == 0,
            (Some(deadline), true, Some(watch)) => watch.arm(now, deadline).is_ok(),
            _ => false,
        };
        if !is_armed {
            self.flush(ring, now);
        }
    }

    /// Delivers what is held, if anything is.
    fn flush(&mut self, ring: &mut UsedRing<'_>, now: u64) {
        if self.delivery.policy().held() > 0 {
            let Ok(_) = self.delivery.flush(ring, now);
        }
    }
}

/// The used ring, for a decision about it. Nobody is woken while locks are held, so its interrupt only becomes due.
struct UsedRing<'a> {
    may_hold: bool,
    /// Asks the guest (EVENT_IDX), which answers once.
    wants_interrupt: &'a mut dyn FnMut() -> bool,
    is_due: bool,
}

impl Ring for UsedRing<'_> {
    type Entry = Infallible; // the device adds them
    type Broken = Infallible;

    fn post(&mut self, entry: Infallible) -> Result<(), Infallible> {
        match entry {}
    }

    fn may_hold(&self) -> bool {
        self.may_hold
    }

    fn wants_interrupt(&mut self) -> bool {
        (self.wants_interrupt)()
    }

    fn is_consumed(&mut self) -> bool {
        false // it is not known
    }

    fn interrupt(&mut self) -> bool {
        self.is_due = true;
        true
    }
}

impl VringControl {
    fn new(spec: Spec) -> Result<Self, SpecError> {
        check(&spec)?;
        let coalescer = Coalescer {
            delivery: Delivery::new(spec)?,
            start: Instant::now(),
            seen: Some(0),
            is_enabled: false,
            is_ready: false,
            watch: None,
        };
        let (coalescer, call) = (Mutex::new(coalescer), RwLock::new(None));
        let [used, decided, asked, outstanding] = [const { AtomicU16::new(0) }; 4];
        let [is_bypassed, has_failed] = [const { AtomicBool::new(false) }; 2];
        let untold = Untold::default();
        let shared = Shared { coalescer, call, used, decided, asked, is_bypassed, untold, outstanding, has_failed };
        Ok(Self(Arc::new(shared)))
    }

    /// Takes another policy. What is held stays held under the same kind of policy, and is delivered under another, whether the
    /// guest has asked for it or not. As for the other functions here: not by who holds the state of the vring (`get_mut`).
    ///
    /// # Errors
    /// The policy's clock cannot carry a parameter, or Barriers are strict: a vring does not know which command a descriptor was.
    pub fn set_policy(&self, spec: Spec) -> Result<(), SpecError> {
        check(&spec)?;
        let mut coalescer = self.lock();
        let now = coalescer.now();
        let wants_interrupt = &mut || {
            self.0.asked.store(self.0.used.load(Ordering::Acquire), Ordering::Release);
            true
        };
        let mut ring = UsedRing { may_hold: coalescer.may_hold(now), wants_interrupt, is_due: false };
        let Ok(_) = coalescer.delivery.reconfigure(Some(&mut ring), now, spec)?;
        coalescer.arm(&mut ring, now);
        let is_due = ring.is_due;
        self.note_bypass(&coalescer);
        drop(coalescer);
        if is_due {
            let _ = self.signal(); // the next signal reports an error of the call's descriptor
        }
        Ok(())
    }

    /// How often each decision was taken.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.lock().delivery.policy().stats().clone()
    }

    /// Completions, the interrupts that the policy decided upon, and how long completions were held.
    #[must_use]
    pub fn delivery_stats(&self) -> DeliveryStats {
        self.lock().delivery.stats().clone()
    }

    /// No invariant of what is inside can break while it is locked. The policy knows then what was signalled without asking it.
    fn lock(&self) -> MutexGuard<'_, Coalescer> {
        let mut coalescer = self.0.coalescer.lock().unwrap_or_else(PoisonError::into_inner);
        self.tell(&mut coalescer);
        coalescer
    }

    /// Tells the policy what was signalled without asking it. What it holds then was added before, and is covered.
    fn tell(&self, coalescer: &mut Coalescer) {
        let Some(bypassed) = self.0.untold.take() else { return };
        let now = coalescer.now();
        let outstanding = self.0.outstanding.swap(0, Ordering::Relaxed).into();
        coalescer.delivery.bypassed(now, &Bypassed { outstanding, ..bypassed });
        coalescer.seen = None;
        self.note_bypass(coalescer);
    }

    /// To be called when the policy has decided or was changed: whether it must be asked may have changed, too.
    fn note_bypass(&self, coalescer: &Coalescer) {
        self.0.is_bypassed.store(coalescer.is_bypassed(), Ordering::Release);
    }

    /// Interrupts.
    fn signal(&self) -> io::Result<()> {
        let call = self.0.call.read().unwrap_or_else(PoisonError::into_inner);
        let Some(call) = &*call else { return Ok(()) };
        let outcome = write(call, &1_u64.to_ne_bytes());
        if outcome.is_err() {
            self.0.has_failed.store(true, Ordering::Release);
        }
        outcome.map(drop).map_err(io::Error::from)
    }
}

/// A vring knows no command, so it has no Barriers to be strict about.
fn check(spec: &Spec) -> Result<(), SpecError> {
    if spec.hints().is_some_and(|hints| hints.barrier == Barriers::Strict) {
        let (key, value) = ("barrier".into(), "strict".into());
        let problem = "is not possible on a vring; allowed: relaxed".into();
        return Err(SpecError::Value { policy: spec.name(), key, value, problem });
    }
    Ok(())
}

thread_local! {
    /// The policy of the vrings that this thread makes, and their controls.
    static MADE: RefCell<Option<(Spec, Vec<VringControl>)>> = const { RefCell::new(None) };
}

/// The vrings that `make` makes on this thread begin with this policy. Returns what it returned, and the control of each of them, queue by
/// queue. A vring that another thread makes is under `auto`, and has no control here.
///
/// ```no_run
/// # fn daemon() -> u32 { 0 }
/// let (daemon, queues) = coalesce_vring::with_policy("auto:budget=1%".parse()?, || {
///     daemon() // VhostUserDaemon::new("disk".into(), backend, mem)
/// })?;
/// for queue in &queues {
///     println!("{:?}", queue.stats());
/// }
/// # Ok::<(), coalesce_vring::SpecError>(())
/// ```
///
/// # Errors
/// As [`VringControl::set_policy`]; then `make` is not called.
pub fn with_policy<T>(spec: Spec, make: impl FnOnce() -> T) -> Result<(T, Vec<VringControl>), SpecError> {
    VringControl::new(spec.clone())?;
    let _outer = Outer(MADE.replace(Some((spec, Vec::new()))));
    let made = make();
    let (_, controls) = MADE.take().expect("set above");
    Ok((made, controls))
}

/// What applies again when `make` has ended, however it ends.
struct Outer(Option<(Spec, Vec<VringControl>)>);

impl Drop for Outer {
    fn drop(&mut self) {
        MADE.set(self.0.take());
    }
}

impl<M: GuestAddressSpace> Parts<M> {
    fn shared(&self) -> &Shared {
        &self.control.0
    }

    /// The indices of the avail ring and of the used ring.
    fn indices(&self, state: &VringState<M>) -> Result<(u16, u16), Error> {
        let queue = state.get_queue();
        let avail = queue.avail_idx(&*self.mem.memory(), Ordering::Acquire)?;
        Ok((avail.0, queue.next_used()))
    }

    /// Whether the guest wants an interrupt (EVENT_IDX) for what was added since it was asked last. The queue's own answer is about
    /// what was added since somebody asked the queue: so may the device, and a change of policy interrupts without asking.
    fn wants_interrupt(&self, state: &VringState<M>) -> bool {
        let queue = state.get_queue();
        let used = queue.next_used();
        let asked = self.shared().asked.swap(used, Ordering::AcqRel);
        if !queue.event_idx_enabled() {
            return true;
        }
        fence(Ordering::SeqCst); // it sees what was added, or its answer is that it waits for it
        let offset = AVAIL_ENTRIES + AVAIL_ENTRY * u64::from(queue.size());
        let used_event = GuestAddress(queue.avail_ring())
            .checked_add(offset)
            .and_then(|address| self.mem.memory().load(address, Ordering::Relaxed).ok())
            .map(u16::from_le);
        used_event.is_none_or(|event| used.wrapping_sub(event).wrapping_sub(1) < used.wrapping_sub(asked))
    }

    /// The descriptors that were added since the last decision, which this one is about; `used`: the used index.
    fn take_added(&self, used: u16) -> u16 {
        self.shared().used.store(used, Ordering::Release); // the state may have been added to
        used.wrapping_sub(self.shared().decided.swap(used, Ordering::AcqRel))
    }

    /// Whether a signal is about nothing, though the device was told to give it: with EVENT_IDX another worker's signal has asked the guest
    /// about all that is used, or holds it. Without EVENT_IDX a device may signal what it likes, as nobody is asked.
    fn is_void(&self, state: &VringState<M>) -> bool {
        let queue = state.get_queue();
        // Who writes the used ring without the queue is not counted.
        let is_counted = || {
            let used = queue.used_idx(&*self.mem.memory(), Ordering::Acquire);
            used.is_ok_and(|used| used.0 == queue.next_used())
        };
        queue.event_idx_enabled() && is_counted() && !self.shared().has_failed.swap(false, Ordering::AcqRel)
    }

    /// Signals without asking the policy, even if it may hold again since the caller looked.
    fn pass(&self) -> io::Result<()> {
        let state = self.inner.get_ref();
        let indices = self.indices(&state);
        let (added, now_outstanding) = indices.as_ref().map_or((0, 0), |&(avail, used)| {
            let added = self.take_added(used);
            (added, avail.wrapping_sub(used).saturating_add(added))
        });
        if added == 0 {
            let is_void = indices.is_ok() && self.is_void(&state);
            drop(state);
            return if is_void { Ok(()) } else { self.control.signal() };
        }
        let Shared { outstanding, untold, .. } = self.shared();
        outstanding.fetch_max(now_outstanding, Ordering::Relaxed);
        let is_wanted = self.wants_interrupt(&state);
        let is_time = untold.add(added, is_wanted);
        drop(state); // the thread that is woken may need it
        let outcome = if is_wanted { self.control.signal() } else { Ok(()) };
        if is_time {
            drop(self.control.lock());
        }
        outcome
    }

    /// Delivers what is held, if anything is.
    fn deliver(&self, coalescer: &mut Coalescer) {
        let wants_interrupt = &mut || self.wants_interrupt(&self.inner.get_ref());
        let mut ring = UsedRing { may_hold: false, wants_interrupt, is_due: false };
        let now = coalescer.now();
        coalescer.flush(&mut ring, now);
        if ring.is_due {
            let _ = self.control.signal(); // the next signal reports an error of the call's descriptor
        }
    }
}

/// Nobody has the vring any more, as its daemon has ended or its front end has gone. The guest may live on.
impl<M: GuestAddressSpace> Drop for Parts<M> {
    fn drop(&mut self) {
        self.deliver(&mut self.control.lock());
    }
}

impl<M: GuestAddressSpace> CoalescedVring<M> {
    /// As [`VringControl::set_policy`].
    ///
    /// # Errors
    /// As there.
    pub fn set_policy(&self, spec: Spec) -> Result<(), SpecError> {
        self.0.control.set_policy(spec)
    }

    /// How often each decision was taken.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.control.stats()
    }

    /// As [`VringControl::delivery_stats`].
    #[must_use]
    pub fn delivery_stats(&self) -> DeliveryStats {
        self.0.control.delivery_stats()
    }
}

impl<'a, M: 'a + GuestAddressSpace> VringStateGuard<'a, M> for CoalescedVring<M> {
    type G = MutexGuard<'a, VringState<M>>;
}

impl<'a, M: 'a + GuestAddressSpace> VringStateMutGuard<'a, M> for CoalescedVring<M> {
    type G = MutexGuard<'a, VringState<M>>;
}

impl<M: 'static + GuestAddressSpace> VringT<M> for CoalescedVring<M> {
    fn new(mem: M, max_queue_size: u16) -> Result<Self, Error> {
        let inner = VringMutex::new(mem.clone(), max_queue_size)?;
        let control = MADE.with_borrow_mut(|made| {
            let spec = made.as_ref().map_or(Spec::Auto(BudgetSpec::AUTO), |(spec, _)| spec.clone());
            let control = VringControl::new(spec).expect("checked, and the default fits a clock in ns");
            if let Some((_, controls)) = made {
                controls.push(control.clone());
            }
            control
        });
        Ok(Self(Arc::new(Parts { inner, mem, control })))
    }

    fn get_ref(&self) -> <Self as VringStateGuard<'_, M>>::G {
        self.0.inner.get_ref()
    }

    fn get_mut(&self) -> <Self as VringStateMutGuard<'_, M>>::G {
        self.0.inner.get_mut()
    }

    fn add_used(&self, desc_index: u16, len: u32) -> Result<(), Error> {
        let mut state = self.0.inner.get_mut();
        state.add_used(desc_index, len)?;
        self.0.shared().added_up_to(state.get_queue().next_used());
        Ok(())
    }

    fn signal_used_queue(&self) -> io::Result<()> {
        if self.0.shared().is_bypassed.load(Ordering::Acquire) {
            return self.0.pass();
        }
        let mut coalescer = self.0.control.lock();
        let state = self.0.inner.get_ref();
        // Nobody passes while both are locked: else a signal from before this completion could be told after it is held, as if it
        // covered it.
        self.0.control.tell(&mut coalescer);
        let now = coalescer.now();
        let indices = self.0.indices(&state);
        let wants_interrupt = &mut || self.0.wants_interrupt(&state);
        let mut ring = UsedRing { may_hold: coalescer.may_hold(now), wants_interrupt, is_due: false };
        let added = indices.as_ref().map_or(0, |&(avail, used)| {
            coalescer.submitted(now, avail, used);
            let added = self.0.take_added(used);
            if added > 0 {
                coalescer.completed(&mut ring, now, avail, used, added - 1);
            }
            added
        });
        if added == 0 && indices.is_ok() && self.0.is_void(&state) {
            coalescer.arm(&mut ring, now); // the loop may have ended since
        } else if added == 0 {
            // It is about something else than what was added, or the indices cannot be read.
            coalescer.flush(&mut ring, now);
            ring.is_due = true;
        }
        let is_due = ring.is_due;
        self.0.control.note_bypass(&coalescer);
        drop((state, coalescer)); // the thread that is woken may need them
        if is_due { self.0.control.signal() } else { Ok(()) }
    }

    fn enable_notification(&self) -> Result<bool, Error> {
        self.0.inner.enable_notification()
    }

    fn disable_notification(&self) -> Result<(), Error> {
        self.0.inner.disable_notification()
    }

    /// Whether descriptors were added that [`signal_used_queue`](VringT::signal_used_queue) has not decided about.
    fn needs_notification(&self) -> Result<bool, Error> {
        let Shared { used, decided, .. } = self.0.shared();
        let is_undecided = |used: u16| used != decided.load(Ordering::Acquire);
        // What was added to the state itself is not counted in `used`.
        Ok(is_undecided(used.load(Ordering::Acquire)) || is_undecided(self.0.inner.get_ref().get_queue().next_used()))
    }

    fn set_enabled(&self, enabled: bool) {
        let mut coalescer = self.0.control.lock();
        coalescer.is_enabled = enabled;
        if !enabled {
            self.0.deliver(&mut coalescer);
        }
        self.0.inner.set_enabled(enabled);
    }

    fn set_queue_info(&self, desc_table: u64, avail_ring: u64, used_ring: u64) -> Result<(), Error> {
        self.0.inner.set_queue_info(desc_table, avail_ring, used_ring)
    }

    fn queue_next_avail(&self) -> u16 {
        self.0.inner.queue_next_avail()
    }

    fn set_queue_next_avail(&self, base: u16) {
        self.0.inner.set_queue_next_avail(base);
        self.0.control.lock().seen = Some(base);
    }

    fn set_queue_next_used(&self, idx: u16) {
        let _coalescer = self.0.control.lock(); // no change of policy asks meanwhile
        let mut state = self.0.inner.get_mut(); // nothing is added
        let queue = state.get_queue_mut();
        let by = idx.wrapping_sub(queue.next_used());
        queue.set_next_used(idx);
        self.0.shared().used.store(idx, Ordering::Release);
        // What is undecided stays so, and so does what the guest was not asked about: a front end says this of a running ring, too.
        self.0.shared().decided.fetch_add(by, Ordering::AcqRel);
        self.0.shared().asked.fetch_add(by, Ordering::AcqRel);
    }

    fn queue_used_idx(&self) -> Result<u16, Error> {
        self.0.inner.queue_used_idx()
    }

    fn set_queue_size(&self, num: u16) {
        self.0.inner.set_queue_size(num);
    }

    fn set_queue_event_idx(&self, enabled: bool) {
        self.0.inner.set_queue_event_idx(enabled);
    }

    fn set_queue_ready(&self, ready: bool) {
        let mut coalescer = self.0.control.lock();
        coalescer.is_ready = ready;
        if !ready {
            self.0.deliver(&mut coalescer);
        }
        self.0.inner.set_queue_ready(ready);
    }

    fn set_kick(&self, file: Option<File>) {
        let mut coalescer = self.0.control.lock();
        self.0.deliver(&mut coalescer);
        coalescer.watch = None;
        let kick = file.map(|file| match file.try_clone().and_then(Watch::new) {
            Ok((watch, both)) => {
                coalescer.watch = Some(watch);
                both.into()
            }
            Err(_) => file, // without descriptors to spare nothing is held
        });
        self.0.inner.set_kick(kick);
    }

    fn read_kick(&self) -> io::Result<bool> {
        let mut coalescer = self.0.control.lock();
        let Some(watch) = &mut coalescer.watch else { return self.0.inner.read_kick() };
        let (is_kicked, has_fired) = match watch.take() {
            Ok(events) => events,
            Err(error) => {
                coalescer.watch = None; // this ends the event loop, and nobody would meet a deadline
                self.0.deliver(&mut coalescer);
                return Err(error);
            }
        };
        let state = self.0.inner.get_ref();
        let now = coalescer.now();
        let indices = is_kicked.then(|| self.0.indices(&state));
        let wants_interrupt = &mut || self.0.wants_interrupt(&state);
        let mut ring = UsedRing { may_hold: coalescer.may_hold(now), wants_interrupt, is_due: false };
        if has_fired {
            let Ok(_) = coalescer.delivery.on_deadline(&mut ring, now);
        }
        if let Some(Ok((avail, used))) = indices {
            coalescer.submitted(now, avail, used);
        }
        coalescer.arm(&mut ring, now); // a submission may make the deadline earlier
        let is_due = ring.is_due;
        let is_for_device = is_kicked && coalescer.is_enabled;
        drop((state, coalescer));
        if is_due {
            let _ = self.0.control.signal(); // an error would end the event loop; the next signal reports it
        }
        Ok(is_for_device)
    }

    fn set_call(&self, file: Option<File>) {
        let mut coalescer = self.0.control.lock();
        self.0.deliver(&mut coalescer);
        // The vring inside gets a second one, to show it. It signals nothing.
        let shown = file.as_ref().and_then(|file| file.try_clone().ok());
        let is_some = file.is_some();
        let old = std::mem::replace(&mut *self.0.shared().call.write().unwrap_or_else(PoisonError::into_inner), file);
        self.0.inner.set_call(shown);
        if is_some && old.is_none() {
            // What was held or due while there was none is owed, be it by this ring or by the one of a process before.
            let _ = self.0.control.signal();
        }
    }

    fn set_err(&self, file: Option<File>) {
        self.0.inner.set_err(file);
    }
}
