//! What becomes of the queues and the shadow doorbells when guest memory goes away and returns. A client changes the memory
//! of its guest in several messages, and what the guest uses may be away between them: QEMU unmaps RAM and maps it again in
//! pieces when firmware protects a part of it. So a queue whose memory goes away is suspended. Its addresses are resolved again
//! at each map. Only a guest that rings its doorbell while it is away has made a mistake.

use super::{Controller, Ready, State};
use crate::nvme::doorbell::Shadow;
use crate::nvme::vector::Vector;
use crate::queue::Part;
use crate::vfio_user::memory::{Access, DmaMemory, Slice};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use tracing::{info, warn};

/// Where something of the controller lies in guest memory.
#[derive(Debug)]
pub(super) struct Place {
    range: Range<u64>,
    access: Access,
    is_away: bool,
    is_reported: bool, // that it is away
}

impl Place {
    /// `len` bytes from `start` on, and their memory. `None`: they are not in guest memory that permits the access.
    pub(super) fn new(memory: &DmaMemory, start: u64, len: usize, access: Access) -> Option<(Self, Vec<Slice>)> {
        let range = start..start.checked_add(u64::try_from(len).ok()?)?;
        let slices = memory.slices(&range, access)?;
        Some((Self { range, access, is_away: false, is_reported: false }, slices))
    }

    /// Memory goes away. Returns whether this goes with it.
    fn leaves(&mut self, memory: &Range<u64>) -> bool {
        let leaves = !self.is_away && self.range.start < memory.end && memory.start < self.range.end;
        self.is_away |= leaves;
        leaves
    }

    /// Its memory, if it was away and is mapped again.
    fn returns(&mut self, memory: &DmaMemory) -> Option<Vec<Slice>> {
        let slices = self.is_away.then(|| memory.slices(&self.range, self.access))??;
        self.is_away = false;
        Some(slices)
    }
}

/// The shadow doorbells: values and events.
#[derive(Debug)]
pub(super) struct ShadowPages {
    places: [Place; 2],
    shadow: Option<Arc<Shadow>>, // while both are here
}

impl ShadowPages {
    /// The pages at these addresses. `None`: one is not in guest memory that can be written.
    pub(super) fn new(memory: &DmaMemory, pages: [u64; 2], len: usize) -> Option<Self> {
        let [values, events] = pages.map(|page| Place::new(memory, page, len, Access::Write));
        let ((values, values_slices), (events, events_slices)) = (values?, events?);
        let shadow = shadow(values_slices, events_slices);
        Some(Self { places: [values, events], shadow })
    }

    /// What the queues use; `None` while it is away.
    pub(super) const fn shadow(&self) -> Option<&Arc<Shadow>> {
        self.shadow.as_ref()
    }

    fn returns(&mut self, memory: &DmaMemory) -> Option<Arc<Shadow>> {
        if self.shadow.is_some() {
            return None;
        }
        let [values, events] = [0, 1].map(|i| memory.slices(&self.places[i].range, Access::Write));
        self.shadow = shadow(values?, events?);
        self.places.iter_mut().for_each(|place| place.is_away = false);
        self.shadow.clone()
    }
}

/// Each page lies in one region.
fn shadow(mut values: Vec<Slice>, mut events: Vec<Slice>) -> Option<Arc<Shadow>> {
    Some(Arc::new(Shadow { values: values.pop()?, events: events.pop()? }))
}

/// What lies in guest memory.
#[derive(Clone, Copy)]
enum What {
    Sq(usize),
    Cq(usize),
    Shadow,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sq(0) => f.write_str("the admin submission queue"),
            Self::Cq(0) => f.write_str("the admin completion queue"),
            Self::Sq(id) => write!(f, "submission queue {id}"),
            Self::Cq(id) => write!(f, "completion queue {id}"),
            Self::Shadow => f.write_str("the shadow doorbells"),
        }
    }
}

impl Ready {
    fn places(&mut self) -> impl Iterator<Item = (What, &mut Place)> {
        let [admin_sq, admin_cq] = &mut self.admin;
        let sqs = self.sqs.iter_mut().enumerate();
        let cqs = self.cqs.iter_mut().enumerate();
        [(What::Sq(0), admin_sq), (What::Cq(0), admin_cq)]
            .into_iter()
            .chain(sqs.filter_map(|(id, sq)| Some((What::Sq(id), &mut sq.as_mut()?.place))))
            .chain(cqs.filter_map(|(id, cq)| Some((What::Cq(id), &mut cq.as_mut()?.place))))
            .chain(self.shadow.iter_mut().flat_map(|pages| &mut pages.places).map(|place| (What::Shadow, place)))
    }

    /// Notes whether nothing is away.
    fn note_whole(&mut self) {
        let is_whole = self.places().all(|(_, place)| !place.is_away);
        self.is_whole = is_whole;
    }

