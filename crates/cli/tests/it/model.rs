//! Models of a host, from the rows of simulated runs whose costs are known.

use serde_json::Value;

use crate::Place;

/// Varies the sizes of datagrams, their rates and the interrupts' delay.
const COSTS: &str = r#"
schema = 1
name = "costs"
[factors]
mtu = [1500, 9000]
rx-usecs = ["10us", "30us", "100us", "300us"]
[[workload]]
kind = "udp_stream"
datagram_bytes = 64
rate = "20Mbps"
[[workload]]
kind = "udp_stream"
datagram_bytes = 500
rate = "300Mbps"
[[workload]]
kind = "udp_stream"
datagram_bytes = 1400
rate = "500Mbps"
[[workload]]
kind = "udp_stream"
datagram_bytes = 1400
rate = "1Gbps"
[method]
repetitions = { min = 2, max = 2 }
warmup = "5ms"
duration = "50ms"
seed = 7
"#;

#[test]
fn simulated_costs_are_recovered_from_rows() {
    let place = Place::new();
    place.write("plan.toml", COSTS);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    let document = fit_model(&place, &["model", "fit", "kept.db", "--json"]);
    let sut = find_model(&document, "sut");
    // Costs of data/systems/server-10g.toml. A datagram costs its place in the ring, the stack and user code; an
    // interrupt its poll, the wake-up that follows it and one receive call.
    check_cost(sut, "byte_received", 60.0 / 1024.0);
    check_cost(sut, "packet_received", 250.0 + 350.0 + 200.0);
    check_cost(sut, "interrupt", 800.0 + 200.0 + 900.0 + 300.0);
    assert!(sut["error_ratio_p90"].as_f64().unwrap() < 0.03, "{sut}");
    let words = place.run(&["model", "fit", "kept.db"]);
    words.expect(0, &["byte_received", "condition number", "in the cost of interrupts"]);
}

#[test]
fn plan_without_variation_names_what_to_vary() {
    let place = Place::new();
    let one =
        COSTS.replace("[1500, 9000]", "[1500]").replace("\"10us\", \"30us\", \"100us\", ", "");
    let (head, rest) = one.split_once("[[workload]]").unwrap();
    let (_, tail) = rest.split_once("[method]").unwrap();
    let load = "[[workload]]\nkind = \"udp_stream\"\nrate = \"300Mbps\"\n";
    place.write("plan.toml", &format!("{head}{load}[method]{tail}"));
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    let document = fit_model(&place, &["model", "fit", "kept.db", "--json"]);
    let terms = find_model(&document, "sut")["terms"].as_array().unwrap();
    for (name, vary) in [("byte_received", "mtu"), ("interrupt", "gro-flush-timeout")] {
        let term = terms.iter().find(|term| term["term"] == name).unwrap();
        assert!(term["cost_ns"].is_null() && term["refused"] == "too_few_cells", "{term}");
        assert!(term["vary"].as_str().unwrap().contains(vary), "{term}");
    }
}

#[test]
fn costless_results_are_refused_by_name() {
    let place = Place::new();
    place.run(&["model", "fit", "absent.db"]).expect(2, &["absent.db"]);
    place.write("text.db", "no database");
    place.run(&["model", "fit", "text.db"]).expect(2, &["text.db"]);
    let measure = ["measure", "sim:server-10g", "--workload", "tcp_rr", "--duration", "50ms"];
    place.run(&[&measure[..], &["-o", "kept.db"]].concat()).expect(0, &[]);
    let no_such = ["model", "fit", "kept.db", "--workload", "udp"];
    place.run(&no_such).expect(2, &["udp", "the workloads are tcp_rr"]);
    place.run(&["model", "fit", "kept.db", "--confidence", "100%"]).expect(2, &["--confidence"]);
    place.run(&["model", "fit", "kept.db"]).expect(0, &["too few cells"]);
}

