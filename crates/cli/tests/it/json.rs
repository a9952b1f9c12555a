//! The JSON documents, against the schemas in `docs/schema/`.

use crate::Place;

const RESULTS: &str = include_str!("../../../../docs/schema/results.json");
const COMPARISON: &str = include_str!("../../../../docs/schema/comparison.json");
const METRICS: &str = include_str!("../../../../docs/schema/metrics.json");
const SHOW: &str = include_str!("../../../../docs/schema/show.json");

#[test]
fn json_documents_follow_the_results_schema() {
    let place = Place::new();
    let args = [
        "measure",
        "loopback",
        "--workload",
        "tcp_rr",
        "--duration",
        "200ms",
        "--repetitions",
        "2",
        "-o",
        "kept.db",
        "--json",
    ];
    check_schema(RESULTS, &place.run(&args).expect(0, &[]).out);
    check_schema(RESULTS, &place.run(&["report", "kept.db", "--json"]).expect(0, &[]).out);
}

#[test]
fn comparison_is_a_document_of_its_own_schema() {
    let place = Place::new();
    let measure = |seconds: &str| {
        let on = ["measure", "sim:server-10g", "--workload", "tcp_rr", "--repetitions", "3"];
        let mut args = on.to_vec();
        args.extend(["--duration", seconds, "-o", "kept.db"]);
        place.run(&args).expect(0, &[]);
    };
    measure("100ms");
    measure("200ms");
    let args = ["report", "--compare", "kept.db#1", "kept.db", "--smallest-effect", "5%"];
    place.run(&args).expect(0, &["trans", "equivalent", "compared as two groups"]);
    let with_json = [args.as_slice(), &["--json"]].concat();
    check_schema(COMPARISON, &place.run(&with_json).expect(0, &[]).out);
    place.run(&["report", "--compare", "kept.db#9", "kept.db"]).expect(2, &["9"]);
    let as_csv = [args.as_slice(), &["--format", "csv"]].concat();
    place.run(&as_csv).expect(0, &["largest_loss_ratio"]);
}

/// Several settings are one document for a reader of JSON, on stdout and in a file.
#[test]
fn comparison_of_settings_is_one_document() {
    let place = Place::new();
    place.write(
        "plan.toml",
        "schema = 1\nname = \"several\"\n[factors]\nrx-usecs = [0, 50, 100]\n[[workload]]\nkind = \"tcp_rr\"\n\
         [method]\nduration = \"50ms\"\nrepetitions = { min = 3, max = 3 }\n",
    );
    for file in ["a.db", "b.db"] {
        place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", file]).expect(0, &[]);
    }
    let compare = ["report", "--compare", "a.db", "b.db", "--fail-on", "worse:20%"];
    let ran = place.run(&[&compare[..], &["--json"]].concat());
    let passed = "The gate passed: none of";
    check_schema(COMPARISON, &ran.expect(0, &[passed]).out);
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["schema"], 2);
    let pairs = document["comparisons"].as_array().unwrap();
    assert_eq!(pairs.len(), 3, "{document}");
    for pair in pairs {
        assert_eq!(pair["base"], pair["other"]);
        assert!(!pair["figures"].as_array().unwrap().is_empty(), "{pair}");
    }
    for file in ["c.json", "c.xml", "c.html"] {
        place.run(&[&compare[..], &["-o", file]].concat()).expect(0, &[passed]);
    }
    check_schema(COMPARISON, &std::fs::read_to_string(place.path("c.json")).unwrap());
    // Nothing in common is a document, too.
    let measure = ["measure", "sim:server-10g", "--workload", "tcp_stream", "--repetitions", "2"];
    place.run(&[&measure[..], &["--duration", "50ms", "-o", "c.db"]].concat()).expect(0, &[]);
    let none = ["report", "--compare", "a.db:0us", "c.db:as it is", "--json"];
    check_schema(COMPARISON, &place.run(&none).expect(0, &["only the first has workload"]).out);
}

/// Two settings of one label may have other values, which only a note tells.
#[test]
fn comparison_notes_values_behind_one_label() {
    let place = Place::new();
    let plan = "schema = 1\nname = \"several\"\n[factors]\nrx-usecs = [0, 50]\n[[workload]]\nkind = \"tcp_rr\"\n\
                [method]\nduration = \"50ms\"\nrepetitions = { min = 3, max = 3 }\n";
    place.write("plan.toml", plan);
    for file in ["a.db", "b.db"] {
        place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", file]).expect(0, &[]);
    }
    let compare = ["report", "--compare", "a.db", "b.db"];
    let before = place.run(&compare);
    assert!(!before.expect(0, &[]).out.contains("is not the same setting"), "{before:#?}");
    let db = rusqlite::Connection::open(place.path("b.db")).unwrap();
    let edited = db
        .execute("UPDATE run SET header = replace(header, '\"time\":50000', '\"time\":60000')", []);
    assert_eq!(edited.unwrap(), 1);
    drop(db);
    place.run(&compare).expect(0, &["is not the same setting in both", "50us, then 60us"]);
}

#[test]
fn metrics_prints_a_document_of_the_metrics_schema() {
    let place = Place::new();
    check_schema(METRICS, &place.run(&["metrics", "--json"]).expect(0, &[]).out);
}

#[test]
fn show_prints_a_document_of_the_show_schema() {
    let place = Place::new();
    check_schema(SHOW, &place.run(&["show", "lo", "--json"]).expect(0, &[]).out);
}

#[test]
fn document_of_another_version_does_not_pass() {
    let place = Place::new();
    let text =
        place.run(&["show", "lo", "--json"]).out.replacen("\"schema\": 1", "\"schmea\": 1", 1);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(!compile_schema(SHOW).is_valid(&document));
}

/// The query of the guide gives the medians that latput has.
#[test]
fn guide_sql_gives_median_of_percentiles() {
    let guide = include_str!("../../../../docs/json.md");
    let queries = guide.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    let sql = queries.into_iter().find(|sql| sql.contains("AS median")).unwrap();
    let place = Place::new();
    let args = ["measure", "sim:server-10g", "--workload", "tcp_rr", "rate_per_s=20000"];
    let more = ["--repetitions", "5", "--duration", "50ms", "-o", "kept.db"];
    place.run(&[&args[..], &more].concat()).expect(0, &[]);
    let db = rusqlite::Connection::open(place.path("kept.db")).unwrap();
    let median: f64 = db.query_row(sql, [], |row| row.get("median")).unwrap();
    let document = place.run(&["report", "kept.db", "--json"]).out;
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let expected = document["cells"][0]["metrics"]["latency_ns_p99"]["value"].as_f64().unwrap();
    assert!((median - expected).abs() < 1e-6, "{median} is not {expected}");
}

#[track_caller]
pub(crate) fn check_schema(schema: &str, text: &str) {
    let document: serde_json::Value = serde_json::from_str(text).unwrap();
    let errors: Vec<String> = compile_schema(schema)
        .iter_errors(&document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

fn compile_schema(schema: &str) -> jsonschema::Validator {
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}
