//! A block on live traffic: counts under today's setting, under another, and under today's again, and puts today's back at
//! once when a guard is broken.

use std::collections::BTreeMap;

use latput_knobs::{ChangeOutcome, Refusal, Setting, State};
use latput_linux::{Sample, process};
use latput_load::Stop;
use latput_trial::live::TcpGroup;
use latput_trial::observation::{HostObservation, TcpObservation};
use latput_trial::{Observation, Traffic};
use latput_units::{Clock, Nanos};

use super::connections::{Connections, Known};
use super::{GLANCE_EVERY, HostSession, chain, differences, sleep_until};
use crate::live::{Broken, Guard, LiveBlock, LiveSeen, Span, TICK, TickSeen, TimedFigure, put_at};
use crate::protocol::{Failure, failed};

/// Most share of a CPU that readings take: they become rarer where one takes long.
const TICK_PER_COST: u64 = 50;
/// Time without a packet after which the traffic counts as stopped.
const SILENT_FOR: Nanos = Nanos::from_s(2);

/// The readings of a block.
struct Readings<'a> {
    connections: Option<Connections<'a>>,
    notes: Vec<String>,
    stop: &'a Stop,
    is_told: &'a dyn Fn() -> bool,
}

/// Observations of a span of a block.
struct SpanSeen {
    host: HostObservation,
    /// For each guard, tick by tick.
    logs: Vec<Vec<Option<f64>>>,
    steps: Vec<TickSeen>,
    /// The guard that was broken, its figure, and the time of the reading.
    broken: Option<(usize, f64, Nanos)>,
    ended: Option<String>,
}

/// How a span is watched.
struct Watched<'a> {
    span: Span,
    guards: &'a [Guard],
    /// Today's figure of each guard; empty in the span that gives them.
    todays: &'a [TimedFigure],
    /// Whether a broken guard ends the span.
    is_guarded: bool,
    state: State,
}

/// The counts from one moment on.
struct Counts {
    first: Sample,
    tcp: TcpObservation,
    /// CPU time of tracing until then; `None` where nothing is traced.
    tracing: Option<Nanos>,
}

impl HostSession {
    /// Runs a block. `is_told` says that the slice is to end early.
    pub(crate) fn live(
        &mut self,
        block: &LiveBlock,
        stop: &Stop,
        is_told: &dyn Fn() -> bool,
    ) -> Result<LiveSeen, Failure> {
        if !block.is_possible() {
            return Err(failed("no host could run a block of live traffic"));
        }
        let mut readings =
            Readings::open(block, stop, is_told, std::mem::take(&mut self.tcp_known));
        let state = self.kernel.read_all(&self.open.interface);
        let [before, slice, after] = block.spans();
        let guards = &block.guards;
        let today =
            Watched { span: before, guards, todays: &[], is_guarded: false, state: state.clone() };
        let first = self.watch_span(&today, &mut readings)?;
        let todays = figures(guards, first.host.clone());
        let mut seen = LiveSeen::of_today(first.host, guards.len());
        seen.is_silent_today = first.ended.is_some();
        let told = || is_told().then(|| "it was told to end".to_owned());
        seen.ended = why_not(block, &seen.before, &todays).or(first.ended).or_else(told);
        if seen.ended.is_some() {
            return Ok(self.told(seen, readings, &state));
        }
        let is_other = !block.setting.is_empty();
        let mut found = state.clone();
        if is_other {
            match self.put_in_force(&block.setting) {
                Ok((values, change)) => {
                    found.0.extend(values.0);
                    seen.changes[0] = change;
                }
                Err(failure) if is_about_the_level(failure.outcome) => {
                    self.put_in_force(&Setting::default())?;
                    seen.refused = Some(failure.message);
                    return Ok(self.told(seen, readings, &state));
                }
                Err(failure) => return Err(failure),
            }
        }
        let other =
            Watched { span: slice, guards, todays: &todays, is_guarded: is_other, state: found };
        let other = self.watch_span(&other, &mut readings);
        if is_other {
            // Whatever became of the slice.
            seen.changes[1] = self.put_in_force(&Setting::default())?.1;
        }
        let other = other?;
        let back_at = process::OsClock.now();
        seen.back_at = back_at;
        seen.broken = other.broken.map(|(guard, value, at)| Broken {
            guard,
            value,
            today: todays[guard].value,
            after: at.saturating_sub(slice.from),
            until_back: back_at.saturating_sub(at),
        });
        let is_whole = other.broken.is_none() && other.ended.is_none();
        (seen.slice, seen.ended) = (Some(other.host), other.ended);
        (seen.of_slice, seen.steps[0]) = (other.logs, other.steps);
        if is_whole {
            let again = Watched {
                span: after,
                guards,
                todays: &todays,
                is_guarded: false,
                state: state.clone(),
            };
            let again = self.watch_span(&again, &mut readings)?;
            seen.is_silent_today = again.ended.is_some();
            (seen.after, seen.ended) = (Some(again.host), again.ended);
            (seen.of_after, seen.steps[1]) = (again.logs, again.steps);
        }
        Ok(self.told(seen, readings, &state))
    }

