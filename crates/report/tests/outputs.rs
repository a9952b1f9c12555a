//! Every output of the same made-up results: what it must hold, and what it must survive.

#[path = "../examples/demo_report/results.rs"]
mod results;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use latput_model::{Headline, ResultsSummary};
use latput_report::{
    Document, ReportError, Screen, html_with_trials, read_report, redact_results, render_brief,
    render_csv, render_html, render_json, render_markdown, render_terminal,
};
use latput_stats::Histogram;
use latput_trial::live::TcpGroup;
use latput_trial::observation::{Role, TcpObservation};
use latput_trial::surroundings::SHARED_CPUS;
use latput_trial::{Check, Finding, HostToday, Metric, Results, Traffic};
use latput_units::Nanos;

/// A name that is hostile in a terminal, in HTML, in JSON within HTML, in CSV and in Markdown.
const HOSTILE: &str = "</script><script>alert('x')</script>\",|\n\u{1b}[31m`*";

#[test]
fn terminal_table_fits_80_columns() {
    insta::assert_snapshot!(render_checked_text(80));
}

#[test]
fn terminal_table_fits_100_columns() {
    insta::assert_snapshot!(render_checked_text(100));
}

#[test]
fn terminal_table_fits_160_columns() {
    insta::assert_snapshot!(render_checked_text(160));
}

#[test]
fn only_a_terminal_gets_colours() {
    let (results, summary) = build_demo();
    let escape = '\u{1b}';
    assert!(!render_checked_text(100).contains(escape));
    let coloured = render_terminal(&results, &summary, Screen { columns: 100, is_styled: true });
    assert!(coloured.contains(escape));
}

#[test]
fn markdown_is_the_same_table() {
    let (results, summary) = build_demo();
    insta::assert_snapshot!(render_markdown(&results, &summary));
}

#[test]
fn csv_has_line_per_run() {
    let (mut results, _) = build_demo();
    results.settings[1].label = HOSTILE.to_owned();
    let lines = parse_csv(&render_csv(&results));
    assert_eq!(lines.len(), results.rows.len() + 1);
    let header = &lines[0];
    let column = |name: &str| header.iter().position(|other| other == name).expect(name);
    for metric in Metric::ALL {
        column(metric.name());
    }
    for (line, row) in lines[1..].iter().zip(&results.rows) {
        assert_eq!(line.len(), header.len());
        assert_eq!(line[column("setting")], results.settings[row.setting].label);
        let traffic = &results.workloads[row.workload].traffic;
        let p99 = Metric::LatencyNsP99.value(traffic, &row.observation);
        assert_eq!(line[column("latency_ns_p99")].parse().ok(), p99);
        let timeout_us = [0, 20, 50, 125, 500][row.setting];
        assert_eq!(line[column("sut_gro_flush_timeout_ns")], (timeout_us * 1000).to_string());
    }
}

#[test]
fn json_follows_its_schema() {
    let (results, summary) = build_demo();
    check_json(&results, &summary);
    let text = render_json(&results, &summary);
    let read: Document = serde_json::from_str(&text).unwrap();
    assert_eq!(read, Document::new(&results, &summary));
    assert_eq!(read.schema, latput_report::document::SCHEMA);
    assert_eq!(read.runs.len(), 120);
    let cell = read.cells.iter().find(|cell| cell.setting == 1 && cell.workload == 0).unwrap();
    let histogram = cell.latency_histogram.as_ref().unwrap();
    assert_eq!(histogram.upper_ns.len(), histogram.count.len());
}

