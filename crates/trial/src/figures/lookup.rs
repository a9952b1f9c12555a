//! A figure of the plan's own: its metric, and where its value stands in the output.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::unit::{PrintedUnit, SPELLINGS};
use crate::metric::{
    CustomMetric, CustomMetricError, Definition, Metric, PreferredDirection, Summary, Unit,
};

/// The longest pattern, pointer, column name and path, in bytes.
const LONGEST: usize = 1024;
/// Examples of the short form, for messages.
const EXAMPLE: &str = r"'rps=/Requests\/sec:\s+(\S+)/' or 'p99[us,lower]@stderr=json:/latency/p99'";
/// The most memory of a compiled pattern, in bytes.
const PATTERN_BYTES: usize = 1 << 20;

/// A figure of the plan's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct OwnFigure {
    /// The metric that gets the value.
    pub metric: Metric,
    /// The unit in which the program prints it.
    pub printed: PrintedUnit,
    /// The stream or file.
    pub from: Source,
    /// Its place there.
    pub lookup: Lookup,
}

/// Where a program writes a figure.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Its standard output.
    #[default]
    Stdout,
    /// Its standard error.
    Stderr,
    /// A file that it writes, by path.
    File(String),
}

impl Source {
    /// The name in messages: `stdout`, `stderr`, or the path.
    pub fn name(&self) -> &str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::File(path) => path,
        }
    }
}

/// The place of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    /// The text of a pattern's only group, or of the group with the metric's name.
    Regex(Pattern),
    /// A number in a JSON document, by pointer (RFC 6901).
    Json(String),
    /// A field of comma-separated values with a header.
    Csv {
        /// The name of the column.
        column: String,
        /// The row after the header, from 1; without it every row counts.
        row: Option<u32>,
    },
}

/// Writes the pattern or path that is looked up, for messages.
impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regex(pattern) => write!(f, "what matches /{}/", shown(pattern.as_str())),
            Self::Json(pointer) => write!(f, "JSON value `{}`", shown(pointer)),
            Self::Csv { column, row: None } => write!(f, "CSV column `{}`", shown(column)),
            Self::Csv { column, row: Some(row) } => {
                write!(f, "row {row} of CSV column `{}`", shown(column))
            }
        }
    }
}

/// A regular expression whose search takes time linear in the text.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: regex_lite::Regex,
    group: usize,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str() && self.group == other.group
    }
}

impl Pattern {
    fn new(text: &str, name: &str) -> Result<Self, String> {
        let regex =
            regex_lite::RegexBuilder::new(text).multi_line(true).size_limit(PATTERN_BYTES).build();
        let regex = regex.map_err(|error| error.to_string())?;
        let named = regex.capture_names().position(|group| group == Some(name));
        let group = match (named, regex.captures_len()) {
            (Some(group), _) => group,
            (None, 2) => 1,
            _ => {
                return Err(format!(
                    "it needs one group around the value, such as `([0-9.]+)`, or a group named `{name}`"
                ));
            }
        };
        Ok(Self { regex, group })
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }

    /// Finds the text of the group at each match.
    pub fn find_all<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let found = self.regex.captures_iter(text);
        found.filter_map(|captures| Some(captures.get(self.group)?.as_str()))
    }
}

/// A figure that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnFigureError {
    /// The definition of its metric is wrong.
    #[error(transparent)]
    Metric(#[from] CustomMetricError),
    /// The unit is not known, or not that of the metric.
    #[error("figure `{name}`: {problem}")]
    Unit {
        /// The figure.
        name: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// It must say its place in one way.
    #[error("figure `{name}`: give one of `regex`, `json` and `csv`")]
    Place {
        /// The figure.
        name: String,
    },
    /// The pattern, pointer, column or path is wrong.
    #[error("figure `{name}`: the {what} `{text}` cannot be used: {problem}")]
    Lookup {
        /// The figure.
        name: String,
        /// `regex`, `json`, `csv`, `file`.
        what: &'static str,
        /// Its beginning.
        text: String,
        /// The problem.
        problem: String,
    },
    /// A built-in metric has its direction and summary already.
    #[error(
        "figure `{name}` is a built-in metric: leave out `better` and `summary`, or choose another name"
    )]
    BuiltIn {
        /// The figure.
        name: String,
    },
    /// latput counts it itself.
    #[error("figure `{name}` is counted by latput itself: choose another name")]
    Counted {
        /// The figure.
        name: String,
    },
    /// The short form is wrong.
    #[error(
        "`{text}` is not a metric: write NAME=/REGEX/, NAME=json:POINTER or NAME=csv:COLUMN, such as {}; \
         {problem}",
        EXAMPLE
    )]
    Short {
        /// Its beginning.
        text: String,
        /// The problem.
        problem: String,
    },
    /// Two figures have one name.
    #[error("figure `{name}` is there twice: keep one")]
    Twice {
        /// The figure.
        name: String,
    },
    /// There are too many.
    #[error("a workload has at most {most} figures of its own")]
    TooMany {
        /// The limit.
        most: usize,
    },
}

/// A figure as plans write it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) name: String,
    pub(super) unit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) better: Option<PreferredDirection>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Summary>,
    #[serde(default)]
    pub(super) from: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) regex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) json: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) csv: Option<WrittenCsv>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenCsv {
    pub(super) column: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) row: Option<u32>,
}

impl TryFrom<Written> for OwnFigure {
    type Error = OwnFigureError;

