//! The power is cut at every write, and the disk has lost what was not synced: no trial is lost that was told of, and a
//! configuration is the old one or the new one, with the record that takes it out again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use latput_testkit::needs;
use latput_units::SeededRng;

use crate::disk::{Disk, FileCall, Left, STRACE, lay_out, parse_calls};
use crate::{CommandOutput, Place, print_note};

const PLAN: &str = r#"
schema = 1
name = "cut"
[factors]
"gro-flush-timeout + napi-defer-hard-irqs" = [["0us", 0], ["50us", 10]]
[[workload]]
kind = "tcp_rr"
[method]
seed = 1
design = "blocks"
repetitions = { min = 3, max = 3 }
warmup = "1ms"
duration = "50ms"
"#;
const RUN: [&str; 6] = ["run", "plan.toml", "--on", "sim:server-10g", "-o", "disk/results.db"];
const KEEP: [&str; 7] =
    ["keep", "nic7", "mtu=9000", "rx-usecs=50us", "rps-cpus=0-1", "--root", "disk"];

/// The files that a cut may leave, each once, with the index of the call before which it came. `torn` disks are tried after
/// each call.
fn possible_cuts(calls: &[FileCall], folder: &Path, torn: usize) -> Vec<(usize, Left)> {
    let mut rng = SeededRng::from_seed(20_261_125);
    let mut seen = BTreeSet::new();
    let mut cuts = Vec::new();
    for end in 0..=calls.len() {
        let disk = Disk::from_calls(&calls[..end], folder);
        let torn: Vec<_> =
            (0..torn).map(|_| disk.files_after_cut(folder, Some(&mut rng))).collect();
        for left in [disk.files_after_cut(folder, None)].into_iter().chain(torn) {
            if seen.insert(left.clone()) {
                cuts.push((end, left));
            }
        }
    }
    cuts
}

/// Runs a command under strace; its calls below `folder`.
fn trace_calls(place: &Place, words: &[&str], folder: &Path) -> Vec<FileCall> {
    let ran = CommandOutput::from(place.wrapped_command(&STRACE, words).output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    parse_calls(&fs::read_to_string(place.path("calls")).unwrap(), folder)
}

#[needs("strace")]
#[test]
fn reported_trial_survives_power_cut() {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    fs::create_dir(place.path("disk")).unwrap();
    let folder = place.path("disk").canonicalize().unwrap();
    let calls = trace_calls(&place, &RUN, &folder);
    // But for the third column, the time of the start.
    let csv = |place: &Place| -> Vec<String> {
        let ran = place.run(&["report", "disk/results.db", "--format", "csv"]);
        let cells = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        let rows = ran.expect(0, &[]).out.lines().map(cells);
        rows.map(|mut row| {
            row.remove(2);
            row.join(",")
        })
        .collect()
    };
    let whole = csv(&place);
    let cuts = possible_cuts(&calls, &folder, 2);
    let (mut kept, mut resumed) = (BTreeMap::new(), 0);
    for (end, left) in &cuts {
        lay_out(left, &folder);
        let told = calls[..*end].iter().filter_map(reported_trials).max().unwrap_or(0);
        let trials = place.count_trials("disk/results.db");
        assert!(trials >= told, "call {end}: {trials} trials are there, and {told} were told of");
        *kept.entry(trials).or_insert(0) += 1;
        // The same command resumes: every third time, since it takes the longest.
        if end % 3 == 0 {
            place.run(&RUN).expect(0, &["6 trials"]);
            assert_eq!(csv(&place), whole, "call {end}");
            resumed += 1;
        }
    }
    print_note(&format!(
        "{} calls, {} disks, {resumed} resumed; by trials kept: {kept:?}",
        calls.len(),
        cuts.len()
    ));
    assert!(kept.len() > 3, "the cuts are before, within and after the trials: {kept:?}");
}

/// Trials that people were told of: `3/6 trials, ...`.
fn reported_trials(call: &FileCall) -> Option<i64> {
    let FileCall::Tell(text) = call else { return None };
    text.split_once("/6 trials")?.0.parse().ok()
}

#[needs("strace")]
#[test]
fn configuration_is_whole_and_removable() {
    let place = Place::new();
    fs::create_dir_all(place.path("disk/etc/systemd/network")).unwrap();
    fs::create_dir_all(place.path("disk/var/lib")).unwrap();
    let folder = place.path("disk").canonicalize().unwrap();
    let before = ["etc", "etc/systemd", "etc/systemd/network", "var", "var/lib"]
        .map(|it| FileCall::MakeFolder(folder.join(it)));
    let synced = ["", "etc", "etc/systemd", "var"]
        .map(|it| FileCall::Sync(folder.join(it).components().collect()));
    let mut calls_of_keep: Vec<FileCall> = before.into_iter().chain(synced).collect();
    let begun = calls_of_keep.len();
    calls_of_keep.extend(trace_calls(&place, &[&KEEP[..], &["--yes"]].concat(), &folder));
    let last = Disk::from_calls(&calls_of_keep, &folder).files_after_cut(&folder, None);
    let is_configuration = |path: &Path| path.starts_with("etc") && !is_part(path);
    let whole: BTreeMap<&PathBuf, &Option<Vec<u8>>> =
        last.iter().filter(|(path, bytes)| is_configuration(path) && bytes.is_some()).collect();
    assert!(whole.len() >= 2, "what was told of is on the disk: {:?}", last.keys());
    let mut removed = 0;
    for (end, left) in possible_cuts(&calls_of_keep, &folder, 8) {
        if end < begun {
            continue;
        }
        let files: Vec<&PathBuf> = left
            .iter()
            .filter(|(path, bytes)| is_configuration(path) && bytes.is_some())
            .map(|(path, _)| path)
            .collect();
        for path in &files {
            assert_eq!(
                Some(&&left[*path]),
                whole.get(path),
                "call {end}: {} is cut",
                path.display()
            );
        }
        if files.is_empty() {
            continue;
        }
        lay_out(&left, &folder);
        place.run(&["keep", "--remove", "nic7", "--root", "disk", "--yes"]).expect(0, &[]);
        for path in files {
            assert!(!folder.join(path).exists(), "call {end}: {} stays", path.display());
        }
        removed += 1;
    }
    print_note(&format!(
        "{} calls, {removed} configurations taken out again",
        calls_of_keep.len() - begun
    ));
    assert!(removed > 3, "{removed}");
}

/// A file that is being written, which no program reads.
fn is_part(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "part")
}
