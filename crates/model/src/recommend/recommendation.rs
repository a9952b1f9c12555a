//! What is recommended, and by what it is proven.

use latput_stats::Estimate;

use super::smallest::SmallestEffect;

/// What to set, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommendation {
    /// The goal in full.
    pub goal: String,
    /// Index of the recommended setting.
    pub setting: usize,
    /// What proves that it is better than the first setting; `None` where nothing does.
    pub proven_by: Option<ProvenBy>,
    /// The objective against the first setting, as a paired ratio; `None` if the first setting itself
    /// is recommended.
    pub against_first: Option<Estimate>,
    /// Two or three sentences: the difference, its interval, and what it costs elsewhere.
    pub reason: Vec<String>,
    /// The smallest effects that this run could have proven: of the objective, then of each limit; empty
    /// where no setting has two blocks beside the first one.
    pub smallest: Vec<SmallestEffect>,
}

impl Recommendation {
    /// Whether it is proven better than the first setting in anything.
    pub const fn is_proven(&self) -> bool {
        self.proven_by.is_some()
    }
}

/// By what a setting is proven better than the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvenBy {
    /// The goal's objective.
    Objective,
    /// The figures of the limits that the first setting is proven to break. The objective may be worse.
    Limit,
}

impl ProvenBy {
    /// The word of tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Objective => "objective",
            Self::Limit => "limit",
        }
    }
}
