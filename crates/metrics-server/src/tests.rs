use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Instant,
};

use super::*;
use crate::request::LONGEST;

const MEDIA: &str = "text/x-numbers";
const GOOD: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// The answer to these bytes.
fn ask(path: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    // A request that is refused in its midst may be answered with a reset.
    let _ = stream.read_to_string(&mut answer);
    answer
}

struct Served {
    _folder: tempfile::TempDir,
    path: PathBuf,
    text: Arc<Mutex<Option<String>>>,
    server: Server,
}

fn serve_text(text: &str) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let text = Arc::new(Mutex::new(Some(text.to_owned())));
    let served = Arc::clone(&text);
    let address = Address::Unix(path.clone());
    let server = Server::start(&address, MEDIA, move || served.lock().unwrap().clone()).unwrap();
    Served {
        _folder: folder,
        path,
        text,
        server,
    }
}

#[test]
fn metrics_are_served_and_nothing_else() {
    let served = serve_text("a 1\n");
    let path = &served.path;
    let mode = fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let good = ask(path, GOOD);
    assert!(good.starts_with("HTTP/1.1 200 OK\r\n"), "{good}");
    assert!(
        good.contains("\r\nContent-Type: text/x-numbers\r\n"),
        "{good}"
    );
    assert!(good.contains("\r\nContent-Length: 4\r\n"), "{good}");
    assert!(good.ends_with("\r\n\r\na 1\n"), "{good}");
    *served.text.lock().unwrap() = Some("b 2\n".to_owned());
    assert!(ask(path, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n").ends_with("b 2\n"));
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
        (b"GET /../metrics HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"GET /metrics\r\n\r\n", "400"),
        (b"\xFF\x00\r\n\r\n", "400"),
        (&[b'x'; 3 * LONGEST], "431"),
    ] {
        let answer = ask(path, request);
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{status}: {answer}");
        assert_eq!(answer.contains("\r\nAllow: GET\r\n"), status == "405");
    }
    drop(served.server);
    assert!(!path.exists());
}

#[test]
fn a_slow_client_is_sent_away_and_holds_nobody_for_long() {
    let served = serve_text("a 1\n");
    let begun = Instant::now();
    let mut slow = UnixStream::connect(&served.path).unwrap();
    slow.write_all(b"GET /met").unwrap();
    // The next one is served when its time is over.
    assert!(ask(&served.path, GOOD).contains("200 OK"));
    assert!(begun.elapsed() >= PATIENCE);
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_client_that_sends_a_byte_now_and_then_gets_no_more_time() {
    let served = serve_text("a 1\n");
    let mut slow = UnixStream::connect(&served.path).unwrap();
    let mut sender = slow.try_clone().unwrap();
    let sending = thread::spawn(move || {
        // It would go on for longer than anybody waits.
        for _ in 0..6000 {
            if sender.write_all(b"x").is_err() {
                return true;
            }
            thread::sleep(Duration::from_millis(50));
        }
        false
    });
    let mut answer = Vec::new();
    let _ = slow.read_to_end(&mut answer);
    assert!(sending.join().unwrap(), "it was sent away");
}

#[test]
fn a_client_that_does_not_read_holds_nobody_for_long() {
    // More than the kernel keeps for it.
    let served = serve_text(&"x".repeat(16 << 20));
    let mut idle = UnixStream::connect(&served.path).unwrap();
    idle.write_all(GOOD).unwrap();
    assert!(ask(&served.path, b"GET / HTTP/1.1\r\n\r\n").contains(" 404 "));
    drop(idle);
}

#[test]
fn a_socket_of_a_killed_service_is_replaced_and_other_files_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    drop(UnixListener::bind(&path).unwrap());
    let address = Address::Unix(path.clone());
    let start = || Server::start(&address, MEDIA, || None);
    let server = start().unwrap();
    assert!(matches!(start(), Err(ServeError::Taken(_))));
    drop(server);
    fs::write(&path, "x").unwrap();
    assert!(matches!(start(), Err(ServeError::NoSocket(_))));
    assert_eq!(fs::read(&path).unwrap(), b"x");
}

#[test]
fn a_port_of_this_machine_is_served_and_of_the_network_refused() {
    let open = Address::Loopback("0.0.0.0:0".parse().unwrap());
    let refused = Server::start(&open, MEDIA, || None);
    assert!(matches!(refused, Err(ServeError::Open(_))), "{refused:?}");
    let mut texts = vec![None, Some("a 1\n".to_owned())];
    let address = Address::Loopback("127.0.0.1:0".parse().unwrap());
    let server = Server::start(&address, MEDIA, move || texts.pop().flatten()).unwrap();
    let at = server.bound().unwrap();
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(at)?;
        stream.write_all(GOOD)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    };
    assert!(ask().unwrap().ends_with("\r\n\r\na 1\n"));
    // No numbers are left, and the port is given back.
    assert!(ask().unwrap().starts_with("HTTP/1.1 503 "));
    let until = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(at).is_ok() {
        assert!(Instant::now() < until, "it listens on");
        thread::sleep(Duration::from_millis(20));
    }
}
