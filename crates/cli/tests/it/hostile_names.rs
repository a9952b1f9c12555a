//! Names and texts from elsewhere hold what a terminal obeys: no command prints it.

use std::fs;

use latput_trial::Results;
use serde_json::Value;

use crate::Place;

/// Clears the screen, sets the title, turns the order of reading around, and more.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{7f}\u{feff}\u{e0041}";

#[test]
fn results_file_full_of_escapes_prints_none() {
    let place = Place::new();
    place.write("plan.toml", &plan_toml("small"));
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    let db = rusqlite::Connection::open(place.path("kept.db")).unwrap();
    let header: String = db.query_row("SELECT header FROM run", [], |row| row.get(0)).unwrap();
    let header: Value = serde_json::from_str(&header).unwrap();
    let (hostile, count) =
        with_hostile_texts(&header, |it| serde_json::from_value::<Results>(it.clone()).is_ok());
    assert!(count > 10, "only {count} texts could be changed: {hostile}");
    db.execute("UPDATE run SET header = ?1", [hostile.to_string()]).unwrap();
    let observation: String =
        db.query_row("SELECT observation FROM trial", [], |row| row.get(0)).unwrap();
    let observation: Value = serde_json::from_str(&observation).unwrap();
    let (hostile, count) = with_hostile_texts(&observation, |it| {
        serde_json::from_value::<latput_trial::Observation>(it.clone()).is_ok()
    });
    assert!(count > 0);
    db.execute("UPDATE trial SET observation = ?1", [hostile.to_string()]).unwrap();
    drop(db);
    for format in ["table", "html", "csv", "json", "markdown"] {
        check_printable(&place, &["report", "kept.db", "--format", format], &[0]);
        check_printable(&place, &["report", "kept.db", "--format", format, "-o", "out"], &[0]);
        assert_printable(&fs::read_to_string(place.path("out")).unwrap());
    }
    check_printable(&place, &["report", "kept.db", "--list"], &[0]);
    check_printable(&place, &["report", "kept.db", "--list", "--json"], &[0]);
    check_printable(&place, &["report", "kept.db", "--compare", "nothing", HOSTILE], &[2]);
    // Another run of the same plan: its trials began later.
    fs::copy(place.path("kept.db"), place.path("later.db")).unwrap();
    let db = rusqlite::Connection::open(place.path("later.db")).unwrap();
    db.execute("UPDATE trial SET started_unix_ms = started_unix_ms + 1", []).unwrap();
    drop(db);
    for format in ["table", "markdown", "json", "junit", "ktap"] {
        let args = ["report", "--compare", "kept.db", "later.db", "--format", format];
        check_printable(&place, &args, &[0]);
    }
    check_printable(&place, &["report", "--compare", "kept.db", "kept.db"], &[2]);
    for format in ["table", "csv", "json"] {
        check_printable(&place, &["history", "kept.db", "later.db", "--format", format], &[0]);
    }
    for command in [
        &["explain", "kept.db"][..],
        &["model", "fit", "kept.db"],
        &["model", "twin", "kept.db", "-o", "twin.toml"],
        &["export-settings", "kept.db"],
        &["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"],
    ] {
        check_printable(&place, command, &[0, 1, 2]);
        check_printable(&place, &[command, &["--json"]].concat(), &[0, 1, 2]);
    }
}

