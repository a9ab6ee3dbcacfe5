//! The requesters' time: for each thread, the integral over time of the requests that its application has.
//!
//! It comes from the load alone, so no policy can change what it is judged by: what it counts as outstanding is its own.

use super::World;

impl World {
    /// The thread's application may have another number of requests than before. Called after everything that can change it.
    pub(super) fn note_requests(&mut self, id: u32) {
        let thread = &mut self.threads[id as usize];
        let requests = thread.requests(self.now, self.is_ending);
        let before = std::mem::replace(&mut thread.noted, requests);
        if requests != before {
            let by = requests.cast_signed() - before.cast_signed();
            self.measure.groups[thread.group as usize].requests.change(self.now, by);
            self.lines[thread.cpu as usize].line.change_requests(self.now, by);
        }
    }

    /// The same for all threads: at the beginning, and when nothing new begins any more.
    pub(super) fn note_all_requests(&mut self) {
        (0..super::index(self.threads.len())).for_each(|id| self.note_requests(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{ENDING_MAX, Wanted};
    use crate::fuzz;

    /// A policy that spends a share of what the device sees keeps to the same share of what requesters spend.
    #[test]
    fn requesters_have_at_least_what_the_device_sees() {
        for seed in 0..200 {
            let point = fuzz::plan(seed).points().unwrap().remove(0);
            let contender = point.plan.contenders().unwrap().remove(0);
            let mut world = World::new(&point, &contender, &Wanted::default()).unwrap();
            world.start(&point);
            let step = |world: &mut World, until: u64| {
                let Some((at, event)) = world.queue.pop_before(until) else { return false };
                world.now = at;
                world.happen(event);
                for (cpu, state) in world.lines.iter().enumerate() {
                    let threads = world.threads.iter().filter(|thread| thread.cpu as usize == cpu);
                    let requests: u64 = threads.map(|thread| thread.noted).sum();
                    let seen = state.line.outstanding();
                    assert!(requests >= seen.into(), "seed {seed}, {at} ns, CPU {cpu}: {requests}, not {seen}");
                }
                true
            };
            let end = point.plan.duration.0.min(5_000_000);
            while step(&mut world, end) {}
            world.is_ending = true;
            world.note_all_requests();
            while world.requests.len() > 0 && step(&mut world, ENDING_MAX) {}
        }
    }
}
