//! Shards of a simulated run, and their merge: the same bytes as one process, or a refusal that names the file.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;

use crate::{Place, interrupt_pid, kill_pid, wait_until};

/// Three settings, two workloads and three repetitions: 18 trials.
const PLAN: &str = "schema = 1\nname = \"sharded\"\ngoal = \"latency\"\n[factors]\nrx-usecs = [0, 50, 100]\n\
                    [[workload]]\nkind = \"tcp_rr\"\n[[workload]]\nkind = \"udp_stream\"\nrate = \"20Mbps\"\n\
                    [method]\nduration = \"50ms\"\nwarmup = \"1ms\"\nrepetitions = { min = 3, max = 3 }\nseed = 7\n";

#[test]
fn merged_shards_equal_one_run() {
    let place = place_with_plan();
    place.run_shards(16);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "one.db"]).expect(0, &[]);
    let mut parts: Vec<String> = (1..=16).map(|number| format!("part{number}.db")).collect();
    parts.reverse();
    place.merge_parts(&parts, &[]).expect(0, &["18 of 18 trials in all.db"]);
    assert_eq!(place.report_csv("all.db"), place.report_csv("one.db"));
    assert_eq!(place.trial_rows("all.db"), place.trial_rows("one.db"));
    // Once more: the file is replaced by the same.
    place.merge_parts(&parts, &[]).expect(0, &[]);
    assert_eq!(place.report_csv("all.db"), place.report_csv("one.db"));
    assert!(!place.path("all.db.merging").exists() && !place.path("all.db-wal").exists());
    // A file that is complete is not run again.
    place.run(&["report", "all.db"]).expect(0, &["sharded"]);
    let notes = place.query_text("all.db", "SELECT header FROM run");
    assert!(!notes.contains("shard "), "{notes}");
}

#[test]
fn stopping_rule_is_judged_after_merge() {
    let place = place_with_plan();
    let plan = PLAN
        .replace("max = 3 }", "max = 6 }")
        .replace("seed = 7", "seed = 7\nhalf_width = \"0.1%\"");
    place.write("plan.toml", &plan);
    let parts = place.run_shards(4);
    place
        .merge_parts(&parts, &[])
        .expect(0, &["18 of 18 trials", "the plan may need more repetitions"]);
    let whole = ["run", "plan.toml", "--on", "sim:server-10g", "-o"];
    place.run(&[&whole[..], &["one.db"]].concat()).expect(0, &[]);
    assert!(place.count_trials("one.db") > 18, "the rule asked for nothing");
    place.run(&[&whole[..], &["all.db"]].concat()).expect(0, &["18 of 18 trials are done"]);
    assert_eq!(place.report_csv("all.db"), place.report_csv("one.db"));
    // It has more now than the shards: they do not take its place.
    place.merge_parts(&parts, &[]).expect(2, &["all.db", "trials that these shards lack", "-o"]);
    assert_eq!(place.report_csv("all.db"), place.report_csv("one.db"));
}

#[test]
fn killed_worker_resumes_to_same_merge() {
    let place = place_with_plan();
    place.write(
        "plan.toml",
        &PLAN.replace("50ms", "400ms").replace("min = 3, max = 3", "min = 9, max = 9"),
    );
    let shard = |number: &'static str, file: &'static str| {
        ["run", "plan.toml", "--on", "sim:server-10g", "--shard", number, "-o", file]
    };
    for (number, file, end) in
        [("1/2", "part1.db", kill_pid as fn(u32)), ("2/2", "part2.db", interrupt_pid)]
    {
        let mut worker = place.start(&shard(number, file));
        wait_until("a trial", || {
            place.count_trials(file) > 0 || worker.try_wait().unwrap().is_some()
        });
        end(worker.id());
        let code = worker.wait().unwrap().code();
        let kept = place.count_trials(file);
        assert!(0 < kept && kept < 27, "{file} has {kept} trials, {code:?}");
        if number == "2/2" {
            let said = fs::read_to_string(place.path("stderr")).unwrap();
            assert!(code == Some(6) && said.contains("of 27 trials"), "{said}");
        }
    }
    let parts = ["part1.db".to_owned(), "part2.db".to_owned()];
    let said = [
        "part1.db: shard 1/2 is not finished",
        "part2.db: shard 2/2 is not finished",
        "--shard 2/2",
    ];
    place.merge_parts(&parts, &[]).expect(2, &said);
    assert!(!place.path("all.db").exists());
    place.run(&shard("1/2", "part1.db")).expect(0, &["of 27 trials"]);
    place.run(&shard("2/2", "part2.db")).expect(0, &["of 27 trials"]);
    place.merge_parts(&parts, &[]).expect(0, &["54 of 54 trials"]);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "one.db"]).expect(0, &[]);
    assert_eq!(place.report_csv("all.db"), place.report_csv("one.db"));
}

