//! The screen: commands on a pseudo-terminal of several widths, read by a terminal emulator.

pub(crate) mod terminal;

use self::terminal::TerminalScreen;
use crate::Place;

/// The widths that are looked at.
pub(crate) const WIDTHS: [u16; 4] = [60, 80, 100, 160];

const PLAN: &str = r#"
schema = 1
name = "two knobs"
goal = "minimize latency_ns_p99"
[factors]
"gro-flush-timeout + napi-defer-hard-irqs" = [["0us", 0], ["50us", 100], ["200us", 100]]
mtu = [1500, 9000]
[[workload]]
kind = "tcp_rr"
[[workload]]
kind = "tcp_rr"
burst = 16
[[workload]]
kind = "tcp_stream"
probe_hz = 1000
[method]
repetitions = { min = 3, max = 3 }
warmup = "2ms"
duration = "50ms"
seed = 7
"#;

/// A folder with two results files and what commands ask for.
fn place_with_results() -> Place {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    for (file, system) in [("r.db", "sim:server-10g"), ("s.db", "sim:rx1620-e1000")] {
        place.run(&["run", "plan.toml", "--on", system, "-o", file]).expect(0, &[]);
    }
    place.write(
        "inventory.toml",
        "schema = 1\n[group.own]\nhosts = ['lo']\nsettings = { mtu = 65536 }\n",
    );
    place
}

#[test]
fn every_screen_holds_the_rules() {
    let place = place_with_results();
    let commands: [&[&str]; 25] = [
        &["report", "r.db"],
        &["report", "--list", "r.db"],
        &["report", "r.db", "--compare", "50us, 1500", "200us, 1500"],
        &["report", "--compare", "r.db", "s.db"],
        &["report", "r.db", "--predicted", "s.db"],
        &["history", "r.db", "s.db"],
        &["metrics"],
        &["explain", "r.db"],
        &["model", "fit", "r.db"],
        &["show"],
        &["show", "lo"],
        &["show", "lo", "--all"],
        &["show", "lo", "mtu"],
        &["log"],
        &["hosts", "loopback"],
        &["run", "plan.toml", "--on", "sim:server-10g", "--check"],
        &["run", "plan.toml", "--on", "sim:server-10g", "-o", "again.db"],
        &["tune", "plan.toml", "--on", "sim:server-10g", "-o", "tuned.db"],
        &["measure", "sim:server-10g", "--workload", "tcp_rr", "--repetitions", "2..2"],
        &["measure", "sim:server-10g", "--workload", "tcp_rr", "-v", "--repetitions", "2..2"],
        &["sim", "list"],
        &["fleet", "show", "mtu"],
        &["fleet", "verify", "mtu=1500"],
        &["fleet", "drift"],
        &["fleet", "pairs", "r.db", "s.db"],
    ];
    for columns in WIDTHS {
        for args in commands {
            TerminalScreen::run(&place, columns, &[], args).hold_rules();
        }
    }
}

#[test]
fn published_tables_hold_the_rules() {
    let place = Place::new();
    for columns in WIDTHS {
        TerminalScreen::run(&place, columns, &[], &["reproduce", "A04"]).hold_rules();
    }
}

#[test]
fn results_table_is_aligned_and_bold() {
    let place = place_with_results();
    for columns in WIDTHS {
        let screen = TerminalScreen::run(&place, columns, &[], &["report", "r.db"]);
        let places = screen.ends_of_figures();
        assert!(places.len() > 1, "{screen}");
        for table in places {
            let first = &table[0];
            assert!(table.iter().all(|row| row == first), "{screen}");
        }
        assert!(screen.has_text("───"), "{screen}");
        assert!(!screen.bold_rows().is_empty(), "{screen}");
    }
}

#[test]
fn text_table_aligns_with_its_header() {
    let place = place_with_results();
    let screen = TerminalScreen::run(&place, 100, &[], &["history", "r.db", "s.db"]);
    let rows = screen.rows();
    let header = rows.iter().position(|row| row.starts_with("started")).unwrap();
    let figure = rows[header].find("figure").unwrap() + "figure".len();
    for row in &rows[header + 1..header + 3] {
        let ended = row.chars().nth(figure - 1).is_some_and(|char| char.is_ascii_digit());
        assert!(ended && !row.chars().nth(figure).is_some_and(|c| c.is_ascii_digit()), "{screen}");
    }
}

