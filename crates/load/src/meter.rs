//! The phase of a trial, and the counts of one traffic thread in it.
//!
//! A window may be divided into slices. The meter counts the current slice. It stores a finished
//! slice in the cut of the next one, where nothing is measured.
//!
//! Bytes and messages count in the slice in whose measured part they were sent or received, and in
//! a cut nowhere. The **time** of a round trip counts in the slice in which it ended, unless it
//! began before that slice and its cut: another setting was in force then. Round trips that began
//! in the cut count; otherwise every connection would lose one in each slice, and long ones more
//! often than short ones. A round trip no longer than the cut is thus neither lost nor counted in
//! the wrong slice.

use latput_stats::Histogram;
use latput_trial::observation::ContextSwitches;
use latput_units::Nanos;

use crate::clock::{self, thread_cpu};
use crate::datagrams::Flow;
use crate::outcome::{DatagramsExchanged, ReceiverOutcome, ScheduleKept, SenderOutcome};
use crate::schedule::Schedule;
use crate::socket;
use crate::switches::thread_switches;
use crate::workers::WorkerContext;

/// The phase of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    /// The unmeasured start of a slice.
    Cut,
    Window,
    CoolDown,
    Over,
}

/// Finds the phase of an instant with one comparison, and reads the counters at each phase change.
#[derive(Debug)]
pub(crate) struct Meter<'a> {
    worker: &'a WorkerContext<'a>,
    /// Sockets of this thread whose drop counters are read at phase changes.
    flows: &'a [Flow<'a>],
    over: Nanos,
    phase: Phase,
    next: Nanos,
    /// The current slice.
    slice: u32,
    /// The start of the current slice with its cut. Earlier round trips are left out.
    since: Nanos,
    units: u64,
    at_start: Option<UsageSnapshot>,
    /// Counts of the current slice. The optional parts are set before the traffic begins.
    pub(crate) tally: Tally,
    /// Counts of the finished slices.
    finished: Vec<Tally>,
}

#[derive(Clone, Copy, Debug)]
struct UsageSnapshot {
    cpu: Nanos,
    switches: Option<ContextSwitches>,
    retransmits: Option<u64>,
    dropped: Option<u64>,
}

impl<'a> Meter<'a> {
    /// A meter for the end that decides when the traffic ends: a cool-down after the window.
    pub(crate) fn leading(worker: &'a WorkerContext<'a>) -> Self {
        Self::until(worker, worker.window.end() + clock::COOL_DOWN)
    }

