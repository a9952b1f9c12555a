//! One bounded HTTP request: the text that an application tells of itself.
//!
//! It speaks HTTP/1.0, so that an answer has no chunks and ends with its connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use latput_formats::prometheus::MOST_BYTES;

/// Most bytes of an answer's head.
const MOST_HEAD_BYTES: usize = 16 << 10;

/// Asks the endpoint.
///
/// # Errors
///
/// It cannot be reached or does not answer within `within`, its answer is too long or no success.
pub(super) fn get(address: SocketAddr, path: &str, within: Duration) -> Result<String, String> {
    let deadline = Instant::now() + within;
    let asked = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, within)?;
        stream.set_write_timeout(Some(within))?;
        let request = format!(
            "GET {path} HTTP/1.0\r\nHost: {address}\r\nUser-Agent: latput\r\nAccept: text/plain;version=0.0.4\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        read_to_end(&mut stream, deadline)
    };
    parse_body(&asked().map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("no answer within {} ms", within.as_millis())
        }
        _ => error.to_string(),
    })?)
}

/// Reads until the other end closes, the answer is whole, the time is over or it is too long.
fn read_to_end(stream: &mut TcpStream, deadline: Instant) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        answer.extend_from_slice(&buffer[..count]);
        let is_long = answer.len() > MOST_BYTES + MOST_HEAD_BYTES;
        if count == 0 || is_long || is_whole(&answer) {
            return Ok(answer);
        }
    }
}

/// Whether the body has the length that the head tells.
fn is_whole(answer: &[u8]) -> bool {
    let Some((head, body)) = split_head(answer) else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    length.is_some_and(|length| body.len() >= length)
}

fn split_head(answer: &[u8]) -> Option<(std::borrow::Cow<'_, str>, &[u8])> {
    let mark = b"\r\n\r\n";
    let end = answer.windows(mark.len()).take(MOST_HEAD_BYTES).position(|part| part == mark)?;
    Some((String::from_utf8_lossy(&answer[..end]), &answer[end + mark.len()..]))
}

fn parse_body(answer: &[u8]) -> Result<String, String> {
    let (head, body) = split_head(answer).ok_or("its answer is not HTTP")?;
    let first: String = head.lines().next().unwrap_or_default().chars().take(80).collect();
    let status = first.split_whitespace().nth(1);
    if !first.starts_with("HTTP/") || status != Some("200") {
        return Err(format!("it answers `{}`", first.escape_debug()));
    }
    if body.len() > MOST_BYTES {
        return Err(format!("its answer is longer than {MOST_BYTES} bytes"));
    }
    Ok(String::from_utf8_lossy(body).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Asks an endpoint that answers with these bytes, and then stays open for so long.
    fn fetch_answer(answer: Vec<u8>, open: Duration) -> Result<String, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).unwrap();
            let _closed = stream.write_all(&answer);
            thread::sleep(open);
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let text = get(address, "/metrics", Duration::from_millis(500));
        assert!(serving.join().unwrap().starts_with("GET /metrics HTTP/1.0\r\n"));
        text
    }

    #[test]
    fn answer_is_its_body() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\na 1\n".to_vec();
        assert_eq!(fetch_answer(answer, Duration::ZERO).unwrap(), "a 1\n");
        let kept_open = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\na 1\n".to_vec();
        assert_eq!(fetch_answer(kept_open, Duration::from_secs(1)).unwrap(), "a 1\n");
    }

    #[test]
    fn slow_huge_or_failed_answer_is_error() {
        let head = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
        let error = fetch_answer(head.clone(), Duration::from_secs(1)).unwrap_err();
        assert!(error.contains("within 500 ms"), "{error}");
        let huge = [head, vec![b'x'; MOST_BYTES + (1 << 20)]].concat();
        assert!(fetch_answer(huge, Duration::ZERO).unwrap_err().contains("longer than"));
        let gone =
            fetch_answer(b"HTTP/1.0 404 Not \x1b[2J\r\n\r\n".to_vec(), Duration::ZERO).unwrap_err();
        assert!(gone.contains("404") && !gone.contains('\x1b'), "{gone}");
        assert!(
            fetch_answer(b"SSH-2.0\r\n".to_vec(), Duration::ZERO).unwrap_err().contains("not HTTP")
        );
        let closed = "127.0.0.1:1".parse().unwrap();
        assert!(get(closed, "/", Duration::from_millis(500)).is_err());
    }
}
