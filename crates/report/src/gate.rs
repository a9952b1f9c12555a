//! The rule by which a comparison passes or fails in CI. HTML, `JUnit`, KTAP and the exit code read it here.

use latput_model::Comparison;
use latput_model::compare::{ComparisonVerdict, FigureComparison};
use latput_units::text::{format_count, format_number, format_percent, is_or_are};

/// Rule by which a gate fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// A figure that is proven worse.
    Worse,
    /// A figure of which a loss of this share, such as 0.02, is not ruled out (non-inferiority).
    Unproven(f64),
}

/// A gate's judgement of a figure.
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
    pub fn judge_figure(self, figure: &FigureComparison) -> JudgedFigure {
        match (self, figure.verdict) {
            (_, ComparisonVerdict::NotJudged) => JudgedFigure::Skipped,
            (Self::Worse, ComparisonVerdict::Worse) => JudgedFigure::Failed("worse", String::new()),
            (
                Self::Worse,
                ComparisonVerdict::Better
                | ComparisonVerdict::Equivalent
                | ComparisonVerdict::NoDifferenceShown,
            ) => JudgedFigure::Passed,
            (Self::Unproven(margin), _) => match figure.largest_loss {
                None => JudgedFigure::Skipped,
                Some(loss) if loss >= margin => {
                    let loss = if loss > 10.0 {
                        "any size".to_owned()
                    } else {
                        format!("{}%", format_number(100.0 * loss))
                    };
                    JudgedFigure::Failed("unproven", format!("; a loss of {loss} is not ruled out"))
                }
                Some(_) => JudgedFigure::Passed,
            },
        }
    }
}

impl JudgedFigure {
    /// The words in a table.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Passed => "passed".to_owned(),
            Self::Failed(_, why) => format!("failed{why}"),
            Self::Skipped => "not judged".to_owned(),
        }
    }
}

/// Answer of a gate for several figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateAnswer {
    gate: Gate,
    /// Number of figures.
    pub all: usize,
    /// Those that fail.
    pub failed: usize,
    /// Those that cannot be judged.
    pub skipped: usize,
}

impl GateAnswer {
    /// Judges every figure.
    pub fn new(gate: Gate, comparisons: &[Comparison]) -> Self {
        Self::from_figures(gate, comparisons.iter().flat_map(|comparison| &comparison.figures))
    }

