//! The results file: one SQLite database, one durable append per trial, many runs to a file.
//!
//! Write-ahead log with `synchronous = FULL`: a trial that [`ResultsDb::append_trial`] has stored
//! survives a kill -9 and a power cut. Others may read the file during a run.

mod merge;

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use latput_formats::FileKind;
use latput_knobs::Refusal;
use latput_linux::files::{self, FileError, FileLock};
use latput_trial::{Metric, Results, Row};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};

pub use self::merge::{MergeInputs, MergeOutcome, WITHOUT, merge_shards};
use crate::error::Error;

/// "latp", which marks an SQLite file as a results file.
const APPLICATION_ID: i32 = 0x6c61_7470;
/// Version of the tables below.
const SCHEMA: i32 = 1;

const TABLES: &str = "
    CREATE TABLE run (
        id INTEGER PRIMARY KEY,
        started_unix_ms INTEGER NOT NULL,
        finished INTEGER NOT NULL,          -- 1 when the run ended by its own rules
        plan TEXT NOT NULL,                 -- the plan file as it was
        machine TEXT NOT NULL,              -- boot ids of the hosts: a run is only resumed on the same
        header TEXT NOT NULL                -- JSON: everything of the results but the trials
    );
    CREATE TABLE trial (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES run (id),
        block INTEGER NOT NULL,
        setting INTEGER NOT NULL,           -- index into the header's settings
        workload INTEGER NOT NULL,          -- index into the header's workloads
        started_unix_ms INTEGER NOT NULL,
        observation TEXT NOT NULL,          -- JSON
        UNIQUE (run, block, setting, workload)
    );
    CREATE TABLE figure (                   -- the same observation as plain numbers, for SQL
        trial INTEGER NOT NULL REFERENCES trial (id),
        metric TEXT NOT NULL,
        value REAL NOT NULL,
        PRIMARY KEY (trial, metric)
    ) WITHOUT ROWID;
";

/// The same with names beside the numbers. latput never reads them.
fn build_views_sql() -> String {
    let named = "\
        CREATE VIEW IF NOT EXISTS named_trial AS SELECT \
            trial.id AS trial, trial.run AS run, json_extract(run.header, '$.name') AS plan, trial.block AS block, \
            json_extract(run.header, '$.settings[' || trial.setting || '].label') AS setting, \
            json_extract(run.header, '$.workloads[' || trial.workload || '].name') AS workload, \
            datetime(trial.started_unix_ms / 1000, 'unixepoch') AS started_utc \
        FROM trial JOIN run ON run.id = trial.run; \
        CREATE VIEW IF NOT EXISTS named_figure AS SELECT \
            named_trial.*, figure.metric AS metric, figure.value AS value \
        FROM named_trial JOIN figure USING (trial);";
    let columns = Metric::ALL.iter().map(|metric| {
        let name = metric.name();
        format!(", (SELECT value FROM figure WHERE figure.trial = named_trial.trial AND metric = '{name}') AS {name}")
    });
    let columns: String = columns.collect();
    format!(
        "{named} CREATE VIEW IF NOT EXISTS wide_trial AS SELECT named_trial.*{columns} FROM named_trial;"
    )
}

/// Most bytes of one header or observation.
const LONGEST: i32 = 64 << 20;
/// Largest file of another kind that is looked at, bytes: a larger one is not named in the error.
const TOLD_BY_BYTES: u64 = 16 << 20;
/// Most time of the queries of a file from an unknown source.
const PATIENCE: Duration = Duration::from_secs(300);
/// Steps of SQLite's virtual machine between two checks of the time.
const STEPS: i32 = 10_000;
/// Suffix of the lock file of a writer.
const LOCK: &str = "-lock";

/// An open results file.
#[derive(Debug)]
pub struct ResultsDb {
    path: PathBuf,
    db: Connection,
    /// The file, if this made it. It goes while the lock is held.
    _made: Option<EmptyFileGuard>,
    /// The writer's lock; released when the process ends, for any reason.
    writer: Option<FileLock>,
}

