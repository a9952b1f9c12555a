//! Axes: a range with round ends, and the ticks on it.

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AxisScale {
    Linear,
    Logarithmic,
}

/// A range of values and its ticks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    spread: AxisScale,
    /// Values with a line and a label.
    pub(crate) ticks: Vec<f64>,
}

/// Ratio of the largest to the smallest value from which an axis is logarithmic: a linear one would
/// squeeze the small values.
const LOGARITHMIC_FROM: f64 = 8.0;

/// Most decimals: enough for a datagram in a billion. More digits are noise of binary fractions.
const MOST_DECIMALS: usize = 9;

impl Axis {
    /// An axis for all `values`, logarithmic if they are far apart. `ticks` is the approximate
    /// number of labels with enough room. `None` without a finite value.
    pub(crate) fn from_values(values: impl Iterator<Item = f64>, ticks: usize) -> Option<Self> {
        let (low, high) = find_range(values)?;
        if low > 0.0 && high / low > LOGARITHMIC_FROM {
            return Some(Self::with_log_scale(low, high, ticks));
        }
        Some(Self::with_linear_scale(low, high, ticks))
    }

    /// A linear axis from 0: for bars, whose length is the value.
    pub(crate) fn from_zero(values: impl Iterator<Item = f64>, ticks: usize) -> Option<Self> {
        let (_, high) = find_range(values)?;
        Some(Self::with_linear_scale(0.0, high.max(f64::MIN_POSITIVE), ticks))
    }

