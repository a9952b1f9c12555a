//! Results files that something is wrong with, before every command that reads one.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::{CommandOutput, Place};

const PLAN: &str = "schema = 1\nname = \"small\"\ngoal = \"latency\"\n[factors]\nrx-usecs = [0, 50, 100]\n\
                    [[workload]]\nkind = \"tcp_rr\"\n[method]\nduration = \"50ms\"\n\
                    warmup = \"0ms\"\nrepetitions = { min = 4, max = 4 }\n";
/// The commands that read a results file.
const READERS: [&[&str]; 7] = [
    &["report"],
    &["report", "--compare", "sound.db"],
    &["history", "sound.db"],
    &["explain"],
    &["model", "fit"],
    &["apply"],
    &["export-settings", "--format", "udev"],
];

#[test]
fn foreign_results_are_refused_by_every_reader() {
    let place = place_with_results();
    place.modify_results("kept.db", "PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = std::fs::read(place.path("kept.db")).unwrap();
    std::fs::write(place.path("sound.db"), &whole).unwrap();
    std::fs::write(place.path("half.db"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(place.path("other.db"), &whole).unwrap();
    place.modify_results("other.db", "PRAGMA user_version = 99");
    std::fs::write(place.path("empty.db"), &whole).unwrap();
    place.modify_results(
        "empty.db",
        "UPDATE run SET header = json_set(header, '$.settings', json('[]'))",
    );
    for reader in READERS {
        read(&place, reader, "half.db").expect(2, &["half.db", "damaged", ".recover"]);
        read(&place, reader, "other.db")
            .expect(2, &["other.db", "schema is 99", "latput that wrote"]);
        read(&place, reader, "empty.db").expect(2, &["empty.db", "a setting that is not there"]);
    }
}

#[test]
fn run_without_baseline_gives_no_advice() {
    let place = place_with_results();
    place.modify_results(
        "kept.db",
        "DELETE FROM figure WHERE trial IN (SELECT id FROM trial WHERE setting = 0);
         DELETE FROM trial WHERE setting = 0",
    );
    let why = "has no latency_ns_p99 in any trial";
    read(&place, &["report"], "kept.db").expect(0, &["No answer", why, "4 of 12 planned trials"]);
    for reader in [&["apply"][..], &["keep", "--yes"], &["export-settings", "--format", "udev"]] {
        read(&place, reader, "kept.db")
            .expect(6, &["has no answer, and nothing was changed", why, "--setting"]);
    }
    read(&place, &["explain"], "kept.db").expect(0, &["tcp_rr"]);
    let fitted = read(&place, &["model", "fit"], "kept.db");
    assert!(matches!(fitted.code, Some(0..=2)), "{fitted:#?}");
    read(&place, &["history"], "kept.db").expect(0, &["rx-usecs=100us"]);
    let settings = ["report", "kept.db", "--compare"];
    place
        .run(&[&settings[..], &["0us", "50us"]].concat())
        .expect(0, &["no setting has two trials on each side"]);
    let gate = ["0us", "50us", "--fail-on", "worse"];
    place.run(&[&settings[..], &gate].concat()).expect(1, &["no figure could be judged"]);
    let junit = place.run(&[&settings[..], &gate, &["--format", "junit"]].concat());
    junit.expect(1, &["tests=\"1\" failures=\"1\"", "message=\"no figure could be judged\""]);
    // A report of it keeps what is left, and no more.
    place.run(&["report", "kept.db", "--share", "-o", "kept.html"]).expect(0, &[]);
    place.run(&["import", "kept.html", "-o", "back.db"]).expect(0, &["No answer", why]);
}

#[test]
fn half_report_leaves_results_unchanged() {
    let place = place_with_results();
    place.run(&["report", "kept.db", "--share", "-o", "whole.html"]).expect(0, &[]);
    let whole = std::fs::read_to_string(place.path("whole.html")).unwrap();
    let trials = whole.find("id=\"trials\">").unwrap();
    let refuse = |page: &str, said: &str| {
        place.write("bad.html", page);
        place.run(&["import", "bad.html", "-o", "kept.db"]).expect(2, &["bad.html", said]);
        let listed = place.run(&["report", "kept.db", "--list"]);
        assert_eq!(listed.expect(0, &[]).out.lines().count(), 1);
    };
    refuse(&whole[..trials / 2], "it holds no trials");
    refuse(&whole[..trials + 500], "damaged or were edited (they are cut short)");
    let letter = if &whole[trials + 400..=trials + 400] == "A" { "B" } else { "A" };
    let mut edited = whole.clone();
    edited.replace_range(trials + 400..=trials + 400, letter);
    refuse(&edited, "damaged or were edited");
    // A person edits the texts of the page. They are not read: the trials are.
    let edited = whole.replace(" us", " ms").replace("us</td>", "ms</td>");
    assert_ne!(edited, whole);
    place.write("edited.html", &edited);
    place.run(&["import", "edited.html", "-o", "edited.db"]).expect(0, &["imported from a report"]);
    place.run(&["import", "whole.html", "-o", "whole.db"]).expect(0, &[]);
    let csv =
        |file: &str| place.run(&["report", file, "--format", "csv"]).expect(0, &[]).out.clone();
    assert_eq!(csv("edited.db"), csv("whole.db"));
}

#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn settings_with_markup_are_all_shown() {
    let place = place_with_results();
    // Setting 0 stays. The others get names that HTML, Markdown and XML would take for their own.
    place.modify_results(
        "kept.db",
        "WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 299),
              named (id, setting) AS (
                  SELECT n.id, json_set(json_extract(header, '$.settings[1]'), '$.label',
                                      '</td><script>alert(' || n.id || ')</script>|*a*&') FROM n, run)
         UPDATE run SET header = json_set(header, '$.settings', json(
             (SELECT json_group_array(json(setting)) FROM
                 (SELECT json_extract(header, '$.settings[0]') AS setting, 0 AS id
                  UNION ALL SELECT setting, id FROM named ORDER BY id))));
         DELETE FROM figure WHERE trial IN (SELECT id FROM trial WHERE setting = 2);
         DELETE FROM trial WHERE setting = 2;
         INSERT INTO trial (run, block, setting, workload, started_unix_ms, observation)
         WITH RECURSIVE n (id) AS (SELECT 2 UNION ALL SELECT id + 1 FROM n WHERE id < 299)
         SELECT run, block, n.id, workload, started_unix_ms, observation FROM trial, n WHERE setting = 1",
    );
    let ran = read(&place, &["report", "--format", "markdown"], "kept.db");
    assert!(!ran.expect(0, &[]).out.contains("<script>"));
    let ran = read(&place, &["report", "--format", "html"], "kept.db");
    assert!(!ran.expect(0, &[]).out.contains("<script>alert"));
    for id in [1, 150, 299] {
        let name = format!("alert({id})");
        for format in ["table", "markdown", "html", "csv", "json"] {
            read(&place, &["report", "--format", format], "kept.db").expect(0, &[&name]);
        }
        read(&place, &["history"], "kept.db").expect(0, &[&name]);
    }
    std::fs::copy(place.path("kept.db"), place.path("later.db")).unwrap();
    place.modify_results("later.db", "UPDATE trial SET started_unix_ms = started_unix_ms + 1");
    for format in ["table", "markdown", "junit", "ktap", "json"] {
        let compare = ["report", "--compare", "kept.db", "later.db", "--format", format];
        let ran = place.run(&compare);
        ran.expect(0, &["alert(299)"]);
        if ["markdown", "junit"].contains(&format) {
            assert!(!ran.out.contains("<script>"), "{format}");
        }
    }
}

#[test]
fn thousand_runs_in_one_file_load() {
    let place = place_with_results();
    place.modify_results(
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
    place.run(&["report", "kept.db", "--run", "1001"]).expect(2, &["1001"]);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let history = read(&place, &["history", "--format", "csv"], "kept.db");
    assert_eq!(history.expect(0, &[]).out.lines().count(), 1001, "a line to a run, and the head");
    place.run(&["report", "--compare", "kept.db#1", "kept.db#1000"]).expect(0, &["21 equivalent"]);
}

fn read(place: &Place, reader: &[&str], file: &str) -> CommandOutput {
    place.run(&[reader, &[file]].concat())
}

fn place_with_results() -> Place {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    place
}

impl Place {
    /// Changes a results file as latput never would.
    fn modify_results(&self, file: &str, sql: &str) {
        Connection::open(self.path(file)).unwrap().execute_batch(sql).unwrap();
    }
}

#[test]
fn comparison_names_differences_beside_settings() {
    let place = place_with_results();
    std::fs::copy(place.path("kept.db"), place.path("later.db")).unwrap();
    place.modify_results(
        "later.db",
        "UPDATE trial SET started_unix_ms = started_unix_ms + 86400000;
         UPDATE run SET header = json_set(header, '$.latput_version', '9.9.9',
                                          '$.testbed', '\u{1b}[2Jrack.toml')",
    );
    let compare = ["report", "--compare", "kept.db", "later.db"];
    let ran = place.run(&compare);
    ran.expect(0, &["note: the runs differ in date (", "then 9.9.9", "\\u001b[2Jrack.toml"]);
    assert!(!ran.out.contains('\u{1b}'));
    let ran = place.run(&[&compare[..], &["--json"]].concat());
    let first = ran.expect(0, &[]).out.lines().next().unwrap().to_owned();
    let document: serde_json::Value = serde_json::from_str(&first).unwrap();
    let what = |at: usize| document["origin"][at]["what"].as_str();
    assert_eq!(
        [what(0), what(1), what(2), what(3)].map(|it| it.unwrap_or("")),
        ["date", "latput", "testbed", ""]
    );
    assert_eq!(document["origin"][1]["second"], "9.9.9");
    let settings = ["report", "kept.db", "--compare", "0us", "50us"];
    assert!(!place.run(&settings).expect(0, &[]).out.contains("differ in"));
}
