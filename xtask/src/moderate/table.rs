//! Rates, tails and CPU of every candidate in every phase, beside the best fixed delay of the phase.

use latput_stats::order::middle;
use latput_stats::{Estimate, paired};

use super::{Candidate, LoadPhase, LoadSample, PHASES, Round, TrafficLoad};

const CONFIDENCE: f64 = 0.95;
/// Most by which the daemon may be worse than the best fixed delay of a phase.
const WITHIN: f64 = 0.1;

/// The table, and which goals are kept.
pub(super) fn render_table(rounds: &[Round], candidates: &[Candidate]) -> String {
    let fixed = |c: &&Candidate| matches!(c, Candidate::Fixed(_));
    let fixed: Vec<Candidate> = candidates.iter().filter(fixed).copied().collect();
    let single = find_best_delay(rounds, &fixed, &PHASES);
    let mut text = format!(
        "\nmedians, and ratios to the fixed delay that was best in the other rounds, with 95% intervals over {} rounds; \
         *: the best over all; the best single delay is {}\n{:<18} {:<14} {:>11} {:>20} {:>9} {:>20} {:>6}\n",
        rounds.len(),
        name(single),
        "phase",
        "candidate",
        "rate",
        "to the best",
        "p99 us",
        "to the best",
        "cpu"
    );
    let mut missed = Vec::new();
    for phase in PHASES {
        let oracle = DelayOracle::new(rounds, &fixed, phase);
        for load in phase.loads() {
            for candidate in candidates {
                let (line, is_within) = render_row(rounds, *candidate, &oracle, phase, *load);
                text.push_str(&line);
                let is_ours = matches!(candidate, Candidate::Goal(_));
                if is_ours && !is_within {
                    missed.push(format!("{} in {}", name(*candidate), format_title(phase, *load)));
                }
            }
        }
    }
    text + &match &*missed.join("; ") {
        "" => "\nevery phase is within 10% of its best fixed delay, or the interval contains it\n"
            .to_owned(),
        missed => format!("\nmissed: {missed}\n"),
    }
}

/// The best fixed delay of a phase.
struct DelayOracle {
    over_all: Candidate,
    /// For each round the one that was best in the others: among several that are alike, the best of a round is so by
    /// chance too, and would win every comparison there.
    in_others: Vec<Candidate>,
}

impl DelayOracle {
    fn new(rounds: &[Round], fixed: &[Candidate], phase: LoadPhase) -> Self {
        let in_others = (0..rounds.len()).map(|left_out| {
            let others = rounds.iter().enumerate().filter(|(idx, _)| *idx != left_out);
            find_best_delay(others.map(|(_, round)| round), fixed, &[phase])
        });
        Self { over_all: find_best_delay(rounds, fixed, &[phase]), in_others: in_others.collect() }
    }
}

fn render_row(
    rounds: &[Round],
    candidate: Candidate,
    oracle: &DelayOracle,
    phase: LoadPhase,
    load: TrafficLoad,
) -> (String, bool) {
    let pairs: Vec<(LoadSample, LoadSample)> = rounds
        .iter()
        .zip(&oracle.in_others)
        .filter_map(|(round, oracle)| {
            let of = |candidate| round.get(&(candidate, phase, load)).copied();
            of(*oracle).zip(of(candidate))
        })
        .collect();
    let own =
        |figure: fn(&LoadSample) -> Option<f64>| middle(pairs.iter().filter_map(|p| figure(&p.1)));
    let ratio = |figure: fn(&LoadSample) -> Option<f64>| {
        let both = pairs.iter().filter_map(|(base, own)| figure(base).zip(figure(own)));
        paired::ratio(&both.collect::<Vec<_>>(), CONFIDENCE)
    };
    let (rate, tail) = (ratio(|s| Some(s.rate)), ratio(|s| s.tail));
    let shown = |ratio: &Option<Estimate>| {
        let text = |e: &Estimate| format!("{:.2} [{:.2}, {:.2}]", e.value, e.low, e.high);
        ratio.as_ref().map_or_else(|| "-".to_owned(), text)
    };
    let tail_us = own(|s| s.tail).map_or_else(|| "-".to_owned(), |ns| format!("{:.0}", ns / 1e3));
    let line = format!(
        "{:<18} {:<14} {:>11.4e} {:>20} {:>9} {:>20} {:>6.2}\n",
        format_title(phase, load),
        name(candidate) + if candidate == oracle.over_all { " *" } else { "" },
        own(|s| Some(s.rate)).unwrap_or(0.0),
        shown(&rate),
        tail_us,
        shown(&tail),
        own(|s| Some(s.cpu)).unwrap_or(0.0)
    );
    let rate_holds = rate.is_none_or(|e| e.value >= 1.0 - WITHIN || e.high >= 1.0);
    let tail_holds = tail.is_none_or(|e| e.value <= 1.0 + WITHIN || e.low <= 1.0);
    (line, rate_holds && tail_holds)
}

