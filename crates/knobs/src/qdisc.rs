//! Queue disciplines as text: `fq_codel limit=10240 target=5ms`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use latput_units::{BitsPerSecond, Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The word for what the kernel attaches by itself.
const DEFAULT: &str = "default";
/// Before the name of a discipline that latput can neither set nor put back.
const OPAQUE: &str = "other:";
/// Before the handle, as `handle=8001:`.
const HANDLE: &str = "handle=";
/// The longest name that the kernel has (`IFNAMSIZ`).
const NAME_MAX: usize = 16;
/// Times are kept in units of 1024 ns (`codel`) or 64 ns (`netem`, `tbf`): nearer than this is equal.
const TIME_SLACK: Nanos = Nanos::from_ns(2_048);

/// The queue disciplines that latput can set, with the parameters that it can set of each.
///
/// Names are those of tc(8); `Documentation/networking` and the manual pages tc-fq_codel(8),
/// tc-fq(8), tc-tbf(8) and tc-netem(8) say what they do.
const KINDS: &[(&str, &[(&str, ParameterUnit)])] = &[
    ("noqueue", &[]),
    ("mq", &[]),
    ("pfifo_fast", &[]),
    ("pfifo", &[("limit", ParameterUnit::Count)]),
    ("bfifo", &[("limit", ParameterUnit::Size)]),
    (
        "codel",
        &[
            ("limit", ParameterUnit::Count),
            ("target", ParameterUnit::Time),
            ("interval", ParameterUnit::Time),
            ("ecn", ParameterUnit::Switch),
            ("ce_threshold", ParameterUnit::Time),
        ],
    ),
    (
        "fq_codel",
        &[
            ("limit", ParameterUnit::Count),
            ("flows", ParameterUnit::Count),
            ("quantum", ParameterUnit::Size),
            ("target", ParameterUnit::Time),
            ("interval", ParameterUnit::Time),
            ("memory_limit", ParameterUnit::Size),
            ("drop_batch", ParameterUnit::Count),
            ("ecn", ParameterUnit::Switch),
            ("ce_threshold", ParameterUnit::Time),
        ],
    ),
    (
        "fq",
        &[
            ("limit", ParameterUnit::Count),
            ("flow_limit", ParameterUnit::Count),
            ("buckets", ParameterUnit::Count),
            ("quantum", ParameterUnit::Size),
            ("initial_quantum", ParameterUnit::Size),
            ("pacing", ParameterUnit::Switch),
            ("maxrate", ParameterUnit::Rate),
            ("low_rate_threshold", ParameterUnit::Rate),
            ("refill_delay", ParameterUnit::Time),
            ("orphan_mask", ParameterUnit::Count),
            ("timer_slack", ParameterUnit::Time),
            ("horizon", ParameterUnit::Time),
            ("horizon_drop", ParameterUnit::Switch),
            ("ce_threshold", ParameterUnit::Time),
        ],
    ),
    (
        "tbf",
        &[
            ("rate", ParameterUnit::Rate),
            ("burst", ParameterUnit::Size),
            ("limit", ParameterUnit::Size),
            ("peakrate", ParameterUnit::Rate),
            ("minburst", ParameterUnit::Size),
        ],
    ),
    (
        "netem",
        &[
            ("limit", ParameterUnit::Count),
            ("delay", ParameterUnit::Time),
            ("jitter", ParameterUnit::Time),
            ("loss", ParameterUnit::Share),
            ("duplicate", ParameterUnit::Share),
            ("rate", ParameterUnit::Rate),
        ],
    ),
];

/// The unit of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParameterUnit {
    Count,
    Size,
    Time,
    Rate,
    Switch,
    Share,
}

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParameterValue {
    /// A number of packets, flows or buckets.
    Count(u64),
    /// A number of bytes.
    Size(Bytes),
    /// A span of time.
    Time(Nanos),
    /// A data rate.
    Rate(BitsPerSecond),
    /// On or off.
    Switch(bool),
    /// A share of the packets, in millionths.
    Share(u32),
}

/// A queue discipline with its parameters.
///
/// Of what is to be set, parameters that are not named are the kernel's defaults; what was read has
/// all that latput knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Qdisc {
    kind: Box<str>,
    is_default: bool,
    is_opaque: bool,
    handle: Option<u16>,
    #[expect(clippy::box_collection, reason = "values of knobs are part of every error")]
    parameters: Box<BTreeMap<String, ParameterValue>>,
}

