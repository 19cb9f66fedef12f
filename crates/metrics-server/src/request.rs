//! What of HTTP/1.1 (RFC 9112) is needed: a request without a body, and its answer.

use std::{io, time::Instant};

use crate::client::{Client, PATIENCE};

/// The longest request.
pub(crate) const LONGEST: usize = 4096;
/// What may be asked for.
const HINT: &str = "GET /metrics\n";

/// A status line.
#[derive(Clone, Copy)]
enum Status {
    Ok,
    BadRequest,
    NotFound,
    NotAllowed,
    TooSlow,
    TooLong,
    Gone,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            // RFC 9110, 15.5.6: it has to name what is allowed.
            Self::NotAllowed => "405 Method Not Allowed\r\nAllow: GET",
            Self::TooSlow => "408 Request Timeout",
            Self::TooLong => "431 Request Header Fields Too Large",
            Self::Gone => "503 Service Unavailable",
        }
    }
}

/// Read a request, and answer it.
pub(crate) fn answer(
    client: &mut Client,
    media_type: &str,
    text: impl FnOnce() -> Option<String>,
) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    let is_whole = |request: &[u8]| request.windows(4).any(|end| end == b"\r\n\r\n");
    while !is_whole(&request) {
        match client.read(&mut buffer, until)? {
            None => return respond(client, Status::TooSlow, "text/plain", "too slow\n"),
            Some(0) => return Ok(()),
            Some(read) => request.extend_from_slice(&buffer[..read]),
        }
        if request.len() > LONGEST {
            return respond(client, Status::TooLong, "text/plain", "too long\n");
        }
    }
    match judge(&request) {
        Status::Ok => match text() {
            Some(text) => respond(client, Status::Ok, media_type, &text),
            None => respond(client, Status::Gone, "text/plain", "it ends\n"),
        },
        refused => respond(client, refused, "text/plain", HINT),
    }
}

/// Judge a whole request by its first line.
fn judge(request: &[u8]) -> Status {
    let line = request.split(|byte| *byte == b'\r').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = *words.as_slice() else {
        return Status::BadRequest;
    };
    let path = target.split('?').next().unwrap_or_default();
    match (version.starts_with("HTTP/1."), method, path) {
        (false, _, _) => Status::BadRequest,
        (true, "GET", "/metrics") => Status::Ok,
        (true, "GET", _) => Status::NotFound,
        (true, _, _) => Status::NotAllowed,
    }
}

fn respond(client: &mut Client, status: Status, media_type: &str, body: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        status.line(),
        body.len()
    );
    let answer = [head.as_bytes(), body.as_bytes()].concat();
    client.write_all(&answer, Instant::now() + PATIENCE)
}
