//! Values of a series with their times.

use latput_stats::Histogram;
use latput_units::Nanos;
use serde_json::Value;

/// One value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SeriesPoint {
    /// Seconds since 1970.
    pub(super) t: f64,
    pub(super) val: f64,
    pub(super) seq: Option<u64>,
    /// Length of the interval that it is the rate of.
    pub(super) seconds: Option<f64>,
}

/// How many values are no points: no number, as a `nan` is, or below 0.
pub(super) fn count_absent(values: &Value) -> usize {
    values.as_array().map_or(0, Vec::len) - parse_points(values).len()
}

/// The numeric values in time order.
pub(super) fn parse_points(values: &Value) -> Vec<SeriesPoint> {
    let point = |value: &Value| {
        let number = |key: &str| value[key].as_f64().filter(|number| number.is_finite());
        let seq =
            value["seq"].as_u64().or_else(|| number("seq").filter(|n| *n >= 0.0).map(to_sequence));
        let val = number("val").filter(|val| *val >= 0.0)?;
        let seconds = number("dur").filter(|seconds| *seconds > 0.0);
        Some(SeriesPoint { t: number("t")?, val, seq, seconds })
    };
    let mut points: Vec<SeriesPoint> =
        values.as_array().map(|all| all.iter().filter_map(point).collect()).unwrap_or_default();
    points.sort_by(|a, b| a.t.total_cmp(&b.t));
    points
}

#[expect(clippy::cast_possible_truncation, reason = "a sequence number; float to int saturates")]
const fn to_sequence(number: f64) -> u64 {
    number as u64
}

pub(super) fn build_histogram(points: &[SeriesPoint]) -> Histogram {
    let mut rtt = Histogram::new();
    for point in points {
        rtt.record(Nanos::from_secs_f64(point.val / 1e3));
    }
    rtt
}
