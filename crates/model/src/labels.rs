//! Names of settings without the part that all of them share.

use latput_trial::Results;

/// The shortest labels that tell the settings apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortLabels {
    /// The knobs that every label names, or `setting` where they name different ones.
    pub knobs: String,
    /// One label for each setting of the results.
    pub labels: Vec<String>,
}

impl ShortLabels {
    /// Shortens the labels. Labels of the form `knob=value ...` lose the knobs if all of them name
    /// the same ones in the same order.
    pub fn of(results: &Results) -> Self {
        let labels = || results.settings.iter().map(|setting| setting.label.as_str());
        let parts: Option<Vec<_>> = labels().map(knobs_and_values).collect();
        let shared = parts.filter(|parts| {
            let first = parts.first().map(|(knobs, _)| knobs);
            first.is_some_and(|first| !first.is_empty() && parts.iter().all(|(k, _)| k == first))
        });
        match shared {
            Some(parts) => Self {
                knobs: parts[0].0.join(", "),
                labels: parts.into_iter().map(|(_, values)| values.join(", ")).collect(),
            },
            None => {
                Self { knobs: "setting".to_owned(), labels: labels().map(str::to_owned).collect() }
            }
        }
    }
}

fn knobs_and_values(label: &str) -> Option<(Vec<&str>, Vec<&str>)> {
    let parts: Option<Vec<_>> = label.split_whitespace().map(|part| part.split_once('=')).collect();
    Some(parts?.into_iter().unzip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Figures, results};

    #[test]
    fn shared_knobs_are_named_once() {
        check(&["t=0us", "t=20us"], "t", &["0us", "20us"]);
        check(&["t=0us mtu=1500", "t=20us mtu=9000"], "t, mtu", &["0us, 1500", "20us, 9000"]);
        check(&["t=0us", "mtu=1500"], "setting", &["t=0us", "mtu=1500"]);
        check(&["as found", "t=20us"], "setting", &["as found", "t=20us"]);
        check(&["", ""], "setting", &["", ""]);
        check(&[], "setting", &[]);
    }

    #[track_caller]
    fn check(labels: &[&str], knobs: &str, short: &[&str]) {
        let found = ShortLabels::of(&results(labels, &[], 1, |_, _| Figures::default()));
        assert_eq!(
            (found.knobs.as_str(), found.labels.as_slice()),
            (knobs, &*short.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
        );
    }
}
