//! Figures that an application sends by statsd: lines of `NAME:VALUE|TYPE[|@RATE]`, where the type is `c` (a counter),
//! `g` (a gauge) or `ms` (a timing in milliseconds). The format is that of
//! <https://github.com/statsd/statsd/blob/master/docs/metric_types.md>.

use latput_trial::live::{EndpointFigure, FigurePlace, FigureSource};

use crate::prometheus::{FigureValue, Scrape};

/// Most bytes of a datagram that are looked at.
pub const MOST_BYTES: usize = 65_536;
/// Bounds of timings: from this many seconds on, each by this factor above the one before.
const LEAST_S: f64 = 1e-6;
const STEP: f64 = 1.02;
/// Up to 98 s. What takes longer is known to be more than that.
const BOUNDS: u16 = 930;
/// The least share of events that a sender may send on behalf of all.
const LEAST_RATE: f64 = 1e-6;

/// Totals of the wanted figures so far. Other names are passed over, so it does not grow.
#[derive(Clone, Debug)]
pub struct StatsdTotals {
    names: Vec<String>,
    /// Factor of a figure's counter or gauge to seconds or bytes.
    scales: Vec<f64>,
    sums: Vec<StatsdTotal>,
}

#[derive(Clone, Debug)]
enum StatsdTotal {
    /// Nothing sent is nothing counted.
    Count(f64),
    Gauge(Option<f64>),
    /// Timings up to each bound, and those above the last.
    Timings(Vec<f64>),
}

impl StatsdTotals {
    /// Nothing yet. Figures that are no plain names stay without a value.
    pub fn new(figures: &[EndpointFigure]) -> Self {
        let of_figure = |figure: &EndpointFigure| match &figure.source {
            FigureSource::Counter(place) => (name(place), StatsdTotal::Count(0.0)),
            FigureSource::Gauge(place) => (name(place), StatsdTotal::Gauge(None)),
            FigureSource::Quantile(_, series) => {
                (series.name.clone(), StatsdTotal::Timings(vec![0.0; usize::from(BOUNDS) + 1]))
            }
        };
        let (names, sums) = figures.iter().map(of_figure).unzip();
        let unit = |figure: &EndpointFigure| figure.source.series()?.unit();
        let scale = |figure| unit(figure).map_or(1.0, |unit| unit.in_base);
        Self { names, scales: figures.iter().map(scale).collect(), sums }
    }

    /// Adds a datagram. What is no line of statsd is passed over.
    pub fn add(&mut self, datagram: &[u8]) {
        let text = String::from_utf8_lossy(&datagram[..datagram.len().min(MOST_BYTES)]);
        for line in text.lines() {
            let Some(sent) = StatsdLine::parse(line.trim()) else { continue };
            let known = self.names.iter().zip(&mut self.sums);
            for (_, total) in known.filter(|(name, _)| *name == sent.name) {
                total.add(&sent);
            }
        }
    }

    /// The totals as series at this moment.
    pub fn to_scrape(&self) -> Scrape {
        let value = |(total, scale): (&StatsdTotal, &f64)| match total {
            StatsdTotal::Count(count) => FigureValue::Number(Some(count * scale)),
            StatsdTotal::Gauge(value) => FigureValue::Number(value.map(|value| value * scale)),
            StatsdTotal::Timings(counts) => {
                let mut sum = 0.0;
                let bounds = (0..BOUNDS).map(bound_s).chain([f64::INFINITY]);
                let cumulative = bounds.zip(counts).map(|(bound, count)| {
                    sum += count;
                    (bound, sum)
                });
                FigureValue::Buckets(cumulative.collect())
            }
        };
        Scrape { values: self.sums.iter().zip(&self.scales).map(value).collect() }
    }
}

impl StatsdTotal {
    fn add(&mut self, sent: &StatsdLine<'_>) {
        match (self, sent.kind) {
            (Self::Count(count), "c") if sent.value >= 0.0 => *count += sent.value / sent.rate,
            (Self::Gauge(value), "g") => {
                let before = if sent.is_change { value.unwrap_or(0.0) } else { 0.0 };
                *value = Some(before + sent.value);
            }
            (Self::Timings(counts), "ms") if sent.value >= 0.0 => {
                let seconds = sent.value / 1e3;
                let at =
                    (0..BOUNDS).collect::<Vec<_>>().partition_point(|at| bound_s(*at) < seconds);
                counts[at] += 1.0 / sent.rate;
            }
            _ => {}
        }
    }
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct StatsdLine<'a> {
    name: &'a str,
    value: f64,
    /// Whether it is a change of a gauge: it has a sign.
    is_change: bool,
    kind: &'a str,
    rate: f64,
}

