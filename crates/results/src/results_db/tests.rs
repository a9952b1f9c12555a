//! Results that survive, files that are refused, and the limits of other users.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use latput_trial::{Metric, Observation, Plan, plan};

use super::*;

#[test]
fn appended_rows_are_visible_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let header = make_header();
    let mut results_db = ResultsDb::create(&path).unwrap();
    let run = results_db.begin_run("plan", "boot", 1, &header).unwrap();
    let row = make_row(0, 1, 0);
    results_db.append_trial(run, &header, &row).unwrap();
    let reader = ResultsDb::open(&path).unwrap();
    assert_eq!(reader.load_run(reader.newest_run().unwrap()).unwrap().rows, [row]);
}

/// With SQLite alone, which knows nothing of latput.
#[test]
fn views_have_names_beside_the_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let header = make_header();
    let mut results_db = ResultsDb::create(&path).unwrap();
    let run = results_db.begin_run("plan", "boot", 1, &header).unwrap();
    for place in [(0, 0, 0), (0, 1, 0)] {
        let mut row = make_row(place.0, place.1, place.2);
        let figures = [(Metric::TransactionsPerS, 1e4), (Metric::LatencyNsP99, 5e4)];
        row.observation.reported_metrics.extend(figures);
        results_db.append_trial(run, &header, &row).unwrap();
    }
    drop(results_db);
    let drop_views = "DROP VIEW wide_trial; DROP VIEW named_figure; DROP VIEW named_trial;";
    Connection::open(&path).unwrap().execute_batch(drop_views).unwrap();
    make_results_file(&path);
    let db = Connection::open(&path).unwrap();
    let texts = |query: &str| -> Vec<String> {
        let mut statement = db.prepare(query).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let labels: Vec<&str> = header.settings[..2].iter().map(|one| one.label.as_str()).collect();
    assert_eq!(texts("SELECT setting FROM named_trial ORDER BY trial"), labels);
    let workload = &header.workloads[0].name;
    assert_eq!(texts("SELECT DISTINCT workload FROM named_figure"), [workload.as_str()]);
    let figures =
        "SELECT metric || ' ' || setting || ' ' || value FROM named_figure ORDER BY trial, metric";
    let figures = texts(figures);
    assert!(figures.len() > 2, "{figures:?}");
    for metric in texts("SELECT DISTINCT metric FROM figure") {
        let wide = format!(
            "SELECT '{metric} ' || setting || ' ' || {metric} FROM wide_trial ORDER BY trial"
        );
        let long: Vec<&String> =
            figures.iter().filter(|figure| figure.starts_with(&format!("{metric} "))).collect();
        assert_eq!(texts(&wide).iter().collect::<Vec<_>>(), long);
    }
}

#[test]
fn only_unfinished_equal_run_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let results_db = ResultsDb::create(&folder.path().join("results.db")).unwrap();
    let header = make_header();
    let run = results_db.begin_run("plan", "boot", 1, &header).unwrap();
    assert_eq!(results_db.find_resumable_run("plan", "boot").unwrap().unwrap().0, run);
    assert!(results_db.find_resumable_run("other plan", "boot").unwrap().is_none());
    assert!(results_db.find_resumable_run("plan", "other boot").unwrap().is_none());
    results_db.finish_run(run, &header).unwrap();
    assert!(results_db.find_resumable_run("plan", "boot").unwrap().is_none());
}

#[test]
fn second_writer_is_refused_reader_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let first = ResultsDb::create(&path).unwrap();
    let second = ResultsDb::create(&path).unwrap_err().to_string();
    assert!(second.contains("another latput is writing"), "{second}");
    first.begin_run("plan", "boot", 1, &make_header()).unwrap();
    ResultsDb::open(&path).unwrap();
}

#[test]
fn run_number_in_name_gives_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.db");
    make_results_file(&path);
    let named = folder.path().join("kept.db#1");
    let error = ResultsDb::open(&named).unwrap_err().to_string();
    assert!(error.contains("kept.db`; a command") && error.contains("takes `--run 1`"), "{error}");
    let error = ResultsDb::open(&folder.path().join("none.db#1")).unwrap_err().to_string();
    assert!(!error.contains("--run"), "{error}");
}

#[test]
fn unreadable_results_file_is_refused_by_name() {
    assert_refused(|path| fs::write(path, "name,value\n").unwrap(), "not a results file");
    assert_refused(
        |path| Connection::open(path).unwrap().execute_batch("CREATE TABLE t (x);").unwrap(),
        "not latput's results",
    );
    assert_refused(
        |path| {
            make_results_file(path);
            let db = Connection::open(path).unwrap();
            db.pragma_update(None, "user_version", 99).unwrap();
        },
        "its schema is 99",
    );
    assert_refused(
        |path| {
            let mut results_db = ResultsDb::create(path).unwrap();
            let header = make_header();
            let run = results_db.begin_run("plan", "boot", 1, &header).unwrap();
            for block in 0..200 {
                results_db.append_trial(run, &header, &make_row(block, 0, 0)).unwrap();
            }
            drop(results_db);
            let length = fs::metadata(path).unwrap().len();
            fs::File::options().write(true).open(path).unwrap().set_len(length / 2).unwrap();
        },
        "damaged",
    );
    assert_refused(
        |path| {
            make_results_file(path);
            let mut file = fs::File::options().write(true).open(path).unwrap();
            file.write_all(&[0xff; 64]).unwrap();
        },
        "not a results file",
    );
}