    /// The values that were read back, and the duration of the change.
    fn put_in_force(&mut self, setting: &Setting) -> Result<(State, Nanos), Failure> {
        let begun = process::OsClock.now();
        let found = self.set(setting)?;
        Ok((found, process::OsClock.now().saturating_sub(begun)))
    }

    /// Adds what is told at the end of a block.
    fn told(&mut self, seen: LiveSeen, readings: Readings<'_>, state: &State) -> LiveSeen {
        let mut drift = differences(state, &self.kernel.read_all(&self.open.interface));
        drift.extend(self.not_in_force());
        self.tcp_known = readings.connections.map(Connections::into_known).unwrap_or_default();
        LiveSeen { notes: readings.notes, drift, left: self.take_left(), ..seen }
    }

    /// Counts in a span, tick by tick.
    fn watch_span(
        &mut self,
        watched: &Watched<'_>,
        readings: &mut Readings<'_>,
    ) -> Result<SpanSeen, Failure> {
        let span = watched.span;
        sleep_until(span.from, GLANCE_EVERY, || readings.stop.is_raised());
        let traced = self.trace_now(readings.stop)?;
        let mut last = self.sampled()?;
        let _before_the_span = (readings.tcp(), readings.tcp_groups());
        let mut since_change = Counts::from(&last, readings);
        let mut measured: Option<Counts> = None;
        let mut seen = SpanSeen::new(watched.guards.len());
        let mut moved_at = last.at;
        let mut next = span.from;
        while last.at < span.to && seen.broken.is_none() && seen.ended.is_none() {
            if measured.is_none() && last.at >= span.measured_from {
                measured = Some(Counts::from(&last, readings));
                let _before_it = readings.tcp_groups();
            }
            let border = if measured.is_none() { span.measured_from } else { span.to };
            sleep_until(next.min(border), TICK, || readings.stop.is_raised());
            if readings.stop.is_raised() {
                return Err(failed("interrupted"));
            }
            let begun = process::OsClock.now();
            let sample = self.sampled()?;
            let tcp = readings.tcp();
            let cost = process::OsClock.now().saturating_sub(begun);
            next = begun + TICK.max(cost.saturating_mul(TICK_PER_COST));
            let tick = self.counted(&last, &sample, tcp.clone())?;
            if packets(&tick) > 0 {
                moved_at = sample.at;
            }
            seen.steps.push(step(&tick));
            for counts in [Some(&mut since_change), measured.as_mut()].into_iter().flatten() {
                counts.tcp = std::mem::take(&mut counts.tcp).joined(&tcp);
            }
            let so_far = self.counted(&since_change.first, &sample, since_change.tcp.clone())?;
            seen.judge(watched, so_far, sample.at);
            last = sample;
            if last.at.saturating_sub(moved_at) >= SILENT_FOR {
                seen.ended = Some("the traffic has stopped".to_owned());
            } else if watched.is_guarded && (readings.is_told)() {
                seen.ended = Some("it was told to end".to_owned());
            }
        }
        // A span that ended before its measured part is counted from the change.
        let Counts { first, tcp, tracing } = measured.unwrap_or(since_change);
        let traced_until = readings.tracing_cost();
        seen.host = HostObservation {
            state: watched.state.clone(),
            tcp_groups: readings.tcp_groups(),
            tracing_cpu: tracing.zip(traced_until).map(|(from, to)| to.saturating_sub(from)),
            ..self.counted(&first, &last, tcp)?
        };
        if let Some(traced) = &traced {
            traced.divide(&mut seen.host);
        }
        if packets(&seen.host) == 0 && seen.ended.is_none() {
            seen.ended = Some("no packet was received or sent".to_owned());
        }
        Ok(seen)
    }

    fn sampled(&mut self) -> Result<Sample, Failure> {
        self.sampler.sample().map_err(|error| failed(chain(&error)))
    }

    /// Counts between two samples, without the values of knobs.
    fn counted(
        &self,
        first: &Sample,
        last: &Sample,
        tcp: TcpObservation,
    ) -> Result<HostObservation, Failure> {
        let counted = first.until(last, &self.open.host, self.open.role, State::default());
        let counted = counted.map_err(|error| failed(chain(&error)))?;
        let opened = last.tcp_opened.saturating_sub(first.tcp_opened);
        let tcp = (tcp.readings > 0).then_some(TcpObservation { opened, ..tcp });
        Ok(HostObservation { tcp, ..counted })
    }
}

impl Counts {
    fn from(first: &Sample, readings: &Readings<'_>) -> Self {
        let (first, tracing) = (first.clone(), readings.tracing_cost());
        Self { first, tcp: TcpObservation::default(), tracing }
    }
}

impl SpanSeen {
    fn new(guards: usize) -> Self {
        Self {
            host: HostObservation::default(),
            logs: vec![Vec::new(); guards],
            steps: Vec::new(),
            broken: None,
            ended: None,
        }
    }