    fn try_from(written: Written) -> Result<Self, OwnFigureError> {
        let name = written.name.clone();
        let printed = printed(&written)?;
        let lookup = lookup(&written)?;
        if let Source::File(path) = &written.from {
            check_text(&name, "file", path)?;
        }
        Ok(Self { metric: metric(&written, printed.unit)?, printed, from: written.from, lookup })
    }
}

/// The unit as written, or else the one that the name ends with: `rps`, `p99_us`.
fn printed(written: &Written) -> Result<PrintedUnit, OwnFigureError> {
    let error = |problem: String| OwnFigureError::Unit { name: shown(&written.name), problem };
    let Some(spelling) = &written.unit else {
        let built_in = built_in(&written.name).map(|metric| metric.row().unit);
        let end = written.name.rsplit('_').next().unwrap_or_default();
        let of_name =
            built_in.and_then(|unit| SPELLINGS.iter().find(|it| it.unit == unit).copied());
        let is_rate = written.name.ends_with("_per_s");
        let of_end = PrintedUnit::parse(if is_rate { "per_s" } else { end });
        return of_name
            .or(of_end)
            .or_else(|| PrintedUnit::parse("number"))
            .ok_or_else(|| error("give its `unit`".to_owned()));
    };
    PrintedUnit::parse(spelling).ok_or_else(|| {
        let spellings: Vec<&str> = SPELLINGS.iter().map(|it| it.spelling).collect();
        error(format!(
            "`{}` is not a unit; the units are: {}",
            shown(spelling),
            spellings.join(", ")
        ))
    })
}

fn built_in(name: &str) -> Option<Metric> {
    Metric::ALL.iter().find(|metric| metric.name() == name).copied()
}

fn metric(written: &Written, unit: Unit) -> Result<Metric, OwnFigureError> {
    let name = written.name.clone();
    let Some(metric) = built_in(&name) else {
        let better = written.better.unwrap_or(match unit {
            Unit::BitsPerS | Unit::PerS | Unit::PacketsPerS => PreferredDirection::Higher,
            Unit::Nanoseconds => PreferredDirection::Lower,
            _ => PreferredDirection::Neither,
        });
        let of_unit = if unit == Unit::Nanoseconds { Summary::Median } else { Summary::Mean };
        let summary = written.summary.unwrap_or(of_unit);
        let definition = Definition { name, unit, better, summary };
        return Ok(Metric::Custom(CustomMetric::define(&definition)?));
    };
    let is_of_host = ["sut_", "generator_"].iter().any(|start| name.starts_with(start));
    if is_of_host || metric.is_of_probe() || !metric.row().unit.is_of_programs() {
        return Err(OwnFigureError::Counted { name });
    }
    if written.better.is_some() || written.summary.is_some() {
        return Err(OwnFigureError::BuiltIn { name });
    }
    if metric.row().unit != unit {
        let problem = format!("latput's metric of this name is in {}", metric.row().unit.name());
        return Err(OwnFigureError::Unit { name, problem });
    }
    Ok(metric)
}

pub(super) fn lookup(written: &Written) -> Result<Lookup, OwnFigureError> {
    let name = &written.name;
    let wrong = |what, text: &str, problem: String| OwnFigureError::Lookup {
        name: shown(name),
        what,
        text: shown(text),
        problem,
    };
    match (&written.regex, &written.json, &written.csv) {
        (Some(regex), None, None) => {
            check_text(name, "regex", regex)?;
            let pattern = Pattern::new(regex, name);
            Ok(Lookup::Regex(pattern.map_err(|problem| wrong("regex", regex, problem))?))
        }
        (None, Some(pointer), None) => {
            check_text(name, "json", pointer)?;
            if !pointer.starts_with('/') {
                let problem = "a pointer begins with `/`, such as `/jobs/0/read/iops`";
                return Err(wrong("json", pointer, problem.to_owned()));
            }
            Ok(Lookup::Json(pointer.clone()))
        }
        (None, None, Some(csv)) => {
            check_text(name, "csv", &csv.column)?;
            if csv.row == Some(0) {
                let problem = "rows are counted from 1, after the header";
                return Err(wrong("csv", &csv.column, problem.to_owned()));
            }
            Ok(Lookup::Csv { column: csv.column.clone(), row: csv.row })
        }
        _ => Err(OwnFigureError::Place { name: shown(name) }),
    }
}

fn check_text(name: &str, what: &'static str, text: &str) -> Result<(), OwnFigureError> {
    let problem = match text.len() {
        0 => "it is empty".to_owned(),
        length if length > LONGEST => format!("it is longer than {LONGEST} bytes"),
        _ if text.contains('\0') => "it has a null byte".to_owned(),
        _ => return Ok(()),
    };
    Err(OwnFigureError::Lookup { name: shown(name), what, text: shown(text), problem })
}

pub(super) fn shown(text: &str) -> String {
    text.escape_debug().take(80).collect()
}

impl From<OwnFigure> for Written {
    fn from(figure: OwnFigure) -> Self {
        let OwnFigure { metric, printed, from, lookup } = figure;
        let own = matches!(metric, Metric::Custom(_)).then(|| metric.row());
        let mut written = Self {
            name: metric.name().to_owned(),
            unit: Some(printed.spelling.to_owned()),
            better: own.map(|row| row.preferred),
            summary: own.map(|row| row.summary),
            from,
            ..Self::default()
        };
        match lookup {
            Lookup::Regex(pattern) => written.regex = Some(pattern.as_str().to_owned()),
            Lookup::Json(pointer) => written.json = Some(pointer),
            Lookup::Csv { column, row } => written.csv = Some(WrittenCsv { column, row }),
        }
        written
    }
}
