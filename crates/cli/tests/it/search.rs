//! Searches that another optimiser drives by `latput search --ask-tell`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::{Place, interrupt_pid, kill_pid, wait_until};

const PLAN: &str = "schema = 1\nname = \"searched\"\n\
                    goal = \"minimize latency_ns_p99 where throughput_bps >= 0.9 best\"\n\
                    [factors]\nrx-usecs = [0, 20, 50, 100]\nmtu = [1500, 9000]\n\
                    [[workload]]\nkind = \"tcp_rr\"\n[[workload]]\nkind = \"udp_stream\"\nrate = \"20Mbps\"\n\
                    [method]\nduration = \"50ms\"\nwarmup = \"1ms\"\nseed = 7\n";
const COMMAND: [&str; 7] =
    ["search", "plan.toml", "--on", "sim:server-10g", "--ask-tell", "-o", "kept.db"];

#[test]
fn optimiser_winner_is_confirmed() {
    let place = place_with_plan();
    let mut latput = OptimiserDriver::start(&place, &COMMAND);
    let space = latput.receive_message();
    assert_eq!(space["kind"], "space");
    let factors = space["factors"].as_array().unwrap();
    let delay = factors.iter().find(|it| it["name"] == "rx-usecs").unwrap();
    assert_eq!(delay["levels"][2], "rx-usecs=50us");
    let today = latput.receive_message();
    assert_eq!((&today["kind"], &today["block"]), (&json!("observe"), &json!(0)));
    assert!(today["cost"].as_f64().unwrap() > 0.0, "{today}");
    assert_eq!(latput.receive_message()["kind"], "ask");
    latput.send_message(&every_setting());
    let seen: Vec<Value> = (0..8).map(|_| latput.receive_message()).collect();
    for one in &seen {
        assert_eq!((&one["kind"], &one["block"]), (&json!("observe"), &json!(1)), "{one}");
        let p99 = one["metrics"]["tcp_rr"]["latency_ns_p99"].as_f64().unwrap();
        let cost = one["cost"].as_f64().unwrap();
        assert!((cost / p99 - 1.0).abs() < 1e-9, "{one}");
        assert!(!one["limits_ratio"].as_array().unwrap().is_empty(), "{one}");
    }
    let cost = |one: &Value| one["cost"].as_f64().unwrap();
    // A cost is of the setting that it stands beside.
    let slow = seen.iter().find(|one| one["setting"] == json!({"rx-usecs": 3, "mtu": 0})).unwrap();
    let fast = seen.iter().find(|one| one["setting"] == json!({"rx-usecs": 0, "mtu": 0})).unwrap();
    assert!(cost(slow) > 1.5 * cost(fast), "{slow} {fast}");
    assert_eq!(slow["label"], "mtu=1500 rx-usecs=100us");
    assert_eq!(latput.receive_message()["kind"], "ask");
    latput.send_message(&json!({"kind": "done"}));
    let ended = latput.receive_message();
    assert_eq!(ended["kind"], "ended", "{ended}");
    assert_eq!(latput.child.wait().unwrap().code(), Some(0));
    let kept = place.count_trials("kept.db");
    assert_eq!(ended["trials"], kept);
    // Today's setting and the winner, at least six times each.
    assert!(kept >= 18 + 2 * 2 * 6, "{kept} trials, {ended}");
    place.run(&["report", "kept.db"]).expect(0, &["searched"]);
}

#[test]
fn killed_search_is_told_again_alike() {
    let whole = place_with_plan();
    let mut latput = OptimiserDriver::start(&whole, &COMMAND);
    let told = latput.drive_all();
    let there = place_with_plan();
    let mut latput = OptimiserDriver::start(&there, &COMMAND);
    latput.hear_until("ask");
    latput.send_message(&suggestion_blocks()[0]);
    latput.hear_until("ask");
    kill_pid(latput.child.id());
    latput.child.wait().unwrap();
    let kept = there.count_trials("kept.db");
    assert!(kept > 2, "{kept}");
    let mut latput = OptimiserDriver::start(&there, &COMMAND);
    let again = latput.drive_from(1);
    assert_eq!(again, told);
    let csv = |place: &Place| place.run(&["report", "kept.db", "--format", "csv"]).out;
    assert_eq!(csv(&there), csv(&whole));
    assert!(csv(&whole).lines().count() > 10);
}

