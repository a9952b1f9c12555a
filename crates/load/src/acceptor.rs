//! The data port: accepts connections that prove the run's key, and no others.
//!
//! A thread accepts connections and admits as many as the test has. A connection has one second to
//! prove the key; otherwise it is closed and counted. Where the traffic opens new connections all the
//! time, the thread then leaves the listener to the traffic's threads.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use latput_units::Nanos;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;

use crate::clock::{now, timespec};
use crate::error::Error;
use crate::hello::Hello;
use crate::key::Key;
use crate::unauthenticated::{ACCEPT_PAUSE, Accepted, UnauthenticatedConns, accept};

/// Connections accepted in a row. The limit leaves time to check earlier connections during a
/// flood.
const ACCEPT_BATCH: usize = 64;

/// The listening port and its thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Acceptor {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: TcpListener,
    places: usize,
    thread: Option<JoinHandle<()>>,
}

/// A connection that proved the key.
#[derive(Debug)]
pub(crate) struct AuthenticatedConn {
    pub(crate) socket: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) hello: Hello,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<Admissions>,
    changed: Condvar,
    auth_failures: AtomicU64,
    closing: AtomicBool,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Admissions {
    admitted: usize,
    waiting: Vec<AuthenticatedConn>,
    failure: Option<io::Error>,
}

