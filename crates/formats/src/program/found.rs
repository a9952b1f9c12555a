//! The figures that a parser finds, checked one by one, and the search in lines.

use latput_stats::Histogram;
use latput_trial::Metric;
use latput_trial::figures::{Commas, NumberError, ProgramFigures, Text, is_of_number, read_number};
use latput_trial::metric::{CustomMetric, Definition, PreferredDirection, Summary, Unit};
use latput_units::Nanos;
use serde_json::Value;

use crate::read_error::ReadError;
use crate::rules::{DeliveryCounts, StatedFigures, TestFigures};

/// Nanoseconds of a second, a millisecond and a microsecond.
pub(super) const S: f64 = 1e9;
pub(super) const MS: f64 = 1e6;
pub(super) const US: f64 = 1e3;

/// Seconds that no benchmark measures for.
const LONGEST_S: f64 = 1e8;

/// The percentiles that latput has metrics for.
const PERCENTILES: &[(f64, Metric)] = &[
    (50.0, Metric::LatencyNsP50),
    (90.0, Metric::LatencyNsP90),
    (99.0, Metric::LatencyNsP99),
    (99.9, Metric::LatencyNsP999),
];

/// The figures so far.
#[derive(Debug, Default)]
pub(super) struct FigureCollector {
    figures: ProgramFigures,
    beside: StatedFigures,
}

impl FigureCollector {
    /// Adds a figure that must be there.
    pub(super) fn add_required(
        &mut self,
        metric: Metric,
        value: Option<f64>,
        sought: &str,
    ) -> Result<(), ReadError> {
        let value = value.ok_or_else(|| format!("{sought} is not there"))?;
        self.add(metric, value)
    }

    /// Adds a figure, if it is there.
    pub(super) fn add_optional(
        &mut self,
        metric: Metric,
        value: Option<f64>,
    ) -> Result<(), ReadError> {
        value.map_or(Ok(()), |value| self.add(metric, value))
    }

    fn add(&mut self, metric: Metric, value: f64) -> Result<(), ReadError> {
        if metric == Metric::TransactionsPerS && value == 0.0 {
            return Err(ReadError::nothing_done());
        }
        if !value.is_finite() || value < 0.0 || value > metric.row().unit.most() {
            return Err(format!("`{metric}` is {value}, which is impossible").into());
        }
        match self.figures.metrics.insert(metric, value) {
            Some(other) if other.to_bits() != value.to_bits() => Err(format!(
                "`{metric}` is there twice, with different values ({other} and {value})"
            )
            .into()),
            _ => Ok(()),
        }
    }

    /// Adds a percentile, if latput has a metric for it.
    pub(super) fn add_percentile(&mut self, percent: f64, value_ns: f64) -> Result<(), ReadError> {
        let known = PERCENTILES.iter().find(|(known, _)| (known - percent).abs() < 1e-9);
        known.map_or(Ok(()), |(_, metric)| self.add(*metric, value_ns))
    }

    /// Adds a figure of the program's own.
    pub(super) fn add_custom(
        &mut self,
        name: &str,
        unit: Unit,
        better: PreferredDirection,
        value: Option<f64>,
    ) -> Result<(), ReadError> {
        let Some(value) = value else { return Ok(()) };
        if value == 0.0 && matches!(unit, Unit::BitsPerS | Unit::PerS) {
            return Err(ReadError::Failed(format!("`{name}` is 0: nothing was done")));
        }
        let summary = if unit == Unit::Nanoseconds { Summary::Median } else { Summary::Mean };
        let definition = Definition { name: name.to_owned(), unit, better, summary };
        let metric = CustomMetric::define(&definition).map_err(|error| error.to_string())?;
        self.add(Metric::Custom(metric), value)
    }

    /// Counts failed transactions, as a figure too.
    pub(super) fn set_errors(&mut self, errors: Option<u64>) -> Result<(), ReadError> {
        self.figures.errors = errors;
        let value = errors.map(|errors| errors as f64);
        self.add_custom("program_errors", Unit::Number, PreferredDirection::Lower, value)
    }

    /// Adds the number of completed transactions. Fails where there is none: what a program then prints as latency is of
    /// nothing.
    pub(super) fn set_transactions(&mut self, transactions: Option<u64>) -> Result<(), ReadError> {
        if transactions == Some(0) {
            return Err(ReadError::nothing_done());
        }
        self.figures.transactions = transactions;
        Ok(())
    }

    /// Adds the shortest latency, which other figures are compared with.
    pub(super) fn set_min_latency(&mut self, value_ns: Option<f64>) {
        self.beside.least_ns = value_ns.filter(|value| value.is_finite());
    }

    /// Marks times that are printed in steps or bins as wide as themselves.
    pub(super) fn mark_coarse(&mut self) {
        self.beside.is_coarse = true;
    }

    /// Adds the times of all replies, which a quiet program does not print.
    pub(super) fn add_replies(
        &mut self,
        histogram: Histogram,
        received: f64,
    ) -> Result<(), ReadError> {
        let printed = histogram.count();
        if printed > 0 && (printed as f64) < received {
            return Err(ReadError::Contradiction(format!(
                "it has the times of {printed} replies and received {received:.0}: lines of it are missing"
            )));
        }
        self.add_histogram(histogram);
        Ok(())
    }

    /// Adds the loss of what was sent.
    pub(super) fn add_arrival(&mut self, arrival: DeliveryCounts) -> Result<(), ReadError> {
        self.beside.arrivals.push(arrival);
        self.add_required(Metric::LossRatio, Some(arrival.loss_ratio()), "the loss")
    }

