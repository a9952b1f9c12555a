//! The agent's host: its knobs, in one session that is put back at the end, and its counters.

mod connections;
mod groups;
mod live;
mod samples;
mod traced;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use latput_knobs::transaction::{Change, Restored, Session};
use latput_knobs::{ChangeOutcome, KernelRead, Knob, LinkResets, Setting, State};
use latput_linux::others::{Benchmark, ProcessTimes};
use latput_linux::route::Route;
use latput_linux::{
    Control, CounterSnapshot, FileCheckpoints, LinuxKernel, OtherWork, Sampler, Throttles, Watch,
    checkpoint, lab, process, surroundings,
};
use latput_load::{Stop, Window};
use latput_protocol::control::{
    AgentInfo, EarlyEnd, Failure, LINK_WITHIN, LinkReset, OpenRequest, SCHEMA, SettingTurns,
    clock_id, failure_with_outcome, make_failure,
};
use latput_protocol::folders::checkpoints_dir;
use latput_protocol::text::format_error_chain;
use latput_trial::Surroundings;
use latput_trial::nic::Nic;
use latput_trial::observation::{HostObservation, OtherProcess};
use latput_trial::overrun::ReceiveSide;
use latput_trial::results::HostFacts;
use latput_units::{Clock, CpuSet, IntoMap, IntoSet, Nanos};

use self::traced::TracedSpans;
use crate::keeper_line::WindowCounts;

/// Interval of snapshots of the interface's counters in the window. Other counters are read at its
/// two ends.
pub(crate) const GLANCE_EVERY: Nanos = Nanos::from_ms(100);

/// Interval of reading the link in that time.
const LINK_LOOK_EVERY: Duration = Duration::from_millis(20);

/// A window that may end before its time.
#[derive(Clone, Copy)]
pub(crate) struct EndsEarly<'a> {
    pub(crate) is_over: &'a dyn Fn() -> bool,
    pub(crate) early_end: EarlyEnd,
}

/// The host that an agent is for.
#[derive(Debug)]
pub(crate) struct HostSession {
    open: OpenRequest,
    cpus: CpuSet,
    kernel: LinuxKernel,
    sampler: Sampler,
    session: Option<Session<LinuxKernel, FileCheckpoints>>,
    watch: Watch,
    /// Whether its link was up at the start.
    was_linked: bool,
    /// How often the link had gone up or down when the current setting was in force; `None` if the kernel does not tell.
    carrier_changes: Option<u64>,
    /// The knobs of the current setting.
    wanted: BTreeSet<Knob>,
    /// Knobs that were left to somebody else or lost since the last report, in sentences.
    left: Vec<String>,
    /// Known connections of live traffic.
    tcp_known: connections::KnownConnections,
}

impl HostSession {
    /// Reads the host's facts, and locks its interface if knobs will be set.
    pub(crate) fn open(open: OpenRequest) -> Result<(Self, AgentInfo), Failure> {
        let broken = |error: latput_linux::Error| {
            failure_with_outcome(error.outcome(), format_error_chain(&error))
        };
        let cpus = match &open.cpus {
            Some(cpus) => cpus.clone(),
            None => process::allowed_cpus().map_err(broken)?,
        };
        let mut notes = Vec::new();
        if let Err(error) = process::bind_thread(&cpus) {
            notes.push(format!("not bound to CPUs {cpus}: {}", format_error_chain(&error)));
        }
        let sampler = Sampler::open(&open.interface, &cpus).map_err(broken)?;
        notes.extend(not_traced(&sampler));
        let facts = HostFacts {
            host: open.host.clone(),
            role: open.role,
            interface: open.interface.clone(),
            facts: latput_linux::facts::collect(&open.interface),
        };
        let session = if open.will_set { Some(claim_interface(&open)?) } else { None };
        let boot_id = process::boot_id().map_err(broken)?;
        let kernel = LinuxKernel::open().map_err(broken)?;
        let receive = ReceiveSide::new(
            open.host.clone(),
            open.role,
            latput_linux::facts::link_speed(&open.interface),
            &kernel.read_all(&open.interface),
        );
        let opened = AgentInfo {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clock: clock_id(&boot_id),
            boot_id,
            cpus: cpus.clone(),
            facts,
            receive,
            notes,
        };
        let watch = Watch::open(&open.interface, Nanos::ZERO).map_err(broken)?;
        let wanted = BTreeSet::new();
        let left = Vec::new();
        let was_linked = is_linked(&open.interface).map_err(broken)?;
        let host = Self {
            open,
            cpus,
            kernel,
            sampler,
            session,
            watch,
            was_linked,
            carrier_changes: None,
            wanted,
            left,
            tcp_known: connections::KnownConnections::default(),
        };
        Ok((host, opened))
    }

