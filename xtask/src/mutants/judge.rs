//! Fate of mutants, beside the survivors that are accepted.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, ensure};
use latput_stats::share::wilson;
use serde::Deserialize;

/// More survivors than this share of a crate's viable mutants, less those that are accepted, are an error.
const MOST_SURVIVORS: f64 = 0.05;

/// Above the lines of [`PackageVerdict`].
pub const HEADER: &str =
    "package            listed   run  viable  killed  timed out  survived  accepted";

/// The survivors that are accepted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedSurvivors {
    #[serde(default)]
    accepted: Vec<SurvivorEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SurvivorEntry {
    mutant: String,
    #[serde(default = "once")]
    times: usize,
    reason: String,
}

fn once() -> usize {
    1
}

/// One mutant, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutantOutcome {
    /// File, place and change; what is judged has no place.
    pub name: String,
    /// Whether the tests saw it.
    pub fate: MutantFate,
}

/// Fate of a mutant in the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum MutantFate {
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

/// The figures of one package.
#[derive(Debug)]
pub struct PackageVerdict {
    package: String,
    listed: usize,
    run: usize,
    killed: usize,
    timed_out: usize,
    survived: usize,
    accepted: usize,
    /// Names of survivors that nobody accepted, each as often as it is one too many.
    surplus: Vec<String>,
    /// Names of accepted survivors that were seen.
    outdated: Vec<String>,
}

/// `src/a.rs:12:5: replace f` as `src/a.rs: replace f`: lines move.
pub fn without_place(name: &str) -> String {
    let parts: Vec<&str> = name.splitn(4, ':').collect();
    match parts[..] {
        [file, _, _, change] => format!("{file}:{change}"),
        _ => name.to_owned(),
    }
}

impl AcceptedSurvivors {
    /// Reads the list; each name has one line, and each line a reason.
    pub fn parse(text: &str) -> Result<Self> {
        let list: Self = toml::from_str(text).context("cannot read the accepted survivors")?;
        for (index, it) in list.accepted.iter().enumerate() {
            ensure!(!it.reason.trim().is_empty() && it.times > 0, "`{}` has no reason", it.mutant);
            let others = &list.accepted[..index];
            let is_first = others.iter().all(|other| other.mutant != it.mutant);
            ensure!(is_first, "`{}` is accepted twice", it.mutant);
        }
        Ok(list)
    }

    /// An error where a line names none of the mutants in scope, which are `listed` without their places.
    pub fn check_listed(&self, listed: impl Iterator<Item = String>) -> Result<()> {
        let listed: Vec<String> = listed.collect();
        for it in &self.accepted {
            let there = listed.iter().filter(|name| **name == it.mutant).count();
            ensure!(there >= it.times, "`{}`: {there} mutants have this name", it.mutant);
        }
        Ok(())
    }

    fn accepted_times(&self, name: &str) -> usize {
        self.accepted.iter().find(|it| it.mutant == name).map_or(0, |it| it.times)
    }
}

impl MutantOutcome {
    /// Reads `outcomes.json` of cargo-mutants; the run without a mutant is left out.
    pub fn parse(text: &str) -> Result<Vec<Self>> {
        #[derive(Deserialize)]
        struct OutcomesFile {
            outcomes: Vec<OutcomeRecord>,
        }
        #[derive(Deserialize)]
        struct OutcomeRecord {
            scenario: Scenario,
            summary: serde_json::Value,
        }
        #[derive(Deserialize)]
        enum Scenario {
            Baseline,
            Mutant { name: String },
        }
        let all: OutcomesFile = serde_json::from_str(text)?;
        let mut outcomes = Vec::new();
        for OutcomeRecord { scenario, summary } in all.outcomes {
            if let Scenario::Mutant { name } = scenario {
                let fate = serde_json::from_value(summary).with_context(|| name.clone())?;
                outcomes.push(Self { name, fate });
            }
        }
        Ok(outcomes)
    }

    /// The same of its name without the place in the file.
    pub fn without_place(self) -> Self {
        Self { name: without_place(&self.name), ..self }
    }
}

impl PackageVerdict {
    /// Of the mutants of `package` that were run, of all that are `listed`.
    pub fn new(
        package: &str,
        outcomes: &[MutantOutcome],
        listed: &[String],
        accepted: &AcceptedSurvivors,
    ) -> Self {
        let with = |fate: MutantFate| outcomes.iter().filter(move |it| it.fate == fate);
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for outcome in outcomes {
            *names.entry(&outcome.name).or_default() += 1;
        }
        let mut verdict = Self {
            package: package.to_owned(),
            listed: listed.len(),
            run: outcomes.len(),
            killed: with(MutantFate::Killed).count(),
            timed_out: with(MutantFate::TimedOut).count(),
            survived: with(MutantFate::Survived).count(),
            accepted: 0,
            surplus: Vec::new(),
            outdated: Vec::new(),
        };
        for (name, run) in names {
            let times = |fate: MutantFate| with(fate).filter(|it| it.name == name).count();
            let survived = times(MutantFate::Survived);
            let allowed = accepted.accepted_times(name);
            verdict.accepted += survived.min(allowed);
            verdict.surplus.extend((allowed..survived).map(|_| name.to_owned()));
            // A shard may hold some of a name only; the others may be the survivors.
            let is_whole = run == listed.iter().filter(|other| *other == name).count();
            // A machine that stops for a while lets any mutant time out.
            if is_whole && survived + times(MutantFate::TimedOut) < allowed {
                verdict.outdated.push(name.to_owned());
            }
        }
        verdict
    }

