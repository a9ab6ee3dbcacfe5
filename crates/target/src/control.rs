//! The control socket: JSON-RPC 2.0, one object a line. Parameters have SPDK's names where SPDK has them.

use crate::server::DiskServer;
use crate::socket::{BoundSocket, accepted};
use anyhow::{Context as _, Result, anyhow, bail};
use policy::Spec;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A request of more bytes is refused.
const LINE_MAX: u64 = 64 << 10;

/// Whoever is asked and says nothing for so long is no target.
const PATIENCE: Duration = Duration::from_secs(10);

/// Listens for commands about `disks`, until the process ends.
///
/// # Errors
/// The socket cannot be bound.
pub fn listen(path: &Path, disks: Arc<[DiskServer]>) -> Result<BoundSocket> {
    let socket = BoundSocket::bind(path)?;
    let listener = socket.listener().try_clone().context("control socket")?;
    let accept = move || {
        loop {
            let Some(stream) = accepted(listener.accept()) else { continue };
            let disks = disks.clone();
            // A client that says nothing must not keep others waiting.
            let _ = std::thread::Builder::new().name("control-client".into()).spawn(move || serve(&stream, &disks));
        }
    };
    std::thread::Builder::new().name("control".into()).spawn(accept).context("a thread")?;
    Ok(socket)
}

fn serve(stream: &UnixStream, disks: &[DiskServer]) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let is_whole = line.ends_with(b"\n") || (line.len() as u64) < LINE_MAX;
        let answer = if is_whole { answer(&line, disks) } else { Some(error(Value::Null, INVALID_REQUEST, TOO_LONG)) };
        if let Some(answer) = answer
            && let mut stream = stream
            && stream.write_all(format!("{answer}\n").as_bytes()).is_err()
        {
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
const TOO_LONG: &str = "a request of more than 64 KiB";

fn error(id: Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

/// The answer to one request; none: it was a notification.
fn answer(line: &[u8], disks: &[DiskServer]) -> Option<Value> {
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
    let outcome = call(method, params, disks);
    let id = id?;
    Some(match outcome {
        Ok(Some(result)) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Ok(None) => {
            let message = format!("unknown method \"{method}\"; allowed are {}", METHODS.join(", "));
            error(id, METHOD_NOT_FOUND, &message)
        }
        Err(problem) => error(id, INVALID_PARAMS, &format!("{problem:#}")),
    })
}

const METHODS: [&str; 6] =
    ["list", "get_policy", "set_policy", "get_stats", "reset_stats", "vhost_controller_set_coalescing"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneOrAll {
    ctrlr: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetPolicy {
    ctrlr: String,
    queue: Option<usize>,
    policy: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetCoalescing {
    ctrlr: String,
    delay_base_us: u32,
    iops_threshold: u32,
}

/// The result of a method; none: there is no such method.
fn call(method: &str, params: Value, disks: &[DiskServer]) -> Result<Option<Value>> {
    Ok(Some(match method {
        "list" => {
            let Nothing {} = parse(params)?;
            let about = |disk: &DiskServer| {
                let mut about = json!(disk.about());
                about["connected"] = disk.is_connected().into();
                about
            };
            disks.iter().map(about).collect()
        }
        "get_policy" => {
            let OneOrAll { ctrlr } = parse(params)?;
            let policies = |disk: &DiskServer| disk.stats().into_iter().map(|queue| queue.policy).collect::<Vec<_>>();
            let about = |disk: &DiskServer| json!({ "ctrlr": disk.about().ctrlr, "policies": policies(disk) });
            chosen(disks, ctrlr.as_deref())?.map(about).collect()
        }
        "set_policy" => {
            let SetPolicy { ctrlr, queue, policy } = parse(params)?;
            one(disks, &ctrlr)?.set_policy(queue, &policy.parse::<Spec>()?)?;
            true.into()
        }
        "get_stats" => {
            let OneOrAll { ctrlr } = parse(params)?;
            let about = |disk: &DiskServer| json!({ "ctrlr": disk.about().ctrlr, "queues": disk.stats() });
            chosen(disks, ctrlr.as_deref())?.map(about).collect()
        }
        "reset_stats" => {
            let OneOrAll { ctrlr } = parse(params)?;
            chosen(disks, ctrlr.as_deref())?.for_each(DiskServer::reset_stats);
            true.into()
        }
        "vhost_controller_set_coalescing" => {
            let SetCoalescing { ctrlr, delay_base_us, iops_threshold } = parse(params)?;
            let text = format!("spdk_vhost:delay_base_us={delay_base_us},iops_threshold={iops_threshold}");
            one(disks, &ctrlr)?.set_policy(None, &text.parse::<Spec>()?)?;
            true.into()
        }
        _ => return Ok(None),
    }))
}

fn parse<T: DeserializeOwned>(params: Value) -> Result<T> {
    serde_json::from_value(params).map_err(|problem| anyhow!("params: {problem}"))
}

fn one<'a>(disks: &'a [DiskServer], name: &str) -> Result<&'a DiskServer> {
    let names = || disks.iter().map(|disk| disk.about().ctrlr.as_str()).collect::<Vec<_>>().join(", ");
    let found = disks.iter().find(|disk| disk.about().ctrlr == name);
    found.ok_or_else(|| anyhow!("unknown ctrlr \"{name}\"; allowed are {}", names()))
}

fn chosen<'a>(disks: &'a [DiskServer], name: Option<&str>) -> Result<impl Iterator<Item = &'a DiskServer>> {
    let chosen = match name {
        None => disks,
        Some(name) => std::slice::from_ref(one(disks, name)?),
    };
    Ok(chosen.iter())
}

/// Calls a method of a target that serves `socket`, for scripts and people.
///
/// # Errors
/// The socket does not answer, or the answer is an error.
pub fn request(socket: &Path, method: &str, params: &Value) -> Result<Value> {
    let named = || format!("control socket {}", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(named)?;
    stream.set_read_timeout(Some(PATIENCE)).with_context(named)?;
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    stream.write_all(format!("{request}\n").as_bytes()).with_context(named)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).with_context(named)?;
    if line.is_empty() {
        bail!("{} gives no answer: is it the socket of a disk?", named());
    }
    let mut answer: Value = serde_json::from_str(&line).with_context(named)?;
    match answer.get("error").and_then(|error| error.get("message")) {
        Some(message) => Err(anyhow!("{}", message.as_str().unwrap_or("error"))),
        None => Ok(answer["result"].take()),
    }
}
