//! Sections of a NetworkManager keyfile: nm-settings-keyfile(5), nm-settings(5).

use std::fmt::Write as _;

use super::{Format, Target, Words, number, sections};
use crate::catalogue::Knob;
use crate::catalogue::spec::Group;
use crate::qdisc::{ParameterValue, Qdisc};
use crate::setting::Setting;
use crate::value::Value;

/// The first words of properties that not every NetworkManager reads, with its version that does first.
const NEWER: [(&str, &str); 3] =
    [("channels-", "1.46"), ("eee-", "1.46"), ("tx-queue-length", "1.44")];

/// The lines of one knob; `None` if there is no property for it, or not in each version that may read a known profile.
pub(super) fn words(knob: Knob, value: &Value, target: &Target) -> Option<Words> {
    let words = words_of_any_version(knob, value, target)?;
    let is_newer =
        |(_, line): &(&str, String)| NEWER.iter().any(|(start, _)| line.starts_with(start));
    let is_known_profile = target.profile_type.is_some();
    (!is_known_profile || !words.iter().any(is_newer)).then_some(words)
}

/// Whether NetworkManager refuses the whole profile for this knob: the direction of pause frames beside their negotiation.
pub(super) fn is_refused(knob: Knob, setting: &Setting) -> bool {
    let is_direction = matches!(knob, Knob::PauseRx | Knob::PauseTx);
    is_direction && setting.get(&Knob::PauseAutoneg) == Some(&Value::Switch(true))
}

/// The section that has the MTU: that of the profile's type, and that of Ethernet for all types without one.
fn mtu_section(target: &Target) -> &'static str {
    let of_kind = target.type_in(Format::NetworkManager);
    match target.profile_type.as_deref().or(of_kind) {
        Some("wifi") => "wifi",
        Some("gsm") => "gsm",
        Some("infiniband") => "infiniband",
        Some("ip-tunnel") => "ip-tunnel",
        Some("wireguard") => "wireguard",
        _ => "ethernet",
    }
}

fn words_of_any_version(knob: Knob, value: &Value, target: &Target) -> Option<Words> {
    let (section, line) = match (knob, value) {
        (Knob::Mtu, Value::Count(bytes)) => (mtu_section(target), format!("mtu={bytes}")),
        (Knob::Txqueuelen, Value::Count(packets)) => ("link", format!("tx-queue-length={packets}")),
        (Knob::Qdisc, Value::Qdisc(qdisc)) => ("tc", format!("qdisc.root={}", discipline(qdisc)?)),
        (_, Value::Switch(on)) => {
            let property = switch_property(knob)?;
            // Coalescing properties are numbers, all of them.
            let is_number = knob.spec().group == Group::Coalescing;
            let value = if is_number { u8::from(*on).to_string() } else { on.to_string() };
            ("ethtool", format!("{property}={value}"))
        }
        _ => ("ethtool", format!("{}={}", number_property(knob)?, number(knob, value)?)),
    };
    Some(vec![(section, line)])
}

fn switch_property(knob: Knob) -> Option<String> {
    Some(match knob {
        Knob::PauseAutoneg | Knob::PauseRx | Knob::PauseTx => knob.name().to_owned(),
        Knob::Eee => "eee-enabled".to_owned(),
        Knob::AdaptiveRx | Knob::AdaptiveTx => number_property(knob)?,
        _ => format!("feature-{}", super::commands::feature(knob)?),
    })
}

fn number_property(knob: Knob) -> Option<String> {
    table(knob).map(|(table, name)| format!("{table}-{name}"))
}

/// The table of ethtool and the name in it of a knob of its channels, rings or coalescing.
pub(super) fn table(knob: Knob) -> Option<(&'static str, &'static str)> {
    Some(match knob {
        Knob::CombinedChannels => ("channels", "combined"),
        Knob::RxChannels => ("channels", "rx"),
        Knob::TxChannels => ("channels", "tx"),
        Knob::RxRing => ("ring", "rx"),
        Knob::TxRing => ("ring", "tx"),
        Knob::RxMiniRing => ("ring", "rx-mini"),
        Knob::RxJumboRing => ("ring", "rx-jumbo"),
        Knob::CqeModeRx
        | Knob::CqeModeTx
        | Knob::TxAggrMaxBytes
        | Knob::TxAggrMaxFrames
        | Knob::TxAggrTimeUsecs => return None,
        _ if knob.spec().group == Group::Coalescing => ("coalesce", knob.name()),
        _ => return None,
    })
}

/// A queue discipline as `[tc]` has it; `None` for parameters that NetworkManager does not know.
fn discipline(qdisc: &Qdisc) -> Option<String> {
    let known: &[&str] = match qdisc.kind() {
        "fq_codel" => &[
            "limit",
            "flows",
            "quantum",
            "target",
            "interval",
            "memory_limit",
            "ecn",
            "ce_threshold",
        ],
        "tbf" => &["rate", "burst", "limit"],
        _ => &[],
    };
    if qdisc.is_opaque() || qdisc.kind().is_empty() {
        return None;
    }
    let mut text = qdisc.kind().to_owned();
    for (name, parameter) in qdisc.parameters() {
        if !known.contains(&name) {
            return None;
        }
        let value = match parameter {
            ParameterValue::Count(count) => count,
            ParameterValue::Size(size) => size.get(),
            // Microseconds, and bytes per second.
            ParameterValue::Time(time) => time.as_ns() / 1_000,
            ParameterValue::Rate(rate) => rate.get() / 8,
            ParameterValue::Switch(true) => {
                let _ = write!(text, " {name}");
                continue;
            }
            ParameterValue::Switch(false) | ParameterValue::Share(_) => return None,
        };
        let _ = write!(text, " {name} {value}");
    }
    Some(text)
}

pub(super) fn document(target: &Target, words: &[(&'static str, String)]) -> (String, String) {
    let name = target.interface();
    let mut body = format!(
        "# Sections for the profile of {name}, a file in /etc/NetworkManager/system-connections:\n\
         # `nmcli -g GENERAL.CONNECTION device show {name}` names it. Where it has a section\n\
         # already, add the lines. Then `nmcli connection reload` and `nmcli connection up NAME`.\n"
    );
    for (start, version) in NEWER {
        if words.iter().any(|(_, line)| line.starts_with(start)) {
            let _ = writeln!(body, "# `{start}` needs NetworkManager {version} or newer.");
        }
    }
    for (section, lines) in sections(words) {
        let _ = write!(body, "\n[{section}]\n{}\n", lines.join("\n"));
    }
    ("a file in /etc/NetworkManager/system-connections".to_owned(), body)
}
