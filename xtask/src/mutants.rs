//! `cargo xtask mutants`: breaks the code in one place at a time (cargo-mutants, <https://mutants.rs>), runs
//! the tests of its crate, and counts the breaks that no test sees.
//!
//! `.cargo/mutants.toml` says what is broken, `xtask/mutants.toml` which survivors are accepted and why.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use latput_stats::share::wilson;
use serde::Deserialize;

use crate::workspace::{
    Workspace, capture_output, cargo_command, folder_of, make_folder, run_checked,
};

/// Draws of each property test, and where they begin: a survivor of one run is one of the next.
const PROPERTY_TESTS: [(&str, &str); 2] = [("PROPTEST_CASES", "64"), ("PROPTEST_RNG_SEED", "1")];

/// More survivors than this share of a crate's viable mutants, less those that are accepted, are an error.
const MOST_SURVIVORS: f64 = 0.05;

/// Which of them.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask mutants                               all of them: hours
  cargo xtask mutants --package latput-stats
  cargo xtask mutants --package latput-model --shard 7/20

A shard is a sample: it says how large the share of survivors is in the whole package. The interval of 95% is Wilson's.

Logs and diffs of each mutant are in target/mutants/<package>/mutants.out.")]
pub struct Options {
    /// Every N-th mutant of each package, from K, which counts from 0: a sample of all its files.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// This package only; may be given more than once.
    #[arg(long, value_name = "PACKAGE")]
    package: Vec<String>,
}

/// One break of the code, as cargo-mutants lists it.
#[derive(Debug, Deserialize)]
struct ListedMutant {
    name: String,
    package: String,
}

/// How often a name may survive, for each name of `xtask/mutants.toml`.
type AcceptedSurvivors = BTreeMap<String, usize>;

/// Fate of a mutant in the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum MutantFate {
    /// A test failed.
    #[serde(rename = "CaughtMutant")]
    Killed,
    /// No test failed.
    #[serde(rename = "MissedMutant")]
    Survived,
    /// The tests did not end: seen, if the machine did not stop meanwhile.
    #[serde(rename = "Timeout")]
    TimedOut,
    /// It does not compile, so it is no mutant.
    Unviable,
}

/// A mutant's name without its place, and its fate.
type MutantOutcome = (String, MutantFate);

/// Runs the chosen ones; an error where too many survive, or a line of the accepted is out of date.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    // A debug build takes half as long, and most of the time goes to the compiler and the tests.
    if capture_output(cargo_command().args(["mutants", "--version"])).is_err() {
        let words = ["install", "--locked", "--debug", "cargo-mutants"];
        run_checked(cargo_command().args(words)).context("cannot install cargo-mutants")?;
    }
    let text = std::fs::read_to_string(workspace.root.join("xtask/mutants.toml"))
        .context("cannot read xtask/mutants.toml")?;
    let accepted = parse_accepted(&text)?;
    let listed = list_mutants(workspace)?;
    check_listed(&accepted, &listed.values().flatten().collect::<Vec<_>>())?;
    for name in &options.package {
        let packages: Vec<&String> = listed.keys().collect();
        ensure!(
            listed.contains_key(name),
            "no mutants of `{name}` are in scope; the packages are {packages:?}"
        );
    }
    let is_wanted =
        |name: &str| options.package.is_empty() || options.package.iter().any(|it| it == name);
    let mut lines = Vec::new();
    let mut is_good = true;
    for (package, names) in listed.iter().filter(|(package, _)| is_wanted(package)) {
        let outcomes = test_mutants(workspace, package, options.shard.as_deref())?;
        let verdict = PackageVerdict::new(&outcomes, names, &accepted);
        lines.push(format!("{package:<17} {}", verdict.describe()));
        lines.extend(verdict.surplus.iter().map(|name| format!("survived: {name}")));
        lines.extend(verdict.outdated.iter().map(|name| format!("accepted, but seen: {name}")));
        is_good &= verdict.is_good();
    }
    println!("\n{}", lines.join("\n"));
    ensure!(is_good, "mutants survive that are not accepted, or accepted ones do not");
    Ok(())
}

