//! The place of a number in a text that somebody else writes.

use serde::{Deserialize, Serialize};

use super::lookup::{Lookup, Written, lookup};
use super::short::read_place;
use super::unit::PrintedUnit;
use super::{Source, Text};

/// A number in a text: `/REGEX/`, `json:POINTER` or `csv:COLUMN[:ROW]`, as in the short form of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TextPlace {
    written: String,
    lookup: Lookup,
}

impl TextPlace {
    /// Whether this is meant to be one.
    pub fn is_meant(text: &str) -> bool {
        ["/", "json:", "csv:"].iter().any(|start| text.starts_with(start))
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// The problem with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut place =
            Written { name: "value".to_owned(), from: Source::Stdout, ..Written::default() };
        read_place(&mut place, text)?;
        let lookup = lookup(&place).map_err(|error| error.to_string())?;
        Ok(Self { written: text.to_owned(), lookup })
    }

    /// The only number at this place, at least 0.
    ///
    /// # Errors
    ///
    /// It is not there, is no number, or is there with several values.
    pub fn read(&self, text: &Text) -> Result<f64, String> {
        let number = PrintedUnit::parse("number").ok_or("a number has no unit")?;
        self.lookup.read(number, text)
    }
}

impl TryFrom<String> for TextPlace {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<TextPlace> for String {
    fn from(place: TextPlace) -> Self {
        place.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_read_at_its_place() {
        let read = |place: &str, text: &str| {
            TextPlace::parse(place).and_then(|place| place.read(&Text::from_bytes(text.as_bytes())))
        };
        assert_eq!(read(r"/queue: (\d+)/", "jobs: 3\nqueue: 17\n"), Ok(17.0));
        assert_eq!(read("json:/a/b", r#"{"a": {"b": 2.5}}"#), Ok(2.5));
        assert_eq!(read("csv:depth:2", "depth,x\n1,0\n4,0\n"), Ok(4.0));
        for (place, text, why) in [
            (r"/queue: (\d+)/", "jobs: 3", "not there"),
            (r"/q: (\d+)/", "q: 3\nq: 4", "several times"),
            ("json:/a", "{", "JSON"),
            ("/(/", "", "cannot be used"),
            ("/a", "", "closing"),
            ("queue", "", "begins with"),
        ] {
            let error = read(place, text).unwrap_err();
            assert!(error.contains(why), "{place}: {error}");
        }
        let place = TextPlace::parse("json:/a").unwrap();
        let stored = serde_json::to_string(&place).unwrap();
        assert_eq!(serde_json::from_str::<TextPlace>(&stored).unwrap(), place);
    }
}