#[test]
fn bad_shards_are_named_without_output() {
    let place = place_with_plan();
    let parts = place.run_shards(4);
    let with = |file: &str| [&parts[..], &[file.to_owned()]].concat();
    place.merge_parts(&parts[..2], &[]).expect(2, &["no file has shard 3/4, 4/4", "--shard 3/4"]);
    fs::copy(place.path("part2.db"), place.path("copy.db")).unwrap();
    let said = ["copy.db: shard 2/4, as is part2.db", "leave one out"];
    place.merge_parts(&with("copy.db"), &[]).expect(2, &said);
    place.merge_parts(&with("part2.db"), &[]).expect(2, &["part2.db: shard 2/4, as is part2.db"]);

    place.run_shard("plan.toml", "sim:server-10g", "2/3", "count.db");
    let said = ["count.db: it is shard 2/3", "one of 4 shards, like part1.db"];
    place.merge_parts(&with("count.db"), &[]).expect(2, &said);
    place.write("other.toml", &PLAN.replace("seed = 7", "seed = 8"));
    place.run_shard("other.toml", "sim:server-10g", "2/4", "plan.db");
    place
        .merge_parts(&with("plan.db"), &[])
        .expect(2, &["plan.db: it is of another plan", "part1.db"]);
    place.run_shard("plan.toml", "sim:rx1620-e1000", "2/4", "testbed.db");
    let said = ["testbed.db: it is on sim:rx1620-e1000", "`--on sim:server-10g`"];
    place.merge_parts(&with("testbed.db"), &[]).expect(2, &said);
    place.execute_sql(
        "copy.db",
        "UPDATE run SET header = json_set(header, '$.latput_version', '9.9.9')",
    );
    place.merge_parts(&with("copy.db"), &[]).expect(2, &["copy.db: it is of latput 9.9.9"]);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "one.db"]).expect(0, &[]);
    place.merge_parts(&with("one.db"), &[]).expect(2, &["one.db: its newest run is not a shard"]);
    place.merge_parts(&with("none.db"), &[]).expect(2, &["none.db", "No such file"]);
    assert!(!place.path("all.db").exists() && !place.path("all.db.merging").exists());

    // A file of another run is not replaced.
    fs::copy(place.path("one.db"), place.path("all.db")).unwrap();
    place.execute_sql("all.db", "UPDATE run SET plan = 'mine'");
    place.merge_parts(&parts, &[]).expect(2, &["all.db", "would be lost", "-o"]);
    assert_eq!(place.query_text("all.db", "SELECT plan FROM run"), "mine");
}

#[test]
fn damaged_part_is_named_rest_is_kept() {
    let place = place_with_plan();
    let parts = place.run_shards(4);
    let whole = fs::read(place.path("part3.db")).unwrap();
    fs::write(place.path("part3.db"), &whole[..whole.len() / 2]).unwrap();
    place.merge_parts(&parts, &[]).expect(2, &["part3.db: the file is damaged"]);
    assert!(!place.path("all.db").exists());
    place
        .merge_parts(&parts, &["--partial"])
        .expect(6, &["part3.db", "no file has shard 3/4", "14 of 18"]);
    place.run(&["report", "all.db"]).expect(0, &["no file has shard 3/4"]);
    // `run` finishes what was merged; the report no longer misses the shard.
    fs::copy(place.path("all.db"), place.path("run.db")).unwrap();
    place
        .run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "run.db"])
        .expect(0, &["14 of 18 trials are done"]);
    let finished = place.run(&["report", "run.db"]);
    assert!(!finished.expect(0, &["sharded"]).out.contains("shard 3/4"), "{finished:#?}");
    // The shard is run again, and takes its place.
    fs::remove_file(place.path("part3.db")).unwrap();
    place.run_shard("plan.toml", "sim:server-10g", "3/4", "part3.db");
    place.merge_parts(&parts, &[]).expect(0, &["18 of 18"]);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "one.db"]).expect(0, &[]);
    assert_eq!(place.report_csv("all.db"), place.report_csv("one.db"));
}