impl Qdisc {
    /// A discipline as the kernel names it, without parameters yet; opaque if latput does not know
    /// it.
    pub fn from_kind(kind: &str) -> Self {
        let is_opaque = find_parameters(kind).is_none();
        let kind: String = kind.chars().take(NAME_MAX).filter(|c| !c.is_whitespace()).collect();
        Self {
            kind: kind.into(),
            is_default: false,
            is_opaque,
            handle: None,
            parameters: Box::default(),
        }
    }

    /// Whatever the kernel attaches by itself.
    pub fn any_default() -> Self {
        Self { is_opaque: false, ..Self::from_kind("") }.into_default()
    }

    /// The same, attached by the kernel itself.
    pub fn into_default(mut self) -> Self {
        self.is_default = true;
        self
    }

    /// The same, which holds something that latput cannot put back, such as filters or options that
    /// it does not know.
    pub fn into_opaque(mut self) -> Self {
        self.is_opaque = true;
        self
    }

    /// The same under this handle (its major number); 0, which the kernel's own have, means no handle.
    pub fn with_handle(mut self, major: u16) -> Self {
        self.handle = (major != 0).then_some(major);
        self
    }

    /// Its handle (the major number), by which scripts and filters name it. What is wanted without one gets
    /// any. It is no part of what is displayed, but of what is stored.
    pub const fn handle(&self) -> Option<u16> {
        self.handle
    }

    /// The kernel's name; empty for a wanted `default`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether the kernel attached it itself, or is to.
    pub const fn is_default(&self) -> bool {
        self.is_default
    }

    /// Whether latput can neither set it nor put it back.
    pub const fn is_opaque(&self) -> bool {
        self.is_opaque
    }

    /// The names of the parameters that it has.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parameters.keys().map(String::as_str)
    }

    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<ParameterValue> {
        self.parameters.get(name).copied()
    }

    /// The parameters that are named, in the order of the manual pages.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, ParameterValue)> + '_ {
        let order = find_parameters(&self.kind).unwrap_or_default().iter().map(|(name, _)| *name);
        order.filter_map(|name| Some((name, self.parameter(name)?)))
    }

    /// Adds a parameter; one that the discipline does not have is left out.
    pub fn set(&mut self, name: &str, value: ParameterValue) {
        if find_parameters(&self.kind)
            .is_some_and(|units| units.iter().any(|(known, _)| *known == name))
        {
            self.parameters.insert(name.to_owned(), value);
        }
    }

    /// Whether both are the same discipline with the same parameters and handle, as far as both name them
    /// and the kernel can hold them.
    pub fn is_same(&self, other: &Self) -> bool {
        if self.is_opaque || other.is_opaque {
            return self == other;
        }
        // A wanted default may be any; one that was read is the one that the kernel attached then.
        if self.kind.is_empty() || other.kind.is_empty() {
            return self.is_default && other.is_default;
        }
        if self.is_default && other.is_default {
            return self.kind == other.kind;
        }
        // The kernel's own have handle 0.
        let handle = |one: &Self| if one.is_default { Some(0) } else { one.handle };
        let handles = handle(self).zip(handle(other));
        self.kind == other.kind
            && handles.is_none_or(|(first, second)| first == second)
            && self.parameters.iter().all(|(name, value)| {
                other.parameters.get(name).is_none_or(|other| value.is_near(*other))
            })
    }
}

impl ParameterValue {
    fn parse(unit: ParameterUnit, text: &str) -> Option<Self> {
        Some(match unit {
            ParameterUnit::Count => Self::Count(text.parse().ok()?),
            ParameterUnit::Size => Self::Size(text.parse().ok()?),
            // tc(8) takes a bare number for microseconds; who writes `target=5` means milliseconds.
            ParameterUnit::Time => Self::Time(text.parse().ok()?),
            ParameterUnit::Rate => Self::Rate(text.parse().ok()?),
            ParameterUnit::Switch => match text {
                "on" => Self::Switch(true),
                "off" => Self::Switch(false),
                _ => return None,
            },
            ParameterUnit::Share => Self::Share(parse_share(text)?),
        })
    }

    fn is_near(self, other: Self) -> bool {
        match (self, other) {
            (Self::Time(a), Self::Time(b)) => a.as_ns().abs_diff(b.as_ns()) < TIME_SLACK.as_ns(),
            (Self::Rate(a), Self::Rate(b)) => a.get().abs_diff(b.get()) < 8,
            // tbf keeps its burst as the time that it takes, in steps of 64 ns.
            (Self::Size(a), Self::Size(b)) => a.get().abs_diff(b.get()) <= (a.get() / 64).min(4096),
            (Self::Share(a), Self::Share(b)) => a.abs_diff(b) <= 1,
            _ => self == other,
        }
    }
}

