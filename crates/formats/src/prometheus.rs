//! The text format of Prometheus (versions 0.0.4 and 1.0.0) and its near relative `OpenMetrics`, as far as figures need it:
//! samples with names, labels and values, and lines `# UNIT`. Other comments, times and exemplars are skipped.

use std::collections::BTreeMap;

use latput_trial::figures::Text;
use latput_trial::live::{EndpointFigure, FigurePlace, FigureSource, MetricSeries, SeriesUnit};
use latput_trial::metric::{CustomMetric, Unit};
use latput_units::IntoMap;

/// Most bytes of a text.
pub const MOST_BYTES: usize = 4 << 20;
/// Most buckets of a histogram.
const MOST_BUCKETS: usize = 1_000;
/// The suffix of a histogram's buckets, and the label with their upper bound.
const BUCKET: &str = "_bucket";
const BOUND: &str = "le";

/// The series of an endpoint at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    pub(crate) values: Vec<FigureValue>,
}

/// Parts of one figure, in seconds or bytes where it has a unit; `None` where the text lacks it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FigureValue {
    Number(Option<f64>),
    /// Cumulative counts by upper bound, least first.
    Buckets(Vec<(f64, f64)>),
}

impl Scrape {
    /// Reads a text for these figures. A line that is no sample is skipped: other series need not concern us.
    ///
    /// # Errors
    ///
    /// The text is longer than [`MOST_BYTES`], or a series has another unit or form than its figure needs.
    pub fn read(text: &str, figures: &[EndpointFigure]) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("it answers more than {MOST_BYTES} bytes"));
        }
        let scales: Vec<f64> =
            figures.iter().map(|figure| series_scale(text, figure)).collect::<Result<_, _>>()?;
        let mut numbers: Vec<Option<f64>> = vec![None; figures.len()];
        let mut buckets: Vec<BTreeMap<u64, (f64, f64)>> = vec![BTreeMap::new(); figures.len()];
        for line in text.lines() {
            let Some(sample) = TextSample::parse(line) else { continue };
            for (idx, figure) in figures.iter().enumerate() {
                let Some(series) = figure.source.series() else { continue };
                if !matches!(figure.source, FigureSource::Quantile(..)) {
                    if sample.series.name == series.name && sample.has_labels(series) {
                        let value = sample.require_number()? * scales[idx];
                        numbers[idx] = Some(numbers[idx].unwrap_or(0.0) + value);
                    }
                    continue;
                }
                if sample.series.name == series.name {
                    sample.require_number()?;
                }
                if sample.series.name.strip_suffix(BUCKET) != Some(&series.name)
                    || !sample.has_labels(series)
                {
                    continue;
                }
                let bound =
                    sample.series.labels.get(BOUND).and_then(|bound| parse_bucket_bound(bound));
                let Some(bound) = bound else { continue };
                let known = &mut buckets[idx];
                if known.len() < MOST_BUCKETS || known.contains_key(&order_key(bound)) {
                    let entry = known.entry(order_key(bound)).or_insert((bound * scales[idx], 0.0));
                    entry.1 += sample.require_number()?;
                }
            }
        }
        for (figure, buckets) in figures.iter().zip(&buckets) {
            check_buckets(figure, buckets)?;
        }
        let mut plain = None; // made once, and only for places
        for (number, figure) in numbers.iter_mut().zip(figures) {
            if let FigureSource::Counter(FigurePlace::Text(place))
            | FigureSource::Gauge(FigurePlace::Text(place)) = &figure.source
            {
                let plain = plain.get_or_insert_with(|| Text::from_bytes(text.as_bytes()));
                *number = place.read(plain).ok();
            }
        }
        let value =
            |((figure, number), buckets): ((&EndpointFigure, Option<f64>), BTreeMap<_, _>)| {
                match figure.source {
                    FigureSource::Quantile(..) => {
                        FigureValue::Buckets(buckets.into_values().collect())
                    }
                    _ => FigureValue::Number(number),
                }
            };
        Ok(Self { values: figures.iter().zip(numbers).zip(buckets).map(value).collect() })
    }
}