#[test]
fn cut_block_finishes_before_next_suggestion() {
    let place = place_with_plan();
    place.write("plan.toml", &PLAN.replace("50ms", "2s"));
    let mut latput = OptimiserDriver::start(&place, &COMMAND);
    latput.hear_until("ask");
    latput.send_message(&every_setting());
    wait_until("a trial of the block", || place.count_trials("kept.db") > 2);
    kill_pid(latput.child.id());
    latput.child.wait().unwrap();
    let kept = place.count_trials("kept.db");
    assert!(2 < kept && kept < 18, "{kept} trials");
    let mut latput = OptimiserDriver::start(&place, &COMMAND);
    let seen = latput.hear_until("ask");
    // Both workloads of today's setting, and of each that had begun.
    assert_eq!(place.count_trials("kept.db"), 2 * i64::try_from(seen.len()).unwrap());
    assert!(seen.len() > 1 && seen.iter().all(|one| one["cost"].is_number()), "{seen:?}");
    latput.send_message(&json!({"kind": "done"}));
    latput.hear_until("ended");
}

#[test]
fn budget_of_plan_ends_the_optimiser() {
    let place = place_with_plan();
    // A run takes 102 ms. Of 19 runs 12 confirm and one is today's.
    place.write("plan.toml", &format!("{PLAN}budget = \"2s\"\n"));
    let mut latput = OptimiserDriver::start(&place, &COMMAND);
    latput.hear_until("ask");
    latput.send_message(&every_setting());
    for _ in 0..2 {
        let refused = latput.receive_message();
        assert_eq!(refused["problem"], "the budget is used up", "{refused}");
    }
    // It is not asked again.
    let mut seen = Vec::new();
    let ended = loop {
        let heard = latput.receive_message();
        match heard["kind"].as_str().unwrap() {
            "observe" => seen.push(heard),
            "ended" => break heard,
            _ => panic!("{heard}"),
        }
    };
    assert_eq!((seen.len(), &ended["trials"]), (6, &json!(2 * 19)), "{ended}");
}

#[test]
fn impossible_suggestion_is_refused_and_search_continues() {
    let place = place_with_plan();
    let mut latput = OptimiserDriver::start(&place, &COMMAND);
    latput.hear_until("ask");
    latput.send_message(&json!({"kind": "suggest", "settings": [{"rx-usecs": 4, "mtu": 0}]}));
    let refused = latput.receive_message();
    assert_eq!(refused["kind"], "refused");
    let problem = refused["problem"].as_str().unwrap();
    assert!(problem.contains("rx-usecs has no level 4: they are 0 to 3"), "{refused}");
    assert_eq!(latput.receive_message()["kind"], "ask");
    let one = json!({"rx-usecs": 1, "mtu": 1});
    latput.send_message(&json!({"kind": "suggest", "settings": [one, one]}));
    let refused = latput.receive_message();
    assert!(refused["problem"].as_str().unwrap().contains("in this block already"), "{refused}");
    let observed = latput.receive_message();
    assert_eq!((&observed["kind"], &observed["setting"]), (&json!("observe"), &one));
    assert_eq!(latput.receive_message()["kind"], "ask");
    latput.send_message(&json!({"kind": "done"}));
    latput.hear_until("ended");
}

