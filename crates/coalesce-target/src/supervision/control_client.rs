//! The client of a control socket, for scripts and people. Whoever answers may be anybody, so length and time are bounded.

use crate::supervision::clients::send_all;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use coalesce_cli::connect;
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest time of a call. A target waits 5 s for each of two questions to a disk's process.
const PATIENCE: Duration = Duration::from_secs(15);

/// The longest answer, in bytes: the statistics of 500 disks.
const ANSWER_MAX: usize = 16 << 20;

/// Calls a method of a target that serves `socket`.
///
/// # Errors
/// The socket does not answer within 15 s, or not in 16 MiB; or the answer is an error.
pub fn request(socket: &Path, method: &str, params: &Value) -> Result<Value> {
    let mut request = json!({ "jsonrpc": "2.0", "id": 1, "method": method });
    if *params != json!({}) {
        request["params"] = params.clone(); // SPDK refuses even empty ones where a method has none
    }
    let named = || format!("control socket {}", socket.display());
    let answer = exchange(socket, &format!("{request}\n")).with_context(named)?;
    if answer.is_empty() {
        bail!("{} gives no answer: is it the socket of a disk?", named());
    }
    let mut answer: Value = serde_json::from_slice(&answer).with_context(named)?;
    match answer.get("error").and_then(|error| error.get("message")) {
        Some(message) => Err(anyhow!("{}", message.as_str().unwrap_or("error"))),
        None => Ok(answer["result"].take()),
    }
}

/// Sends a line. Returns the line that comes back, or what came before the connection ended.
fn exchange(socket: &Path, request: &str) -> Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = connect(socket, PATIENCE)?;
    match send_all(&stream, request.as_bytes()) {
        Err(error) if is_end(&error) => return Ok(Vec::new()),
        outcome => outcome?,
    }
    let (mut answer, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let len = match receive(&mut stream, &mut part, deadline)? {
            0 => return Ok(answer),
            len => len,
        };
        let end = part[..len].iter().position(|byte| *byte == b'\n');
        answer.extend(&part[..end.unwrap_or(len)]);
        ensure!(answer.len() <= ANSWER_MAX, "an answer of more than {} MiB", ANSWER_MAX >> 20);
        if end.is_some() {
            return Ok(answer);
        }
    }
}

/// The other side has closed the connection, perhaps before it read the request: the socket of a disk does, of which a call is no message.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

fn receive(stream: &mut UnixStream, part: &mut [u8], deadline: Instant) -> Result<usize> {
    loop {
        let rest = deadline.saturating_duration_since(Instant::now());
        let outcome = if rest.is_zero() {
            Err(ErrorKind::WouldBlock.into())
        } else {
            stream.set_read_timeout(Some(rest))?;
            stream.read(part)
        };
        match outcome {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_end(&error) => return Ok(0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("no whole answer within {} s", PATIENCE.as_secs())
            }
            outcome => return Ok(outcome?),
        }
    }
}
