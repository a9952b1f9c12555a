//! The first proven answer, budgets, factors without a file, and the gate, in the simulator.

use crate::Place;

const PLAN: &str = r#"
schema = 1
name = "short"
goal = "latency"
[factors]
"gro-flush-timeout + napi-defer-hard-irqs" = [["0us", 0], ["200us", 100]]
[[workload]]
kind = "tcp_rr"
[method]
repetitions = { min = 8, max = 20 }
warmup = "5ms"
duration = "50ms"
seed = 7
"#;
const ON: [&str; 2] = ["--on", "sim:server-10g"];

fn place_with_plan() -> Place {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place
}

#[test]
fn answer_is_told_and_first_stops_there() {
    let place = place_with_plan();
    let whole = [&["run", "plan.toml", "-o", "whole.db"], &ON[..]].concat();
    place.run(&whole).expect(0, &["proven after 8 trials: stay with ", "16 trials"]);
    let first = [&["run", "plan.toml", "--first", "-o", "first.db"], &ON[..]].concat();
    place.run(&first).expect(0, &["99.76% for each of at most 6 looks", "ended at the first"]);
    assert_eq!((place.count_trials("whole.db"), place.count_trials("first.db")), (16, 8));
    // The file alone gives the same answer, at the confidence of the look.
    place.run(&["report", "first.db"]).expect(0, &["Recommended", "99.76%", "8 trials"]);
    place.write("aimless.toml", &PLAN.replace("goal = \"latency\"", ""));
    let aimless = [&["run", "aimless.toml", "--first", "-o", "x.db"], &ON[..]].concat();
    place.run(&aimless).expect(2, &["--first", "--goal latency"]);
}

#[test]
fn short_budget_is_refused_with_the_least() {
    let place = place_with_plan();
    // 16 trials of 55 ms are 880 ms.
    for budget in ["700ms", "0.5s"] {
        let tune = [&["tune", "plan.toml", "--budget", budget], &ON[..]].concat();
        place.run(&tune).expect(2, &["too short: the plan needs at least", "`--budget 1s`"]);
        let check = [&tune[..], &["--check"]].concat();
        place.run(&check).expect(2, &["`--budget 1s`"]);
    }
    let tune = [&["tune", "plan.toml", "--budget", "1s"], &ON[..]].concat();
    place.run(&tune).expect(0, &["Recommended"]);
}

#[test]
fn run_that_compares_nothing_is_no_success() {
    let place = place_with_plan();
    let once = ["--repetitions", "1..1", "-o", "once.db"];
    let run = [&["run", "plan.toml"], &once[..], &ON[..]].concat();
    place.run(&run).expect(6, &["No answer", "Too few trials"]);
    place.run(&["report", "once.db"]).expect(0, &["No answer"]);
    // The same trials without a question.
    place.write("plan.toml", &PLAN.replace("goal = \"latency\"\n", ""));
    place.run(&run).expect(0, &["Does it matter?"]);
    place.run(&["--help"]).expect(0, &["no fit trial has the goal's figure"]);
}

#[test]
fn command_line_factors_answer_whether_they_matter() {
    let place = Place::new();
    let factor = "gro-flush-timeout+napi-defer-hard-irqs=0us+0,200us+100";
    let measure = ["measure", "sim:server-10g", "--workload", "tcp_rr", "--factor", factor];
    let short = ["--duration", "50ms", "--warmup", "5ms", "--repetitions", "4"];
    let said = ["Does it matter?", "gro-flush-timeout=200us instead of", "changes tcp_rr"];
    place.run(&[&measure[..], &short].concat()).expect(0, &said);
    let check = [&["tune", "--factor", "gro=on,off", "--check"], &ON[..]].concat();
    place.run(&check).expect(0, &["2 settings x 3 workloads", "gro=on", "gro=off"]);
    let twice = [&["tune", "--factor", "gro=on,on"], &ON[..]].concat();
    place.run(&twice).expect(2, &["levels 1 and 2 of `gro` are the same (on)"]);
    place.write("plan.toml", PLAN);
    let both = [&["tune", "plan.toml", "--factor", "gro=on,off"], &ON[..]].concat();
    place.run(&both).expect(2, &["plan.toml", "leave out one of them"]);
}

