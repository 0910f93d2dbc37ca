//! The metadata service of Google Compute Engine, asked for one attribute at a time.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

// The address is fixed on every instance; a name would have to be resolved, which has no time limit.
const ADDRESS: ([u8; 4], u16) = ([169, 254, 169, 254], 80);
const TIME_LIMIT: Duration = Duration::from_secs(1);
const ANSWER_BYTES_LIMIT: u64 = 64 * 1024;

/// The instance's attribute, or `None` where the service does not have it or does not answer in time.
pub(super) fn attribute(name: &str) -> Option<String> {
    ask(SocketAddr::from(ADDRESS), name, TIME_LIMIT)
}

fn ask(address: SocketAddr, name: &str, limit: Duration) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    stream.set_write_timeout(Some(limit)).ok()?;
    let request = format!(
        "GET /computeMetadata/v1/instance/attributes/{name} HTTP/1.0\r\n\
         Host: metadata.google.internal\r\nMetadata-Flavor: Google\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_LIMIT).read_to_end(&mut answer).ok()?;
    body(&String::from_utf8_lossy(&answer))
}

// The service marks its answers with its own header; a captive portal's page lacks it.
fn body(answer: &str) -> Option<String> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let found = lines.next()?.split_whitespace().nth(1) == Some("200");
    let genuine = lines.any(|line| line.eq_ignore_ascii_case("metadata-flavor: google"));
    (found && genuine).then(|| body.trim().to_owned())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answered_with(answer: &'static str) -> Option<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") {
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                assert!(String::from_utf8(request).unwrap().contains("Metadata-Flavor: Google"));
                stream.write_all(answer.as_bytes()).unwrap();
            });
            ask(address, "accelerator-type", Duration::from_secs(60))
        })
    }

    #[test]
    fn only_a_genuine_answer_counts() {
        let cases = [
            ("HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\n\r\nv4-16\n", Some("v4-16")),
            ("HTTP/1.1 404 Not Found\r\nMetadata-Flavor: Google\r\n\r\nnothing", None),
            ("HTTP/1.1 200 OK\r\nServer: portal\r\n\r\n<html>", None),
            ("HTTP/1.1 200 OK\r\nMetadata-Fl", None),
            ("", None),
        ];
        for (answer, expected) in cases {
            assert_eq!(answered_with(answer).as_deref(), expected, "{answer:?}");
        }
    }

    #[test]
    fn no_service_is_no_answer() {
        let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(ask(unused, "accelerator-type", TIME_LIMIT), None);
    }
}
