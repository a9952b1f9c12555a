//! The traffic threads of one end: starts them on its CPUs, watches them and ends them.
//!
//! The inner loops on connections have no timeouts and read no flag. The stop flag, a deadline, the
//! failure of another thread or the workload's count ends them by a shutdown of all sockets. That
//! wakes a blocked call at once and costs nothing before.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use latput_trial::workload::EpollBusyPoll;
use latput_units::{CpuSet, Nanos};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::clock::{Window, now};
use crate::error::Error;
use crate::stop::Stop;

/// How often the supervisor checks the stop flag and the deadline.
const TICK: Duration = Duration::from_millis(20);
/// A thread is late if it starts this long after its window, and after 1/[`LATE_SHARE`] of it.
const LATE: Nanos = Nanos::from_ms(100);
const LATE_SHARE: u64 = 20;

const RUNNING: u8 = 0;
const AT_DEADLINE: u8 = 1;
const STOPPED: u8 = 2;
const COUNTED: u8 = 3;
const FAILED: u8 = 4;

/// One end's part of a trial, shared by its traffic threads.
#[derive(Debug)]
pub(crate) struct TrafficRun<'a> {
    pub(crate) sockets: &'a [TcpStream],
    pub(crate) peer: SocketAddr,
    pub(crate) window: Window,
    /// Whether this end decides when the traffic ends.
    pub(crate) leads: bool,
    /// Units after which the window ends early.
    pub(crate) goal: Option<u64>,
    pub(crate) progress: Progress,
    /// Busy polling of threads that wait by epoll.
    pub(crate) polling: Option<EpollBusyPoll>,
    ending: AtomicU8,
}

impl<'a> TrafficRun<'a> {
    /// The state of the leading or the following end.
    pub(crate) fn new(
        sockets: &'a [TcpStream],
        peer: SocketAddr,
        window: Window,
        leads: bool,
        progress: Progress,
    ) -> Self {
        let (goal, ending) = (progress.goal(), AtomicU8::new(RUNNING));
        Self { sockets, peer, window, leads, goal, progress, polling: None, ending }
    }

    /// The same with busy polling of threads that wait by epoll.
    pub(crate) fn with_polling(self, polling: Option<EpollBusyPoll>) -> Self {
        Self { polling, ..self }
    }

    /// The length of the window, which `goal` may have shortened.
    pub(crate) fn window_length(&self) -> Nanos {
        let end = self.window.end();
        let ended_at = self.progress.ended_early().map_or(end, |early| early.min(end));
        ended_at.saturating_sub(self.window.start())
    }

    /// The measured length of slice `idx`, or of a window without slices.
    pub(crate) fn measured_length(&self, idx: u32) -> Nanos {
        self.window
            .slices()
            .map_or_else(|| self.window_length(), |slices| slices.measured_length(idx))
    }

    /// Ends the traffic of every thread at `now`, since the goal is reached.
    pub(crate) fn reached_goal(&self, now: Nanos) {
        self.progress.end_early(now);
        self.end(COUNTED);
    }

    /// The context of thread `thread` of `threads`.
    pub(crate) fn thread(&'a self, thread: usize, threads: usize) -> WorkerContext<'a> {
        let place = |thread| self.sockets.len() * thread / threads;
        let places = place(thread)..place(thread + 1);
        let sockets = &self.sockets[places.clone()];
        WorkerContext { run: self, thread, places, sockets, peer: self.peer, window: self.window }
    }

    /// Ends the traffic. Only the first reason is kept.
    fn end(&self, ending: u8) {
        let order = Ordering::Relaxed;
        if self.ending.compare_exchange(RUNNING, ending, order, order).is_ok() {
            for socket in self.sockets {
                let _closed_already = socket.shutdown(Shutdown::Both);
            }
        }
    }
}

/// One traffic thread's view of a [`TrafficRun`].
#[derive(Debug)]
pub(crate) struct WorkerContext<'a> {
    pub(crate) run: &'a TrafficRun<'a>,
    /// The number of the thread, from 0.
    pub(crate) thread: usize,
    /// The range of its connections in the run.
    pub(crate) places: Range<usize>,
    pub(crate) sockets: &'a [TcpStream],
    pub(crate) peer: SocketAddr,
    pub(crate) window: Window,
}

