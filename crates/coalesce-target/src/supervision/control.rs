//! The control socket: JSON-RPC 2.0, one object per line. A parameter that SPDK has too keeps SPDK's name.

use crate::config::Size;
use crate::link::DiskStats;
use crate::os::socket::{Access, BoundSocket, Door, PATIENCE};
use crate::stats::QueueStats;
use crate::supervision::clients::{Client as _, Limits, Place, send_all, serve_clients};
use crate::supervision::params::parse;
use crate::supervision::supervisor::{Disk, Disks, reset_stats_of, stats_of};
use crate::throttle::RatesChange;
use anyhow::{Context as _, Result, anyhow, bail};
use coalesce_policy::Spec;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The longest request, in bytes.
const LINE_MAX: u64 = 64 << 10;

/// The most clients served at a time. Others than the operator are there only if the socket's mode is changed.
const CLIENTS_MAX: Limits = Limits { all: 64, others: 63 };

/// Serves commands about `disks` until the process ends.
///
/// # Errors
/// The socket cannot be bound.
pub fn listen(path: &Path, disks: Arc<Disks>) -> Result<BoundSocket> {
    let socket = BoundSocket::bind(path, &Access::default(), PATIENCE)?;
    let Door::Listener(listener) = socket.door() else {
        bail!("control socket {}: it is connected: allowed is one that listens", path.display())
    };
    let listener = listener.try_clone().context("control socket")?;
    let refuse = |stream: &UnixStream, why: &str| {
        let _ = send_all(stream, format!("{}\n", error(Value::Null, SERVER_BUSY, why)).as_bytes()); // it may have left
    };
    let serve = move |stream: &UnixStream, place: &Place<UnixStream>| serve(stream, place, &disks);
    serve_clients("control", CLIENTS_MAX, move || listener.accept(), serve, refuse)?;
    Ok(socket)
}

fn serve(stream: &UnixStream, place: &Place<UnixStream>, disks: &Disks) {
    let (mut reader, is_operator) = (BufReader::new(stream), stream.is_operator());
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let Some(_answering) = place.wait_for_answer() else { return };
        let is_whole = line.ends_with(b"\n") || (line.len() as u64) < LINE_MAX;
        let answer = if is_whole {
            answer(&line, disks, is_operator)
        } else {
            Some(error(Value::Null, INVALID_REQUEST, TOO_LONG))
        };
        if answer.is_some_and(|answer| send_all(stream, format!("{answer}\n").as_bytes()).is_err()) {
            return;
        }
        if !is_whole {
            return;
        }
    }
}

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const SERVER_BUSY: i32 = -32000;
const TOO_LONG: &str = "a request of more than 64 KiB";

fn error(id: Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

/// The answer to one request; `None` for a notification. Only an operator may have disks come and go: they are opened with the
/// rights of the target.
#[must_use]
pub fn answer(line: &[u8], disks: &Disks, is_operator: bool) -> Option<Value> {
    let request: Value = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(problem) => return Some(error(Value::Null, PARSE_ERROR, &format!("not JSON: {problem}"))),
    };
    let id = request.get("id").cloned();
    let method = request.get("method").and_then(Value::as_str);
    let (Some("2.0"), Some(method)) = (request.get("jsonrpc").and_then(Value::as_str), method) else {
        let message = "not a JSON-RPC 2.0 request: an object with \"jsonrpc\": \"2.0\" and a \"method\"";
        return Some(error(id.unwrap_or(Value::Null), INVALID_REQUEST, message));
    };
    let params = request.get("params").filter(|params| !params.is_null()).cloned().unwrap_or_else(|| json!({}));
    let outcome = match method {
        "add_disk" | "remove_disk" if !is_operator => {
            Err(anyhow!("{method} is for root and for the user that the target runs as"))
        }
        _ => call(method, params, disks),
    };
    let id = id?;
    Some(match outcome {
        Ok(Some(result)) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Ok(None) => {
            let message = format!("unknown method \"{method}\"; allowed: {}", METHODS.join(", "));
            error(id, METHOD_NOT_FOUND, &message)
        }
        Err(problem) => error(id, INVALID_PARAMS, &format!("{problem:#}")),
    })
}

const METHODS: [&str; 11] = [
    "list",
    "get_policy",
    "set_policy",
    "set_running",
    "get_stats",
    "reset_stats",
    "resize",
    "set_limits",
    "add_disk",
    "remove_disk",
    "vhost_controller_set_coalescing",
];

