//! Statistics for Prometheus, over HTTP: `GET /metrics`. There is neither TLS nor a password, so other addresses than those of the
//! loopback interface must be asked for ([`Config::check`](crate::config::Config::check)).

use crate::clients::{Limits, Place, send_all, serve_clients};
use crate::link::DiskStats;
use crate::stats::{BudgetStats, QueueStats};
use crate::supervisor::{Disk, stats_of};
use anyhow::{Context as _, Result};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tracing::info;
use std::fmt;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest head of a request, in bytes.
pub const HEAD_MAX: usize = 8 << 10;
/// The most header lines in a request.
const HEADERS_MAX: usize = 64;
/// The longest pause of a client while it sends.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most clients served at a time.
const CLIENTS_MAX: Limits = Limits { all: 32, others: 32 };

/// Answers at `address`, one request per connection, until the process ends.
///
/// # Errors
/// The address cannot be bound.
pub fn listen(address: SocketAddr, disks: Arc<[Disk]>) -> Result<()> {
    let bind = || TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = bind().with_context(|| format!("metrics at {address}"))?;
    let readers = if address.ip().is_loopback() { "this machine" } else { "whoever reaches it" };
    info!("metrics at http://{address}/metrics, for {readers}");
    let serve = move |stream: &TcpStream, place: &Place<TcpStream>| {
        let _ = answer(stream, place, &disks); // the client may have left
    };
    let refuse = |stream: &TcpStream, why: &str| {
        let _ = send_all(stream, &response("503 Service Unavailable", PLAIN, why)); // the client may have left
    };
    serve_clients("metrics", CLIENTS_MAX, move || listener.accept(), serve, refuse)
}

fn answer(stream: &TcpStream, place: &Place<TcpStream>, disks: &[Disk]) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let path = receive_path(stream)?;
    let Some(_answering) = place.wait_for_answer() else { return Ok(()) };
    let response = match path.as_deref() {
        Ok("/metrics") => match text(disks) {
            Ok(text) => response("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", &text),
            Err(fmt::Error) => response("500 Internal Server Error", PLAIN, ""),
        },
        Ok(_) => response("404 Not Found", PLAIN, "see /metrics\n"),
        Err(Refused) => response("400 Bad Request", PLAIN, "only GET /metrics is supported\n"),
    };
    send_all(stream, &response)
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn response(status: &str, content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n");
    format!("{head}Connection: close\r\n\r\n{body}").into_bytes()
}

/// The request is not HTTP/1, is not a GET, or its head is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// The path of the GET request that begins with these bytes; `None` while its head is incomplete.
///
/// # Errors
/// The request is refused, whatever follows.
pub fn request_path(bytes: &[u8]) -> Result<Option<&str>, Refused> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len <= HEAD_MAX && request.method == Some("GET") => Ok(request.path),
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => Ok(None),
        _ => Err(Refused),
    }
}