#[test]
fn failed_optimiser_is_named_with_results() {
    let long = format!("{{\"kind\":\"{}\"}}", "x".repeat(2 << 20));
    for (said, named) in [
        ("", "closed stdin before it said"),
        ("no json\n", "in its line 1: expected"),
        ("{\"kind\":\"suggest\",\"settings\":[{\"rx\":0}]}\n", "the plan has no factor `rx`"),
        ("{\"kind\":\"suggest\",\"settings\":[{\"mtu\":0}]}\n", "no level of `rx-usecs`"),
        ("{\"kind\":\"suggest\",\"settings\":[{\"mtu\":-1}]}\n", "in its line 1: invalid value"),
        ("{\"kind\":\"done\",\"more\":1}\n", "unknown field `more`"),
        (&long, "longer than 1048576 bytes"),
    ] {
        let place = place_with_plan();
        let mut latput = OptimiserDriver::start(&place, &COMMAND);
        latput.hear_until("ask");
        let mut input = latput.input.take().unwrap();
        let _closed = input.write_all(said.as_bytes());
        drop(input);
        assert_eq!(latput.child.wait().unwrap().code(), Some(6), "{named}");
        let err = std::fs::read_to_string(place.path("stderr")).unwrap();
        assert!(err.contains(named) && err.contains("2 of") && err.contains("to resume"), "{err}");
        assert_eq!(place.count_trials("kept.db"), 2);
    }
}

#[test]
fn interrupted_optimiser_wait_keeps_results() {
    let place = place_with_plan();
    let mut latput = OptimiserDriver::start(&place, &COMMAND);
    latput.hear_until("ask");
    interrupt_pid(latput.child.id());
    assert_eq!(latput.child.wait().unwrap().code(), Some(6));
    assert_eq!(place.count_trials("kept.db"), 2);
    let goal = PLAN.lines().find(|line| line.starts_with("goal")).unwrap();
    place.write("plan.toml", &PLAN.replace(goal, ""));
    place.run(&COMMAND).expect(2, &["a search needs a goal"]);
}

#[test]
fn without_another_optimiser_latput_searches_by_itself() {
    let place = place_with_plan();
    let args = ["search", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"];
    place.run(&args).expect(0, &["searched"]);
    assert!(place.count_trials("kept.db") > 0);
}

fn place_with_plan() -> Place {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place
}

fn every_setting() -> Value {
    let settings: Vec<Value> =
        (0..8).map(|at| json!({"rx-usecs": at / 2, "mtu": at % 2})).collect();
    json!({"kind": "suggest", "settings": settings})
}

/// Blocks of an optimiser that learns nothing, in turn.
fn suggestion_blocks() -> [Value; 3] {
    let two = |a: u32, b: u32| {
        let settings = [json!({"rx-usecs": a, "mtu": 0}), json!({"rx-usecs": b, "mtu": 0})];
        json!({"kind": "suggest", "settings": settings})
    };
    [two(0, 1), two(1, 2), json!({"kind": "done"})]
}

/// latput with an optimiser's ends of its pipes.
struct OptimiserDriver {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl OptimiserDriver {
    fn start(place: &Place, args: &[&str]) -> Self {
        let errors = std::fs::File::create(place.path("stderr")).unwrap();
        let mut command = place.latput_command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    #[track_caller]
    fn receive_message(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
    }

    /// The observations up to a line of this kind.
    #[track_caller]
    fn hear_until(&mut self, kind: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let heard = self.receive_message();
            if heard["kind"] == kind {
                return seen;
            }
            seen.extend((heard["kind"] == "observe").then_some(heard));
        }
    }

    fn send_message(&mut self, what: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
    }

    fn drive_all(&mut self) -> Vec<Value> {
        self.drive_from(0)
    }

    /// Answers each question from the block `first` on; returns every observation.
    fn drive_from(&mut self, first: usize) -> Vec<Value> {
        let mut seen = Vec::new();
        for answer in suggestion_blocks().into_iter().skip(first) {
            seen.extend(self.hear_until("ask"));
            self.send_message(&answer);
        }
        self.hear_until("ended");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        seen
    }
}