    /// A logarithmic axis from `low` to `high`, both above 0.
    pub(crate) fn with_log_scale(low: f64, high: f64, ticks: usize) -> Self {
        let margin = (high / low).powf(0.06).max(1.05);
        let (low, high) = (low / margin, high * margin);
        let marks = |steps: &[f64]| -> Vec<f64> {
            let decades = low.log10().floor()..=high.log10().ceil();
            let (mut decade, last) = decades.into_inner();
            let mut marks = Vec::new();
            while decade <= last {
                marks.extend(steps.iter().map(|step| step * 10_f64.powf(decade)));
                decade += 1.0;
            }
            marks.retain(|mark| (low..=high).contains(mark));
            marks
        };
        let choices: [&[f64]; 4] =
            [&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
        let fitting =
            choices.iter().map(|steps| marks(steps)).find(|marks| marks.len() <= ticks + 1);
        let ticks = fitting.unwrap_or_else(|| {
            let decades = marks(&[1.0]);
            let every = decades.len().div_ceil(ticks + 1);
            decades.into_iter().step_by(every).collect()
        });
        Self { low, high, spread: AxisScale::Logarithmic, ticks }
    }

    /// A linear axis from exactly `low` to exactly `high`, with round ticks inside.
    pub(crate) fn with_exact_range(low: f64, high: f64, ticks: usize) -> Self {
        let mut axis = Self::with_linear_scale(low, high, ticks);
        axis.ticks.retain(|tick| (low..=high).contains(tick));
        if high > low { Self { low, high, ..axis } } else { axis }
    }

    /// The axis for the script: kind, ends, divisor to the shown unit, and that unit.
    pub(crate) fn format_for_script(&self, divisor: f64, unit: &str) -> String {
        let kind = match self.spread {
            AxisScale::Linear => "linear",
            AxisScale::Logarithmic => "log",
        };
        format!("{kind} {} {} {divisor} {unit}", self.low, self.high)
    }

    /// How far apart its ends are, as a share of the value in the middle; infinite around 0.
    pub(crate) fn span_ratio(&self) -> f64 {
        let middle = f64::midpoint(self.low, self.high).abs();
        if self.low <= 0.0 { f64::INFINITY } else { (self.high - self.low) / middle }
    }

    fn with_linear_scale(low: f64, high: f64, ticks: usize) -> Self {
        let span = if high > low { high - low } else { high.abs().max(1.0) * 0.2 };
        let (low, high) =
            if high > low { (low, high) } else { (low - span / 2.0, high + span / 2.0) };
        let step = round_step(span / ticks.max(1) as f64);
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let mut idx = first;
        let mut marks = Vec::new();
        while idx <= last {
            marks.push(idx * step);
            idx += 1.0;
        }
        Self { low: first * step, high: last * step, spread: AxisScale::Linear, ticks: marks }
    }

    /// The position of a value, 0 at the low end and 1 at the high end; values outside are moved to
    /// the ends.
    pub(crate) fn to_fraction(&self, value: f64) -> f64 {
        let share = match self.spread {
            AxisScale::Linear => (value - self.low) / (self.high - self.low),
            AxisScale::Logarithmic => {
                (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
            }
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The labels of the ticks in units of `divisor`, without superfluous digits.
    pub(crate) fn tick_labels(&self, divisor: f64) -> Vec<(f64, String)> {
        let shown: Vec<f64> = self.ticks.iter().map(|tick| tick / divisor).collect();
        let exact = |decimals: usize| {
            shown.iter().all(|value| {
                let text = format!("{value:.decimals$}");
                text.parse::<f64>().is_ok_and(|read| (read - value).abs() <= value.abs() * 1e-6)
            })
        };
        let common = (0..MOST_DECIMALS).find(|decimals| exact(*decimals)).unwrap_or(3);
        let label = |value: f64| match self.spread {
            AxisScale::Linear => format!("{value:.common$}"),
            AxisScale::Logarithmic => {
                let text = format!("{value:.MOST_DECIMALS$}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
        };
        self.ticks.iter().zip(shown).map(|(&tick, value)| (tick, label(value))).collect()
    }
}

/// 1, 2, 2.5 or 5 times a power of ten, at least `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(power * 10.0)
}

fn find_range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |range: Option<(f64, f64)>, value| {
        let (low, high) = range.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_have_round_ticks() {
        check_tick_labels(&[3.2, 9.6], 5, &["2", "4", "6", "8", "10"]);
        check_tick_labels(&[9.1, 9.6], 5, &["9.1", "9.2", "9.3", "9.4", "9.5", "9.6"]);
        check_tick_labels(&[0.0, 0.97], 4, &["0.00", "0.25", "0.50", "0.75", "1.00"]);
        check_tick_labels(&[5.0, 5.0], 2, &["4.5", "5.0", "5.5"]);
        check_tick_labels(&[0.0, 0.0], 2, &["-0.1", "0.0", "0.1"]);
        check_tick_labels(&[9.4, 9.41], 5, &["9.400", "9.402", "9.404", "9.406", "9.408", "9.410"]);
        check_tick_labels(&[9.4001, 9.4004], 3, &["9.4001", "9.4002", "9.4003", "9.4004"]);
    }

    #[test]
    fn narrow_axis_knows_that_it_magnifies() {
        let span = |low, high| Axis::from_values([low, high].into_iter(), 5).unwrap().span_ratio();
        assert!((span(9.4, 9.41) - 0.001).abs() < 1e-4);
        assert!(span(2.0, 9.0) > 1.0 && span(-1.0, 1.0).is_infinite());
        let whole = Axis::with_exact_range(0.0, 97.0, 4);
        assert!(whole.to_fraction(97.0) > 0.999_999);
        assert_eq!(whole.ticks, [0.0, 25.0, 50.0, 75.0]);
    }

    #[test]
    fn far_values_get_a_logarithmic_axis() {
        check_tick_labels(&[21.0, 800.0], 6, &["20", "50", "100", "200", "500"]);
        check_tick_labels(&[1e-5, 2e-4], 3, &["0.00001", "0.00003", "0.0001"]);
        // Where there is no room for each decade, some are left out.
        check_tick_labels(&[0.02, 439.0], 2, &["0.1", "10"]);
        check_tick_labels(&[1.0, 1e6], 2, &["1", "1000", "1000000"]);
        check_tick_labels(
            &[1.0, 1e6],
            6,
            &["1", "10", "100", "1000", "10000", "100000", "1000000"],
        );
    }

    #[test]
    fn positions_stay_on_the_axis() {
        let axis = Axis::from_values([10.0, 1000.0].into_iter(), 5).unwrap();
        assert!(
            axis.to_fraction(10.0) < axis.to_fraction(100.0)
                && axis.to_fraction(100.0) < axis.to_fraction(1000.0)
        );
        for value in [0.0, -1.0, 1e12, f64::NAN, f64::INFINITY] {
            assert!((0.0..=1.0).contains(&axis.to_fraction(value)), "{value}");
        }
        assert_eq!(Axis::from_values([f64::NAN].into_iter(), 5), None);
    }

    #[track_caller]
    fn check_tick_labels(values: &[f64], ticks: usize, labels: &[&str]) {
        let axis = Axis::from_values(values.iter().copied(), ticks).unwrap();
        let found: Vec<String> =
            axis.tick_labels(1.0).into_iter().map(|(_, label)| label).collect();
        assert_eq!(found, labels);
    }
}
