//! Parts of a whole that several processes make, and how they are joined; and those of a file of predicted cells.
//!
//! A part of a file has every n-th row. Its last column names it and what its predictions depend on, so that parts of other
//! files, versions, seeds or profiles are refused.

use std::fmt::Write as _;

use crate::cells::CellFile;
use crate::system::SystemCatalog;
use crate::table::CsvTable;

/// The column that only parts have.
const PART_COLUMN: &str = "prediction_part";
/// Most parts of a whole: as many as a run has shards at most.
const MOST_PARTS: usize = 10_000;

/// A reason why parts cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("\n"))]
pub struct JoinError {
    /// Each with its remedy.
    pub problems: Vec<String>,
}

/// Origin of predictions beside the cells, in words: version, runs of each cell, profiles.
pub fn describe_origin(seeds: u64, systems: &SystemCatalog) -> String {
    let profiles = systems.profile_names().filter_map(|name| systems.find_profile(name));
    let hash = hash_texts(profiles.map(|profile| format!("{profile:?}")));
    format!("latput {} --seeds {seeds} profiles {hash:016x}", env!("CARGO_PKG_VERSION"))
}

/// The table of part `number`, from 1, of `count`.
pub fn mark_part(mut table: CsvTable, number: u32, count: u32, made_by: &str) -> CsvTable {
    table.header.push(PART_COLUMN.to_owned());
    for row in &mut table.rows {
        row.push(format!("{number}/{count} {made_by}"));
    }
    table
}

/// The whole file of its parts, in any order; each has a name for errors. Its bytes are those of one process.
pub fn join_parts(
    file: &CellFile,
    parts: &[(String, CsvTable)],
    made_by: &str,
) -> Result<CsvTable, JoinError> {
    let (found, mut problems) = order_parts(parts, |table| parse_part_number(table, made_by));
    let count = found.len();
    let plain = file.without_predictions();
    for (idx, part) in found.iter().enumerate() {
        let Some((name, table)) = part else { continue };
        let own = plain.rows.iter().skip(idx).step_by(count);
        let width = plain.header.len();
        let is_same = table.header.starts_with(&plain.header)
            && table.rows.len() == own.clone().count()
            && own.zip(&table.rows).all(|(own, row)| row[..width] == own[..]);
        if !is_same {
            problems.push(format!(
                "{name}: its rows are not those of the cells: make it with `--shard {}/{count}`",
                idx + 1
            ));
        }
    }
    if !problems.is_empty() {
        return Err(JoinError { problems });
    }
    let tables: Vec<&CsvTable> = found.into_iter().flatten().map(|(_, table)| table).collect();
    let Some(first) = tables.first().filter(|of| tables.iter().all(|it| it.header == of.header))
    else {
        return Err(JoinError { problems: vec!["the parts have other columns each".to_owned()] });
    };
    let kept = first.header.len() - 1;
    let row = |place: usize| tables[place % count].rows[place / count][..kept].to_vec();
    let rows = (0..plain.rows.len()).map(row).collect();
    Ok(CsvTable { header: first.header[..kept].to_vec(), rows })
}

/// The part of each number, with its name, if there is one.
type PartsByNumber<'a, T> = Vec<Option<&'a (String, T)>>;

/// The parts by their number, and what is wrong with them. `number_of` gives a part's number, from 1, and their count,
/// or what is wrong with it.
pub(crate) fn order_parts<T>(
    parts: &[(String, T)],
    number_of: impl Fn(&T) -> Result<(usize, usize), String>,
) -> (PartsByNumber<'_, T>, Vec<String>) {
    let mut problems = Vec::new();
    let mut found: PartsByNumber<'_, T> = Vec::new();
    for part in parts {
        let (name, of) = part;
        match number_of(of) {
            Ok((number, count)) if !(1..=count.min(MOST_PARTS)).contains(&number) => {
                problems
                    .push(format!("{name}: there is no part {number} of {count}: leave it out"));
            }
            Ok((number, count)) if found.is_empty() || found.len() == count => {
                found.resize(count, None);
                let place = &mut found[number - 1];
                if let Some((other, _)) = place {
                    problems.push(format!("{name}: part {number}, as {other}: leave one out"));
                }
                *place = Some(part);
            }
            Ok((_, count)) => problems.push(format!(
                "{name}: one of {count} parts, and others are of {}: leave it out",
                found.len()
            )),
            Err(problem) => problems.push(format!("{name}: {problem}")),
        }
    }
    let count = found.len();
    for number in (1..=count).filter(|number| found[number - 1].is_none()) {
        problems.push(format!(
            "part {number} of {count} is missing: make it with `--shard {number}/{count}`"
        ));
    }
    (found, problems)
}

