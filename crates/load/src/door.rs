//! The data port: lets in connections that show the run's key, and nobody else.
//!
//! A thread accepts, gives each connection one second to show the key, and admits as many as the test
//! has. What shows another key, or nothing, is closed and counted. Where connections go on to come
//! during the traffic, it then leaves the listener to the traffic's threads.

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
use crate::strangers::{Accepted, REST, Strangers, accept};

/// Connections taken from the kernel in one go, so that a flood cannot keep us from those who are in.
const ACCEPT: usize = 64;

/// The listening port and its thread, which ends with it.
#[derive(Debug)]
pub(crate) struct Door {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: TcpListener,
    places: usize,
    thread: Option<JoinHandle<()>>,
}

/// A connection that showed the key.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) socket: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) hello: Hello,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    wrong_keys: AtomicU64,
    closing: AtomicBool,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    admitted: usize,
    waiting: Vec<Guest>,
    failure: Option<io::Error>,
}

impl Door {
    /// Listens on `listener` for `places` connections; with `hands_over`, no longer than until they are
    /// there: later ones wait in the kernel.
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
            wrong_keys: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            wake,
        });
        let keeper = Keeper {
            shared: shared.clone(),
            listener: own,
            key,
            places,
            hands_over,
            unproven: Strangers::new(),
            rests: false,
        };
        let thread = std::thread::Builder::new()
            .name("latput-door".to_owned())
            .spawn(move || keeper.run())
            .map_err(|source| Error::io("start the data port's thread", source))?;
        Ok(Self { shared, address, listener, places, thread: Some(thread) })
    }

    /// Where it listens.
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
                return Err(Error::NotReady { shown, wanted, wrong_keys: self.wrong_keys() });
            }
            let wait = self.shared.changed.wait_timeout(state, left.as_duration());
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes the connections that were let in.
    pub(crate) fn take_guests(&self) -> Vec<Guest> {
        std::mem::take(&mut self.shared.state().waiting)
    }

    /// The listener, which is the traffic's once every place is taken if the door hands it over.
    pub(crate) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// Where to count connections that do not show the key.
    pub(crate) fn wrong_keys_count(&self) -> &AtomicU64 {
        &self.shared.wrong_keys
    }

    /// Connections so far that did not show the key.
    pub(crate) fn wrong_keys(&self) -> u64 {
        self.shared.wrong_keys.load(Ordering::Relaxed)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        // An eventfd takes 2^64 - 2 of these before it refuses one.
        let _full = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It holds no invariant of ours that its panic could have broken.
            let _panicked = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's own part.
struct Keeper {
    shared: Arc<Shared>,
    listener: TcpListener,
    key: Key,
    places: usize,
    hands_over: bool,
    unproven: Strangers<Unproven>,
    /// Whether the listener is left alone for a moment.
    rests: bool,
}

/// A connection that has not shown the key yet.
struct Unproven {
    socket: TcpStream,
    peer: SocketAddr,
    shown: [u8; Hello::BYTES],
    filled: usize,
}

/// What came of a look at an unproven connection.
enum Verdict {
    Wait,
    Welcome(Hello),
    TurnAway,
}

impl Keeper {
    fn run(mut self) {
        while !self.shared.closing.load(Ordering::Relaxed) {
            if let Err(failure) = self.wait().and_then(|()| self.accept()) {
                tracing::warn!(%failure, "the data port is closed");
                self.shared.state().failure = Some(failure);
                self.shared.changed.notify_all();
                return;
            }
            self.look();
            if self.hands_over && self.shared.state().admitted == self.places {
                return;
            }
        }
    }

    /// Sleeps until something comes, or the first unproven connection has had its time.
    fn wait(&self) -> io::Result<()> {
        let rest = self.rests.then(|| now() + REST);
        let until = [self.unproven.until(), rest].into_iter().flatten().min();
        let timeout = until.map(|until| timespec(until.saturating_sub(now())));
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        let unproven = self.unproven.iter().map(|one| &one.connection.socket);
        fds.extend(unproven.map(|socket| PollFd::new(socket, PollFlags::IN)));
        if !self.rests {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        self.rests = false;
        for _ in 0..ACCEPT {
            let (socket, peer) = match accept(&self.listener)? {
                Accepted::Connection(socket, Some(peer)) => (TcpStream::from(socket), peer),
                Accepted::Connection(_, None) | Accepted::Gone => continue,
                Accepted::None => return Ok(()),
                Accepted::NoRoom => {
                    match self.unproven.take_oldest() {
                        Some(oldest) => self.turn_away(&oldest.connection),
                        None => self.rests = true,
                    }
                    return Ok(());
                }
            };
            let unproven = Unproven { socket, peer, shown: [0; Hello::BYTES], filled: 0 };
            let unproven = self.unproven.enter(unproven, now());
            if let Some(oldest) = self.unproven.put(unproven) {
                self.turn_away(&oldest.connection);
            }
        }
        Ok(())
    }

    fn look(&mut self) {
        for mut one in self.unproven.take_all() {
            match one.connection.read(&self.key) {
                Verdict::Wait => {
                    let _none = self.unproven.put(one); // there is room: it was there before
                }
                Verdict::TurnAway => self.turn_away(&one.connection),
                Verdict::Welcome(hello) => {
                    let Unproven { socket, peer, .. } = one.connection;
                    self.admit(Guest { socket, peer, hello });
                }
            }
        }
        while let Some(slow) = self.unproven.take_slow(now()) {
            self.turn_away(&slow.connection);
        }
    }

    fn turn_away(&self, unproven: &Unproven) {
        // Counted before it is closed, so that who sees it closed also sees it counted.
        self.shared.wrong_keys.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(peer = %unproven.peer, "a connection did not show the run's key");
    }

    fn admit(&self, mut guest: Guest) {
        let mut state = self.shared.state();
        if state.admitted == self.places {
            tracing::warn!(peer = %guest.peer, "closed a connection beyond the test's own");
            return;
        }
        // A fresh connection's send buffer takes an answer whole; if it is gone, its run will say so.
        let _gone = guest.socket.write_all(guest.hello.answer());
        if let Err(failure) = guest.socket.set_nonblocking(false) {
            state.failure = Some(failure);
        }
        state.admitted += 1;
        state.waiting.push(guest);
        self.shared.changed.notify_all();
    }
}

impl Unproven {
    fn read(&mut self, key: &Key) -> Verdict {
        match self.socket.read(&mut self.shown[self.filled..]) {
            Ok(0) => return Verdict::TurnAway,
            Ok(bytes) => self.filled += bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                _ => return Verdict::TurnAway,
            },
        }
        if self.filled < Hello::BYTES {
            return Verdict::Wait;
        }
        Hello::decode(&self.shown, key).map_or(Verdict::TurnAway, Verdict::Welcome)
    }
}