    /// Judges each guard by what was counted since the change.
    fn judge(&mut self, watched: &Watched<'_>, so_far: HostObservation, at: Nanos) {
        let ticks = at.saturating_sub(watched.span.from).as_ns() / TICK.as_ns();
        let tick = usize::try_from(ticks).unwrap_or(usize::MAX).saturating_sub(1);
        let now =
            if watched.todays.is_empty() { Vec::new() } else { figures(watched.guards, so_far) };
        let judged = watched.guards.iter().zip(now).zip(watched.todays);
        for (idx, ((guard, now), today)) in judged.enumerate() {
            let judged = guard.judge(tick, now, *today);
            put_at(&mut self.logs[idx], tick, judged.log);
            if judged.is_broken && watched.is_guarded && self.broken.is_none() {
                self.broken = Some((idx, now.value.unwrap_or_default(), at));
            }
        }
    }
}

impl<'a> Readings<'a> {
    fn open(
        block: &'a LiveBlock,
        stop: &'a Stop,
        is_told: &'a dyn Fn() -> bool,
        known: Known,
    ) -> Self {
        let mut notes = Vec::new();
        let connections = Connections::open(&block.watch, known, &mut notes)
            .map_err(|error| {
                notes.push(format!("no figures of TCP connections: {}", chain(&error)));
            })
            .ok();
        Self { connections, notes, stop, is_told }
    }

    /// Reads the changes of the connections; nothing if they cannot be read, which is told once.
    fn tcp(&mut self) -> TcpObservation {
        let Some(connections) = &mut self.connections else { return TcpObservation::default() };
        connections.read(&mut self.notes).unwrap_or_else(|error| {
            self.connections = None;
            self.notes.push(format!("no figures of TCP connections: {}", chain(&error)));
            TcpObservation::default()
        })
    }
}

impl Readings<'_> {
    /// CPU time that tracing has taken so far in this block.
    fn tracing_cost(&self) -> Option<Nanos> {
        self.connections.as_ref().map(Connections::tracing_cost)
    }

    /// Takes the changes of the groups of connections since the last call.
    fn tcp_groups(&mut self) -> BTreeMap<TcpGroup, TcpObservation> {
        self.connections.as_mut().map(Connections::take_groups).unwrap_or_default()
    }
}

impl LiveSeen {
    /// A block with the observation before the other setting, and nothing more yet.
    pub(crate) fn of_today(before: HostObservation, guards: usize) -> Self {
        Self {
            before,
            slice: None,
            after: None,
            of_slice: vec![Vec::new(); guards],
            of_after: vec![Vec::new(); guards],
            steps: [Vec::new(), Vec::new()],
            changes: [Nanos::ZERO; 2],
            back_at: Nanos::ZERO,
            broken: None,
            is_silent_today: false,
            refused: None,
            ended: None,
            todays_figures: BTreeMap::new(),
            figures_before: BTreeMap::new(),
            figures_after: BTreeMap::new(),
            figures: BTreeMap::new(),
            notes: Vec::new(),
            drift: Vec::new(),
            left: Vec::new(),
        }
    }
}

/// Whether a failed change has left everything as it was, and another setting may succeed.
const fn is_about_the_level(outcome: ChangeOutcome) -> bool {
    matches!(outcome, ChangeOutcome::Refused(Refusal::Failure) | ChangeOutcome::RolledBack)
}

/// Why the other setting is not put in force after what today has shown.
fn why_not(block: &LiveBlock, today: &HostObservation, todays: &[TimedFigure]) -> Option<String> {
    if block.setting.is_empty() {
        return None;
    }
    let busy = today.busy_ratio().unwrap_or(0.0);
    if let Some(most) = block.watch.busy_at_most.filter(|most| busy > *most) {
        return Some(format!(
            "the CPUs are {:.0}% busy, more than the {:.0}% of `busy_at_most`",
            100.0 * busy,
            100.0 * most
        ));
    }
    let breaks = |(guard, figure): (&Guard, &TimedFigure)| {
        let is_broken =
            !guard.is_of_today && guard.judge(usize::MAX - 1, *figure, *figure).is_broken;
        is_broken.then(|| format!("today's setting breaks the guard `{}`", guard.text))
    };
    block.guards.iter().zip(todays).find_map(breaks)
}

/// The figure of each guard, of a host alone.
fn figures(guards: &[Guard], host: HostObservation) -> Vec<TimedFigure> {
    let seconds = host.window.as_secs_f64();
    let observation = Observation { hosts: vec![host], ..Observation::default() };
    let figure = |guard: &Guard| TimedFigure {
        value: guard.metric.value(&Traffic::Live, &observation),
        seconds,
    };
    guards.iter().map(figure).collect()
}

fn step(tick: &HostObservation) -> TickSeen {
    TickSeen {
        rtt_ns: tick.tcp.as_ref().and_then(|tcp| tcp.rtt.mean_ns()),
        busy_ratio: tick.busy_ratio(),
    }
}

fn packets(tick: &HostObservation) -> u64 {
    tick.interface.rx_packets.saturating_add(tick.interface.tx_packets)
}
