//! Joins the results of shards to those of one run.
//!
//! One part is open at a time and one trial is in memory. Each trial goes to its place in the run's order,
//! whatever the order of the parts. Trials are copied as they are stored.

mod block;
mod parts;

use std::fs;
use std::path::{Path, PathBuf};

use latput_knobs::Refusal;
use latput_linux::files::FileLock;
use latput_load::Stop;
use latput_trial::{Observation, Results};
use latput_units::text::{format_count, is_or_are};
use rusqlite::{OptionalExtension, params};

use self::block::SearchBefore;
use self::parts::{FoundParts, ShardPart};
use super::{LOCK, ResultsDb, to_refusal, to_sql_integer};
use crate::error::Error;
use crate::order::shuffle_trials;
use crate::shard::Shard;

/// Begins the remark in the results on each part that a merge did without.
pub const WITHOUT: &str = "merged without a part: ";

/// The inputs of a merge.
#[derive(Debug)]
pub struct MergeInputs<'a> {
    /// The results files of shards.
    pub parts: &'a [PathBuf],
    /// The results file to make.
    pub output: &'a Path,
    /// Merges what there is where shards are missing, unfinished or unreadable.
    pub partial: bool,
    /// Flag that stops the merge.
    pub stop: &'a Stop,
}

/// Result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeOutcome {
    /// Number of trials in it.
    pub trials: u64,
    /// Number of trials that the shards had to give.
    pub planned: u64,
    /// Missing parts, and the remedy of each.
    pub missing: Vec<String>,
    /// Whether the plan's stopping rule has not looked at the trials yet, or the search may have a block more.
    pub may_go_on: bool,
    /// The block of a search that was merged.
    pub block: Option<u32>,
}

/// Makes one results file of shards. It is there whole or not at all; a file of the same run is
/// replaced.
pub fn merge_shards(merge: &MergeInputs<'_>) -> Result<MergeOutcome, Error> {
    let lock = lock(merge.output)?;
    let FoundParts { parts, head, missing } = parts::find_parts(merge)?;
    // The next block of a search follows from all trials of this one.
    if !missing.is_empty() && (!merge.partial || head.block.is_some()) {
        return Err(Error::Merge { problems: missing });
    }
    let replaced = check_output(merge.output, &head)?;
    if head.block.is_some() && replaced.is_none() {
        let problem = "the earlier blocks are missing: name with -o the file that the shards had for `--from`";
        return Err(Error::ResultsDb {
            path: merge.output.to_owned(),
            problem: problem.to_owned(),
            refusal: Refusal::Usage,
        });
    }
    let scratch = ScratchFile::new(merge.output)?;
    let trials = write_merged_run(&scratch.path, merge.stop, &parts, &head, &missing, replaced)?;
    scratch.take_name_of(merge.output)?;
    drop(lock);
    let planned = head.header.planned_trials;
    let may_go_on = head.is_least || head.block.is_some();
    Ok(MergeOutcome { trials, planned, missing, may_go_on, block: head.block })
}

/// Part that all shards of a run have in common.
#[derive(Debug)]
struct CommonHeader {
    plan: String,
    machine: String,
    header: Results,
    /// Whether the run may go on after the trials of all shards.
    is_least: bool,
    /// The block of a search.
    block: Option<u32>,
    count: u32,
}

/// The lock of whoever writes to the output.
fn lock(output: &Path) -> Result<FileLock, Error> {
    let refused = |problem: String, permission| Error::ResultsDb {
        path: output.to_owned(),
        problem,
        refusal: to_refusal(permission),
    };
    let mut name = output.as_os_str().to_owned();
    name.push(LOCK);
    let taken = FileLock::take(Path::new(&name));
    taken.map_err(|error| refused(error.problem, error.permission))?.map_err(|_| {
        let busy = "another latput is writing to this file: wait for it, or name another";
        refused(busy.to_owned(), false)
    })
}

/// The output, if it holds this run and is to be replaced. One with anything else is refused.
fn check_output(output: &Path, head: &CommonHeader) -> Result<Option<ResultsDb>, Error> {
    let size = match fs::symlink_metadata(output) {
        Ok(meta) if meta.is_file() => meta.len(),
        Ok(_) => {
            let problem = "not a regular file: name another with -o".to_owned();
            return Err(Error::ResultsDb {
                path: output.to_owned(),
                problem,
                refusal: Refusal::Failure,
            });
        }
        Err(_) => return Ok(None),
    };
    if size == 0 {
        return Ok(None);
    }
    let there = ResultsDb::open(output)?;
    let others: i64 = there.map_sql_error(there.db.query_row(
        "SELECT count(*) FROM run WHERE plan <> ?1 OR machine <> ?2",
        params![head.plan, head.machine],
        |row| row.get(0),
    ))?;
    if others > 0 || there.list_runs()?.len() > 1 {
        return Err(there.file_error(
            "it holds other runs, which would be lost: name another file with -o".to_owned(),
        ));
    }
    Ok(Some(there))
}

