//! Joins the shards of one block of a search to the blocks before it.
//!
//! A shard gives each trial the number that it has in one process. So the joined file is whole if no number is missing.

use latput_load::Stop;
use latput_trial::Results;
use latput_units::text::{format_count, is_or_are};
use rusqlite::params;

use super::super::ResultsDb;
use super::parts::ShardPart;
use super::{CommonHeader, RunPlace, StoredTrial};
use crate::error::Error;

/// The search before the block: the only run of the output.
pub(super) struct SearchBefore<'a> {
    db: &'a ResultsDb,
    run: i64,
    pub(super) started_unix_ms: u64,
    block: u32,
}

impl<'a> SearchBefore<'a> {
    /// The search in the output, which must be open, and such that these shards can have begun with it.
    pub(super) fn from_results(
        db: &'a ResultsDb,
        head: &CommonHeader,
        block: u32,
    ) -> Result<Self, Error> {
        let query = "SELECT id, started_unix_ms, finished, header FROM run";
        let row = db.db.query_row(query, [], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?, row.get::<_, String>(3)?))
        });
        let (run, started, is_finished, header): (i64, i64, bool, String) =
            db.map_sql_error(row)?;
        let known: Results = db.read_json("header", &header)?;
        let grows = head.header.settings.starts_with(&known.settings);
        if is_finished || !grows {
            return Err(db.file_error(format!(
                "its search does not lead to block {block} of these shards: name with -o the file that they \
                 had for `--from`"
            )));
        }
        Ok(Self { db, run, started_unix_ms: started.cast_unsigned(), block })
    }
}

impl ResultsDb {
    /// Copies the trials before the block, then those of its shards; returns the number of all.
    pub(super) fn take_block(
        &self,
        run: i64,
        before: &SearchBefore<'_>,
        parts: &[ShardPart],
        stop: &Stop,
    ) -> Result<u64, Error> {
        self.map_sql_error(self.db.execute_batch("BEGIN"))?;
        self.take_numbered(run, before.db, before.run, stop)?;
        for part in parts {
            let from = Self::open(&part.path)?;
            let other = from.map_sql_error(from.db.query_row(
                "SELECT count(*) FROM trial WHERE run = ?1 AND block <> ?2",
                params![part.run, before.block],
                |row| row.get::<_, i64>(0),
            ))?;
            if other > 0 {
                return Err(from.file_error(format!(
                    "{other} of its trials are not of block {}: run that shard again, with -o and a new file",
                    before.block
                )));
            }
            self.take_numbered(run, &from, part.run, stop)?;
        }
        let query = "SELECT count(*), coalesce(max(id), 0) FROM trial";
        let numbers = self.db.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)));
        let (count, last): (i64, i64) = self.map_sql_error(numbers)?;
        if count != last {
            return Err(before.db.file_error(format!(
                "{} before those of block {} {} missing: name with -o the file that the shards had for `--from`",
                format_count(last - count, "trial"),
                before.block,
                is_or_are(last - count)
            )));
        }
        self.map_sql_error(self.db.execute_batch("COMMIT"))?;
        Ok(count.cast_unsigned())
    }

    /// Copies the trials of a run by their numbers. What is there already must be the same trial.
    fn take_numbered(
        &self,
        run: i64,
        from: &Self,
        from_run: i64,
        stop: &Stop,
    ) -> Result<(), Error> {
        let query = "SELECT id, block, setting, workload, started_unix_ms, observation FROM trial WHERE run = ?1";
        let mut query = from.map_sql_error(from.db.prepare(query))?;
        let mut trials = from.map_sql_error(query.query([from_run]))?;
        while let Some(trial) = from.map_sql_error(trials.next())? {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            let numbers = || Ok((trial.get(0)?, trial.get(1)?, trial.get(2)?, trial.get(3)?));
            let (id, block, setting, workload): (i64, u32, u32, u32) =
                from.map_sql_error(numbers())?;
            let stored = || {
                let (started_unix_ms, observation) = (trial.get(4)?, trial.get(5)?);
                Ok(StoredTrial { id, started_unix_ms, observation })
            };
            let stored = from.map_sql_error(stored())?;
            let there = self.map_sql_error(self.db.query_row(
                "SELECT count(*), coalesce(sum(block = ?2 AND setting = ?3 AND workload = ?4), 0) FROM trial WHERE id = ?1",
                params![id, block, setting, workload],
                |row| Ok((row.get(0)?, row.get(1)?)),
            ))?;
            match there {
                (0, _) => {}
                (1, 1) => continue,
                _ => {
                    return Err(from.file_error(format!(
                        "trial {id} is another one than in the file of -o: run that shard again, with a new file"
                    )));
                }
            }
            let place =
                RunPlace { id, block, setting: setting as usize, workload: workload as usize };
            self.insert_trial(run, &place, from, &stored)?;
        }
        Ok(())
    }
}