    /// A meter for the end that continues until the other one closes, with its datagram flows.
    pub(crate) fn following(worker: &'a WorkerContext<'a>, flows: &'a [Flow<'a>]) -> Self {
        Self { flows, ..Self::until(worker, Nanos::from_ns(u64::MAX)) }
    }

    fn until(worker: &'a WorkerContext<'a>, over: Nanos) -> Self {
        Self {
            worker,
            flows: &[],
            over,
            phase: Phase::WarmUp,
            next: worker.window.start(),
            slice: 0,
            since: Nanos::ZERO,
            units: 0,
            at_start: None,
            tally: Tally::default(),
            finished: Vec::with_capacity(worker.window.slice_count() as usize),
        }
    }

    /// The phase at `now`. Instants must not decrease.
    #[inline]
    pub(crate) fn phase(&mut self, now: Nanos) -> Phase {
        if now >= self.next {
            self.advance(now);
        }
        self.phase
    }

    /// Whether events at the instant of the last [`Meter::phase`] count.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.phase == Phase::Window
    }

    /// The slice in which events at that instant count.
    #[inline]
    pub(crate) fn slice(&self) -> Option<u32> {
        self.counts().then_some(self.slice)
    }

    /// Counts one read.
    #[inline]
    pub(crate) fn received(&mut self, bytes: usize, messages: u32) {
        if self.counts() {
            self.tally.received_bytes += bytes as u64;
            self.tally.messages += u64::from(messages);
        }
    }

    /// Counts one or more sends.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize) {
        if self.counts() {
            self.tally.sent_bytes += bytes as u64;
        }
    }

    /// Counts `count` round trips from `began` to `now`, if round trips are measured.
    #[inline]
    pub(crate) fn round_trips(&mut self, began: Nanos, now: Nanos, count: u64) {
        if let Some(latency) = &mut self.tally.latency
            && self.phase == Phase::Window
            && began >= self.since
        {
            latency.record_n(now.saturating_sub(began), count);
        }
    }

    /// Counts an open-loop round trip, both from its due time and from its send time.
    #[inline]
    pub(crate) fn open_round_trip(&mut self, due: Nanos, sent_at: Nanos, now: Nanos) {
        self.round_trips(due, now, 1);
        if let Some(latency_raw) = &mut self.tally.latency_raw
            && self.phase == Phase::Window
            && due >= self.since
        {
            latency_raw.record(now.saturating_sub(sent_at));
        }
    }

    /// The counts of a current or finished slice. `None` for `None` or a later slice.
    pub(crate) fn of_slice(&mut self, slice: Option<u32>) -> Option<&mut Tally> {
        let slice = slice?;
        if slice == self.slice {
            return Some(&mut self.tally);
        }
        self.finished.get_mut(slice as usize)
    }

    /// Starts to measure an open loop: times from due and from send, and how far the schedule is
    /// kept.
    pub(crate) fn measure_open_loop(&mut self) {
        self.tally.latency = Some(Histogram::new());
        self.tally.latency_raw = Some(Histogram::new());
        self.tally.schedule = Some(ScheduleKept::default());
    }

    /// Counts an open-loop request due at `due` and sent at `sent_at`, each in its own slice.
    pub(crate) fn enter_scheduled(&mut self, due: Nanos, sent_at: Nanos) {
        self.phase(sent_at);
        let window = self.worker.window;
        self.enter_due(due, window.number_at(sent_at));
        if let Some(kept) = self.schedule_of(window.slice_at(sent_at)) {
            kept.sent += 1;
        }
    }

    /// Counts requests that were due before the window's end and never sent.
    pub(crate) fn close_schedule(&mut self, mut schedule: Schedule) {
        let (_, end) = self.worker.window_so_far();
        while let Some(due) = schedule.take_before(end) {
            self.enter_due(due, self.worker.window.slice_count());
        }
    }

    /// Counts a request due at `due` and sent in slice `sent_in`, or never (the number of slices).
    /// It belongs to the backlog at the end of each slice in between.
    fn enter_due(&mut self, due: Nanos, sent_in: u32) {
        let window = self.worker.window;
        if let Some(kept) = self.schedule_of(window.slice_at(due)) {
            kept.due += 1;
        }
        for slice in window.number_at(due)..sent_in {
            if let Some(kept) = self.schedule_of(Some(slice)) {
                kept.backlog += 1;
            }
        }
    }

    fn schedule_of(&mut self, slice: Option<u32>) -> Option<&mut ScheduleKept> {
        self.of_slice(slice)?.schedule.as_mut()
    }

    /// Counts `units` done at `now`, if that is in the window. The last unit of a workload with a
    /// count ends the traffic of all threads. Units that the leading end does until it sees that
    /// count too.
    #[inline]
    pub(crate) fn done(&mut self, now: Nanos, units: u64) {
        if !matches!(self.phase, Phase::Window | Phase::Cut) {
            return;
        }
        self.units += units;
        let run = self.worker.run;
        run.progress.store(self.worker.thread, self.units);
        if let Some(goal) = run.goal.filter(|_| run.leads)
            && run.progress.units() >= goal
        {
            run.reached_goal(now);
        }
    }

    /// The counts of each slice. A slice that the traffic did not reach is empty.
    pub(crate) fn finish(mut self) -> Vec<Tally> {
        if self.phase == Phase::Window {
            self.tally.usage = self.used_until(self.mark());
        }
        if self.worker.window.slices().is_none() {
            // Datagrams sent in the window may be dropped after it.
            self.tally.usage.dropped = self.used_until(self.mark()).dropped;
            return vec![self.tally]; // nothing to pack
        }
        let count = self.worker.window.slice_count() as usize;
        while self.finished.len() < count {
            self.put_away();
        }
        self.finished
    }

    #[cold]
    fn advance(&mut self, now: Nanos) {
        let mark = self.mark();
        let window = self.worker.window;
        while now >= self.next {
            (self.phase, self.next) = match self.phase {
                Phase::WarmUp if window.slices().is_some() => {
                    self.since = window.start();
                    (Phase::Cut, window.slice(0).start())
                }
                Phase::WarmUp | Phase::Cut => {
                    self.at_start = Some(mark);
                    (Phase::Window, window.slice(self.slice).end())
                }
                Phase::Window => {
                    self.tally.usage = self.used_until(mark);
                    self.next_slice()
                }
                Phase::CoolDown | Phase::Over => (Phase::Over, Nanos::from_ns(u64::MAX)),
            };
        }
    }

    /// The phase after the current slice, and its end.
    fn next_slice(&mut self) -> (Phase, Nanos) {
        let window = self.worker.window;
        if self.slice + 1 == window.slice_count() {
            return (Phase::CoolDown, self.over);
        }
        self.put_away();
        self.slice += 1;
        self.since = window.slice_start(self.slice);
        (Phase::Cut, window.slice(self.slice).start())
    }

    fn put_away(&mut self) {
        let tally = self.tally.take();
        self.finished.push(tally);
    }

    fn used_until(&self, end: UsageSnapshot) -> Usage {
        let Some(start) = self.at_start else { return Usage::default() };
        let grown = |end: Option<u64>, start: Option<u64>| {
            end.zip(start).map(|(end, start)| end.saturating_sub(start))
        };
        Usage {
            cpu: end.cpu.saturating_sub(start.cpu),
            switches: end.switches.zip(start.switches).map(|(end, start)| end.since(start)),
            retransmits: grown(end.retransmits, start.retransmits),
            dropped: grown(end.dropped, start.dropped),
        }
    }

    fn mark(&self) -> UsageSnapshot {
        let retransmits = self.worker.sockets.iter().map(socket::retransmits).sum();
        let dropped = self.flows.iter().map(|flow| socket::dropped_datagrams(flow.socket)).sum();
        UsageSnapshot { cpu: thread_cpu(), switches: thread_switches(), retransmits, dropped }
    }
}

