//! The keeper's end of the line to its agent.
//!
//! One thread reads, so that the keeper hears that the agent is alive, or gone, whatever it is doing.

use std::io::{BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use latput_load::Stop;
use latput_protocol::control::{self, LineError};
use latput_units::Nanos;

use super::operation::{KeeperMessage, KeeperOperation, KeeperReply};
use crate::lease::KeepaliveLease;

/// Interval at which waits check the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most time of a write to an agent that takes nothing.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
/// Most time of an agent, after a signal, to end as its controller is used to.
const END_WITHIN: Duration = Duration::from_secs(5);

/// The keeper's end of the line.
pub(super) struct AgentLine {
    operations: Receiver<KeeperOperation>,
    to: Arc<Mutex<UnixStream>>,
    lease: KeepaliveLease,
    /// Raised when the agent says so, or is gone.
    halt: Stop,
    count_reached: Arc<AtomicBool>,
}

impl AgentLine {
    /// Starts its threads.
    pub(super) fn open(link: UnixStream) -> std::io::Result<Self> {
        link.set_write_timeout(Some(WRITE_WITHIN))?;
        let from = link.try_clone()?;
        let cut = link.try_clone()?;
        let (operation_to, operations) = mpsc::channel();
        let line = Self {
            operations,
            to: Arc::new(Mutex::new(link)),
            lease: KeepaliveLease::new(),
            halt: Stop::new(),
            count_reached: Arc::default(),
        };
        let reader = MessageReader {
            to: Arc::clone(&line.to),
            lease: line.lease.clone(),
            halt: line.halt.clone(),
            count_reached: Arc::clone(&line.count_reached),
        };
        thread::spawn(move || reader.read(from, &operation_to));
        let lease = line.lease.clone();
        thread::spawn(move || {
            if lease.wait_for_expiry().is_some() {
                // The reader then ends, as if the agent had closed the line.
                let _gone = cut.shutdown(Shutdown::Read);
            }
        });
        Ok(line)
    }

    pub(super) fn set_lease(&self, lease: Nanos) {
        self.lease.set_length(lease);
    }

    /// The flag that ends what the keeper is doing.
    pub(super) const fn halt_flag(&self) -> &Stop {
        &self.halt
    }

    /// Forgets that an earlier traffic has reached its count.
    pub(super) fn begin_count(&self) {
        self.count_reached.store(false, Ordering::Relaxed);
    }

    /// Whether the traffic has reached its count.
    pub(super) fn has_reached_count(&self) -> bool {
        self.count_reached.load(Ordering::Relaxed)
    }

    /// The next operation; `None` when the agent has ended, is silent for the lease, or does not end after `stop` is raised.
    pub(super) fn next(&self, stop: &Stop) -> Option<KeeperOperation> {
        let mut told_at = None;
        loop {
            match self.operations.recv_timeout(LOOK_EVERY) {
                Ok(operation) => return Some(operation),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if stop.is_raised() => {
                    if told_at.get_or_insert_with(Instant::now).elapsed() > END_WITHIN {
                        return None;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Sends a reply. An agent that is gone is noticed by the reading thread.
    pub(super) fn send_reply(&self, reply: &KeeperReply) {
        write_reply(&self.to, reply);
    }
}

impl Drop for AgentLine {
    fn drop(&mut self) {
        self.lease.end_lease();
    }
}

fn write_reply(to: &Mutex<UnixStream>, reply: &KeeperReply) {
    let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
    if to.write_all(&control::encode_line(reply)).is_err() {
        // Nothing can follow a message that was written in part.
        let _gone = to.shutdown(Shutdown::Both);
    }
}

struct MessageReader {
    to: Arc<Mutex<UnixStream>>,
    lease: KeepaliveLease,
    halt: Stop,
    count_reached: Arc<AtomicBool>,
}

impl MessageReader {
    fn read(self, from: UnixStream, operation_to: &Sender<KeeperOperation>) {
        let mut from = BufReader::new(from);
        loop {
            let message: Result<KeeperMessage, LineError> = control::read_line(&mut from);
            self.lease.renew();
            match message {
                Ok(KeeperMessage::Alive) => write_reply(&self.to, &KeeperReply::Alive),
                Ok(KeeperMessage::CountReached) => {
                    self.count_reached.store(true, Ordering::Relaxed);
                }
                Ok(KeeperMessage::Halt) => self.halt.raise(),
                Ok(KeeperMessage::Do(operation)) => {
                    if operation_to.send(*operation).is_err() {
                        return;
                    }
                }
                Err(_) => break, // closed, or no message: either way it is not to be served
            }
        }
        self.lease.end_lease();
        self.halt.raise();
    }
}
