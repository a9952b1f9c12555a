//! A setting that was tried by turns with today's, judged in one figure: whether it is to blame for what that figure shows.

use latput_stats::Estimate;
use latput_stats::mean::critical_t;
use latput_trial::metric::PreferredDirection;
use latput_trial::{Metric, Results};
use latput_units::Nanos;

use crate::compare::{CompareMethod, ComparisonVerdict, SMALLEST_EFFECT, compare_figures};
use crate::live::pairs_for;

/// A smaller gain does not matter: a setting whose larger gains are ruled out is cleared.
pub const GAIN_THAT_MATTERS: f64 = 0.05;
/// Today's setting, with which others are compared.
const TODAY: usize = 0;

/// Verdict on a setting that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriedVerdict {
    /// It is proven to make the figure better.
    Better,
    /// A gain that matters is ruled out.
    NoGain,
    /// Both are possible.
    Undecided,
}

/// A setting that was tried, against today's.
#[derive(Clone, Debug, PartialEq)]
pub struct TriedSetting {
    /// The verdict.
    pub verdict: TriedVerdict,
    /// The figure with the setting over today's, by the estimates; `None` where today's is 0 or not known.
    pub change: Option<f64>,
    /// The ratio with its interval; `None` where a figure is 0, or with fewer than two pairs.
    pub ratio: Option<Estimate>,
    /// Confidence of the verdict.
    pub confidence: f64,
    /// Pairs of the setting and today's.
    pub pairs: usize,
    /// The gain that is ruled out, as a share of today's figure.
    pub no_gain_over: Option<f64>,
    /// Time of a run that decides, by the scatter of the pairs; of an undecided setting.
    pub decided_after: Option<Nanos>,
}

impl TriedSetting {
    /// Judges a setting of a run by one figure of its only workload.
    pub fn from_results(results: &Results, setting: usize, metric: Metric) -> Self {
        let method =
            CompareMethod { confidence: results.confidence, smallest_effect: SMALLEST_EFFECT };
        let compared = compare_figures(results, results, &[(TODAY, setting)], &[metric], method);
        let figure = compared
            .into_iter()
            .flat_map(|comparison| comparison.figures)
            .find(|figure| figure.metric == metric);
        let pairs = count_pairs(results, setting);
        let none = Self {
            verdict: TriedVerdict::Undecided,
            change: None,
            ratio: None,
            confidence: results.confidence,
            pairs,
            no_gain_over: None,
            decided_after: None,
        };
        let Some(figure) = figure else { return none };
        let (today, tried) = figure.compared;
        let ratio = figure.ratio.filter(|ratio| ratio.confidence > 0.0);
        let most = ratio.as_ref().map(|ratio| largest_gain(metric, ratio));
        let verdict = match figure.verdict {
            ComparisonVerdict::Better => TriedVerdict::Better,
            ComparisonVerdict::Worse | ComparisonVerdict::Equivalent => TriedVerdict::NoGain,
            ComparisonVerdict::NoDifferenceShown | ComparisonVerdict::NotJudged => match most {
                Some(most) if most <= GAIN_THAT_MATTERS => TriedVerdict::NoGain,
                _ => TriedVerdict::Undecided,
            },
        };
        let is_undecided = verdict == TriedVerdict::Undecided;
        let decided_after = ratio
            .as_ref()
            .filter(|_| is_undecided)
            .and_then(|ratio| time_to_decide(results, ratio));
        Self {
            verdict,
            change: (today > 0.0).then(|| tried / today),
            no_gain_over: most.filter(|_| verdict == TriedVerdict::NoGain),
            decided_after,
            pairs: ratio.as_ref().map_or(pairs, |ratio| ratio.runs),
            ratio,
            ..none
        }
    }
}

/// The largest gain that an interval leaves possible, as a share of today's figure.
fn largest_gain(metric: Metric, ratio: &Estimate) -> f64 {
    match metric.preferred_direction() {
        PreferredDirection::Higher => (ratio.high - 1.0).max(0.0),
        PreferredDirection::Lower | PreferredDirection::Neither => (1.0 - ratio.low).max(0.0),
    }
}

