//! A block on live traffic: counts under today's setting, under another, and under today's again, and puts today's back at
//! once when a guard is broken.

use std::collections::BTreeMap;

use latput_knobs::{ChangeOutcome, Refusal, Setting, State};
use latput_linux::{Sample, process};
use latput_load::Stop;
use latput_protocol::control::{Failure, make_failure};
use latput_protocol::live::{
    BlockSpan, Guard, GuardBreach, LiveBlock, LiveSeen, TICK, TickSeen, TimedFigure, put_at,
};
use latput_protocol::text::format_error_chain;
use latput_trial::live::TcpGroup;
use latput_trial::observation::{HostObservation, TcpObservation};
use latput_trial::{Observation, Traffic};
use latput_units::{Clock, Nanos};

use super::connections::{ConnectionReader, KnownConnections};
use super::{GLANCE_EVERY, HostSession, describe_state_changes, sleep_until};

/// Most share of a CPU that readings take: they become rarer where one takes long.
const TICK_PER_COST: u64 = 50;
/// Time without a packet after which the traffic counts as stopped.
const SILENT_FOR: Nanos = Nanos::from_s(2);

/// The readings of a block.
struct BlockReadings<'a> {
    connections: Option<ConnectionReader<'a>>,
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
struct SpanWatch<'a> {
    span: BlockSpan,
    guards: &'a [Guard],
    /// Today's figure of each guard; empty in the span that gives them.
    todays: &'a [TimedFigure],
    /// Whether a broken guard ends the span.
    is_guarded: bool,
    state: State,
}

/// The counts from one moment on.
struct SpanCounts {
    first: Sample,
    tcp: TcpObservation,
    /// CPU time of tracing until then; `None` where nothing is traced.
    tracing: Option<Nanos>,
}