/// A file that was made to be written. If nothing was, it is removed with this value.
#[derive(Debug)]
struct EmptyFileGuard(PathBuf);

impl Drop for EmptyFileGuard {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.0).is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
            let _gone = fs::remove_file(&self.0);
        }
    }
}

/// The summary of one run of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Its number in the file.
    pub id: i64,
    /// The plan's name.
    pub name: String,
    /// Start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Finished trials.
    pub trials: u64,
    /// Whether it ended normally.
    pub finished: bool,
}

impl ResultsDb {
    /// Opens a results file for appending, and creates it if there is none. Only one process can
    /// have it open this way. A symbolic link or a file that is not regular is refused. Nothing is written before
    /// [`Self::begin_run`]; a file that is made here and never written is removed.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let refused = |error: FileError| {
            let place = if error.path == path {
                String::new()
            } else {
                error.path.display().to_string() + ": "
            };
            Error::ResultsDb {
                path: path.to_owned(),
                problem: place + &error.problem,
                refusal: to_refusal(error.permission),
            }
        };
        let (real, is_new) = files::ensure(path).map_err(refused)?;
        let made = is_new.then(|| EmptyFileGuard(real.clone()));
        let mut name = path.as_os_str().to_owned();
        name.push(LOCK);
        let busy =
            "another latput is writing to this file: wait for it, or name another file with -o";
        let lock = FileLock::take(Path::new(&name)).map_err(refused)?.map_err(|_| {
            let problem = busy.to_owned();
            Error::ResultsDb { path: path.to_owned(), problem, refusal: Refusal::Failure }
        })?;
        // SQLite does not tell a missing right from the rest.
        File::options().read(true).write(true).open(&real).map_err(|error| {
            let refusal = to_refusal(error.kind() == io::ErrorKind::PermissionDenied);
            let problem = format!("{error}: name another file with -o");
            Error::ResultsDb { path: path.to_owned(), problem, refusal }
        })?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let db = Self::connect_restricted(path, &real, flags, PATIENCE)?;
        let mut results_db = Self { _made: made, writer: Some(lock), ..db };
        if results_db.is_empty()? {
            results_db.enable_full_sync()?;
        } else {
            results_db.verify_file()?;
        }
        let no_bound = results_db.db.progress_handler(0, None::<fn() -> bool>);
        results_db.map_sql_error(no_bound)?;
        Ok(results_db)
    }

    /// A results file in memory, for runs that are not kept.
    pub fn in_memory() -> Result<Self, Error> {
        let path = PathBuf::from("results in memory");
        let db = Connection::open_in_memory().map_err(|e| sql_error(&path, &e))?;
        Ok(Self { path, db, _made: None, writer: None })
    }

    /// Refuses a file that [`Self::create`] would refuse, and makes none.
    pub fn check_path(path: &Path) -> Result<(), Error> {
        let Ok(meta) = path.metadata() else { return Ok(()) };
        if !meta.is_file() {
            let problem = "not a regular file: name another with -o".to_owned();
            let path = path.to_owned();
            return Err(Error::ResultsDb { path, problem, refusal: Refusal::Failure });
        }
        if meta.len() == 0 {
            return Ok(());
        }
        let results_db = Self::connect_any(path)?;
        if results_db.is_empty()? { Ok(()) } else { results_db.verify_file() }
    }

    /// Opens a results file for reading.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let results_db = Self::connect_any(path)?;
        results_db.verify_file()?;
        Ok(results_db)
    }

    /// Opens any database, for reading where it cannot be written.
    fn connect_any(path: &Path) -> Result<Self, Error> {
        let refused = |problem: &str, refusal| {
            let problem =
                format!("{problem}: name a file that `latput run` or `latput tune` wrote");
            Error::ResultsDb { path: path.to_owned(), problem, refusal }
        };
        let denied = |error: &io::Error, otherwise| match error.kind() {
            io::ErrorKind::PermissionDenied => refused(&error.to_string(), Refusal::Permission),
            _ => refused(&error.to_string(), otherwise),
        };
        let real = path.canonicalize().map_err(|error| match parse_run_name(path) {
            Some((file, run)) => {
                let problem = format!(
                    "the file is `{}`; a command that reads one run takes `--run {run}`",
                    file.display()
                );
                Error::ResultsDb { path: path.to_owned(), problem, refusal: Refusal::Usage }
            }
            None => denied(&error, Refusal::Usage),
        })?;
        if !real.is_file() {
            return Err(refused("not a regular file", Refusal::Usage));
        }
        // SQLite does not tell a missing right from the rest.
        File::open(&real).map_err(|error| denied(&error, Refusal::Failure))?;
        let connect = |flags| Self::connect_restricted(path, &real, flags, PATIENCE);
        let opened = connect(OpenFlags::SQLITE_OPEN_READ_WRITE)
            .or_else(|_| connect(OpenFlags::SQLITE_OPEN_READ_ONLY))?;
        if !opened.lacks_writable_log() || merge::path_with_suffix(&real, "-wal").exists() {
            return Ok(opened);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        Self::connect_restricted(path, &immutable_uri(&real), flags, PATIENCE)
    }

    /// Whether it cannot be read because its log, or the log's index, cannot be made beside it: the folder is read-only.
    fn lacks_writable_log(&self) -> bool {
        let read = self.db.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0));
        let code = read.err().and_then(|error| error.sqlite_error_code());
        matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
    }

    /// Opens the database with restrictions that make a hostile file fail harmlessly. `real` is its
    /// name without links.
    fn connect_restricted(
        path: &Path,
        real: &Path,
        flags: OpenFlags,
        patience: Duration,
    ) -> Result<Self, Error> {
        let failed = |error| sql_error(path, &error);
        let flags = flags | OpenFlags::SQLITE_OPEN_NOFOLLOW | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(real, flags).map_err(failed)?;
        db.busy_timeout(Duration::from_secs(5)).map_err(failed)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map_err(failed)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false).map_err(failed)?;
        for (limit, most) in [
            (Limit::SQLITE_LIMIT_LENGTH, LONGEST),
            (Limit::SQLITE_LIMIT_SQL_LENGTH, 100_000),
            (Limit::SQLITE_LIMIT_COLUMN, 100),
            (Limit::SQLITE_LIMIT_EXPR_DEPTH, 50),
            (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 5),
            (Limit::SQLITE_LIMIT_ATTACHED, 0),
            (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
            (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        ] {
            db.set_limit(limit, most).map_err(failed)?;
        }
        let until = Instant::now() + patience;
        db.progress_handler(STEPS, Some(move || Instant::now() >= until)).map_err(failed)?;
        // A reader may be allowed to write beside the file only.
        db.pragma_update(None, "temp_store", "MEMORY").map_err(failed)?;
        Ok(Self { path: path.to_owned(), db, _made: None, writer: None })
    }

    /// Whether it holds nothing yet. A power cut may leave SQLite's head without latput's tables.
    fn is_empty(&self) -> Result<bool, Error> {
        let number =
            |query| self.map_sql_error(self.db.query_row(query, [], |row| row.get::<_, i64>(0)));
        Ok(number("SELECT count(*) FROM sqlite_schema")? == 0
            && number("PRAGMA application_id")? == 0)
    }

    fn make_tables(&self) -> Result<(), Error> {
        self.map_sql_error(self.db.pragma_update(None, "journal_mode", "WAL"))?;
        let script = format!(
            "BEGIN; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA}; \
             {TABLES} COMMIT;"
        );
        self.map_sql_error(self.db.execute_batch(&script))
    }

    fn enable_full_sync(&self) -> Result<(), Error> {
        self.map_sql_error(self.db.pragma_update(None, "synchronous", "FULL"))
    }

    /// Checks that this is a whole results file of this latput's schema.
    fn verify_file(&self) -> Result<(), Error> {
        self.enable_full_sync()?;
        let pragma =
            |name| self.map_sql_error(self.db.pragma_query_value(None, name, |row| row.get(0)));
        let application: i32 = pragma("application_id")?;
        if application != APPLICATION_ID {
            return Err(self.file_error(
                "this is an SQLite file, but not latput's results: name another file".to_owned(),
            ));
        }
        let schema: i32 = pragma("user_version")?;
        if schema != SCHEMA {
            return Err(self.file_error(format!(
                "its schema is {schema} and this latput reads schema {SCHEMA}: use the latput that \
                 wrote it, or name another file"
            )));
        }
        self.check_tables()?;
        let check: String =
            self.map_sql_error(self.db.query_row("PRAGMA quick_check", [], |row| row.get(0)))?;
        if check != "ok" {
            return Err(self.file_error(format!(
                "the file is damaged ({}): move it away, or recover it with \
                 `sqlite3 FILE .recover`",
                check.lines().last().unwrap_or_default()
            )));
        }
        Ok(())
    }

    /// Refuses other tables than those above: a view in place of a table may never end, and a
    /// trigger or a computed column may run any code.
    fn check_tables(&self) -> Result<(), Error> {
        let foreign: i64 = self.map_sql_error(self.db.query_row(
            "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' \
             OR (type IN ('table', 'view') AND name IN ('run', 'trial', 'figure') \
                 AND (type <> 'table' OR rootpage = 0 OR instr(?1, sql) = 0))",
            [TABLES],
            |row| row.get(0),
        ))?;
        if foreign > 0 {
            return Err(self.file_error(
                "its tables are not those that latput makes: name a file that latput wrote"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// The newest unfinished run of exactly this plan on exactly these machines since their last
    /// boot, with its finished trials.
    pub fn find_resumable_run(
        &self,
        plan: &str,
        machine: &str,
    ) -> Result<Option<(i64, Results)>, Error> {
        match self.find_newest_run(plan, machine)? {
            Some((run, false)) => Ok(Some((run, self.load_run(run)?))),
            _ => Ok(None),
        }
    }

    /// The same, finished or not.
    pub fn find_begun_run(
        &self,
        plan: &str,
        machine: &str,
    ) -> Result<Option<(i64, Results)>, Error> {
        let newest = self.find_newest_run(plan, machine)?;
        newest.map(|(run, _)| Ok((run, self.load_run(run)?))).transpose()
    }

    /// The newest run of exactly this plan on these machines, and whether it is finished.
    fn find_newest_run(&self, plan: &str, machine: &str) -> Result<Option<(i64, bool)>, Error> {
        if self.is_empty()? {
            return Ok(None);
        }
        let newest = self.db.query_row(
            "SELECT id, finished FROM run WHERE plan = ?1 AND machine = ?2 ORDER BY id DESC LIMIT 1",
            params![plan, machine],
            |row| Ok((row.get(0)?, row.get(1)?)),
        );
        self.map_sql_error(newest.optional())
    }

    /// The newest run of exactly this plan that ended by its own rules.
    pub fn find_finished_run(&self, plan: &str) -> Result<Option<Results>, Error> {
        let newest: Option<i64> = self.map_sql_error(self.db.query_row(
            "SELECT max(id) FROM run WHERE plan = ?1 AND finished = 1",
            [plan],
            |row| row.get(0),
        ))?;
        newest.map(|run| self.load_chosen(Some(run))).transpose()
    }

    /// The text of a run's plan, with the flags that it was started with: of the run of this number, or without a number of
    /// the newest.
    pub fn plan_text(&self, run: Option<i64>) -> Result<String, Error> {
        let run = run.map_or_else(|| self.newest_run(), Ok)?;
        let found =
            self.db.query_row("SELECT plan FROM run WHERE id = ?1", [run], |row| row.get(0));
        self.map_sql_error(found.optional())?.ok_or_else(|| self.no_run_error(run))
    }

    fn no_run_error(&self, run: i64) -> Error {
        match self.newest_run() {
            Ok(newest) => self.file_error(format!("it has no run {run}: its newest is {newest}")),
            Err(error) => error,
        }
    }

    /// Starts a run; `header` is the results without rows.
    pub fn begin_run(
        &self,
        plan: &str,
        machine: &str,
        started_unix_ms: u64,
        header: &Results,
    ) -> Result<i64, Error> {
        if self.is_empty()? {
            self.make_tables()?;
        }
        // A file of an older latput has none yet.
        self.map_sql_error(self.db.execute_batch(&build_views_sql()))?;
        self.map_sql_error(self.db.execute(
            "INSERT INTO run (started_unix_ms, finished, plan, machine, header) \
             VALUES (?1, 0, ?2, ?3, ?4)",
            params![started_unix_ms.cast_signed(), plan, machine, self.to_json(header)?],
        ))?;
        Ok(self.db.last_insert_rowid())
    }

    /// Adds one finished trial, durably.
    pub fn append_trial(&mut self, run: i64, results: &Results, row: &Row) -> Result<(), Error> {
        self.append_numbered_trial(run, results, row, None)
    }

    /// The same, with this number in the file; or with the next.
    pub fn append_numbered_trial(
        &mut self,
        run: i64,
        results: &Results,
        row: &Row,
        number: Option<i64>,
    ) -> Result<(), Error> {
        let observation = self.to_json(&row.observation)?;
        let traffic = &results.workloads[row.workload].traffic;
        let path = &self.path;
        let mut insert = || {
            let transaction = self.db.transaction()?;
            transaction.execute(
                "INSERT INTO trial (id, run, block, setting, workload, started_unix_ms, observation) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    number,
                    run,
                    row.block,
                    to_sql_integer(row.setting),
                    to_sql_integer(row.workload),
                    row.started_unix_ms.cast_signed(),
                    observation
                ],
            )?;
            let trial = transaction.last_insert_rowid();
            for metric in row.observation.metrics() {
                if let Some(value) = metric.value(traffic, &row.observation) {
                    transaction.execute(
                        "INSERT INTO figure (trial, metric, value) VALUES (?1, ?2, ?3)",
                        params![trial, metric.name(), value],
                    )?;
                }
            }
            transaction.commit()
        };
        insert().map_err(|error| sql_error(path, &error))
    }

    /// Stores changes of the header: a search adds settings.
    pub fn update_header(&self, run: i64, header: &Results) -> Result<(), Error> {
        self.write_header("UPDATE run SET header = ?2 WHERE id = ?1", run, header)
    }

    /// Marks a run as normally ended, with its final remarks.
    pub fn finish_run(&self, run: i64, header: &Results) -> Result<(), Error> {
        self.write_header("UPDATE run SET finished = 1, header = ?2 WHERE id = ?1", run, header)
    }

    fn write_header(&self, statement: &str, run: i64, header: &Results) -> Result<(), Error> {
        if self.is_empty()? {
            return Ok(()); // no run has begun
        }
        let header = self.to_json(&Results { rows: Vec::new(), ..header.clone() })?;
        self.map_sql_error(self.db.execute(statement, params![run, header]))?;
        Ok(())
    }

    /// Moves what the log beside the file holds into the file. Where that fails, the newest trials are in both together,
    /// which the error says.
    pub fn checkpoint_log(&self) -> Result<(), Error> {
        let moved = self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        let Err(error) = moved else { return Ok(()) };
        let Error::ResultsDb { path, problem, refusal } = sql_error(&self.path, &error) else {
            unreachable!("it is an error of the file")
        };
        let log = merge::path_with_suffix(&path, "-wal");
        let problem = format!(
            "{problem}. Until then its newest trials are in {}: keep the two files together",
            log.display()
        );
        Err(Error::ResultsDb { path, problem, refusal })
    }

    /// The runs of the file, oldest first.
    pub fn list_runs(&self) -> Result<Vec<RunSummary>, Error> {
        if self.is_empty()? {
            return Ok(Vec::new());
        }
        let rows: Vec<(i64, i64, bool, String, i64)> = self.map_sql_error(
            self.db
                .prepare(
                    "SELECT id, started_unix_ms, finished, header, \
                     (SELECT count(*) FROM trial WHERE trial.run = run.id) FROM run ORDER BY id",
                )
                .and_then(|mut statement| {
                    statement
                        .query_map([], |row| {
                            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
                        })?
                        .collect()
                }),
        )?;
        rows.into_iter()
            .map(|(id, started, finished, header, trials)| {
                let header: Results = self.read_json("header", &header)?;
                Ok(RunSummary {
                    id,
                    name: header.name,
                    started_unix_ms: started.cast_unsigned(),
                    trials: trials.cast_unsigned(),
                    finished,
                })
            })
            .collect()
    }

    /// A run with its trials in the order in which they ran.
    pub fn load_run(&self, run: i64) -> Result<Results, Error> {
        let header: Option<String> = self.map_sql_error(
            self.db
                .query_row("SELECT header FROM run WHERE id = ?1", [run], |row| row.get(0))
                .optional(),
        )?;
        let Some(header) = header else {
            return Err(self.no_run_error(run));
        };
        let mut results: Results = self.read_json("header", &header)?;
        results.rows.clear();
        let mut statement = self.map_sql_error(self.db.prepare(
            "SELECT block, setting, workload, started_unix_ms, observation FROM trial \
             WHERE run = ?1 ORDER BY id",
        ))?;
        let mut rows = self.map_sql_error(statement.query([run]))?;
        while let Some(row) = self.map_sql_error(rows.next())? {
            let numbers = || Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
            let (block, setting, workload, started): (u32, u32, u32, i64) =
                self.map_sql_error(numbers())?;
            let (setting, workload) = (setting as usize, workload as usize);
            if setting >= results.settings.len() || workload >= results.workloads.len() {
                return Err(self.file_error("a trial names a setting that is not there".to_owned()));
            }
            // Each is parsed before the next is read, because the text is much larger than its
            // content.
            let observation = self.map_sql_error(row.get_ref(4))?.as_str().unwrap_or_default();
            let observation = self.read_json("trial", observation)?;
            let started_unix_ms = started.cast_unsigned();
            results.rows.push(Row { block, setting, workload, started_unix_ms, observation });
        }
        Ok(results)
    }

    /// The run of this number, or without a number the newest.
    pub fn load_chosen(&self, run: Option<i64>) -> Result<Results, Error> {
        let results = self.load_run(run.map_or_else(|| self.newest_run(), Ok)?)?;
        Ok(Results { source: Some(self.path.display().to_string()), ..results })
    }

    /// The file that is written, as it was named; `None` for one in memory.
    pub fn file_name(&self) -> Option<String> {
        self.writer.as_ref().map(|_| self.path.display().to_string())
    }

    /// The number of the newest run.
    pub fn newest_run(&self) -> Result<i64, Error> {
        let newest: Option<i64> =
            self.map_sql_error(self.db.query_row("SELECT max(id) FROM run", [], |row| row.get(0)))?;
        newest.ok_or_else(|| self.file_error("it has no run yet".to_owned()))
    }

    fn to_json<T: serde::Serialize>(&self, value: &T) -> Result<String, Error> {
        serde_json::to_string(value).map_err(|error| self.file_error(error.to_string()))
    }

    fn read_json<T: serde::de::DeserializeOwned>(
        &self,
        what: &str,
        text: &str,
    ) -> Result<T, Error> {
        // As bytes, like messages of hosts: a reader of each type for texts too would be 0.2 MB of the program.
        serde_json::from_slice(text.as_bytes())
            .map_err(|error| self.file_error(format!("a {what} in it cannot be read: {error}")))
    }

    fn map_sql_error<T>(&self, result: rusqlite::Result<T>) -> Result<T, Error> {
        result.map_err(|error| sql_error(&self.path, &error))
    }

    /// The error of a file that is not what it should be, or that lacks what was asked of it.
    fn file_error(&self, problem: String) -> Error {
        Error::ResultsDb { path: self.path.clone(), problem, refusal: Refusal::Usage }
    }
}

/// The file and the number of its run that `FILE#N` names, if only FILE is there.
fn parse_run_name(path: &Path) -> Option<(&Path, i64)> {
    let (file, run) = path.to_str()?.rsplit_once('#')?;
    let file = Path::new(file);
    let is_number = run.bytes().all(|byte| byte.is_ascii_digit());
    Some((file, run.parse().ok().filter(|_| is_number && file.exists())?))
}

/// The name of a file that nobody writes to, by which SQLite reads it without a log (SQLite: URI Filenames, 3.3).
fn immutable_uri(real: &Path) -> PathBuf {
    let mut uri = String::from("file:");
    for &byte in real.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/.-_".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.extend(['%', hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
    }
    PathBuf::from(uri + "?immutable=1")
}

fn hex_digit(number: u8) -> char {
    char::from(b"0123456789abcdef"[usize::from(number)])
}

/// An index as an SQLite integer. There are thousands of settings and workloads at most.
fn to_sql_integer(idx: usize) -> i64 {
    i64::try_from(idx).expect("a plan has no more settings or workloads than the file can number")
}

fn sql_error(path: &Path, error: &rusqlite::Error) -> Error {
    let problem = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            let kind = files::read(path, TOLD_BY_BYTES).ok().and_then(|it| FileKind::detect(&it));
            let hint = kind.map_or_else(
                || "name another file".to_owned(),
                |kind| kind.suggest_command(&path.display().to_string()),
            );
            format!("this is not a results file (not an SQLite database): {hint}")
        }
        Some(ErrorCode::DatabaseCorrupt) => format!(
            "the file is damaged ({error}): move it away, or recover it with `sqlite3 FILE .recover`"
        ),
        Some(ErrorCode::DiskFull) => "the disk is full: free some space".to_owned(),
        // SQLite has no word of its own for a log's index that does not fit.
        Some(ErrorCode::SystemIoFailure) if files::is_disk_full(path) => {
            "the disk is full: free some space".to_owned()
        }
        Some(ErrorCode::OperationInterrupted) => {
            "reading it took more than 5 minutes, so it is not a results file of latput: name another file"
                .to_owned()
        }
        Some(ErrorCode::TooBig) => {
            format!("a header or a trial in it is longer than {LONGEST} bytes: name another file")
        }
        Some(ErrorCode::ConstraintViolation) => {
            "it has a trial of the same number from another search: name another file with -o"
                .to_owned()
        }
        Some(ErrorCode::CannotOpen) => {
            "cannot open or make it: check that the folder exists and may be written to".to_owned()
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            "it may not be written to: name another file with -o".to_owned()
        }
        _ => error.to_string(),
    };
    let refusal = match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Refusal::Permission,
        Some(
            ErrorCode::NotADatabase
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::OperationInterrupted
            | ErrorCode::TooBig
            | ErrorCode::ConstraintViolation,
        ) => Refusal::Usage,
        _ => Refusal::Failure,
    };
    Error::ResultsDb { path: path.to_owned(), problem, refusal }
}

/// The refusal of what the operating system refuses.
const fn to_refusal(is_permission: bool) -> Refusal {
    if is_permission { Refusal::Permission } else { Refusal::Failure }
}

#[cfg(test)]
mod tests;
