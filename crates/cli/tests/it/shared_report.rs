//! A report that is passed on and imported again.

use crate::Place;

const PLAN: &str = r#"schema = 1
name = "to be shared"
goal = "minimize latency_ns_p99"
[factors]
"gro-flush-timeout + napi-defer-hard-irqs" = [["0us", 0], ["20us", 100]]
[[workload]]
kind = "tcp_rr"
[method]
repetitions = { min = 3, max = 3 }
warmup = "1ms"
duration = "50ms"
"#;

/// Facts of a host that no report passes on.
const HIDDEN_FACTS: [&str; 3] = ["interface", "bus address", "link"];

#[test]
fn shared_report_is_imported_and_reported_the_same() {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "a.db"]).expect(0, &[]);
    place.run(&["report", "a.db", "--share", "-o", "out.html"]).expect(0, &[]);
    place.run(&["import", "out.html", "-o", "b.db"]).expect(0, &["imported from a report"]);
    let table = |args: &[&str]| {
        let ran = place.run(args);
        ran.expect(0, &[]);
        let is_mark = |line: &&str| line.contains("imported from a report");
        ran.out.lines().filter(|line| !is_mark(line)).map(str::to_owned).collect::<Vec<_>>()
    };
    let wide = |args: &[&str]| table(&[args, &["--format", "csv"]].concat());
    assert_eq!(wide(&["report", "a.db", "--share"]), wide(&["report", "b.db"]));
    let figures = |lines: Vec<String>| {
        let kept = lines.into_iter().filter(|line| line.contains("us ") || line.contains("trans"));
        kept.collect::<Vec<_>>()
    };
    let first = figures(table(&["report", "a.db", "--share"]));
    assert!(first.len() > 3, "{first:?}");
    assert_eq!(first, figures(table(&["report", "b.db"])));
    place.run(&["apply", "b.db", "--setting", "20us"]).expect(2, &["report", "--on"]);
    let export = ["export-settings", "b.db", "--setting", "20us", "--format", "ethtool"];
    for taking in [&export[..], &["keep", "b.db", "--setting", "20us", "--dry-run"]] {
        place.run(taking).expect(2, &["b.db was imported from a report", "--interface"]);
    }
    place.run(&[&export[..], &["--interface", "nic7"]].concat()).expect(0, &["nic7"]);
    place.run(&["report", "b.db", "-o", "again.html"]).expect(0, &[]);
    let again = std::fs::read_to_string(place.path("again.html")).unwrap();
    assert!(again.contains("Imported from a report") && again.contains("<b>Simulated.</b>"));
    place.run(&["report", "a.db", "--list"]).expect(0, &[" UTC  6 trials, complete"]);
}

#[test]
fn partial_report_is_refused_and_keeps_nothing() {
    let place = Place::new();
    place.write("page.html", "<html><script>alert(1)</script>");
    place.write("cut.html", "<script type=\"application/gzip\" id=\"trials\">H4sI</script>");
    let import = |args: &[&str]| place.run(&[&["import"], args, &["-o", "never.db"]].concat());
    import(&["page.html"]).expect(2, &["page.html: it holds no trials", "--share"]);
    import(&["cut.html"]).expect(2, &["cut.html: its trials are damaged or were edited"]);
    import(&["missing.html"]).expect(2, &["missing.html: cannot read"]);
    import(&["page.html", "cut.html"]).expect(2, &["name one report, or a program"]);
    import(&["iperf3"]).expect(2, &["name the files that iperf3 wrote"]);
    assert!(!place.path("never.db").exists());
}

#[test]
fn host_facts_are_shared_or_hidden_by_list() {
    for (name, _) in latput_linux::facts::collect("lo") {
        let is_hidden = HIDDEN_FACTS.contains(&name.as_str());
        assert_ne!(latput_report::is_shared_fact(&name), is_hidden, "{name}");
    }
}
