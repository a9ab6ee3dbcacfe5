//! The vring.

use crate::watch::Watch;
use coalesce_policy::{
    AnyPolicy, Barriers, BudgetSpec, Clues, Completion, Decision, Policy as _, Spec, SpecError, Stats, Submissions,
};
use std::fs::File;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use std::{fmt, io};
use vhost_user_backend::{VringMutex, VringState, VringStateGuard, VringStateMutGuard, VringT};
use virtio_queue::{Error, QueueT as _};
use vm_memory::{GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};

/// Ticks per second of the policy's clock.
const TICK_HZ: u64 = 1_000_000_000;

/// A vring that coalesces `signal_used_queue`. See the crate's documentation.
pub struct CoalescedVring<M: GuestAddressSpace = GuestMemoryAtomic<GuestMemoryMmap>> {
    inner: VringMutex<M>,
    mem: M,
    coalescer: Arc<Mutex<Coalescer>>, // locked before the vring, if both are
}

impl<M: GuestAddressSpace> fmt::Debug for CoalescedVring<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoalescedVring").field("coalescer", &self.coalescer).finish_non_exhaustive()
    }
}

impl<M: GuestAddressSpace> Clone for CoalescedVring<M> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), mem: self.mem.clone(), coalescer: Arc::clone(&self.coalescer) }
    }
}

#[derive(Debug)]
struct Coalescer {
    policy: AnyPolicy,
    start: Instant,
    decided: u16, // the used index up to which the policy was asked
    seen: u16,    // the avail index up to which the policy knows the submissions
    is_enabled: bool,
    is_ready: bool,
    watch: Option<Watch>, // without one nobody would meet a deadline
}

impl Coalescer {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    const fn may_hold(&self) -> bool {
        self.is_enabled && self.is_ready && self.watch.is_some()
    }

    /// Reports to the policy what the guest has made available.
    fn submitted(&mut self, avail: u16, used: u16) {
        if self.policy.wants_submit() != Submissions::None && avail != self.seen {
            let held = u32::try_from(self.policy.held()).unwrap_or(u32::MAX);
            let outstanding = u32::from(avail.wrapping_sub(used)).saturating_add(held);
            let before = u32::from(avail.wrapping_sub(self.seen).saturating_sub(1));
            let _ = self.policy.on_submit(self.now(), &Clues { outstanding, before, ..Clues::default() });
        }
        self.seen = avail;
    }

    /// What to do about descriptors that were added since the last decision.
    fn completed(&mut self, avail: u16, used: u16) -> Decision {
        let before = used.wrapping_sub(self.decided).saturating_sub(1);
        self.decided = used;
        let now = self.now();
        // It completed: it is in flight no more, and counts itself.
        let cif = u32::from(avail.wrapping_sub(used)) + 1;
        let decision = self.policy.on_completion(now, &Completion { cif, before, ..Completion::default() });
        match decision {
            // What was added together was found together.
            Decision::Hold(_) if self.policy.wants_batch_end() => self.policy.on_batch_end(now),
            decision => decision,
        }
    }
}