impl HostSession {
    /// Runs a block. `is_told` says that the slice is to end early.
    pub(crate) fn run_live_block(
        &mut self,
        block: &LiveBlock,
        stop: &Stop,
        is_told: &dyn Fn() -> bool,
    ) -> Result<LiveSeen, Failure> {
        if !block.is_possible() {
            return Err(make_failure("no host could run a block of live traffic"));
        }
        let mut readings =
            BlockReadings::open(block, stop, is_told, std::mem::take(&mut self.tcp_known));
        let state = self.kernel.read_all(&self.open.interface);
        let [before, slice, after] = block.spans();
        let guards = &block.guards;
        let watch_of_today =
            |span, todays, state| SpanWatch { span, guards, todays, is_guarded: false, state };
        let today = watch_of_today(before, &[], state.clone());
        let first = self.watch_span(&today, &mut readings)?;
        let todays = compute_guard_figures(guards, first.host.clone());
        let mut seen = LiveSeen::of_today(first.host, guards.len());
        seen.is_silent_today = first.ended.is_some();
        let told = || is_told().then(|| "it was told to end".to_owned());
        seen.ended = why_not(block, &seen.before, &todays).or(first.ended).or_else(told);
        if seen.ended.is_some() {
            return Ok(self.finish_block(seen, readings, &state));
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
                    return Ok(self.finish_block(seen, readings, &state));
                }
                Err(failure) => return Err(failure),
            }
        }
        let other =
            SpanWatch { span: slice, guards, todays: &todays, is_guarded: is_other, state: found };
        let other = self.watch_span(&other, &mut readings);
        if is_other {
            // Whatever became of the slice.
            seen.changes[1] = self.put_in_force(&Setting::default())?.1;
        }
        let other = other?;
        let back_at = process::OsClock.now();
        seen.back_at = back_at;
        seen.broken = other.broken.map(|(guard, value, at)| GuardBreach {
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
            let again = watch_of_today(after, &todays, state.clone());
            let again = self.watch_span(&again, &mut readings)?;
            seen.is_silent_today = again.ended.is_some();
            (seen.after, seen.ended) = (Some(again.host), again.ended);
            (seen.of_after, seen.steps[1]) = (again.logs, again.steps);
        }
        Ok(self.finish_block(seen, readings, &state))
    }

    /// The values that were read back, and the duration of the change.
    fn put_in_force(&mut self, setting: &Setting) -> Result<(State, Nanos), Failure> {
        let begun = process::OsClock.now();
        let found = self.apply_setting(setting)?;
        Ok((found, process::OsClock.now().saturating_sub(begun)))
    }

    /// Adds what is told at the end of a block.
    fn finish_block(
        &mut self,
        seen: LiveSeen,
        readings: BlockReadings<'_>,
        state: &State,
    ) -> LiveSeen {
        let mut drift = describe_state_changes(state, &self.kernel.read_all(&self.open.interface));
        drift.extend(self.not_in_force());
        self.tcp_known = readings.connections.map(ConnectionReader::into_known).unwrap_or_default();
        LiveSeen { notes: readings.notes, drift, left: self.take_left(), ..seen }
    }

    /// Counts in a span, tick by tick.
    fn watch_span(
        &mut self,
        watched: &SpanWatch<'_>,
        readings: &mut BlockReadings<'_>,
    ) -> Result<SpanSeen, Failure> {
        let span = watched.span;
        sleep_until(span.from, GLANCE_EVERY, || readings.stop.is_raised());
        let traced = self.trace_now(readings.stop)?;
        let mut last = self.take_sample()?;
        let _before_the_span = (readings.read_tcp(), readings.tcp_groups());
        let mut since_change = SpanCounts::from(&last, readings);
        let mut measured: Option<SpanCounts> = None;
        let mut seen = SpanSeen::new(watched.guards.len());
        let mut moved_at = last.at;
        let mut next = span.from;
        while last.at < span.to && seen.broken.is_none() && seen.ended.is_none() {
            if measured.is_none() && last.at >= span.measured_from {
                measured = Some(SpanCounts::from(&last, readings));
                let _before_it = readings.tcp_groups();
            }
            let border = if measured.is_none() { span.measured_from } else { span.to };
            sleep_until(next.min(border), TICK, || readings.stop.is_raised());
            if readings.stop.is_raised() {
                return Err(make_failure("interrupted"));
            }
            let begun = process::OsClock.now();
            let sample = self.take_sample()?;
            let tcp = readings.read_tcp();
            let cost = process::OsClock.now().saturating_sub(begun);
            next = begun + TICK.max(cost.saturating_mul(TICK_PER_COST));
            let tick = self.count_between(&last, &sample, tcp.clone())?;
            if count_packets(&tick) > 0 {
                moved_at = sample.at;
            }
            seen.steps.push(summarize_tick(&tick));
            for counts in [Some(&mut since_change), measured.as_mut()].into_iter().flatten() {
                counts.tcp = std::mem::take(&mut counts.tcp).joined(&tcp);
            }
            let so_far =
                self.count_between(&since_change.first, &sample, since_change.tcp.clone())?;
            seen.judge_guards(watched, so_far, sample.at);
            last = sample;
            if last.at.saturating_sub(moved_at) >= SILENT_FOR {
                seen.ended = Some("the traffic has stopped".to_owned());
            } else if watched.is_guarded && (readings.is_told)() {
                seen.ended = Some("it was told to end".to_owned());
            }
        }
        // A span that ended before its measured part is counted from the change.
        let SpanCounts { first, tcp, tracing } = measured.unwrap_or(since_change);
        let traced_until = readings.tracing_cost();
        seen.host = HostObservation {
            state: watched.state.clone(),
            tcp_groups: readings.tcp_groups(),
            tracing_cpu: tracing.zip(traced_until).map(|(from, to)| to.saturating_sub(from)),
            ..self.count_between(&first, &last, tcp)?
        };
        if let Some(traced) = &traced {
            traced.divide(&mut seen.host);
        }
        if count_packets(&seen.host) == 0 && seen.ended.is_none() {
            seen.ended = Some("no packet was received or sent".to_owned());
        }
        Ok(seen)
    }

    fn take_sample(&mut self) -> Result<Sample, Failure> {
        self.sampler.sample().map_err(|error| make_failure(format_error_chain(&error)))
    }

    /// Counts between two samples, without the values of knobs.
    fn count_between(
        &self,
        first: &Sample,
        last: &Sample,
        tcp: TcpObservation,
    ) -> Result<HostObservation, Failure> {
        let counted = first.until(last, &self.open.host, self.open.role, State::default());
        let counted = counted.map_err(|error| make_failure(format_error_chain(&error)))?;
        let opened = last.tcp_opened.saturating_sub(first.tcp_opened);
        let tcp = (tcp.readings > 0).then_some(TcpObservation { opened, ..tcp });
        Ok(HostObservation { tcp, ..counted })
    }
}

