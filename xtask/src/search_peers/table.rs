//! The table of searches: trials to be near the best, by method, and the claims that were wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result};
use latput_stats::order::middle;
use serde::Deserialize;

/// One search, as both programs print it.
#[derive(Debug, Deserialize)]
struct SearchRecord {
    case: String,
    method: String,
    found: Option<usize>,
    tried: Option<usize>,
    trials: usize,
    ends_near: bool,
    excess: Option<f64>,
    claim: Option<SearchClaim>,
}

#[derive(Debug, Deserialize)]
struct SearchClaim {
    is_wrong: bool,
}

/// Fields of a case that the table needs.
#[derive(Debug, Deserialize)]
struct CaseDescription {
    case: String,
    near: Vec<bool>,
}

const METHODS: [&str; 5] = ["latput", "random", "tpe", "smac", "ax"];
/// A search that never got near counts as so many times its grid.
const NEVER: f64 = 1.0;

/// The table and the four figures that are wanted.
pub fn render_table(lines: &str, described: &str) -> Result<String> {
    let ended = lines.lines().map(serde_json::from_str);
    let ended: Vec<SearchRecord> =
        ended.collect::<Result<_, _>>().context("a search printed nonsense")?;
    let described: Vec<CaseDescription> =
        serde_json::from_str(described).context("the cases cannot be read")?;
    let grids: BTreeMap<&str, &[bool]> =
        described.iter().map(|one| (one.case.as_str(), one.near.as_slice())).collect();
    let names = METHODS.map(|method| format!("{method:>7}")).join(" ");
    let mut text = format!(
        "{:<34} {:>5} {:>6}  {names}   within 3% at the end\n",
        "case (trials to lead within 3%)", "grid", "near"
    );
    let mut hard = MethodTally::default();
    let mut every = MethodTally::default();
    let mut rows = Vec::new();
    for (case, near) in &grids {
        let of = |method: &str| {
            let own = ended.iter().filter(|one| one.case == *case && one.method == method);
            own.collect::<Vec<&SearchRecord>>()
        };
        let count = near.iter().filter(|near| **near).count();
        let mut row = format!("{case:<34} {:>5} {count:>6} ", near.len());
        let mut ends = String::new();
        let mut medians = Vec::new();
        for method in METHODS {
            let own = of(method);
            let trials =
                |one: &&SearchRecord| one.found.map_or(NEVER * near.len() as f64, |n| n as f64);
            let median = middle(own.iter().map(trials));
            medians.extend(median);
            let shown = median.map_or("-".to_owned(), |median| format!("{median:.0}"));
            write!(row, " {shown:>7}")?;
            let good = own.iter().filter(|one| one.ends_near).count();
            if !own.is_empty() {
                write!(ends, " {:>3.0}%", 100.0 * good as f64 / own.len() as f64)?;
            }
            every.add(method, &own, near.len());
            if count * 10 <= near.len() && !near[0] {
                hard.add(method, &own, near.len());
            }
        }
        // Ours to the best of the others.
        let others = medians.iter().skip(1).copied().fold(f64::INFINITY, f64::min);
        rows.push((medians.first().map_or(0.0, |ours| ours / others), format!("{row}  {ends}\n")));
    }
    // Losses first.
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    text.extend(rows.into_iter().map(|(_, row)| row));
    let names = [("all cases", &every), ("hard cases: at most a tenth near, today's not", &hard)];
    for (name, tally) in names {
        writeln!(text, "\n{name}: {} searches by latput", tally.count_searches("latput"))?;
        text += &tally.render_summary()?;
    }
    let claims: Vec<&SearchClaim> = ended.iter().filter_map(|one| one.claim.as_ref()).collect();
    let wrong = claims.iter().filter(|claim| claim.is_wrong).count();
    writeln!(
        text,
        "\n\"proven better\" was claimed {} times and wrong {wrong} times ({:.1}%; wanted: below 5%)",
        claims.len(),
        100.0 * wrong as f64 / claims.len().max(1) as f64
    )?;
    Ok(text)
}

/// Searches of several cases.
#[derive(Debug, Default)]
struct MethodTally {
    /// By method: trials to lead with something near, and to try something near, as shares of the
    /// grid; trials in all; whether it ended near; whether it ended within 10% and the limit.
    /// Beside each is its case.
    shares: BTreeMap<String, Vec<(String, [f64; 5])>>,
}

