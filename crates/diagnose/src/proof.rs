//! The trial of a remedy: the setting by turns with today's, and what came of it.

use schemars::JsonSchema;
use serde::Serialize;

/// Verdict on a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nobody has tried it.
    Hypothesis,
    /// The remedy is proven to make the harm less.
    Blamed,
    /// The remedy is proven to make no difference that matters, or to harm.
    Cleared,
    /// It was tried, and both are possible.
    Undecided,
}

impl Verdict {
    /// The word in texts and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hypothesis => "hypothesis",
            Self::Blamed => "blamed",
            Self::Cleared => "cleared",
            Self::Undecided => "undecided",
        }
    }
}

/// The figures of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Proof {
    /// The figure in which the finding does harm, by the name that `latput metrics` explains.
    pub metric: String,
    /// Change of the figure by the remedy, as a share of today's: -0.23 is 23% less. Absent where today's is 0.
    pub change_ratio: Option<f64>,
    /// Interval of the change; absent where a figure is 0, or with fewer than two pairs.
    pub interval_ratio: Option<[f64; 2]>,
    /// Confidence of the interval.
    pub level: f64,
    /// Pairs of a slice with the remedy and one of today's setting.
    pub pairs: usize,
    /// The gain, as a share of today's figure, that is ruled out; of a cleared finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_gain_over_ratio: Option<f64>,
    /// Seconds that a trial takes until it decides, by the scatter of these pairs; of an undecided finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_after_s: Option<f64>,
    /// The reason why there is no verdict, if it is not the scatter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Proof {
    /// The trial in a sentence without its end: `blamed: sut_kb_cpu_ns -23% (-26% to -20%, at 99%, 14 pairs)`.
    pub fn describe(&self, verdict: Verdict) -> String {
        let signed = |share: f64| format!("{:+.1}%", 100.0 * share);
        let metric = &self.metric;
        let mut told = match (self.change_ratio, self.interval_ratio) {
            (Some(change), Some([low, high])) => format!(
                "{metric} {} ({} to {}, at {:.0}%, {} pairs)",
                signed(change),
                signed(low),
                signed(high),
                100.0 * self.level,
                self.pairs
            ),
            (Some(change), None) => {
                format!(
                    "{metric} {} ({} pairs, at {:.0}%)",
                    signed(change),
                    self.pairs,
                    100.0 * self.level
                )
            }
            (None, _) => format!("{metric} has no ratio ({} pairs)", self.pairs),
        };
        if let Some(most) = self.no_gain_over_ratio {
            told = format!("no gain over {:.1}%: {told}", 100.0 * most);
        }
        if let Some(seconds) = self.decided_after_s {
            let minutes = (seconds / 60.0).ceil();
            told = format!("{told}; a trial of about {minutes:.0} min decides");
        }
        if let Some(reason) = &self.reason {
            told = format!("{told}; {reason}");
        }
        format!("{}: {told}", verdict.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_is_told_in_a_sentence() {
        let blamed = Proof {
            metric: "sut_kb_cpu_ns".to_owned(),
            change_ratio: Some(-0.23),
            interval_ratio: Some([-0.26, -0.2]),
            level: 0.99,
            pairs: 14,
            no_gain_over_ratio: None,
            decided_after_s: None,
            reason: None,
        };
        assert_eq!(
            blamed.describe(Verdict::Blamed),
            "blamed: sut_kb_cpu_ns -23.0% (-26.0% to -20.0%, at 99%, 14 pairs)"
        );
        let cleared = Proof {
            change_ratio: Some(0.001),
            interval_ratio: Some([-0.012, 0.014]),
            no_gain_over_ratio: Some(0.012),
            ..blamed.clone()
        };
        assert!(
            cleared.describe(Verdict::Cleared).starts_with("cleared: no gain over 1.2%: sut_kb")
        );
        let open = Proof { decided_after_s: Some(700.0), ..cleared };
        assert!(open.describe(Verdict::Undecided).ends_with("a trial of about 12 min decides"));
    }
}
