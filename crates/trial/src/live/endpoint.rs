//! Where an application tells its own figures: an HTTP endpoint or a file in the text format of Prometheus or with numbers at
//! known places, or a socket of latput's that takes statsd.

use core::net::SocketAddr;
use serde::{Deserialize, Serialize};

use super::series::{MetricSeries, SeriesUnit};
use crate::figures::TextPlace;
use crate::metric::{CustomMetric, Definition, PreferredDirection, Summary, Unit};
use crate::program::{ProgramCommand, split};

/// Most figures of an endpoint.
const MOST_FIGURES: usize = 32;
/// Most bytes of a path.
const MOST_BYTES: usize = 1_000;
/// Most bytes of a Unix socket's path, with the null byte behind it (unix(7)).
const MOST_SOCKET_BYTES: usize = 107;
/// Most bytes of a command.
const MOST_COMMAND_BYTES: usize = 8_000;
/// The port of `http`.
const HTTP_PORT: u16 = 80;

/// An endpoint, and what is read there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Where it is.
    pub at: EndpointAt,
    /// The figures.
    pub figures: Vec<EndpointFigure>,
}

/// The place of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EndpointAt {
    /// It answers over HTTP.
    Http {
        /// Its address. Names are not looked up: who watches a host asks no other for it.
        address: SocketAddr,
        /// The path, with a `/` before it.
        path: String,
    },
    /// A file that the application writes again and again, by its absolute path.
    File(String),
    /// A Unix datagram socket that latput makes, and removes at the end, by its absolute path. The application sends to it.
    Statsd(String),
    /// A program that latput runs on the host. It prints the figures again and again, with an empty line or `# EOF` after
    /// them.
    Exec(ProgramCommand),
}

/// One figure of an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointFigure {
    /// The metric that it becomes.
    pub metric: CustomMetric,
    /// Source of the figure.
    pub source: FigureSource,
}

/// Source of a figure at an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FigureSource {
    /// A counter: its growth per second.
    Counter(FigurePlace),
    /// A gauge: the mean of its values.
    Gauge(FigurePlace),
    /// A histogram of times (in seconds, unless its name says another unit) or of data, or timings of statsd: this quantile
    /// of what was added.
    Quantile(f64, MetricSeries),
}

/// Where a number stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FigurePlace {
    /// In series with a name.
    Series(MetricSeries),
    /// At a place in the text.
    Text(TextPlace),
}

impl Endpoint {
    /// Reads `http://ADDRESS[:PORT]/PATH`, `file:///PATH`, `statsd:///PATH` or `exec:WORDS`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and the remedy.
    pub fn parse(url: &str, figures: Vec<EndpointFigure>) -> Result<Self, String> {
        let endpoint = Self { at: EndpointAt::parse(url)?, figures };
        endpoint.check()?;
        Ok(endpoint)
    }

    /// The same, with its command run as this user.
    ///
    /// # Errors
    ///
    /// It is no command.
    pub fn run_as(mut self, user: String) -> Result<Self, String> {
        match &mut self.at {
            EndpointAt::Exec(command) => command.user = Some(user),
            _ => return Err("only a command (`exec:PROGRAM`) runs as a user".to_owned()),
        }
        Ok(self)
    }