#[test]
fn wide_intervals_are_told_under_a_goal() {
    let (mut results, summary) = build_demo();
    let effects = Document::new(&results, &summary).recommendation.unwrap().smallest_effects;
    let of = |idx: usize| (effects[idx].figures.len(), effects[idx].limit.as_deref());
    assert_eq!(of(0), (2, None));
    assert_eq!(of(1), (1, Some("throughput_bps >= 0.95 today")));
    for text in [
        render_checked_text(100),
        render_markdown(&results, &summary),
        render_html(&results, &summary, None),
    ] {
        assert!(
            text.contains("smallest effect")
                && text.contains("This run could detect p99 changes of")
        );
        assert!(!text.contains("not within ±"));
    }
    // A document of an older version has no such field.
    let mut old = serde_json::to_value(Document::new(&results, &summary)).unwrap();
    old["recommendation"].as_object_mut().unwrap().remove("smallest_effects").unwrap();
    let old: Document = serde_json::from_value(old).unwrap();
    assert!(old.recommendation.unwrap().smallest_effects.is_empty());
    // Of single runs there is nothing to tell, and without a goal nobody to tell it to.
    let check = |results: &Results| {
        let text = render_markdown(results, &ResultsSummary::from_results(results));
        assert!(text.contains("not within ±") && !text.contains("smallest effect"), "{text}");
    };
    results.goal = None;
    check(&results);
    let (mut results, _) = build_demo();
    results.rows.retain(|row| row.block == 0);
    check(&results);
}

#[test]
fn schema_refuses_a_document_of_another_shape() {
    let (results, summary) = build_demo();
    let validator = jsonschema::validator_for(&Document::json_schema()).unwrap();
    let mut document = serde_json::to_value(Document::new(&results, &summary)).unwrap();
    document["cells"][0]["metrics"]["latency_ns_p99"]["value"] = "fast".into();
    assert!(!validator.is_valid(&document));
}

#[test]
fn non_finite_figures_keep_json_valid() {
    let (mut results, mut summary) = build_demo();
    results.half_width = f64::NAN;
    for estimate in summary.cells.iter_mut().flat_map(|cell| cell.metrics.values_mut()) {
        estimate.low = f64::NEG_INFINITY;
    }
    let first = summary.cells[0].metrics.values_mut().next().unwrap();
    first.value = f64::NAN;
    summary.outliers[0].value = f64::INFINITY;
    let document = Document::new(&results, &summary);
    assert_eq!((document.half_width_ratio, document.outliers[0].value), (None, None));
    check_json(&results, &summary);
    check_page(&results, &summary);
}

#[test]
fn page_has_everything_and_asks_for_nothing() {
    let (results, summary) = build_demo();
    let page = render_html(&results, &summary, None);
    check_page(&results, &summary);
    for wanted in [
        "latput set IFACE napi-defer-hard-irqs=100 gro-flush-timeout=20us",
        "class=\"ellipse\"",
        "class=\"frontier\"",
        "class=\"line chosen\"",
        "packets-per-transaction",
        "125us, tcp_rr, block 4",
        "random, with seed 7",
        "boot-id",
        "Hosts on one kernel",
        "Cost of sampling",
    ] {
        assert!(page.contains(wanted), "the page lacks {wanted}");
    }
}

#[test]
fn hostile_names_stay_text_everywhere() {
    let (mut results, mut summary) = build_demo();
    results.name = HOSTILE.to_owned();
    results.testbed = HOSTILE.to_owned();
    results.goal = Some(HOSTILE.to_owned());
    results.latput_version = HOSTILE.to_owned();
    results.notes = vec![HOSTILE.to_owned()];
    results.settings[1].label = HOSTILE.to_owned();
    results.workloads[0].name = HOSTILE.to_owned();
    for host in &mut results.hosts {
        host.host = HOSTILE.to_owned();
        host.interface = HOSTILE.to_owned();
        host.facts.push((HOSTILE.to_owned(), HOSTILE.to_owned()));
    }
    for host in results.rows.iter_mut().flat_map(|row| &mut row.observation.hosts) {
        host.host = HOSTILE.to_owned();
    }
    let advice = summary.recommendation.as_mut().unwrap();
    advice.goal = HOSTILE.to_owned();
    advice.reason = vec![HOSTILE.to_owned()];
    summary.failed_checks[0].name = HOSTILE.to_owned();
    summary.failed_checks[0].detail = HOSTILE.to_owned();
    summary.warnings = vec![HOSTILE.to_owned()];

    check_page(&results, &summary);
    check_json(&results, &summary);
    let plain = render_terminal(&results, &summary, Screen { columns: 100, is_styled: false });
    assert!(!plain.contains('\u{1b}'), "an escape sequence reaches the terminal");
    let text = render_markdown(&results, &summary);
    // An indented line is code, in which Markdown shows everything as it is.
    let is_prose = |line: &&str| !line.starts_with("    ");
    let leak = text.lines().filter(is_prose).find(|line| line.contains("<script"));
    assert_eq!(leak, None, "HTML reaches the Markdown");
}

