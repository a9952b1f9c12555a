//! The short form of a figure, for the command line: `NAME[UNIT,BETTER]@SOURCE=PLACE`.

use super::lookup::{OwnFigure, OwnFigureError, Source, Written, WrittenCsv, shown};
use crate::metric::PreferredDirection;

/// Reads the short form. The unit, the direction and the source may be left out.
pub(super) fn parse(text: &str) -> Result<OwnFigure, OwnFigureError> {
    let error =
        |problem: &str| OwnFigureError::Short { text: shown(text), problem: problem.to_owned() };
    let (head, place) = text.split_once('=').ok_or_else(|| error("it has no `=`"))?;
    let mut written = Written::default();
    let (head, source) = head.split_once('@').map_or((head, None), |(a, b)| (a, Some(b)));
    written.from = match source.map(str::trim) {
        None | Some("stdout") => Source::Stdout,
        Some("stderr") => Source::Stderr,
        Some(path) => Source::File(path.to_owned()),
    };
    let (name, options) = match head.split_once('[') {
        None => (head, ""),
        Some((name, rest)) => {
            (name, rest.trim_end().strip_suffix(']').ok_or_else(|| error("`[` is not closed"))?)
        }
    };
    name.trim().clone_into(&mut written.name);
    for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        match option {
            "higher" => written.better = Some(PreferredDirection::Higher),
            "lower" => written.better = Some(PreferredDirection::Lower),
            "neither" => written.better = Some(PreferredDirection::Neither),
            unit if written.unit.is_none() => written.unit = Some(unit.to_owned()),
            _ => return Err(error("it has two units")),
        }
    }
    read_place(&mut written, place).map_err(error)?;
    OwnFigure::try_from(written)
}

/// Reads the place of a value: `/REGEX/`, `json:POINTER` or `csv:COLUMN[:ROW]`.
pub(super) fn read_place(written: &mut Written, place: &str) -> Result<(), &'static str> {
    if let Some(pointer) = place.strip_prefix("json:") {
        written.json = Some(pointer.to_owned());
    } else if let Some(csv) = place.strip_prefix("csv:") {
        let row = csv.rsplit_once(':').and_then(|(column, row)| Some((column, row.parse().ok()?)));
        written.csv = Some(match row {
            Some((column, row)) => WrittenCsv { column: column.to_owned(), row: Some(row) },
            None => WrittenCsv { column: csv.to_owned(), row: None },
        });
    } else if let Some(rest) = place.strip_prefix('/') {
        let regex = rest.strip_suffix('/').ok_or("the closing `/` is missing")?;
        written.regex = Some(regex.to_owned());
    } else {
        return Err("the place after `=` begins with `/`, `json:` or `csv:`");
    }
    Ok(())
}
