//! Against real third-party programs on the loopback, and against fakes that say what no real one would.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a skipped arm says why")]

mod hostile;
mod iperf3;
mod netserver;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use latput_load::{Stop, Window};
use latput_peers::{Error, Peer, PeerResult, PeerSession};
use latput_trial::{Workload, workload};
use latput_units::Nanos;

/// How long a test's window lasts.
pub(crate) const WINDOW: Nanos = Nanos::from_ms(500);
/// How long before it the traffic's threads are started: they are late on a busy machine.
pub(crate) const AHEAD: Nanos = Nanos::from_ms(200);

/// A program that is ended with the test.
pub(crate) struct ServerProcess(Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

impl ServerProcess {
    pub(crate) fn start(program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    pub(crate) fn kill(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `tcp_rr burst=16`, as the command line has it.
pub(crate) fn parse_workload(text: &str) -> Workload {
    let mut words = text.split_whitespace();
    let mut fields = BTreeMap::from([("kind".to_owned(), words.next().unwrap().to_owned())]);
    fields.extend(words.map(|word| {
        let (name, value) = word.split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    }));
    workload::from_fields(&fields).unwrap()
}

/// Opens a test; a server that was just started may not listen yet.
pub(crate) fn open(
    url: &str,
    load: &Workload,
    warmup: Nanos,
    stop: &Stop,
) -> Result<PeerSession, Error> {
    let peer = Peer::parse(url).unwrap().unwrap();
    let address = peer.resolve().unwrap();
    for _ in 0..100 {
        match peer.open(address, load, warmup, WINDOW, stop) {
            Err(Error::Refused { .. } | Error::Busy { .. }) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return other,
        }
    }
    peer.open(address, load, warmup, WINDOW, stop)
}

/// One whole test without a warm-up; again, as a run does, if the machine held up the traffic.
pub(crate) fn measure_workload(url: &str, text: &str) -> Result<PeerResult, Error> {
    let stop = Stop::new();
    let mut tries = 3;
    loop {
        let session = open(url, &parse_workload(text), Nanos::ZERO, &stop)?;
        let window = Window::starting_in(session.warmup() + AHEAD, WINDOW).unwrap();
        tries -= 1;
        match session.run(window, &stop) {
            Err(error) if error.is_transient() && tries > 0 => {}
            ended => return ended,
        }
    }
}
