//! The admin commands (NVMe 1.4 §5).

use super::memory::{Place, ShadowPages};
use super::{Controller, Cq, Sq, State, wait_for};
use crate::nvme::admin::{ADMIN_VECTOR, Event};
use crate::nvme::command::prps;
use crate::nvme::features::Effect;
use crate::nvme::identify::{self, Conditions};
use crate::nvme::rings::{CompletionQueue, SubmissionQueue};
use crate::nvme::spec::{CQE_LEN, ENTRIES_MAX, NSID, NSID_ALL, SQE_LEN, Sqe, Status, TRANSFER_MAX, admin};
use crate::nvme::vector::Vector;
use crate::queue::Part;
use crate::vfio_user::memory::{Access, PAGE, Slice};
use std::sync::atomic::Ordering;

/// What Create I/O Submission Queue and Create I/O Completion Queue have in common.
struct NewQueue {
    id: u16,
    entries: u32,
    slices: Vec<Slice>,
    place: Place,
}

impl Controller {
    /// Executes an admin command. Returns the result, or `None` if it completes later.
    pub(super) fn execute(&mut self, sqe: &Sqe) -> Result<Option<u32>, Status> {
        if !sqe.has_plain_flags() {
            return Err(Status::INVALID_FIELD);
        }
        self.settle();
        let State::Ready(ready) = &self.state else { return Ok(None) };
        match sqe.opcode() {
            admin::DELETE_SQ => return self.delete_sq(sqe).map(|()| None),
            admin::CREATE_SQ => self.create_sq(sqe)?,
            admin::GET_LOG_PAGE => self.log_page(sqe)?,
            admin::DELETE_CQ => self.delete_cq(sqe)?,
            admin::CREATE_CQ => self.create_cq(sqe)?,
            admin::IDENTIFY => self.identify(sqe)?,
            admin::ABORT => {
                let (queue, cid) = (sqe.dword::<10>() as u16, (sqe.dword::<10>() >> 16) as u16);
                let is_aborted = queue == 0 && ready.session.admin().abort(cid);
                return Ok(Some(u32::from(!is_aborted)));
            }
            admin::SET_FEATURES => return self.set_features(sqe).map(Some),
            admin::GET_FEATURES => {
                let write_cache = self.disk.write_back.load(Ordering::Relaxed);
                return self.features.get(sqe, write_cache, self.queues_max()).map(Some);
            }
            admin::ASYNC_EVENT_REQUEST => return ready.session.admin().request_event(sqe.cid()).map(|()| None),
            admin::DOORBELL_BUFFER_CONFIG if self.has_shadow() => self.set_shadow(sqe)?,
            _ => return Err(Status::INVALID_OPCODE),
        }
        Ok(Some(0))
    }

