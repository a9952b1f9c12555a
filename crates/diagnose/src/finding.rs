//! Findings: what is wrong, how it is known, and what would prove it.

use std::collections::BTreeMap;

use latput_knobs::{Knob, Tier};
use schemars::JsonSchema;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::source::EvidenceSource;

/// How sure a finding is before anything is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Other causes are as likely: the finding says which, and what tells them apart.
    Hint,
    /// The counters fit, and other causes are less likely.
    Likely,
    /// The kernel counts just this.
    Certain,
}

/// Shares of the harm that a finding explains, from 0 to 1; absent where that cannot be said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Explained {
    /// Of the time that the application waits.
    pub latency_share: Option<f64>,
    /// Of the packets, segments or requests that were lost.
    pub loss_share: Option<f64>,
    /// Of the CPU time.
    pub cpu_share: Option<f64>,
}

/// The kind of harm, of which a trial measures whether it becomes less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Packets, segments or requests are lost.
    Loss,
    /// The application waits.
    Latency,
    /// CPU time is burnt.
    Cpu,
}

impl Explained {
    /// The shares that are known, each with its weight. A loss costs a connection a timeout, so that it weighs more than a
    /// wait, and a wait more than CPU time. TCP's rate falls with the square root of the loss (Mathis et al. 1997): one
    /// percent costs far more than a hundredth.
    pub(crate) fn weighed(self) -> impl Iterator<Item = (Harm, f64)> {
        let harms = [
            (Harm::Loss, self.loss_share.map(f64::sqrt), 3.0),
            (Harm::Latency, self.latency_share, 2.0),
            (Harm::Cpu, self.cpu_share, 1.0),
        ];
        harms.into_iter().filter_map(|(harm, share, weight)| Some((harm, share? * weight)))
    }

    /// The harm that weighs most; `None` where no share is known.
    pub fn main_harm(self) -> Option<Harm> {
        let (harm, _) = self.weighed().max_by(|one, other| one.1.total_cmp(&other.1))?;
        Some(harm)
    }
}

/// A figure that a finding rests on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum EvidenceValue {
    /// A count, share or rate; its unit is the end of its name.
    Number(f64),
    /// A name or setting.
    Text(String),
}

impl From<f64> for EvidenceValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for EvidenceValue {
    fn from(number: u64) -> Self {
        Self::Number(number as f64)
    }
}

impl From<&str> for EvidenceValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for EvidenceValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A knob of latput with a value, both as `latput set` takes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KnobChange {
    /// The knob.
    pub knob: String,
    /// The value.
    pub value: String,
}

impl KnobChange {
    /// Reads `rx-usecs=8us`, or several with spaces between. One with spaces in its value is in single quotes.
    pub fn parse_all(changes: &str) -> Vec<Self> {
        let words = changes.split('\'').enumerate().flat_map(|(idx, part)| {
            let is_quoted = idx % 2 == 1;
            if is_quoted { vec![part] } else { part.split_whitespace().collect() }
        });
        let pairs = words.filter_map(|change| change.split_once('='));
        pairs.map(|(knob, value)| Self { knob: knob.to_owned(), value: value.to_owned() }).collect()
    }

    fn is_for_new_sockets(&self) -> bool {
        self.knob.parse::<Knob>().is_ok_and(|knob| knob.spec().is_for_new_sockets)
    }

    /// The flag without which `latput tune --live` refuses the knob because its change disturbs traffic.
    fn disruptive_flag(&self) -> Option<String> {
        let knob = self.knob.parse::<Knob>().ok()?;
        (knob.spec().tier != Tier::Hitless).then(|| format!(" --disruptive {knob}"))
    }
}

/// A fault with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// The rule's name.
    pub id: &'static str,
    /// How sure it is.
    pub confidence: Confidence,
    /// One sentence with the figures: what is wrong, here.
    pub sentence: String,
    /// The figures by name.
    pub evidence: BTreeMap<&'static str, EvidenceValue>,
    /// The harm that it explains.
    pub explains: Explained,
    /// One sentence: how this costs latency, packets or CPU time.
    pub mechanism: &'static str,
    /// The command or the act that would mend it; `None` where it is not on this host.
    pub remedy: Option<String>,
    /// The knobs that a trial of the remedy sets; empty where no setting of latput tells.
    pub settings: Vec<KnobChange>,
    /// The command that would blame or clear it; `None` where none can.
    pub prove: Option<String>,
}

impl Finding {
    /// Begins a finding; evidence, remedy and proof are added.
    pub fn new(rule: &Rule, confidence: Confidence, sentence: String) -> Self {
        Self {
            id: rule.id,
            confidence,
            sentence,
            evidence: BTreeMap::new(),
            explains: Explained::default(),
            mechanism: rule.mechanism,
            remedy: None,
            settings: Vec::new(),
            prove: None,
        }
    }

