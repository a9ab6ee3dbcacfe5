//! Doorbells (NVMe 1.4 §3.1.24, §3.1.25), and the memory that replaces them (Doorbell Buffer Config, §5.7). A host with
//! shadow doorbells sends a message only if the controller asks for one: it compares its new value with EventIdx, and a
//! message is due if that passes the value there.
//!
//! **Falling asleep.** The controller says at which value it wants a message, and that it sleeps; only then it looks for
//! work once more. The host stores its new value; only then it looks at what the controller wants. A full barrier between
//! store and load on each side makes one of the two see the other.

use crate::vfio_user::memory::Slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Prepares a sleep. Returns true if there is work. `ask` stores what is wanted, `has_work` loads what there is.
pub fn prepare_sleep(ask: impl FnOnce(), barrier: impl FnOnce(), has_work: impl FnOnce() -> bool) -> bool {
    ask();
    barrier();
    has_work()
}

/// The host's side: stores a new value, then returns whether the controller sleeps.
pub fn ring(store: impl FnOnce(), barrier: impl FnOnce(), sleeps: impl FnOnce() -> bool) -> bool {
    store();
    barrier();
    sleeps()
}

/// The registers of a controller: a submission queue's tail and a completion queue's head for each queue identifier.
#[derive(Debug)]
pub struct Doorbells(Box<[AtomicU32]>);

impl Doorbells {
    /// Registers for this many queue identifiers, with that of the admin queues.
    #[must_use]
    pub fn new(queues: usize) -> Self {
        Self((0..2 * queues).map(|_| AtomicU32::new(0)).collect())
    }

    /// The register at this index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&AtomicU32> {
        self.0.get(index)
    }
}

/// The two pages of Doorbell Buffer Config.
#[derive(Debug)]
pub struct Shadow {
    /// What the host writes instead of doorbells.
    pub values: Slice,
    /// Where the controller says at which values it wants a message.
    pub events: Slice,
}

impl Shadow {
    /// Asks for a message when the host passes `value`.
    fn ask_for_message_at(&self, index: usize, value: u32) {
        let _ = self.events.store_u32(4 * index, value.to_le()); // it is inside
    }
}

/// One doorbell, as the controller reads it.
#[derive(Debug)]
pub struct Register {
    index: usize,
    registers: Arc<Doorbells>,
    place: Place,
    written: u32,    // to the shadow, by the controller
    is_shadow: bool, // the host uses the shadow of this doorbell
}

/// Where the host writes the value of a doorbell.
#[derive(Debug)]
enum Place {
    Register,
    Shadow(Arc<Shadow>),
    /// A shadow whose memory is away. It had this value.
    Away(u32),
}

impl Register {
    /// The doorbell at `index`, for a new queue.
    #[must_use]
    pub fn new(index: usize, registers: Arc<Doorbells>, shadow: Option<Arc<Shadow>>) -> Self {
        let mut register = Self { index, registers, place: Place::Register, written: 0, is_shadow: false };
        register.set_register(0);
        register.set_shadow(shadow);
        register
    }

    fn set_register(&self, value: u32) {
        if let Some(register) = self.registers.get(self.index) {
            register.store(value, Ordering::Relaxed);
        }
    }

    fn register(&self) -> u32 {
        self.registers.get(self.index).map_or(0, |register| register.load(Ordering::Acquire))
    }

    /// Uses other shadow doorbells, or none. They get the current value, as hosts may not clear them.
    pub fn set_shadow(&mut self, shadow: Option<Arc<Shadow>>) {
        let value = self.value();
        self.set_register(value); // what the shadow before said
        if let Some(shadow) = &shadow {
            shadow.ask_for_message_at(self.index, value);
            let _ = shadow.values.store_u32(4 * self.index, value.to_le()); // it is inside
        }
        self.place = shadow.map_or(Place::Register, Place::Shadow);
        (self.written, self.is_shadow) = (value, false);
    }

    /// The memory of the shadow goes away. Until it [returns](Self::resume) the doorbell keeps its value: a message can be
    /// older than the shadow.
    pub fn suspend(&mut self) {
        if matches!(self.place, Place::Shadow(_)) {
            self.place = Place::Away(self.load());
        }
    }

    /// The memory of the shadow is mapped again, with what the host has written meanwhile.
    pub fn resume(&mut self, shadow: Arc<Shadow>) {
        match self.place {
            Place::Away(_) => self.place = Place::Shadow(shadow),
            Place::Register | Place::Shadow(_) => self.set_shadow(Some(shadow)), // of a queue that is newer
        }
    }

    /// The current value, and whether it is that of a shadow that the host uses. A message can be older than the shadow, so
    /// messages count only while the shadow is as the controller wrote it.
    fn look(&self) -> (u32, bool) {
        let shadow = match &self.place {
            Place::Register => None,
            Place::Shadow(shadow) => shadow.values.load_u32(4 * self.index).map(u32::from_le),
            Place::Away(value) => return (*value, self.is_shadow),
        };
        match shadow {
            Some(value) if self.is_shadow || value != self.written => (value, true),
            _ => (self.register(), false),
        }
    }

    /// The current value.
    #[must_use]
    pub fn value(&self) -> u32 {
        self.look().0
    }

    /// The current value. Remembers whether the host uses the shadow.
    pub fn load(&mut self) -> u32 {
        let (value, is_shadow) = self.look();
        self.is_shadow |= is_shadow;
        value
    }

    /// Asks for a message when the host passes `value`.
    pub fn ask_at(&self, value: u16) {
        if let Place::Shadow(shadow) = &self.place {
            shadow.ask_for_message_at(self.index, value.into());
        }
    }
}

/// Whether the thread of a vector sleeps, and its messages.
#[derive(Debug, Default)]
pub struct Sleep {
    state: AtomicU8,
    messages: AtomicU64,
}

/// The states of a thread: it is awake, or it sleeps and waits for these messages.
pub const AWAKE: u8 = 0;
/// As above.
pub const FOR_TAILS: u8 = 1;
/// As above.
pub const FOR_HEADS_TOO: u8 = 2;

/// Whether a message wakes a thread in this state.
#[must_use]
pub const fn wakes(state: u8, is_head: bool) -> bool {
    state >= if is_head { FOR_HEADS_TOO } else { FOR_TAILS }
}

impl Sleep {
    /// The thread is about to sleep, after `ask` has asked for messages. It waits for tails; also for heads, if a submission
    /// queue waits for room. Returns true if there is work: then it stays awake.
    pub fn fall_asleep(&self, ask: impl FnOnce(), for_heads: bool, has_work: impl FnOnce() -> bool) -> bool {
        let state = if for_heads { FOR_HEADS_TOO } else { FOR_TAILS };
        let ask = || {
            ask();
            self.state.store(state, Ordering::Relaxed);
        };
        let has_work = prepare_sleep(ask, || fence(Ordering::SeqCst), has_work);
        if has_work {
            self.wake_up();
        }
        has_work
    }

    /// The thread is awake.
    pub fn wake_up(&self) {
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    /// A message has come: stores its value. Returns whether the thread must be woken.
    pub fn ring(&self, register: &AtomicU32, value: u32, is_head: bool) -> bool {
        self.messages.fetch_add(1, Ordering::Relaxed);
        let store = || register.store(value, Ordering::Release);
        ring(store, || fence(Ordering::SeqCst), || wakes(self.state.load(Ordering::Relaxed), is_head))
    }

    /// Messages since this was asked last.
    pub fn count_messages(&self) -> u64 {
        self.messages.swap(0, Ordering::Relaxed)
    }
}
