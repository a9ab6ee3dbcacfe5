//! The letters with which Linux's block layer says what a request does, `rwbs`, and what its requests are known by.

use super::{Op, Request};

/// A flush has no sector.
const FLUSH: u64 = u64::MAX;
/// Nor has a passthrough command.
const PASSTHROUGH: u64 = u64::MAX - 1;

/// By what a request's submission and completion match on its device.
pub fn key(request: &Request, sector: Option<u64>) -> u64 {
    match sector {
        _ if request.op == Op::Flush => FLUSH,
        Some(sector) => sector,
        None => PASSTHROUGH,
    }
}

/// Flush, direction, and flags: `R`, `RA`, `WS`, `FWFS`, `FN`, `D`.
pub fn request(rwbs: &str) -> Request {
    let (preflush, rest) = match rwbs.strip_prefix('F') {
        Some(rest) => (true, rest),
        None => (false, rwbs),
    };
    let op = match rest.chars().next() {
        Some('R') => Op::Read,
        Some('W') => Op::Write,
        None | Some('F' | 'N' | 'S') if preflush => Op::Flush,
        _ => Op::Other,
    };
    let durable = op == Op::Write && (preflush || rest.contains('F'));
    Request { op, durable, ..Request::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_understood() {
        for (rwbs, op, durable) in [
            ("R", Op::Read, false),
            ("RA", Op::Read, false),
            ("WS", Op::Write, false),
            ("WFS", Op::Write, true),
            ("FWS", Op::Write, true),
            ("FN", Op::Flush, false),
            ("FF", Op::Flush, false),
            ("F", Op::Flush, false),
            ("D", Op::Other, false),
            ("N", Op::Other, false),
        ] {
            assert_eq!(request(rwbs), Request { op, durable, ..Request::default() }, "{rwbs}");
        }
    }
}
