//! Statistics for Prometheus, over HTTP: `GET /metrics`. There is neither TLS nor a password, so other addresses than those of the
//! loopback interface must be asked for ([`Config::check`](crate::config::Config::check)).

mod page;

use crate::supervision::clients::{Limits, Place, send_all, serve_clients};
use crate::supervision::supervisor::Disks;
use anyhow::{Context as _, Result};
use std::fmt;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::info;

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
pub fn listen(address: SocketAddr, disks: Arc<Disks>) -> Result<()> {
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

fn answer(stream: &TcpStream, place: &Place<TcpStream>, disks: &Disks) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let path = receive_path(stream)?;
    let Some(_answering) = place.wait_for_answer() else { return Ok(()) };
    let response = match path.as_deref() {
        Ok("/metrics") => match page::text(disks) {
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
