//! The numbers that were decided before anything was measured: what a page claims of the judged policy.

use coalesce_demo::paired::{CLAIMS, ERROR};

use crate::jobs::Job;
use crate::metric::What;
use crate::place::Place;

/// What is saved, and what that gains, where 32 reads are in flight; what it costs who waits for each read.
pub const NUMBERS: [(Place, Job, What); CLAIMS] = [
    (Place::Native, Job::Depth32, What::Interrupts),
    (Place::Native, Job::Depth32, What::Cpu),
    (Place::Native, Job::Depth32, What::Rate(0)),
    (Place::Guest, Job::Depth32, What::Taken),
    (Place::Guest, Job::Depth32, What::Cpu),
    (Place::Guest, Job::Depth32, What::Rate(0)),
    (Place::Nvme, Job::Depth32, What::Taken),
    (Place::Nvme, Job::Depth32, What::Cpu),
    (Place::Nvme, Job::Depth32, What::Rate(0)),
    (Place::Nvme, Job::Depth1, What::Rate(0)),
];

/// Their text.
pub const ABOUT: &str = "interrupts/IO (in a guest those taken), CPU µs/IO and reads/s of depth32 natively and in the guests with a \
                         virtio-blk and an NVMe disk, and reads/s of depth1 in the guest with the NVMe disk";

/// Whether it is one of them.
pub fn is_claim(place: Place, job: Job, what: What) -> bool {
    NUMBERS.contains(&(place, job, what))
}

/// What the intervals of a number may err: a claim its share of the error of all claims, everything else an error of its own.
///
/// That of a claim holds for the other policies of its column, too, which have the same control.
pub fn error_of(place: Place, job: Job, what: What) -> f64 {
    if is_claim(place, job, what) { ERROR / CLAIMS as f64 } else { ERROR }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::metrics;

    #[test]
    fn every_claim_is_a_number_of_the_page_and_none_comes_twice() {
        for (nth, &(place, job, what)) in NUMBERS.iter().enumerate() {
            assert!(metrics(job, place).iter().any(|metric| metric.what == what), "{place:?} {job:?} {what:?}");
            assert!(!NUMBERS[..nth].contains(&(place, job, what)), "{place:?} {job:?} {what:?}");
        }
        let errors: f64 = NUMBERS.iter().map(|&(place, job, what)| error_of(place, job, what)).sum();
        assert!((errors - ERROR).abs() < 1e-12);
        assert!((error_of(Place::Native, Job::Depth1, What::Rate(0)) - ERROR).abs() < 1e-12);
    }
}