#[test]
fn plans_testbeds_imports_and_arguments_print_none() {
    let place = Place::new();
    let escaped = serde_json::to_string(HOSTILE).unwrap();
    let name = escaped.trim_matches('"');
    // TOML's basic strings have JSON's escapes, but for those beyond 16 bits.
    place.write("plan.toml", &plan_toml(name).replace('\u{7f}', "\\u007f"));
    check_printable(&place, &["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"], &[2]);
    place.write(
        "plan.toml",
        &plan_toml("load")
            .replace("name = \"load\"", &format!("name = \"{name}\""))
            .replace('\u{7f}', "\\u007f"),
    );
    check_printable(
        &place,
        &["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"],
        &[0, 2],
    );
    check_printable(&place, &["tune", "plan.toml", "--on", "sim:server-10g"], &[0, 2]);
    place
        .write("wrong.toml", &plan_toml("x").replace("tcp_rr", &name.replace('\u{7f}', "\\u007f")));
    check_printable(&place, &["run", "wrong.toml"], &[2]);
    place.write("raw.toml", HOSTILE);
    check_printable(&place, &["run", "raw.toml"], &[2]);
    check_printable(&place, &["run", "plan.toml", "--on", "raw.toml"], &[2]);
    check_printable(&place, &["run", "plan.toml", "--on", "sim:./raw.toml"], &[2]);
    check_printable(&place, &["run", &format!("{HOSTILE}.toml")], &[2]);
    check_printable(&place, &["run", "plan.toml", "--on", HOSTILE], &[2]);
    check_printable(&place, &["run", "plan.toml", "--on", &format!("sim:{HOSTILE}")], &[1, 2]);
    check_printable(&place, &["measure", "loopback", "--workload", HOSTILE], &[2]);
    check_printable(&place, &["show", HOSTILE], &[1, 2]);
    check_printable(&place, &["set", "lo", &format!("{HOSTILE}=1")], &[1, 2]);
    check_printable(&place, &["restore", HOSTILE], &[0, 1, 2]);
    check_printable(&place, &[HOSTILE], &[2]);
    check_printable(&place, &["report", &format!("--{HOSTILE}")], &[2]);
    place.write("agent.sh", &format!("printf '%s\\n' '{HOSTILE}' >&2; exit 1"));
    place.write(
        "rack.toml",
        "schema = 1\n[host.one]\nrole = \"sut\"\nvia = [\"sh\", \"agent.sh\"]\ninterface = \"lo\"\n\
         address = \"127.0.0.1\"\n[host.two]\nrole = \"generator\"\nvia = [\"sh\", \"agent.sh\"]\n\
         interface = \"lo\"\naddress = \"127.0.0.1\"\n",
    );
    check_printable(&place, &["measure", "rack.toml", "--workload", "tcp_rr"], &[1, 2, 3]);
    let flent = serde_json::json!({
        "version": 4,
        "metadata": { "TITLE": HOSTILE, "NAME": HOSTILE },
        "raw_values": { (format!("TCP upload {HOSTILE}")): [], "TCP upload": [{ "t": 0.0, "val": 1.0 }, { "t": 1.0, "val": 2.0 }] },
    });
    place.write("x.flent", &flent.to_string());
    check_printable(&place, &["import", "flent", "x.flent", "-o", "flent.db"], &[0]);
    check_printable(&place, &["report", "flent.db"], &[0]);
    place.write("y.flent", &flent.to_string().replace("TCP upload", "TCP nothing"));
    check_printable(&place, &["import", "flent", "y.flent", "-o", "flent.db"], &[2]);
}

fn plan_toml(name: &str) -> String {
    format!(
        "schema = 1\nname = \"{name}\"\n[factors]\nrx-usecs = [0, 50]\n[[workload]]\nname = \"=load {name}\"\n\
         kind = \"tcp_rr\"\n[method]\nduration = \"50ms\"\nwarmup = \"0ms\"\n\
         repetitions = {{ min = 2, max = 2 }}\n"
    )
}

/// The document with hostile text in each of its texts that may be any, and how many those are.
fn with_hostile_texts(document: &Value, is_read: impl Fn(&Value) -> bool) -> (Value, usize) {
    let mut places = Vec::new();
    find_texts(document, String::new(), &mut places);
    let (mut hostile, mut count) = (document.clone(), 0);
    for place in places {
        let mut changed = hostile.clone();
        let text = changed.pointer_mut(&place).unwrap();
        *text = format!("={}{HOSTILE}", text.as_str().unwrap()).into();
        if is_read(&changed) {
            hostile = changed;
            count += 1;
        }
    }
    (hostile, count)
}

fn find_texts(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::String(_) => places.push(place),
        Value::Array(all) => {
            for (idx, one) in all.iter().enumerate() {
                find_texts(one, format!("{place}/{idx}"), places);
            }
        }
        Value::Object(all) => {
            for (name, one) in all {
                let name = name.replace('~', "~0").replace('/', "~1");
                find_texts(one, format!("{place}/{name}"), places);
            }
        }
        _ => {}
    }
}

#[track_caller]
fn check_printable(place: &Place, args: &[&str], codes: &[i32]) {
    let ran = place.run(args);
    assert!(codes.contains(&ran.code.unwrap()), "{args:?}: {ran:#?}");
    assert_printable(&ran.out);
    assert_printable(&ran.err);
}

#[track_caller]
fn assert_printable(text: &str) {
    let is_bad = |c: char| HOSTILE.contains(c) && !c.is_ascii_graphic() || c == '\u{e0041}';
    let found = text.find(is_bad);
    assert!(found.is_none(), "{:?}", found.map(|at| &text[at..text.len().min(at + 200)]));
}