    /// How long the program measured, in seconds.
    pub(super) fn set_window(&mut self, seconds: Option<f64>) -> Result<(), ReadError> {
        if let Some(seconds) = seconds.filter(|seconds| *seconds > LONGEST_S) {
            return Err(format!("it measured for {seconds:e} s, which is impossible").into());
        }
        let is_time = |seconds: &f64| seconds.is_finite() && *seconds > 0.0;
        self.figures.window = seconds.filter(is_time).map(Nanos::from_secs_f64);
        Ok(())
    }

    /// Adds the rate of answered requests. `tried` is the printed one, in which programs count failed ones too.
    pub(super) fn add_answered_rate(
        &mut self,
        tried: Option<f64>,
        answered: u64,
        failed: u64,
        sought: &str,
    ) -> Result<(), ReadError> {
        let share = answered as f64 / answered.saturating_add(failed).max(1) as f64;
        self.set_transactions(Some(answered))?;
        self.add_required(Metric::TransactionsPerS, tried.map(|rate| rate * share), sought)
    }

    /// Adds the distribution of latency, with the percentiles that the program did not print.
    pub(super) fn add_histogram(&mut self, histogram: Histogram) {
        for (percent, metric) in PERCENTILES {
            if let Some(value) = histogram.quantile(percent / 100.0) {
                self.figures.metrics.entry(*metric).or_insert(value.as_ns() as f64);
            }
        }
        self.figures.latency = (!histogram.is_empty()).then_some(histogram);
    }

    /// The figures, which keep the rules of all programs.
    pub(super) fn finish(mut self) -> Result<ProgramFigures, ReadError> {
        let of = &self.figures;
        let claims = TestFigures {
            beside: Some(&self.beside),
            transactions: of.transactions,
            seconds: of.window.map(Nanos::as_secs_f64),
            latency: of.latency.as_ref(),
            ..TestFigures::new(&of.metrics)
        };
        claims.check_all()?;
        if let Some(histogram) = &mut self.figures.latency {
            histogram.pack();
        }
        Ok(self.figures)
    }
}

/// The rest of the line behind a label at its start, trimmed. Refused where the label stands on several lines with
/// different values.
pub(super) fn text_after_label<'t>(text: &'t Text, label: &str) -> Result<Option<&'t str>, String> {
    let mut found = None;
    for line in text.as_str().lines() {
        let Some(rest) = line.trim_start().strip_prefix(label) else { continue };
        match found {
            Some(other) if other != rest.trim() => {
                return Err(format!("`{label}` is there several times, with different values"));
            }
            _ => found = Some(rest.trim()),
        }
    }
    Ok(found)
}

/// The number behind a label at the start of a line; `None` where none is.
pub(super) fn number_after_label(text: &Text, label: &str) -> Result<Option<f64>, ReadError> {
    text_after_label(text, label)?.map_or(Ok(None), leading_number)
}

/// Splits a text behind the number at its start.
fn split_number(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(|letter| !is_of_number(letter)).unwrap_or(text.len());
    text.split_at(text[..end].trim_end_matches(',').len())
}

/// The number that a word is; `None` for another word.
///
/// # Errors
///
/// It has a comma that may be a decimal sign.
pub(super) fn whole_number(word: &str) -> Result<Option<f64>, ReadError> {
    match read_number(word, Commas::Locale) {
        Ok(number) => Ok(Some(number)),
        Err(NumberError::Form(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The number at the start of a text, before a space, a slash or another sign that no number has; `None` without one.
///
/// # Errors
///
/// It has a comma that may be a decimal sign.
pub(super) fn leading_number(text: &str) -> Result<Option<f64>, ReadError> {
    if text.trim_start().to_ascii_lowercase().starts_with("nan") {
        return Ok(Some(f64::NAN));
    }
    whole_number(split_number(text).0)
}

/// The number at the start of a text, with the unit that its program always prints behind it.
///
/// # Errors
///
/// There is no number, or another unit or none.
pub(super) fn parse_measurement(text: &str, unit: &str) -> Result<f64, ReadError> {
    let shown = || text.trim().escape_debug().take(40).collect::<String>();
    let number = leading_number(text)?.ok_or_else(|| format!("`{}` is not a number", shown()))?;
    let (_, behind) = split_number(text);
    let word =
        behind.trim_start().split(|letter: char| letter.is_whitespace() || letter == ';').next();
    if number.is_nan() || word.is_some_and(|word| word.trim_end_matches([',', '.']) == unit) {
        return Ok(number);
    }
    Err(format!("`{}` does not have the unit `{unit}`", shown()).into())
}

/// The number at the start of a word, times the factor of the unit behind it: `1.5ms`. `None` without a number or with
/// a unit that is not among them.
pub(super) fn number_in_units(word: &str, units: &[(&str, f64)]) -> Result<Option<f64>, ReadError> {
    let (_, unit) = split_number(word);
    let factor = units.iter().find(|(known, _)| *known == unit.trim());
    let number = leading_number(word)?;
    Ok(number.zip(factor).map(|(number, (_, factor))| number * factor))
}

/// A whole number of JSON or of text that counts something.
pub(super) fn to_count(value: f64) -> Option<u64> {
    // Below 2^53 every whole number has a float of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let is_count = (0.0..=EXACT).contains(&value) && value.fract() == 0.0;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and below 2^53")]
    let count = value as u64;
    is_count.then_some(count)
}

/// A number in a JSON document, by pointer; `None` for what is no number.
pub(super) fn json_number(document: &Value, pointer: &str) -> Option<f64> {
    document.pointer(pointer)?.as_f64()
}
