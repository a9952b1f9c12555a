//! Commands that help and documents print are run as printed, in a world that is gone afterwards: namespaces of their
//! own for network, mounts and processes, and a folder with the files that are named.
//!
//! What measures is run for a moment or with `--check`. What needs hosts of its own, or files of another program, is
//! only parsed, and listed with the reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};

use super::documents::{check_arguments, documents_of, latput_lines, printed_blocks};
use super::tally::Tally;
use crate::workspace::{Workspace, remove_folder, run_checked};

/// Subcommands that are run. Others need a host of their own, change files of the system, or take minutes.
const RUN: &str = "tune run search measure report history metrics show log set confirm undo restore export-settings explain \
    model sim plan hosts completions man fleet lab keep import diagnose snapshot watch";
/// Why the other subcommands are not run.
const NOT_RUN: &[(&str, &str)] = &[
    (HOSTS, "apply agent"),
    (SERVICE, "moderate"),
    (MINUTES, "calibrate reproduce"),
    (FILES, "merge"),
    (GUEST, "vm"),
    ("say only what `--help` says", "help"),
];
const HOSTS: &str = "need other hosts";
const TRAFFIC: &str = "need live traffic or a NIC of this host";
const FILES: &str = "need files that the example before them makes, or another program";
const GUEST: &str = "need a guest";
const SERVICE: &str = "go on until they are ended";
const MINUTES: &str = "take minutes";
const PATTERN: &str = "have words that stand for others";
/// Words that say what a command needs that is not here. The first that fits is the reason.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        HOSTS,
        "ssh:// netns:// iperf3:// netperf:// exec: rack.toml testbed.toml hosts.ini --hosts-from pair1.toml nodes.toml \
         --peer pairs",
    ),
    (TRAFFIC, "--live --observe"),
    (GUEST, "vm:"),
    (FILES, "--ask-tell --shard --prometheus --predicted --fitted twin."),
    (SERVICE, "unix: --daemon"),
];
/// Answers of a command that has run: what they say depends on the interface of this world, and on what was changed
/// before.
const ANSWERS: &[(&str, i32, &str)] = &[
    ("set", 1, "cannot be set here"),
    ("set", 1, "waits to be confirmed"),
    ("confirm", 1, "waits to be confirmed"),
    ("undo", 1, ""),
    ("undo", 2, "the journal has no entry"),
    ("restore", 1, ""),
    ("export-settings", 1, ""),
    ("export-settings", 2, "does not know the driver"),
    ("export-settings", 2, "a veth is below"),
    ("fleet", 1, "no rollout is in force"),
    ("fleet", 1, "no rollout is under way"),
    ("fleet", 2, "no host has a change of"),
    ("keep", 1, "nothing is kept"),
    ("keep", 2, "a simulated host was measured"),
    ("fleet", 8, ""),
    ("fleet", 6, ""),
];
/// Most time of one command.
const LONGEST: &str = "60";

/// The plan of the results that commands read: in the simulator it recommends to set the second setting.
const PLAN: &str = include_str!("printed.toml");

/// The folder that stands for `/` where files of the host would be written.
const IMAGE: &str = "image";

/// A network, mount and process namespace with an interface `eth0`. `/run` is empty.
const WORLD: &str = "mount -t tmpfs tmpfs /run; mount -t sysfs sysfs /sys; ip link set lo up; \
    ip link add eth0 type veth peer name eth1; ip link set eth0 up; ip link set eth1 up; \
    ip address add 192.0.2.1/24 dev eth0; ethtool -K eth0 gro on\n";

/// A command that is printed somewhere.
struct PrintedCommand {
    place: String,
    words: Vec<String>,
}

impl PrintedCommand {
    fn name(&self) -> String {
        format!("{}: latput {}", self.place, self.words.join(" "))
    }
}

/// Runs every command of help, README.md and docs/ that can be run here.
pub fn check_printed(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    if tally.skips_without(&["unshare"]) {
        return Ok(());
    }
    let binary = workspace.built_latput()?;
    let mut not_run: BTreeMap<&str, Vec<PrintedCommand>> = BTreeMap::new();
    for (page, commands) in collect_commands(&workspace.root, &binary)? {
        let mut run = Vec::new();
        for printed in commands {
            match why_not(&printed.words) {
                None => run.push(printed),
                Some(reason) => not_run.entry(reason).or_default().push(printed),
            }
        }
        if !run.is_empty() {
            run_page(&page, &run, &binary, tally)?;
        }
    }
    parse(&not_run, &binary, tally)?;
    ensure!(tally.failed == 0, "{} printed commands fail", tally.failed);
    Ok(())
}