impl fmt::Display for ParameterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => fmt::Display::fmt(count, f),
            Self::Size(size) => fmt::Display::fmt(size, f),
            Self::Time(time) => fmt::Display::fmt(time, f),
            Self::Rate(rate) => fmt::Display::fmt(rate, f),
            Self::Switch(on) => f.pad(if *on { "on" } else { "off" }),
            Self::Share(millionths) => {
                let whole = millionths / 10_000;
                let fraction = millionths % 10_000;
                let text = format!("{whole}.{fraction:04}");
                write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
            }
        }
    }
}

/// Reads `0.5%` to millionths.
fn parse_share(text: &str) -> Option<u32> {
    let number = text.strip_suffix('%')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty()
        || whole.len() > 3
        || fraction.len() > 4
        || !digits(whole)
        || !digits(fraction)
    {
        return None;
    }
    let millionths: u32 = format!("{whole}{fraction:0<4}").parse().ok()?;
    (millionths <= 1_000_000).then_some(millionths)
}

fn find_parameters(kind: &str) -> Option<&'static [(&'static str, ParameterUnit)]> {
    KINDS.iter().find(|(name, _)| *name == kind).map(|(_, units)| *units)
}

impl fmt::Display for Qdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if self.is_default {
            words.push(DEFAULT.to_owned());
        }
        if self.is_opaque {
            words.push(format!("{OPAQUE}{}", self.kind));
        } else if !self.kind.is_empty() {
            words.push(self.kind.to_string());
        }
        words.extend(self.parameters().map(|(name, value)| format!("{name}={value}")));
        f.pad(&words.join(" "))
    }
}

/// A text that is no queue discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct QdiscError {
    /// The problem of the text.
    pub problem: QdiscProblem,
}

/// A problem in the text of a queue discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QdiscProblem {
    /// It names none that latput can set.
    #[error(
        "the disciplines are default, noqueue, mq, pfifo_fast, pfifo, bfifo, codel, fq_codel, fq, tbf, netem"
    )]
    Kind,
    /// It names a parameter that the discipline does not have, or not with its value.
    #[error("a parameter is name=value, such as target=5ms, limit=1000, rate=1Gbps, loss=0.1%")]
    Parameter,
    /// It names an invalid handle.
    #[error("a handle is a hexadecimal number from 1 to ffff and a colon, such as handle=1:")]
    Handle,
    /// It names a parameter twice.
    #[error("a parameter is named twice")]
    Twice,
    /// tbf without what the kernel insists on.
    #[error("tbf needs rate=, burst= and limit=")]
    Incomplete,
}

impl FromStr for Qdisc {
    type Err = QdiscError;

    /// Reads what is displayed. `default` may be followed by what was found, which says nothing of
    /// what is wanted.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |problem| QdiscError { problem };
        let mut words = text.split_whitespace().peekable();
        let is_default = words.next_if_eq(&DEFAULT).is_some();
        let Some(kind) = words.next() else {
            return if is_default {
                Ok(Self::any_default())
            } else {
                Err(wrong(QdiscProblem::Kind))
            };
        };
        let mut qdisc = Self { is_default, ..Self::from_kind(kind.trim_start_matches(OPAQUE)) };
        qdisc.is_opaque = kind.starts_with(OPAQUE);
        let units = find_parameters(&qdisc.kind).unwrap_or_default();
        if !qdisc.is_opaque && find_parameters(&qdisc.kind).is_none() {
            return Err(wrong(QdiscProblem::Kind));
        }
        for word in words {
            if let Some(handle) = word.strip_prefix(HANDLE) {
                let major =
                    handle.strip_suffix(':').and_then(|it| u16::from_str_radix(it, 16).ok());
                let major = major.filter(|major| *major != 0 && !handle.starts_with('+'));
                if qdisc.handle.is_some() {
                    return Err(wrong(QdiscProblem::Twice));
                }
                qdisc.handle = Some(major.ok_or(wrong(QdiscProblem::Handle))?);
                continue;
            }
            let value = word.split_once('=').and_then(|(name, value)| {
                let (name, unit) = units.iter().find(|(known, _)| *known == name)?;
                Some((*name, ParameterValue::parse(*unit, value)?))
            });
            let (name, value) = value.ok_or(wrong(QdiscProblem::Parameter))?;
            if qdisc.parameters.insert(name.to_owned(), value).is_some() {
                return Err(wrong(QdiscProblem::Twice));
            }
        }
        let lacks = |name: &&str| !qdisc.parameters.contains_key(*name);
        if &*qdisc.kind == "tbf" && ["rate", "burst", "limit"].iter().any(lacks) {
            return Err(wrong(QdiscProblem::Incomplete));
        }
        Ok(qdisc)
    }
}

