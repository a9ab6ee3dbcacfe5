//! Where a queue is served: together with others while its visits are short, alone while they are long.
//!
//! A queue that shares a thread waits while the other queues are visited, but its own visits save context switches. So a queue gets a
//! thread of its own when a visit takes longer than the switch that it saves, and joins the others when it does not. If the shared
//! thread hardly sleeps, its busiest queue also gets a thread of its own, as long as half of the CPUs are left to guests.

/// The thread on which all queues begin.
pub(super) const FIRST: usize = 0;
/// A time over which the work of queues is compared, in ns: the shortest, and the longest, if there is little work.
pub(super) const WINDOW: u64 = 4_000_000;
pub(super) const WINDOW_MAX: u64 = 256_000_000;
/// How long a queue stays where it has moved to, in ns: longer than what a few windows show by chance.
pub(super) const STAY: u64 = 50_000_000;
/// How long no queue moves after one could not, because a request of it takes so long, in ns.
pub(super) const REST: u64 = 1_000_000_000;

/// A visit from which it is long, and one up to which it is short, in ns. On two CPUs four queues of a file in the page cache are as
/// fast together as apart with visits of 45 µs, and those of a memory disk with 35 to 40 µs. With shorter ones they are faster
/// together: by 1.4 x with 24 µs, and with O_DIRECT at depth 1 (measurements/diary.md, 2026-11-28).
const LONG: u64 = 40_000;
const SHORT: u64 = 28_000;
/// Visits in a window that say something.
const VISITS_MIN: u32 = 16;
/// Units of work that say something in fewer visits: several windows' worth, of some of the longest visits.
const UNITS_MIN: u32 = 8192;
/// Work that is as much as that of one small request, in bytes that are copied meanwhile.
const BYTES: u64 = 16 << 10;

/// The time of a thread in a window, in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub(super) length: u64,
    /// Without sleeps and polls, be there work at their end or not.
    pub(super) busy: u64,
}

impl Time {
    /// The share in which it was busy, in 1/1024.
    pub(super) const fn share(self) -> u32 {
        (self.busy * 1024 / self.length) as u32
    }
}

/// A thread that sleeps most of the time: who waits for another queue does so rarely.
const CALM: u32 = 256;
/// A thread that hardly sleeps.
const BUSY: u32 = 960;
/// So busy a thread may become by a queue that moves to it.
const ROOM: u32 = 768;

/// What a queue has done in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    visits: u32, // those that found requests
    units: u32,  // requests, large ones more than once
}

impl Work {
    /// Notes a visit that found requests, and their work in bytes.
    pub(super) fn note(&mut self, requests: usize, work: u64) {
        self.visits += 1;
        self.units = self.units.saturating_add(requests as u32).saturating_add((work / BYTES) as u32);
    }

    /// Whether it was visited often enough to tell how, or has done much in a few visits.
    pub(super) const fn tells(self) -> bool {
        self.visits >= VISITS_MIN || self.units >= UNITS_MIN
    }

    /// The mean time of a visit, in ns. Its thread was busy for `busy` ns, with `units` of all its queues.
    const fn visit(self, busy: u64, units: u64) -> u64 {
        busy * self.units as u64 / units / self.visits as u64
    }
}

/// Which of the queues of a thread, each with its work, is to have a thread of its own. `has_spare`: a CPU is left for another
/// thread that does not sleep.
pub(super) fn apart(works: &[(usize, Work)], time: Time, has_spare: bool) -> Option<usize> {
    let works = || works.iter().filter(|(_, work)| work.tells());
    if time.share() < CALM || works().count() < 2 {
        return None; // nobody waits for it
    }
    let units = works().map(|(_, work)| u64::from(work.units)).sum();
    let visit = |work: Work| work.visit(time.busy, units);
    let longest = works().filter(|(_, work)| visit(*work) >= LONG).max_by_key(|(_, work)| visit(*work));
    let busiest = works().filter(|_| time.share() >= BUSY && has_spare).max_by_key(|(_, work)| work.units);
    longest.or(busiest).map(|(queue, _)| *queue)
}

/// Whether a queue that was alone on a thread is to join the others, whose thread is busy for this share of its time.
pub(super) fn joins(work: Work, time: Time, others: u32) -> bool {
    work.tells() && work.visit(time.busy, work.units.into()) < SHORT && time.share() + others <= ROOM
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(visits: u32, requests: usize, bytes: u64) -> Work {
        let mut work = Work::default();
        (0..visits).for_each(|_| work.note(requests, bytes));
        work
    }

    fn busy(busy: u64) -> Time {
        Time { length: 4_000_000, busy }
    }

    #[test]
    fn the_queue_with_the_longest_visits_moves_apart() {
        let short = work(100, 1, 4096);
        let works = [(0, short), (1, work(50, 14, 57344)), (2, work(50, 22, 90112))];
        assert_eq!(apart(&works, busy(3_500_000), false), Some(2), "1.5 us a unit, 41 us a visit");
        assert_eq!(apart(&works, busy(1_500_000), false), None, ".65 us a unit, 18 us a visit");
        assert_eq!(apart(&[(0, short), (1, work(20, 1, 1 << 20))], busy(2_000_000), false), Some(1), "large requests");
        assert_eq!(apart(&[(0, work(3, 1, 0)), (1, work(100, 32, 0))], busy(4_000_000), true), None, "alone in fact");
        assert_eq!(
            apart(&[(0, short), (1, work(20, 50, 0))], busy(900_000), true),
            None,
            "it is calm: the disk is slow"
        );
    }

    /// With other processes on its CPU, a queue is not visited often within the longest window.
    #[test]
    fn few_visits_that_are_long_tell_too() {
        let works = [(0, work(20, 1, 4096)), (1, work(8, 31, 16 << 20))];
        assert_eq!(apart(&works, Time { length: WINDOW_MAX, busy: 200_000_000 }, false), Some(1));
        assert_eq!(apart(&[(0, work(20, 1, 4096)), (1, work(7, 31, 16 << 20))], busy(4_000_000), false), None);
        let mut many = Work::default();
        (0..20).for_each(|_| many.note(1, u64::MAX));
        assert!(many.tells(), "no overflow");
    }

    #[test]
    fn the_busiest_moves_apart_if_the_thread_never_sleeps_and_a_cpu_is_left() {
        let works = [(0, work(400, 1, 4096)), (3, work(600, 1, 4096))];
        assert_eq!(apart(&works, busy(4_000_000), true), Some(3));
        assert_eq!(apart(&works, busy(4_000_000), false), None);
        assert_eq!(apart(&works, busy(3_500_000), true), None);
    }

    #[test]
    fn one_with_short_visits_joins_the_others_if_their_thread_has_room() {
        let short = work(100, 1, 4096);
        assert!(joins(short, busy(1_200_000), 400), "12 us a visit");
        assert!(!joins(short, busy(1_200_000), 500), "no room");
        assert!(!joins(short, busy(3_000_000), 0), "30 us: between short and long it stays where it is");
        assert!(!joins(work(3, 1, 0), busy(3000), 1), "three visits say nothing");
    }
}
