//! Fate of mutants, beside the survivors that are accepted.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, ensure};
use latput_stats::share::wilson;
use serde::Deserialize;

/// More survivors than this share of a crate's viable mutants, less those that are accepted, are an error.
const MOST_SURVIVORS: f64 = 0.05;

/// Above the lines of [`Verdict`].
pub const HEADER: &str =
    "package            listed   run  viable  killed  timed out  survived  accepted";

/// The survivors that are accepted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    #[serde(default)]
    accepted: Vec<Survivor>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
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
pub struct Outcome {
    /// File, place and change; what is judged has no place.
    pub name: String,
    /// Whether the tests saw it.
    pub fate: Fate,
}

/// Fate of a mutant in the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Fate {
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
pub struct Verdict {
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

impl Accepted {
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
    pub fn check(&self, listed: impl Iterator<Item = String>) -> Result<()> {
        let listed: Vec<String> = listed.collect();
        for it in &self.accepted {
            let there = listed.iter().filter(|name| **name == it.mutant).count();
            ensure!(there >= it.times, "`{}`: {there} mutants have this name", it.mutant);
        }
        Ok(())
    }

    fn times(&self, name: &str) -> usize {
        self.accepted.iter().find(|it| it.mutant == name).map_or(0, |it| it.times)
    }
}

impl Outcome {
    /// Reads `outcomes.json` of cargo-mutants; the run without a mutant is left out.
    pub fn parse(text: &str) -> Result<Vec<Self>> {
        #[derive(Deserialize)]
        struct All {
            outcomes: Vec<One>,
        }
        #[derive(Deserialize)]
        struct One {
            scenario: Scenario,
            summary: serde_json::Value,
        }
        #[derive(Deserialize)]
        enum Scenario {
            Baseline,
            Mutant { name: String },
        }
        let all: All = serde_json::from_str(text)?;
        let mut outcomes = Vec::new();
        for One { scenario, summary } in all.outcomes {
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

impl Verdict {
    /// Of the mutants of `package` that were run, of all that are `listed`.
    pub fn new(
        package: &str,
        outcomes: &[Outcome],
        listed: &[String],
        accepted: &Accepted,
    ) -> Self {
        let with = |fate: Fate| outcomes.iter().filter(move |it| it.fate == fate);
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for outcome in outcomes {
            *names.entry(&outcome.name).or_default() += 1;
        }
        let mut verdict = Self {
            package: package.to_owned(),
            listed: listed.len(),
            run: outcomes.len(),
            killed: with(Fate::Killed).count(),
            timed_out: with(Fate::TimedOut).count(),
            survived: with(Fate::Survived).count(),
            accepted: 0,
            surplus: Vec::new(),
            outdated: Vec::new(),
        };
        for (name, run) in names {
            let times = |fate: Fate| with(fate).filter(|it| it.name == name).count();
            let survived = times(Fate::Survived);
            let allowed = accepted.times(name);
            verdict.accepted += survived.min(allowed);
            verdict.surplus.extend((allowed..survived).map(|_| name.to_owned()));
            // A shard may hold some of a name only; the others may be the survivors.
            let is_whole = run == listed.iter().filter(|other| *other == name).count();
            // A machine that stops for a while lets any mutant time out.
            if is_whole && survived + times(Fate::TimedOut) < allowed {
                verdict.outdated.push(name.to_owned());
            }
        }
        verdict
    }

    fn viable(&self) -> usize {
        self.killed + self.timed_out + self.survived
    }

    /// Whether few enough survive, and all that are accepted do.
    pub fn is_good(&self) -> bool {
        let most = MOST_SURVIVORS * self.viable() as f64;
        self.surplus.len() as f64 <= most && self.outdated.is_empty()
    }

    /// Estimate of the survivors of the whole package that nobody accepted, from a random sample.
    pub fn share(&self) -> String {
        let (survived, viable) = (self.surplus.len() as u64, self.viable() as u64);
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
    pub fn complaints(&self) -> impl Iterator<Item = String> {
        let surplus = self.surplus.iter().map(|name| format!("survived: {name}"));
        let outdated = self.outdated.iter().map(|name| format!("accepted, but seen: {name}"));
        surplus.chain(outdated)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { package, listed, run, killed, timed_out, survived, accepted, .. } = self;
        let viable = self.viable();
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
        let found = Outcome::parse(text).unwrap();
        assert_eq!(found, [outcome("a.rs:3:4: replace ::f -> u8 with 1", Fate::Survived)]);
        let name = "a.rs: replace ::f -> u8 with 1";
        assert_eq!(found[0].clone().without_place(), outcome(name, Fate::Survived));
        let unknown = text.replace("MissedMutant", "Lost");
        let error = Outcome::parse(&unknown).unwrap_err().to_string();
        assert!(error.contains("a.rs:3:4"), "{error}");
    }

    #[test]
    fn one_survivor_in_twenty_passes() {
        let (lines, viable) = (["b.rs: x", "c.rs: y"], 20);
        for (survivors, is_good) in [(1, true), (2, false)] {
            let mut outcomes = vec![outcome("k.rs: z", Fate::Killed); viable - survivors];
            outcomes.extend(lines[..survivors].iter().map(|it| outcome(it, Fate::Survived)));
            outcomes.extend(vec![outcome("u.rs: w", Fate::Unviable); 100]);
            let verdict = judge(&outcomes);
            assert_eq!((verdict.is_good(), verdict.viable()), (is_good, viable));
            assert_eq!(verdict.complaints().count(), survivors);
        }
    }

    #[test]
    fn sample_shows_share_and_proof() {
        let survivor = outcome("b.rs: x", Fate::Survived);
        let cases = [
            // Wilson: z^2 / (n + z^2) for none.
            (0, 100, "p                 0 of 100, 95%: 0.0 to 3.7%: within 5%"),
            (0, 70, "p                 0 of 70, 95%: 0.0 to 5.2%: may be more than 5%, or less"),
            (15, 62, "p                 15 of 62, 95%: 15.2 to 36.2%: more than 5%"),
        ];
        for (survived, viable, wanted) in cases {
            let mut outcomes = vec![outcome("k.rs: z", Fate::Killed); viable - survived];
            outcomes.extend(vec![survivor.clone(); survived]);
            assert_eq!(judge(&outcomes).share(), wanted);
        }
        let accepted = vec![outcome("a.rs: replace < with <= in f", Fate::Survived); 2];
        assert!(judge(&accepted).share().contains(" 0 of 2,"));
    }

    #[test]
    fn accepted_survivors_do_not_count() {
        let name = "a.rs: replace < with <= in f";
        let twice = [outcome(name, Fate::Survived), outcome(name, Fate::Survived)];
        assert!(judge(&twice).is_good());
        let three = [twice.as_slice(), &twice[..1]].concat();
        assert_eq!(judge(&three).surplus, [name]);
        for (fate, is_good) in [(Fate::Killed, false), (Fate::TimedOut, true)] {
            let verdict = judge(&[outcome(name, fate), outcome(name, Fate::Survived)]);
            assert_eq!((verdict.is_good(), verdict.outdated.is_empty()), (is_good, is_good));
        }
    }

    #[test]
    fn named_shard_leaves_rest_unknown() {
        let name = "a.rs: replace < with <= in f";
        let listed = vec![name.to_owned(); 3];
        let accepted = Accepted::parse(LIST).unwrap();
        let verdict = Verdict::new("p", &[outcome(name, Fate::Killed)], &listed, &accepted);
        assert!(verdict.is_good());
    }

    #[test]
    fn line_needs_a_reason_and_a_mutant() {
        let error = |text: &str| Accepted::parse(text).unwrap_err().to_string();
        assert!(error(&LIST.replace("equal at zero", " ")).contains("no reason"));
        assert!(error(&LIST.repeat(2)).contains("twice"));
        let listed = |times| std::iter::repeat_n("a.rs: replace < with <= in f".to_owned(), times);
        let accepted = Accepted::parse(LIST).unwrap();
        assert!(accepted.check(listed(1)).unwrap_err().to_string().contains("1 mutants"));
        accepted.check(listed(2)).unwrap();
    }

    fn outcome(name: &str, fate: Fate) -> Outcome {
        Outcome { name: name.to_owned(), fate }
    }

    /// All that are listed were run.
    fn judge(outcomes: &[Outcome]) -> Verdict {
        let listed: Vec<String> = outcomes.iter().map(|it| it.name.clone()).collect();
        Verdict::new("p", outcomes, &listed, &Accepted::parse(LIST).unwrap())
    }
}