    fn viable_count(&self) -> usize {
        self.killed + self.timed_out + self.survived
    }

    /// Whether few enough survive, and all that are accepted do.
    pub fn is_good(&self) -> bool {
        let most = MOST_SURVIVORS * self.viable_count() as f64;
        self.surplus.len() as f64 <= most && self.outdated.is_empty()
    }

    /// Estimate of the survivors of the whole package that nobody accepted, from a random sample.
    pub fn format_share(&self) -> String {
        let (survived, viable) = (self.surplus.len() as u64, self.viable_count() as u64);
        let (low, high) = wilson(survived, viable);
        let verdict = match () {
            () if high <= MOST_SURVIVORS => "within 5%",
            () if low > MOST_SURVIVORS => "more than 5%",
            () => "may be more than 5%, or less",
        };
        let (package, low, high) = (&self.package, low * 100.0, high * 100.0);
        format!("{package:<17} {survived} of {viable}, 95%: {low:.1} to {high:.1}%: {verdict}")
    }

    /// A line for each survivor that nobody accepted, and for each accepted one that is no survivor.
    pub fn list_complaints(&self) -> impl Iterator<Item = String> {
        let surplus = self.surplus.iter().map(|name| format!("survived: {name}"));
        let outdated = self.outdated.iter().map(|name| format!("accepted, but seen: {name}"));
        surplus.chain(outdated)
    }
}

impl fmt::Display for PackageVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { package, listed, run, killed, timed_out, survived, accepted, .. } = self;
        let viable = self.viable_count();
        write!(f, "{package:<17} {listed:>7} {run:>5} {viable:>7} {killed:>7} {timed_out:>10}")?;
        write!(f, " {survived:>9} {accepted:>9}")
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
        let found = MutantOutcome::parse(text).unwrap();
        assert_eq!(
            found,
            [make_outcome("a.rs:3:4: replace ::f -> u8 with 1", MutantFate::Survived)]
        );
        let name = "a.rs: replace ::f -> u8 with 1";
        assert_eq!(found[0].clone().without_place(), make_outcome(name, MutantFate::Survived));
        let unknown = text.replace("MissedMutant", "Lost");
        let error = MutantOutcome::parse(&unknown).unwrap_err().to_string();
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
            assert_eq!((verdict.is_good(), verdict.viable_count()), (is_good, viable));
            assert_eq!(verdict.list_complaints().count(), survivors);
        }
    }

    #[test]
    fn sample_shows_share_and_proof() {
        let survivor = make_outcome("b.rs: x", MutantFate::Survived);
        let cases = [
            // Wilson: z^2 / (n + z^2) for none.
            (0, 100, "p                 0 of 100, 95%: 0.0 to 3.7%: within 5%"),
            (0, 70, "p                 0 of 70, 95%: 0.0 to 5.2%: may be more than 5%, or less"),
            (15, 62, "p                 15 of 62, 95%: 15.2 to 36.2%: more than 5%"),
        ];
        for (survived, viable, wanted) in cases {
            let mut outcomes = vec![make_outcome("k.rs: z", MutantFate::Killed); viable - survived];
            outcomes.extend(vec![survivor.clone(); survived]);
            assert_eq!(judge_outcomes(&outcomes).format_share(), wanted);
        }
        let accepted = vec![make_outcome("a.rs: replace < with <= in f", MutantFate::Survived); 2];
        assert!(judge_outcomes(&accepted).format_share().contains(" 0 of 2,"));
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
        let accepted = AcceptedSurvivors::parse(LIST).unwrap();
        let verdict =
            PackageVerdict::new("p", &[make_outcome(name, MutantFate::Killed)], &listed, &accepted);
        assert!(verdict.is_good());
    }

    #[test]
    fn line_needs_a_reason_and_a_mutant() {
        let error = |text: &str| AcceptedSurvivors::parse(text).unwrap_err().to_string();
        assert!(error(&LIST.replace("equal at zero", " ")).contains("no reason"));
        assert!(error(&LIST.repeat(2)).contains("twice"));
        let listed = |times| std::iter::repeat_n("a.rs: replace < with <= in f".to_owned(), times);
        let accepted = AcceptedSurvivors::parse(LIST).unwrap();
        assert!(accepted.check_listed(listed(1)).unwrap_err().to_string().contains("1 mutants"));
        accepted.check_listed(listed(2)).unwrap();
    }

    fn make_outcome(name: &str, fate: MutantFate) -> MutantOutcome {
        MutantOutcome { name: name.to_owned(), fate }
    }

    /// All that are listed were run.
    fn judge_outcomes(outcomes: &[MutantOutcome]) -> PackageVerdict {
        let listed: Vec<String> = outcomes.iter().map(|it| it.name.clone()).collect();
        PackageVerdict::new("p", outcomes, &listed, &AcceptedSurvivors::parse(LIST).unwrap())
    }
}
