//! One requester: decides when its next request may be issued, and records the latencies of completed ones.

use hdrhistogram::Histogram;

use crate::arrivals::{self, OpenLoop};
use crate::job::JobName;

/// How long after the end the backlog of an open loop is still issued, and how long to wait for a missing completion,
/// in ns.
pub const GRACE_NS: u64 = 5_000_000_000;

/// What a requester does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Issue a request. Its latency counts from this arrival, or from its submission.
    Request { arrived_ns: Option<u64> },
    /// Issue a flush.
    Flush,
    /// Wait for a completion, or until this time.
    Wait { until_ns: Option<u64> },
}

/// What triggers a requester's next request.
#[derive(Debug)]
pub enum Pace {
    /// A completion (closed loop): `left` more requests, none of them at or after `end_ns`.
    Closed { left: u64, end_ns: u64 },
    /// The clock (open loop). Arrivals that still wait at `issue_until_ns` are never issued.
    Open { arrivals: Box<OpenLoop>, issue_until_ns: u64 },
}

/// Requests that the requester waits for together.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub requests: u32,
    /// Idle time once all of them are complete.
    pub gap_ns: u64,
}

/// The fixed part of a requester.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub name: JobName,
    pub ioprio: u32,
    pub depth: u32,
    pub group: Option<Group>,
    pub fsync_every: Option<u32>,
}

#[derive(Debug)]
pub struct Requester {
    pub profile: Profile,
    pace: Pace,
    in_flight: u32,
    in_group: u32,
    unflushed: u32,
    /// Whether a group, or the writes before a flush, must complete before the next request.
    settling: bool,
    idle_until_ns: u64,
    exhausted: bool,
    quiet_since_ns: u64,
    /// Open loop: arrivals so far, those that wait, and the most that ever waited.
    pub arrivals: u64,
    pub backlog: u64,
    pub backlog_max: u64,
    pub latency_ns: Histogram<u64>,
}

impl Requester {
    pub fn new(profile: Profile, pace: Pace) -> Self {
        Self {
            profile,
            pace,
            in_flight: 0,
            in_group: 0,
            unflushed: 0,
            settling: false,
            idle_until_ns: 0,
            exhausted: false,
            quiet_since_ns: 0,
            arrivals: 0,
            backlog: 0,
            backlog_max: 0,
            latency_ns: crate::latency::new_histogram(),
        }
    }

    /// What to issue now. The caller issues it, then calls [`issued`](Self::issued).
    pub fn next(&mut self, now_ns: u64) -> Next {
        if self.settling {
            if self.in_flight > 0 {
                return Next::Wait { until_ns: None };
            }
            if self.flush_is_due() {
                self.unflushed = 0;
                return Next::Flush;
            }
            self.settling = false;
            if let Some(group) = self.profile.group.filter(|group| self.in_group >= group.requests) {
                self.in_group = 0;
                self.idle_until_ns = now_ns + group.gap_ns;
            }
        }
        let full = self.in_flight >= self.profile.depth;
        match &mut self.pace {
            Pace::Closed { left, end_ns } => {
                self.exhausted = *left == 0 || now_ns >= *end_ns;
                if self.exhausted || full {
                    return Next::Wait { until_ns: None };
                }
                if now_ns < self.idle_until_ns {
                    return Next::Wait { until_ns: Some(self.idle_until_ns.min(*end_ns)) };
                }
                *left -= 1;
                Next::Request { arrived_ns: None }
            }
            Pace::Open { arrivals, issue_until_ns } => {
                self.exhausted = now_ns >= *issue_until_ns;
                if self.exhausted || full {
                    return Next::Wait { until_ns: None };
                }
                match arrivals.take(now_ns) {
                    arrivals::Next::Waiting(at) => Next::Request { arrived_ns: Some(at) },
                    arrivals::Next::At(at) => Next::Wait { until_ns: Some(at) },
                    arrivals::Next::Over => {
                        self.exhausted = true;
                        Next::Wait { until_ns: None }
                    }
                }
            }
        }
    }

    /// Notes that the request from [`next`](Self::next) was submitted.
    pub fn issued(&mut self, now_ns: u64, what: Issued) {
        if self.in_flight == 0 {
            self.quiet_since_ns = now_ns;
        }
        self.in_flight += 1;
        if what != Issued::Flush {
            self.in_group += 1;
        }
        if what == Issued::Write {
            self.unflushed += 1;
        }
        let group_is_full = self.profile.group.is_some_and(|group| self.in_group >= group.requests);
        self.settling |= group_is_full || self.flush_is_due();
    }

    /// Notes that a request completed.
    pub fn completed(&mut self, now_ns: u64) {
        self.in_flight -= 1;
        self.quiet_since_ns = now_ns;
    }

