//! A log of `HdrHistogram` that a program writes: where, in which unit, and which of its distributions.

use serde::{Deserialize, Serialize};

use super::lookup::shown;
use super::{PrintedUnit, Source};
use crate::metric::Unit;

/// The longest path and tag, in bytes.
const LONGEST: usize = 1024;

/// An interval log of `HdrHistogram` (`.hlog`), whose distributions are the trial's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct HistogramLog {
    /// The stream or file.
    pub from: Source,
    /// The unit of time that its values are in: a log does not say it.
    pub unit: PrintedUnit,
    /// The tag of the distributions that count; without it the log must have those of one tag, or of none.
    pub tag: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    from: Source,
    unit: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
}

impl TryFrom<Written> for HistogramLog {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written { from, unit: spelling, tag } = written;
        let unit = PrintedUnit::parse(&spelling).filter(|unit| unit.unit == Unit::Nanoseconds);
        let Some(unit) = unit else {
            return Err(format!(
                "histogram: `{}` is not a unit of time: give `ns`, `us`, `ms` or `s`",
                shown(&spelling)
            ));
        };
        let path = if let Source::File(path) = &from { Some(path) } else { None };
        for (what, text) in [("file", path), ("tag", tag.as_ref())] {
            let Some(text) = text else { continue };
            if text.is_empty() || text.len() > LONGEST || text.contains(['\0', '\n']) {
                return Err(format!(
                    "histogram: the {what} `{}` cannot be used: it has 1 to {LONGEST} bytes, without a null or a line feed",
                    shown(text)
                ));
            }
        }
        Ok(Self { from, unit, tag })
    }
}

impl From<HistogramLog> for Written {
    fn from(log: HistogramLog) -> Self {
        Self { from: log.from, unit: log.unit.spelling.to_owned(), tag: log.tag }
    }
}
