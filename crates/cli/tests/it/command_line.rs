//! `latput completions` and `latput man`: made from the definition of the command line, read by the programs
//! that they are for.

use std::process::Command;

use latput_testkit::needs;

use crate::{Place, needs_program};

#[test]
fn completions_load_and_hide_internal_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completions", shell]);
        script.expect(0, &["moderate", "confirm-within"]);
        for hidden in ["watcher", "made-by", "only-if", "latput_"] {
            let is_function = hidden == "latput_" && ["bash", "zsh", "fish"].contains(&shell);
            // In bash a case is left for what nobody offers.
            let is_there = script.out.contains(hidden)
                && (shell != "bash" || script.out.contains(&format!("--{hidden} ")));
            assert!(is_function || !is_there, "{shell}: {hidden}");
        }
        let readers = ["bash", "zsh", "fish"];
        if !readers.contains(&shell) || needs_program(shell) {
            continue;
        }
        place.write("script", &script.out);
        let status = Command::new(shell).arg("-n").arg(place.path("script")).status().unwrap();
        assert!(status.success(), "{shell}");
    }
    place.run(&["completions", "cmd"]).expect(2, &["cmd", "bash"]);
}

#[test]
fn bash_completes_commands_and_values() {
    let place = Place::new();
    place.write("script", &place.run(&["completions", "bash"]).out);
    place.write("rack.toml", "");
    let check = |words: &[&str], expected: &[&str]| {
        let before = words[words.len().saturating_sub(2)];
        let last = words[words.len() - 1];
        let complete = format!(
            ". ./script; COMP_WORDS=({}); COMP_CWORD={}; _latput latput '{last}' '{before}'; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
            words.len() - 1
        );
        let bash =
            Command::new("bash").args(["-c", &complete]).current_dir(place.path(".")).output();
        let said = String::from_utf8(bash.unwrap().stdout).unwrap();
        let said: Vec<&str> = said.lines().collect();
        for word in expected {
            assert!(said.contains(word), "{words:?}: `{word}` is not in {said:?}");
        }
        said.len()
    };
    assert_eq!(check(&["latput", "mod"], &["moderate", "model"]), 2);
    check(&["latput", "show", "l"], &["lo"]);
    assert_eq!(
        check(&["latput", "measure", "--workload", "tcp_"], &["tcp_rr", "tcp_crr", "tcp_stream"]),
        5
    );
    assert_eq!(check(&["latput", "tune", "--goal", "la"], &["latency"]), 1);
    check(&["latput", "tune", "--on", ""], &["lab", "loopback", "rack.toml", "sim:server-10g"]);
    assert_eq!(check(&["latput", "tune", "--on", "sim:server"], &["sim:server-10g"]), 1);
    // A flag that no help shows is not offered.
    check(&["latput", "set", "--m"], &[""]);
}

#[test]
fn simulated_systems_are_listed() {
    let place = Place::new();
    place.run(&["sim", "list"]).expect(0, &["sim:server-10g", "sim:rx1620-e1000", "10Gbps"]);
    let listed: serde_json::Value =
        serde_json::from_str(&place.run(&["sim", "list", "--json"]).out).unwrap();
    for system in listed["systems"].as_array().unwrap() {
        let on = format!("sim:{}", system["name"].as_str().unwrap());
        place.write("plan.toml", "schema = 1\n[[workload]]\nkind = \"ping\"\n");
        place.run(&["run", "plan.toml", "--on", &on, "--check"]).expect(0, &[]);
    }
}

/// The names of the manual's pages, which are in the folder now.
fn write_manual(place: &Place) -> Vec<String> {
    place.run(&["man", "--output-dir", "."]).expect(0, &[]);
    std::fs::read_dir(place.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".1"))
        .collect()
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new();
    let pages = write_manual(&place);
    for page in ["latput.1", "latput-tune.1", "latput-lab-exec.1"] {
        assert!(pages.iter().any(|it| it == page), "{pages:?}");
    }
    assert!(!pages.iter().any(|it| it.contains("watcher")), "{pages:?}");
    let tune = std::fs::read_to_string(place.path("latput-tune.1")).unwrap();
    assert_eq!(place.run(&["man", "tune"]).out, tune);
    assert!(tune.contains(".SH NOTES\n.nf\nExamples:\n"), "{tune}");
}

#[needs("man")]
#[test]
fn man_reads_every_page_without_warning() {
    let place = Place::new();
    let pages = write_manual(&place);
    let mut man = Command::new("man");
    man.args(["--warnings", "-l"]).args(&pages).current_dir(place.path("."));
    let read = man.env("MANPAGER", "cat").env("MANWIDTH", "100").output().unwrap();
    let warnings = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success() && warnings.is_empty(), "{warnings}");
}

#[test]
fn unknown_manual_page_lists_known_ones() {
    let place = Place::new();
    place.run(&["man", "tunes"]).expect(2, &["latput has no command `tunes`", "tune, run"]);
    place.run(&["man", "lab", "x"]).expect(2, &["latput lab has no command `x`", "up, down, exec"]);
    place.run(&["man", "set", "x"]).expect(2, &["latput set has no command `x`", "it has none"]);
}
