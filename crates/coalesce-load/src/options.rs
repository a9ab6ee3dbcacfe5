//! The options of a run, with their defaults and bounds.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer};

use crate::Error;

/// The most queues in one run.
pub const QUEUES_MAX: u16 = 16;

/// The most requests in flight per queue. A request takes three of the 1024 descriptors that every target accepts, and
/// one request is reserved for the synchronous requester of [`Job::Mixed`].
pub const DEPTH_MAX: u16 = 340;

/// The most data memory shared with the target, in bytes.
const SHARED_BYTES_MAX: u64 = 1 << 30;

/// The definition of a run. `Default` gives the defaults of the command line; only `socket` has no default.
#[derive(Args, Clone, Debug, PartialEq, Serialize)]
pub struct Options {
    /// Unix socket of the target, which has two seconds to appear
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,

    /// Device that the target serves, and protocol of the socket
    #[arg(long, value_name = "DEVICE", value_enum, default_value_t = Self::default().device)]
    pub device: Device,

    /// Queues to drive, 1 to 16
    #[arg(long, value_name = "COUNT", default_value_t = Self::default().queues)]
    pub queues: u16,

    /// Load on each queue
    #[arg(long, value_enum, default_value_t = Self::default().job)]
    pub job: Job,

    /// Requests in flight per queue, 1 to 340 (jobs async and mixed)
    #[arg(long, value_name = "REQUESTS", default_value_t = Self::default().depth)]
    pub depth: u16,

    /// Requests per batch and queue, 1 to 340 (job batch)
    #[arg(long, value_name = "REQUESTS", default_value_t = Self::default().batch)]
    pub batch: u16,

    /// Length of the measurement, in seconds (may be fractional)
    #[arg(long, value_name = "SECONDS", default_value_t = Self::default().seconds)]
    pub seconds: f64,

    /// Stop after this many requests per queue instead of after --seconds (job mixed: asynchronous ones)
    #[arg(long, value_name = "REQUESTS", conflicts_with = "seconds")]
    pub ops: Option<u64>,

    /// Warm-up before the measurement, in seconds
    #[arg(long = "warmup", value_name = "SECONDS", default_value_t = Self::default().warmup_seconds)]
    pub warmup_seconds: f64,

    /// Bytes per request: a power of two, 512 to 1M (4k and 4096 are the same)
    #[arg(long = "block-size", value_name = "BYTES", default_value = "4k", value_parser = parse_bytes)]
    pub block_size_bytes: u32,

    /// Reads or writes, in sequence or at random; writing destroys the data of the device
    #[arg(long, value_enum, default_value_t = Self::default().rw)]
    pub rw: Rw,

    /// Mix: share of writes, in percent [default: 0 for reads, 100 for writes]
    #[arg(long, value_name = "PERCENT")]
    pub write_percent: Option<u8>,

    /// Flush after this many writes of a requester, and wait for it (like fio's fsync)
    #[arg(long, value_name = "WRITES")]
    pub fsync_every: Option<u32>,

    /// Mark of the synchronous requests: ioprio real time (0x2000; NVMe: hint Urgent, see --hint-bits), or as all others
    #[arg(long, value_enum, value_name = "CLASS", default_value_t = Self::default().sync_ioprio)]
    pub sync_ioprio: SyncIoprio,

    /// NVMe: where hint Urgent is, as in the key `bits` of the target's policy; for example cdw12:16 or cdw13:8
    #[arg(long, value_name = "DWORD:BIT", default_value_t = Self::default().hint_bits)]
    pub hint_bits: HintBits,

    /// Open loop: arrivals per second and queue, at most --depth of them in flight (jobs async and mixed)
    #[arg(long = "rate", value_name = "PER_SECOND")]
    pub rate_per_second: Option<f64>,

    /// Open loop: draw the intervals from an exponential distribution instead of equal intervals
    #[arg(long, requires = "rate_per_second")]
    pub poisson: bool,

    /// Open loop: arrivals for a time, none for a time, and so on; for example 600us:2ms. --rate is that of the first
    #[arg(long, requires = "rate_per_second", value_name = "ON:OFF")]
    pub pauses: Option<Pauses>,

    /// Bursts: submit this number of requests, at most --depth in flight, wait for all, then stay idle for the gap; for example
    /// 64:2ms or 8:500us
    #[arg(long, value_name = "REQUESTS:GAP", conflicts_with = "rate_per_second")]
    pub bursts: Option<Bursts>,

