//! One exit code for one kind of mistake, over all commands that take a file.

use crate::Place;

const PLAN: &str = "schema = 1\nname = \"small\"\n[factors]\nrx-usecs = [0, 50]\n[[workload]]\nkind = \"tcp_rr\"\n\
                    [method]\nduration = \"50ms\"\nwarmup = \"0ms\"\nrepetitions = { min = 2, max = 2 }\n";
const SIMULATED: [&str; 2] = ["--on", "sim:server-10g"];

/// The commands that read a file, in the place of `FILE`.
const READERS: &[&[&str]] = &[
    &["tune", "FILE", "--on", "sim:server-10g", "--check"],
    &["tune", "plan.toml", "--on", "FILE", "--check"],
    &["run", "FILE", "--on", "sim:server-10g"],
    &["run", "plan.toml", "--on", "FILE", "--check"],
    &["run", "plan.toml", "--on", "sim:./FILE", "--check"],
    &["search", "FILE", "--on", "sim:server-10g"],
    &["measure", "FILE", "--workload", "tcp_rr"],
    &["hosts", "FILE"],
    &["merge", "FILE", "-o", "new.db"],
    &["report", "FILE"],
    &["report", "FILE", "--list"],
    &["report", "--compare", "kept.db", "FILE"],
    &["report", "FILE", "--compare", "0us", "50us"],
    &["report", "kept.db", "--predicted", "FILE"],
    &["history", "kept.db", "FILE"],
    &["explain", "FILE"],
    &["diagnose", "FILE"],
    &["model", "fit", "FILE"],
    &["model", "twin", "FILE", "-o", "twin.toml"],
    &["apply", "FILE"],
    &["keep", "FILE", "--root", ".", "--dry-run"],
    &["export-settings", "FILE", "--format", "udev"],
    &["fleet", "show", "-i", "FILE"],
    &["fleet", "verify", "-i", "hosts.toml", "--from", "FILE"],
    &["fleet", "pairs", "kept.db", "FILE"],
    &["import", "FILE", "-o", "new.db"],
    &["import", "iperf3", "FILE", "-o", "new.db"],
    &["import", "netperf", "FILE", "-o", "new.db"],
    &["import", "flent", "FILE", "-o", "new.db"],
    &["sim", "trace", "--plan", "FILE", "-o", "traced"],
    &["sim", "snapshot", "--plan", "FILE", "-o", "looks.json"],
    &["calibrate", "--cells", "FILE", "-o", "new.toml"],
    &["reproduce", "--cells", "FILE"],
];
/// The commands that read one run, or one setting of it.
const OF_RUN: &[&[&str]] = &[
    &["report", "kept.db"],
    &["explain", "kept.db"],
    &["model", "fit", "kept.db"],
    &["model", "twin", "kept.db", "-o", "twin.toml"],
    &["apply", "kept.db"],
    &["keep", "kept.db", "--root", ".", "--dry-run", "--interface", "lo"],
    &["export-settings", "kept.db", "--format", "udev"],
];
const OF_SETTING: &[&[&str]] = &[
    &["report", "kept.db", "--compare", "0us", "NONE"],
    &["report", "--compare", "kept.db:0us", "kept.db:NONE"],
    &["report", "--compare", "kept.db", "kept.db#9"],
    &["report", "kept.db", "--predicted", "kept.db", "--fitted", "tcp_rr@NONE"],
    &["explain", "kept.db", "--setting", "NONE"],
    &["explain", "kept.db", "--workload", "NONE"],
    &["history", "kept.db", "--setting", "NONE"],
    &["history", "kept.db", "--metric", "NONE"],
    &["apply", "kept.db", "--setting", "NONE"],
    &["keep", "kept.db", "--setting", "NONE", "--root", ".", "--dry-run", "--interface", "lo"],
    &["export-settings", "kept.db", "--setting", "NONE", "--format", "udev"],
];

fn place_with_files() -> Place {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place.write("text", "throughput;latency\n");
    place.write(
        "hosts.toml",
        "schema = 1\n[group.web]\nhosts = [\"exec:false\"]\ninterface = \"eth0\"\n",
    );
    std::fs::create_dir(place.path("folder")).unwrap();
    place.run(&[&["run", "plan.toml", "-o", "kept.db"], &SIMULATED[..]].concat()).expect(0, &[]);
    place
}

#[test]
fn unusable_file_is_wrong_usage() {
    let place = place_with_files();
    for reader in READERS {
        for file in ["nowhere", "folder", "text"] {
            let args: Vec<String> = reader.iter().map(|word| word.replace("FILE", file)).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            place.run(&args).expect(2, &[file]);
        }
    }
    for reader in OF_RUN {
        place.run(&[reader, &["--run", "9"][..]].concat()).expect(2, &["no run 9"]);
    }
    for reader in OF_SETTING {
        let ran = place.run(reader);
        assert_eq!(ran.code, Some(2), "{reader:?}: {ran:#?}");
    }
}

/// A new command that takes a file is in the list above.
#[test]
fn list_has_every_command_with_files() {
    let place = Place::new();
    let help = place.run(&["--help"]).expect(0, &[]).out.clone();
    let named = help.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands = named.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
    let mut checked = 0;
    for command in commands.filter(|word| *word != "help") {
        let ran = place.run(&[command, "--help"]);
        let takes = |name: &str| {
            ["<", "[", "|"].iter().any(|start| ran.out.contains(&format!("{start}{name}")))
        };
        if ["FILE", "PLAN", "RESULTS", "TESTBED", "REPORT"].into_iter().any(takes) {
            assert!(READERS.iter().any(|reader| reader[0] == command), "{command}");
            checked += 1;
        }
    }
    assert!(checked > 10, "{checked}: {help}");
}
