//! Where an application tells its own figures: an HTTP endpoint in the text format of Prometheus.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metric::{CustomMetric, Definition, PreferredDirection, Summary, Unit};

/// Most figures of an endpoint.
const MOST_FIGURES: usize = 32;
/// Most bytes of a path, a metric's name or a label.
const MOST_BYTES: usize = 1_000;
/// The port of `http`.
const HTTP_PORT: u16 = 80;

/// An endpoint, and what is read there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Its address. Names are not looked up: who watches a host asks no other for it.
    pub address: SocketAddr,
    /// The path, with a `/` before it.
    pub path: String,
    /// The figures.
    pub figures: Vec<EndpointFigure>,
}

/// One figure of an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointFigure {
    /// The metric that it becomes.
    pub metric: CustomMetric,
    /// What is read.
    pub source: FigureSource,
}

/// What is read at an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FigureSource {
    /// A counter: its growth per second.
    Counter(MetricSeries),
    /// A gauge: the mean of its values.
    Gauge(MetricSeries),
    /// A histogram of seconds: this quantile, in nanoseconds, of what was added to it.
    Quantile(f64, MetricSeries),
}

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

impl Endpoint {
    /// Reads `http://ADDRESS[:PORT]/PATH`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and the remedy.
    pub fn parse(url: &str, figures: Vec<EndpointFigure>) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is no endpoint: write `http://ADDRESS:PORT/metrics` with an IP address",
                shown(url)
            )
        };
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let address = if let Ok(address) = authority.parse() {
            address
        } else {
            let bare = authority.trim_start_matches('[').trim_end_matches(']');
            SocketAddr::new(bare.parse().map_err(|_| wrong())?, HTTP_PORT)
        };
        let path = if path.is_empty() { "/metrics" } else { path }.to_owned();
        let endpoint = Self { address, path, figures };
        endpoint.check()?;
        Ok(endpoint)
    }

    /// Refuses what cannot be asked for.
    ///
    /// # Errors
    ///
    /// The problem and the remedy.
    pub fn check(&self) -> Result<(), String> {
        let is_plain = self.path.bytes().all(|byte| byte.is_ascii_graphic());
        if !self.path.starts_with('/') || !is_plain || self.path.len() > MOST_BYTES {
            return Err(format!("the path `{}` is invalid", shown(&self.path)));
        }
        if self.figures.is_empty() {
            return Err("say which figures to read there: `metrics = { errors_per_s = \"counter errors_total\" }` in a \
                        plan, or `--figure 'errors_per_s=counter errors_total'`"
                .to_owned());
        }
        if self.figures.len() > MOST_FIGURES {
            return Err(format!("it has more than {MOST_FIGURES} figures"));
        }
        Ok(())
    }
}

impl EndpointFigure {
    /// Reads a figure: its name, `errors_per_s` or `errors_per_s[lower]`, and what it is read from:
    /// `counter NAME`, `gauge NAME` or `quantile 0.99 NAME`, where NAME may have labels (`NAME{code="500"}`).
    ///
    /// # Errors
    ///
    /// What is wrong, and the remedy.
    pub fn parse(name: &str, source: &str) -> Result<Self, String> {
        let (name, better) = match name.split_once('[') {
            None => (name, None),
            Some((name, better)) => (name, Some(direction(better)?)),
        };
        let source = FigureSource::parse(source)?;
        let (unit, usually, summary) = match source {
            FigureSource::Counter(_) => (Unit::PerS, PreferredDirection::Neither, Summary::Mean),
            FigureSource::Gauge(_) => (Unit::Number, PreferredDirection::Neither, Summary::Mean),
            FigureSource::Quantile(..) => {
                (Unit::Nanoseconds, PreferredDirection::Lower, Summary::Median)
            }
        };
        let better = better.unwrap_or(usually);
        let definition = Definition { name: name.trim().to_owned(), unit, better, summary };
        let metric = CustomMetric::define(&definition).map_err(|error| error.to_string())?;
        Ok(Self { metric, source })
    }
}