    /// Refuses what cannot be asked for.
    ///
    /// # Errors
    ///
    /// The problem and the remedy.
    pub fn check(&self) -> Result<(), String> {
        self.at.check()?;
        let is_statsd = matches!(self.at, EndpointAt::Statsd(_));
        if let Some(figure) = self.figures.iter().find(|it| is_statsd && !it.source.is_plain()) {
            return Err(format!(
                "`{}`: statsd has no labels and no places: write `counter NAME`, `gauge NAME` or `quantile \
                 0.99 NAME`",
                figure.metric.name()
            ));
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

impl EndpointAt {
    fn parse(url: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is not an endpoint: write `http://ADDRESS:PORT/metrics` with an IP address, \
                 `file:///PATH`, `statsd:///PATH.sock`, or `exec:PROGRAM ARGUMENTS`",
                shown(url)
            )
        };
        if let Some(path) = url.strip_prefix("file://") {
            return Ok(Self::File(path.to_owned()));
        }
        if let Some(path) = url.strip_prefix("statsd://") {
            return Ok(Self::Statsd(path.to_owned()));
        }
        if let Some(line) = url.strip_prefix("exec:") {
            let words = split(line).map_err(|problem| problem.to_string())?;
            return Ok(Self::Exec(ProgramCommand::plain(words)));
        }
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let address = if let Ok(address) = authority.parse() {
            address
        } else {
            let bare = authority.trim_start_matches('[').trim_end_matches(']');
            SocketAddr::new(bare.parse().map_err(|_| wrong())?, HTTP_PORT)
        };
        let path = if path.is_empty() { "/metrics" } else { path }.to_owned();
        Ok(Self::Http { address, path })
    }

    fn check(&self) -> Result<(), String> {
        let (path, is_plain) = match self {
            Self::Http { path, .. } => (path, path.bytes().all(|byte| byte.is_ascii_graphic())),
            Self::File(path) | Self::Statsd(path) => (path, !path.contains(char::is_control)),
            Self::Exec(command) => return check_command(command),
        };
        if !path.starts_with('/') || !is_plain || path.len() > MOST_BYTES {
            return Err(format!("the path `{}` is invalid: it begins with `/`", shown(path)));
        }
        match self {
            Self::Statsd(path) if !is_socket_path(path) => Err(format!(
                "the socket `{}` ends with `.sock`, has no `..` and at most {MOST_SOCKET_BYTES} bytes",
                shown(path)
            )),
            _ => Ok(()),
        }
    }
}

/// Refuses a command that nobody could run, or that a message has no room for.
fn check_command(command: &ProgramCommand) -> Result<(), String> {
    let bytes: usize = command.words.iter().map(|word| word.len() + 1).sum();
    if command.words.first().is_none_or(String::is_empty) {
        return Err("behind `exec:` comes a program".to_owned());
    }
    let has_null = command.words.iter().any(|word| word.contains('\0'));
    if has_null || bytes > MOST_COMMAND_BYTES {
        return Err(format!(
            "the command has a NUL, or more than {MOST_COMMAND_BYTES} bytes: make it a script"
        ));
    }
    Ok(())
}

/// Whether latput makes a socket there.
pub fn is_socket_path(path: &str) -> bool {
    let has_steps_up = path.split('/').any(|part| part == "..");
    path.starts_with('/')
        && path.strip_suffix(".sock").is_some()
        && path.len() <= MOST_SOCKET_BYTES
        && !has_steps_up
        && !path.contains('\0')
}

/// For messages.
impl std::fmt::Display for EndpointAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Http { address, path } => write!(f, "http://{address}{path}"),
            Self::File(path) => write!(f, "file://{path}"),
            Self::Statsd(path) => write!(f, "statsd://{path}"),
            Self::Exec(command) => write!(f, "exec:{}", command.in_words()),
        }
    }
}

impl EndpointFigure {
    /// Reads a figure: its name, `errors_per_s` or `errors_per_s[lower]`, and what it is read from:
    /// `counter NAME`, `gauge NAME` or `quantile 0.99 NAME`, where NAME may have labels (`NAME{code="500"}`). In the place of
    /// a counter's or a gauge's name may stand `/REGEX/`, `json:POINTER` or `csv:COLUMN:ROW`.
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
        let of_name = source.series().and_then(MetricSeries::unit);
        let (unit, usually, summary) = match source {
            FigureSource::Counter(_) => {
                let is_data = of_name.is_some_and(|unit| unit.is_data);
                let unit = if is_data { Unit::BitsPerS } else { Unit::PerS };
                (unit, PreferredDirection::Neither, Summary::Mean)
            }
            FigureSource::Gauge(_) => {
                let unit = of_name.map_or(Unit::Number, SeriesUnit::of_values);
                (unit, PreferredDirection::Neither, Summary::Mean)
            }
            FigureSource::Quantile(..) => {
                let unit = of_name.map_or(Unit::Nanoseconds, SeriesUnit::of_values);
                (unit, PreferredDirection::Lower, Summary::Median)
            }
        };
        if unit == Unit::BitsPerS && name.contains("bytes") {
            return Err(format!(
                "`{}` would be bits per second: name it so (`rx_bps`)",
                shown(name)
            ));
        }
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
                "`{}` is not a figure: write `counter NAME`, `gauge NAME` or `quantile 0.99 NAME`, with labels \
                 as in NAME{{code=\"500\"}}",
                shown(text)
            )
        };
        let (kind, rest) = text.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
        match kind {
            "counter" => Ok(Self::Counter(FigurePlace::parse(rest)?.ok_or_else(wrong)?)),
            "gauge" => Ok(Self::Gauge(FigurePlace::parse(rest)?.ok_or_else(wrong)?)),
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

    /// The series, unless it is a place in a text.
    pub const fn series(&self) -> Option<&MetricSeries> {
        match self {
            Self::Counter(FigurePlace::Series(series))
            | Self::Gauge(FigurePlace::Series(series))
            | Self::Quantile(_, series) => Some(series),
            Self::Counter(FigurePlace::Text(_)) | Self::Gauge(FigurePlace::Text(_)) => None,
        }
    }

    /// Whether it is a name alone.
    fn is_plain(&self) -> bool {
        self.series().is_some_and(|series| series.labels.is_empty())
    }
}