    /// Judges some of the figures.
    pub(crate) fn from_figures<'a>(
        gate: Gate,
        figures: impl IntoIterator<Item = &'a FigureComparison>,
    ) -> Self {
        let mut answer = Self { gate, all: 0, failed: 0, skipped: 0 };
        for figure in figures {
            answer.all += 1;
            match gate.judge_figure(figure) {
                JudgedFigure::Passed => {}
                JudgedFigure::Failed(..) => answer.failed += 1,
                JudgedFigure::Skipped => answer.skipped += 1,
            }
        }
        answer
    }

    /// Whether nothing could be judged, so that the gate has not passed.
    pub const fn is_unjudged(&self) -> bool {
        self.skipped == self.all
    }

    /// Why the gate fails; `None` where it passes. A loss in a figure that cannot be judged is not ruled out.
    pub fn why_failed(&self) -> Option<String> {
        let Self { gate, all, failed, skipped } = *self;
        if self.is_unjudged() {
            return Some("no figure could be judged".to_owned());
        }
        match gate {
            Gate::Worse if failed > 0 => Some(format!(
                "{failed} of {} {} proven worse",
                format_count(all, "figure"),
                is_or_are(failed)
            )),
            Gate::Unproven(margin) if failed + skipped > 0 => {
                let unjudged = if skipped > 0 {
                    format!(", {skipped} of them not judged")
                } else {
                    String::new()
                };
                Some(format!(
                    "a loss of {} is not ruled out in {} of {}{unjudged}",
                    format_percent(margin),
                    failed + skipped,
                    format_count(all, "figure")
                ))
            }
            Gate::Worse | Gate::Unproven(_) => None,
        }
    }

    /// The answer in a sentence.
    pub fn sentence(&self) -> String {
        if let Some(why) = self.why_failed() {
            return format!("The gate failed: {why}.");
        }
        let Self { gate, all, skipped, .. } = *self;
        match gate {
            Gate::Unproven(margin) => format!(
                "The gate passed: a loss of {} is ruled out in all of {}.",
                format_percent(margin),
                format_count(all, "figure")
            ),
            Gate::Worse if skipped > 0 => format!(
                "The gate passed: none of {} is proven worse, {skipped} could not be judged.",
                format_count(all, "figure")
            ),
            Gate::Worse => {
                format!("The gate passed: none of {} is proven worse.", format_count(all, "figure"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use latput_stats::Estimate;
    use latput_trial::Metric;

    use super::*;

    fn make_figure(verdict: ComparisonVerdict, largest_loss: Option<f64>) -> FigureComparison {
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
        let same = ComparisonVerdict::NoDifferenceShown;
        assert_eq!(gate.judge_figure(&make_figure(same, Some(0.019))), JudgedFigure::Passed);
        let said = "; a loss of 3.10% is not ruled out".to_owned();
        assert_eq!(
            gate.judge_figure(&make_figure(same, Some(0.031))),
            JudgedFigure::Failed("unproven", said)
        );
        let endless = gate.judge_figure(&make_figure(same, Some(f64::MAX)));
        assert!(matches!(endless, JudgedFigure::Failed(_, text) if text.contains("any size")));
        assert_eq!(
            gate.judge_figure(&make_figure(ComparisonVerdict::NotJudged, None)),
            JudgedFigure::Skipped
        );
        // A proven loss below the margin passes.
        assert_eq!(
            gate.judge_figure(&make_figure(ComparisonVerdict::Worse, Some(0.015))),
            JudgedFigure::Passed
        );
    }

    #[test]
    fn answer_counts_what_could_not_be_judged() {
        let same = |loss| make_figure(ComparisonVerdict::NoDifferenceShown, loss);
        let said = |gate, figures: Vec<FigureComparison>| {
            let method =
                latput_model::compare::CompareMethod { confidence: 0.99, smallest_effect: 0.01 };
            let comparison = Comparison {
                base: "a".to_owned(),
                other: "b".to_owned(),
                method,
                paired: true,
                obstacle: None,
                figures,
                remarks: Vec::new(),
                origin: Vec::new(),
            };
            GateAnswer::new(gate, &[comparison]).sentence()
        };
        let unjudged = || make_figure(ComparisonVerdict::NotJudged, None);
        let gate = Gate::Unproven(0.02);
        for (gate, figures, expected) in [
            (gate, vec![same(Some(0.01))], "passed: a loss of 2% is ruled out in all of 1 figure."),
            (
                gate,
                vec![same(Some(0.01)), same(Some(0.5)), unjudged()],
                "failed: a loss of 2% is not ruled out in 2 of 3 figures, 1 of them not judged.",
            ),
            (gate, vec![unjudged()], "failed: no figure could be judged."),
            (
                Gate::Worse,
                vec![unjudged(), same(None)],
                "passed: none of 2 figures is proven worse, 1 could",
            ),
            (
                Gate::Worse,
                vec![make_figure(ComparisonVerdict::Worse, None)],
                "failed: 1 of 1 figure is proven worse.",
            ),
            (Gate::Worse, Vec::new(), "failed: no figure could be judged."),
        ] {
            let found = said(gate, figures);
            assert!(found.starts_with(&format!("The gate {expected}")), "{found}");
        }
    }

    #[test]
    fn worse_fails_only_what_is_proven_worse() {
        let judge = |verdict| Gate::Worse.judge_figure(&make_figure(verdict, Some(9.0)));
        assert_eq!(judge(ComparisonVerdict::Worse), JudgedFigure::Failed("worse", String::new()));
        assert_eq!(judge(ComparisonVerdict::NoDifferenceShown), JudgedFigure::Passed);
        assert_eq!(judge(ComparisonVerdict::NotJudged), JudgedFigure::Skipped);
    }
}