/// [`request_path`] of what a client sends. A client that stops early or takes too long is refused.
fn receive_path(mut stream: &TcpStream) -> io::Result<Result<String, Refused>> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    while Instant::now() < until {
        let mut more = [0; 1024];
        match stream.read(&mut more) {
            Ok(0) => break,
            Ok(len) => bytes.extend_from_slice(&more[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {} // by a SIGCONT
            Err(error) => return Err(error),
        }
        if let Some(outcome) = request_path(&bytes).transpose() {
            return Ok(outcome.map(ToOwned::to_owned));
        }
    }
    Ok(Err(Refused))
}

fn text(disks: &[Disk]) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("coalesce");
    registry.register_collector(Box::new(Snapshot::new(stats_of(disks.iter()))));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

/// The statistics of all disks at one moment.
#[derive(Debug)]
struct Snapshot {
    queues: Vec<(String, QueueStats)>,
    disks: Vec<About>,
}

#[derive(Debug)]
struct About {
    name: String,
    answers: bool,
    restarts: u64,
    is_recorded: Option<bool>,
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Snapshot {
    fn new(disks: Vec<(&Disk, Result<DiskStats>)>) -> Self {
        let about = |(disk, stats): &(&Disk, Result<DiskStats>)| About {
            name: disk.name(),
            answers: stats.is_ok(),
            restarts: disk.restarts(),
            is_recorded: disk.is_recorded(),
        };
        let about = disks.iter().map(about).collect();
        let queues = disks.into_iter().flat_map(|(disk, stats)| {
            stats.into_iter().flat_map(|stats| stats.queues).map(|queue| (disk.name(), queue))
        });
        Self { queues: queues.collect(), disks: about }
    }

    /// One metric: a value for each queue, or several values that a label distinguishes.
    fn family<'a, V>(
        &'a self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        values: impl Fn(&'a QueueStats) -> V,
    ) -> fmt::Result
    where
        V: IntoIterator<Item = (Option<(&'static str, &'a str)>, u64)>,
    {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (disk, queue) in &self.queues {
            let number = queue.queue.to_string();
            for (label, value) in values(queue) {
                let mut labels: Labels<'_> = vec![("ctrlr", disk), ("queue", &number)];
                labels.extend(label);
                ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let one = |value: u64| [(None, value)];
        self.family(encoder, ("completions", "Completed requests"), |queue| one(queue.completions))?;
        self.family(encoder, ("interrupts", "Interrupts"), |queue| one(queue.interrupts))?;
        let help = "Deliveries for which the guest wanted no interrupt";
        self.family(encoder, ("suppressed", help), |queue| one(queue.suppressed))?;
        let help = "Held completions that the guest reaped by itself";
        self.family(encoder, ("consumed", help), |queue| one(queue.consumed))?;
        self.family(encoder, ("failed_requests", "Requests that failed"), |queue| one(queue.device.failed))?;
        let help = "Descriptor chains that were not valid requests";
        self.family(encoder, ("malformed_requests", help), |queue| one(queue.device.malformed))?;
        let help = "Rings that became invalid and were stopped";
        self.family(encoder, ("broken_rings", help), |queue| one(queue.device.broken_rings))?;
        self.family(encoder, ("kicks", "Kicks by the guest"), |queue| one(queue.device.kicks))?;
        self.family(encoder, ("sleeps", "Waits that ended in sleep"), |queue| one(queue.poll.sleeps))?;
        self.family(encoder, ("deliveries", "Deliveries by reason"), |queue| {
            queue
                .delivered
                .iter()
                .map(|(reason, count)| (Some(("reason", reason.as_str())), *count))
                .collect::<Vec<_>>()
        })?;
        self.family(encoder, ("holds", "Holds by reason"), |queue| {
            queue.holds.iter().map(|(reason, count)| (Some(("reason", reason.as_str())), *count)).collect::<Vec<_>>()
        })?;
        self.family(encoder, ("hints", "Hints by source"), |queue| {
            queue.hints.iter().map(|(source, count)| (Some(("source", source.as_str())), *count)).collect::<Vec<_>>()
        })?;
        self.about_disks(encoder)?;
        self.policies(encoder)?;
        self.held(encoder)?;
        let help = "Time for which completions were held, summed over them, as the latency budget counts it";
        self.budget(encoder, ("budget_held", help), |budget| budget.held_ns)?;
        let help = "Time that requests spent, summed over them, as the latency budget counts it";
        self.budget(encoder, ("budget_outstanding", help), |budget| budget.outstanding_ns)?;
        self.budget_limit(encoder)?;
        self.hold_seconds(encoder)
    }
}

impl Snapshot {
    fn about_disks(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether the disk's process answers: 1 or 0";
        self.about(encoder, ("up", help), |disk| Some(disk.answers))?;
        let help = "Whether the disk's record goes on: 1 or 0, after an error";
        self.about(encoder, ("recording", help), |disk| disk.is_recorded)?;
        let help = "Restarts of the disk's process";
        let mut family = encoder.encode_descriptor("process_restarts", help, None, MetricType::Counter)?;
        for disk in &self.disks {
            let labels: Labels<'_> = vec![("ctrlr", &disk.name)];
            ConstCounter::new(disk.restarts).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn about(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        is_so: impl Fn(&About) -> Option<bool>,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for disk in &self.disks {
            let labels: Labels<'_> = vec![("ctrlr", &disk.name)];
            if let Some(is_so) = is_so(disk) {
                ConstGauge::new(i64::from(is_so)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn policies(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "The policy in force";
        let mut family = encoder.encode_descriptor("policy", help, None, MetricType::Info)?;
        self.each_queue(|labels, queue| family.encode_family(labels)?.encode_info(&[("policy", queue.policy.as_str())]))
    }

    fn held(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Completions held at this moment";
        let mut family = encoder.encode_descriptor("held", help, None, MetricType::Gauge)?;
        self.each_queue(|labels, queue| ConstGauge::new(queue.held as i64).encode(family.encode_family(labels)?))
    }

    fn budget(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        ns: impl Fn(&BudgetStats) -> u64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        self.each_budget(|labels, budget| {
            ConstCounter::new(ns(budget) as f64 / 1e9).encode(family.encode_family(labels)?)
        })
    }

    fn budget_limit(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "The share of the requests' time that holding may add";
        let mut family = encoder.encode_descriptor("budget_limit", help, Some(&Unit::Ratios), MetricType::Gauge)?;
        self.each_budget(|labels, budget| {
            ConstGauge::new(budget.limit_percent / 100.0).encode(family.encode_family(labels)?)
        })
    }

    fn each_budget(&self, mut encode: impl FnMut(&Labels<'_>, &BudgetStats) -> fmt::Result) -> fmt::Result {
        self.each_queue(|labels, queue| queue.budget.iter().try_for_each(|budget| encode(labels, budget)))
    }

    fn each_queue(&self, mut encode: impl FnMut(&Labels<'_>, &QueueStats) -> fmt::Result) -> fmt::Result {
        self.queues
            .iter()
            .try_for_each(|(disk, queue)| encode(&vec![("ctrlr", disk), ("queue", &queue.queue.to_string())], queue))
    }

    fn hold_seconds(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time that completions were held";
        let unit = Unit::Seconds;
        let mut family = encoder.encode_descriptor("hold", help, Some(&unit), MetricType::Histogram)?;
        self.each_queue(|labels, queue| {
            let hold = &queue.hold_ns;
            family.encode_family(labels)?.encode_histogram::<[(&str, &str); 0]>(
                hold.mean * hold.count as f64 / 1e9,
                hold.count,
                &hold.buckets.iter().map(|(ns, count)| (seconds(*ns), *count)).collect::<Vec<_>>(),
                None,
            )
        })
    }
}

/// A bucket's upper bound in seconds. The last bucket has none; the text format requires infinity there.
fn seconds(ns: Option<u64>) -> f64 {
    ns.map_or(f64::INFINITY, |ns| ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_get_has_a_path_once_its_head_is_complete() {
        let head = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";
        for len in 0..head.len() {
            assert_eq!(request_path(&head[..len]), Ok(None), "{len} bytes of it");
        }
        assert_eq!(request_path(head), Ok(Some("/metrics?x=1")));
        assert_eq!(request_path(&[head, &b"GET / HTTP/1.1"[..]].concat()), Ok(Some("/metrics?x=1")), "with a body");
    }

    #[test]
    fn anything_but_a_get_of_http_1_is_refused() {
        let refused: [&[u8]; 7] = [
            b"POST /metrics HTTP/1.1\r\n\r\n",
            b"HEAD /metrics HTTP/1.1\r\n\r\n",
            b"GET /metrics HTTP/2.0\r\n\r\n",
            b"GET /metrics\r\n\r\n",
            b"GET /met\x01rics HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01", // TLS
        ];
        for bytes in refused {
            assert_eq!(request_path(bytes), Err(Refused), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn the_head_of_a_request_is_bounded() {
        let of_len = |len: usize| format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(len - 18));
        assert!(matches!(request_path(of_len(HEAD_MAX).as_bytes()), Ok(Some(_))));
        assert_eq!(request_path(of_len(HEAD_MAX + 1).as_bytes()), Err(Refused));
        assert_eq!(request_path(&of_len(HEAD_MAX + 1).as_bytes()[..HEAD_MAX]), Err(Refused), "before its end");
        let of_headers = |count: usize| "GET / HTTP/1.1\r\n".to_owned() + &"a: b\r\n".repeat(count) + "\r\n";
        assert_eq!(request_path(of_headers(HEADERS_MAX).as_bytes()), Ok(Some("/")));
        assert_eq!(request_path(of_headers(HEADERS_MAX + 1).as_bytes()), Err(Refused));
    }
}
