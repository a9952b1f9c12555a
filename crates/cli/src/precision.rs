//! The wanted precision of figures: flags that `run` and `measure` share.

use latput_trial::Plan;
use latput_trial::plan::Method;
use latput_units::text::{parse_percent, refuse_bare_share};

use crate::exit::CliError;

/// Runs go on until the interval of the rate and of the CPU utilisation of both ends is narrow enough.
#[derive(Debug, clap::Args)]
pub(crate) struct Precision {
    /// Runs: at least MIN; more, up to MAX, while the interval of the rate or of an end's CPU
    /// utilisation is too wide.
    #[arg(long, value_name = "MIN..MAX")]
    repetitions: Option<String>,
    /// Confidence of intervals: `99%`.
    #[arg(long, value_name = "PERCENT")]
    confidence: Option<String>,
    /// Wanted half width of those intervals, as a share of the figure: `2.5%` (netperf's `-I 99,5` is
    /// the full width, 5%).
    #[arg(long, value_name = "PERCENT")]
    half_width: Option<String>,
}

impl Precision {
    /// Replaces the values of a plan by those given.
    pub(crate) fn apply_to_method(&self, method: &mut Method) -> Result<(), CliError> {
        if let Some(text) = &self.repetitions {
            (method.repetitions_min, method.repetitions_max) = parse_repetitions(text)?;
        }
        if let Some(text) = &self.confidence {
            method.confidence = parse_percent_flag("--confidence", text, 50.0, 99.9)?;
        }
        if let Some(text) = &self.half_width {
            method.half_width = parse_percent_flag("--half-width", text, 0.1, 50.0)?;
        }
        Ok(())
    }

    /// The flags as lines of a plan's text, because a run is resumed only under exactly the same
    /// ones.
    pub(crate) fn plan_lines(&self) -> String {
        let flags = [
            ("repetitions", &self.repetitions),
            ("confidence", &self.confidence),
            ("half-width", &self.half_width),
        ];
        let given = flags.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given.fold(String::new(), |lines, (name, value)| lines + &format!("# --{name} {value}\n"))
    }
}

/// Whether a run ends at its first answer.
#[derive(Debug, clap::Args)]
pub(crate) struct FirstArg {
    /// Stop as soon as the goal has a proven answer. The looks for it share the chance of error, so that it is no
    /// less certain than the answer of the whole run.
    #[arg(long)]
    first: bool,
}

impl FirstArg {
    /// Lets a plan end there. Without a goal there is no answer, and live traffic has rules of its own.
    pub(crate) fn apply_to_plan(&self, plan: &mut Plan) -> Result<(), CliError> {
        if self.first && plan.goal.is_none() {
            return Err(CliError::usage(
                "--first needs a goal, and the plan has none: give `--goal latency` or another",
            ));
        }
        if self.first && plan.live().is_some() {
            return Err(CliError::usage(
                "--first cannot be used with live traffic, which ends by itself once every setting is decided",
            ));
        }
        plan.method.first = self.first;
        Ok(())
    }

    /// The flag as a line of a plan's text.
    pub(crate) const fn plan_line(&self) -> &'static str {
        if self.first { "# --first\n" } else { "" }
    }
}

/// A share as flags write it: `2.5%`. A bare number is refused with both its readings.
pub(crate) fn parse_percent_flag(
    flag: &str,
    text: &str,
    low: f64,
    high: f64,
) -> Result<f64, CliError> {
    if let Some(refusal) = refuse_bare_share(text) {
        return Err(CliError::usage(format!("{flag}: {refusal}")));
    }
    match parse_percent(text) {
        Some(share) if (low / 100.0..=high / 100.0).contains(&share) => Ok(share),
        _ => Err(CliError::usage(format!(
            "{flag} must be from {low}% to {high}%, such as `{low}%`, not `{text}`"
        ))),
    }
}

fn parse_repetitions(text: &str) -> Result<(u32, u32), CliError> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    match (min.parse(), max.parse()) {
        (Ok(min), Ok(max)) if min >= 1 && min <= max && max <= 1000 => Ok((min, max)),
        _ => Err(CliError::usage(format!(
            "--repetitions must be MIN..MAX with 1 <= MIN <= MAX <= 1000, not `{text}`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_must_have_their_sign() {
        for text in ["2.5%", concat!("2.5", " %")] {
            let share = parse_percent_flag("--half-width", text, 0.1, 50.0)
                .map_err(|f| f.error.to_string());
            assert!(share.is_ok_and(|share| (share - 0.025).abs() < 1e-12), "{text}");
        }
        for text in ["", "%", "60%", "0.025", "2.5", "NaN", "2,5%"] {
            assert!(parse_percent_flag("--half-width", text, 0.1, 50.0).is_err(), "{text}");
        }
    }

    #[test]
    fn flags_replace_only_what_they_give() {
        let flags = Precision {
            repetitions: Some("3..30".to_owned()),
            confidence: None,
            half_width: Some("5%".to_owned()),
        };
        let mut method = Method { confidence: 0.9, ..Method::default() };
        assert!(flags.apply_to_method(&mut method).is_ok());
        assert_eq!((method.repetitions_min, method.repetitions_max), (3, 30));
        assert!(
            (method.half_width - 0.05).abs() < 1e-12 && (method.confidence - 0.9).abs() < 1e-12
        );
        assert_eq!(flags.plan_lines(), "# --repetitions 3..30\n# --half-width 5%\n");
        for text in ["0..3", "5..3", "3..2000", "a..b", ".."] {
            assert!(parse_repetitions(text).is_err(), "{text}");
        }
    }
}