#[test]
fn styles_appear_only_where_wanted() {
    let place = place_with_results();
    let report = ["report", "r.db"];
    for (environment, is_styled) in [
        (&[][..], true),
        (&[("TERM", "dumb")], false),
        (&[("NO_COLOR", "1")], false),
        (&[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")], true),
        (&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], false),
    ] {
        let screen = TerminalScreen::run(&place, 80, environment, &report);
        screen.hold_rules();
        assert_eq!(!screen.bold_rows().is_empty(), is_styled, "{environment:?}: {screen}");
        assert_eq!(screen.has_text("───"), is_styled, "{environment:?}: {screen}");
    }
    let mut piped = place.latput_command(&report);
    let piped = crate::CommandOutput::from(piped.env("CLICOLOR_FORCE", "1").output().unwrap());
    assert!(piped.out.contains("\u{1b}[1m"));
    assert!(!place.run(&report).out.contains('\u{1b}'));
}

#[test]
fn pipe_has_a_hundred_columns() {
    let place = place_with_results();
    let widest = |columns: Option<&str>| {
        let mut command = place.latput_command(&["report", "r.db"]);
        match columns {
            Some(columns) => command.env("COLUMNS", columns),
            None => command.env_remove("COLUMNS"),
        };
        let ran = crate::CommandOutput::from(command.output().unwrap());
        ran.out.lines().filter(|line| !line.contains("latput ")).map(|it| it.chars().count()).max()
    };
    assert!((81..=100).contains(&widest(None).unwrap()));
    assert!((41..=60).contains(&widest(Some("60")).unwrap()));
}

#[test]
fn progress_is_one_line_that_goes_away() {
    let place = place_with_results();
    let long = PLAN.replace("50ms", "500ms");
    place.write("long.toml", &long);
    let args = ["run", "long.toml", "--on", "sim:server-10g", "-o", "long.db"];
    let screen = TerminalScreen::run(&place, 60, &[], &args);
    screen.hold_rules();
    assert!(!screen.has_text("trials  ") && !screen.has_text("===="), "{screen}");
    assert!(screen.bytes().windows(4).any(|part| part == b"===="), "there was a bar");
    // A terminal that cannot move its cursor gets whole lines.
    let args = ["run", "long.toml", "--on", "sim:server-10g", "-o", "dumb.db"];
    let screen = TerminalScreen::run(&place, 60, &[("TERM", "dumb")], &args);
    assert!(!screen.bytes().contains(&0x1b), "{screen}");
    assert!(screen.has_text(" trials, "), "{screen}");
}

#[test]
fn hostile_and_wide_names_stay_aligned() {
    let place = Place::new();
    let wide = format!("kind = \"tcp_stream\"\nname = \"{}\"", "漢字".repeat(12));
    place.write("plan.toml", &PLAN.replace("kind = \"tcp_stream\"", &wide));
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "r.db"]).expect(0, &[]);
    let db = rusqlite::Connection::open(place.path("r.db")).unwrap();
    let hostile = "two\\u001b[2J\\u202eknobs";
    db.execute("UPDATE run SET header = replace(header, 'two knobs', ?1)", [hostile]).unwrap();
    drop(db);
    for columns in WIDTHS {
        let screen = TerminalScreen::run(&place, columns, &[], &["report", "r.db"]);
        screen.check_width();
        assert!(screen.has_text("two\\u001b[2J\\u202eknobs"), "{screen}");
        assert!(screen.has_text("漢字"), "{screen}");
        assert!(
            screen.ends_of_figures().iter().all(|table| table.iter().all(|row| *row == table[0]))
        );
    }
}

#[test]
fn short_help_is_one_screen() {
    let place = Place::new();
    let screen = TerminalScreen::run(&place, 80, &[], &["-h"]);
    screen.hold_rules();
    assert!(screen.rows().len() <= 24, "{screen}");
    for command in ["tune", "measure", "report", "show", "set", "undo", "apply", "keep", "hosts"] {
        let listed = screen.rows().iter().any(|row| row.starts_with(&format!("  {command} ")));
        assert!(listed, "{command}: {screen}");
    }
}

#[test]
fn help_of_every_command_holds_the_rules() {
    let place = Place::new();
    let mut commands: Vec<Vec<String>> = vec![Vec::new()];
    let all = place.run(&["--help"]).out;
    let names = all.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let is_name = |name: &&str| name.starts_with(|c: char| c.is_ascii_lowercase());
    commands.extend(names.filter(is_name).filter(|it| *it != "help").map(|it| vec![it.to_owned()]));
    assert!(commands.len() > 25, "{all}");
    for (command, below) in [
        ("fleet", "apply"),
        ("lab", "exec"),
        ("sim", "trace"),
        ("sim", "snapshot"),
        ("model", "fit"),
    ] {
        commands.push(vec![command.to_owned(), below.to_owned()]);
    }
    for command in &commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let lengths = [60, 80, 100].map(|columns| {
            let [short, long] = ["-h", "--help"].map(|flag| {
                let screen =
                    TerminalScreen::run(&place, columns, &[], &[&words[..], &[flag]].concat());
                screen.hold_rules();
                screen
            });
            let examples = long.has_text("Examples:");
            assert!(!short.has_text("Examples:"), "{short}");
            assert!(!examples || long.examples_are_apart(), "{long}");
            (short.rows().len(), long.rows().len())
        });
        assert!(lengths.iter().all(|(short, long)| short <= long), "{words:?}: {lengths:?}");
    }
}