    /// Adds a figure.
    pub fn with(mut self, name: &'static str, value: impl Into<EvidenceValue>) -> Self {
        self.evidence.insert(name, value.into());
        self
    }

    /// The name and the sentence, which may begin with the name.
    #[must_use]
    pub fn title(&self) -> String {
        let has_name =
            self.sentence.strip_prefix(self.id).is_some_and(|rest| rest.starts_with(':'));
        if has_name { self.sentence.clone() } else { format!("{}: {}", self.id, self.sentence) }
    }

    /// Sets the share of the waits that it explains.
    pub fn explaining_latency(mut self, share: f64) -> Self {
        self.explains.latency_share = Some(share.clamp(0.0, 1.0));
        self
    }

    /// Sets the share of the losses that it explains.
    pub fn explaining_loss(mut self, share: f64) -> Self {
        self.explains.loss_share = Some(share.clamp(0.0, 1.0));
        self
    }

    /// Sets the share of the CPU time that it explains.
    pub fn explaining_cpu(mut self, share: f64) -> Self {
        self.explains.cpu_share = Some(share.clamp(0.0, 1.0));
        self
    }

    /// Sets the remedy.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Sets the command that would blame or clear it.
    pub fn with_proof(mut self, command: impl Into<String>) -> Self {
        self.prove = Some(command.into());
        self
    }

    /// Sets the remedy to a change of knobs, and the proof to trying it in turns with today's values under the traffic that
    /// is there; `changes` such as `rx-usecs=8us`, or several with spaces between.
    pub fn with_change(mut self, evidence: &Evidence<'_>, changes: &str) -> Self {
        let interface = evidence.interface_name();
        self.settings = KnobChange::parse_all(changes);
        let joined = |word: fn(&KnobChange) -> &str| {
            self.settings.iter().map(word).collect::<Vec<_>>().join("+")
        };
        let (names, values) =
            (joined(|change| change.knob.as_str()), joined(|change| change.value.as_str()));
        self.remedy = Some(format!("latput set {interface} {changes} --dry-run"));
        let factor = format!("{names}={values}");
        let factor = if factor.contains(' ') { format!("'{factor}'") } else { factor };
        let disruptive: String =
            self.settings.iter().filter_map(KnobChange::disruptive_flag).collect();
        self.prove = Some(if self.settings.iter().any(KnobChange::is_for_new_sockets) {
            // Connections that are there do not take it.
            format!("latput diagnose {interface} --prove {} --peer HOST", self.id)
        } else {
            format!("latput tune {interface} --live --factor {factor}{disruptive}")
        });
        self
    }
}

/// Verdict of a rule on a snapshot.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "each lives until the next rule is asked")]
pub enum Judgement {
    /// The fault is there.
    Fault(Finding),
    /// The sources are there and show no fault.
    Healthy,
    /// This is missing.
    Unseen(EvidenceSource),
}

/// A row of the table of findings.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name in JSON and on the command line.
    pub id: &'static str,
    /// Subject that is looked at, for the list of what is healthy: "the receive ring".
    pub subject: &'static str,
    /// One sentence: how this fault costs latency, packets or CPU time.
    pub mechanism: &'static str,
    /// Judges the evidence.
    pub judge: fn(&Rule, &Evidence<'_>) -> Judgement,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaviest_harm_is_the_main_one() {
        let of = |loss_share, latency_share, cpu_share| {
            Explained { latency_share, loss_share, cpu_share }.main_harm()
        };
        assert_eq!(of(None, None, None), None);
        assert_eq!(of(None, Some(0.4), Some(0.7)), Some(Harm::Latency));
        assert_eq!(of(Some(0.01), Some(0.1), Some(0.2)), Some(Harm::Loss), "a root of a loss");
        assert_eq!(of(Some(0.0), None, Some(0.1)), Some(Harm::Cpu));
    }

    #[test]
    fn changes_are_read_as_set_takes_them() {
        let change =
            |knob: &str, value: &str| KnobChange { knob: knob.to_owned(), value: value.to_owned() };
        assert_eq!(
            KnobChange::parse_all("adaptive-rx=off smp-affinity=0,2-3"),
            [change("adaptive-rx", "off"), change("smp-affinity", "0,2-3")]
        );
        assert_eq!(
            KnobChange::parse_all("'tcp-rmem=1 2 3' gro=on"),
            [change("tcp-rmem", "1 2 3"), change("gro", "on")]
        );
    }
}