/// The longest time for which a statement about the guest's CPUs holds, in us. It bounds the harm of one that is wrong.
const FOR_US_MAX: u32 = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    ctrlr: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneOrAll {
    ctrlr: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetStats {
    ctrlr: Option<String>,
    queue: Option<usize>,
    #[serde(default)]
    idle: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetPolicy {
    ctrlr: String,
    queue: Option<usize>,
    policy: String,
    #[serde(default)]
    keep_learned: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetRunning {
    ctrlr: String,
    queue: Option<usize>,
    running: bool,
    for_us: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resize {
    ctrlr: String,
    size: Option<Size>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetLimits {
    ctrlr: String,
    iops: Option<u64>,
    bytes_per_second: Option<Size>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetCoalescing {
    ctrlr: String,
    delay_base_us: u32,
    iops_threshold: u32,
}

/// The result of a method; `None` if the method is unknown.
fn call(method: &str, params: Value, all: &Disks) -> Result<Option<Value>> {
    let disks = &*all.list();
    Ok(Some(match method {
        "list" => {
            let Nothing {} = parse(params)?;
            let about = |(disk, stats): (&Disk, Result<DiskStats>)| {
                let mut about = json!(disk.about());
                about["connected"] = json!(stats.ok().map(|stats| stats.connected));
                about["pid"] = json!(disk.pid());
                about["restarts"] = json!(disk.restarts());
                about["limits"] = json!(disk.limits());
                about
            };
            stats_of(disks.iter().map(|disk| &**disk)).into_iter().map(about).collect()
        }
        "get_policy" => {
            let OneOrAll { ctrlr } = parse(params)?;
            let policies = |stats: DiskStats| stats.queues.into_iter().map(|queue| queue.policy).collect::<Vec<_>>();
            about_each(chosen(disks, ctrlr.as_deref())?, |stats| json!({ "policies": policies(stats) }))
        }
        "set_policy" => {
            let SetPolicy { ctrlr, queue, policy, keep_learned } = parse(params)?;
            one(disks, &ctrlr)?.set_policy(queue, &policy.parse::<Spec>()?, keep_learned)?;
            true.into()
        }
        "set_running" => {
            let SetRunning { ctrlr, queue, running, for_us } = parse(params)?;
            if !(1..=FOR_US_MAX).contains(&for_us) {
                bail!("for_us is {for_us}; allowed: 1 to {FOR_US_MAX}");
            }
            one(disks, &ctrlr)?.set_running(queue, running, Duration::from_micros(for_us.into()))?;
            true.into()
        }
        "get_stats" => {
            let GetStats { ctrlr, queue, idle } = parse(params)?;
            for disk in chosen(disks, ctrlr.as_deref())? {
                disk.check_queue(queue)?;
            }
            about_each(chosen(disks, ctrlr.as_deref())?, |stats| counts(stats, queue, idle))
        }
        "reset_stats" => {
            let OneOrAll { ctrlr } = parse(params)?;
            reset_stats_of(chosen(disks, ctrlr.as_deref())?)?;
            true.into()
        }
        "resize" => {
            let Resize { ctrlr, size } = parse(params)?;
            json!(one(disks, &ctrlr)?.resize(size.map(|Size(bytes)| bytes))?)
        }
        "set_limits" => {
            let SetLimits { ctrlr, iops, bytes_per_second } = parse(params)?;
            let bytes_per_second = bytes_per_second.map(|Size(bytes)| bytes);
            one(disks, &ctrlr)?.set_limits(RatesChange { iops, bytes_per_second })?;
            true.into()
        }
        "add_disk" => {
            all.add(parse(params)?)?;
            true.into()
        }
        "remove_disk" => {
            let One { ctrlr } = parse(params)?;
            all.remove(&one(disks, &ctrlr)?.name())?;
            true.into()
        }
        "vhost_controller_set_coalescing" => {
            let SetCoalescing { ctrlr, delay_base_us, iops_threshold } = parse(params)?;
            let text = format!("spdk_vhost:delay_base_us={delay_base_us},iops_threshold={iops_threshold}");
            one(disks, &ctrlr)?.set_policy(None, &text.parse::<Spec>()?, false)?;
            true.into()
        }
        _ => return Ok(None),
    }))
}

/// For each disk, what `show` makes of its statistics; or why there are none, under `error`.
fn about_each<'a>(disks: impl Iterator<Item = &'a Disk>, show: impl Fn(DiskStats) -> Value) -> Value {
    let about = |(disk, stats): (&Disk, Result<DiskStats>)| {
        let mut about = stats.map_or_else(|error| json!({ "error": format!("{error:#}") }), &show);
        about["ctrlr"] = disk.name().into();
        if let Some(error) = disk.record_error() {
            about["record_error"] = error.into();
        }
        about
    };
    stats_of(disks).into_iter().map(about).collect()
}

/// The statistics of one queue, or of those that have done something; with `idle`, of all. `idle_queues`: those that have done nothing,
/// and are left out.
fn counts(stats: DiskStats, queue: Option<usize>, idle: bool) -> Value {
    let is_asked = |stats: &QueueStats| queue.map_or(idle || !stats.is_idle(), |queue| stats.queue == queue);
    let (queues, left_out): (Vec<_>, Vec<_>) = stats.queues.into_iter().partition(is_asked);
    json!({ "queues": queues, "idle_queues": left_out.iter().filter(|queue| queue.is_idle()).count() })
}

fn one<'a>(disks: &'a [Arc<Disk>], name: &str) -> Result<&'a Arc<Disk>> {
    let names = || disks.iter().map(|disk| disk.name()).collect::<Vec<_>>().join(", ");
    let found = disks.iter().find(|disk| disk.name() == name);
    found.ok_or_else(|| anyhow!("unknown ctrlr \"{name}\"; allowed: {}", names()))
}

fn chosen<'a>(disks: &'a [Arc<Disk>], name: Option<&str>) -> Result<impl Iterator<Item = &'a Disk>> {
    let chosen = match name {
        None => disks,
        Some(name) => std::slice::from_ref(one(disks, name)?),
    };
    Ok(chosen.iter().map(|disk| &**disk))
}