    /// Waits until the interface's link is up, if it was up at the start.
    pub(crate) fn await_link(&self, stop: &Stop) -> Result<(), Failure> {
        let interface = &self.open.interface;
        let begun = Instant::now();
        while self.was_linked
            && !is_linked(interface).map_err(|error| make_failure(format_error_chain(&error)))?
        {
            if stop.is_raised() {
                return Err(make_failure("interrupted"));
            }
            if begun.elapsed() > LINK_WITHIN {
                let seconds = LINK_WITHIN.as_secs();
                return Err(make_failure(format!(
                    "the link of {interface} has been down for {seconds} s. Check the cable and the other end, or \
                     bring the interface up"
                )));
            }
            std::thread::sleep(LINK_LOOK_EVERY);
        }
        Ok(())
    }

    /// The values of these knobs; one that cannot be read is absent.
    pub(crate) fn read(&self, knobs: &[Knob]) -> State {
        let read = self.kernel.read_many(&self.open.interface, knobs);
        let values =
            knobs.iter().zip(read).filter_map(|(knob, values)| Some((*knob, values.ok()?)));
        let places = values.flat_map(|(knob, values)| {
            values.into_iter().map(move |(place, value)| ((knob, place), value))
        });
        State(places.into_map())
    }

    /// Surveys the interface and the knobs that can be set.
    pub(crate) fn survey_interface(&self) -> Result<Nic, Failure> {
        let nic = self.kernel.nic(&self.open.interface, &self.cpus);
        nic.map_err(|error| make_failure(format_error_chain(&error)))
    }

    /// Watches the host for `span` and tells what could disturb a trial.
    pub(crate) fn watch_surroundings(
        &mut self,
        span: Nanos,
        stop: &Stop,
    ) -> Result<Surroundings, Failure> {
        let broken = |error: latput_linux::Error| make_failure(format_error_chain(&error));
        let mut work =
            OtherWork::sees_all().then(|| OtherWork::begin(&self.cpus, Benchmark::OfLatput));
        let before = work.as_ref().map(OtherWork::read);
        let first = self.sampler.sample().map_err(broken)?;
        sleep_until(process::OsClock.now() + span, GLANCE_EVERY, || stop.is_raised());
        let last = self.sampler.sample().map_err(broken)?;
        let others = work.take().zip(before).map(|(work, before)| others_since(work, &before));
        if stop.is_raised() {
            return Err(make_failure("interrupted"));
        }
        let OpenRequest { host, role, interface, .. } = &self.open;
        let seen = first.until(&last, host, *role, State::default()).map_err(broken)?;
        let time = seen.cpu();
        let share = |part: Nanos| part.as_secs_f64() / time.total().as_secs_f64().max(f64::EPSILON);
        let packets = seen.interface.rx_packets + seen.interface.tx_packets;
        Ok(Surroundings {
            host: host.clone(),
            interface: interface.clone(),
            span: seen.window,
            boot: process::boot_id().map_err(broken)?,
            cpus: self.cpus.clone(),
            other_work_cpu_ratio: others.as_ref().map(|(share, _)| *share),
            others: others.map(|(_, others)| others).unwrap_or_default(),
            busy_ratio: share(time.busy()),
            steal_ratio: share(time.steal),
            packets_per_s: packets as f64 / seen.window.as_secs_f64().max(f64::EPSILON),
            governors: surroundings::governors(&self.cpus),
            deepest_idle: surroundings::deepest_idle(&self.cpus),
            tuners: surroundings::tuners(),
        })
    }

