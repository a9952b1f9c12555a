//! Makes a results file with many trials, to see how long a report of it takes.
//!
//!     latput tune --on sim:server-10g -o few.db
//!     cargo run --release -p latput --example many_trials -- few.db many.db 20000
//!     time latput report many.db -o many.html
//!
//! The trials of the first file come again and again, in later blocks and at later times.

use std::error::Error;
use std::path::Path;

use latput_results::ResultsDb;
use latput_trial::{Results, Row};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, count] = words.as_slice() else {
        return Err("usage: many_trials FROM.db TO.db COUNT".into());
    };
    let count: usize = count.parse()?;
    let mut results = ResultsDb::open(Path::new(from))?.load_chosen(None)?;
    let rows = std::mem::take(&mut results.rows);
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Err(format!("{from} has no trial").into());
    };
    let span_ms = last.started_unix_ms.saturating_sub(first.started_unix_ms) + 1_000;
    let blocks = rows.iter().map(|row| row.block).max().map_or(0, |most| most + 1);
    let header = Results { planned_trials: count as u64, ..results };
    let mut many = ResultsDb::create(Path::new(to))?;
    let run = many.begin_run(&header.name, &header.testbed, first.started_unix_ms, &header)?;
    for (number, row) in rows.iter().cycle().take(count).enumerate() {
        let round = number / rows.len();
        let block = row.block + blocks * u32::try_from(round)?;
        let started_unix_ms = row.started_unix_ms + span_ms * round as u64;
        many.append_trial(run, &header, &Row { block, started_unix_ms, ..row.clone() })?;
    }
    many.finish_run(run, &header)?;
    Ok(())
}
