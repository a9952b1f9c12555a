//! The text format of Prometheus (version 0.0.4) and its near relative `OpenMetrics`, as far as figures need it: samples with
//! names, labels and values. Comments, times and exemplars are skipped.

use std::collections::BTreeMap;

use latput_trial::figures::Text;
use latput_trial::live::{EndpointFigure, FigurePlace, FigureSource, MetricSeries};
use latput_trial::metric::CustomMetric;
use latput_units::IntoMap;

/// Most bytes of a text.
pub const MOST_BYTES: usize = 4 << 20;
/// Most buckets of a histogram.
const MOST_BUCKETS: usize = 1_000;
/// The suffix of a histogram's buckets, and the label with their upper bound.
const BUCKET: &str = "_bucket";
const BOUND: &str = "le";

/// What the figures of an endpoint are made of, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    pub(crate) values: Vec<Value>,
}

/// What one figure is made of; `None` where the text has it not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(Option<f64>),
    /// Cumulative counts by upper bound in seconds, least first.
    Buckets(Vec<(f64, f64)>),
}

impl Scrape {
    /// Reads a text for these figures. A line that is no sample is skipped: other series need not concern us.
    ///
    /// # Errors
    ///
    /// The text is longer than [`MOST_BYTES`].
    pub fn read(text: &str, figures: &[EndpointFigure]) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("it answers more than {MOST_BYTES} bytes"));
        }
        let mut numbers: Vec<Option<f64>> = vec![None; figures.len()];
        let mut buckets: Vec<BTreeMap<u64, (f64, f64)>> = vec![BTreeMap::new(); figures.len()];
        for line in text.lines() {
            let Some(sample) = TextSample::parse(line) else { continue };
            for (idx, figure) in figures.iter().enumerate() {
                match &figure.source {
                    FigureSource::Counter(FigurePlace::Text(_))
                    | FigureSource::Gauge(FigurePlace::Text(_)) => {}
                    FigureSource::Counter(FigurePlace::Series(series))
                    | FigureSource::Gauge(FigurePlace::Series(series)) => {
                        if sample.is_of(&series.name, series) {
                            numbers[idx] = Some(numbers[idx].unwrap_or(0.0) + sample.value);
                        }
                    }
                    FigureSource::Quantile(_, series) => {
                        let Some(name) = sample.name.strip_suffix(BUCKET) else { continue };
                        let bound = sample.labels.get(BOUND).and_then(|bound| bound_of(bound));
                        let Some(bound) =
                            bound.filter(|_| sample.with_name(name).is_of(name, series))
                        else {
                            continue;
                        };
                        let known = &mut buckets[idx];
                        if known.len() < MOST_BUCKETS || known.contains_key(&order(bound)) {
                            known.entry(order(bound)).or_insert((bound, 0.0)).1 += sample.value;
                        }
                    }
                }
            }
        }
        let mut plain = None; // made once, and only for places
        for (number, figure) in numbers.iter_mut().zip(figures) {
            if let FigureSource::Counter(FigurePlace::Text(place))
            | FigureSource::Gauge(FigurePlace::Text(place)) = &figure.source
            {
                let plain = plain.get_or_insert_with(|| Text::of(text.as_bytes()));
                *number = place.read(plain).ok();
            }
        }
        let value =
            |((figure, number), buckets): ((&EndpointFigure, Option<f64>), BTreeMap<_, _>)| {
                match figure.source {
                    FigureSource::Quantile(..) => Value::Buckets(buckets.into_values().collect()),
                    _ => Value::Number(number),
                }
            };
        Ok(Self { values: figures.iter().zip(numbers).zip(buckets).map(value).collect() })
    }
}

/// What figures have grown by, over one or several windows.
#[derive(Clone, Debug)]
pub struct Growth<'a> {
    figures: &'a [EndpointFigure],
    grown: Vec<Grown>,
    /// Length of the windows, by figure: a counter that was reset in one has not that window.
    seconds: Vec<f64>,
}

#[derive(Clone, Debug)]
enum Grown {
    Count(f64),
    /// Sum and number of readings.
    Gauge(f64, f64),
    Buckets(Vec<(f64, f64)>),
}

impl<'a> Growth<'a> {
    /// Nothing yet.
    pub fn of(figures: &'a [EndpointFigure]) -> Self {
        let nothing = |figure: &EndpointFigure| match figure.source {
            FigureSource::Counter(_) => Grown::Count(0.0),
            FigureSource::Gauge(_) => Grown::Gauge(0.0, 0.0),
            FigureSource::Quantile(..) => Grown::Buckets(Vec::new()),
        };
        Self {
            figures,
            grown: figures.iter().map(nothing).collect(),
            seconds: vec![0.0; figures.len()],
        }
    }