    /// What the host needs when it rings the doorbell of a submission queue, and is away.
    fn missing(&mut self, id: usize) -> Option<(What, Range<u64>)> {
        let cq = match id {
            0 => 0,
            _ => self.sqs.get(id)?.as_ref()?.cq.into(),
        };
        let is_needed = |what: &What| match *what {
            What::Sq(sq) => sq == id,
            What::Cq(of) => of == cq,
            What::Shadow => id > 0,
        };
        let mut away = self.places().filter(|(what, place)| place.is_away && is_needed(what));
        away.next().map(|(what, place)| (what, place.range.clone()))
    }
}

impl Controller {
    /// Why the host may not ring the doorbell of a submission queue now.
    pub(super) fn why_not_ring(&mut self, id: usize) -> Option<String> {
        let State::Ready(ready) = &mut self.state else { return None };
        let (what, range) = ready.missing(id)?;
        Some(format!("the doorbell of submission queue {id} was rung, but {what} at {range:#x?} has no memory"))
    }

    /// Guest memory goes away: suspends what lies in it.
    pub(super) fn suspend(&mut self, memory: &Range<u64>) {
        let State::Ready(ready) = &mut self.state else { return };
        let queues = &self.queues;
        let [sq, cq] = &mut ready.admin;
        if sq.leaves(memory) {
            ready.admin_sq.suspend();
        }
        if cq.leaves(memory) {
            ready.session.admin().suspend();
        }
        for (id, sq) in (0..).zip(&mut ready.sqs) {
            if let Some(sq) = sq
                && sq.place.leaves(memory)
            {
                drop(queues[sq.thread].change_later(Part::Other, move |vector| vector.suspend_sq(id)));
            }
        }
        for (id, cq) in (0..).zip(&mut ready.cqs) {
            if let Some(cq) = cq
                && cq.place.leaves(memory)
            {
                drop(queues[cq.thread].change_later(Part::Other, move |vector| vector.suspend_cq(id)));
            }
        }
        if let Some(pages) = &mut ready.shadow {
            let [values, events] = &mut pages.places;
            if values.leaves(memory) | events.leaves(memory) {
                pages.shadow = None;
                queues.iter().for_each(|queue| drop(queue.change_later(Part::Other, Vector::suspend_shadow)));
            }
        }
        ready.note_whole();
    }

    /// Guest memory was mapped: resumes what lies in it.
    pub(super) fn resume(&mut self) {
        self.retry();
        let State::Ready(ready) = &mut self.state else { return };
        if ready.is_whole {
            return;
        }
        let (queues, memory) = (&self.queues, &self.memory);
        let part = Part::Interrupt; // for what waited
        if let Some(shadow) = ready.shadow.as_mut().and_then(|pages| pages.returns(memory)) {
            for queue in queues.iter() {
                let shadow = shadow.clone();
                drop(queue.change_later(part, move |vector| vector.resume_shadow(&shadow)));
            }
        }
        for (id, cq) in (0..).zip(&mut ready.cqs) {
            if let Some(cq) = cq
                && let Some(slices) = cq.place.returns(memory)
            {
                drop(queues[cq.thread].change_later(part, move |vector| vector.resume_cq(id, slices)));
            }
        }
        for (id, sq) in (0..).zip(&mut ready.sqs) {
            if let Some(sq) = sq
                && let Some(slices) = sq.place.returns(memory)
            {
                drop(queues[sq.thread].change_later(part, move |vector| vector.resume_sq(id, slices)));
            }
        }
        let [sq, cq] = &mut ready.admin;
        if let Some(slices) = cq.returns(memory) {
            ready.session.admin().resume(slices);
            ready.session.post();
        }
        if let Some(slices) = sq.returns(memory) {
            ready.admin_sq.resume(slices);
        }
        ready.note_whole();
        let returned = list(ready, |place| !place.is_away && std::mem::take(&mut place.is_reported));
        if let Some(returned) = returned {
            info!(disk = self.disk.name, "guest memory is mapped again, and goes on in use: {returned}");
        }
        self.run_admin();
    }

    /// A change of guest memory is over: says what is still away, once.
    pub(super) fn end_change(&mut self) {
        self.memory.end_change();
        let State::Ready(ready) = &mut self.state else { return };
        let away = list(ready, |place| place.is_away && !std::mem::replace(&mut place.is_reported, true));
        if let Some(away) = away {
            warn!(disk = self.disk.name, "guest memory was unmapped while in use, and is waited for: {away}");
        }
        self.retry();
    }

    /// Lets commands that wait for memory be fetched again.
    fn retry(&self) {
        let State::Ready(ready) = &self.state else { return };
        if ready.session.take_waiting() {
            self.queues.iter().for_each(|queue| drop(queue.change_later(Part::Other, Vector::retry)));
        }
    }
}

/// The places for which `is_listed`, for the log.
fn list(ready: &mut Ready, mut is_listed: impl FnMut(&mut Place) -> bool) -> Option<String> {
    let listed = ready.places().filter_map(|(what, place)| {
        is_listed(place).then(|| format!("{what} at {:#x}..{:#x}", place.range.start, place.range.end))
    });
    let listed: Vec<_> = listed.collect();
    (!listed.is_empty()).then(|| listed.join(", "))
}
