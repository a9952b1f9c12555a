//! The recommended setting and its proof.

use latput_stats::Estimate;

use super::change::ObjectiveChange;
use super::smallest::SmallestEffect;

/// A recommendation with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommendation {
    /// The answer in one sentence.
    pub headline: Headline,
    /// The goal in full.
    pub goal: String,
    /// Index of the recommended setting.
    pub setting: usize,
    /// The proof that it is better than the first setting; `None` without one.
    pub proven_by: Option<ProvenBy>,
    /// The paired ratio of the objective to the first setting's; `None` if the first setting itself
    /// is recommended.
    pub against_first: Option<Estimate>,
    /// The reason in two or three sentences: the difference, its interval, and the costs elsewhere.
    pub reason: Vec<String>,
    /// The smallest effects that this run could have proven: of the objective, then of each limit;
    /// empty where no setting shares two blocks with the first one.
    pub smallest: Vec<SmallestEffect>,
    /// The objective as tables name it: `p99`.
    pub objective: String,
    /// The change of the objective under every setting but the first, as the answer weighs it. Empty where the hosts
    /// were not quiet.
    pub changes: Vec<ObjectiveChange>,
}

impl Recommendation {
    /// Replaces each index of a setting by the one in `indices`, for a recommendation made from some of the settings.
    pub(crate) fn with_settings(mut self, indices: &[usize]) -> Self {
        self.setting = indices[self.setting];
        for change in &mut self.changes {
            change.setting = indices[change.setting];
        }
        self
    }

    /// Whether it is proven better than the first setting.
    pub const fn is_proven(&self) -> bool {
        self.proven_by.is_some()
    }
}

/// The kind of proof that a setting is better than the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvenBy {
    /// The goal's objective is better.
    Objective,
    /// The figures of the limits that the first setting is proven to break are better. The
    /// objective may be worse.
    Limit,
}

impl ProvenBy {
    /// The name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Objective => "objective",
            Self::Limit => "limit",
        }
    }
}

/// The answer of a run to its goal, each with its sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Headline {
    /// Change to a setting that is proven better.
    Set(String),
    /// Stay with today's: nothing better was found, and it would probably have been.
    Stay(String),
    /// The run can say neither: its noise hides what it was to find.
    TooNoisy(String),
    /// The run can say neither: nothing that counts can be compared. What it lacks.
    NoAnswer(String),
    /// The run can say neither, because of what disturbed it.
    NotQuiet(String),
}

impl Headline {
    /// The name in JSON: `set`, `stay` or `no_answer`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Set(_) => "set",
            Self::Stay(_) => "stay",
            Self::TooNoisy(_) | Self::NoAnswer(_) | Self::NotQuiet(_) => "no_answer",
        }
    }

    /// Whether it says what to do: to set a setting, or to stay.
    pub const fn is_answer(&self) -> bool {
        matches!(self, Self::Set(_) | Self::Stay(_))
    }

    /// Whether the trials that count were enough to be judged; a noisy run was judged.
    pub const fn is_judged(&self) -> bool {
        !matches!(self, Self::NoAnswer(_) | Self::NotQuiet(_))
    }

    /// The sentence.
    pub fn sentence(&self) -> &str {
        match self {
            Self::Set(sentence)
            | Self::Stay(sentence)
            | Self::TooNoisy(sentence)
            | Self::NoAnswer(sentence)
            | Self::NotQuiet(sentence) => sentence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_compared_nothing_is_unjudged() {
        let all = [
            Headline::Set(String::new()),
            Headline::Stay(String::new()),
            Headline::TooNoisy(String::new()),
            Headline::NoAnswer(String::new()),
            Headline::NotQuiet(String::new()),
        ];
        let said = all.map(|one| (one.kind(), one.is_answer(), one.is_judged()));
        let expected = [
            ("set", true, true),
            ("stay", true, true),
            ("no_answer", false, true),
            ("no_answer", false, false),
            ("no_answer", false, false),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn proof_says_what_it_is_of() {
        assert_eq!(
            [ProvenBy::Objective, ProvenBy::Limit].map(ProvenBy::name),
            ["objective", "limit"]
        );
    }
}