impl<'a> StatsdLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (name, rest) = line.split_once(':')?;
        let mut parts = rest.split('|');
        let text = parts.next()?;
        let value: f64 = text.parse().ok()?;
        let kind = parts.next()?;
        let mut rate = 1.0;
        for part in parts {
            if let Some(text) = part.strip_prefix('@') {
                rate = text.parse().ok().filter(|rate| (LEAST_RATE..=1.0).contains(rate))?;
            }
        }
        let is_change = text.starts_with(['+', '-']);
        value.is_finite().then_some(Self { name, value, is_change, kind, rate })
    }
}

fn name(place: &FigurePlace) -> String {
    match place {
        FigurePlace::Series(series) => series.name.clone(),
        FigurePlace::Text(_) => String::new(), // no line has it
    }
}

fn bound_s(at: u16) -> f64 {
    LEAST_S * STEP.powi(i32::from(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::ScrapeGrowth;

    fn make_figures() -> Vec<EndpointFigure> {
        [
            ("statsd_test_errors", "counter app.errors"),
            ("statsd_test_queue", "gauge app.queue"),
            ("statsd_test_p99", "quantile 0.99 app.time"),
        ]
        .map(|(name, source)| EndpointFigure::parse(name, source).unwrap())
        .to_vec()
    }

    /// Growth of the figures over two seconds, by name, with one call for each datagram.
    fn growth_after(datagrams: &[&str]) -> Vec<(String, f64)> {
        let figures = make_figures();
        let mut totals = StatsdTotals::new(&figures);
        let before = totals.to_scrape();
        for datagram in datagrams {
            totals.add(datagram.as_bytes());
        }
        let mut growth = ScrapeGrowth::new(&figures);
        growth.add(&before, &totals.to_scrape(), 2.0);
        growth
            .compute_figures()
            .into_iter()
            .map(|(metric, value)| (metric.name().to_owned(), value))
            .collect()
    }

    #[test]
    fn counters_gauges_and_timings_are_kept() {
        let many = "app.time:2.5|ms\n".repeat(98);
        let told = growth_after(&[
            "app.errors:2|c\napp.errors:1|c|@0.1",
            "app.queue:7|g\napp.queue:-3|g",
            &many,
            "app.time:80|ms|@0.25",
        ]);
        let value = |name: &str| told.iter().find(|(it, _)| it == name).unwrap().1;
        assert!((value("statsd_test_errors") - 6.0).abs() < 1e-9);
        assert!((value("statsd_test_queue") - 4.0).abs() < 1e-9);
        // 98 of 2.5 ms and 4 of 80 ms.
        assert!((value("statsd_test_p99") / 80e6 - 1.0).abs() < 0.02, "{told:?}");
    }

    #[test]
    fn silence_is_no_error() {
        assert_eq!(growth_after(&[]), [("statsd_test_errors".to_owned(), 0.0)]);
    }

    #[test]
    fn unknown_statsd_lines_are_passed_over() {
        let junk = [
            "app.errors",
            "app.errors:|c",
            "app.errors:1",
            "app.errors:nan|c",
            "app.errors:-5|c",
            "app.errors:1|c|@0",
            "app.errors:1|c|@2",
            "app.errors:1|c|@x",
            "app.errors:1e999|c",
            "app.errors:1|s",
            "other:1|c",
            "\u{0}",
            ":1|c",
            "app.queue:1|c",
            "app.time:-1|ms",
        ];
        assert_eq!(growth_after(&junk), [("statsd_test_errors".to_owned(), 0.0)]);
        let mut totals = StatsdTotals::new(&make_figures());
        totals.add(&[0xff; 200]);
        totals.add("app.errors:1|c\n".repeat(1 << 20).as_bytes());
        let FigureValue::Number(Some(count)) = totals.to_scrape().values[0] else {
            panic!("a count")
        };
        assert!(count < 5_000.0, "no more than a datagram is looked at: {count}");
        totals.add(b"app.time:1e300|ms");
    }
}
