//! Series in the text format of Prometheus, with the unit that their names end in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metric::Unit;

/// Most bytes of a metric's name or a label.
const MOST_BYTES: usize = 1_000;

/// Series of one name. Those that have all of these labels are added up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricSeries {
    /// The name: `http_requests_total`.
    pub name: String,
    /// Labels that must be there with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl MetricSeries {
    /// Reads `NAME`, `NAME{label="value",...}` or, with a name of any letters, `{"NAME",label="value",...}`; also what stands
    /// behind it. Names of labels may be quoted too.
    pub fn parse_start(text: &str) -> Option<(Self, &str)> {
        let end = text.find(['{', ' ', '\t']).unwrap_or(text.len());
        let (name, mut rest) = text.split_at(end);
        let mut series = Self { name: name.to_owned(), labels: BTreeMap::new() };
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            loop {
                rest = rest.trim_start_matches([' ', '\t', ',']);
                if let Some(behind) = rest.strip_prefix('}') {
                    rest = behind;
                    break;
                }
                let plain = || {
                    let end = rest.find('=')?;
                    Some((rest[..end].trim().to_owned(), &rest[end..]))
                };
                let (label, behind) = quoted(rest).or_else(plain)?;
                let behind = behind.trim_start();
                if let Some(value) = behind.strip_prefix('=') {
                    let (value, behind) = quoted(value.trim_start())?;
                    series.labels.insert(label, value);
                    rest = behind;
                } else if series.name.is_empty() {
                    series.name = label;
                    rest = behind;
                } else {
                    return None;
                }
            }
        }
        (!series.name.is_empty()).then_some((series, rest))
    }

    /// Reads one, with nothing behind it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_plain = |name: &str| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:.-".contains(&byte))
        };
        let text = text.trim();
        let (series, rest) = Self::parse_start(text)?;
        let is_quoted = text.starts_with('{');
        let texts = || series.labels.iter().flat_map(|(label, value)| [label, value]);
        let is_short = texts().chain([&series.name]).all(|text| text.len() <= MOST_BYTES);
        let has_names = series.labels.keys().all(|label| !label.is_empty());
        let is_known = rest.trim().is_empty() && is_short && has_names;
        (is_known && (is_quoted || is_plain(&series.name))).then_some(series)
    }

    /// The unit that the name ends in, as names of Prometheus do: `request_duration_milliseconds`.
    pub fn unit(&self) -> Option<SeriesUnit> {
        let name = self.name.strip_suffix("_total").unwrap_or(&self.name);
        SeriesUnit::parse(name.rsplit(['_', '.']).next()?)
    }
}

/// A text in quotes, without its escapes, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut letters = text.strip_prefix('"')?.char_indices();
    let mut plain = String::new();
    loop {
        match letters.next()? {
            (at, '"') => return Some((plain, &text[at + 2..])), // both quotes
            (_, '\\') => match letters.next()?.1 {
                'n' => plain.push('\n'),
                other => plain.push(other),
            },
            (_, letter) => plain.push(letter),
        }
    }
}

/// The unit of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesUnit {
    /// Whether it is of data; else of time.
    pub is_data: bool,
    /// Factor of one to seconds or bytes.
    pub in_base: f64,
}

impl SeriesUnit {
    /// The unit of this word: `seconds`, `bytes` and their parts and multiples.
    pub fn parse(word: &str) -> Option<Self> {
        let (is_data, in_base) = match word {
            "seconds" => (false, 1.0),
            "milliseconds" | "ms" => (false, 1e-3),
            "microseconds" | "us" => (false, 1e-6),
            "nanoseconds" | "ns" => (false, 1e-9),
            "bytes" => (true, 1.0),
            "bits" => (true, 0.125),
            _ => return None,
        };
        Some(Self { is_data, in_base })
    }

    /// The unit of a metric that has its values.
    pub(super) const fn of_values(self) -> Unit {
        if self.is_data { Unit::Bytes } else { Unit::Nanoseconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_names_have_any_letters() {
        let text = r#"{"my.métric, x", "a.b"="c}\"\\", code = "5"} 3 # {trace="}"} 1"#;
        let (series, rest) = MetricSeries::parse_start(text).unwrap();
        assert_eq!((series.name.as_str(), rest), ("my.métric, x", " 3 # {trace=\"}\"} 1"));
        assert_eq!(series.labels["a.b"], "c}\"\\");
        assert_eq!(series.labels["code"], "5");
        for wrong in [r#"{"a","b"} 1"#, "{} 1", r#"{a="b"} 1"#, r#"a{"b"} 1"#, "é 1"] {
            assert_eq!(MetricSeries::parse(wrong.trim_end_matches(" 1")), None, "{wrong}");
        }
        assert_eq!(MetricSeries::parse(r#"{"é"}"#).unwrap().name, "é");
    }

    #[test]
    fn names_end_in_units() {
        let unit = |name: &str| {
            let series = MetricSeries { name: name.to_owned(), ..MetricSeries::default() };
            series.unit().map(|unit| (unit.is_data, unit.in_base))
        };
        assert_eq!(unit("request_seconds"), Some((false, 1.0)));
        assert_eq!(unit("request.duration.milliseconds"), Some((false, 1e-3)));
        assert_eq!(unit("wait_microseconds_total"), Some((false, 1e-6)));
        assert_eq!(unit("sent_bits_total"), Some((true, 0.125)));
        assert_eq!((unit("requests_total"), unit("latency")), (None, None));
    }
}