/// The counts of one traffic thread in one slice; a window without slices is one. All kinds of traffic share them, so that
/// slices begin and end at the same instants for all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    /// Messages received in whole; at the sender of a datagram stream, datagrams sent.
    pub(crate) messages: u64,
    /// Round-trip times, at the end that measures them.
    pub(crate) latency: Option<Histogram>,
    /// Round-trip times from the send time, in an open loop.
    pub(crate) latency_raw: Option<Histogram>,
    /// How far the schedule was kept, in an open loop.
    pub(crate) schedule: Option<ScheduleKept>,
    /// Counts of datagram requests and responses.
    pub(crate) exchange: Option<DatagramsExchanged>,
    /// Datagrams that a sender left out.
    pub(crate) skipped: u64,
    /// Datagrams that were not of this run.
    pub(crate) foreign: u64,
    pub(crate) usage: Usage,
}

/// Resource use of the thread and its sockets in a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cpu: Nanos,
    pub(crate) switches: Option<ContextSwitches>,
    pub(crate) retransmits: Option<u64>,
    /// Datagrams that the kernel dropped at a full socket buffer.
    pub(crate) dropped: Option<u64>,
}

impl Tally {
    /// Takes the counts and starts again at zero. Packs the histograms, since a window may have
    /// hundreds of slices.
    pub(crate) fn take(&mut self) -> Self {
        let latency = self.latency.as_mut().map(Histogram::take);
        let latency_raw = self.latency_raw.as_mut().map(Histogram::take);
        let anew = Self {
            latency: self.latency.take(),
            latency_raw: self.latency_raw.take(),
            schedule: self.schedule.map(|_| ScheduleKept::default()),
            exchange: self.exchange.map(|_| DatagramsExchanged::default()),
            ..Self::default()
        };
        Self { latency, latency_raw, ..std::mem::replace(self, anew) }
    }
}

impl From<Tally> for SenderOutcome {
    /// Leaves out the parts of single kinds of traffic and the window's length.
    fn from(tally: Tally) -> Self {
        Self {
            sent_bytes: tally.sent_bytes,
            received_bytes: tally.received_bytes,
            transactions: tally.latency.is_some().then_some(tally.messages),
            latency: tally.latency,
            latency_raw: tally.latency_raw,
            schedule: tally.schedule,
            exchange: tally.exchange,
            cpu: tally.usage.cpu,
            busiest_cpu: tally.usage.cpu,
            switches: tally.usage.switches,
            retransmits: tally.usage.retransmits,
            ..Self::default()
        }
    }
}