#[test]
fn link_or_a_pipe_is_not_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    make_results_file(&at("kept.db"));
    let kept = fs::read(at("kept.db")).unwrap();
    std::os::unix::fs::symlink(at("kept.db"), at("link.db")).unwrap();
    std::os::unix::fs::symlink(at("made.db"), at("dangling.db")).unwrap();
    for name in ["link.db", "dangling.db"] {
        let text = ResultsDb::create(&at(name)).unwrap_err().to_string();
        assert!(text.contains(name) && text.contains("symbolic link"), "{text}");
    }
    assert!(!at("made.db").exists() && fs::read(at("kept.db")).unwrap() == kept);
    ResultsDb::open(&at("link.db")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe.db"), 0o600.into()).unwrap();
    let text = ResultsDb::open(&at("pipe.db")).unwrap_err().to_string();
    assert!(text.contains("not a regular file"), "{text}");
    assert!(ResultsDb::create(&at("pipe.db")).unwrap_err().to_string().contains("a pipe"));
}

#[test]
fn lock_is_nobody_elses_to_take() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    make_results_file(&path);
    let results_db = ResultsDb::create(&path).unwrap();
    let lock = folder.path().join("results.db-lock");
    assert_eq!(fs::metadata(&lock).unwrap().permissions().mode() & 0o777, 0o600);
    drop(results_db);
    assert!(!lock.exists());
    // Whoever may read the file may lock it, and that means nothing.
    let stranger = fs::File::open(&path).unwrap();
    stranger.lock().unwrap();
    drop(ResultsDb::create(&path).unwrap());
    // The leftover of a writer that was killed is no lock.
    fs::write(&lock, "1\n").unwrap();
    ResultsDb::create(&path).unwrap();
}

#[test]
fn replaced_table_is_refused() {
    const LOOP: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i";
    for change in [
        &format!("DROP TABLE figure; CREATE VIEW figure AS {LOOP} AS trial FROM n;"),
        &format!(
            "DROP TABLE trial; CREATE VIEW trial AS {LOOP} AS run, 0 AS block, 0 AS setting, \
             0 AS workload, 0 AS started_unix_ms, '' AS observation, i AS id FROM n;"
        ),
        "CREATE TRIGGER more AFTER INSERT ON trial BEGIN DELETE FROM run; END;",
        "DROP TABLE figure; CREATE TABLE figure (trial INTEGER, metric TEXT, \
         value REAL AS (length(zeroblob(1000000000))));",
        // As another SQLite would make it, which has this module.
        "DROP TABLE figure; PRAGMA writable_schema = ON; INSERT INTO sqlite_master VALUES \
         ('table', 'figure', 'figure', 0, 'CREATE VIRTUAL TABLE figure USING fts5(trial, metric, value)');",
    ] {
        assert_refused(
            |path| {
                make_results_file(path);
                Connection::open(path).unwrap().execute_batch(change).unwrap();
            },
            "tables are not those",
        );
    }
}

#[test]
fn endless_query_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    make_results_file(&path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let results_db = ResultsDb::connect_restricted(
        &path,
        &path.canonicalize().unwrap(),
        flags,
        Duration::from_millis(50),
    )
    .unwrap();
    let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                   SELECT count(*) FROM n";
    let result =
        results_db.map_sql_error(results_db.db.query_row(endless, [], |row| row.get::<_, i64>(0)));
    assert!(result.unwrap_err().to_string().contains("took more than"));
    let db = Connection::open(&path).unwrap();
    let long = "INSERT INTO run VALUES (2, 0, 1, '', '', zeroblob(70000000))";
    db.execute_batch(long).unwrap();
    let text = ResultsDb::open(&path).unwrap().load_run(2).unwrap_err().to_string();
    assert!(text.contains("longer than 67108864 bytes"), "{text}");
}

/// Makes a results file with a run without trials.
fn make_results_file(path: &Path) {
    let results_db = ResultsDb::create(path).unwrap();
    results_db.begin_run("plan", "boot", 1, &make_header()).unwrap();
}

/// A run that is refused before it begins.
#[test]
fn results_file_without_run_is_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("empty.db"), "").unwrap();
    make_results_file(&at("kept.db"));
    let kept = fs::read(at("kept.db")).unwrap();
    for name in ["new.db", "empty.db", "kept.db"] {
        let results_db = ResultsDb::create(&at(name)).unwrap();
        assert!(results_db.find_resumable_run("another plan", "boot").unwrap().is_none());
        assert_eq!(results_db.list_runs().unwrap().len(), usize::from(name == "kept.db"));
    }
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["empty.db", "kept.db"]);
    assert_eq!(fs::read(at("empty.db")).unwrap(), b"");
    assert_eq!(fs::read(at("kept.db")).unwrap(), kept);
}

#[track_caller]
fn assert_refused(make: impl FnOnce(&Path), expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    make(&path);
    for refused in [ResultsDb::open(&path), ResultsDb::create(&path)] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(expected) && text.contains("results.db"), "{text}");
    }
}

fn make_header() -> Results {
    let plan = Plan::parse("built-in", plan::BUILT_IN).unwrap();
    Results {
        name: plan.name.clone(),
        goal: plan.goal.clone(),
        confidence: 0.99,
        half_width: 0.025,
        testbed: "lab".to_owned(),
        latput_version: "0".to_owned(),
        seed: 1,
        settings: plan.settings(),
        workloads: plan.workloads,
        planned_trials: 100,
        ..Results::default()
    }
}

fn make_row(block: u32, setting: usize, workload: usize) -> Row {
    let observation = Observation::default();
    Row { block, setting, workload, started_unix_ms: 5, observation }
}