    /// Applies a setting, except for knobs that somebody else has changed meanwhile. Returns the
    /// values read back.
    pub(crate) fn apply_setting(&mut self, setting: &Setting) -> Result<State, Failure> {
        self.leave_to_others()?;
        let mut found = State::default();
        self.wanted = setting.keys().copied().into_set();
        let interface = &self.open.interface;
        let broken = |error: latput_linux::Error| make_failure(format_error_chain(&error));
        if let Some(session) = &mut self.session {
            let applied = session.apply(setting).map_err(|error| {
                failure_with_outcome(error.outcome(), format_error_chain(&error))
            })?;
            let makes_threads = |change: &Change| {
                change.knob == Knob::Threaded || change.knob.spec().resets.contains(&Knob::Threaded)
            };
            if applied.changes.iter().any(makes_threads) {
                self.sampler.look_up_threads(interface).map_err(broken)?;
            }
            if self.open.binds_napi_threads {
                lab::pin_napi_threads(interface, &self.cpus).map_err(broken)?;
            }
            let held = session.checkpoint().undo.0.keys().map(|(knob, _)| *knob);
            let watched = held.filter(|knob| !knob.spec().is_negotiated).chain(self.wanted.clone());
            self.watch.expect(&self.kernel, watched);
            self.carrier_changes = self.kernel.carrier_changes(interface).ok();
            found = applied.found;
        } else if !setting.is_empty() {
            return Err(make_failure("the session was opened for reading only"));
        }
        Ok(found)
    }

    /// Whether a setting could be applied, as far as can be told without a write.
    pub(crate) fn rehearse_setting(&self, setting: &Setting) -> Result<(), Failure> {
        let Some(session) = &self.session else {
            return Err(make_failure("the session was opened for reading only"));
        };
        let rehearsed = session.rehearse(setting);
        rehearsed
            .map(|_| ())
            .map_err(|error| failure_with_outcome(error.outcome(), format_error_chain(&error)))
    }