#[test]
fn shared_report_is_imported_with_the_same_tables() {
    let (results, _) = build_demo();
    let results = redact_results(&results);
    let page = html_with_trials(&results, &ResultsSummary::from_results(&results));
    let imported = read_report(page.as_bytes()).unwrap();
    assert!(imported.is_imported() && !results.is_imported());
    let mut again = imported.clone();
    again.mark_imported();
    assert_eq!(again, imported, "the mark is made once");
    let screen = Screen { columns: 120, is_styled: false };
    let tables = |results: &Results| {
        let text = render_terminal(results, &ResultsSummary::from_results(results), screen);
        let note = |line: &&str| !line.contains("imported from a report");
        text.lines().filter(note).map(str::to_owned).collect::<Vec<_>>()
    };
    let (before, after) = (tables(&results), tables(&imported));
    let lost: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
    assert!(lost.is_empty() && before.len() > 20, "{lost:?}");
    assert_eq!(render_csv(&results), render_csv(&imported));
    let page = render_html(&imported, &ResultsSummary::from_results(&imported), None);
    assert!(page.contains("<b>Imported from a report.</b>"));
}

#[test]
fn edited_report_is_refused_by_fault() {
    let (results, summary) = build_demo();
    let page = render_html(&results, &summary, None);
    let (before, after) = page.split_once("id=\"trials\">").unwrap();
    let refused = |page: String| match read_report(page.as_bytes()) {
        Err(error) => error.to_string(),
        Ok(_) => "it is read".to_owned(),
    };
    let with = |trials: &str| refused(format!("{before}id=\"trials\">{trials}</script>"));
    let packed = |json: &str| STANDARD.encode(latput_formats::gzip::pack(json));
    let half = &after[..after.len() / 2];
    let mut flipped = after.to_owned().into_bytes();
    flipped[5_000] = if flipped[5_000] == b'A' { b'B' } else { b'A' };
    for (said, found) in [
        ("edited", with("no base64!")),
        ("edited", with(&STANDARD.encode("no gzip"))),
        ("edited", with(&packed("{}"))),
        ("edited", with(&packed(&format!("{{\"schema\":1,\"results\":{}", "[".repeat(5_000))))),
        ("schema 2", with(&packed("{\"schema\":2,\"results\":{}}"))),
        ("cut short", refused(format!("{before}id=\"trials\">{half}"))),
        (
            "edited",
            refused(format!("{before}id=\"trials\">{}", String::from_utf8(flipped).unwrap())),
        ),
        ("it holds no trials", refused("<html>".to_owned())),
    ] {
        assert!(found.contains(said), "{said}: {found}");
    }
    assert_eq!(read_report(&[0xff]), Err(ReportError::NoTrials));
    let forged = |change: fn(&mut Results)| {
        let mut results = results.clone();
        change(&mut results);
        refused(html_with_trials(&results, &summary))
    };
    assert!(forged(|it| it.rows[3].setting = 99).contains("trial 4 has an unknown setting"));
    assert!(forged(|it| it.rows[3] = it.rows[2].clone()).contains("trial 4 is there twice"));
}

/// Every text of results has this in it, in one form or another.
const SECRETS: [&str; 7] = [
    "db1.example.com",
    "enp3s0f1",
    "ann",
    "192.0.2.77",
    "fd00:77::1",
    "52:54:00:aa:bb:cc",
    "/srv/x",
];