impl WorkerContext<'_> {
    /// Handles a connection that ended with `errno`, or without one at its end of file. It is no error
    /// if this end closed it, the window is over, or the leading end has reached its count; otherwise
    /// the peer is gone.
    pub(crate) fn closed(&self, errno: Option<Errno>) -> Result<(), Error> {
        match self.run.ending.load(Ordering::Relaxed) {
            STOPPED | FAILED => return Err(Error::Stopped),
            AT_DEADLINE | COUNTED => return Ok(()),
            _ => {}
        }
        match errno {
            None | Some(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT | Errno::CONNREFUSED) => {
                let now = now();
                let before_end = self.window.end().saturating_sub(now);
                if before_end == Nanos::ZERO {
                    return Ok(());
                }
                if !self.run.leads && self.run.goal.is_some() && now > self.window.start() {
                    self.run.progress.end_early(now);
                    return Ok(());
                }
                Err(Error::PeerGone { peer: self.peer, before_end })
            }
            Some(errno) => Err(Error::io("exchange data with the peer", errno)),
        }
    }

    /// Whether the other end closed this thread's first connection. No more data is expected on it.
    pub(crate) fn peer_closed(&self) -> bool {
        let Some(socket) = self.sockets.first() else { return false };
        match recv(socket, &mut [0_u8][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((bytes, _)) => bytes == 0,
            Err(errno) => !matches!(errno, Errno::AGAIN | Errno::INTR),
        }
    }

    /// The start and the end of the window. The workload's count may have shortened it.
    pub(crate) fn window_so_far(&self) -> (Nanos, Nanos) {
        let start = self.window.start();
        (start, start + self.run.window_length())
    }

    /// Whether the traffic must end.
    pub(crate) fn is_ending(&self) -> bool {
        self.run.ending.load(Ordering::Relaxed) != RUNNING
    }
}