    /// Adds what happened between two scrapes that many seconds apart. A figure that either has not, or that was reset in
    /// between, gets nothing of it. Returns the figures that were reset.
    pub fn add(&mut self, earlier: &Scrape, later: &Scrape, seconds: f64) -> Vec<CustomMetric> {
        let mut reset = Vec::new();
        let values = earlier.values.iter().zip(&later.values);
        for (idx, (earlier, later)) in values.enumerate().take(self.grown.len()) {
            let is_added = match (&mut self.grown[idx], earlier, later) {
                (Grown::Count(sum), Value::Number(Some(earlier)), Value::Number(Some(later))) => {
                    let is_growth = later >= earlier;
                    *sum += if is_growth { later - earlier } else { 0.0 };
                    Some(is_growth)
                }
                (Grown::Gauge(sum, count), _, Value::Number(Some(later))) => {
                    *sum += later;
                    *count += 1.0;
                    Some(true)
                }
                (Grown::Buckets(sums), Value::Buckets(earlier), Value::Buckets(later)) => {
                    add_buckets(sums, earlier, later)
                }
                _ => None,
            };
            match is_added {
                Some(true) => self.seconds[idx] += seconds,
                Some(false) => reset.push(self.figures[idx].metric),
                None => {}
            }
        }
        reset
    }

    /// The figures so far, each finite. A quantile has one as soon as the histogram has grown.
    pub fn figures(&self) -> BTreeMap<CustomMetric, f64> {
        let parts = self.figures.iter().zip(&self.grown).zip(&self.seconds);
        let figure = |((figure, grown), seconds): ((&EndpointFigure, &Grown), &f64)| {
            let value = match (grown, &figure.source) {
                (Grown::Count(count), _) => count / seconds,
                (Grown::Gauge(sum, count), _) => sum / count,
                (Grown::Buckets(buckets), FigureSource::Quantile(share, _)) => {
                    1e9 * quantile(buckets, *share)?
                }
                (Grown::Buckets(_), _) => return None,
            };
            value.is_finite().then_some((figure.metric, value))
        };
        parts.filter_map(figure).into_map()
    }
}

/// Adds what a histogram has grown by: `Some(false)` if it was reset, `None` if there is none.
fn add_buckets(
    sums: &mut Vec<(f64, f64)>,
    earlier: &[(f64, f64)],
    later: &[(f64, f64)],
) -> Option<bool> {
    if later.is_empty() || earlier.len() != later.len() {
        return None;
    }
    let same = |((a, _), (b, _)): (&(f64, f64), &(f64, f64))| a.to_bits() == b.to_bits();
    if !earlier.iter().zip(later).all(same) {
        return None;
    }
    if earlier.iter().zip(later).any(|((_, earlier), (_, later))| later < earlier) {
        return Some(false);
    }
    if sums.is_empty() {
        sums.extend(later.iter().map(|(bound, _)| (*bound, 0.0)));
    }
    if sums.len() != later.len() {
        return None;
    }
    for ((sum, (_, earlier)), (_, later)) in sums.iter_mut().zip(earlier).zip(later) {
        sum.1 += later - earlier;
    }
    Some(true)
}

/// A quantile of cumulative counts by upper bound, in the unit of the bounds: within its bucket on a straight line, as
/// `histogram_quantile` of Prometheus has it. `None` if nothing was counted.
fn quantile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let total = buckets.last()?.1;
    if total <= 0.0 {
        return None;
    }
    let rank = share * total;
    let at = buckets.iter().position(|(_, count)| *count >= rank)?;
    let (upper, count) = buckets[at];
    let (lower, below) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
    if upper.is_infinite() {
        return (at > 0).then_some(lower); // all that is known: it is more than that
    }
    let part = if count > below { (rank - below) / (count - below) } else { 1.0 };
    Some(lower + (upper - lower) * part)
}

/// One line of the text.
#[derive(Clone, Debug, PartialEq)]
struct TextSample<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, String>,
    value: f64,
}

impl<'a> TextSample<'a> {
    /// `NAME{label="value",...} VALUE [TIME]`; `None` for anything else, and for a value that is not finite.
    fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('#') {
            return None;
        }
        let end = line.find(['{', ' ', '\t'])?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (BTreeMap::new(), rest),
        };
        let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
        (!name.is_empty() && value.is_finite()).then_some(Self { name, labels, value })
    }

    fn with_name(&self, name: &'a str) -> Self {
        Self { name, ..self.clone() }
    }

    fn is_of(&self, name: &str, series: &MetricSeries) -> bool {
        let has =
            |(label, value): (&String, &String)| self.labels.get(label.as_str()) == Some(value);
        self.name == name && name == series.name && series.labels.iter().all(has)
    }
}

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(BTreeMap<&str, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (label, value) = rest.split_once('=')?;
        let mut letters = value.strip_prefix('"')?.char_indices();
        let mut text = String::new();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => match letters.next()?.1 {
                    'n' => text.push('\n'),
                    other => text.push(other),
                },
                (_, letter) => text.push(letter),
            }
        };
        labels.insert(label.trim(), text);
        rest = &value[end + 2..]; // both quotes
    }
}

