//! Figures that a program prints: what a plan says of them, and what was read.
//!
//! A plan names a known program's parser, gives figures of its own, or both:
//!
//! ```text
//! metrics = { parser = "wrk" }
//! metrics = [{ name = "rps", unit = "per_s", regex = 'Requests/sec:\s+(\S+)' }]
//! metrics = { parser = "fio", own = [{ name = "p9999", unit = "ns", json = "/jobs/0/read/clat_ns/percentile/99.990000" }] }
//! metrics = { histogram = { from = { file = "/tmp/out.hlog" }, unit = "us" } }
//! ```

mod document;
mod histogram_log;
mod lookup;
mod number;
mod parser;
mod place;
mod read;
mod short;
mod unit;

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use self::document::{JsonDocuments, MOST_DOCUMENTS, decode};
pub use self::histogram_log::HistogramLog;
pub use self::lookup::{Lookup, OwnFigure, OwnFigureError, Pattern, Source};
pub use self::number::{Commas, NumberError, is_of_number, read_number};
pub use self::parser::{Parser, ParserRow, UnknownParser};
pub use self::place::TextPlace;
pub use self::read::{FiguresError, Output, ProgramFigures, Text};
pub use self::unit::{PrintedUnit, SPELLINGS};
use crate::metric::Metric;

/// The most figures of a plan's own of one workload.
const MOST_OWN: usize = 64;

/// The figures of one workload's program.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The parser of a known program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parser: Option<Parser>,
    /// The log of `HdrHistogram` that it writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram: Option<HistogramLog>,
    /// Figures beside those of the parser, in the plan's order; each name once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<OwnFigure>,
}

impl Figures {
    /// The figures of `--metric` options, with the parser of the command if it is a known program.
    pub fn of_options(command: &[String], options: &[String]) -> Result<Self, OwnFigureError> {
        let own = options.iter().map(|option| short::parse(option)).collect::<Result<_, _>>()?;
        Self { parser: Parser::of_command(command), own, ..Self::default() }.checked()
    }

    /// Whether nothing is to be read.
    pub const fn is_empty(&self) -> bool {
        self.parser.is_none() && self.histogram.is_none() && self.own.is_empty()
    }

    /// The metrics of the plan's own figures.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        self.own.iter().map(|figure| figure.metric)
    }

    /// The files that the program writes figures to, each once.
    pub fn files(&self) -> Vec<&str> {
        let mut files: Vec<&str> = Vec::new();
        let logs = self.histogram.iter().map(|log| &log.from);
        for from in logs.chain(self.own.iter().map(|figure| &figure.from)) {
            if let Source::File(path) = from
                && !files.contains(&path.as_str())
            {
                files.push(path);
            }
        }
        files
    }

    fn checked(self) -> Result<Self, OwnFigureError> {
        if self.own.len() > MOST_OWN {
            return Err(OwnFigureError::TooMany { most: MOST_OWN });
        }
        for (idx, figure) in self.own.iter().enumerate() {
            if self.own[..idx].iter().any(|other| other.metric == figure.metric) {
                return Err(OwnFigureError::Twice { name: figure.metric.name().to_owned() });
            }
        }
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for Figures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FiguresVisitor)
    }
}

/// A table, or a list of figures: an enum without tags would lose the reason of an error.
struct FiguresVisitor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FiguresTable {
    parser: Option<Parser>,
    histogram: Option<HistogramLog>,
    #[serde(default)]
    own: Vec<OwnFigure>,
}

impl<'de> Visitor<'de> for FiguresVisitor {
    type Value = Figures;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table such as { parser = \"wrk\" }, or a list of figures")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Figures, A::Error> {
        let own = Vec::<OwnFigure>::deserialize(SeqAccessDeserializer::new(list))?;
        Figures { own, ..Figures::default() }.checked().map_err(serde::de::Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Figures, A::Error> {
        let FiguresTable { parser, histogram, own } =
            FiguresTable::deserialize(MapAccessDeserializer::new(table))?;
        Figures { parser, histogram, own }.checked().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