impl MethodTally {
    fn add(&mut self, method: &str, own: &[&SearchRecord], grid: usize) {
        let share = |trials: Option<usize>| trials.map_or(NEVER, |n| n as f64 / grid as f64);
        let all = self.shares.entry(method.to_owned()).or_default();
        all.extend(own.iter().map(|one| {
            let total = one.trials as f64 / grid as f64;
            let is_good = one.excess.is_some_and(|excess| excess <= 1.1);
            let ends = [one.ends_near, is_good].map(|yes| f64::from(u8::from(yes)));
            (one.case.clone(), [share(one.found), share(one.tried), total, ends[0], ends[1]])
        }));
    }

    fn count_searches(&self, method: &str) -> usize {
        self.shares.get(method).map_or(0, Vec::len)
    }

    fn median_share(&self, method: &str, at: usize) -> Option<f64> {
        middle(self.shares.get(method)?.iter().map(|(_, one)| one[at]))
    }

    /// Our median until something near leads, in the cases of this method.
    fn ours_beside(&self, method: &str) -> Option<f64> {
        let cases: BTreeSet<&str> =
            self.shares.get(method)?.iter().map(|(case, _)| case.as_str()).collect();
        let ours = self.shares.get(METHODS[0])?.iter();
        middle(ours.filter(|(case, _)| cases.contains(case.as_str())).map(|(_, one)| one[0]))
    }

    fn render_summary(&self) -> Result<String> {
        let mut text = String::new();
        for method in METHODS {
            let Some(lead) = self.median_share(method, 0) else { continue };
            let tried = self.median_share(method, 1).unwrap_or(NEVER);
            let total = self.median_share(method, 2).unwrap_or(NEVER);
            let all = &self.shares[method];
            let mean =
                |at: usize| all.iter().map(|(_, one)| one[at]).sum::<f64>() / all.len() as f64;
            let ratio = self.ours_beside(method).map_or(f64::NAN, |ours| ours / lead);
            writeln!(
                text,
                "  {method:<7} leads within 3% after {:5.1}% of the grid (median; latput takes {ratio:.2} \
                 of it), first tried after {:5.1}%; ends after {:5.1}%, within 3% in {:.0}%, \
                 within 10% in {:.0}%",
                100.0 * lead,
                100.0 * tried,
                100.0 * total,
                100.0 * mean(3),
                100.0 * mean(4)
            )?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_ratios_and_wrong_claims_are_counted() {
        let line = |method: &str, found: &str, claim: &str| {
            format!(
                "{{\"case\":\"a/b/c\",\"method\":\"{method}\",\"seed\":1,\"found\":{found},\"tried\":2,\
                 \"trials\":20,\"ends_near\":true,\"excess\":1.02,\"claim\":{claim}}}\n"
            )
        };
        let lines = [
            line("latput", "10", "{\"is_wrong\":false}"),
            line("latput", "12", "{\"is_wrong\":true}"),
            line("random", "40", "null"),
            line("random", "null", "null"),
        ];
        // SMAC3 searched one of two cases: latput is compared with it there.
        let other = |method: &str, found: u32| {
            format!("{}\n", line(method, &found.to_string(), "null").trim_end())
                .replace("a/b/c", "d/e/f")
        };
        let lines = [lines.concat(), other("latput", 90), other("latput", 90), other("smac", 45)];
        let near: Vec<bool> = (0..100).map(|at| at == 7).collect();
        let described = format!(
            "[{{\"case\":\"a/b/c\",\"near\":{near:?}}},{{\"case\":\"d/e/f\",\"near\":{near:?}}}]"
        );
        let text = render_table(&lines.concat(), &described).unwrap();
        assert!(text.contains("claimed 2 times and wrong 1 times (50.0%"), "{text}");
        // Of 10, 12, 90 and 90.
        assert!(text.contains("after  51.0% of the grid"), "{text}");
        assert!(
            text.contains(
                "smac    leads within 3% after  45.0% of the grid (median; latput takes 2.00 of it)"
            ),
            "{text}"
        );
        // The one that never got near counts as the whole grid: (40 + 100) / 2.
        assert!(text.contains("latput takes 0.16 of it"), "{text}");
        assert!(render_table("nonsense", &described).is_err());
    }
}