/// The fixed delay with the highest rates over these phases: by the mean of the logarithms of the medians.
fn find_best_delay<'a>(
    rounds: impl IntoIterator<Item = &'a Round>,
    fixed: &[Candidate],
    phases: &[LoadPhase],
) -> Candidate {
    let rounds: Vec<&Round> = rounds.into_iter().collect();
    let score = |candidate: &Candidate| {
        let loads = phases.iter().flat_map(|phase| phase.loads().iter().map(move |l| (*phase, *l)));
        let rates = loads.filter_map(|(phase, load)| {
            middle(rounds.iter().filter_map(|r| Some(r.get(&(*candidate, phase, load))?.rate)))
        });
        rates.map(f64::ln).sum::<f64>()
    };
    let best = fixed.iter().max_by(|a, b| score(a).total_cmp(&score(b)));
    *best.expect("there are fixed delays")
}

fn format_title(phase: LoadPhase, load: TrafficLoad) -> String {
    if phase.loads().len() > 1 {
        format!("{}: {}", phase.name(), load.name())
    } else {
        phase.name().to_owned()
    }
}

fn name(candidate: Candidate) -> String {
    match candidate {
        Candidate::Fixed(us) => format!("{us} us"),
        Candidate::Goal(goal) => format!("goal {goal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANDIDATES: [Candidate; 3] =
        [Candidate::Fixed(0), Candidate::Fixed(100), Candidate::Goal("standard")];

    #[test]
    fn best_of_phase_is_the_measure() {
        // Requests want no delay, bulk wants some; the daemon does both, or stays at none.
        let text =
            render_table_for_share(|phase| if phase == LoadPhase::Bulk { 1.0 } else { 0.99 });
        assert!(text.contains("every phase is within 10%"), "{text}");
        assert!(!text.contains("missed"), "{text}");
        let text = render_table_for_share(|phase| if phase == LoadPhase::Bulk { 0.7 } else { 1.0 });
        assert!(text.ends_with("missed: goal standard in bulk\n"), "{text}");
    }

    #[test]
    fn chance_winner_of_round_is_no_measure() {
        // Two delays that are alike on the whole: each is best in a round of its own.
        let round = |rates: [f64; 3]| {
            let samples = CANDIDATES.iter().zip(rates).map(|(candidate, rate)| {
                (
                    (*candidate, LoadPhase::Bulk, TrafficLoad::Bulk),
                    LoadSample { rate, tail: None, cpu: 0.5 },
                )
            });
            samples.collect::<Round>()
        };
        let rounds = [round([130.0, 100.0, 100.0]), round([100.0, 130.0, 100.0])];
        let oracle = DelayOracle::new(&rounds, &CANDIDATES[..2], LoadPhase::Bulk);
        assert_eq!(oracle.in_others, [Candidate::Fixed(100), Candidate::Fixed(0)]);
        let (line, is_within) =
            render_row(&rounds, CANDIDATES[2], &oracle, LoadPhase::Bulk, TrafficLoad::Bulk);
        assert!(is_within && line.contains("1.00 [1.00, 1.00]"), "{line}");
    }

    /// Three rounds with a little scatter; the daemon has `share` of the best delay's rate.
    #[track_caller]
    fn render_table_for_share(share: impl Fn(LoadPhase) -> f64) -> String {
        let mut rounds = Vec::new();
        for scatter in [0.99, 1.0, 1.01] {
            let mut round = Round::new();
            for phase in PHASES {
                for load in phase.loads() {
                    let of = |candidate| match (candidate, load, phase) {
                        (Candidate::Fixed(0), TrafficLoad::Bulk, _) => 50.0,
                        (Candidate::Fixed(_), TrafficLoad::Requests, _) => 10.0,
                        (Candidate::Fixed(_), ..) => 100.0,
                        (Candidate::Goal(_), ..) => 100.0 * share(phase) * scatter,
                    };
                    for candidate in CANDIDATES {
                        let rate = of(candidate);
                        let sample = LoadSample { rate, tail: Some(1e6 / rate), cpu: 0.5 };
                        round.insert((candidate, phase, *load), sample);
                    }
                }
            }
            rounds.push(round);
        }
        render_table(&rounds, &CANDIDATES)
    }
}