/// The document of a fit, which its schema takes.
fn fit_model(place: &Place, args: &[&str]) -> Value {
    let text = place.run(args).expect(0, &[]).out.clone();
    crate::json::check_schema(include_str!("../../../../docs/schema/fit.json"), &text);
    serde_json::from_str(&text).unwrap()
}

fn find_model<'a>(document: &'a Value, role: &str) -> &'a Value {
    let models = document["models"].as_array().unwrap();
    let has_role =
        |model: &&Value| model["hosts"].as_array().unwrap().iter().any(|host| host["role"] == role);
    models.iter().find(has_role).unwrap()
}

/// The cost of a term is within 15% of `wanted`.
#[track_caller]
fn check_cost(model: &Value, term: &str, wanted: f64) {
    let terms = model["terms"].as_array().unwrap();
    let found = terms.iter().find(|found| found["term"] == term).unwrap();
    let Some(cost) = found["cost_ns"].as_f64() else { panic!("{found}") };
    assert!((cost / wanted - 1.0).abs() < 0.15, "{term}: {cost} instead of {wanted}");
}

#[test]
fn simulated_round_trip_is_explained() {
    let place = Place::new();
    let loads = "[[workload]]\nkind = \"tcp_rr\"\nburst = [0, 16]\n";
    let (head, rest) = COSTS.split_once("[[workload]]").unwrap();
    let (_, tail) = rest.split_once("[method]").unwrap();
    let plan = format!("{head}{loads}[method]{tail}").replace("\"10us\"", "\"0us\"");
    place.write("plan.toml", &plan);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    let args = ["explain", "kept.db", "--setting", "mtu=1500 rx-usecs=300us"];
    place.run(&args).expect(0, &["moderation", "queueing", "round trip", "left out"]);
    let text = place.run(&[&args[..], &["--json"]].concat()).expect(0, &[]).out.clone();
    crate::json::check_schema(include_str!("../../../../docs/schema/explain.json"), &text);
    let document: Value = serde_json::from_str(&text).unwrap();
    let cells = document["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2, "{text}");
    let many = cells.iter().find(|cell| cell["workload"] == "tcp_rr burst=16").unwrap();
    let parts = many["parts"].as_array().unwrap();
    let sum: f64 = parts.iter().map(|part| part["time_ns"].as_f64().unwrap()).sum();
    let whole = many["whole_ns"].as_f64().unwrap();
    assert!((sum / whole - 1.0).abs() < 1e-9, "{sum} {whole}");
    // A 300 us hold-off at both ends is most of it.
    assert_eq!(parts[0]["stage"], "moderation", "{text}");
    assert!(parts[0]["time_ns"].as_f64().unwrap() > 0.5 * whole, "{text}");
    place
        .run(&["explain", "kept.db", "--setting", "5us"])
        .expect(2, &["--setting", "the settings are"]);
}

/// Calibrated on four cells of a host with other costs than those that the search begins with.
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn twin_predicts_uncalibrated_cells() {
    let place = Place::new();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/systems/server-10g.toml");
    let truth = std::fs::read_to_string(shipped)
        .unwrap()
        .replace("interrupt_ns = 800", "interrupt_ns = 1600")
        .replace("rx_packet_ns = 250", "rx_packet_ns = 450")
        .replace("latency_ns = 5000", "latency_ns = 8000")
        .replace("throttle = { kind = \"hold_off\", interval_ns = 50000 }", "")
        .replace("adaptation = \"ixgbe\"", ""); // that of a throttle
    place.write("truth.toml", &truth);
    let quick = |plan: &str| -> String {
        let (head, _) = plan.split_once("[method]").unwrap();
        let method = "repetitions = { min = 1, max = 1 }\nwarmup = \"10ms\"\nduration = \"50ms\"\nseed = 3\n";
        format!("{head}[method]\n{method}")
    };
    place.write("twin.toml", &quick(&place.run(&["plan", "twin"]).expect(0, &[]).out));
    let built_in = place.run(&["plan", "built-in"]).expect(0, &[]).out.clone();
    let udp = "[[workload]]\nkind = \"udp_stream\"\nrate = \"200Mbps\"\n[method]";
    place.write("built-in.toml", &quick(&built_in.replace("[method]", udp)));
    let run = |plan: &str, on: &str, to: &str| {
        place.run(&["run", plan, "--on", on, "-o", to]).expect(0, &[]);
    };
    run("twin.toml", "sim:./truth.toml", "twin.db");
    let calibrate = ["model", "twin", "twin.db", "--name", "found", "-o", "found.toml"];
    place.run(&calibrate).expect(0, &["interrupt", "90%", "combinations", "sim:found.toml"]);
    run("built-in.toml", "sim:./truth.toml", "truth.db");
    run("built-in.toml", "sim:found.toml", "found.db");
    let (truth, found) = (read_rates(&place, "truth.db"), read_rates(&place, "found.db"));
    assert_eq!(truth.len(), 20);
    let error = |(a, b): (&f64, &f64)| (b / a - 1.0).abs();
    let mut errors: Vec<f64> = truth.iter().zip(&found).map(error).collect();
    errors.sort_by(f64::total_cmp);
    // The median and, as the nearest rank, the 90th percentile.
    assert!(errors[9] < 0.15 && errors[17] < 0.35, "{errors:?}");
    predicted_beside_measured(&place);
}

/// Runs `report` on `found.db` beside `truth.db`.
fn predicted_beside_measured(place: &Place) {
    let beside = ["report", "truth.db", "--predicted", "found.db", "--fitted", "tcp_rr@0us"];
    let words =
        ["beside sim:", "Kendall tau", "rate: off by at most", "in nine of ten", "today (0us)*"];
    place.run(&beside).expect(0, &words);
    let text = place.run(&[&beside[..], &["--json"]].concat()).expect(0, &[]).out.clone();
    crate::json::check_schema(include_str!("../../../../docs/schema/prediction.json"), &text);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["errors"][0]["cells"], 19, "{text}");
    place.run(&[&beside[..], &["-o", "both.html"]].concat()).expect(0, &[]);
    let page = std::fs::read_to_string(place.path("both.html")).unwrap();
    assert!(page.contains("<h2>Predicted beside measured</h2>") && page.contains("Kendall tau"));
    place.run(&[&beside[..], &["--format", "csv"]].concat()).expect(2, &["--predicted writes"]);
    place.run(&[&beside[..], &["--fitted", "tcp_rr"]].concat()).expect(2, &["WORKLOAD@SETTING"]);
    place
        .run(&[&beside[..], &["--fitted", "nfs@0us"]].concat())
        .expect(2, &["the workloads are: tcp_rr"]);
    let of_itself = ["report", "truth.db", "--predicted", "truth.db"];
    place.run(&of_itself).expect(0, &["Kendall tau 1.00", "off by at most 0% in half"]);
}

/// The rate of every cell in the order of workloads and settings.
fn read_rates(place: &Place, file: &str) -> Vec<f64> {
    let db = rusqlite::Connection::open(place.path(file)).unwrap();
    let query = "SELECT figure.value FROM figure JOIN trial ON trial.id = figure.trial \
                 WHERE metric IN ('transactions_per_s', 'throughput_bps') ORDER BY workload, setting";
    let mut rows = db.prepare(query).unwrap();
    rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn too_few_rows_refuse_a_twin() {
    let place = Place::new();
    let measure = ["measure", "sim:server-10g", "--workload", "tcp_rr", "--duration", "50ms"];
    place.run(&[&measure[..], &["-o", "kept.db"]].concat()).expect(0, &[]);
    let args = ["model", "twin", "kept.db", "-o", "found.toml"];
    place.run(&args).expect(2, &["needs at least 8", "latput plan twin"]);
    assert!(!place.path("found.toml").exists());
}