/// FNV-1a over texts.
pub(crate) fn hash_texts(texts: impl IntoIterator<Item = String>) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let of_text = |hash, text: String| text.bytes().fold(hash, mix);
    texts.into_iter().fold(0xcbf2_9ce4_8422_2325, of_text)
}

/// Number and count of a part of this making.
fn parse_part_number(table: &CsvTable, wanted: &str) -> Result<(usize, usize), String> {
    let is_part = table.header.last().is_some_and(|name| name == PART_COLUMN);
    let mut marks = table.rows.iter().map(|row| row.last().map_or("", String::as_str));
    let mark =
        marks.next().filter(|_| is_part).ok_or("no part that `--shard` made: leave it out")?;
    if marks.any(|other| other != mark) {
        return Err("its rows are of several parts: make each with `--shard` again".to_owned());
    }
    let (numbers, made_by) = mark.split_once(' ').unwrap_or_default();
    if made_by != wanted {
        let mut problem = format!("it was made by `{made_by}`");
        let _ =
            write!(problem, " and is wanted by `{wanted}`: make it again with the same options");
        return Err(problem);
    }
    let numbers = numbers.split_once('/').and_then(|(number, count)| {
        let number: usize = number.parse().ok()?;
        let count: usize = count.parse().ok()?;
        ((1..=count).contains(&number) && count <= MOST_PARTS).then_some((number, count))
    });
    numbers.ok_or_else(|| format!("`{mark}` names no part: make it again with `--shard`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELLS: &str =
        "system,driver,driver_version,kernel,first_burst,concurrent,itr_hz,trans_per_s\n";

    fn make_file(rows: usize) -> CellFile {
        let rows = (0..rows).map(|row| format!("rx1620,e1000,6.0.54,2.6.12,0,1,{},\n", 1000 * row));
        let text = CELLS.to_owned() + &rows.collect::<String>();
        CellFile::read(&text, &SystemCatalog::load_shipped()).unwrap()
    }

    fn split_table(whole: &CsvTable, count: u32) -> Vec<(String, CsvTable)> {
        let part = |number: u32| {
            let own = whole.rows.iter().skip(number as usize - 1).step_by(count as usize);
            let table = CsvTable { header: whole.header.clone(), rows: own.cloned().collect() };
            (format!("part{number}"), mark_part(table, number, count, "us"))
        };
        (1..=count).map(part).collect()
    }

    #[test]
    fn parts_join_in_any_order() {
        let file = make_file(7);
        let whole = file.with_predictions(&vec![None; 7]);
        for count in [1, 2, 3, 7] {
            let mut parts = split_table(&whole, count);
            parts.reverse();
            assert_eq!(
                join_parts(&file, &parts, "us").unwrap().to_csv(),
                whole.to_csv(),
                "{count}"
            );
        }
        let refused = |parts: &[(String, CsvTable)], made_by: &str, what: &str| {
            let error = join_parts(&file, parts, made_by).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        let good = split_table(&whole, 3);
        refused(&good[..2], "us", "part 3 of 3 is missing: make it with `--shard 3/3`");
        refused(&[good.clone(), good[..1].to_vec()].concat(), "us", "part 1, as part1");
        refused(&good, "others", "made by `us`");
        refused(&[good.clone(), split_table(&whole, 2)].concat(), "us", "one of 2 parts");
        refused(&[("x".to_owned(), whole.clone())], "us", "no part that `--shard` made");
        let mut damaged = good.clone();
        damaged[1].1.rows[0][6] = "9".to_owned();
        refused(&damaged, "us", "part2: its rows are not those of the cells");
        let mut short = good.clone();
        short[0].1.rows.pop();
        refused(&short, "us", "part1: its rows are not those of the cells");
        let mut strange = good;
        for row in &mut strange[0].1.rows {
            *row.last_mut().unwrap() = "0/3 us".to_owned();
        }
        refused(&strange, "us", "`0/3 us` names no part");
        assert!(join_parts(&file, &[], "us").is_err());
    }
}