impl FigureSource {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is no figure: write `counter NAME`, `gauge NAME` or `quantile 0.99 NAME`, with labels as in \
                 NAME{{code=\"500\"}}",
                shown(text)
            )
        };
        let (kind, rest) = text.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
        match kind {
            "counter" => Ok(Self::Counter(MetricSeries::parse(rest).ok_or_else(wrong)?)),
            "gauge" => Ok(Self::Gauge(MetricSeries::parse(rest).ok_or_else(wrong)?)),
            "quantile" => {
                let (share, series) =
                    rest.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
                let share: f64 = share.parse().map_err(|_| wrong())?;
                if !(share > 0.0 && share < 1.0) {
                    return Err(wrong());
                }
                Ok(Self::Quantile(share, MetricSeries::parse(series).ok_or_else(wrong)?))
            }
            _ => Err(wrong()),
        }
    }

    /// The series that it is read from.
    pub const fn series(&self) -> &MetricSeries {
        match self {
            Self::Counter(series) | Self::Gauge(series) | Self::Quantile(_, series) => series,
        }
    }
}

impl MetricSeries {
    /// Reads `NAME` or `NAME{label="value",...}`.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (name, labels) = match text.split_once('{') {
            None => (text, ""),
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
        };
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= MOST_BYTES
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte))
        };
        let mut series = Self { name: name.trim().to_owned(), labels: BTreeMap::new() };
        for label in labels.split(',').filter(|label| !label.trim().is_empty()) {
            let (label, value) = label.split_once('=')?;
            let value = value.trim().strip_prefix('"')?.strip_suffix('"')?;
            let label = label.trim();
            if !is_name(label) || value.len() > MOST_BYTES {
                return None;
            }
            series.labels.insert(label.to_owned(), value.to_owned());
        }
        is_name(&series.name).then_some(series)
    }
}

fn direction(text: &str) -> Result<PreferredDirection, String> {
    match text.trim_end().strip_suffix(']') {
        Some("lower") => Ok(PreferredDirection::Lower),
        Some("higher") => Ok(PreferredDirection::Higher),
        _ => Err("behind the name of a figure comes `[lower]`, `[higher]` or nothing".to_owned()),
    }
}

fn shown(text: &str) -> String {
    text.escape_debug().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_with_a_path() {
        let figure =
            EndpointFigure::parse("live_test_errors[lower]", "counter errors_total").unwrap();
        let parse = |url: &str| Endpoint::parse(url, vec![figure.clone()]);
        let known = parse("http://127.0.0.1:9100").unwrap();
        assert_eq!(
            (known.address.to_string().as_str(), known.path.as_str()),
            ("127.0.0.1:9100", "/metrics")
        );
        assert_eq!(parse("http://[::1]/m?x=1").unwrap().address.to_string(), "[::1]:80");
        for url in [
            "https://10.0.0.1/",
            "http://server/metrics",
            "http://10.0.0.1:99999/",
            "http://10.0.0.1/a b",
            "",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
        assert!(Endpoint::parse("http://10.0.0.1/", Vec::new()).unwrap_err().contains("--figure"));
        assert_eq!(figure.metric.definition().better, PreferredDirection::Lower);
    }

    #[test]
    fn a_figure_says_what_it_is_read_from() {
        let source = |text: &str| EndpointFigure::parse("live_test_any", text).map(|it| it.source);
        let FigureSource::Counter(series) =
            source("counter errors_total{code=\"500\", path=\"/\"}").unwrap()
        else {
            panic!("a counter");
        };
        assert_eq!((series.name.as_str(), series.labels.len()), ("errors_total", 2));
        assert_eq!(series.labels["code"], "500");
        for text in [
            "counter",
            "sum a",
            "counter a{",
            "counter a{b}",
            "counter a b",
            "quantile 2 a",
            "quantile a",
            "",
        ] {
            assert!(source(text).is_err(), "{text}");
        }
        let quantile =
            EndpointFigure::parse("live_test_p99", "quantile 0.99 latency_seconds").unwrap();
        assert_eq!(quantile.metric.definition().unit, Unit::Nanoseconds);
        assert!(EndpointFigure::parse("live_test_x[best]", "gauge a").is_err());
        assert!(EndpointFigure::parse("rate", "gauge a").unwrap_err().contains("has a meaning"));
    }
}
