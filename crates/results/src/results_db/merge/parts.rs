//! Which files hold which shards, and whether they belong together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use latput_trial::Results;
use latput_units::text::format_count;
use rusqlite::OptionalExtension;

use super::super::ResultsDb;
use super::{CommonHeader, MergeInputs};
use crate::error::Error;
use crate::shard::{Shard, WholeRun};

/// Most repetitions of a plan.
const MOST_REPETITIONS: u64 = 1_000;
/// Most shards that one message names.
const NAMED: usize = 20;

/// A shard that is finished, or that is taken as it is.
#[derive(Debug)]
pub(super) struct ShardPart {
    pub(super) path: PathBuf,
    pub(super) shard: Shard,
    /// Its run's number in its file.
    pub(super) run: i64,
    pub(super) trials: u64,
    pub(super) started_unix_ms: u64,
}

/// The parts, in the order of their shards.
#[derive(Debug)]
pub(super) struct FoundParts {
    pub(super) parts: Vec<ShardPart>,
    pub(super) head: CommonHeader,
    /// Parts that are missing for the whole run.
    pub(super) missing: Vec<String>,
}

/// Looks into each file. Parts that do not belong together are an error that names all of them; what
/// is missing is for the caller to judge.
pub(super) fn find_parts(merge: &MergeInputs<'_>) -> Result<FoundParts, Error> {
    let mut missing = Vec::new();
    let mut wrong = Vec::new();
    let mut first: Option<(PathBuf, CommonHeader)> = None;
    let mut parts: BTreeMap<Shard, ShardPart> = BTreeMap::new();
    for path in merge.parts {
        if merge.stop.is_raised() {
            return Err(Error::Interrupted);
        }
        let shown = path.display();
        let (part, head, is_finished) = match read_part(path) {
            Ok(found) => found,
            Err(error) if merge.partial => {
                missing.push(error.to_string());
                continue;
            }
            Err(error) => {
                wrong.push(error.to_string());
                continue;
            }
        };
        if let Some((other, known)) = &first {
            if let Some(problem) = describe_difference(part.shard, &head, known) {
                wrong.push(format!("{shown}: it is {problem} {}", other.display()));
                continue;
            }
        } else {
            first = Some((path.clone(), head));
        }
        if let Some(twin) = parts.get(&part.shard) {
            let twin = twin.path.display();
            wrong.push(format!("{shown}: shard {}, as is {twin}: leave one out", part.shard));
            continue;
        }
        if !is_finished {
            let ShardPart { shard, trials, .. } = part;
            missing.push(format!(
                "{shown}: shard {shard} is not finished, it has {}: run the same command with `--shard {shard}` \
                 again, it resumes",
                format_count(trials, "trial")
            ));
        }
        parts.insert(part.shard, part);
    }
    let Some((_, head)) = first.filter(|_| wrong.is_empty()) else {
        wrong.append(&mut missing);
        return Err(Error::Merge { problems: wrong });
    };
    missing.extend(describe_absent_shards(&parts, head.count));
    Ok(FoundParts { parts: parts.into_values().collect(), head, missing })
}

/// The newest run of a file, which must be a shard.
fn read_part(path: &std::path::Path) -> Result<(ShardPart, CommonHeader, bool), Error> {
    let not_begun = "its shard has not begun: run the same command with `--shard` again";
    let part = ResultsDb::connect_any(path)?;
    if part.is_empty()? {
        return Err(part.file_error(not_begun.to_owned())); // killed between the file and its tables
    }
    part.verify_file()?;
    let newest = part.map_sql_error(
        part.db
            .query_row(
                "SELECT id, started_unix_ms, finished, plan, machine, header, \
                 (SELECT count(*) FROM trial WHERE trial.run = run.id) \
                 FROM run ORDER BY id DESC LIMIT 1",
                [],
                |row| {
                    let numbers: (i64, i64, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
                    let texts: (String, String, String) = (row.get(3)?, row.get(4)?, row.get(5)?);
                    Ok((numbers, texts, row.get::<_, i64>(6)?))
                },
            )
            .optional(),
    )?;
    let Some(((run, started, is_finished), (text, machine, header), trials)) = newest else {
        return Err(part.file_error(not_begun.to_owned()));
    };
    let Some((shard, WholeRun { plan, is_least, block })) = Shard::of_plan_text(&text) else {
        let problem = "its newest run is not a shard: name files of `latput run --shard` or `latput search \
                       --shard`";
        return Err(part.file_error(problem.to_owned()));
    };
    let mut header: Results = part.read_json("header", &header)?;
    let blocks_of = (header.settings.len() * header.workloads.len()) as u64;
    let is_whole =
        |trials: u64| trials.is_multiple_of(blocks_of) && trials / blocks_of <= MOST_REPETITIONS;
    if blocks_of == 0 || (block.is_none() && !is_whole(header.planned_trials)) {
        return Err(
            part.file_error("its header is not that of a shard: run the shard again".to_owned())
        );
    }
    header.notes.retain(|note| *note != shard.result_note());
    let plan = plan.to_owned();
    let head = CommonHeader { plan, machine, header, is_least, block, count: shard.count() };
    let found = ShardPart {
        path: path.to_owned(),
        shard,
        run,
        trials: trials.cast_unsigned(),
        started_unix_ms: started.cast_unsigned(),
    };
    Ok((found, head, is_finished))
}

/// Why a part does not belong to the run of another, in words that the other's name follows.
fn describe_difference(shard: Shard, head: &CommonHeader, known: &CommonHeader) -> Option<String> {
    let (ours, theirs) = (&head.header, &known.header);
    if ours.latput_version != theirs.latput_version {
        let (one, other) = (&ours.latput_version, &theirs.latput_version);
        return Some(format!("of latput {one}: run it again with latput {other}, which wrote"));
    }
    if ours.testbed != theirs.testbed {
        let (one, other) = (&ours.testbed, &theirs.testbed);
        return Some(format!("on {one}: run it again with `--on {other}`, as"));
    }
    if head.machine != known.machine || ours.hosts != theirs.hosts || ours.today != theirs.today {
        let testbed = &ours.testbed;
        return Some(format!("on another profile {testbed}: run it again with that of"));
    }
    if head.plan != known.plan || head.is_least != known.is_least {
        return Some(String::from("of another plan: run it again with the plan of"));
    }
    if head.block != known.block {
        return Some(String::from(
            "of another block of the search: run it again with the same `--from` as",
        ));
    }
    if head.count != known.count {
        let count = known.count;
        return Some(format!("shard {shard}: run it again as one of {count} shards, like"));
    }
    if ours.goal != theirs.goal {
        return Some(String::from("for another goal: run it again with the `--goal` of"));
    }
    (ours != theirs).then(|| String::from("of another run: run it again as"))
}

/// The shards that no file has.
fn describe_absent_shards(parts: &BTreeMap<Shard, ShardPart>, count: u32) -> Option<String> {
    let shards = (1..=count).filter_map(|number| Shard::new(number, count));
    let absent: Vec<Shard> = shards.filter(|shard| !parts.contains_key(shard)).collect();
    let first = absent.first()?;
    let named: Vec<String> = absent.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match absent.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "no file has shard {}{more}: run the same command with `--shard {first}`, and name its file",
        named.join(", ")
    ))
}
