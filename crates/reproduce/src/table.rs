//! Comma-separated tables: a header, quoted fields, LF or CRLF.

use std::fmt::Write;

/// Largest table, far above every published file.
const MOST_BYTES: usize = 16 << 20;

/// A header and rows of the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvTable {
    /// Names of the columns.
    pub header: Vec<String>,
    /// The rows, each as long as the header.
    pub rows: Vec<Vec<String>>,
}

/// An error in a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The text is too long.
    #[error("the file has {0} bytes, at most {MOST_BYTES} are read")]
    TooLarge(usize),
    /// The text is empty.
    #[error("the file is empty; it needs a header line with the names of the columns")]
    Empty,
    /// A column name occurs twice.
    #[error("the header names column `{0}` twice; rename one of them")]
    TwiceNamed(String),
    /// A row is too short or too long.
    #[error(
        "row {row} (line {line}) has {found} fields, the header has {wanted}; quote a field that holds a comma"
    )]
    Ragged {
        /// Row number from 1, without the header.
        row: usize,
        /// Line number from 1.
        line: usize,
        /// Number of fields.
        found: usize,
        /// Number of fields of the header.
        wanted: usize,
    },
    /// Lines end with a carriage return only, as on classic Mac OS.
    #[error(
        "line {0} has a carriage return without a line feed after it; save the file with LF or CRLF line ends"
    )]
    LoneReturn(usize),
    /// A quoted field has no end.
    #[error("line {0}: a quoted field does not end")]
    OpenQuote(usize),
}

impl CsvTable {
    /// Parses a table.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        if text.len() > MOST_BYTES {
            return Err(TableError::TooLarge(text.len()));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut records = RecordReader { rest: text, line: 1 };
        let (_, header) = records.next_record()?.ok_or(TableError::Empty)?;
        let header: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
        let mut seen = std::collections::BTreeSet::new();
        // Columns without a name are ignored.
        let named = || header.iter().filter(|name| !name.is_empty());
        if let Some(name) = named().find(|name| !seen.insert(name.as_str())) {
            return Err(TableError::TwiceNamed(name.clone()));
        }
        let mut rows = Vec::new();
        while let Some((line, row)) = records.next_record()? {
            if row.len() != header.len() {
                let (found, wanted) = (row.len(), header.len());
                return Err(TableError::Ragged { row: rows.len() + 1, line, found, wanted });
            }
            rows.push(row);
        }
        Ok(Self { header, rows })
    }

    /// The index of a column.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|column| column == name)
    }

    /// The table as text, with LF line ends.
    pub fn to_csv(&self) -> String {
        let mut text = String::new();
        for record in std::iter::once(&self.header).chain(&self.rows) {
            for (idx, field) in record.iter().enumerate() {
                if idx > 0 {
                    text.push(',');
                }
                if field.contains([',', '"', '\n', '\r']) {
                    let _ = write!(text, "\"{}\"", field.replace('"', "\"\""));
                } else {
                    text.push_str(field);
                }
            }
            text.push('\n');
        }
        text
    }
}

struct RecordReader<'a> {
    rest: &'a str,
    line: usize,
}

impl RecordReader<'_> {
    /// The next record that is not empty, with its line number.
    fn next_record(&mut self) -> Result<Option<(usize, Vec<String>)>, TableError> {
        loop {
            if self.rest.is_empty() {
                return Ok(None);
            }
            let line = self.line;
            let record = self.parse_record()?;
            if record.len() > 1 || !record[0].trim().is_empty() {
                return Ok(Some((line, record)));
            }
        }
    }

    fn parse_record(&mut self) -> Result<Vec<String>, TableError> {
        let mut fields = Vec::new();
        loop {
            let (field, ended_by) = self.parse_field()?;
            fields.push(field);
            if ended_by != Some(',') {
                return Ok(fields);
            }
        }
    }

    /// One field with the separator after it.
    fn parse_field(&mut self) -> Result<(String, Option<char>), TableError> {
        let mut field = String::new();
        let began = self.line;
        let mut quoted = false;
        let mut chars = self.rest.char_indices().peekable();
        let mut ended_by = None;
        let mut consumed = self.rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' if quoted && chars.peek().is_some_and(|(_, next)| *next == '"') => {
                    chars.next();
                    field.push('"');
                }
                '"' if quoted => quoted = false,
                '"' if field.is_empty() => quoted = true,
                ',' | '\n' if !quoted => {
                    (ended_by, consumed) = (Some(c), at + 1);
                    break;
                }
                '\r' if !quoted && chars.peek().is_none_or(|(_, next)| "\r\n".contains(*next)) => {}
                '\r' if !quoted => return Err(TableError::LoneReturn(self.line)),
                _ => {
                    self.line += usize::from(c == '\n');
                    field.push(c);
                }
            }
        }
        if quoted {
            return Err(TableError::OpenQuote(began));
        }
        self.line += usize::from(ended_by == Some('\n'));
        self.rest = &self.rest[consumed..];
        Ok((field, ended_by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_survives_reading_and_writing() {
        let text = "a,b,c\n1,\"x, \"\"y\"\"\",\n,\"two\nlines\",3\n";
        let table = CsvTable::parse(text).unwrap();
        assert_eq!(table.rows[0], ["1", "x, \"y\"", ""]);
        assert_eq!(table.rows[1], ["", "two\nlines", "3"]);
        assert_eq!(table.to_csv(), text);
    }

    #[test]
    fn foreign_line_ends_and_bom_are_read() {
        let table = CsvTable::parse("\u{feff}a,b\r\n1,2\r\n\r\n3,4").unwrap();
        assert_eq!(table.header, ["a", "b"]);
        assert_eq!(table.rows, [["1", "2"], ["3", "4"]]);
    }

    #[test]
    fn malformed_table_is_refused_by_place() {
        check_error("", "the file is empty");
        check_error(" \n\n", "the file is empty");
        check_error("a,b\n1,2\n3\n", "row 2 (line 3) has 1 fields, the header has 2");
        check_error("a,b,a\n", "names column `a` twice");
        check_error("a,b\n1,\"2\n3", "line 2: a quoted field does not end");
        check_error("a,b\r1,2\r", "line 1 has a carriage return without a line feed");
        check_error("a,b\n1,2\n3,4\r5,6\n", "line 3 has a carriage return without a line feed");
    }

    #[track_caller]
    fn check_error(text: &str, message: &str) {
        let error = CsvTable::parse(text).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
