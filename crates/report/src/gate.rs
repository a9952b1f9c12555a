//! The rule by which a comparison passes or fails in CI. `JUnit`, KTAP and the exit code read it here.

use latput_model::compare::{FigureComparison, Verdict};
use latput_units::text::number;

/// What fails a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// A figure that is proven worse.
    Worse,
    /// A figure of which a loss of this share, such as 0.02, is not ruled out (non-inferiority).
    Unproven(f64),
}

/// What a gate says of a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JudgedFigure {
    /// It passes.
    Passed,
    /// It fails: the kind of failure, and what is added to the figure's sentence.
    Failed(&'static str, String),
    /// There are too few runs to judge it.
    Skipped,
}

impl Gate {
    /// Judges a figure.
    pub fn judge(self, figure: &FigureComparison) -> JudgedFigure {
        match (self, figure.verdict, figure.largest_loss) {
            (_, Verdict::NotJudged, _) | (Self::Unproven(_), _, None) => JudgedFigure::Skipped,
            (Self::Worse, Verdict::Worse, _) => JudgedFigure::Failed("worse", String::new()),
            (Self::Unproven(margin), _, Some(loss)) if loss >= margin => {
                let loss = if loss > 10.0 {
                    "any size".to_owned()
                } else {
                    format!("{}%", number(100.0 * loss))
                };
                JudgedFigure::Failed("unproven", format!("; a loss of {loss} is not ruled out"))
            }
            _ => JudgedFigure::Passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use latput_stats::Estimate;
    use latput_trial::Metric;

    use super::*;

    fn figure(verdict: Verdict, largest_loss: Option<f64>) -> FigureComparison {
        FigureComparison {
            workload: "rr".to_owned(),
            workload_idx: 0,
            metric: Metric::LatencyNsP99,
            base: Estimate::single(1.0),
            other: Estimate::single(1.0),
            compared: (1.0, 1.0),
            ratio: None,
            p_value: None,
            verdict,
            largest_loss,
        }
    }

    #[test]
    fn unproven_fails_what_no_interval_rules_out() {
        let gate = Gate::Unproven(0.02);
        let same = Verdict::NoDifferenceShown;
        assert_eq!(gate.judge(&figure(same, Some(0.019))), JudgedFigure::Passed);
        let said = "; a loss of 3.10% is not ruled out".to_owned();
        assert_eq!(gate.judge(&figure(same, Some(0.031))), JudgedFigure::Failed("unproven", said));
        let endless = gate.judge(&figure(same, Some(f64::MAX)));
        assert!(matches!(endless, JudgedFigure::Failed(_, text) if text.contains("any size")));
        assert_eq!(gate.judge(&figure(Verdict::NotJudged, None)), JudgedFigure::Skipped);
        // A proven loss below the margin passes.
        assert_eq!(gate.judge(&figure(Verdict::Worse, Some(0.015))), JudgedFigure::Passed);
    }

    #[test]
    fn worse_fails_only_what_is_proven_worse() {
        let judge = |verdict| Gate::Worse.judge(&figure(verdict, Some(9.0)));
        assert_eq!(judge(Verdict::Worse), JudgedFigure::Failed("worse", String::new()));
        assert_eq!(judge(Verdict::NoDifferenceShown), JudgedFigure::Passed);
        assert_eq!(judge(Verdict::NotJudged), JudgedFigure::Skipped);
    }
}