/// Growth of an endpoint's series over one or several windows.
#[derive(Clone, Debug)]
pub struct ScrapeGrowth<'a> {
    figures: &'a [EndpointFigure],
    grown: Vec<FigureTotal>,
    /// Length of the windows, by figure: a counter that was reset in one has not that window.
    seconds: Vec<f64>,
}

#[derive(Clone, Debug)]
enum FigureTotal {
    Count(f64),
    /// Sum and number of readings.
    Gauge(f64, f64),
    Buckets(Vec<(f64, f64)>),
}

impl<'a> ScrapeGrowth<'a> {
    /// Nothing yet.
    pub fn new(figures: &'a [EndpointFigure]) -> Self {
        let nothing = |figure: &EndpointFigure| match figure.source {
            FigureSource::Counter(_) => FigureTotal::Count(0.0),
            FigureSource::Gauge(_) => FigureTotal::Gauge(0.0, 0.0),
            FigureSource::Quantile(..) => FigureTotal::Buckets(Vec::new()),
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
                (
                    FigureTotal::Count(sum),
                    FigureValue::Number(Some(earlier)),
                    FigureValue::Number(Some(later)),
                ) => {
                    let is_growth = later >= earlier;
                    *sum += if is_growth { later - earlier } else { 0.0 };
                    Some(is_growth)
                }
                (FigureTotal::Gauge(sum, count), _, FigureValue::Number(Some(later))) => {
                    *sum += later;
                    *count += 1.0;
                    Some(true)
                }
                (
                    FigureTotal::Buckets(sums),
                    FigureValue::Buckets(earlier),
                    FigureValue::Buckets(later),
                ) => add_buckets(sums, earlier, later),
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
    pub fn compute_figures(&self) -> BTreeMap<CustomMetric, f64> {
        let parts = self.figures.iter().zip(&self.grown).zip(&self.seconds);
        let figure = |((figure, grown), seconds): ((&EndpointFigure, &FigureTotal), &f64)| {
            let value = match (grown, &figure.source) {
                (FigureTotal::Count(count), _) => count / seconds,
                (FigureTotal::Gauge(sum, count), _) => sum / count,
                (FigureTotal::Buckets(buckets), FigureSource::Quantile(share, _)) => {
                    interpolate_quantile(buckets, *share)?
                }
                (FigureTotal::Buckets(_), _) => return None,
            };
            let value = value * base_unit_factor(figure.metric.definition().unit);
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
fn interpolate_quantile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
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

/// Factor of a second or a byte to a metric's unit; 1 for figures without a unit.
const fn base_unit_factor(unit: Unit) -> f64 {
    match unit {
        Unit::Nanoseconds => 1e9,
        Unit::BitsPerS => 8.0,
        _ => 1.0,
    }
}

/// Factor of a value of a figure's series to seconds or bytes: by the line `# UNIT`, or else by the name.
fn series_scale(text: &str, figure: &EndpointFigure) -> Result<f64, String> {
    let Some(series) = figure.source.series() else { return Ok(1.0) };
    let of_name = series.unit();
    let family = series.name.strip_suffix("_total").unwrap_or(&series.name);
    let stated = text.lines().find_map(|line| {
        let (name, unit) = line.strip_prefix("# UNIT ")?.trim().rsplit_once(' ')?;
        let name = name.trim().trim_matches('"');
        (name == family || name == series.name).then_some(unit)
    });
    let Some(word) = stated else { return Ok(of_name.map_or(1.0, |unit| unit.in_base)) };
    let is_quantile = matches!(figure.source, FigureSource::Quantile(..));
    match (SeriesUnit::parse(word), of_name) {
        (Some(stated), Some(named)) if stated.is_data == named.is_data => Ok(stated.in_base),
        // A quantile of a name without a unit is one of time; other figures are plain numbers.
        (Some(stated), None) if is_quantile && !stated.is_data => Ok(stated.in_base),
        (_, None) if !is_quantile => Ok(1.0),
        _ => Err(format!("`{}` is in {word}, which its figure cannot be in", series.name)),
    }
}

/// Refuses a histogram that has no bounds: a native one has a single bucket in this format, or none.
fn check_buckets(
    figure: &EndpointFigure,
    buckets: &BTreeMap<u64, (f64, f64)>,
) -> Result<(), String> {
    let is_native = buckets.len() == 1 && buckets.values().all(|(bound, _)| bound.is_infinite());
    match figure.source.series().filter(|_| is_native) {
        Some(series) => Err(native_histogram_error(&series.name)),
        None => Ok(()),
    }
}

fn native_histogram_error(name: &str) -> String {
    format!(
        "`{name}` is a native histogram: latput reads those with buckets (`{name}_bucket`); let the application \
         have both"
    )
}

/// One line of the text.
#[derive(Clone, Debug, PartialEq)]
struct TextSample {
    series: MetricSeries,
    /// `None` for a native histogram.
    value: Option<f64>,
}

impl TextSample {
    /// `NAME{label="value",...} VALUE [TIME]`; `None` for anything else, and for a value that is not finite.
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('#') {
            return None;
        }
        let (series, rest) = MetricSeries::parse_start(line)?;
        if rest.trim_start().starts_with('{') {
            return Some(Self { series, value: None });
        }
        let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
        value.is_finite().then_some(Self { series, value: Some(value) })
    }

    fn require_number(&self) -> Result<f64, String> {
        self.value.ok_or_else(|| native_histogram_error(&self.series.name))
    }

    fn has_labels(&self, series: &MetricSeries) -> bool {
        series.labels.iter().all(|(label, value)| self.series.labels.get(label) == Some(value))
    }
}

fn parse_bucket_bound(text: &str) -> Option<f64> {
    match text {
        "+Inf" | "Inf" | "inf" => Some(f64::INFINITY),
        other => other.parse().ok().filter(|bound: &f64| *bound >= 0.0),
    }
}

/// Bounds are not below zero, so their bits are in their order.
const fn order_key(bound: f64) -> u64 {
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

    fn make_figures() -> Vec<EndpointFigure> {
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

    fn find_value(found: &BTreeMap<CustomMetric, f64>, name: &str) -> Option<f64> {
        found.iter().find(|(metric, _)| metric.name() == name).map(|(_, value)| *value)
    }

    #[test]
    fn counters_become_rates_over_the_window() {
        let figures = make_figures();
        let first = Scrape::read(TEXT, &figures).unwrap();
        let later = TEXT
            .replace("path=\"/a\"} 3", "path=\"/a\"} 13")
            .replace("0.01\"} 50", "0.01\"} 60")
            .replace("0.1\"} 90", "0.1\"} 110")
            .replace("+Inf\"} 100", "+Inf\"} 120");
        let later = Scrape::read(&later, &figures).unwrap();
        let mut growth = ScrapeGrowth::new(&figures);
        assert_eq!(growth.compute_figures(), BTreeMap::new());
        assert!(growth.add(&first, &later, 2.0).is_empty());
        let found = growth.compute_figures();
        assert_eq!(find_value(&found, "prometheus_test_errors"), Some(5.0));
        assert_eq!(find_value(&found, "prometheus_test_queue"), Some(7.5));
        // 10 up to 10 ms and 10 up to 100 ms: half of all is at the border.
        assert_eq!(find_value(&found, "prometheus_test_p50"), Some(1e7));
        let p95 = find_value(&found, "prometheus_test_p95").unwrap();
        assert!((p95 - 9.1e7).abs() < 1.0, "{p95}");
        assert_eq!(find_value(&found, "prometheus_test_none"), None);
    }

    /// The figure of this source in a text whose counts were 0 a second before.
    fn compute_figure(name: &str, source: &str, text: &str) -> Result<Option<f64>, String> {
        let figures = [EndpointFigure::parse(name, source).unwrap()];
        let later = Scrape::read(text, &figures)?;
        let zero = |value: &FigureValue| match value {
            FigureValue::Number(number) => FigureValue::Number(number.map(|_| 0.0)),
            FigureValue::Buckets(all) => {
                FigureValue::Buckets(all.iter().map(|(bound, _)| (*bound, 0.0)).collect())
            }
        };
        let first = Scrape { values: later.values.iter().map(zero).collect() };
        let mut growth = ScrapeGrowth::new(&figures);
        growth.add(&first, &later, 1.0);
        Ok(find_value(&growth.compute_figures(), name))
    }

    #[test]
    fn units_in_names_are_scaled() {
        let bounds = |name: &str| {
            format!(
                "{name}_bucket{{le=\"10\"}} 50\n{name}_bucket{{le=\"+Inf\"}} 50 # {{id=\"7\"}} 3 1.5\n"
            )
        };
        for (name, factor) in [
            ("a_seconds", 1e9),
            ("a_milliseconds", 1e6),
            ("a_microseconds", 1e3),
            ("a_nanoseconds", 1.0),
            ("a_bytes", 1.0),
            ("a_bits", 0.125),
            ("a", 1e9),
        ] {
            let source = format!("quantile 0.5 {name}");
            let found =
                compute_figure(&format!("unit_test_{name}"), &source, &bounds(name)).unwrap();
            assert!((found.unwrap() - 5.0 * factor).abs() < 1e-6, "{name}: {found:?}");
        }
        let text = "rx_bytes_total 10 1395066363.5\nlag_ms 4\n# EOF\n";
        assert_eq!(compute_figure("unit_test_rx", "counter rx_bytes_total", text), Ok(Some(80.0)));
        assert_eq!(compute_figure("unit_test_lag", "gauge lag_ms", text), Ok(Some(4e6)));
    }

    #[test]
    fn stated_units_and_quoted_names_are_read() {
        let text = "# TYPE \"my.wait\" histogram\n# UNIT \"my.wait\" milliseconds\n\
                    {\"my.wait_bucket\",le=\"10\"} 4\n{\"my.wait_bucket\",\"le\"=\"+Inf\"} 4\n# EOF\n";
        let source = "quantile 0.5 {\"my.wait\"}";
        assert_eq!(compute_figure("quoted_test_wait", source, text), Ok(Some(5e6)));
        let bytes = text.replace("milliseconds", "bytes");
        let problem = compute_figure("quoted_test_wait", source, &bytes).unwrap_err();
        assert_eq!(problem, "`my.wait` is in bytes, which its figure cannot be in");
    }

    #[test]
    fn native_histograms_are_refused_by_name() {
        let texts = [
            "wait_seconds {count:10,sum:1.5,schema:0,zero_threshold:0}\n",
            "wait_seconds_bucket{le=\"+Inf\"} 10\nwait_seconds_sum 1.5\nwait_seconds_count 10\n",
        ];
        for text in texts {
            let problem =
                compute_figure("native_test", "quantile 0.5 wait_seconds", text).unwrap_err();
            assert!(problem.starts_with("`wait_seconds` is a native histogram"), "{problem}");
        }
    }

    #[test]
    fn reset_is_told_and_adds_nothing() {
        let figures = make_figures();
        let first = Scrape::read(TEXT, &figures).unwrap();
        let reset =
            TEXT.replace("path=\"/a\"} 3", "path=\"/a\"} 0").replace("0.01\"} 50", "0.01\"} 1");
        let reset = Scrape::read(&reset, &figures).unwrap();
        let mut growth = ScrapeGrowth::new(&figures);
        let told = growth.add(&first, &reset, 1.0);
        let names: Vec<&str> = told.iter().map(|metric| metric.name()).collect();
        assert_eq!(names, ["prometheus_test_errors", "prometheus_test_p50", "prometheus_test_p95"]);
        growth.add(&reset, &first, 1.0);
        assert_eq!(
            find_value(&growth.compute_figures(), "prometheus_test_errors"),
            Some(3.0),
            "of the second only"
        );
    }

    #[test]
    fn value_above_all_bounds_is_a_bound() {
        assert_eq!(interpolate_quantile(&[(0.1, 1.0), (f64::INFINITY, 10.0)], 0.5), Some(0.1));
        assert_eq!(interpolate_quantile(&[(f64::INFINITY, 10.0)], 0.5), None);
        assert_eq!(interpolate_quantile(&[(0.1, 0.0), (f64::INFINITY, 0.0)], 0.5), None);
        assert_eq!(interpolate_quantile(&[], 0.5), None);
    }

    #[test]
    fn hostile_text_is_bounded() {
        let figures = make_figures();
        let line = |idx: u32| format!("latency_seconds_bucket{{le=\"{idx}\"}} {idx}");
        let many = (0..5_000).map(line).collect::<Vec<String>>().join("\n");
        let FigureValue::Buckets(buckets) = &Scrape::read(&many, &figures).unwrap().values[2]
        else {
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
