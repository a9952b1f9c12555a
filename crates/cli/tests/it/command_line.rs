//! `latput completions` and `latput man`: made from the definition of the command line, read by the programs
//! that they are for.

use std::process::Command;

use crate::{Place, needs_program};

#[test]
fn completions_are_read_by_their_shell_and_name_no_hidden_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completions", shell]);
        script.expect(0, &["moderate", "confirm-within"]);
        assert!(!script.out.contains("watcher"), "{shell}");
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
fn bash_completes_a_command() {
    let place = Place::new();
    place.write("script", &place.run(&["completions", "bash"]).out);
    let complete = ". ./script; COMP_WORDS=(latput mod); COMP_CWORD=1; _latput latput mod latput; \
                    echo \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash").args(["-c", complete]).current_dir(place.path(".")).output();
    assert_eq!(String::from_utf8(bash.unwrap().stdout).unwrap(), "moderate model\n");
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new();
    place.run(&["man", "--output-dir", "."]).expect(0, &[]);
    let pages: Vec<String> = std::fs::read_dir(place.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".1"))
        .collect();
    for page in ["latput.1", "latput-tune.1", "latput-lab-exec.1"] {
        assert!(pages.iter().any(|it| it == page), "{pages:?}");
    }
    assert!(!pages.iter().any(|it| it.contains("watcher")), "{pages:?}");
    let tune = std::fs::read_to_string(place.path("latput-tune.1")).unwrap();
    assert_eq!(place.run(&["man", "tune"]).out, tune);
    assert!(tune.contains(".SH NOTES\n.nf\nExamples:\n"), "{tune}");
    if !needs_program("man") {
        let mut man = Command::new("man");
        man.args(["--warnings", "-l"]).args(&pages).current_dir(place.path("."));
        let read = man.env("MANPAGER", "cat").env("MANWIDTH", "100").output().unwrap();
        let warnings = String::from_utf8_lossy(&read.stderr);
        assert!(read.status.success() && warnings.is_empty(), "{warnings}");
    }
}

#[test]
fn a_page_of_no_command_is_refused_with_those_that_there_are() {
    let place = Place::new();
    place.run(&["man", "tunes"]).expect(2, &["latput has no command `tunes`", "tune, run"]);
    place.run(&["man", "lab", "x"]).expect(2, &["latput lab has no command `x`", "up, down, exec"]);
    place.run(&["man", "set", "x"]).expect(2, &["latput set has no command `x`", "there is none"]);
}
