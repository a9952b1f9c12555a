//! One traffic thread, bound to its CPUs, and the watch over it.
//!
//! The hot loops have no timeouts and look at no flag: whatever has to end them (the stop flag, a
//! deadline) shuts their sockets down, which wakes a blocked call at once and costs nothing until then.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use latput_units::{CpuSet, Nanos};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::clock::{Window, now};
use crate::error::Error;
use crate::stop::Stop;

/// How often the supervisor looks at the stop flag and the deadline.
const TICK: Duration = Duration::from_millis(20);

const RUNNING: u8 = 0;
const AT_DEADLINE: u8 = 1;
const STOPPED: u8 = 2;

/// The connections of one run, as its traffic thread sees them.
#[derive(Debug)]
pub(crate) struct Link<'a> {
    pub(crate) sockets: &'a [TcpStream],
    pub(crate) peer: SocketAddr,
    pub(crate) window: Window,
    ending: AtomicU8,
}

impl<'a> Link<'a> {
    pub(crate) fn new(sockets: &'a [TcpStream], peer: SocketAddr, window: Window) -> Self {
        Self { sockets, peer, window, ending: AtomicU8::new(RUNNING) }
    }

    /// What it means that a connection ended with `errno` (or, without one, at its end of file):
    /// nothing if it was our own doing or the window is over, else that the peer is gone.
    pub(crate) fn closed(&self, errno: Option<Errno>) -> Result<(), Error> {
        match self.ending.load(Ordering::Relaxed) {
            STOPPED => return Err(Error::Stopped),
            AT_DEADLINE => return Ok(()),
            _ => {}
        }
        match errno {
            None | Some(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT | Errno::CONNREFUSED) => {
                match self.window.end().saturating_sub(now()) {
                    Nanos::ZERO => Ok(()),
                    before_end => Err(Error::PeerGone { peer: self.peer, before_end }),
                }
            }
            Some(errno) => Err(Error::io("exchange data with the peer", errno)),
        }
    }

    /// Whether the other end closed its first connection, on which nothing more is expected.
    pub(crate) fn peer_closed(&self) -> bool {
        let Some(socket) = self.sockets.first() else { return false };
        match recv(socket, &mut [0_u8][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((bytes, _)) => bytes == 0,
            Err(errno) => !matches!(errno, Errno::AGAIN | Errno::INTR),
        }
    }

    /// Whether the traffic was told to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed) != RUNNING
    }

    fn end(&self, ending: u8) {
        self.ending.store(ending, Ordering::Relaxed);
        for socket in self.sockets {
            // A socket that is closed already is what we want.
            let _gone = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Runs `work` on a thread of its own, bound to `cpus`, and ends its connections when `stop` is raised
/// or `deadline` passes.
pub(crate) fn supervise<T: Send>(
    cpus: &CpuSet,
    link: &Link<'_>,
    deadline: Nanos,
    stop: &Stop,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let (running, finished) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("latput-traffic".to_owned())
            .spawn_scoped(scope, move || {
                let _running = running;
                bind_to(cpus)?;
                work()
            })
            .map_err(|source| Error::io("start the traffic thread", source))?;
        while finished.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            if stop.is_raised() {
                link.end(STOPPED);
            } else if now() >= deadline {
                link.end(AT_DEADLINE);
            }
        }
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Holds the calling thread to `cpus`; an empty set leaves it where it is.
pub fn bind_to(cpus: &CpuSet) -> Result<(), Error> {
    use rustix::thread::{CpuSet as Mask, sched_setaffinity};
    if cpus.is_empty() {
        return Ok(());
    }
    let refused = |source| Error::Affinity { cpus: cpus.clone(), source };
    let mut mask = Mask::new();
    for cpu in cpus.iter() {
        match usize::try_from(cpu.0) {
            Ok(cpu) if cpu < Mask::MAX_CPU => mask.set(cpu),
            _ => return Err(refused(Errno::INVAL.into())),
        }
    }
    sched_setaffinity(None, &mask).map_err(|errno| refused(errno.into()))
}