    /// Stops managing the knobs that somebody else has changed since they were last set: the
    /// administrator has priority. What was lost because the link went down and up is nobody's, and
    /// the next setting writes it again.
    fn leave_to_others(&mut self) -> Result<(), Failure> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let carrier_changes = self.kernel.carrier_changes(&self.open.interface).ok();
        let was_down = carrier_changes != self.carrier_changes;
        for change in self.watch.check(&self.kernel) {
            let is_lost = was_down && session.is_lost_with_link(&change);
            let Change { knob, place, from, to } = change;
            if is_lost {
                self.left.push(format!(
                    "{knob} ({place}) fell from {from} to {to} when the link went down and up: it is set again"
                ));
                continue;
            }
            session.give_up(knob).map_err(|error| make_failure(format_error_chain(&error)))?;
            self.left.push(format!(
                "another program changed {knob} ({place}) from {from} to {to}: latput leaves it alone from now \
                 on and does not put it back"
            ));
        }
        Ok(())
    }

    /// The knobs of the current setting that the host does not have, in sentences.
    fn not_in_force(&self) -> Vec<String> {
        let given_up = self.session.iter().flat_map(Session::given_up);
        let lacking = given_up.filter(|knob| self.wanted.contains(knob));
        lacking
            .map(|knob| {
                format!(
                    "knob {knob} was changed by another program and is not as the setting wants it"
                )
            })
            .collect()
    }

    /// Knobs that were left to somebody else since the last call.
    fn take_left(&mut self) -> Vec<String> {
        std::mem::take(&mut self.left)
    }

    /// Counts over the window, and reports the knobs that changed in it and what held the host back. The window may end
    /// `early`. `watch` receives each snapshot of the interface's counters, the first at the window's start and the last at
    /// its end.
    pub(crate) fn observe_window(
        &mut self,
        window: Window,
        benchmark: Benchmark,
        stop: &Stop,
        early: Option<EndsEarly<'_>>,
        watch: &mut dyn FnMut(&CounterSnapshot),
    ) -> Result<WindowCounts, Failure> {
        let before = self.kernel.read_all(&self.open.interface);
        let mut beside = InterferenceMeter::start_counting(&self.cpus, benchmark);
        let broken = |error: latput_linux::Error| make_failure(format_error_chain(&error));
        let piece = || {
            let elapsed = process::OsClock.now().saturating_sub(window.start());
            early.map_or(GLANCE_EVERY, |early| early.early_end.next_look(elapsed))
        };
        let is_over = || early.is_some_and(|early| (early.is_over)()) || stop.is_raised();
        let traced = self.trace_before_window(window.start(), window.length(), stop)?;
        sleep_until(window.start(), GLANCE_EVERY, || stop.is_raised());
        let first = self.sampler.sample().map_err(broken)?;
        watch(&self.sampler.snapshot().map_err(broken)?);
        let mut snapshots = Vec::new();
        let mut at = window.start() + GLANCE_EVERY;
        while at < window.end() && !is_over() {
            sleep_until(at, piece(), is_over);
            let snapshot = self.sampler.snapshot().map_err(broken)?;
            watch(&snapshot);
            snapshots.push(snapshot);
            at = at + GLANCE_EVERY;
        }
        sleep_until(window.end(), piece(), is_over);
        let last = self.sampler.sample().map_err(broken)?;
        watch(&self.sampler.snapshot().map_err(broken)?);
        if stop.is_raised() {
            return Err(make_failure("interrupted"));
        }
        let mut drift =
            describe_state_changes(&before, &self.kernel.read_all(&self.open.interface));
        self.leave_to_others()?;
        drift.extend(self.not_in_force());
        let mut observation =
            first.until(&last, &self.open.host, self.open.role, before).map_err(broken)?;
        if let Some(traced) = &traced {
            traced.divide(&mut observation);
        }
        observation.packets_per_interval = packets_per_interval(&snapshots);
        beside.count_slice(&mut observation);
        let held_back = beside.finish_counting(std::slice::from_mut(&mut observation));
        let slices = vec![(observation, Nanos::ZERO)];
        Ok(WindowCounts { slices, drift, held_back, left: self.take_left() })
    }

    /// Counts in each slice of the window. Each slice's setting is applied at its start, and
    /// counted from the end of its cut. Returns each slice's counters with the duration of its
    /// change, and the knobs that drifted.
    pub(crate) fn take_turns(
        &mut self,
        window: Window,
        turns: &SettingTurns,
        stop: &Stop,
        watch: &mut dyn FnMut(&CounterSnapshot),
    ) -> Result<WindowCounts, Failure> {
        let broken = |error: latput_linux::Error| make_failure(format_error_chain(&error));
        // Slices without a cut are steps that look for carry-over: no figures, and too short to look around.
        let mut beside = (turns.slices.cut > Nanos::ZERO)
            .then(|| InterferenceMeter::start_counting(&self.cpus, Benchmark::OfLatput));
        let mut state = self.kernel.read_all(&self.open.interface);
        let mut in_force = None;
        let (mut seen, mut changes) = (Vec::with_capacity(turns.order.len()), Vec::new());
        let mut spans = TracedSpans::new(turns, self.is_first());
        for (idx, &turn) in (0..).zip(&turns.order) {
            let slice = window.slice(idx);
            let start = slice.start().saturating_sub(turns.slices.cut_of(idx));
            sleep_until(start, GLANCE_EVERY, || stop.is_raised());
            let mut change = Nanos::ZERO;
            if in_force != Some(turn) {
                state.0.extend(self.apply_setting(&turns.settings[turn])?.0);
                change = process::OsClock.now().saturating_sub(start);
                in_force = Some(turn);
            }
            if spans.is_wanted(idx, turn) {
                spans.store_span(idx, turn, self.trace_before_slice(slice.start(), stop)?);
            }
            sleep_until(slice.start(), GLANCE_EVERY, || stop.is_raised());
            let first = self.sampler.sample().map_err(broken)?;
            watch(&self.sampler.snapshot().map_err(broken)?);
            sleep_until(slice.end(), GLANCE_EVERY, || stop.is_raised());
            let last = self.sampler.sample().map_err(broken)?;
            if stop.is_raised() {
                return Err(make_failure("interrupted"));
            }
            let host = &self.open.host;
            let role = self.open.role;
            let mut slice = first.until(&last, host, role, state.clone()).map_err(broken)?;
            if let Some(beside) = &mut beside {
                beside.count_slice(&mut slice);
            }
            seen.push(slice);
            changes.push(change);
        }
        watch(&self.sampler.snapshot().map_err(broken)?);
        spans.divide_slices(&mut seen, &turns.order);
        let mut drift = describe_state_changes(&state, &self.kernel.read_all(&self.open.interface));
        self.leave_to_others()?;
        drift.extend(self.not_in_force());
        let held_back = beside.map_or_else(Vec::new, |beside| beside.finish_counting(&mut seen));
        let slices = seen.into_iter().zip(changes).collect();
        Ok(WindowCounts { slices, drift, held_back, left: self.take_left() })
    }

    /// Puts every knob back except those that somebody else has changed. Returns those, if they
    /// were not reported yet.
    pub(crate) fn close(mut self) -> Result<Vec<String>, Failure> {
        self.leave_to_others()?;
        let mut left = self.take_left();
        let Some(session) = self.session.take() else { return Ok(left) };
        let restored = session
            .close()
            .map_err(|error| failure_with_outcome(error.outcome(), format_error_chain(&error)))?;
        if let Restored::Done { others, .. } = restored {
            left.extend(others.iter().map(|other| format!("{other}; it stays")));
        }
        Ok(left)
    }
}