impl From<Tally> for ReceiverOutcome {
    /// Leaves out the parts of single kinds of traffic and the window's length.
    fn from(tally: Tally) -> Self {
        Self {
            sent_bytes: tally.sent_bytes,
            received_bytes: tally.received_bytes,
            foreign: tally.foreign,
            cpu: tally.usage.cpu,
            switches: tally.usage.switches,
            retransmits: tally.usage.retransmits,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::clock::Window;
    use crate::slices::SliceLayout;
    use crate::workers::{Progress, TrafficRun};

    #[test]
    fn phases_follow_the_window_and_never_go_back() {
        let window = Window::starting_in(Nanos::from_s(5), Nanos::from_s(1)).unwrap();
        let run = run(window, None);
        let worker = run.thread(0, 1);
        let mut meter = Meter::leading(&worker);
        let ns = Nanos::from_ns(1);
        let over = window.end() + clock::COOL_DOWN;
        for (at, phase) in [
            (window.start() - ns, Phase::WarmUp),
            (window.start(), Phase::Window),
            (window.end() - ns, Phase::Window),
            (window.end(), Phase::CoolDown),
            (over - ns, Phase::CoolDown),
            (over, Phase::Over),
            (over + Nanos::from_s(60), Phase::Over),
        ] {
            assert_eq!(meter.phase(at), phase, "{at}");
        }
    }

    #[test]
    fn one_late_look_passes_every_boundary() {
        let window = Window::starting_in(Nanos::ZERO, Nanos::from_ms(1)).unwrap();
        let run = run(window, None);
        let worker = run.thread(0, 1);
        let mut meter = Meter::following(&worker, &[]);
        assert_eq!(meter.phase(window.end() + Nanos::from_s(9)), Phase::CoolDown);
        let tallies = meter.finish();
        assert_eq!(tallies.len(), 1);
        assert_eq!(tallies[0].usage.retransmits, Some(0));
    }

    #[test]
    fn window_ends_with_the_last_unit_asked_for() {
        let window = Window::starting_in(Nanos::ZERO, Nanos::from_s(60)).unwrap();
        let run = run(window, Some(10));
        let worker = run.thread(0, 1);
        let mut meter = Meter::leading(&worker);
        meter.done(window.start(), 100); // still warming up
        let at = window.start() + Nanos::from_ms(7);
        meter.phase(at);
        meter.done(at, 9);
        assert!(!worker.is_ending());
        meter.done(at, 2);
        assert!(worker.is_ending());
        assert_eq!((run.window_length(), run.progress.units()), (Nanos::from_ms(7), 11));
        assert!(worker.closed(None).is_ok());
    }

    #[test]
    fn slices_begin_with_cut_and_count_alone() {
        let window = sliced(250, 30, 3);
        let run = run(window, None);
        let worker = run.thread(0, 1);
        let mut meter = Meter::leading(&worker);
        let ns = Nanos::from_ns(1);
        for slice in 0..3 {
            let (start, part) = (window.slice_start(slice), window.slice(slice));
            for (at, phase) in [
                (start, Phase::Cut),
                (part.start() - ns, Phase::Cut),
                (part.start(), Phase::Window),
                (part.end() - ns, Phase::Window),
            ] {
                assert_eq!(meter.phase(at), phase, "{slice} {at}");
                assert_eq!(meter.slice(), (phase == Phase::Window).then_some(slice));
                meter.received(10, slice + 1);
                meter.sent(1);
                meter.done(at, 1);
            }
        }
        assert_eq!(meter.phase(window.end()), Phase::CoolDown);
        meter.received(10, 1);
        assert_eq!(run.progress.units(), 12, "cuts are progress too");
        let counts: Vec<_> = meter.finish().iter().map(counts).collect();
        assert_eq!(counts, [(20, 2, 2), (20, 4, 2), (20, 6, 2)]);
    }

    #[test]
    fn earlier_round_trip_is_not_charged() {
        let window = sliced(250, 30, 2);
        let run = run(window, None);
        let worker = run.thread(0, 1);
        let mut meter = Meter::leading(&worker);
        meter.tally.latency = Some(Histogram::new());
        let (second, ms) = (window.slice_start(1), Nanos::from_ms);
        let mut trip = |began: Nanos, ended: Nanos| {
            meter.phase(ended);
            meter.received(1, 1);
            meter.round_trips(began, ended, 1);
        };
        trip(window.start() - ms(1), window.slice(0).start()); // of the warm-up
        trip(window.start(), window.slice(0).start());
        trip(second - ms(2), second - ms(1));
        trip(second - ms(1), second + ms(1)); // ends in the cut
        trip(second - ms(1), second + ms(31)); // began under the setting before
        trip(second, second + ms(32));
        trip(second + ms(31), second + ms(33));
        let tallies = meter.finish();
        let trips = |idx: usize| tallies[idx].latency.as_ref().unwrap().count();
        assert_eq!((trips(0), trips(1)), (2, 2));
        // Arrivals are a rate and belong to the slice in which they came.
        assert_eq!((tallies[0].messages, tallies[1].messages), (3, 3));
    }

    #[test]
    fn empty_slices_are_present() {
        let window = sliced(250, 30, 5);
        let run = run(window, None);
        let worker = run.thread(0, 1);
        let mut meter = Meter::following(&worker, &[]);
        meter.tally.latency = Some(Histogram::new());
        for slice in [1, 3] {
            let at = window.slice(slice).start();
            assert_eq!(meter.phase(at), Phase::Window);
            meter.received(slice as usize, 1);
            meter.round_trips(at, at, 1);
        }
        let tallies = meter.finish();
        let messages: Vec<u64> = tallies.iter().map(|tally| tally.messages).collect();
        assert_eq!(messages, [0, 1, 0, 1, 0]);
        assert!(tallies.iter().all(|tally| tally.latency.is_some()));
    }

    #[test]
    fn late_result_counts_in_its_slice() {
        let window = sliced(250, 30, 3);
        let run = run(window, None);
        let worker = run.thread(0, 1);
        let mut meter = Meter::leading(&worker);
        meter.tally.exchange = Some(DatagramsExchanged::default());
        meter.phase(window.slice(1).start());
        for slice in [Some(0), Some(0), Some(1), Some(2), None] {
            if let Some(exchange) = meter.of_slice(slice).and_then(|it| it.exchange.as_mut()) {
                exchange.lost += 1;
            }
        }
        let lost: Vec<u64> = meter.finish().iter().map(|it| it.exchange.unwrap().lost).collect();
        assert_eq!(lost, [2, 1, 0], "the third had not begun");
    }

    #[test]
    fn requests_count_in_slices_they_fall_in() {
        let window = sliced(100, 10, 3);
        let run = run(window, None);
        let worker = run.thread(0, 1);
        let mut meter = Meter::leading(&worker);
        meter.tally.schedule = Some(ScheduleKept::default());
        let at = |ms: u64| window.start() + Nanos::from_ms(ms);
        for (due, sent) in [(20, 20), (5, 15), (50, 120), (60, 250), (105, 250), (150, 290)] {
            meter.enter_scheduled(at(due), at(sent));
        }
        meter.phase(window.end() + clock::COOL_DOWN);
        let kept: Vec<_> = meter.finish().iter().map(|it| it.schedule.unwrap()).collect();
        let kept: Vec<_> = kept.iter().map(|it| (it.due, it.sent, it.backlog)).collect();
        assert_eq!(kept, [(3, 2, 2), (1, 1, 3), (0, 3, 0)]);
    }

    fn counts(tally: &Tally) -> (u64, u64, u64) {
        (tally.received_bytes, tally.messages, tally.sent_bytes)
    }

    fn sliced(length_ms: u64, cut_ms: u64, count: u32) -> Window {
        let (length, cut) = (Nanos::from_ms(length_ms), Nanos::from_ms(cut_ms));
        let window = Window::starting_in(Nanos::from_s(5), length).unwrap();
        window.in_slices(SliceLayout::new(length, cut, count)).unwrap()
    }

    fn run(window: Window, goal: Option<u64>) -> TrafficRun<'static> {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        TrafficRun::new(&[], peer, window, true, Progress::new(1, goal))
    }
}