#[test]
fn unjudged_figure_is_skipped_in_junit() {
    let place = Place::new();
    let second = "[[workload]]\nkind = \"tcp_stream\"\n[method]";
    place.write("plan.toml", &PLAN.replacen("[method]", second, 1));
    let run = [&["run", "plan.toml", "-o", "kept.db"], &ON[..]].concat();
    place.run(&run).expect(0, &[]);
    place.run(&run).expect(0, &[]);
    // Of the second workload one trial is left on each side.
    let db = rusqlite::Connection::open(place.path("kept.db")).unwrap();
    let one_left =
        "DELETE FROM figure WHERE trial IN (SELECT id FROM trial WHERE workload = 1 AND block > 0);
                    DELETE FROM trial WHERE workload = 1 AND block > 0";
    db.execute_batch(one_left).unwrap();
    drop(db);
    let gate = |on: &str, format: &str| {
        let sides = ["report", "--compare", "kept.db#1:0us", "kept.db#2:0us"];
        place.run(&[&sides[..], &["--fail-on", on, "--format", format]].concat())
    };
    // A loss in them is not ruled out; but none is proven worse.
    for (on, code) in [("unproven:2%", 7), ("worse:2%", 0)] {
        let junit = gate(on, "junit");
        junit.expect(code, &["<skipped message=\"not judged", "failures=\"0\""]);
        assert!(!junit.out.contains("skipped=\"0\""), "{junit:?}");
    }
    let html = gate("unproven:2%", "html");
    html.expect(7, &["is not ruled out in", "of them not judged", ">not judged</td>"]);
    gate("worse:2%", "html").expect(0, &["is proven worse,", "could not be judged"]);
}

#[test]
fn unproven_fails_where_a_loss_may_hide() {
    let place = place_with_plan();
    let run = [&["run", "plan.toml", "-o", "kept.db"], &ON[..]].concat();
    place.run(&run).expect(0, &[]);
    place.run(&run).expect(0, &[]);
    let gate = |sides: [&str; 2], more: &[&str]| {
        place.run(&[&["report", "--compare"], &sides[..], more].concat())
    };
    let (one, other) = ("kept.db#1:0us", "kept.db:200us");
    gate([one, other], &["--fail-on", "unproven:2%"]).expect(7, &["the gate failed: a loss of 2%"]);
    let junit = ["--fail-on", "unproven:2%", "--format", "junit"];
    gate([one, other], &junit).expect(7, &["<failure type=\"unproven\"", "is not ruled out"]);
    // The same seed gives the same figures.
    gate(["kept.db#1:0us", "kept.db#2:0us"], &["--fail-on", "unproven:2%"])
        .expect(0, &["equivalent"]);
    gate([one, "kept.db"], &[]).expect(2, &["names a setting", "kept.db:SETTING"]);
    gate([one, other], &["--format", "csv"]).expect(0, &["largest_loss_ratio", "tcp_rr"]);
    gate([one, other], &["--format", "html"]).expect(0, &["<!doctype html>", "What changed"]);
    let html = ["--fail-on", "unproven:2%", "--format", "html"];
    gate([one, other], &html).expect(
        7,
        &[
            "The gate failed: a loss of 2% is not ruled out in",
            "class=\"words\">gate</th>",
            "class=\"words\">failed; a loss of ",
        ],
    );
    gate(["kept.db#1:0us", "kept.db#2:0us"], &html)
        .expect(0, &["The gate passed: a loss of 2% is ruled out in all of", ">passed</td>"]);
    gate([one, other], &["--fail-on", "worse:0.02"]).expect(2, &["0.02% or 2%"]);
}

#[test]
fn label_of_a_table_names_its_setting() {
    let place = Place::new();
    let factors = "gro = [\"on\", \"off\"]\nrx-usecs = [\"0us\", \"50us\"]";
    let composite =
        "\"gro-flush-timeout + napi-defer-hard-irqs\" = [[\"0us\", 0], [\"200us\", 100]]";
    place.write("two.toml", &PLAN.replace(composite, factors));
    let run = [&["run", "two.toml", "-o", "two.db"], &ON[..]].concat();
    place.run(&run).expect(0, &["off, 50us"]);
    let compare = ["report", "two.db", "--compare", "on, 0us", "off, 50us"];
    place.run(&compare).expect(0, &["gro=off"]);
    // Equal values are compared, whatever their label. A setting that only one of two runs has is named.
    let later = PLAN.replace(composite, factors).replace("50us", "100us");
    place.write("later.toml", &later);
    place.run(&[&["run", "later.toml", "-o", "later.db"], &ON[..]].concat()).expect(0, &[]);
    place.run(&["report", "--compare", "two.db", "later.db"]).expect(
        0,
        &[
            "first: gro=on rx-usecs=50us; second: today",
            "only in two.db: `gro=off rx-usecs=50us`",
            "only in later.db: `gro=on rx-usecs=100us`",
        ],
    );
}