impl<M: 'static + GuestAddressSpace> CoalescedVring<M> {
    /// Takes another policy. What is held stays held under the same kind of policy, and is delivered under another.
    ///
    /// # Errors
    /// The policy's clock cannot carry a parameter, or Barriers are strict: a vring does not know which command a descriptor was.
    pub fn set_policy(&self, spec: Spec) -> Result<(), SpecError> {
        if spec.hints().is_some_and(|hints| hints.barrier == Barriers::Strict) {
            let (key, value) = ("barrier".into(), "strict".into());
            let problem = "is not possible on a vring; allowed: relaxed".into();
            return Err(SpecError::Value { policy: spec.name(), key, value, problem });
        }
        let mut coalescer = self.lock();
        let now = coalescer.now();
        let decision = coalescer.policy.reconfigure(spec, now)?;
        // The next signal reports an error of the call's descriptor.
        let _ = self.act(&mut coalescer, decision);
        Ok(())
    }

    /// How often each decision was taken.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.lock().policy.stats().clone()
    }

    /// No invariant of what is inside can break while it is locked.
    fn lock(&self) -> MutexGuard<'_, Coalescer> {
        self.coalescer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The indices of the avail ring and of the used ring.
    fn indices(&self) -> Result<(u16, u16), Error> {
        let state = self.inner.get_ref();
        let queue = state.get_queue();
        let avail = queue.avail_idx(&*self.mem.memory(), Ordering::Acquire)?;
        Ok((avail.0, queue.next_used()))
    }

    /// Interrupts, or arms the timer. Every error interrupts.
    fn act(&self, coalescer: &mut Coalescer, decision: Decision) -> io::Result<()> {
        if decision.is_deliver() {
            return self.interrupt();
        }
        let now = coalescer.now();
        let is_armed = match (coalescer.policy.deadline(), coalescer.may_hold(), &mut coalescer.watch) {
            (None, ..) if coalescer.policy.held() == 0 => true,
            (Some(deadline), true, Some(watch)) => watch.arm(now, deadline).is_ok(),
            _ => false,
        };
        if is_armed { Ok(()) } else { self.deliver(coalescer) }
    }

    /// Delivers what is held, whatever the policy says.
    fn deliver(&self, coalescer: &mut Coalescer) -> io::Result<()> {
        let now = coalescer.now();
        if coalescer.policy.held() == 0 {
            return Ok(());
        }
        let _ = coalescer.policy.flush(now);
        self.interrupt()
    }

    /// Signals, if the guest wants it now.
    fn interrupt(&self) -> io::Result<()> {
        if self.inner.needs_notification().unwrap_or(true) { self.inner.signal_used_queue() } else { Ok(()) }
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
        let policy = AnyPolicy::new(Spec::Auto(BudgetSpec::AUTO), TICK_HZ).expect("the default fits a clock in ns");
        let coalescer = Coalescer {
            policy,
            start: Instant::now(),
            decided: 0,
            seen: 0,
            is_enabled: false,
            is_ready: false,
            watch: None,
        };
        let inner = VringMutex::new(mem.clone(), max_queue_size)?;
        Ok(Self { inner, mem, coalescer: Arc::new(Mutex::new(coalescer)) })
    }

    fn get_ref(&self) -> <Self as VringStateGuard<'_, M>>::G {
        self.inner.get_ref()
    }

    fn get_mut(&self) -> <Self as VringStateMutGuard<'_, M>>::G {
        self.inner.get_mut()
    }

    fn add_used(&self, desc_index: u16, len: u32) -> Result<(), Error> {
        self.inner.add_used(desc_index, len)
    }

    fn signal_used_queue(&self) -> io::Result<()> {
        let mut coalescer = self.lock();
        let Ok((avail, used)) = self.indices() else {
            let now = coalescer.now();
            let _ = coalescer.policy.flush(now);
            return self.inner.signal_used_queue();
        };
        coalescer.submitted(avail, used);
        if used == coalescer.decided {
            return self.inner.signal_used_queue(); // about something else than what was added
        }
        let decision = coalescer.completed(avail, used);
        self.act(&mut coalescer, decision)
    }

    fn enable_notification(&self) -> Result<bool, Error> {
        self.inner.enable_notification()
    }

    fn disable_notification(&self) -> Result<(), Error> {
        self.inner.disable_notification()
    }

    /// Whether descriptors were added that [`signal_used_queue`](VringT::signal_used_queue) has not decided about.
    fn needs_notification(&self) -> Result<bool, Error> {
        let coalescer = self.lock();
        Ok(self.inner.get_ref().get_queue().next_used() != coalescer.decided)
    }

    fn set_enabled(&self, enabled: bool) {
        let mut coalescer = self.lock();
        coalescer.is_enabled = enabled;
        if !enabled {
            let _ = self.deliver(&mut coalescer);
        }
        self.inner.set_enabled(enabled);
    }

    fn set_queue_info(&self, desc_table: u64, avail_ring: u64, used_ring: u64) -> Result<(), Error> {
        self.inner.set_queue_info(desc_table, avail_ring, used_ring)
    }

    fn queue_next_avail(&self) -> u16 {
        self.inner.queue_next_avail()
    }

    fn set_queue_next_avail(&self, base: u16) {
        self.inner.set_queue_next_avail(base);
        self.lock().seen = base;
    }

    fn set_queue_next_used(&self, idx: u16) {
        self.inner.set_queue_next_used(idx);
        self.lock().decided = idx;
    }

    fn queue_used_idx(&self) -> Result<u16, Error> {
        self.inner.queue_used_idx()
    }

    fn set_queue_size(&self, num: u16) {
        self.inner.set_queue_size(num);
    }

    fn set_queue_event_idx(&self, enabled: bool) {
        self.inner.set_queue_event_idx(enabled);
    }

    fn set_queue_ready(&self, ready: bool) {
        let mut coalescer = self.lock();
        coalescer.is_ready = ready;
        if !ready {
            let _ = self.deliver(&mut coalescer);
        }
        self.inner.set_queue_ready(ready);
    }

    fn set_kick(&self, file: Option<File>) {
        let mut coalescer = self.lock();
        let _ = self.deliver(&mut coalescer);
        coalescer.watch = None;
        let kick = file.map(|file| match file.try_clone().and_then(Watch::new) {
            Ok((watch, both)) => {
                coalescer.watch = Some(watch);
                both.into()
            }
            Err(_) => file, // without descriptors to spare nothing is held
        });
        self.inner.set_kick(kick);
    }

    fn read_kick(&self) -> io::Result<bool> {
        let mut coalescer = self.lock();
        let Some(watch) = &mut coalescer.watch else { return self.inner.read_kick() };
        let (is_kicked, has_fired) = watch.take()?;
        if has_fired {
            let now = coalescer.now();
            let decision = coalescer.policy.on_deadline(now);
            self.act(&mut coalescer, decision)?;
        }
        if is_kicked && let Ok((avail, used)) = self.indices() {
            coalescer.submitted(avail, used);
        }
        Ok(is_kicked && coalescer.is_enabled)
    }

    fn set_call(&self, file: Option<File>) {
        let mut coalescer = self.lock();
        let _ = self.deliver(&mut coalescer);
        self.inner.set_call(file);
    }

    fn set_err(&self, file: Option<File>) {
        self.inner.set_err(file);
    }
}