#[test]
fn partial_merge_takes_nothing_from_output() {
    let place = place_with_plan();
    let parts = place.run_shards(4);
    place.merge_parts(&parts[..2], &["--partial"]).expect(6, &["10 of 18"]);
    // Other trials, fewer and as many.
    for others in [&parts[2..3], &parts[2..]] {
        place
            .merge_parts(others, &["--partial"])
            .expect(2, &["all.db", "10 trials that these shards lack", "-o"]);
        assert_eq!(place.count_trials("all.db"), 10);
    }
    place.merge_parts(&parts[..3], &["--partial"]).expect(6, &["14 of 18"]);
    place.merge_parts(&parts, &[]).expect(0, &["18 of 18"]);
    place
        .merge_parts(&parts[1..], &["--partial"])
        .expect(2, &["all.db", "5 trials that these shards lack"]);
    assert_eq!(place.count_trials("all.db"), 18);
    assert!(!place.path("all.db.merging").exists());
}

#[test]
fn leftovers_of_killed_merge_do_not_block() {
    let place = place_with_plan();
    let parts = place.run_shards(2);
    place.write("part2.db", "");
    place.merge_parts(&parts, &[]).expect(2, &["part2.db: its shard has not begun", "`--shard`"]);
    place.run_shard("plan.toml", "sim:server-10g", "2/2", "part2.db");
    for left in ["all.db.merging", "all.db.merging-wal", "all.db.merging-shm"] {
        place.write(left, "half a page");
    }
    place.merge_parts(&parts, &[]).expect(0, &["18 of 18"]);
    assert!(!place.path("all.db.merging-wal").exists());
}