    /// Negotiate EVENT_IDX (NVMe: shadow doorbells) if the target offers it, as Linux does
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = parse_on_off, action = clap::ArgAction::Set)]
    pub event_idx: bool,

    /// Sleep in ppoll until the call eventfd is signalled, or poll it (less jitter, uses a whole CPU)
    #[arg(long, value_enum, default_value_t = Self::default().wait)]
    pub wait: Wait,

    /// Threads that serve the queues
    #[arg(long, value_enum, default_value_t = Self::default().threads)]
    pub threads: Threads,

    /// Write a pattern of offset and generation, and check every read against it (closed loop, with reads and writes)
    #[arg(long, conflicts_with = "rate_per_second")]
    pub verify: bool,

    /// Seed of the offsets, of the read/write mix and of --poisson
    #[arg(long, value_name = "NUMBER", default_value_t = Self::default().seed)]
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            socket: PathBuf::new(),
            device: Device::VirtioBlk,
            queues: 1,
            job: Job::Async,
            depth: 32,
            batch: 32,
            seconds: 3.0,
            ops: None,
            warmup_seconds: 0.2,
            block_size_bytes: 4096,
            rw: Rw::Randread,
            write_percent: None,
            fsync_every: None,
            sync_ioprio: SyncIoprio::Rt,
            hint_bits: HintBits::DEFAULT,
            rate_per_second: None,
            poisson: false,
            pauses: None,
            bursts: None,
            event_idx: true,
            wait: Wait::Sleep,
            threads: Threads::One,
            verify: false,
            seed: 1,
        }
    }
}

/// What the target serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// virtio-blk, over vhost-user
    VirtioBlk,
    /// An NVMe controller, over vfio-user
    Nvme,
}

/// The load on each queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Job {
    /// Keep --depth requests in flight
    Async,
    /// One request at a time, marked by --sync-ioprio
    Sync,
    /// One synchronous requester beside one that keeps --depth in flight, reported separately
    Mixed,
    /// Submit --batch requests with one kick, wait until all are complete, repeat
    Batch,
}

/// Direction and order of the requests, in fio's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "fio's words, explained by Options::rw; a text here would only lengthen --help")]
pub enum Rw {
    Read,
    Write,
    Randread,
    Randwrite,
}

impl Rw {
    /// Whether offsets are random.
    pub const fn random(self) -> bool {
        matches!(self, Self::Randread | Self::Randwrite)
    }
}

/// The mark that synchronous requests carry: the `ioprio` in the virtio-blk header; over NVMe, where no `ioprio` is on the wire, a
/// hint at [`HintBits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SyncIoprio {
    /// Real-time class, 0x2000; hint Urgent
    Rt,
    /// Not marked: best effort, 0x4004, as Linux sends by default; no hint
    None,
}

/// The bit of an NVMe command that says Urgent: by default the paper's, bit 16 of Command Dword 12 (cinterrupts §4.2.1). The next
/// higher one says Barrier. For a controller with Key Per I/O, later versions of NVMe define bits 19:16 of that dword as CETYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintBits {
    /// 12 or 13.
    pub dword: u8,
    /// Dword 12: 16 to 24, between the number of blocks and Protection Information. Dword 13: 0 to 30.
    pub bit: u8,
}

impl HintBits {
    /// The paper's.
    pub const DEFAULT: Self = Self { dword: 12, bit: 16 };
}

impl FromStr for HintBits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (dword, bit) = text.strip_prefix("cdw")?.split_once(':')?;
            let (dword, bit) = (dword.parse().ok()?, bit.parse().ok()?);
            matches!((dword, bit), (12, 16..=24) | (13, 0..=30)).then_some(Self { dword, bit })
        };
        parse().ok_or_else(|| "expected cdw12:16 to cdw12:24, or cdw13:0 to cdw13:30".into())
    }
}

impl fmt::Display for HintBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cdw{}:{}", self.dword, self.bit)
    }
}

impl Serialize for HintBits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How to wait for an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Sleep in ppoll
    Sleep,
    /// Read the eventfd in a loop
    Spin,
}

/// How many threads serve the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Threads {
    /// One thread for all queues
    One,
    /// A thread for each queue
    PerQueue,
}

/// An idle gap after each group of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bursts {
    /// Requests in one burst.
    pub requests: u32,
    /// Idle time after a burst is complete.
    pub gap_us: u64,
}

