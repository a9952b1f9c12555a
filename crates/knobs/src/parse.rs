//! Reading values and `knob=value` pairs, with errors that say what would have been right.

use latput_units::{Bytes, CpuSet};

use crate::catalogue::spec::{BYTE, Limits, ValueKind};
use crate::catalogue::{Knob, UnknownKnob};
use crate::qdisc::{QdiscError, QdiscProblem};
use crate::value::Value;

/// How much of a wrong text an error repeats, in characters.
const SHOWN_CHARS: usize = 80;

/// A value that a knob cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.words_within(Limits::default()))]
pub struct ValueError {
    /// The knob.
    pub knob: Knob,
    /// The value, at most 80 characters of it.
    pub text: String,
    /// The problem of the value.
    pub problem: ValueProblem,
}

impl ValueError {
    /// The error with the values that an interface with these limits takes.
    pub fn words_within(&self, limits: Limits) -> String {
        let Self { knob, text, problem } = self;
        let spec = knob.spec();
        let allowed = spec.allowed_within(limits);
        format!("{knob}: `{text}` {problem}: give {allowed}, such as `{}`", spec.example)
    }
}

/// A problem of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueProblem {
    /// It is of another kind, or of none.
    #[error("is not a {0}")]
    Kind(ValueKind),
    /// It is a number without a unit where one is needed.
    #[error("has no unit")]
    NoUnit,
    /// It is a time that the knob's unit cannot express.
    #[error("is not a whole number of {0}")]
    Fraction(&'static str),
    /// It is no queue discipline that latput can set.
    #[error("is not a queue discipline that latput can set ({0})")]
    Qdisc(QdiscProblem),
    /// It is below the knob's smallest value.
    #[error("is too small")]
    TooSmall,
    /// It is above the knob's largest value.
    #[error("is too large")]
    TooLarge,
}

/// A text that is not an assignment `knob=value`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignmentError {
    /// There is no `=`.
    #[error("`{text}` is not an assignment: write KNOB=VALUE, such as `gro-flush-timeout=50us`")]
    NoEquals {
        /// The text, at most 80 characters of it.
        text: String,
    },
    /// The part before the `=` names no knob.
    #[error(transparent)]
    Knob(#[from] UnknownKnob),
    /// The part after the `=` is no value of that knob.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// Reads `gro-flush-timeout=50us`.
pub fn parse_assignment(text: &str) -> Result<(Knob, Value), AssignmentError> {
    let (knob, value) =
        text.split_once('=').ok_or_else(|| AssignmentError::NoEquals { text: shown(text) })?;
    let knob: Knob = knob.trim().parse()?;
    Ok((knob, knob.parse_value(value)?))
}

impl Knob {
    /// Reads a value of this knob and checks its range: `50us`, `1500`, `on`, `0-3` or `0xf`.
    pub fn parse_value(self, text: &str) -> Result<Value, ValueError> {
        let text = text.trim();
        let wrong = |problem| ValueError { knob: self, text: shown(text), problem };
        let spec = self.spec();
        let kind = spec.kind;
        if let Some(named) = spec.named.filter(|named| named.to_string() == text) {
            return Ok(Value::Named(named));
        }
        let value = match kind {
            ValueKind::Count => parse_count(text)
                .or_else(|| text.parse().ok().filter(|_| spec.unit == BYTE).map(Bytes::get))
                .map(Value::Count),
            ValueKind::Time => match parse_count(text) {
                None | Some(0) => text.parse().ok().map(Value::Time),
                Some(count) if spec.names_unit() => {
                    Some(Value::Time(spec.time_unit().saturating_mul(count)))
                }
                Some(_) => return Err(wrong(ValueProblem::NoUnit)),
            },
            ValueKind::Switch => parse_switch(text).map(Value::Switch),
            ValueKind::Cpus => parse_cpus(text).map(Value::Cpus),
            ValueKind::Qdisc => match text.parse() {
                Ok(qdisc) => Some(Value::Qdisc(qdisc)),
                Err(QdiscError { problem }) => return Err(wrong(ValueProblem::Qdisc(problem))),
            },
            ValueKind::Table => text.parse().ok().map(Value::Table),
            ValueKind::Profile => text.parse().ok().map(Value::Profile),
            ValueKind::Sizes => text.parse().ok().map(Value::Sizes),
            ValueKind::Module => text.parse().ok().map(Value::Module),
        };
        let value = value.ok_or_else(|| wrong(ValueProblem::Kind(kind)))?;
        self.check_value(&value).map_err(|error| wrong(error.problem))?;
        Ok(value)
    }

    /// Whether `value` is of this knob's kind and in its range.
    pub fn check_value(self, value: &Value) -> Result<(), ValueError> {
        let spec = self.spec();
        let wrong = |problem| ValueError { knob: self, text: shown(&value.to_string()), problem };
        if value.kind() != spec.kind {
            return Err(wrong(ValueProblem::Kind(spec.kind)));
        }
        let (lowest, highest) = match value {
            Value::Count(count) => (*count, *count),
            Value::Time(time) => {
                let unit = spec.time_unit().as_ns();
                if time.as_ns() % unit != 0 {
                    return Err(wrong(ValueProblem::Fraction(spec.unit)));
                }
                (time.as_ns() / unit, time.as_ns() / unit)
            }
            Value::Switch(on) => (u64::from(*on), u64::from(*on)),
            Value::Named(named) if spec.named != Some(*named) => {
                return Err(wrong(ValueProblem::Kind(spec.kind)));
            }
            Value::Qdisc(qdisc) if qdisc.is_opaque() => {
                return Err(wrong(ValueProblem::Kind(spec.kind)));
            }
            Value::Sizes(sizes) => (sizes.smallest(), sizes.largest()),
            // Any of these is in range: the types bound what they hold.
            Value::Cpus(_)
            | Value::Qdisc(_)
            | Value::Table(_)
            | Value::Profile(_)
            | Value::Module(_)
            | Value::Named(_) => (spec.min, spec.max),
        };
        if lowest < spec.min {
            return Err(wrong(ValueProblem::TooSmall));
        }
        if highest > spec.max {
            return Err(wrong(ValueProblem::TooLarge));
        }
        Ok(())
    }
}

/// Digits only, with `_` between them: no sign, no fraction, no unit. Too many digits for 64 bits
/// are the largest number, which no range allows.
fn parse_count(text: &str) -> Option<u64> {
    let digits = text.replace('_', "");
    let valid = text.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit());
    valid.then(|| digits.parse().unwrap_or(u64::MAX))
}

fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" | "1" => Some(true),
        "off" | "false" | "0" => Some(false),
        _ => None,
    }
}

/// A list as the kernel prints it, or a mask, which needs its `0x` because `10` could be either.
fn parse_cpus(text: &str) -> Option<CpuSet> {
    if text.starts_with("0x") { CpuSet::from_hex_mask(text).ok() } else { text.parse().ok() }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use latput_units::Nanos;

    use super::*;

    #[test]
    fn refused_value_tells_interface_range() {
        let error = Knob::Mtu.parse_value("70000").unwrap_err();
        let limits = Limits { min: Some(68), max: Some(65_535) };
        let allowed = "a whole number of bytes from 1280 to 65535";
        assert_eq!(Knob::Mtu.spec().range_within(limits), (1280, 65_535));
        let said = error.words_within(limits);
        assert_eq!(said, format!("mtu: `70000` is too large: give {allowed}, such as `1500`"));
        assert!(error.to_string().contains("from 1280 to 65536"), "{error}");
    }

    #[test]
    fn values_of_every_kind_are_read() {
        check(Knob::GroFlushTimeout, "50us", "50us");
        check(Knob::GroFlushTimeout, "0", "0us");
        check(Knob::GroFlushTimeout, "1s", "1s");
        check(Knob::Mtu, "1500", "1500");
        check(Knob::Mtu, " 9_000 ", "9000");
        check(Knob::BqlLimitMax, "64k", "65536");
        check(Knob::BqlLimitMax, "1.5KiB", "1536");
        check(Knob::NapiDeferHardIrqs, "2147483647", "2147483647");
        for (text, value) in [("on", "on"), ("true", "on"), ("1", "on"), ("off", "off")] {
            check(Knob::Gro, text, value);
        }
        check(Knob::RpsCpus, "0-3,8", "0-3,8");
        check(Knob::RpsCpus, "0xf", "0-3");
        check(Knob::RpsCpus, "0x1,00000000", "32");
        check(Knob::RpsCpus, "10", "10");
        check(Knob::RpsCpus, "0x0", "none");
        check(Knob::RpsCpus, "none", "none");
        check(Knob::RxUsecs, "50", "50us");
        check(Knob::RxUsecs, "50us", "50us");
        check(Knob::SmpAffinity, "hint", "hint");
        check(Knob::RxRing, "max", "max");
        check(Knob::Qdisc, "fq_codel target=5ms limit=10240", "fq_codel limit=10240 target=5ms");
        check(Knob::RssTable, "equal 4", "equal 4");
    }

    #[test]
    fn wrong_values_are_refused_with_the_mend() {
        let gro_flush = "give a time from 0us to 1s, such as `50us`";
        check_error(Knob::GroFlushTimeout, "50", "has no unit", gro_flush);
        check_error(Knob::GroFlushTimeout, "50 parsec", "is not a time", gro_flush);
        check_error(Knob::GroFlushTimeout, "1001ms", "is too large", gro_flush);
        check_error(Knob::GroFlushTimeout, "-1us", "is not a time", gro_flush);
        check_error(Knob::GroFlushTimeout, "", "is not a time", gro_flush);
        let mtu = "give a whole number of bytes from 1280 to 65536, such as `1500`";
        check_error(Knob::Mtu, "68", "is too small", mtu);
        check_error(Knob::Mtu, "99999999999999999999999999", "is too large", mtu);
        check_error(Knob::Mtu, "1500us", "is not a whole number", mtu);
        check_error(Knob::Mtu, "+1500", "is not a whole number", mtu);
        check_error(Knob::Mtu, "_", "is not a whole number", mtu);
        check_error(Knob::NapiDeferHardIrqs, "2147483648", "is too large", "from 0 to 2147483647");
        let rx_usecs = "give a time from 0us to 1s, such as `50us`";
        check_error(Knob::RxUsecs, "1500ns", "is not a whole number of us", rx_usecs);
        check_error(Knob::RxUsecs, "1000001", "is too large", rx_usecs);
        check_error(Knob::BusyPoll, "50", "has no unit", "such as `50us`");
        check_error(Knob::RxRing, "hint", "is not a whole number", "or `max`");
        check_error(Knob::RpsCpus, "hint", "is not a set of CPUs", "such as `0-3`");
        let error = Knob::Qdisc.parse_value("htb").unwrap_err().to_string();
        assert!(
            error.contains("the disciplines are default, noqueue")
                && error.contains("`fq_codel limit=")
        );
        check_error(Knob::Gro, "yes", "is not a switch", "give `on` or `off`, such as `off`");
        check_error(Knob::RpsCpus, "0-99999", "is not a set of CPUs", "from 0 to 8191");
        check_error(Knob::RpsCpus, "0xg", "is not a set of CPUs", "such as `0-3`");
    }

    #[test]
    fn huge_wrong_value_is_not_repeated_whole() {
        let error = Knob::Mtu.parse_value(&"x".repeat(1_000_000)).unwrap_err();
        assert!(error.to_string().len() < 300);
    }

    #[test]
    fn value_of_another_kind_is_refused() {
        let error = Knob::Mtu.check_value(&Value::Switch(true)).unwrap_err();
        assert_eq!(error.problem, ValueProblem::Kind(ValueKind::Count));
        assert!(Knob::GroFlushTimeout.check_value(&Value::Count(50)).is_err());
    }

    #[test]
    fn assignments_are_read() {
        assert_eq!(
            parse_assignment("gro-flush-timeout=50us"),
            Ok((Knob::GroFlushTimeout, Value::Time(Nanos::from_us(50))))
        );
        assert_eq!(parse_assignment("gro = off"), Ok((Knob::Gro, Value::Switch(false))));
        check_assignment_error("mtu", "write KNOB=VALUE");
        check_assignment_error("mut=1500", "did you mean `mtu`?");
        check_assignment_error("=1500", "there is no knob ``");
        check_assignment_error("mtu=", "mtu: `` is not a whole number");
        check_assignment_error("mtu=1500=1500", "mtu: `1500=1500` is not");
    }

    #[track_caller]
    fn check(knob: Knob, text: &str, value: &str) {
        assert_eq!(knob.parse_value(text).map(|value| value.to_string()), Ok(value.to_owned()));
    }

    #[track_caller]
    fn check_error(knob: Knob, text: &str, problem: &str, mend: &str) {
        let error = knob.parse_value(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{knob}: `{text}` {problem}: ")), "{error}");
        assert!(error.contains(mend), "{error}");
    }

    #[track_caller]
    fn check_assignment_error(text: &str, part: &str) {
        let error = parse_assignment(text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