#[test]
fn parts_in_read_only_folder_are_merged() {
    let place = place_with_plan();
    let parts = place.run_shards(2);
    // A name that means something in a URI.
    let folder = place.path("a?b=%41 #c");
    fs::create_dir(&folder).unwrap();
    let kept: Vec<String> = parts.iter().map(|part| format!("a?b=%41 #c/{part}")).collect();
    for (part, kept) in parts.iter().zip(&kept) {
        fs::copy(place.path(part), place.path(kept)).unwrap();
    }
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o555)).unwrap();
    let words = ["merge", kept[0].as_str(), kept[1].as_str(), "-o", "all.db"];
    place.run_without_root(&words).expect(0, &["18 of 18"]);
    place.run_without_root(&["report", &kept[0]]).expect(0, &["sharded"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    // A log beside it cannot be read, and is not left out.
    fs::write(place.path(&format!("{}-wal", kept[0])), "a log").unwrap();
    place.run_without_root(&words).expect(2, &["part1.db", "may be written to"]);
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn unreadable_trial_names_its_file() {
    let place = place_with_plan();
    let parts = place.run_shards(4);
    place.execute_sql("part2.db", "UPDATE trial SET observation = '{}x' WHERE id = 1");
    place.merge_parts(&parts, &[]).expect(2, &["part2.db", "a trial in it cannot be read"]);
    place.execute_sql("part4.db", "UPDATE trial SET block = 77 WHERE id = 1");
    let others = [&parts[..1], &parts[2..]].concat();
    let said = ["part4.db", "1 of its 4 trials is not of shard 4/4"];
    place.merge_parts(&others, &["--partial"]).expect(2, &said);
    assert!(!place.path("all.db").exists() && !place.path("all.db.merging").exists());
}

#[test]
fn indivisible_plan_is_refused_without_file() {
    let place = place_with_plan();
    let run = |plan: &str, on: &str| {
        place.run(&["run", plan, "--on", on, "--shard", "1/2", "-o", "no.db"])
    };
    place.write("search.toml", &PLAN.replace("[method]", "[method]\ndesign = \"search\""));
    run("search.toml", "sim:server-10g")
        .expect(2, &["--shard 1/2: a search", "design = \"blocks\""]);
    place.write("no-seed.toml", &PLAN.replace("seed = 7\n", ""));
    run("no-seed.toml", "sim:server-10g").expect(2, &["--shard 1/2: without a seed", "seed = 1"]);
    run("plan.toml", "loopback")
        .expect(2, &["--shard 1/2: shards on the same hosts", "sim:SYSTEM"]);
    let args = ["run", "plan.toml", "--on", "sim:server-10g", "--shard", "5/4"];
    place.run(&args).expect(2, &["NUMBER/COUNT", "5/4"]);
    assert!(!place.path("no.db").exists());
}

/// 24 settings, searched.
const SEARCH: &str = "schema = 1\nname = \"searched\"\ngoal = \"latency\"\n[factors]\n\
                      rx-usecs = [0, 5, 10, 20, 30, 50, 75, 100]\nmtu = [1500, 4000, 9000]\n\
                      [[workload]]\nkind = \"tcp_rr\"\nburst = 4\n\
                      [method]\nduration = \"50ms\"\nwarmup = \"1ms\"\nseed = 7\nbudget = \"7s\"\n";

#[test]
fn sharded_search_equals_one_process() {
    let place = place_with_plan();
    place.write("plan.toml", SEARCH);
    place.run_search(&["-o", "one.db"]).expect(0, &[]);
    let mut blocks = 0;
    loop {
        let judged = place.run_search(&["--no-trials", "-o", "all.db"]);
        if judged.code == Some(0) {
            break;
        }
        judged.expect(6, &[&format!("block {blocks} of the search is next"), "--from all.db"]);
        let parts = place.search_shards(3);
        place
            .merge_parts(&parts, &[])
            .expect(0, &[&format!("block {blocks} of the search is complete")]);
        if blocks == 1 {
            // A shard that is there is not run again, and merging again changes nothing.
            let rows = place.trial_rows("all.db");
            place.merge_parts(&parts, &[]).expect(0, &[]);
            assert_eq!(place.trial_rows("all.db"), rows);
        }
        blocks += 1;
        assert!(blocks < 50, "it does not end");
    }
    assert!(blocks > 3, "{blocks}");
    assert_eq!(place.report_csv("all.db"), place.report_csv("one.db"));
    assert_eq!(place.trial_rows("all.db"), place.trial_rows("one.db"));
    let header = "SELECT header FROM run";
    assert_eq!(place.query_text("all.db", header), place.query_text("one.db", header));
}

#[test]
fn killed_search_shard_resumes_from_any_block() {
    let place = place_with_plan();
    place.write("plan.toml", SEARCH);
    place.run_search(&["--no-trials", "-o", "all.db"]).expect(6, &["block 0"]);
    let parts = place.search_shards(2);
    place.merge_parts(&parts, &[]).expect(0, &[]);
    place.search_shards(2);
    // As a kill -9 leaves it.
    let last = "(SELECT max(id) FROM trial)";
    place.execute_sql(
        "part1.db",
        &format!(
            "DELETE FROM figure WHERE trial = {last}; DELETE FROM trial WHERE id = {last}; \
             UPDATE run SET finished = 0 WHERE id = (SELECT max(id) FROM run)"
        ),
    );
    let cut = place.count_trials("part1.db");
    place.merge_parts(&parts, &[]).expect(2, &["part1.db: shard 1/2 is not finished"]);
    place.merge_parts(&parts, &["--partial"]).expect(2, &["part1.db: shard 1/2 is not finished"]);
    let shard = ["--shard", "1/2", "--from", "all.db", "-o", "part1.db"];
    place.run_search(&shard).expect(0, &[]);
    assert_eq!(place.count_trials("part1.db"), cut + 1);
    place.merge_parts(&parts, &[]).expect(0, &["block 1 of the search is complete"]);
    // Without --shard the rest runs in one process.
    place.run_search(&["-o", "all.db"]).expect(0, &["resuming run 1"]);
    place.run_search(&["-o", "one.db"]).expect(0, &[]);
    assert_eq!(place.report_csv("all.db"), place.report_csv("one.db"));
}

#[test]
fn search_shards_that_differ_are_refused() {
    let place = place_with_plan();
    place.write("plan.toml", SEARCH);
    let shard =
        |from: &str| place.run_search(&["--shard", "1/2", "--from", from, "-o", "part1.db"]);
    shard("none.db").expect(2, &["none.db", "No such file"]);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "run.db"]).expect(0, &[]);
    shard("run.db").expect(2, &["run.db has no open search of this plan", "--no-trials"]);

    place.run_search(&["--no-trials", "-o", "all.db"]).expect(6, &[]);
    let first = place.search_shards(2);
    let merged_to = |file: &str, parts: &[String]| {
        let parts = parts.iter().map(String::as_str);
        let words: Vec<&str> = ["merge", "-o", file].into_iter().chain(parts).collect();
        place.run(&words)
    };
    merged_to("other.db", &first).expect(2, &["the earlier blocks are missing", "-o", "--from"]);
    fs::copy(place.path("part2.db"), place.path("old.db")).unwrap();
    fs::copy(place.path("all.db"), place.path("empty.db")).unwrap();
    place.merge_parts(&first, &[]).expect(0, &[]);
    let second = place.search_shards(2);
    let mixed = [second[0].clone(), "old.db".to_owned()];
    place.merge_parts(&mixed, &[]).expect(2, &["old.db: it is of another block of the search"]);
    merged_to("empty.db", &second).expect(2, &["empty.db", "--from"]);
    place.merge_parts(&second[..1], &[]).expect(2, &["no file has shard 2/2"]);
    place.merge_parts(&second, &[]).expect(0, &[]);

    place.run_search(&["-o", "all.db"]).expect(0, &[]);
    shard("all.db").expect(2, &["all.db has no open search of this plan"]);
    place.run_search(&["--shard", "1/2", "-o", "part1.db"]).expect(2, &["--from"]);
    // A part of another search is no file for this one.
    place.write("plan.toml", &SEARCH.replace("seed = 7", "seed = 8"));
    place.run_search(&["--no-trials", "-o", "new.db"]).expect(6, &[]);
    place
        .run_search(&["--shard", "1/2", "--from", "new.db", "-o", "part1.db"])
        .expect(2, &["part1.db", "from another search: name another file"]);
    place.run_search(&["--no-trials", "--ask-tell", "-o", "x.db"]).expect(2, &["--ask-tell"]);
}