impl FromStr for Bursts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (requests, gap) = text.split_once(':')?;
            Some(Self { requests: requests.parse().ok()?, gap_us: parse_us(gap)? })
        };
        parse().ok_or_else(|| "expected REQUESTS:GAP with a unit (us, ms, s), for example 64:2ms".into())
    }
}

/// The pauses of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pauses {
    /// Time with arrivals.
    pub on_us: u64,
    /// Time without, after it.
    pub off_us: u64,
}

impl FromStr for Pauses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (on, off) = text.split_once(':')?;
            Some(Self { on_us: parse_us(on)?, off_us: parse_us(off)? })
        };
        parse().ok_or_else(|| "expected ON:OFF with units (us, ms, s), for example 600us:2ms".into())
    }
}

impl Options {
    /// The share of writes, in percent.
    pub fn write_share_percent(&self) -> u8 {
        let by_name = if matches!(self.rw, Rw::Write | Rw::Randwrite) { 100 } else { 0 };
        self.write_percent.unwrap_or(by_name)
    }

    /// The most requests that one queue can have in flight.
    pub fn in_flight_max(&self) -> u16 {
        match self.job {
            Job::Async => self.depth,
            Job::Sync => 1,
            Job::Mixed => self.depth + 1,
            Job::Batch => self.batch,
        }
    }

    /// Checks every bound and every combination of options.
    pub fn validate(&self) -> Result<(), Error> {
        let check = |ok: bool, what: &str| if ok { Ok(()) } else { Err(Error::Usage(what.into())) };
        let closed_loop = self.rate_per_second.is_none();
        let paced_job = matches!(self.job, Job::Async | Job::Mixed);

        check(!self.socket.as_os_str().is_empty(), "--socket must name the target's socket")?;
        check((1..=QUEUES_MAX).contains(&self.queues), "--queues must be 1 to 16")?;
        check((1..=DEPTH_MAX).contains(&self.depth), "--depth must be 1 to 340 requests")?;
        check((1..=DEPTH_MAX).contains(&self.batch), "--batch must be 1 to 340 requests")?;
        check((1e-3..=1e6).contains(&self.seconds), "--seconds must be 0.001 to 1000000")?;
        check(self.ops != Some(0), "--ops must be at least 1 request")?;
        check((0.0..=1e6).contains(&self.warmup_seconds), "--warmup must be 0 to 1000000 seconds")?;
        let size = self.block_size_bytes;
        check(
            size.is_power_of_two() && (512..=1 << 20).contains(&size),
            "--block-size must be a power of two, 512 to 1M",
        )?;
        check(self.write_percent.is_none_or(|p| p <= 100), "--write-percent must be 0 to 100")?;
        check(self.fsync_every != Some(0), "--fsync-every must be at least 1 write")?;
        check(self.fsync_every.is_none() || self.write_share_percent() > 0, "--fsync-every needs writes: see --rw")?;
        check(self.rate_per_second.is_none_or(|r| (1e-3..=1e7).contains(&r)), "--rate must be 0.001 to 10000000")?;
        check(!self.poisson || !closed_loop, "--poisson needs --rate")?;
        check(self.pauses.is_none() || !closed_loop, "--pauses needs --rate")?;
        let is_pause = |us| (1..=60_000_000).contains(&us);
        check(self.pauses.is_none_or(|p| is_pause(p.on_us) && is_pause(p.off_us)), "--pauses must be 1us to 60s each")?;
        check(closed_loop || paced_job, "--rate is for the jobs async and mixed")?;
        check(self.bursts.is_none_or(|b| b.requests > 0), "--bursts must have at least 1 request")?;
        check(self.bursts.is_none_or(|b| b.gap_us <= 60_000_000), "--bursts must have a gap of at most 60 s")?;
        check(
            self.bursts.is_none() || (closed_loop && paced_job),
            "--bursts is for the jobs async and mixed, without --rate",
        )?;
        check(!self.verify || closed_loop, "--verify needs a closed loop: leave out --rate")?;
        let mixed = (1..=99).contains(&self.write_share_percent());
        check(!self.verify || mixed, "--verify needs reads and writes: give --write-percent, for example 50")?;
        let shared_bytes = u64::from(self.queues) * u64::from(self.in_flight_max()) * u64::from(size);
        check(shared_bytes <= SHARED_BYTES_MAX, "queues x requests in flight x --block-size must not exceed 1 GiB")
    }
}

fn parse_on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".into()),
    }
}

/// A time with its unit, in us.
fn parse_us(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit_us = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_us)
}