/// The file of this name with something at its end.
pub(super) fn path_with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// A file beside the output. It is removed unless it takes the output's name.
struct ScratchFile {
    path: PathBuf,
}

impl ScratchFile {
    /// Removes what a merge that was killed has left.
    fn new(output: &Path) -> Result<Self, Error> {
        let scratch = Self { path: path_with_suffix(output, ".merging") };
        scratch.remove();
        if fs::symlink_metadata(&scratch.path).is_err() {
            return Ok(scratch);
        }
        let path = scratch.path.clone();
        let problem = "it is in the way and cannot be removed: move it away".to_owned();
        Err(Error::ResultsDb { path, problem, refusal: Refusal::Failure })
    }

    fn remove(&self) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let _absent = fs::remove_file(path_with_suffix(&self.path, suffix));
        }
    }

    fn take_name_of(self, output: &Path) -> Result<(), Error> {
        let failed = |doing: &str, error: std::io::Error| {
            let problem = format!("cannot {doing}: {error}");
            let refusal = to_refusal(error.kind() == std::io::ErrorKind::PermissionDenied);
            Error::ResultsDb { path: output.to_owned(), problem, refusal }
        };
        fs::rename(&self.path, output).map_err(|error| failed("give it its name", error))?;
        let folder = match output.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder = fs::File::open(folder).and_then(|folder| folder.sync_all());
        folder.map_err(|error| failed("sync its folder", error))
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Writes the run of these parts to a new file; returns its number of trials. It must have those of the
/// file that it replaces.
fn write_merged_run(
    path: &Path,
    stop: &Stop,
    parts: &[ShardPart],
    head: &CommonHeader,
    missing: &[String],
    replaced: Option<ResultsDb>,
) -> Result<u64, Error> {
    let mut header = head.header.clone();
    header.notes.extend(missing.iter().map(|what| format!("{WITHOUT}{what}")));
    let into = ResultsDb::create(path)?;
    let before = match (head.block, &replaced) {
        (Some(block), Some(output)) => Some(SearchBefore::from_results(output, head, block)?),
        _ => None,
    };
    let started = match &before {
        None => parts.iter().map(|part| part.started_unix_ms).min().unwrap_or(0),
        Some(before) => before.started_unix_ms,
    };
    let run = into.begin_run(&head.plan, &head.machine, started, &header)?;
    let trials = match before {
        None => parts.iter().try_fold(0, |trials, part| {
            Ok::<_, Error>(trials + into.take_part(run, part, head, stop)?)
        })?,
        Some(before) => into.take_block(run, &before, parts, stop)?,
    };
    if let Some(replaced) = replaced {
        replaced.check_all_in(&into, stop)?;
        let output = replaced.path.clone();
        drop(replaced);
        if path_with_suffix(&output, "-wal").exists() {
            let problem = "another program has it open: wait for it, or name another file with -o";
            return Err(Error::ResultsDb {
                path: output,
                problem: problem.to_owned(),
                refusal: Refusal::Failure,
            });
        }
    }
    if missing.is_empty() && !head.is_least && head.block.is_none() {
        into.finish_run(run, &header)?;
    }
    // The last to close a database moves its log into it (SQLite: Write-Ahead Logging, 2.2).
    into.checkpoint_log()?;
    drop(into);
    if path_with_suffix(path, "-wal").exists() {
        let problem = "another program has opened it: repeat the command without that program";
        return Err(Error::ResultsDb {
            path: path.to_owned(),
            problem: problem.to_owned(),
            refusal: Refusal::Failure,
        });
    }
    Ok(trials)
}

impl ResultsDb {
    /// Refuses to be replaced by a file that lacks trials of this one.
    fn check_all_in(&self, other: &Self, stop: &Stop) -> Result<(), Error> {
        let select = self.db.prepare("SELECT block, setting, workload FROM trial");
        let mut select = self.map_sql_error(select)?;
        let has = "SELECT 1 FROM trial WHERE block = ?1 AND setting = ?2 AND workload = ?3";
        let mut has = other.map_sql_error(other.db.prepare(has))?;
        let mut trials = self.map_sql_error(select.query([]))?;
        let mut lost = 0_u64;
        while let Some(trial) = self.map_sql_error(trials.next())? {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            let place = || Ok([trial.get::<_, i64>(0)?, trial.get(1)?, trial.get(2)?]);
            let place = self.map_sql_error(place())?;
            lost += u64::from(!other.map_sql_error(has.exists(place))?);
        }
        if lost == 0 {
            return Ok(());
        }
        Err(self.file_error(format!(
            "it holds {} that these shards lack, which would be lost: name all shards, or another file with -o",
            format_count(lost, "trial")
        )))
    }

    /// Copies the trials of a part in one transaction; returns their number.
    fn take_part(
        &self,
        run: i64,
        part: &ShardPart,
        head: &CommonHeader,
        stop: &Stop,
    ) -> Result<u64, Error> {
        let from = Self::open(&part.path)?;
        self.map_sql_error(self.db.execute_batch("BEGIN"))?;
        let mut copied = 0;
        for place in list_shard_places(part.shard, head) {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            copied += u64::from(self.take_trial(run, &from, part.run, &place)?);
        }
        if copied != part.trials {
            return Err(from.file_error(format!(
                "{} of its {} {} not of shard {}: run that shard again, with -o and a new file",
                part.trials.saturating_sub(copied),
                format_count(part.trials, "trial"),
                is_or_are(part.trials.saturating_sub(copied)),
                part.shard
            )));
        }
        self.map_sql_error(self.db.execute_batch("COMMIT"))?;
        Ok(copied)
    }

    /// Copies the trial of a place, if the part has it.
    fn take_trial(
        &self,
        run: i64,
        from: &Self,
        from_run: i64,
        place: &RunPlace,
    ) -> Result<bool, Error> {
        let RunPlace { id, block, setting, workload } = *place;
        let trial: Option<(i64, i64, String)> = from.map_sql_error(
            from.db
                .prepare_cached(
                    "SELECT id, started_unix_ms, observation FROM trial \
                     WHERE run = ?1 AND block = ?2 AND setting = ?3 AND workload = ?4",
                )
                .and_then(|mut found| {
                    found
                        .query_row(
                            params![
                                from_run,
                                block,
                                to_sql_integer(setting),
                                to_sql_integer(workload)
                            ],
                            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                        )
                        .optional()
                }),
        )?;
        let Some((from_id, started, observation)) = trial else { return Ok(false) };
        let place = RunPlace { id, block, setting, workload };
        let trial = StoredTrial { id: from_id, started_unix_ms: started, observation };
        self.insert_trial(run, &place, from, &trial)?;
        Ok(true)
    }

    fn insert_trial(
        &self,
        run: i64,
        place: &RunPlace,
        from: &Self,
        trial: &StoredTrial,
    ) -> Result<(), Error> {
        let RunPlace { id, block, setting, workload } = *place;
        let StoredTrial { id: from_id, started_unix_ms, observation } = trial;
        let _readable: Observation = from.read_json("trial", observation)?;
        let (setting, workload) = (to_sql_integer(setting), to_sql_integer(workload));
        self.map_sql_error(
            self.db
                .prepare_cached(
                    "INSERT INTO trial (id, run, block, setting, workload, started_unix_ms, \
                     observation) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )
                .and_then(|mut insert| {
                    let trial =
                        params![id, run, block, setting, workload, started_unix_ms, observation];
                    insert.execute(trial)
                }),
        )?;
        let figures = from.read_figures(*from_id)?;
        for (metric, value) in figures {
            let insert = "INSERT INTO figure (trial, metric, value) VALUES (?1, ?2, ?3)";
            let insert = self.db.prepare_cached(insert);
            self.map_sql_error(insert.and_then(|mut it| it.execute(params![id, metric, value])))?;
        }
        Ok(())
    }

    fn read_figures(&self, trial: i64) -> Result<Vec<(String, f64)>, Error> {
        let figures = self.db.prepare_cached("SELECT metric, value FROM figure WHERE trial = ?1");
        self.map_sql_error(figures.and_then(|mut query| {
            query.query_map([trial], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        }))
    }
}

/// A trial as a part has it.
struct StoredTrial {
    id: i64,
    started_unix_ms: i64,
    observation: String,
}

/// The place of a trial in the run's order.
struct RunPlace {
    /// Its number in the results file, from 1.
    id: i64,
    block: u32,
    setting: usize,
    workload: usize,
}

/// The places of a shard's trials, in the run's order.
fn list_shard_places(shard: Shard, head: &CommonHeader) -> impl Iterator<Item = RunPlace> {
    let settings: Vec<usize> = (0..head.header.settings.len()).collect();
    let workloads: Vec<usize> = (0..head.header.workloads.len()).collect();
    let seed = head.header.seed;
    let blocks = (0..).flat_map(move |block: u32| {
        let order = shuffle_trials(seed, block, &settings, &workloads);
        order.into_iter().map(move |(setting, workload)| (block, setting, workload))
    });
    let in_order = (1..=head.header.planned_trials).zip(blocks);
    in_order.filter(move |(number, _)| shard.has_trial(number - 1)).map(
        |(number, (block, setting, workload))| RunPlace {
            id: number.cast_signed(),
            block,
            setting,
            workload,
        },
    )
}