impl FigurePlace {
    fn parse(text: &str) -> Result<Option<Self>, String> {
        let text = text.trim();
        if TextPlace::is_meant(text) {
            return TextPlace::parse(text).map(|place| Some(Self::Text(place)));
        }
        Ok(MetricSeries::parse(text).map(Self::Series))
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
    fn endpoint_is_an_address_with_a_path() {
        let figure =
            EndpointFigure::parse("live_test_errors[lower]", "counter errors_total").unwrap();
        let parse = |url: &str| Endpoint::parse(url, vec![figure.clone()]);
        for (url, known) in [
            ("http://127.0.0.1:9100", "http://127.0.0.1:9100/metrics"),
            ("http://[::1]/m?x=1", "http://[::1]:80/m?x=1"),
            ("file:///run/app/metrics.prom", "file:///run/app/metrics.prom"),
            ("statsd:///run/app.sock", "statsd:///run/app.sock"),
            ("exec:figures --prom 'a b'", "exec:figures --prom 'a b'"),
        ] {
            assert_eq!(parse(url).unwrap().at.to_string(), known);
        }
        for url in [
            "https://10.0.0.1/",
            "http://server/metrics",
            "http://10.0.0.1:99999/",
            "http://10.0.0.1/a b",
            "file://metrics.prom",
            "exec:",
            "exec:''",
            "exec:figures 'a",
            "exec:figures a\0",
            "statsd://run/app.sock",
            "statsd:///run/app",
            "statsd:///run/../app.sock",
            "",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
        let run_as = |url| parse(url).unwrap().run_as("app".to_owned());
        assert!(run_as("exec:figures").is_ok() && run_as("file:///run/figures").is_err());
        assert!(Endpoint::parse("http://10.0.0.1/", Vec::new()).unwrap_err().contains("--figure"));
        assert_eq!(figure.metric.definition().better, PreferredDirection::Lower);
    }

    #[test]
    fn figure_says_what_it_is_read_from() {
        // A name has one definition in a process.
        let name = |text: &str| format!("live_test_{}", text.split(' ').next().unwrap_or_default());
        let source = |text: &str| EndpointFigure::parse(&name(text), text).map(|it| it.source);
        let FigureSource::Counter(FigurePlace::Series(series)) =
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
        let place = source(r"gauge /queue: (\d+)/").unwrap();
        assert!(matches!(place, FigureSource::Gauge(FigurePlace::Text(_))));
        assert!(source("counter /(/").unwrap_err().contains("cannot be used"));
        let unit = |name: &str, text: &str| {
            EndpointFigure::parse(name, text).map(|it| it.metric.definition().unit)
        };
        assert_eq!(unit("live_test_unit_a", "counter rx_bytes_total"), Ok(Unit::BitsPerS));
        assert_eq!(unit("live_test_unit_b", "gauge lag_milliseconds"), Ok(Unit::Nanoseconds));
        assert_eq!(unit("live_test_unit_c", "quantile 0.9 size_bytes"), Ok(Unit::Bytes));
        assert_eq!(unit("live_test_unit_d", "counter busy_seconds_total"), Ok(Unit::PerS));
        let bytes = unit("live_test_bytes", "counter rx_bytes_total").unwrap_err();
        assert!(bytes.contains("bits per second"), "{bytes}");
        let at = |text: &str| {
            let figure = EndpointFigure::parse("live_test_counter", text).unwrap();
            Endpoint::parse("statsd:///run/app.sock", vec![figure])
        };
        assert!(at("counter app.requests").is_ok());
        assert!(at("counter a{b=\"c\"}").is_err() && at("counter json:/a").is_err());
        let quantile =
            EndpointFigure::parse("live_test_p99", "quantile 0.99 latency_seconds").unwrap();
        assert_eq!(quantile.metric.definition().unit, Unit::Nanoseconds);
        assert!(EndpointFigure::parse("live_test_x[best]", "gauge a").is_err());
        assert!(
            EndpointFigure::parse("rate", "gauge a").unwrap_err().contains("already uses the name")
        );
    }
}