/// Lets latput parse the commands that are not run, and says why they are not. Their list is beside the binary.
fn parse(
    not_run: &BTreeMap<&str, Vec<PrintedCommand>>,
    binary: &Path,
    tally: &mut Tally,
) -> Result<()> {
    let list = binary.with_file_name("xtask-printed-not-run.txt");
    let mut text = String::new();
    for (reason, commands) in not_run {
        for printed in commands {
            let _ = writeln!(text, "{reason}: {}", printed.name());
            if let Err(error) = check_arguments(&printed.words, binary) {
                tally.record_result(&printed.name(), Err(error.context("it cannot be parsed")));
            }
        }
        println!("not run, only parsed: {:>3} {reason}", commands.len());
    }
    fs::write(&list, text).with_context(|| format!("cannot write {}", list.display()))?;
    println!("the commands that were not run are listed in {}", list.display());
    Ok(())
}

/// The commands of each page of help and of each document.
fn collect_commands(root: &Path, binary: &Path) -> Result<Vec<(String, Vec<PrintedCommand>)>> {
    let mut pages = Vec::new();
    let verbs = std::iter::once(RUN).chain(NOT_RUN.iter().map(|(_, verbs)| *verbs));
    for name in std::iter::once("").chain(verbs.flat_map(|verbs| verbs.split(' '))) {
        let words = [name, "--help"].into_iter().filter(|word| !word.is_empty());
        let help = Command::new(binary).args(words).env("COLUMNS", "100").output()?;
        let text = String::from_utf8_lossy(&help.stdout).into_owned();
        pages.push((format!("latput {name} --help"), commands_of(&text, &format!("help {name}"))));
    }
    for document in documents_of(root)? {
        let text = fs::read_to_string(&document)?;
        let name = document.strip_prefix(root).unwrap_or(&document).display().to_string();
        let mut commands = Vec::new();
        for (line, block) in printed_blocks(&text) {
            for words in latput_lines(&block) {
                commands.push(PrintedCommand { place: format!("{name}:{line}"), words });
            }
        }
        pages.push((name, commands));
    }
    Ok(pages)
}

/// The examples of a help: lines that begin with two spaces and latput, with what follows behind `\`.
fn commands_of(help: &str, place: &str) -> Vec<PrintedCommand> {
    let joined = help.replace(" \\\n", " ");
    let examples = joined
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| line.starts_with("latput "));
    let lines = examples.flat_map(|line| latput_lines(&strip_explanation(line)));
    lines.map(|words| PrintedCommand { place: place.to_owned(), words }).collect()
}

/// An example without what explains it, which stands apart. Within a command two spaces are between joined lines only.
fn strip_explanation(line: &str) -> String {
    let parts: Vec<&str> = line.split("  ").collect();
    let is_word = |part: &&str| part.trim_start().starts_with(['-', '\'']);
    let mut command = parts[0].to_owned();
    let rest = parts[1..].iter().filter(|part| !part.trim().is_empty());
    for part in rest.take_while(|part| is_word(part)) {
        command.push(' ');
        command.push_str(part.trim());
    }
    command
}

/// Why a command is not run; `None` for one that is.
fn why_not(words: &[String]) -> Option<&'static str> {
    let verb = words.first()?;
    let is_pattern = |word: &String| {
        let letters: String = word.chars().filter(char::is_ascii_alphabetic).collect();
        word.contains("...")
            || word.starts_with('[')
            || (letters.len() > 1 && letters.chars().all(|c| c.is_ascii_uppercase()))
    };
    if words.iter().any(is_pattern) {
        return Some(PATTERN);
    }
    let is_shard_of_plan = verb == "run" && words.iter().any(|word| word.starts_with("sim:"));
    let mut words_asked = words.iter().filter(|word| !(is_shard_of_plan && *word == "--shard"));
    let reason_of = |word: &String| {
        let has_sign = |signs: &str| signs.split(' ').any(|sign| word.contains(sign));
        ELSEWHERE.iter().find(|(_, signs)| has_sign(signs)).map(|(reason, _)| *reason)
    };
    if let Some(reason) = words_asked.find_map(reason_of) {
        return Some(reason);
    }
    if verb == "fleet" && words.get(1).is_none_or(|word| word == "confirm") {
        return Some(HOSTS);
    }
    if verb == "tune" && words.iter().any(|word| word == "eth0") {
        return Some(TRAFFIC);
    }
    if verb == "diagnose" && words.get(1).is_none_or(|word| word != "eth0") {
        return Some(FILES);
    }
    if verb == "import"
        && words.get(1).is_none_or(|word| Path::new(word).extension() != Some("html".as_ref()))
    {
        return Some(FILES);
    }
    let has_verb = |verbs: &str| verbs.split(' ').any(|one| one == verb);
    if has_verb(RUN) {
        return None;
    }
    let of_verb = NOT_RUN.iter().find(|(_, verbs)| has_verb(verbs));
    Some(of_verb.map_or("are of no subcommand that this step knows", |(reason, _)| *reason))
}

