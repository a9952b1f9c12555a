//! Judges a run that goes on, tells its answer as soon as it is proven, and ends the run there if that is wanted.

use latput_model::{EarlyAnswer, Goal, Headline, PlannedLooks, early_answer};
use latput_runner::Error;
use latput_units::Nanos;
use latput_units::text::{format_count, format_percent};

use super::RunSession;

/// The looks of a run, and what was told of them.
pub(super) struct InterimAnalysis {
    /// `None` without a goal: there is nothing to answer.
    goal: Option<Goal>,
    pub(super) looks: PlannedLooks,
    /// The answer that was told last.
    told: Option<String>,
}

impl InterimAnalysis {
    /// The part of the results' chance of error that a look has.
    fn error_share(&self, ends_there: bool) -> f64 {
        // With `--first` the results have the confidence of one look.
        if ends_there { 1.0 } else { self.looks.error_share() }
    }
}

impl RunSession<'_> {
    /// Plans the looks at a run of at most so many blocks. A run that ends at the first answer has one look's
    /// confidence from its beginning, since any look may be its last.
    pub(super) fn plan_interim_analysis(&mut self, most: u32) -> Result<InterimAnalysis, Error> {
        let looks = PlannedLooks::new(most, self.run.plan.method.confidence);
        let goal = self.results.goal.as_deref().map(Goal::parse_kept).and_then(Result::ok);
        let method = &self.run.plan.method;
        if method.first {
            self.results.confidence = looks.look_confidence();
            let note = format!(
                "ends at the first proven answer: {} for each of at most {} makes {} for all",
                format_percent(self.results.confidence),
                format_count(looks.count(), "look"),
                format_percent(method.confidence)
            );
            self.add_remark(note);
            self.db.update_header(self.id, &self.results)?;
        }
        Ok(InterimAnalysis { goal, looks, told: None })
    }

    /// The part of the results' chance of error that eliminations of one look have.
    pub(super) fn share_of_look(&self, looking: &InterimAnalysis) -> f64 {
        looking.error_share(self.run.plan.method.first)
    }

    /// Looks for an answer among the blocks so far, and tells a new one. `left` is the longest time that the run goes on.
    /// Returns whether the run ends here.
    pub(super) fn check_for_answer(
        &mut self,
        looking: &mut InterimAnalysis,
        left: Option<Nanos>,
    ) -> bool {
        let Some(goal) = &looking.goal else { return false };
        let ends_there = self.run.plan.method.first;
        let share = looking.error_share(ends_there);
        // Early on a goal may not be judged yet: then there is no answer.
        let Ok(Some(answer)) = early_answer(&self.results, goal, share) else { return false };
        let what = describe_headline(&answer.headline, &answer.label);
        if looking.told.as_ref() != Some(&what) {
            let trials = format_count(self.results.rows.len(), "trial");
            let after = if self.is_simulated {
                trials
            } else {
                format!("{:.0} s ({trials})", self.begun.elapsed().as_secs_f64())
            };
            let more = if ends_there {
                String::new()
            } else {
                describe_remaining_gain(&answer, left)
                    .map_or_else(String::new, |more| format!("\n  {more}"))
            };
            // The sentence has the level of its interval.
            let sentence = answer.headline.sentence();
            self.progress.report_remark(&format!("proven after {after}: {what}; {sentence}{more}"));
            looking.told = Some(what);
        }
        if ends_there {
            self.results.notes.push("ended at the first proven answer".to_owned());
            self.ended_by_its_rules();
        }
        ends_there
    }
}

/// `set 50us` or `stay with today`.
fn describe_headline(headline: &Headline, label: &str) -> String {
    match headline {
        Headline::Set(_) => format!("set {label}"),
        _ => format!("stay with {label}"),
    }
}

/// Gain of an answer by the rest of the run.
fn describe_remaining_gain(answer: &EarlyAnswer, left: Option<Nanos>) -> Option<String> {
    let left = left.filter(|left| *left >= Nanos::from_s(1))?;
    let smallest = answer.smallest_ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0)?;
    let now = format_percent((smallest - 1.0).abs().min(9.99));
    Some(format!(
        "going on for at most {:.0} s to detect differences below {now} (--first stops here)",
        left.as_secs_f64()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_says_what_the_rest_adds() {
        let answer = EarlyAnswer {
            headline: Headline::Set("`50us` is proven better: p99 is 20% lower".to_owned()),
            label: "`50us`".to_owned(),
            smallest_ratio: Some(0.92),
        };
        assert_eq!(describe_headline(&answer.headline, &answer.label), "set `50us`");
        let said = describe_remaining_gain(&answer, Some(Nanos::from_s(162))).unwrap();
        assert!(said.contains("at most 162 s") && said.contains("below 8%"), "{said}");
        assert_eq!(describe_remaining_gain(&answer, Some(Nanos::ZERO)), None);
        assert_eq!(describe_remaining_gain(&answer, None), None);
        let stay = Headline::Stay("every other setting is proven worse".to_owned());
        assert_eq!(describe_headline(&stay, "`today`"), "stay with `today`");
    }
}