/// Counts that are missing for lack of tracing, in sentences; one privilege gives both.
fn not_traced(sampler: &Sampler) -> Vec<String> {
    let napi = sampler.napi_obstacle().map(|error| ("NAPI polls are not counted", error));
    let time = sampler.trace_obstacle().map(|error| ("CPU time is not traced by class", error));
    let record = sampler.record_obstacle().map(|error| (no_record(sampler), error));
    let found: Vec<_> = napi.into_iter().chain(time).chain(record).collect();
    if found.len() == 3
        && let Err(missing) = process::Capability::Bpf.require("tracing")
    {
        let what: Vec<&str> = found.iter().map(|(what, _)| *what).collect();
        return vec![format!("{}: {missing}", what.join("; "))];
    }
    found.iter().map(|(what, error)| format!("{what}: {}", format_error_chain(*error))).collect()
}

/// Consequence where the kernel's record of idle time cannot be read.
fn no_record(sampler: &Sampler) -> &'static str {
    if sampler.trace_obstacle().is_some() {
        "CPU time in steps of 10 ms"
    } else {
        "CPU time is traced in the windows, which slows the traffic"
    }
}

fn claim_interface(open: &OpenRequest) -> Result<Session<LinuxKernel, FileCheckpoints>, Failure> {
    let broken = |error: latput_linux::Error| make_failure(format_error_chain(&error));
    let needed = process::Capability::NetAdmin.require(&format!("setting {}", open.interface));
    needed.map_err(|error| {
        failure_with_outcome(ChangeOutcome::refused(true), format_error_chain(&error))
    })?;
    let kernel = LinuxKernel::open().map_err(broken)?;
    let store = FileCheckpoints::new(&checkpoints_dir());
    let mut origin = checkpoint::context().map_err(broken)?;
    origin.by = origin.by.with_command(&open.controller.agents_name());
    origin.link_resets = match open.link_reset {
        LinkReset::AllowedOnControl => LinkResets::Allowed,
        _ if Control::find().map_err(broken)?.interfaces.contains(&open.interface) => {
            LinkResets::RefusedOnControl
        }
        LinkReset::Allowed => LinkResets::Allowed,
        LinkReset::Refused => LinkResets::Refused,
    };
    Session::open(kernel, store, &origin, &open.interface)
        .map_err(|error| failure_with_outcome(error.outcome(), format_error_chain(&error)))
}

impl Drop for HostSession {
    /// Puts the host back after any end. Knobs that somebody else has changed stay.
    fn drop(&mut self) {
        let _ = self.leave_to_others();
    }
}

/// Whether the interface is up and has carrier, as its driver reports.
fn is_linked(interface: &str) -> Result<bool, latput_linux::Error> {
    let link = Route::open()?.link(interface)?;
    Ok(link.is_up && link.has_carrier != Some(false))
}