#[test]
fn shared_report_has_no_name_or_address() {
    let (mut results, _) = build_demo();
    let [host, interface, user, v4, v6, mac, path] = SECRETS;
    let all = format!(
        "{host}: {user}@{host} on {interface}: from {v4}:5201 to [{v6}]:22, {mac}, `{path}/plan.toml`"
    );
    results.testbed = format!("ssh://{user}@{host}%{interface}");
    results.name.clone_from(&all);
    results.source = Some(format!("{path}/results.db"));
    results.notes = vec![all.clone()];
    results.settings[1].label = format!("{} {all}", results.settings[1].label);
    results.workloads[0].name = format!("tcp_rr to {host}");
    results.findings = vec![Finding {
        name: "other load".to_owned(),
        hosts: vec![host.to_owned()],
        seen: all.clone(),
        meaning: all.clone(),
        remedy: all.clone(),
    }];
    results.today = vec![HostToday {
        host: host.to_owned(),
        role: latput_trial::observation::Role::Sut,
        values: latput_knobs::State::default(),
    }];
    for host_facts in &mut results.hosts {
        host_facts.host = host.to_owned();
        host_facts.interface = interface.to_owned();
        host_facts.facts.push(("kernel build".to_owned(), all.clone()));
        host_facts.facts.push(("machine id of tomorrow".to_owned(), "4c8b9a70".to_owned()));
    }
    for row in &mut results.rows {
        row.observation.hosts.iter_mut().for_each(|seen| seen.host = host.to_owned());
        row.observation.checks.iter_mut().for_each(|check| check.detail.clone_from(&all));
    }
    let before = serde_json::to_string(&results).unwrap();
    let results = redact_results(&results);
    let after = serde_json::to_string(&results).unwrap();
    let page = html_with_trials(&results, &ResultsSummary::from_results(&results));
    let (visible, trials) = page.split_once("id=\"trials\">").unwrap();
    let texts = render_terminal(
        &results,
        &ResultsSummary::from_results(&results),
        Screen { columns: 200, is_styled: false },
    );
    for secret in SECRETS.into_iter().chain(["4c8b9a70"]) {
        let is_word = |text: &str| {
            let mut places = text.match_indices(secret);
            let inner = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
            places.any(|(at, _)| {
                let end = at + secret.len();
                !inner(text[..at].chars().next_back()) && !inner(text[end..].chars().next())
            })
        };
        assert!(is_word(&before), "{secret} is in no text of the original");
        assert!(!is_word(&after) && !is_word(visible) && !is_word(&texts), "{secret} is shared");
    }
    let (trials, _) = trials.split_once("</script>").unwrap();
    let unpacked =
        latput_formats::gzip::unpack(&STANDARD.decode(trials).unwrap(), 1 << 30).unwrap();
    assert!(
        String::from_utf8(unpacked).unwrap().contains(&after),
        "what was checked is in the file"
    );
    assert!(visible.contains("6.18.0-1-amd64") && visible.contains("latput set IFACE"));
}

#[test]
fn hundreds_of_marked_up_settings_render() {
    let (mut results, _) = build_demo();
    let one = results.settings[1].clone();
    let label = |idx| format!("<script>alert({idx})</script>");
    results.settings = (0..300)
        .map(|idx| latput_trial::results::LabelledSetting { label: label(idx), ..one.clone() })
        .collect();
    let row = results.rows.iter().find(|row| row.workload == 3).unwrap().clone();
    results.rows = (0..300).map(|setting| latput_trial::Row { setting, ..row.clone() }).collect();
    let summary = ResultsSummary::from_results(&results);
    check_page(&results, &summary);
    let page = render_html(&results, &summary, None);
    let escaped = "&lt;script&gt;alert(299)&lt;&#x2f;script&gt;";
    assert_eq!(page.matches(&format!("<span class=\"swatch\"></span>{escaped}")).count(), 3);
    assert!(page.len() < 300 * 15_000, "{} bytes", page.len());
}

#[test]
fn without_results_every_output_says_so() {
    let (mut results, _) = build_demo();
    results.rows.clear();
    let summary = ResultsSummary::from_results(&results);
    check_shortage(&results, &summary, "No trial has finished (120 planned)");
    results.settings.clear();
    results.workloads.clear();
    results.hosts.clear();
    check_shortage(&results, &summary, "No trial has finished");
}

#[test]
fn single_runs_have_no_intervals() {
    let (mut results, _) = build_demo();
    results.rows.retain(|row| row.block == 0);
    let summary = ResultsSummary::from_results(&results);
    check_shortage(&results, &summary, "one trial: nothing has an interval");
    let text = render_terminal(&results, &summary, Screen { columns: 80, is_styled: false });
    let row = text.lines().find(|line| line.contains(" 20us ")).unwrap();
    assert!(!row.contains('±'), "{row}");
}

