//! Every change and share that the commands print is computed again from the figures beside it.

#[path = "../../../report/tests/support/recompute.rs"]
#[expect(dead_code, reason = "the tests of the report crate use the rest of it")]
mod recompute;

use crate::Place;

/// System, blocks and factors of a plan. Of some factors `latput explain` can tell the parts, of some not.
const PLANS: &[(&str, u32, &str)] = &[
    ("server-10g", 3, "rx-usecs = [\"0us\", \"20us\", \"100us\"]\ngro = [\"on\", \"off\"]"),
    ("rx1620-e1000", 2, "rx-usecs = [\"0us\", \"100us\"]\nmtu = [1500, 9000]"),
    ("hs22-ixgbe", 7, "rx-usecs = [\"0us\", \"10us\", \"300us\"]"),
    (
        "server-10g",
        2,
        "\"gro-flush-timeout + napi-defer-hard-irqs\" = [[\"0us\", 0], [\"50us\", 100]]",
    ),
    ("rx1620-e1000", 2, "mtu = [1500, 9000]"),
];
const WORKLOADS: &str = "
[[workload]]
kind = \"tcp_rr\"
burst = [0, 16]
[[workload]]
kind = \"tcp_stream\"
[[workload]]
kind = \"udp_rr\"
";

#[test]
fn statements_agree_with_recomputed_figures() {
    let mut shares = 0;
    for (seed, (system, blocks, factors)) in PLANS.iter().enumerate() {
        let place = Place::new();
        let goal = "goal = \"minimize latency_ns_p99\"";
        let method = format!(
            "[method]\nwarmup = \"2ms\"\nduration = \"50ms\"\nseed = {seed}\n\
             repetitions = {{ min = {blocks}, max = {blocks} }}\n"
        );
        let head = format!("schema = 1\nname = \"x\"\n{goal}\n[factors]\n{factors}\n");
        place.write("plan.toml", &(head + WORKLOADS + &method));
        let on = format!("sim:{system}");
        place.run(&["run", "plan.toml", "--on", &on, "-o", "kept.db"]).expect(0, &[]);
        shares += check_report(&place, "kept.db");
    }
    assert!(shares > 100, "{shares}");
}

/// Checks the report of a results file in each form, two of its settings compared, and its explanation.
/// Returns the number of shares that were computed again.
pub(crate) fn check_report(place: &Place, file: &str) -> usize {
    let out = |args: &[&str]| {
        let mut command = place.latput_command(args);
        let ran = crate::CommandOutput::from(command.env("COLUMNS", "100000").output().unwrap());
        ran.expect(0, &[]).out.clone()
    };
    let page = recompute::plain_text(&out(&["report", file, "--format", "html"]));
    for text in [
        out(&["report", file]),
        out(&["report", file, "--format", "markdown"]).replace('\\', ""),
        page,
    ] {
        recompute::check_sentences(&text);
    }
    let document: serde_json::Value =
        serde_json::from_str(&out(&["report", file, "--json"])).unwrap();
    let labels: Vec<&str> = document["settings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|setting| setting["label"].as_str().unwrap())
        .collect();
    let compare = ["report", file, "--compare", labels[0], labels[1]];
    let rows = recompute::check_rows(&out(&compare));
    let in_markdown = out(&[&compare[..], &["--format", "markdown"]].concat());
    assert!(rows > 0 && rows == recompute::check_rows(&in_markdown.replace('\\', "")), "{rows}");
    for format in ["junit", "ktap"] {
        assert!(
            recompute::check_verdicts(&out(&[&compare[..], &["--format", format]].concat())) > 0
        );
    }
    recompute::check_explanation(&out(&["explain", file]))
}
