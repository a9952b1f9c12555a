//! Results files that something is wrong with, before every command that reads one.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::{Place, Ran};

const PLAN: &str = "schema = 1\nname = \"small\"\ngoal = \"latency\"\n[factors]\nrx-usecs = [0, 50, 100]\n\
                    [[workload]]\nkind = \"tcp_rr\"\n[method]\nduration = \"50ms\"\n\
                    warmup = \"0ms\"\nrepetitions = { min = 4, max = 4 }\n";
/// The commands that read a results file.
const READERS: [&[&str]; 5] = [
    &["report"],
    &["explain"],
    &["model", "fit"],
    &["apply"],
    &["export-settings", "--format", "udev"],
];

#[test]
fn a_file_of_another_version_or_half_of_one_is_refused_by_every_reader() {
    let place = place();
    place.db("kept.db", "PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = std::fs::read(place.path("kept.db")).unwrap();
    std::fs::write(place.path("half.db"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(place.path("other.db"), &whole).unwrap();
    place.db("other.db", "PRAGMA user_version = 99");
    std::fs::write(place.path("empty.db"), &whole).unwrap();
    place.db("empty.db", "UPDATE run SET header = json_set(header, '$.settings', json('[]'))");
    for reader in READERS {
        read(&place, reader, "half.db").expect(1, &["half.db", "damaged", ".recover"]);
        read(&place, reader, "other.db")
            .expect(1, &["other.db", "schema is 99", "latput that wrote"]);
        read(&place, reader, "empty.db").expect(1, &["empty.db", "a setting that is not there"]);
    }
}

#[test]
fn a_run_whose_first_setting_has_no_trial_gives_no_advice_and_says_why() {
    let place = place();
    place.db(
        "kept.db",
        "DELETE FROM figure WHERE trial IN (SELECT id FROM trial WHERE setting = 0);
         DELETE FROM trial WHERE setting = 0",
    );
    let why = "has no latency_ns_p99 in any run";
    read(&place, &["report"], "kept.db").expect(0, &["No answer", why, "4 of 12 planned trials"]);
    read(&place, &["apply"], "kept.db").expect(2, &["recommends nothing", why, "--setting"]);
    read(&place, &["explain"], "kept.db").expect(0, &["tcp_rr"]);
    let fitted = read(&place, &["model", "fit"], "kept.db");
    assert!(matches!(fitted.code, Some(0..=2)), "{fitted:#?}");
}

#[test]
fn a_thousand_runs_in_one_file_are_no_burden() {
    let place = place();
    place.db(
        "kept.db",
        "WITH RECURSIVE n (id) AS (SELECT 2 UNION ALL SELECT id + 1 FROM n WHERE id < 1000)
         INSERT INTO run SELECT n.id, started_unix_ms, finished, plan, machine, header FROM run, n;
         INSERT INTO trial (run, block, setting, workload, started_unix_ms, observation)
         SELECT run.id, block, setting, workload, trial.started_unix_ms, observation
         FROM trial, run WHERE trial.run = 1 AND run.id > 1",
    );
    let begun = Instant::now();
    let listed = place.run(&["report", "kept.db", "--list"]);
    assert_eq!(listed.expect(0, &[]).out.lines().count(), 1000);
    read(&place, &["report"], "kept.db").expect(0, &["3 settings"]);
    read(&place, &["explain"], "kept.db").expect(0, &[]);
    place.run(&["report", "kept.db", "--run", "1001"]).expect(1, &["1001"]);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

fn read(place: &Place, reader: &[&str], file: &str) -> Ran {
    place.run(&[reader, &[file]].concat())
}

fn place() -> Place {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    place
}

impl Place {
    /// Changes a results file as latput never would.
    fn db(&self, file: &str, sql: &str) {
        Connection::open(self.path(file)).unwrap().execute_batch(sql).unwrap();
    }
}