/// The names of all mutants in scope, without their places, by package.
fn list_mutants(workspace: &Workspace) -> Result<BTreeMap<String, Vec<String>>> {
    let line = ["mutants", "--list", "--json", "--workspace"];
    let text = capture_output(cargo_command().args(line).current_dir(&workspace.root))?;
    let mutants: Vec<ListedMutant> = serde_json::from_str(&text).context("cannot read the list")?;
    let mut listed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for mutant in mutants {
        listed.entry(mutant.package).or_default().push(without_place(&mutant.name));
    }
    Ok(listed)
}

/// `src/a.rs:12:5: replace f` as `src/a.rs: replace f`: lines move.
fn without_place(name: &str) -> String {
    match name.splitn(4, ':').collect::<Vec<_>>()[..] {
        [file, _, _, change] => format!("{file}:{change}"),
        _ => name.to_owned(),
    }
}

/// Tests a package's mutants, one at a time: tests that measure time share the machine with nothing.
fn test_mutants(
    workspace: &Workspace,
    package: &str,
    shard: Option<&str>,
) -> Result<Vec<MutantOutcome>> {
    let folder = workspace.target.join("mutants");
    let out = folder.join(package);
    make_folder(&out)?;
    let mut command = cargo_command();
    command.args(["mutants", "--jobs", "1", "--package", package, "--output"]).arg(&out);
    if let Some(shard) = shard {
        command.args(["--sharding=round-robin", "--shard", shard]);
    }
    // Integration tests take the library, which the unit tests alone do without: half of the compiler's time. `--tests`
    // would build examples too.
    let tests = workspace.root.join("crates").join(folder_of(package)).join("tests");
    command.args(tests.is_dir().then_some("--cargo-test-arg=--test=*"));
    // The dependencies are built once, and not for each copy of the tree.
    command.env("CARGO_TARGET_DIR", folder.join("build")).envs(PROPERTY_TESTS);
    let status =
        command.current_dir(&workspace.root).status().context("cannot start cargo-mutants")?;
    match status.code() {
        // All are seen; some survive; some time out.
        Some(0 | 2 | 3) => {
            let file = out.join("mutants.out/outcomes.json");
            let text = std::fs::read_to_string(&file).map_err(anyhow::Error::from);
            let outcomes = text.and_then(|text| parse_outcomes(&text));
            outcomes.with_context(|| format!("cannot read {}", file.display()))
        }
        Some(4) => bail!("the tests of {package} fail without a mutant"),
        _ => bail!("cargo-mutants ended with {status}"),
    }
}

/// Reads `outcomes.json` of cargo-mutants; the run without a mutant is left out.
fn parse_outcomes(text: &str) -> Result<Vec<MutantOutcome>> {
    let document: serde_json::Value = serde_json::from_str(text)?;
    let mut outcomes = Vec::new();
    for outcome in document["outcomes"].as_array().context("there are no outcomes")? {
        if let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() {
            let fate = MutantFate::deserialize(&outcome["summary"]).context(name.to_owned())?;
            outcomes.push((without_place(name), fate));
        }
    }
    Ok(outcomes)
}

/// Reads the list; each name has one line, and each line a reason.
fn parse_accepted(text: &str) -> Result<AcceptedSurvivors> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SurvivorList {
        accepted: Vec<SurvivorEntry>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SurvivorEntry {
        mutant: String,
        times: Option<usize>,
        reason: String,
    }
    let list: SurvivorList = toml::from_str(text).context("cannot read the accepted survivors")?;
    let mut accepted = AcceptedSurvivors::new();
    for SurvivorEntry { mutant, times, reason } in list.accepted {
        ensure!(!reason.trim().is_empty() && times != Some(0), "`{mutant}` has no reason");
        let before = accepted.insert(mutant.clone(), times.unwrap_or(1));
        ensure!(before.is_none(), "`{mutant}` is accepted twice");
    }
    Ok(accepted)
}