fn parse_bytes(text: &str) -> Result<u32, String> {
    let (digits, factor) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        _ => (text, 1u32),
    };
    let number = digits.parse::<u32>().map_err(|_| "expected a number of bytes, for example 4096, 64k or 1M")?;
    number.checked_mul(factor).ok_or_else(|| "too many bytes".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> Options {
        Options { socket: "/s".into(), ..Options::default() }
    }

    #[test]
    fn defaults_need_only_a_socket() {
        assert!(valid().validate().is_ok());
        assert!(Options::default().validate().is_err());
    }

    #[test]
    fn bounds_are_inclusive() {
        for (queues, depth, ok) in
            [(1, 1, true), (16, 340, true), (0, 1, false), (17, 1, false), (1, 0, false), (1, 341, false)]
        {
            assert_eq!(Options { queues, depth, ..valid() }.validate().is_ok(), ok, "{queues} queues, depth {depth}");
        }
        for (size, ok) in [(512, true), (1 << 20, true), (256, false), (1 << 21, false), (1536, false), (0, false)] {
            assert_eq!(Options { block_size_bytes: size, ..valid() }.validate().is_ok(), ok, "{size} bytes");
        }
        assert!(Options { seconds: f64::NAN, ..valid() }.validate().is_err());
        assert!(Options { ops: Some(0), ..valid() }.validate().is_err());
    }

    #[test]
    fn hint_bits_are_where_nothing_else_is() {
        for text in ["cdw12:16", "cdw12:24", "cdw13:0", "cdw13:30"] {
            assert_eq!(text.parse::<HintBits>().map(|bits| bits.to_string()).as_deref(), Ok(text));
        }
        for text in ["cdw12:15", "cdw12:25", "cdw13:31", "cdw14:0", "cdw12", "12:16", ""] {
            assert!(text.parse::<HintBits>().is_err(), "{text}");
        }
    }

    #[test]
    fn contradictory_options_are_refused() {
        let bursts = Some(Bursts { requests: 8, gap_us: 100 });
        let rate_per_second = Some(100.0);
        let pauses = Some(Pauses { on_us: 600, off_us: 2000 });
        assert!(Options { pauses, rate_per_second, ..valid() }.validate().is_ok());
        for (what, options) in [
            ("verify without reads", Options { verify: true, rw: Rw::Write, ..valid() }),
            ("verify without writes", Options { verify: true, ..valid() }),
            ("open-loop verify", Options { verify: true, write_percent: Some(50), rate_per_second, ..valid() }),
            ("rate for sync", Options { job: Job::Sync, rate_per_second, ..valid() }),
            ("rate and bursts", Options { bursts, rate_per_second, ..valid() }),
            ("bursts for batch", Options { bursts, job: Job::Batch, ..valid() }),
            ("poisson without rate", Options { poisson: true, ..valid() }),
            ("pauses without rate", Options { pauses, ..valid() }),
            ("pauses without end", Options { pauses: "1us:61s".parse().ok(), rate_per_second, ..valid() }),
            ("pauses without arrivals", Options { pauses: "0us:1ms".parse().ok(), rate_per_second, ..valid() }),
            ("fsync without writes", Options { fsync_every: Some(8), ..valid() }),
            ("too much memory", Options { queues: 16, depth: 340, block_size_bytes: 1 << 20, ..valid() }),
        ] {
            assert!(matches!(options.validate(), Err(Error::Usage(_))), "{what}");
        }
        assert!(Options { verify: true, write_percent: Some(50), ..valid() }.validate().is_ok());
    }

    #[test]
    fn sizes_and_bursts_are_read_with_their_units() {
        assert_eq!(parse_bytes("4k"), Ok(4096));
        assert_eq!(parse_bytes("1M"), Ok(1 << 20));
        assert_eq!(parse_bytes("512"), Ok(512));
        assert!(parse_bytes("4g").is_err() && parse_bytes("").is_err() && parse_bytes("5000M").is_err());
        assert_eq!("64:2ms".parse(), Ok(Bursts { requests: 64, gap_us: 2000 }));
        assert_eq!("8:500us".parse(), Ok(Bursts { requests: 8, gap_us: 500 }));
        assert_eq!("600us:2ms".parse(), Ok(Pauses { on_us: 600, off_us: 2000 }));
        assert!("600us".parse::<Pauses>().is_err() && "600:2ms".parse::<Pauses>().is_err());
        assert!(
            "64".parse::<Bursts>().is_err() && "64:2".parse::<Bursts>().is_err() && ":2ms".parse::<Bursts>().is_err()
        );
    }
}