    /// The checks that both kinds of queues share.
    fn new_queue(&self, sqe: &Sqe, entry_len: usize, access: Access, exists: bool) -> Result<NewQueue, Status> {
        let (id, entries) = (sqe.dword::<10>() as u16, (sqe.dword::<10>() >> 16) + 1);
        if !(1..=self.queues_max()).contains(&id) || exists {
            return Err(Status::INVALID_QUEUE);
        }
        if !(2..=ENTRIES_MAX).contains(&entries) {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        if !sqe.prp1().is_multiple_of(PAGE) {
            return Err(Status::PRP_OFFSET);
        }
        let is_contiguous = sqe.dword::<11>() & 1 != 0;
        if !is_contiguous || !self.cc.has_entry_sizes() {
            return Err(Status::INVALID_FIELD);
        }
        let place = Place::new(&self.memory, sqe.prp1(), entries as usize * entry_len, access);
        let (place, slices) = place.ok_or(Status::INVALID_FIELD)?;
        Ok(NewQueue { id, entries, slices, place })
    }

    fn create_cq(&mut self, sqe: &Sqe) -> Result<(), Status> {
        let State::Ready(ready) = &self.state else { return Ok(()) };
        let (interrupts, vector) = (sqe.dword::<11>() & 1 << 1 != 0, (sqe.dword::<11>() >> 16) as u16);
        let exists = exists(&ready.cqs, sqe);
        let NewQueue { id, entries, slices, place } = self.new_queue(sqe, CQE_LEN, Access::Write, exists)?;
        let is_of_pin = vector == ADMIN_VECTOR;
        if vector >= self.vectors.count() || self.vectors.uses_pin() && !is_of_pin {
            return Err(Status::INVALID_VECTOR);
        }
        let thread = Self::thread_of(vector);
        let cq = CompletionQueue::new(id, vector, interrupts, slices, ready.register(2 * usize::from(id) + 1));
        self.queues[thread].change(Part::Holding, move |source| source.add_cq(cq));
        self.set_cq(id, Some(Cq { thread, entries, place }));
        Ok(())
    }

    fn create_sq(&mut self, sqe: &Sqe) -> Result<(), Status> {
        let State::Ready(ready) = &self.state else { return Ok(()) };
        let cq = (sqe.dword::<11>() >> 16) as u16;
        let exists = exists(&ready.sqs, sqe);
        let NewQueue { id, entries, slices, place } = self.new_queue(sqe, SQE_LEN, Access::Read, exists)?;
        let thread = match ready.cqs.get(usize::from(cq)) {
            Some(known) if cq > 0 => known.as_ref().ok_or(Status::INVALID_CQ)?.thread,
            _ => return Err(Status::INVALID_QUEUE),
        };
        let sq = SubmissionQueue::new(id, cq, slices, ready.register(2 * usize::from(id)));
        self.queues[thread].change(Part::Other, move |source| source.add_sq(sq));
        if let State::Ready(ready) = &mut self.state {
            ready.sqs[usize::from(id)] = Some(Sq { cq, thread, entries, place, is_deleting: false });
        }
        Ok(())
    }

    fn set_cq(&mut self, id: u16, cq: Option<Cq>) {
        if let State::Ready(ready) = &mut self.state {
            ready.cqs[usize::from(id)] = cq;
        }
    }

    /// The command completes when what the queue has in flight has.
    fn delete_sq(&mut self, sqe: &Sqe) -> Result<(), Status> {
        let State::Ready(ready) = &mut self.state else { return Ok(()) };
        let (id, cid) = (sqe.dword::<10>() as u16, sqe.cid());
        let (_, thread) = ready.sq(usize::from(id)).ok_or(Status::INVALID_QUEUE)?;
        if let Some(Some(sq)) = ready.sqs.get_mut(usize::from(id)) {
            sq.is_deleting = true;
        }
        let session = ready.session.clone();
        let remove = move |source: &mut Vector| source.remove_sq(id, Box::new(move || session.deleted(id, cid)));
        drop(self.queues[thread].change_later(Part::Holding, remove));
        Ok(())
    }

    fn delete_cq(&mut self, sqe: &Sqe) -> Result<(), Status> {
        let State::Ready(ready) = &self.state else { return Ok(()) };
        let id = sqe.dword::<10>() as u16;
        let cq = ready.cqs.get(usize::from(id)).and_then(Option::as_ref).ok_or(Status::INVALID_QUEUE)?;
        if ready.sqs.iter().flatten().any(|sq| sq.cq == id) {
            return Err(Status::INVALID_DELETION);
        }
        self.queues[cq.thread].change(Part::Holding, move |source| source.remove_cq(id));
        self.set_cq(id, None);
        Ok(())
    }

    fn identify(&self, sqe: &Sqe) -> Result<(), Status> {
        let data = match (sqe.dword::<10>() & 0xff, sqe.nsid()) {
            (0x00, NSID) => identify::namespace(&self.disk),
            (0x01, _) => identify::controller(&self.disk, self.has_shadow()),
            (0x02, nsid) if nsid < NSID_ALL - 1 => identify::active_namespaces(nsid),
            (0x03, NSID) => identify::descriptors(&self.disk),
            (0x00 | 0x02 | 0x03, _) => return Err(Status::INVALID_NAMESPACE),
            (0x06, _) if sqe.dword::<11>() >> 24 == 0 => vec![0; identify::IDENTIFY_LEN], // no further limits
            _ => return Err(Status::INVALID_FIELD),
        };
        prps(sqe).write(&self.memory, &data)
    }

    fn log_page(&self, sqe: &Sqe) -> Result<(), Status> {
        let State::Ready(ready) = &self.state else { return Ok(()) };
        let (page, retains_event) = (sqe.dword::<10>() as u8, sqe.dword::<10>() & 1 << 15 != 0);
        let dwords = u64::from(sqe.dword::<10>() >> 16) | u64::from(sqe.dword::<11>() & 0xffff) << 16;
        let offset = u64::from(sqe.dword::<12>()) | u64::from(sqe.dword::<13>()) << 32;
        let len = (dwords + 1) * 4;
        let (faults, has_changed) = {
            let admin = ready.session.admin();
            (admin.errors(), admin.has_changed())
        };
        let conditions = Conditions { faults, is_hot: self.features.is_hot(), has_changed };
        let data = identify::log_page(page, &self.disk, conditions);
        let data = data.ok_or(Status::INVALID_LOG_PAGE)?;
        let data = usize::try_from(offset).ok().and_then(|offset| data.get(offset..));
        let Some(data) = data.filter(|_| len <= TRANSFER_MAX && offset.is_multiple_of(4)) else {
            return Err(Status::INVALID_FIELD);
        };
        let mut data = data.to_vec();
        data.resize(len as usize, 0);
        prps(sqe).write(&self.memory, &data)?;
        ready.session.admin().note_read(page);
        if !retains_event {
            ready.session.admin().clear_events(page);
        }
        Ok(())
    }

    fn set_features(&mut self, sqe: &Sqe) -> Result<u32, Status> {
        let State::Ready(ready) = &self.state else { return Ok(0) };
        let has_queues = ready.cqs.iter().flatten().next().is_some();
        let queues = (!has_queues).then_some(self.queues_offered());
        let (result, effect) = self.features.set(sqe, queues)?;
        match effect {
            Effect::None | Effect::Exempt(ADMIN_VECTOR, _) => {}
            Effect::Health => {
                if self.features.wants_health_event() {
                    ready.session.notify(Event::Temperature);
                }
            }
            Effect::WriteCache(is_on) => self.disk.write_back.store(is_on, Ordering::Relaxed),
            Effect::Aggregate => {
                let aggregation = self.features.aggregation();
                let set = move |source: &mut Vector| source.set_aggregation(aggregation);
                let changes = self.queues.iter().map(|queue| queue.change_later(Part::Holding, set));
                wait_for(changes.collect());
            }
            Effect::Exempt(vector, is_exempt) => {
                self.queues[Self::thread_of(vector)].change(Part::Holding, move |source| source.set_exempt(is_exempt));
            }
        }
        Ok(result)
    }

    /// Whether Doorbell Buffer Config is offered. Not to a host with the interrupt pin: QEMU lowers it only at an access to
    /// registers, so a host that rings no doorbells would be interrupted for ever.
    fn has_shadow(&self) -> bool {
        !self.vectors.uses_pin()
    }

    fn set_shadow(&mut self, sqe: &Sqe) -> Result<(), Status> {
        let pages = [sqe.prp1(), sqe.prp2()];
        if !pages.iter().all(|page| page.is_multiple_of(PAGE)) {
            return Err(Status::PRP_OFFSET);
        }
        let shadow = ShadowPages::new(&self.memory, pages, PAGE as usize).filter(|_| pages[0] != pages[1]);
        let shadow = shadow.ok_or(Status::INVALID_FIELD)?;
        for queue in self.queues.iter() {
            let shadow = shadow.shadow().cloned();
            queue.change(Part::Other, move |source| source.set_shadow(shadow.as_ref()));
        }
        if let State::Ready(ready) = &mut self.state {
            ready.shadow = Some(shadow);
        }
        Ok(())
    }
}

fn exists<T>(queues: &[Option<T>], sqe: &Sqe) -> bool {
    matches!(queues.get(usize::from(sqe.dword::<10>() as u16)), Some(Some(_)))
}