impl SpanCounts {
    fn from(first: &Sample, readings: &BlockReadings<'_>) -> Self {
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
    fn judge_guards(&mut self, watched: &SpanWatch<'_>, so_far: HostObservation, at: Nanos) {
        let ticks = at.saturating_sub(watched.span.from).as_ns() / TICK.as_ns();
        let tick = usize::try_from(ticks).unwrap_or(usize::MAX).saturating_sub(1);
        let now = if watched.todays.is_empty() {
            Vec::new()
        } else {
            compute_guard_figures(watched.guards, so_far)
        };
        let judged = watched.guards.iter().zip(now).zip(watched.todays);
        for (idx, ((guard, now), today)) in judged.enumerate() {
            let judged = guard.judge_figure(tick, now, *today);
            put_at(&mut self.logs[idx], tick, judged.log);
            if judged.is_broken && watched.is_guarded && self.broken.is_none() {
                self.broken = Some((idx, now.value.unwrap_or_default(), at));
            }
        }
    }
}

impl<'a> BlockReadings<'a> {
    fn open(
        block: &'a LiveBlock,
        stop: &'a Stop,
        is_told: &'a dyn Fn() -> bool,
        known: KnownConnections,
    ) -> Self {
        let mut notes = Vec::new();
        let connections = ConnectionReader::open(&block.watch, known, &mut notes)
            .map_err(|error| {
                notes
                    .push(format!("no figures of TCP connections: {}", format_error_chain(&error)));
            })
            .ok();
        Self { connections, notes, stop, is_told }
    }

    /// Reads the changes of the connections; nothing if they cannot be read, which is told once.
    fn read_tcp(&mut self) -> TcpObservation {
        let Some(connections) = &mut self.connections else { return TcpObservation::default() };
        connections.read(&mut self.notes).unwrap_or_else(|error| {
            self.connections = None;
            self.notes
                .push(format!("no figures of TCP connections: {}", format_error_chain(&error)));
            TcpObservation::default()
        })
    }
}

impl BlockReadings<'_> {
    /// CPU time that tracing has taken so far in this block.
    fn tracing_cost(&self) -> Option<Nanos> {
        self.connections.as_ref().map(ConnectionReader::tracing_cost)
    }

    /// Takes the changes of the groups of connections since the last call.
    fn tcp_groups(&mut self) -> BTreeMap<TcpGroup, TcpObservation> {
        self.connections.as_mut().map(ConnectionReader::take_groups).unwrap_or_default()
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
            !guard.is_of_today && guard.judge_figure(usize::MAX - 1, *figure, *figure).is_broken;
        is_broken.then(|| format!("today's setting breaks the guard `{}`", guard.text))
    };
    block.guards.iter().zip(todays).find_map(breaks)
}

/// The figure of each guard, of a host alone.
fn compute_guard_figures(guards: &[Guard], host: HostObservation) -> Vec<TimedFigure> {
    let seconds = host.window.as_secs_f64();
    let observation = Observation { hosts: vec![host], ..Observation::default() };
    let figure = |guard: &Guard| TimedFigure {
        value: guard.metric.value(&Traffic::Live, &observation),
        seconds,
    };
    guards.iter().map(figure).collect()
}

fn summarize_tick(tick: &HostObservation) -> TickSeen {
    TickSeen {
        rtt_ns: tick.tcp.as_ref().and_then(|tcp| tcp.rtt.mean_ns()),
        busy_ratio: tick.busy_ratio(),
    }
}

fn count_packets(tick: &HostObservation) -> u64 {
    tick.interface.rx_packets.saturating_add(tick.interface.tx_packets)
}