    /// Notes the backlog that remains after issuing.
    pub fn note_backlog(&mut self, now_ns: u64) {
        if let Pace::Open { arrivals, .. } = &mut self.pace {
            self.backlog = arrivals.backlog(now_ns);
            self.backlog_max = self.backlog_max.max(self.backlog);
            self.arrivals = arrivals.arrivals();
        }
    }

    /// Whether the requester will issue nothing more.
    pub fn exhausted(&self) -> bool {
        self.exhausted
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether requests are in flight and none has completed since `since_ns`.
    pub fn silent_since(&self, since_ns: u64) -> bool {
        self.in_flight > 0 && self.quiet_since_ns <= since_ns
    }

    fn flush_is_due(&self) -> bool {
        self.profile.fsync_every.is_some_and(|every| self.unflushed >= every)
    }
}

/// What a requester issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issued {
    Read,
    Write,
    Flush,
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Next = Next::Wait { until_ns: None };
    const REQUEST: Next = Next::Request { arrived_ns: None };

    fn requester(depth: u32, left: u64, group: Option<Group>, fsync_every: Option<u32>) -> Requester {
        let profile = Profile { name: JobName::Async, ioprio: 0, depth, group, fsync_every };
        Requester::new(profile, Pace::Closed { left, end_ns: 1_000_000 })
    }

    /// Issues everything it can at `now_ns`. Returns the number of requests, and what it waits for.
    fn fill(requester: &mut Requester, now_ns: u64) -> (u32, Next) {
        let mut count = 0;
        loop {
            match requester.next(now_ns) {
                Next::Request { .. } => requester.issued(now_ns, Issued::Write),
                other => return (count, other),
            }
            count += 1;
        }
    }

    #[test]
    fn closed_loop_keeps_the_depth_until_the_end() {
        let mut r = requester(4, u64::MAX, None, None);
        assert_eq!(fill(&mut r, 0), (4, WAIT));
        r.completed(10);
        assert_eq!(fill(&mut r, 10), (1, WAIT));
        r.completed(1_000_000);
        assert_eq!(fill(&mut r, 1_000_000), (0, WAIT));
        assert!(r.exhausted() && r.in_flight() == 3);
    }

    #[test]
    fn operations_are_counted_exactly() {
        let mut r = requester(4, 6, None, None);
        assert_eq!(fill(&mut r, 0), (4, WAIT));
        (0..4).for_each(|_| r.completed(1));
        assert_eq!(fill(&mut r, 1), (2, WAIT));
        assert!(r.exhausted());
    }

    #[test]
    fn a_batch_completes_before_the_next_begins_at_once() {
        let mut r = requester(3, u64::MAX, Some(Group { requests: 3, gap_ns: 0 }), None);
        assert_eq!(fill(&mut r, 0), (3, WAIT));
        r.completed(1);
        r.completed(1);
        assert_eq!(r.next(1), WAIT);
        r.completed(2);
        assert_eq!(fill(&mut r, 2), (3, WAIT));
    }

    #[test]
    fn a_burst_is_followed_by_its_gap() {
        let mut r = requester(2, u64::MAX, Some(Group { requests: 2, gap_ns: 500 }), None);
        assert_eq!(fill(&mut r, 0), (2, WAIT));
        (0..2).for_each(|_| r.completed(100));
        assert_eq!(r.next(100), Next::Wait { until_ns: Some(600) });
        assert_eq!(r.next(599), Next::Wait { until_ns: Some(600) });
        assert_eq!(r.next(600), REQUEST);
    }

    #[test]
    fn a_flush_follows_its_writes_and_precedes_the_next_ones() {
        let mut r = requester(8, 4, None, Some(2));
        assert_eq!(fill(&mut r, 0), (2, WAIT));
        r.completed(1);
        assert_eq!(r.next(1), WAIT);
        r.completed(2);
        assert_eq!(r.next(2), Next::Flush);
        r.issued(2, Issued::Flush);
        assert_eq!(r.next(2), WAIT);
        r.completed(3);
        assert_eq!(fill(&mut r, 3), (2, WAIT));
        (0..2).for_each(|_| r.completed(4));
        assert_eq!(r.next(4), Next::Flush);
        r.issued(4, Issued::Flush);
        r.completed(5);
        assert_eq!(r.next(5), WAIT);
        assert!(r.exhausted());
    }

    #[test]
    fn silence_counts_from_the_last_submission_or_completion() {
        let mut r = requester(2, u64::MAX, None, None);
        assert!(!r.silent_since(0));
        fill(&mut r, 100);
        assert!(r.silent_since(100) && !r.silent_since(99));
        r.completed(200);
        assert!(r.silent_since(200) && !r.silent_since(199));
    }
}