/// An error where a line names none of the mutants in scope.
fn check_listed(accepted: &AcceptedSurvivors, listed: &[&String]) -> Result<()> {
    for (mutant, times) in accepted {
        let there = listed.iter().filter(|name| **name == mutant).count();
        ensure!(there >= *times, "`{mutant}`: {there} mutants have this name");
    }
    Ok(())
}

/// The figures of one package.
#[derive(Debug, Default)]
struct PackageVerdict {
    /// Mutants that compile.
    viable: usize,
    accepted: usize,
    /// Names of survivors that nobody accepted, each as often as it is one too many.
    surplus: Vec<String>,
    /// Names of accepted survivors that were seen.
    outdated: Vec<String>,
}

impl PackageVerdict {
    /// Of the mutants of a package that were run, of all that are `listed`.
    fn new(outcomes: &[MutantOutcome], listed: &[String], accepted: &AcceptedSurvivors) -> Self {
        let mut fates: BTreeMap<&str, Vec<MutantFate>> = BTreeMap::new();
        for (name, fate) in outcomes {
            fates.entry(name).or_default().push(*fate);
        }
        let mut verdict = Self::default();
        for (name, fates) in fates {
            let times = |fate: MutantFate| fates.iter().filter(|it| **it == fate).count();
            let (survived, timed_out) = (times(MutantFate::Survived), times(MutantFate::TimedOut));
            let allowed = accepted.get(name).copied().unwrap_or(0);
            verdict.viable += fates.len() - times(MutantFate::Unviable);
            verdict.accepted += survived.min(allowed);
            verdict.surplus.extend((allowed..survived).map(|_| name.to_owned()));
            // A shard may hold some of a name only; the others may be the survivors.
            let is_whole = fates.len() == listed.iter().filter(|other| *other == name).count();
            // A machine that stops for a while lets any mutant time out.
            if is_whole && survived + timed_out < allowed {
                verdict.outdated.push(name.to_owned());
            }
        }
        verdict
    }

    /// Whether few enough survive, and all that are accepted do.
    fn is_good(&self) -> bool {
        let most = MOST_SURVIVORS * self.viable as f64;
        self.surplus.len() as f64 <= most && self.outdated.is_empty()
    }

    /// The survivors that nobody accepted, and what a sample says of the whole package.
    fn describe(&self) -> String {
        let Self { viable, accepted, surplus, .. } = self;
        let (low, high) = wilson(surplus.len() as u64, *viable as u64);
        let verdict = match () {
            () if high <= MOST_SURVIVORS => "within 5%",
            () if low > MOST_SURVIVORS => "more than 5%",
            () => "may be more than 5%, or less",
        };
        let (low, high) = (low * 100.0, high * 100.0);
        format!(
            "{} of {viable} survive ({accepted} accepted besides), 95%: {low:.1} to {high:.1}%: {verdict}",
            surplus.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"
        [[accepted]]
        mutant = "a.rs: replace < with <= in f"
        times = 2
        reason = "equal at zero"
    "#;

    #[test]
    fn outcomes_exclude_the_baseline_run() {
        // The form of cargo-mutants 27.1.
        let text = r#"{"outcomes": [
            {"scenario": "Baseline", "summary": "Success"},
            {"scenario": {"Mutant": {"name": "a.rs:3:4: replace ::f -> u8 with 1", "package": "p"}},
             "summary": "MissedMutant"}], "total_mutants": 1}"#;
        let wanted = make_outcome("a.rs: replace ::f -> u8 with 1", MutantFate::Survived);
        assert_eq!(parse_outcomes(text).unwrap(), [wanted]);
        let unknown = text.replace("MissedMutant", "Lost");
        let error = parse_outcomes(&unknown).unwrap_err().to_string();
        assert!(error.contains("a.rs:3:4"), "{error}");
    }

