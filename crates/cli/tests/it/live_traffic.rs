//! For tests: traffic between two network namespaces that latput does not know of.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use latput_linux::Namespace;

/// Requests and responses between two namespaces, and the server's own count of them over HTTP.
pub(crate) struct RequestTraffic {
    stop: Arc<AtomicBool>,
    /// Nothing is sent while this is raised.
    pub(crate) pause: Arc<AtomicBool>,
    /// Behaviour of the endpoint.
    pub(crate) endpoint: Arc<AtomicU64>,
    /// Requests that the server has answered.
    pub(crate) requests: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

/// The endpoint counts, answers too much, too late, or is closed.
const COUNTS: u64 = 0;
pub(crate) const HUGE: u64 = 1;
pub(crate) const SLOW: u64 = 2;
pub(crate) const GONE: u64 = 3;
/// The port of the requests.
pub(crate) const PORT: u16 = 7000;
/// The port of the endpoint.
pub(crate) const METRICS_PORT: u16 = 7001;

impl RequestTraffic {
    /// Starts a server at `address`, which `server` has, and four clients in `client`: names of pinned namespaces.
    pub(crate) fn start_between(client: &str, server: &str, address: &'static str) -> Self {
        let [stop, pause] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (endpoint, requests) = (Arc::new(AtomicU64::new(COUNTS)), Arc::new(AtomicU64::new(0)));
        let listener = bind_listener(server, (address, PORT));
        let metrics = bind_listener(server, (address, METRICS_PORT));
        let mut threads = Vec::new();
        let serving = (Arc::clone(&stop), Arc::clone(&requests));
        threads.push(thread::spawn(move || serve_requests(&listener, &serving.0, &serving.1)));
        let telling = (Arc::clone(&stop), Arc::clone(&endpoint));
        let counted = Arc::clone(&requests);
        threads
            .push(thread::spawn(move || tell_metrics(metrics, &telling.0, &telling.1, &counted)));
        let client = Namespace::open_pinned(client).unwrap();
        for _ in 0..4 {
            let connect = || TcpStream::connect((address, PORT)).unwrap();
            let stream = client.run_in(connect).unwrap();
            let (stop, pause) = (Arc::clone(&stop), Arc::clone(&pause));
            threads.push(thread::spawn(move || send_requests(stream, &stop, &pause)));
        }
        Self { stop, pause, endpoint, requests, threads }
    }

    /// Tells the number of requests again and again, in a way of the test's own.
    pub(crate) fn publish_requests(&mut self, mut how: impl FnMut(u64) + Send + 'static) {
        let (stop, requests) = (Arc::clone(&self.stop), Arc::clone(&self.requests));
        self.threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                how(requests.load(Ordering::Relaxed));
                thread::sleep(Duration::from_millis(20));
            }
        }));
    }
}

impl Drop for RequestTraffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn bind_listener(server: &str, at: (&str, u16)) -> TcpListener {
    let server = Namespace::open_pinned(server).unwrap();
    let listener = server.run_in(|| TcpListener::bind(at).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// The connections that come, one by one, until `stop`.
fn accept_connections<'a>(
    listener: &'a TcpListener,
    stop: &'a AtomicBool,
) -> impl Iterator<Item = TcpStream> + 'a {
    std::iter::from_fn(move || {
        while !stop.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((stream, _)) => return Some(stream),
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
        None
    })
}

fn serve_requests(listener: &TcpListener, stop: &AtomicBool, requests: &AtomicU64) {
    thread::scope(|scope| {
        for mut stream in accept_connections(listener, stop) {
            stream.set_nonblocking(false).unwrap();
            stream.set_nodelay(true).unwrap();
            scope.spawn(move || {
                let mut buffer = [0; 200];
                while read_exact(&mut stream, &mut buffer, stop) {
                    requests.fetch_add(1, Ordering::Relaxed);
                    let _gone = stream.write_all(&buffer);
                }
            });
        }
    });
}

/// Some 200 requests per second and connection, each after the answer to the one before.
fn send_requests(mut stream: TcpStream, stop: &AtomicBool, pause: &AtomicBool) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = [7; 200];
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(5));
        if !pause.load(Ordering::Relaxed) {
            let _gone = stream.write_all(&buffer);
            if !read_exact(&mut stream, &mut buffer, stop) {
                return;
            }
        }
    }
}

/// Whether it was filled before `stop` and the other end's close.
fn read_exact(stream: &mut TcpStream, buffer: &mut [u8], stop: &AtomicBool) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return false,
            Ok(count) => filled += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if stop.load(Ordering::Relaxed) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

fn tell_metrics(listener: TcpListener, stop: &AtomicBool, mode: &AtomicU64, requests: &AtomicU64) {
    let mut listener = Some(listener);
    while !stop.load(Ordering::Relaxed) {
        if mode.load(Ordering::Relaxed) == GONE {
            listener = None;
        }
        let Some(Ok((mut stream, _))) = listener.as_ref().map(TcpListener::accept) else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        let _asked = stream.read(&mut [0; 1024]);
        let body = match mode.load(Ordering::Relaxed) {
            HUGE => "x 1\n".repeat(2 << 20),
            SLOW => {
                thread::sleep(Duration::from_millis(700));
                String::new()
            }
            _ => format!("requests_total {}\n", requests.load(Ordering::Relaxed)),
        };
        let _closed = stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{body}").as_bytes());
    }
}