#[test]
fn unfit_trials_compare_nothing() {
    let (mut results, _) = build_demo();
    for row in &mut results.rows {
        let name = latput_trial::check::OTHER_WORK.to_owned();
        row.observation.checks.push(Check { name, passed: false, detail: String::new() });
    }
    let summary = ResultsSummary::from_results(&results);
    let text = render_terminal(&results, &summary, Screen { columns: 160, is_styled: false });
    assert!(text.contains("Nothing could be compared: too few trials count."), "{text}");
    assert!(!text.contains("no other setting is better"), "{text}");
}

#[test]
fn no_width_hides_a_figure() {
    let figures = |columns| {
        let text = render_checked_text(columns);
        let table = text.lines().skip(1).take_while(|line| !line.starts_with("> recommended"));
        let words =
            table.flat_map(str::split_whitespace).filter(|word| word.contains(char::is_numeric));
        words
            .map(|word| word.trim_end_matches(['~', '!']).to_owned())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let all = figures(1000);
    assert!(all.iter().filter(|word| word.starts_with('±')).count() > 20, "{all:?}");
    for columns in [60, 80, 100, 160, 250] {
        let missing: Vec<_> = all.difference(&figures(columns)).cloned().collect();
        assert!(missing.is_empty(), "{columns} columns lack {missing:?}");
    }
}

#[test]
fn brief_has_rate_latency_cpu_and_trust() {
    let (results, summary) = one_cell(6);
    insta::assert_snapshot!(render_brief(
        &results,
        &summary,
        Screen { columns: 100, is_styled: false }
    ));
}

#[test]
fn single_cell_has_line_per_figure() {
    insta::assert_snapshot!(render_measured(6));
}

#[test]
fn failed_check_is_a_sentence_with_its_place() {
    for (detail, said) in [
        (
            "a: other programs used half a CPU",
            "Other programs used half a CPU in 2 of 2 trials (tcp_stream, a).",
        ),
        (
            "5 of 9 datagrams were sent; 4 were left out",
            "5 of 9 datagrams were sent in 2 of 2 trials (tcp_stream). 4 were left out.",
        ),
        (
            "a and b: knob mtu is gone; b: knob gro is gone",
            "Knob mtu is gone in 2 of 2 trials (tcp_stream, a and b). b: knob gro is gone.",
        ),
        (SHARED_CPUS, SHARED_CPUS),
    ] {
        let (mut results, _) = one_cell(2);
        for row in &mut results.rows {
            let check = &mut row.observation.checks[0];
            (check.passed, check.detail) = (false, detail.to_owned());
        }
        let summary = ResultsSummary::from_results(&results);
        for text in [
            render_terminal(&results, &summary, Screen { columns: 1000, is_styled: false }),
            render_brief(&results, &summary, Screen { columns: 1000, is_styled: false }),
            render_markdown(&results, &summary).replace('\\', ""),
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
    // With several settings the cell with most failures is named.
    let (results, summary) = build_demo();
    let text = render_terminal(&results, &summary, Screen { columns: 1000, is_styled: false });
    let said = "A transaction sent 0.410 packets and received 0.410 in 6 of 120 trials (500us, tcp_rr burst=16).";
    assert!(text.contains(said), "{text}");
}

#[test]
fn single_measurement_has_sample_intervals_only() {
    let text = render_measured(1);
    let has_interval = |line: &&str| line.contains(" to ");
    let within = text.lines().filter(has_interval).all(|line| line.contains("within the trial"));
    assert!(text.contains("one trial, no interval") && within, "{text}");
}

#[test]
fn single_run_of_all_is_shown() {
    let (mut results, _) = build_demo();
    results.rows.truncate(1);
    let summary = ResultsSummary::from_results(&results);
    check_shortage(&results, &summary, "one trial: nothing has an interval");
}

#[test]
fn indices_of_a_damaged_file_do_not_panic() {
    let (mut results, mut summary) = build_demo();
    results.rows[0].setting = 99;
    results.rows[1].workload = 99;
    summary.cells[0].setting = 99;
    summary.cells[1].workload = 99;
    summary.pareto.push(99);
    summary.outliers[0].workload = 99;
    summary.failed_checks[0].setting = 99;
    summary.recommendation.as_mut().unwrap().setting = 99;
    check_page(&results, &summary);
    check_json(&results, &summary);
    render_csv(&results);
    render_markdown(&results, &summary);
    render_terminal(&results, &summary, Screen { columns: 100, is_styled: false });
}

#[test]
fn many_settings_on_narrow_screen_render() {
    let (mut results, _) = build_demo();
    for copy in 0..40 {
        let mut setting = results.settings[copy % 5].clone();
        setting.label = format!("gro-flush-timeout={}us mtu=9000", 1000 + copy);
        results.settings.push(setting);
    }
    for (idx, row) in results.rows.iter_mut().enumerate() {
        row.setting = idx % 45;
    }
    let summary = ResultsSummary::from_results(&results);
    check_page(&results, &summary);
    for columns in [0, 1, 20, 500] {
        render_terminal(&results, &summary, Screen { columns, is_styled: true });
    }
}

#[test]
fn answer_is_equal_in_all_outputs() {
    let set = Headline::Set("`20us` <& is proven better".to_owned());
    let stay = Headline::Stay("nothing better was found <&".to_owned());
    let no_answer = Headline::TooNoisy("too noisy <&".to_owned());
    check_headline(set, Some(1), "Recommended: set", "gro-flush-timeout=20us", true);
    check_headline(stay, Some(0), "Recommended: stay with", "today (gro-flush-timeout=0us)", false);
    check_headline(no_answer.clone(), Some(0), "No answer", "", false);
    let unjudged = Headline::NoAnswer("too few <&".to_owned());
    check_headline(unjudged, None, "No answer", "", false);
}

#[track_caller]
fn check_headline(
    headline: Headline,
    setting: Option<usize>,
    words: &str,
    label: &str,
    has_command: bool,
) {
    let (mut results, mut summary) = build_demo();
    results.today = vec![HostToday {
        host: "a".to_owned(),
        role: latput_trial::observation::Role::Sut,
        values: latput_knobs::State::default(),
    }];
    results.findings = vec![Finding {
        name: "steal".to_owned(),
        hosts: vec!["a".to_owned()],
        seen: "10% <& stolen".to_owned(),
        meaning: "trials pause".to_owned(),
        remedy: "other CPUs".to_owned(),
    }];
    match (setting, summary.recommendation.as_mut()) {
        (Some(setting), Some(advice)) => {
            (advice.setting, advice.reason) = (setting, vec!["The reason.".to_owned()]);
        }
        _ => summary.recommendation = None,
    }
    let kind = headline.kind();
    let sentence = headline.sentence().replace("<&", "&lt;&amp;").replace('`', "");
    summary.headline = Some(headline);
    let title = format!("{words} {label}").trim_end().to_owned();
    let text = render_terminal(&results, &summary, Screen { columns: 400, is_styled: false });
    let marked = render_markdown(&results, &summary).replace("\\_", "_").replace("\\`", "");
    let page = render_html(&results, &summary, None);
    let document = Document::new(&results, &summary);
    assert!(text.contains(&format!("\n{title}\n")), "{text}");
    assert!(marked.contains(&format!("**{title}**")), "{marked}");
    let heading = if label.is_empty() { String::new() } else { format!(" <code>{label}</code>") };
    assert!(page.contains(&format!("<h2>{words}{heading}</h2>")), "{kind}");
    let tail = sentence.split_once("20us").map_or(&*sentence, |(_, tail)| tail);
    let upper = |text: &str| text.replacen(&sentence[..1], &sentence[..1].to_uppercase(), 1);
    for output in [&marked, &page] {
        let found = output.contains(tail) || output.contains(&upper(tail));
        assert!(
            found && output.contains("10% &lt;&amp; stolen; trials pause. To fix it: other CPUs"),
            "{output}"
        );
    }
    assert!(text.contains("steal: a: 10% <& stolen"), "{text}");
    assert_eq!(text.contains("latput set "), has_command, "{text}");
    assert_eq!(marked.contains("latput set "), has_command, "{marked}");
    let answer = document.headline.expect("a goal has an answer");
    assert_eq!((answer.kind.as_str(), document.findings.len()), (kind, 1));
    let commands = document.recommendation.map_or(0, |advice| advice.commands.len());
    assert_eq!(commands > 0, has_command);
    assert!(document.settings[0].today && !document.settings[1].today);
}

#[test]
fn less_sure_intervals_say_so() {
    let (results, summary) = build_demo();
    let said = "99% interval (of medians 96.87%: 6 trials allow no more)";
    let screen = Screen { columns: 400, is_styled: false };
    for output in
        [render_html(&results, &summary, None), render_terminal(&results, &summary, screen)]
    {
        assert!(output.contains(said));
    }
    assert!(
        render_html(&results, &summary, None)
            .contains("96.87% interval, order statistics of 6 trials")
    );
}

/// The demo with connections that are told apart.
fn with_groups(groups: [TcpGroup; 2]) -> Results {
    let (mut results, _) = build_demo();
    // Only live traffic has groups.
    for workload in &mut results.workloads {
        workload.traffic = Traffic::Live;
    }
    for row in &mut results.rows {
        let host = row
            .observation
            .hosts
            .iter_mut()
            .find(|it| it.role == Role::Sut)
            .expect("the demo has one");
        for (times, group) in (1..).zip(groups) {
            let slower = if row.setting == 1 && times == 2 { 2 } else { 1 };
            let mut rtt = Histogram::new();
            rtt.record_n(Nanos::from_us(100 * times * slower + u64::from(row.block)), 50);
            let (connections, acked_bytes) = (9 - times, 1000 * (5 - times));
            let seen = TcpObservation { rtt, connections, acked_bytes, ..Default::default() };
            host.tcp_groups.insert(group, seen);
        }
    }
    results
}

#[test]
fn port_effects_stand_beside_the_whole() {
    let results = with_groups(["local:443", "remote:5432"].map(|it| it.parse().unwrap()));
    let summary = ResultsSummary::from_results(&results);
    let text = render_terminal(&results, &summary, Screen { columns: 100, is_styled: false });
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).expect(start);
    assert!(line("local:443 ").contains(" 8 "), "{text}");
    let worse = |line: &&str| line.starts_with("remote:5432") && line.ends_with("worse");
    assert!(text.lines().filter(worse).count() >= 1, "{text}");
    assert!(!text.lines().any(|it| it.starts_with("local:443") && it.ends_with("worse")), "{text}");
    assert!(text.contains("The goal is about all traffic, not groups."), "{text}");
    check_json(&results, &summary);
    let document: serde_json::Value =
        serde_json::from_str(&render_json(&results, &summary)).unwrap();
    let groups = &document["tcp_groups"];
    assert_eq!(
        (&groups["by"], &groups["groups"][1]["group"]),
        (&"port".into(), &"remote:5432".into())
    );
    let of = |it: &&serde_json::Value| {
        it["setting"] == 1 && it["group"] == 1 && it["metric"] == "tcp_rtt_ns_p99"
    };
    let ratio = groups["comparisons"].as_array().unwrap().iter().find(of).unwrap();
    assert!((1.9..2.0).contains(&ratio["ratio"]["value"].as_f64().unwrap()), "{ratio}");
    let run = &document["runs"][0]["tcp_groups"]["local:443"];
    assert_eq!((&run["connections_count"], &run["acked_bytes"]), (&8.into(), &4000.into()));
}

#[test]
fn peers_are_not_passed_on() {
    let results = with_groups(["203.0.113.7", "others"].map(|it| it.parse().unwrap()));
    assert!(render_json(&results, &ResultsSummary::from_results(&results)).contains("203.0.113.7"));
    let passed_on = redact_results(&results);
    let summary = ResultsSummary::from_results(&passed_on);
    for text in [render_json(&passed_on, &summary), html_with_trials(&passed_on, &summary)] {
        assert!(!text.contains("203.0.113"));
    }
}

fn build_demo() -> (Results, ResultsSummary) {
    let results = results::build_demo_results();
    let summary = ResultsSummary::from_results(&results);
    (results, summary)
}

/// Output of `latput measure` for the demo's second setting under its third workload.
fn render_measured(blocks: u32) -> String {
    let (results, summary) = one_cell(blocks);
    render_terminal(&results, &summary, Screen { columns: 100, is_styled: false })
}

fn one_cell(blocks: u32) -> (Results, ResultsSummary) {
    let (mut results, _) = build_demo();
    results.goal = None;
    results.settings = vec![results.settings[1].clone()];
    results.workloads = vec![results.workloads[2].clone()];
    results.rows.retain(|row| row.setting == 1 && row.workload == 2 && row.block < blocks);
    for row in &mut results.rows {
        (row.setting, row.workload) = (0, 0);
    }
    results.planned_trials = results.rows.len() as u64;
    let summary = ResultsSummary::from_results(&results);
    (results, summary)
}

/// The plain text, after a look at the width of its lines.
#[track_caller]
fn render_checked_text(columns: usize) -> String {
    let (results, summary) = build_demo();
    let text = render_terminal(&results, &summary, Screen { columns, is_styled: false });
    let is_command = |line: &str| line.contains("latput set");
    for line in text.lines().filter(|line| !is_command(line)) {
        assert!(line.chars().count() <= columns, "wider than {columns}: {line}");
    }
    text
}

#[track_caller]
fn check_json(results: &Results, summary: &ResultsSummary) {
    let document: serde_json::Value =
        serde_json::from_str(&render_json(results, summary)).expect("the export is JSON");
    let validator = jsonschema::validator_for(&Document::json_schema()).expect("the schema is one");
    let errors: Vec<String> =
        validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

/// No request, two scripts and no more, and the data in it readable.
#[track_caller]
fn check_page(results: &Results, summary: &ResultsSummary) {
    let page = render_html(results, summary, None);
    for forbidden in ["http://", "https://", "//cdn", "@import", "url(", "src=", "<link", "<img"] {
        assert!(!page.contains(forbidden), "the page has {forbidden}");
    }
    assert_eq!(page.matches("<script").count(), 2, "a script from outside");
    assert_eq!(page.matches("</script").count(), 2, "a script is cut short");
    assert!(!page.contains('\u{1b}'));
    let is_whole = |row: &latput_trial::Row| {
        row.setting < results.settings.len() && row.workload < results.workloads.len()
    };
    if results.half_width.is_finite() && results.rows.iter().all(is_whole) {
        let mut imported = read_report(page.as_bytes()).expect("a report is read back");
        assert_eq!(imported.notes.len(), results.notes.len() + 1);
        imported.notes.clone_from(&results.notes);
        assert_eq!(imported, Results { source: None, ..results.clone() });
    }
}

#[track_caller]
fn check_shortage(results: &Results, summary: &ResultsSummary, said: &str) {
    check_page(results, summary);
    check_json(results, summary);
    let screen = Screen { columns: 400, is_styled: false };
    let outputs = [
        render_html(results, summary, None),
        render_markdown(results, summary),
        render_terminal(results, summary, screen),
    ];
    for output in outputs {
        assert!(output.contains(said), "{said} is not said in {output}");
    }
    assert_eq!(parse_csv(&render_csv(results)).len(), results.rows.len() + 1);
}

/// RFC 4180 by its grammar, strictly: it panics at a quote that should not be there.
fn parse_csv(text: &str) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let field = if let Some(quoted) = rest.strip_prefix('"') {
            rest = quoted;
            let mut field = String::new();
            loop {
                let (part, after) = rest.split_once('"').expect("a closing quote");
                field += part;
                rest = after;
                let Some(after) = rest.strip_prefix('"') else { break };
                field.push('"');
                rest = after;
            }
            field
        } else {
            let end = rest.find([',', '\r', '\n', '"']).expect("a line end");
            let (field, after) = rest.split_at(end);
            rest = after;
            field.to_owned()
        };
        line.push(field);
        if let Some(after) = rest.strip_prefix(',') {
            rest = after;
        } else {
            rest = rest.strip_prefix("\r\n").expect("a comma or the end of a line");
            lines.push(std::mem::take(&mut line));
        }
    }
    lines
}