/// The command that is run for a printed one: a measurement is checked, or runs for a moment.
fn bound_command(words: &[String]) -> Vec<&str> {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    if words[0] == "tune" && words.contains(&"--command") {
        words.splice(0..1, ["measure", "lab"]);
    }
    // A folder in the place of this host's `/`.
    if words[0] == "keep"
        && let Some(place) = words.iter().position(|word| *word == "--root")
    {
        words[place + 1] = IMAGE;
    }
    // Two looks a moment apart in the place of ten seconds, or of no end.
    if matches!(words[0], "diagnose" | "snapshot" | "watch") {
        words.extend(["--for", "1s"]);
        if let Some(place) = words.iter().position(|word| *word == "--for")
            && place + 2 < words.len()
        {
            words.drain(place..place + 2);
        }
    }
    let is_bound = words.iter().any(|word| *word == "--shard" || word.starts_with("--check"));
    if matches!(words[0], "tune" | "run") && !is_bound {
        words.push("--check");
    }
    let is_for_busy_hosts =
        ["--as-it-is", "--beside", "--quiet-within"].iter().any(|flag| words.contains(flag));
    let more: &[&str] = match words[..] {
        // CI is at work here.
        ["tune" | "run", ..] if words.contains(&"--check") && !is_for_busy_hosts => &["--as-it-is"],
        ["keep", ..] => &["--root", IMAGE],
        ["measure", ..] => &["--repetitions", "2..2"],
        ["fleet", "apply", ..] => &["--dry-run"],
        _ => &[],
    };
    if more.first().is_some_and(|flag| !words.contains(flag)) {
        words.extend(more);
    }
    let silent = ["--yes", "--dry-run", "--check", "--watch"];
    if words[0] == "keep" && !silent.iter().any(|flag| words.contains(flag)) {
        words.push("--yes"); // nobody is here to ask
    }
    words
}