fn bound_of(text: &str) -> Option<f64> {
    match text {
        "+Inf" | "Inf" | "inf" => Some(f64::INFINITY),
        other => other.parse().ok().filter(|bound: &f64| *bound >= 0.0),
    }
}

/// Bounds are not below zero, so their bits are in their order.
const fn order(bound: f64) -> u64 {
    bound.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
# HELP errors_total Failed requests.
# TYPE errors_total counter
errors_total{code="500",path="/a"} 3
errors_total{code="500",path="/b \"x\\\n"} 4 1395066363000
errors_total{code="200"} 99
queue_length 7.5
nonsense{ 1
other NaN
latency_seconds_bucket{le="0.01"} 50
latency_seconds_bucket{le="0.1"} 90
latency_seconds_bucket{le="+Inf"} 100
latency_seconds_sum 5.1
latency_seconds_count 100
"#;

    fn figures() -> Vec<EndpointFigure> {
        [
            ("prometheus_test_errors", "counter errors_total{code=\"500\"}"),
            ("prometheus_test_queue", "gauge queue_length"),
            ("prometheus_test_p50", "quantile 0.5 latency_seconds"),
            ("prometheus_test_p95", "quantile 0.95 latency_seconds"),
            ("prometheus_test_none", "counter nothing_total"),
        ]
        .map(|(name, source)| EndpointFigure::parse(name, source).unwrap())
        .to_vec()
    }

    fn value(found: &BTreeMap<CustomMetric, f64>, name: &str) -> Option<f64> {
        found.iter().find(|(metric, _)| metric.name() == name).map(|(_, value)| *value)
    }

    #[test]
    fn counters_are_rates_and_a_quantile_is_of_what_was_added() {
        let figures = figures();
        let first = Scrape::read(TEXT, &figures).unwrap();
        let later = TEXT
            .replace("path=\"/a\"} 3", "path=\"/a\"} 13")
            .replace("0.01\"} 50", "0.01\"} 60")
            .replace("0.1\"} 90", "0.1\"} 110")
            .replace("+Inf\"} 100", "+Inf\"} 120");
        let later = Scrape::read(&later, &figures).unwrap();
        let mut growth = Growth::of(&figures);
        assert_eq!(growth.figures(), BTreeMap::new());
        assert!(growth.add(&first, &later, 2.0).is_empty());
        let found = growth.figures();
        assert_eq!(value(&found, "prometheus_test_errors"), Some(5.0));
        assert_eq!(value(&found, "prometheus_test_queue"), Some(7.5));
        // 10 up to 10 ms and 10 up to 100 ms: half of all is at the border.
        assert_eq!(value(&found, "prometheus_test_p50"), Some(1e7));
        let p95 = value(&found, "prometheus_test_p95").unwrap();
        assert!((p95 - 9.1e7).abs() < 1.0, "{p95}");
        assert_eq!(value(&found, "prometheus_test_none"), None);
    }

    #[test]
    fn a_reset_is_told_and_adds_nothing() {
        let figures = figures();
        let first = Scrape::read(TEXT, &figures).unwrap();
        let reset =
            TEXT.replace("path=\"/a\"} 3", "path=\"/a\"} 0").replace("0.01\"} 50", "0.01\"} 1");
        let reset = Scrape::read(&reset, &figures).unwrap();
        let mut growth = Growth::of(&figures);
        let told = growth.add(&first, &reset, 1.0);
        let names: Vec<&str> = told.iter().map(|metric| metric.name()).collect();
        assert_eq!(names, ["prometheus_test_errors", "prometheus_test_p50", "prometheus_test_p95"]);
        growth.add(&reset, &first, 1.0);
        assert_eq!(
            value(&growth.figures(), "prometheus_test_errors"),
            Some(3.0),
            "of the second only"
        );
    }

    #[test]
    fn what_lies_above_every_bound_is_as_much_as_is_known() {
        assert_eq!(quantile(&[(0.1, 1.0), (f64::INFINITY, 10.0)], 0.5), Some(0.1));
        assert_eq!(quantile(&[(f64::INFINITY, 10.0)], 0.5), None);
        assert_eq!(quantile(&[(0.1, 0.0), (f64::INFINITY, 0.0)], 0.5), None);
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn hostile_texts_are_read_or_skipped_and_bounded() {
        let figures = figures();
        let line = |idx: u32| format!("latency_seconds_bucket{{le=\"{idx}\"}} {idx}");
        let many = (0..5_000).map(line).collect::<Vec<String>>().join("\n");
        let Value::Buckets(buckets) = &Scrape::read(&many, &figures).unwrap().values[2] else {
            panic!()
        };
        assert_eq!(buckets.len(), MOST_BUCKETS);
        for text in [
            "errors_total{code=\"500",
            "errors_total{=}",
            "{} 1",
            "errors_total{\"\"} 1",
            "é{é=\"é\"} 1",
            "a{b=\"\\",
        ] {
            let _ = Scrape::read(text, &figures).unwrap();
        }
        assert!(Scrape::read(&"x".repeat(MOST_BYTES + 1), &figures).is_err());
    }
}
