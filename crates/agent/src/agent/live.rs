//! The agent's part of a block on live traffic: what the application tells of itself, and the guards on that. The agent asks,
//! because it has no rights, and its keeper reads no stranger's bytes.

mod application;
mod http;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use latput_formats::prometheus::{Scrape, ScrapeGrowth};
use latput_load::Stop;
use latput_protocol::control::{Answer, Failure, make_failure};
use latput_protocol::live::{
    BlockSpan, GuardBreach, LiveBlock, LiveSeen, TICK, TimedFigure, put_at,
};
use latput_trial::Metric;
use latput_trial::live::Endpoint;
use latput_trial::metric::CustomMetric;
use latput_units::Nanos;

pub(super) use self::application::ApplicationScraper;
use super::{AgentService, PreparedTraffic};

/// Interval at which the endpoint is asked,
const ASK_EVERY: Nanos = Nanos::from_ms(200);
/// and the most time of an answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// Answers in a row that are missing, after which a guard on them ends the slice.
const MOST_MISSING: u32 = 3;
/// Interval at which a wait looks whether it is over.
const LOOK_EVERY: Nanos = Nanos::from_ms(20);

/// Figures of an endpoint, and their time.
type Told = (Nanos, Scrape);

impl AgentService<'_> {
    /// Runs a block.
    pub(super) fn run_live_block(&mut self, block: LiveBlock) -> Result<Answer, Failure> {
        self.prepared = PreparedTraffic::default();
        let Some(endpoint) = block.watch.endpoint.clone() else {
            let seen = self.keeper.run_live_block(block, &|| false)?;
            return Ok(Answer::Lived(Box::new(seen)));
        };
        self.application.open(&endpoint, block.told_on.as_ref()).map_err(make_failure)?;
        let asking = EndpointPoller {
            endpoint: &endpoint,
            application: &self.application,
            block: &block,
            is_over: AtomicBool::new(false),
            ends_slice: AtomicBool::new(false),
        };
        let (heard, seen) = thread::scope(|scope| {
            let heard = scope.spawn(|| asking.run(self.stop));
            let is_over = || asking.ends_slice.load(Ordering::Relaxed);
            let seen = self.keeper.run_live_block(block.clone(), &is_over);
            asking.is_over.store(true, Ordering::Relaxed);
            let heard = heard.join().map_err(|_| make_failure("the endpoint's thread panicked"));
            (heard, seen)
        });
        Ok(Answer::Lived(Box::new(asking.merge_samples(heard?, seen?))))
    }
}

/// The endpoint of a block.
struct EndpointPoller<'a> {
    endpoint: &'a Endpoint,
    application: &'a ApplicationScraper,
    block: &'a LiveBlock,
    is_over: AtomicBool,
    ends_slice: AtomicBool,
}

/// Figures of the endpoint in a block.
#[derive(Default)]
struct EndpointSamples {
    /// In the spans before, in and after the slice.
    told: [Vec<Told>; 3],
    notes: Vec<String>,
    broken: Option<(usize, f64, Nanos)>,
    /// Why the slice was to end, without a broken guard.
    ended: Option<String>,
    /// Whether it did not answer under today's setting.
    is_silent_today: bool,
}