fn run_page(
    page: &str,
    commands: &[PrintedCommand],
    binary: &Path,
    tally: &mut Tally,
) -> Result<()> {
    let folder = binary.with_file_name("xtask-printed");
    remove_folder(&folder)?;
    fs::create_dir_all(folder.join("bin"))?;
    std::os::unix::fs::symlink(binary, folder.join("bin/latput"))?;
    write_input_files(&folder, commands, binary)?;
    let mut script = String::from(WORLD);
    for (idx, printed) in commands.iter().enumerate() {
        let words: Vec<String> =
            bound_command(&printed.words).into_iter().map(quote_word).collect();
        let words = words.join(" ");
        let _ = writeln!(
            script,
            "timeout {LONGEST} latput {words} >out.{idx} 2>err.{idx} </dev/null; echo $? >code.{idx}"
        );
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let world = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    Command::new("unshare")
        .args(world)
        .args(["sh", "-c", &script])
        .current_dir(&folder)
        .env("PATH", format!("{}:{path}", folder.join("bin").display()))
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run the commands of {page}"))?;
    for (idx, printed) in commands.iter().enumerate() {
        let read = |name: &str| {
            fs::read_to_string(folder.join(format!("{name}.{idx}"))).unwrap_or_default()
        };
        let code = read("code").trim().parse::<i32>().unwrap_or(-1);
        let err = read("err");
        let is_answer = ANSWERS.iter().any(|(verb, answer, says)| {
            printed.words[0] == *verb && code == *answer && err.contains(says)
        });
        let is_right = code == 0 || is_answer;
        let wrong = || Err(anyhow!("exit code {code}: {}", err.trim()));
        tally.record_result(&printed.name(), if is_right { Ok(()) } else { wrong() });
    }
    remove_folder(&folder)
}

/// Writes the files that the commands read: plans, an inventory of this host, and results of the simulator.
fn write_input_files(folder: &Path, commands: &[PrintedCommand], binary: &Path) -> Result<()> {
    let inventory = "schema = 1\n[group.web]\nhosts = [\"eth0\"]\nsettings = { mtu = 1400 }\n";
    fs::write(folder.join("inventory.toml"), inventory)?;
    fs::write(folder.join("plan.toml"), PLAN)?;
    fs::create_dir_all(folder.join(IMAGE).join("etc"))?;
    // Two runs in one file, and one of another day in another.
    for file in ["made.db", "made.db", "other.db"] {
        run_latput(binary, folder, &["run", "plan.toml", "--on", "sim:server-10g", "-o", file])?;
    }
    for printed in commands {
        for (idx, word) in printed.words.iter().enumerate() {
            let is_output = idx > 0
                && ["-o", "--output", "--save", "--report"]
                    .contains(&printed.words[idx - 1].as_str());
            let path = PathBuf::from(word.split('#').next().unwrap_or_default());
            let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
            let at = folder.join(&path);
            if is_output
                || path.is_absolute()
                || at.exists()
                || !["db", "toml", "html"].contains(&extension)
            {
                continue;
            }
            fs::create_dir_all(at.parent().unwrap_or(folder))?;
            match extension {
                "db" if word.starts_with("after") => {
                    fs::copy(folder.join("other.db"), &at).map(drop)?;
                }
                "db" => fs::copy(folder.join("made.db"), &at).map(drop)?,
                "html" => {
                    let to = path.to_string_lossy();
                    run_latput(binary, folder, &["report", "made.db", "--share", "-o", &to])?;
                }
                _ => fs::write(&at, PLAN)?,
            }
        }
    }
    Ok(())
}

/// Runs latput on the files of the check.
fn run_latput(binary: &Path, folder: &Path, words: &[&str]) -> Result<()> {
    let mut command = Command::new(binary);
    command.args(words).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    run_checked(&mut command).with_context(|| format!("latput {words:?}"))
}

fn quote_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn examples_are_found_without_their_explanations() {
        let help = "Examples:\n  latput show          all\n  latput set eth0 a=1 \\\n      --dry-run   what\n      below\n";
        let found: Vec<String> =
            commands_of(help, "x").iter().map(|it| it.words.join(" ")).collect();
        assert_eq!(found, ["show", "set eth0 a=1 --dry-run"]);
    }

    #[test]
    fn host_and_pattern_commands_are_skipped() {
        for (line, why) in [
            ("show eth0", None),
            ("show IFACE", Some(PATTERN)),
            ("tune ssh://a ssh://b", Some(HOSTS)),
            ("tune eth0", Some(TRAFFIC)),
            ("apply results.db", Some(HOSTS)),
            ("run p.toml --on sim:x --shard 1/2", None),
            ("search p.toml --on sim:x --shard 1/2", Some(FILES)),
            ("import iperf3 a.json", Some(FILES)),
            ("plan twin", None),
            ("run twin.toml --on sim:x", Some(FILES)),
            ("no-such-verb", Some("are of no subcommand that this step knows")),
        ] {
            assert_eq!(why_not(&split_words(line)), why, "{line}");
        }
    }

    #[test]
    fn what_measures_is_bounded() {
        assert_eq!(
            bound_command(&split_words("tune --goal cpu")).join(" "),
            "tune --goal cpu --check --as-it-is"
        );
        for (line, more) in [("tune p.toml --beside", " --check"), ("tune --check", " --as-it-is")]
        {
            let bound = bound_command(&split_words(line)).join(" ");
            assert_eq!(bound, format!("{line}{more}"));
        }
        assert_eq!(
            bound_command(&split_words("tune --command x")).join(" "),
            "measure lab --command x --repetitions 2..2"
        );
        assert_eq!(bound_command(&split_words("show eth0")).join(" "), "show eth0");
        let shard = "run p.toml --on sim:x --shard 1/2";
        assert_eq!(bound_command(&split_words(shard)).join(" "), shard);
        // Never the files of this host.
        for (line, expected) in [
            ("keep --remove eth0", "keep --remove eth0 --root image --yes"),
            ("keep r.db --dry-run", "keep r.db --dry-run --root image"),
            ("keep eth0 --root /mnt --yes", "keep eth0 --root image --yes"),
            ("keep --check", "keep --check --root image"),
        ] {
            assert_eq!(bound_command(&split_words(line)).join(" "), expected);
        }
    }
}