fn place_with_plan() -> Place {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place
}

impl Place {
    /// Runs every shard; returns the names of their files.
    fn run_shards(&self, count: u32) -> Vec<String> {
        let file = |number| format!("part{number}.db");
        for number in 1..=count {
            self.run_shard(
                "plan.toml",
                "sim:server-10g",
                &format!("{number}/{count}"),
                &file(number),
            );
        }
        (1..=count).map(file).collect()
    }

    #[track_caller]
    fn run_shard(&self, plan: &str, on: &str, shard: &str, file: &str) {
        self.run(&["run", plan, "--on", on, "--shard", shard, "-o", file]).expect(0, &[file]);
    }

    fn run_search(&self, more: &[&str]) -> crate::CommandOutput {
        self.run(&[&["search", "plan.toml", "--on", "sim:server-10g"], more].concat())
    }

    /// Runs every shard of the next block of the search in `all.db`; returns the names of their files.
    fn search_shards(&self, count: u32) -> Vec<String> {
        let shard = |number: u32| {
            let file = format!("part{number}.db");
            let which = format!("{number}/{count}");
            self.run_search(&["--shard", &which, "--from", "all.db", "-o", &file])
                .expect(0, &[&file]);
            file
        };
        (1..=count).map(shard).collect()
    }

    fn merge_parts(&self, parts: &[String], more: &[&str]) -> crate::CommandOutput {
        let parts = parts.iter().map(String::as_str);
        let words: Vec<&str> = ["merge", "-o", "all.db"].into_iter().chain(parts).collect();
        self.run(&[&words[..], more].concat())
    }

    #[track_caller]
    fn report_csv(&self, file: &str) -> String {
        let report = self.run(&["report", file, "--format", "csv"]);
        report.expect(0, &["run_idx,block"]);
        report.out
    }

    /// Every trial but its time, and its figures.
    fn trial_rows(&self, file: &str) -> Vec<String> {
        let db = Connection::open(self.path(file)).unwrap();
        let rows = "SELECT id || ' ' || block || ' ' || setting || ' ' || workload || ' ' || observation || ' ' || \
                    (SELECT group_concat(metric || '=' || value) FROM figure WHERE trial = trial.id) \
                    FROM trial ORDER BY id";
        let mut rows = db.prepare(rows).unwrap();
        rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    fn query_text(&self, file: &str, query: &str) -> String {
        let db = Connection::open(self.path(file)).unwrap();
        db.query_row(query, [], |row| row.get(0)).unwrap()
    }

    fn execute_sql(&self, file: &str, change: &str) {
        Connection::open(self.path(file)).unwrap().execute_batch(change).unwrap();
    }
}