fn count_pairs(results: &Results, setting: usize) -> usize {
    let blocks = results.rows.iter().filter(|row| row.setting == setting);
    blocks.count()
}

/// The time after which the interval is half as wide as a gain that matters, at the pace of this run: either verdict is then
/// reached. `None` if that is known of no pair.
fn time_to_decide(results: &Results, ratio: &Estimate) -> Option<Nanos> {
    let freedom = ratio.runs.checked_sub(1).filter(|freedom| *freedom > 0)?;
    let half_width = (ratio.high / ratio.low).ln() / 2.0;
    let scale = half_width * (ratio.runs as f64).sqrt() / critical_t(ratio.confidence, freedom);
    let wanted = pairs_for(scale, GAIN_THAT_MATTERS / 2.0, ratio.confidence);
    let starts = || results.rows.iter().map(|row| row.started_unix_ms);
    let spent_ms = starts().max()?.checked_sub(starts().min()?)?;
    let pair_ms = spent_ms.checked_div(u64::try_from(ratio.runs).ok()?)?;
    Some(Nanos::from_ms(pair_ms.saturating_mul(u64::try_from(wanted).ok()?)))
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;
    use crate::synthetic::{SyntheticFigures, build_results, noise_factor, rr_workload};

    const LATENCY: Metric = Metric::LatencyNsP99;

    /// Pairs of today and a setting with this part of today's latency.
    fn tried(pairs: u32, part: f64, noise: f64) -> TriedSetting {
        let mut rng = SeededRng::from_seed(5);
        let mut results =
            build_results(&["today", "tried"], &[rr_workload("rr")], pairs, |setting, _| {
                let latency = [100.0, 100.0 * part][setting] * noise_factor(&mut rng, noise);
                SyntheticFigures { rate: 1000.0, p99_us: Some(latency), service_demand_us: 1.0 }
            });
        for (idx, row) in (0..).zip(&mut results.rows) {
            row.started_unix_ms = 2000 * idx;
        }
        TriedSetting::from_results(&results, 1, LATENCY)
    }

    #[test]
    fn gain_is_blamed_with_interval() {
        let found = tried(20, 0.77, 0.02);
        assert_eq!(found.verdict, TriedVerdict::Better, "{found:?}");
        let ratio = found.ratio.unwrap();
        assert!(ratio.low < 0.77 && ratio.high > 0.77 && ratio.high < 0.85, "{ratio:?}");
        assert_eq!((found.no_gain_over, found.decided_after), (None, None));
    }

    #[test]
    fn setting_without_effect_is_cleared() {
        for part in [1.0, 1.3] {
            let found = tried(30, part, 0.02);
            assert_eq!(found.verdict, TriedVerdict::NoGain, "{found:?}");
            assert!(found.no_gain_over.unwrap() <= GAIN_THAT_MATTERS, "{found:?}");
        }
    }

    #[test]
    fn wide_interval_tells_time_to_decide() {
        let found = tried(6, 0.97, 0.1);
        assert_eq!(found.verdict, TriedVerdict::Undecided, "{found:?}");
        // Some hundred pairs, at 4 s each.
        let wanted = found.decided_after.unwrap();
        assert!((Nanos::from_s(100)..Nanos::from_s(3600)).contains(&wanted), "{wanted}");
    }

    #[test]
    fn missing_figure_decides_nothing() {
        let mut results = build_results(&["today", "tried"], &[rr_workload("rr")], 5, |_, _| {
            SyntheticFigures { rate: 1000.0, p99_us: Some(9.0), service_demand_us: 1.0 }
        });
        let found = TriedSetting::from_results(&results, 1, Metric::TcpRttNsP50);
        assert_eq!((found.verdict, found.ratio, found.pairs), (TriedVerdict::Undecided, None, 5));
        results.rows.clear();
        let found = TriedSetting::from_results(&results, 1, LATENCY);
        assert_eq!((found.verdict, found.pairs), (TriedVerdict::Undecided, 0));
    }
}