impl EndpointPoller<'_> {
    /// Asks at the start of each span, at its end and in between.
    fn run(&self, stop: &Stop) -> EndpointSamples {
        let mut heard = EndpointSamples::default();
        let mut missing = 0;
        for (idx, span) in self.block.spans().into_iter().enumerate() {
            let mut at = span.from;
            loop {
                if !self.wait_until(at, stop) {
                    return heard;
                }
                let begun = latput_load::now();
                match self.application.scrape_endpoint(self.endpoint, ANSWER_WITHIN) {
                    Ok((at, scrape)) => {
                        missing = 0;
                        let answered = latput_load::now();
                        let middle = Nanos::from_ns(begun.as_ns().midpoint(answered.as_ns()));
                        let at = at.unwrap_or(middle);
                        // A command may not have told anything new.
                        if heard.told[idx].last().is_none_or(|(last, _)| *last < at) {
                            heard.told[idx].push((at, scrape));
                        }
                    }
                    Err(why) => {
                        missing += 1;
                        heard.add_note(format!("endpoint {}: {why}", self.endpoint.at));
                    }
                }
                if idx == 1 && !self.block.setting.is_empty() {
                    self.judge_slice(&mut heard, span, missing);
                } else {
                    heard.is_silent_today |= missing >= MOST_MISSING && self.has_guards();
                }
                if at >= span.to {
                    break;
                }
                at = (at + ASK_EVERY).max(latput_load::now()).min(span.to);
            }
        }
        heard
    }

    /// Whether it is time, and not over.
    fn wait_until(&self, at: Nanos, stop: &Stop) -> bool {
        loop {
            if self.is_over.load(Ordering::Relaxed) || stop.is_raised() {
                return false;
            }
            let left = at.saturating_sub(latput_load::now());
            if left == Nanos::ZERO {
                return true;
            }
            thread::sleep(left.min(LOOK_EVERY).as_duration());
        }
    }

    /// Judges the guards on the application's figures, as far as the slice has gone.
    fn judge_slice(&self, heard: &mut EndpointSamples, span: BlockSpan, missing: u32) {
        if self.ends_slice.load(Ordering::Relaxed) || !self.has_guards() {
            return;
        }
        let todays = self.compute_figures(&[&heard.told[0]]);
        let so_far = self.compute_figures(&[&heard.told[1]]);
        if missing >= MOST_MISSING {
            heard.ended =
                Some("the endpoint does not answer, and a guard needs its figures".to_owned());
        }
        let at = heard.told[1].last().map_or(span.from, |told| told.0);
        let tick = compute_tick_index(span, at);
        for (idx, metric) in self.custom_guards() {
            let Some(today) = todays.get(&metric) else {
                heard.ended = Some(format!(
                    "the endpoint does not report `{}`, and a guard needs it",
                    metric.name()
                ));
                continue;
            };
            let now = build_timed_figure(so_far.get(&metric).copied(), &heard.told[1]);
            let today = build_timed_figure(Some(*today), &heard.told[0]);
            if self.block.guards[idx].judge_figure(tick, now, today).is_broken {
                heard.broken = Some((idx, now.value.unwrap_or_default(), at));
            }
        }
        if heard.broken.is_some() || heard.ended.is_some() {
            self.ends_slice.store(true, Ordering::Relaxed);
        }
    }

    fn has_guards(&self) -> bool {
        self.custom_guards().next().is_some()
    }

    /// The guards on the endpoint's figures, by index.
    fn custom_guards(&self) -> impl Iterator<Item = (usize, CustomMetric)> + '_ {
        self.block.guards.iter().enumerate().filter_map(|(idx, guard)| match guard.metric {
            Metric::Custom(metric) => Some((idx, metric)),
            _ => None,
        })
    }

    /// The figures of what was told in these spans.
    fn compute_figures(&self, spans: &[&[Told]]) -> BTreeMap<CustomMetric, f64> {
        let mut growth = ScrapeGrowth::new(&self.endpoint.figures);
        spans.iter().flat_map(|told| told.windows(2)).for_each(|pair| add(&mut growth, pair));
        growth.compute_figures()
    }

    /// The logarithms of a guard, tick by tick, in a span.
    fn compute_guard_logs(
        &self,
        idx: usize,
        metric: CustomMetric,
        heard: &EndpointSamples,
        in_span: usize,
    ) -> Vec<Option<f64>> {
        let span = self.block.spans()[in_span];
        let todays = self.compute_figures(&[&heard.told[0]]);
        let today = build_timed_figure(todays.get(&metric).copied(), &heard.told[0]);
        let told = &heard.told[in_span];
        let mut growth = ScrapeGrowth::new(&self.endpoint.figures);
        let mut logs = Vec::new();
        for (before, pair) in told.windows(2).enumerate() {
            add(&mut growth, pair);
            let now = build_timed_figure(
                growth.compute_figures().get(&metric).copied(),
                &told[..before + 2],
            );
            let tick = compute_tick_index(span, pair[1].0);
            put_at(&mut logs, tick, self.block.guards[idx].judge_figure(tick, now, today).log);
        }
        logs
    }

    /// Joins the endpoint's figures with the keeper's.
    fn merge_samples(&self, heard: EndpointSamples, mut seen: LiveSeen) -> LiveSeen {
        for (idx, metric) in self.custom_guards() {
            seen.of_slice[idx] = self.compute_guard_logs(idx, metric, &heard, 1);
            seen.of_after[idx] = self.compute_guard_logs(idx, metric, &heard, 2);
        }
        let [before, slice, after] = self.block.spans();
        let measured = |idx: usize, span: BlockSpan| {
            // The last answer before the measured part began is its start.
            let told = &heard.told[idx];
            let first = told.iter().rposition(|(at, _)| *at <= span.measured_from).unwrap_or(0);
            &told[first..]
        };
        let of_slice = measured(1, slice);
        seen.figures = self.compute_figures(&[of_slice]);
        seen.figures_before = self.compute_figures(&[measured(0, before)]);
        seen.figures_after = self.compute_figures(&[measured(2, after)]);
        let of_today = if self.block.setting.is_empty() { of_slice } else { &[] };
        seen.todays_figures =
            self.compute_figures(&[measured(0, before), measured(2, after), of_today]);
        if let (Some((guard, value, at)), None) = (heard.broken, &seen.broken)
            && seen.slice.is_some()
        {
            let todays = self.compute_figures(&[&heard.told[0]]);
            seen.ended = None;
            seen.broken = Some(GuardBreach {
                guard,
                value,
                today: self
                    .custom_guards()
                    .find(|(idx, _)| *idx == guard)
                    .and_then(|it| todays.get(&it.1).copied()),
                after: at.saturating_sub(slice.from),
                until_back: seen.back_at.saturating_sub(at),
            });
        } else if let (Some(why), Some(ended)) = (&heard.ended, &mut seen.ended) {
            ended.clone_from(why);
        }
        seen.is_silent_today |= heard.is_silent_today;
        seen.notes.extend(heard.notes);
        seen
    }
}

impl EndpointSamples {
    fn add_note(&mut self, note: String) {
        if !self.notes.contains(&note) && self.notes.len() < 4 {
            self.notes.push(note);
        }
    }
}

/// The place of a moment among a guard's margins: answers come at every fourth tick, about.
fn compute_tick_index(span: BlockSpan, at: Nanos) -> usize {
    let asked = at.saturating_sub(span.from).as_ns() / ASK_EVERY.as_ns();
    let ticks = asked * (ASK_EVERY.as_ns() / TICK.as_ns()) + 3;
    usize::try_from(ticks).unwrap_or(usize::MAX)
}

/// Adds what happened between two answers. A figure that was reset between them gets nothing of it.
fn add(growth: &mut ScrapeGrowth<'_>, pair: &[Told]) {
    let [(earlier, first), (later, second)] = pair else { return };
    growth.add(first, second, later.saturating_sub(*earlier).as_secs_f64());
}

/// A figure with the time that it is of.
fn build_timed_figure(value: Option<f64>, told: &[Told]) -> TimedFigure {
    let seconds = match told {
        [(first, _), .., (last, _)] => last.saturating_sub(*first).as_secs_f64(),
        _ => 0.0,
    };
    TimedFigure { value, seconds }
}