/// Packets in and out between consecutive snapshots.
fn packets_per_interval(snapshots: &[CounterSnapshot]) -> Vec<u64> {
    let packets =
        |snapshot: &CounterSnapshot| snapshot.interface.rx_packets + snapshot.interface.tx_packets;
    snapshots.windows(2).map(|pair| packets(&pair[1]).saturating_sub(packets(&pair[0]))).collect()
}

fn describe_state_changes(before: &State, after: &State) -> Vec<String> {
    let mut changes = Vec::new();
    for (key, value) in &before.0 {
        let (knob, place) = key;
        match after.0.get(key) {
            Some(now) if now == value => {}
            Some(now) => {
                changes.push(format!("knob {knob} ({place}) changed from {value} to {now}"));
            }
            None => changes.push(format!("knob {knob} ({place}) is gone")),
        }
    }
    changes
}

/// Sleeps in pieces of at most `piece`; ends early when `is_over`.
fn sleep_until(instant: Nanos, piece: Nanos, is_over: impl Fn() -> bool) {
    while !is_over() {
        let left = instant.saturating_sub(process::OsClock.now());
        if left == Nanos::ZERO {
            return;
        }
        std::thread::sleep(left.min(piece).as_duration());
    }
}

/// A count of what else goes on, from before the first slice until after the last.
#[derive(Debug)]
struct InterferenceMeter {
    cpus: CpuSet,
    /// The meter and its last reading; `None` where not all processes are seen.
    work: Option<(OtherWork, ProcessTimes)>,
    throttles: Throttles,
    /// Length of the slices so far.
    counted: Nanos,
}

impl InterferenceMeter {
    /// Begins to count. Takes a few milliseconds, so it belongs before the window.
    fn start_counting(cpus: &CpuSet, benchmark: Benchmark) -> Self {
        let work = OtherWork::sees_all().then(|| {
            let work = OtherWork::begin(cpus, benchmark);
            let first = work.read();
            (work, first)
        });
        let throttles = Throttles::read(cpus);
        Self { cpus: cpus.clone(), work, throttles, counted: Nanos::ZERO }
    }

    /// Counts the time since the last slice as this one's, which it is but for its cut.
    fn count_slice(&mut self, slice: &mut HostObservation) {
        self.counted = self.counted.saturating_add(slice.window);
        let Some((work, first)) = &mut self.work else { return };
        let last = work.read();
        let span = last.at().saturating_sub(first.at()).as_secs_f64();
        let share = work.between(first, &last).as_secs_f64() / span.max(f64::EPSILON);
        slice.other_work_cpu = Some(part_of(slice.window, share));
        *first = last;
    }

    /// Ends the count of these slices. The last one gets the names. Returns what held the host back.
    fn finish_counting(self, slices: &mut [HostObservation]) -> Vec<String> {
        let held_back = self.throttles.until(&Throttles::read(&self.cpus));
        let Some((work, _)) = self.work else { return held_back };
        let (others, of_children) = work.end(self.counted);
        for slice in slices.iter_mut() {
            let known = slice.other_work_cpu.unwrap_or_default();
            // A process that goes from CPU to CPU counts on each, and no CPU has more time than the window.
            let most = slice.window.saturating_mul(slice.cpus.len() as u64);
            let all = known.saturating_add(part_of(slice.window, of_children));
            slice.other_work_cpu = Some(all.min(most));
        }
        if let Some(last) = slices.last_mut() {
            last.others = others;
        }
        held_back
    }
}

fn part_of(window: Nanos, share: f64) -> Nanos {
    Nanos::from_secs_f64(window.as_secs_f64() * share)
}

/// The share of a CPU that other processes took since a reading, and the busiest of them.
fn others_since(mut work: OtherWork, before: &ProcessTimes) -> (f64, Vec<OtherProcess>) {
    let last = work.read();
    let span = last.at().saturating_sub(before.at());
    let share = work.between(before, &last).as_secs_f64() / span.as_secs_f64().max(f64::EPSILON);
    let (others, of_children) = work.end(span);
    (share + of_children, others)
}