impl TryFrom<String> for Qdisc {
    type Error = QdiscError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Qdisc> for String {
    fn from(qdisc: Qdisc) -> Self {
        match qdisc.handle {
            Some(major) => format!("{qdisc} {HANDLE}{major:x}:"),
            None => qdisc.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disciplines_round_trip() {
        for text in [
            "default",
            "default noqueue",
            "default other:cake",
            "other:htb",
            "pfifo limit=1000",
            "fq_codel limit=10240 flows=1024 quantum=1514B target=5ms interval=100ms ecn=on",
            "fq limit=10000 pacing=off maxrate=1Gbps horizon=10s",
            "tbf rate=100Mbps burst=32768B limit=65536B",
            "netem limit=1000 delay=10ms jitter=1ms loss=0.1% duplicate=100%",
        ] {
            assert_eq!(text.parse::<Qdisc>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn unsettable_qdisc_is_refused_with_reason() {
        check_refused("", QdiscProblem::Kind);
        check_refused("htb", QdiscProblem::Kind);
        check_refused("fq_codel target", QdiscProblem::Parameter);
        check_refused("fq_codel target=5", QdiscProblem::Parameter);
        check_refused("fq_codel rate=5Mbps", QdiscProblem::Parameter);
        check_refused("pfifo limit=-1", QdiscProblem::Parameter);
        check_refused("netem loss=101%", QdiscProblem::Parameter);
        check_refused("netem loss=1.23456%", QdiscProblem::Parameter);
        check_refused("netem loss=.5%", QdiscProblem::Parameter);
        check_refused("fq limit=1 limit=2", QdiscProblem::Twice);
        check_refused("tbf rate=1Mbps", QdiscProblem::Incomplete);
    }

    #[test]
    fn values_filled_in_by_kernel_are_equal() {
        check_same("fq_codel target=5ms", "fq_codel limit=10240 target=4999us", true);
        check_same("fq_codel target=5ms", "fq_codel target=6ms", false);
        check_same("fq", "fq_codel", false);
        check_same("default", "default pfifo_fast", true);
        check_same("default fq_codel", "default pfifo_fast", false);
        check_same("default", "fq_codel", false);
        check_same("fq_codel limit=5", "default fq_codel limit=5", true);
        check_same("fq_codel limit=5", "default fq_codel limit=6", false);
        check_same("other:htb", "other:htb", true);
        check_same("other:htb", "default", false);
        check_same("tbf rate=1Mbps burst=10000 limit=1", "tbf rate=1Mbps burst=9984 limit=1", true);
    }

    #[test]
    fn handle_is_stored_and_not_displayed() {
        for text in ["pfifo limit=7 handle=1:", "default noqueue handle=8001:", "mq handle=ffff:"] {
            let qdisc: Qdisc = text.parse().unwrap();
            assert_eq!(String::from(qdisc.clone()), text);
            assert_eq!(Some(qdisc.to_string().as_str()), text.split(" handle").next());
        }
        check_same("pfifo handle=1:", "pfifo handle=2:", false);
        check_same("pfifo handle=1:", "pfifo", true);
        check_same("default pfifo_fast", "pfifo_fast", true);
        check_same("default pfifo_fast", "pfifo_fast handle=1:", false);
        for wrong in ["handle=0:", "handle=1", "handle=x:", "handle=10000:", "handle=+1:"] {
            check_refused(&format!("pfifo {wrong}"), QdiscProblem::Handle);
        }
        check_refused("pfifo handle=1: handle=1:", QdiscProblem::Twice);
    }

    #[test]
    fn hostile_names_stay_short_and_without_blanks() {
        let qdisc = Qdisc::from_kind(&"a b\n".repeat(100));
        assert!(qdisc.is_opaque() && qdisc.kind().len() <= NAME_MAX);
        assert_eq!(qdisc.to_string().parse::<Qdisc>().unwrap(), qdisc);
    }

    #[track_caller]
    fn check_refused(text: &str, problem: QdiscProblem) {
        assert_eq!(text.parse::<Qdisc>(), Err(QdiscError { problem }), "{text}");
    }

    #[track_caller]
    fn check_same(first: &str, second: &str, expected: bool) {
        let [a, b] = [first, second].map(|text| text.parse::<Qdisc>().unwrap());
        assert_eq!((a.is_same(&b), b.is_same(&a)), (expected, expected), "{first} and {second}");
    }
}