/// Runs `work` on `threads` threads bound to `cpus`, each with its share of the connections, and ends
/// them all when `stop` is raised, `deadline` passes or one fails. Returns each thread's result.
pub(crate) fn run_workers<T: Send>(
    cpus: &CpuSet,
    run: &TrafficRun<'_>,
    threads: usize,
    deadline: Nanos,
    stop: &Stop,
    work: impl Fn(&WorkerContext<'_>) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let (exit_sender, exits) = mpsc::channel::<bool>();
    let work = &work;
    thread::scope(|scope| {
        let mut workers = Vec::with_capacity(threads);
        for idx in 0..threads {
            let sender = exit_sender.clone();
            let started = thread::Builder::new().name(format!("latput-{idx}")).spawn_scoped(
                scope,
                move || {
                    let mut notice = ExitNotice { sender, succeeded: false };
                    let result = start(run, cpus).and_then(|()| work(&run.thread(idx, threads)));
                    notice.succeeded = result.is_ok();
                    result
                },
            );
            match started {
                Ok(worker) => workers.push(worker),
                Err(source) => {
                    run.end(FAILED);
                    return Err(Error::io("start a traffic thread", source));
                }
            }
        }
        drop(exit_sender);
        loop {
            match exits.recv_timeout(TICK) {
                Ok(true) | Err(RecvTimeoutError::Timeout) => {}
                Ok(false) => run.end(FAILED),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop.is_raised() {
                run.end(STOPPED);
            } else if now() >= deadline {
                run.end(AT_DEADLINE);
            }
        }
        let join = |worker: thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        match all_or_first_error(workers.into_iter().map(join).collect()) {
            // If both ends are stopped at once, this end may see the other close first.
            Err(Error::PeerGone { .. }) if stop.is_raised() => Err(Error::Stopped),
            result => result,
        }
    })
}

/// Returns the results or the error that came first. A thread that another's failure ended returns
/// [`Error::Stopped`].
fn all_or_first_error<T>(results: Vec<Result<T, Error>>) -> Result<Vec<T>, Error> {
    let mut stopped = None;
    let mut all = Vec::with_capacity(results.len());
    for result in results {
        match result {
            Ok(one) => all.push(one),
            Err(Error::Stopped) => stopped = Some(Error::Stopped),
            Err(error) => return Err(error),
        }
    }
    stopped.map_or(Ok(all), Err)
}

/// Tells the supervisor that a thread exits, also after a panic.
struct ExitNotice {
    sender: Sender<bool>,
    succeeded: bool,
}

impl Drop for ExitNotice {
    fn drop(&mut self) {
        // The supervisor receives until the last thread has exited.
        let _unheard = self.sender.send(self.succeeded);
    }
}

fn start(run: &TrafficRun<'_>, cpus: &CpuSet) -> Result<(), Error> {
    bind_to(cpus)?;
    let first = run.window.slice(0);
    let late_by = now().saturating_sub(first.start());
    if late_by > LATE && late_by.as_ns() > first.length().as_ns() / LATE_SHARE {
        return Err(Error::LateThread { late_by });
    }
    Ok(())
}

/// Binds the calling thread to `cpus`. An empty set changes nothing.
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

/// Units done so far in the window: transactions, messages, datagrams, objects or reads. Clones
/// share the same traffic. Each thread stores to its own cache lines, so reading does not slow the
/// traffic.
#[derive(Clone, Debug)]
pub struct Progress(Arc<ProgressCounts>);

#[derive(Debug)]
struct ProgressCounts {
    goal: Option<u64>,
    lanes: Box<[Lane]>,
    /// When the window ended early; `u64::MAX` if it did not.
    ended_at_ns: AtomicU64,
}

/// Aligned to its own cache lines: 64 bytes each, and x86 fetches them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(AtomicU64);

impl Progress {
    pub(crate) fn new(threads: usize, goal: Option<u64>) -> Self {
        let lanes = (0..threads).map(|_| Lane::default()).collect();
        Self(Arc::new(ProgressCounts { goal, lanes, ended_at_ns: AtomicU64::new(u64::MAX) }))
    }

    /// Units done by all threads; 0 at a reflector, since the generator counts.
    pub fn units(&self) -> u64 {
        self.0.lanes.iter().map(|lane| lane.0.load(Ordering::Relaxed)).sum()
    }

    /// Units that end the window early, if the workload has a count.
    pub fn goal(&self) -> Option<u64> {
        self.0.goal
    }

    /// When the window ended because the workload's count was reached.
    pub fn ended_early(&self) -> Option<Nanos> {
        match self.0.ended_at_ns.load(Ordering::Relaxed) {
            u64::MAX => None,
            at => Some(Nanos::from_ns(at)),
        }
    }

    /// Stores the units that `thread` has done so far.
    #[inline]
    pub(crate) fn store(&self, thread: usize, units: u64) {
        self.0.lanes[thread].0.store(units, Ordering::Relaxed);
    }

    /// Ends the window early. Only the first call counts.
    pub(crate) fn end_early(&self, at: Nanos) {
        self.0.ended_at_ns.fetch_min(at.as_ns(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::SliceLayout;

    #[test]
    fn connections_are_spread_over_threads() {
        for (connections, threads) in [(0, 1), (1, 1), (5, 2), (10, 4), (3, 3)] {
            let place = |thread: usize| connections * thread / threads;
            let shares: Vec<usize> = (0..threads).map(|t| place(t + 1) - place(t)).collect();
            assert_eq!(shares.iter().sum::<usize>(), connections);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{shares:?}");
        }
    }

    #[test]
    fn failed_thread_ends_others_and_is_reported() {
        check_end(|worker| match worker.thread {
            1 => Err(Error::Stalled { peer: worker.peer }),
            _ => wait(worker),
        });
    }

    #[test]
    #[should_panic(expected = "on purpose")]
    fn one_thread_that_panics_ends_the_others() {
        check_end(|worker| match worker.thread {
            1 => panic!("on purpose"),
            _ => wait(worker),
        });
    }

    #[test]
    fn thread_that_starts_late_is_an_error() {
        let start = now().saturating_sub(Nanos::from_s(1));
        let window = Window::starting_after(start, Nanos::ZERO, Nanos::from_s(2)).unwrap();
        let error = supervised(window, |_| Ok(())).unwrap_err();
        assert!(matches!(error, Error::LateThread { .. }), "{error}");
    }

    #[test]
    fn thread_that_misses_first_slice_fails() {
        let start = now().saturating_sub(Nanos::from_ms(200));
        let window = Window::starting_after(start, Nanos::ZERO, Nanos::from_s(1)).unwrap();
        let (length, cut) = (Nanos::from_ms(250), Nanos::from_ms(30));
        let window = window.in_slices(SliceLayout::new(length, cut, 400)).unwrap();
        let error = supervised(window, |_| Ok(())).unwrap_err();
        assert!(matches!(error, Error::LateThread { .. }), "{error}");
    }

    fn wait(worker: &WorkerContext<'_>) -> Result<(), Error> {
        while !worker.is_ending() {
            thread::sleep(Duration::from_millis(1));
        }
        worker.closed(None)
    }

    #[track_caller]
    fn check_end(work: impl Fn(&WorkerContext<'_>) -> Result<(), Error> + Sync) {
        let window = Window::starting_in(Nanos::ZERO, Nanos::from_s(60)).unwrap();
        let error = supervised(window, work).unwrap_err();
        assert!(matches!(error, Error::Stalled { .. }), "{error}");
        assert!(now() < window.end());
    }

    fn supervised(
        window: Window,
        work: impl Fn(&WorkerContext<'_>) -> Result<(), Error> + Sync,
    ) -> Result<Vec<()>, Error> {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let run = TrafficRun::new(&[], peer, window, true, Progress::new(3, None));
        run_workers(&CpuSet::new(), &run, 3, window.end(), &Stop::new(), work)
    }
}