impl Acceptor {
    /// Listens on `listener` for `places` connections. With `hands_over` the acceptor stops once
    /// they are authenticated; later connections wait in the kernel.
    pub(crate) fn open(
        listener: TcpListener,
        key: Key,
        places: usize,
        hands_over: bool,
    ) -> Result<Self, Error> {
        let (address, own) = listener
            .local_addr()
            .and_then(|address| listener.set_nonblocking(true).map(|()| address))
            .and_then(|address| listener.try_clone().map(|own| (address, own)))
            .map_err(|source| Error::io("prepare the data port", source))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::io("create an eventfd", errno))?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            auth_failures: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            wake,
        });
        let accept_loop = AcceptLoop {
            shared: shared.clone(),
            listener: own,
            key,
            places,
            hands_over,
            unproven: UnauthenticatedConns::new(),
            is_paused: false,
        };
        let thread = std::thread::Builder::new()
            .name("latput-acceptor".to_owned())
            .spawn(move || accept_loop.run())
            .map_err(|source| Error::io("start the data port's thread", source))?;
        Ok(Self { shared, address, listener, places, thread: Some(thread) })
    }

    /// The address of the listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until every place is taken.
    pub(crate) fn wait_full(&self, deadline: Nanos) -> Result<(), Error> {
        let mut state = self.shared.state();
        loop {
            if let Some(source) = state.failure.take() {
                return Err(Error::io("accept a connection on the data port", source));
            }
            if state.admitted == self.places {
                return Ok(());
            }
            let left = deadline.saturating_sub(now());
            if left == Nanos::ZERO {
                let (shown, wanted) = (state.admitted, self.places);
                return Err(Error::NotReady { shown, wanted, auth_failures: self.auth_failures() });
            }
            let wait = self.shared.changed.wait_timeout(state, left.as_duration());
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes the authenticated connections.
    pub(crate) fn take_admitted(&self) -> Vec<AuthenticatedConn> {
        std::mem::take(&mut self.shared.state().waiting)
    }

    /// The listener. If the acceptor hands it over, the traffic owns it once every place is taken.
    pub(crate) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// The counter of connections that do not prove the key.
    pub(crate) fn auth_failures_count(&self) -> &AtomicU64 {
        &self.shared.auth_failures
    }

    /// Connections so far that did not prove the key.
    pub(crate) fn auth_failures(&self) -> u64 {
        self.shared.auth_failures.load(Ordering::Relaxed)
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        // An eventfd takes 2^64 - 2 of these writes before it refuses one.
        let _full = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // The thread shares no invariant that its panic could have broken.
            let _panicked = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Admissions> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the accepting thread.
struct AcceptLoop {
    shared: Arc<Shared>,
    listener: TcpListener,
    key: Key,
    places: usize,
    hands_over: bool,
    unproven: UnauthenticatedConns<Unproven>,
    /// Whether the loop accepts nothing for [`ACCEPT_PAUSE`].
    is_paused: bool,
}

/// A connection that has not proved the key yet.
struct Unproven {
    socket: TcpStream,
    peer: SocketAddr,
    shown: [u8; Hello::BYTES],
    filled: usize,
}

/// The state of a connection's proof.
enum KeyCheck {
    Incomplete,
    Valid(Hello),
    Invalid,
}

impl AcceptLoop {
    fn run(mut self) {
        while !self.shared.closing.load(Ordering::Relaxed) {
            if let Err(failure) = self.wait().and_then(|()| self.accept()) {
                tracing::warn!(%failure, "the data port is closed");
                self.shared.state().failure = Some(failure);
                self.shared.changed.notify_all();
                return;
            }
            self.check_proofs();
            if self.hands_over && self.shared.state().admitted == self.places {
                return;
            }
        }
    }

    /// Sleeps until a socket is readable or the oldest unproven connection expires.
    fn wait(&self) -> io::Result<()> {
        let rest = self.is_paused.then(|| now() + ACCEPT_PAUSE);
        let until = [self.unproven.until(), rest].into_iter().flatten().min();
        let timeout = until.map(|until| timespec(until.saturating_sub(now())));
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        let unproven = self.unproven.iter().map(|one| &one.connection.socket);
        fds.extend(unproven.map(|socket| PollFd::new(socket, PollFlags::IN)));
        if !self.is_paused {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        self.is_paused = false;
        for _ in 0..ACCEPT_BATCH {
            let (socket, peer) = match accept(&self.listener)? {
                Accepted::Connection(socket, Some(peer)) => (TcpStream::from(socket), peer),
                Accepted::Connection(_, None) | Accepted::Gone => continue,
                Accepted::None => return Ok(()),
                Accepted::NoRoom => {
                    match self.unproven.take_oldest() {
                        Some(oldest) => self.reject(&oldest.connection),
                        None => self.is_paused = true,
                    }
                    return Ok(());
                }
            };
            let unproven = Unproven { socket, peer, shown: [0; Hello::BYTES], filled: 0 };
            let unproven = self.unproven.enter(unproven, now());
            if let Some(oldest) = self.unproven.put(unproven) {
                self.reject(&oldest.connection);
            }
        }
        Ok(())
    }

    fn check_proofs(&mut self) {
        for mut one in self.unproven.take_all() {
            match one.connection.read(&self.key) {
                KeyCheck::Incomplete => {
                    let _none = self.unproven.put(one); // there is room: it was there before
                }
                KeyCheck::Invalid => self.reject(&one.connection),
                KeyCheck::Valid(hello) => {
                    let Unproven { socket, peer, .. } = one.connection;
                    self.admit(AuthenticatedConn { socket, peer, hello });
                }
            }
        }
        while let Some(slow) = self.unproven.take_expired(now()) {
            self.reject(&slow.connection);
        }
    }

    fn reject(&self, unproven: &Unproven) {
        // Count before closing: a peer that sees the close also sees the count.
        self.shared.auth_failures.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(peer = %unproven.peer, "a connection did not show the run's key");
    }

    fn admit(&self, mut connection: AuthenticatedConn) {
        let mut state = self.shared.state();
        if state.admitted == self.places {
            tracing::warn!(peer = %connection.peer, "closed a connection beyond the test's own");
            return;
        }
        // The send buffer of a fresh connection takes the whole answer. The traffic reports a lost
        // peer.
        let _gone = connection.socket.write_all(connection.hello.answer());
        if let Err(failure) = connection.socket.set_nonblocking(false) {
            state.failure = Some(failure);
        }
        state.admitted += 1;
        state.waiting.push(connection);
        self.shared.changed.notify_all();
    }
}

impl Unproven {
    fn read(&mut self, key: &Key) -> KeyCheck {
        match self.socket.read(&mut self.shown[self.filled..]) {
            Ok(0) => return KeyCheck::Invalid,
            Ok(bytes) => self.filled += bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                _ => return KeyCheck::Invalid,
            },
        }
        if self.filled < Hello::BYTES {
            return KeyCheck::Incomplete;
        }
        Hello::decode(&self.shown, key).map_or(KeyCheck::Invalid, KeyCheck::Valid)
    }
}