    #[test]
    fn one_survivor_in_twenty_passes() {
        let (lines, viable) = (["b.rs: x", "c.rs: y"], 20);
        for (survivors, is_good) in [(1, true), (2, false)] {
            let mut outcomes =
                vec![make_outcome("k.rs: z", MutantFate::Killed); viable - survivors];
            outcomes
                .extend(lines[..survivors].iter().map(|it| make_outcome(it, MutantFate::Survived)));
            outcomes.extend(vec![make_outcome("u.rs: w", MutantFate::Unviable); 100]);
            let verdict = judge_outcomes(&outcomes);
            assert_eq!((verdict.is_good(), verdict.viable), (is_good, viable));
            assert_eq!(verdict.surplus.len(), survivors);
        }
    }

    #[test]
    fn sample_shows_share_and_proof() {
        let survivor = make_outcome("b.rs: x", MutantFate::Survived);
        let cases = [
            // Wilson: z^2 / (n + z^2) for none.
            (0, 100, "0 of 100 survive (0 accepted besides), 95%: 0.0 to 3.7%: within 5%"),
            (
                0,
                70,
                "0 of 70 survive (0 accepted besides), 95%: 0.0 to 5.2%: may be more than 5%, or less",
            ),
            (15, 62, "15 of 62 survive (0 accepted besides), 95%: 15.2 to 36.2%: more than 5%"),
        ];
        for (survived, viable, wanted) in cases {
            let mut outcomes = vec![make_outcome("k.rs: z", MutantFate::Killed); viable - survived];
            outcomes.extend(vec![survivor.clone(); survived]);
            assert_eq!(judge_outcomes(&outcomes).describe(), wanted);
        }
        let accepted = vec![make_outcome("a.rs: replace < with <= in f", MutantFate::Survived); 2];
        assert!(judge_outcomes(&accepted).describe().starts_with("0 of 2 survive (2 accepted"));
    }

    #[test]
    fn accepted_survivors_do_not_count() {
        let name = "a.rs: replace < with <= in f";
        let twice =
            [make_outcome(name, MutantFate::Survived), make_outcome(name, MutantFate::Survived)];
        assert!(judge_outcomes(&twice).is_good());
        let three = [twice.as_slice(), &twice[..1]].concat();
        assert_eq!(judge_outcomes(&three).surplus, [name]);
        for (fate, is_good) in [(MutantFate::Killed, false), (MutantFate::TimedOut, true)] {
            let verdict = judge_outcomes(&[
                make_outcome(name, fate),
                make_outcome(name, MutantFate::Survived),
            ]);
            assert_eq!((verdict.is_good(), verdict.outdated.is_empty()), (is_good, is_good));
        }
    }

    #[test]
    fn named_shard_leaves_rest_unknown() {
        let name = "a.rs: replace < with <= in f";
        let listed = vec![name.to_owned(); 3];
        let accepted = parse_accepted(LIST).unwrap();
        let outcomes = [make_outcome(name, MutantFate::Killed)];
        assert!(PackageVerdict::new(&outcomes, &listed, &accepted).is_good());
    }

    #[test]
    fn line_needs_a_reason_and_a_mutant() {
        let error = |text: &str| parse_accepted(text).unwrap_err().to_string();
        assert!(error(&LIST.replace("equal at zero", " ")).contains("no reason"));
        assert!(error(&LIST.repeat(2)).contains("twice"));
        let name = "a.rs: replace < with <= in f".to_owned();
        let accepted = parse_accepted(LIST).unwrap();
        let error = check_listed(&accepted, &[&name]).unwrap_err().to_string();
        assert!(error.contains("1 mutants"), "{error}");
        check_listed(&accepted, &[&name, &name]).unwrap();
    }

    fn make_outcome(name: &str, fate: MutantFate) -> MutantOutcome {
        (name.to_owned(), fate)
    }

    /// All that are listed were run.
    fn judge_outcomes(outcomes: &[MutantOutcome]) -> PackageVerdict {
        let listed: Vec<String> = outcomes.iter().map(|it| it.0.clone()).collect();
        PackageVerdict::new(outcomes, &listed, &parse_accepted(LIST).unwrap())
    }
}
