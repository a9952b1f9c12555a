//! A TuneD profile, as of TuneD 2.21: the options of its plugin `net`.

use std::fmt::Write as _;

use super::commands::{self, Command};
use super::{Target, Words, sections};
use crate::catalogue::Knob;
use crate::value::Value;

/// The parameters that the plugin takes of each ethtool option; it refuses others. Offloads are taken by name.
const OPTIONS: &[(&str, &str, &[&str])] = &[
    (
        "-C",
        "coalesce",
        &[
            "adaptive-rx",
            "adaptive-tx",
            "rx-usecs",
            "rx-frames",
            "rx-usecs-irq",
            "rx-frames-irq",
            "tx-usecs",
            "tx-frames",
            "tx-usecs-irq",
            "tx-frames-irq",
            "stats-block-usecs",
            "pkt-rate-low",
            "rx-usecs-low",
            "rx-frames-low",
            "tx-usecs-low",
            "tx-frames-low",
            "pkt-rate-high",
            "rx-usecs-high",
            "rx-frames-high",
            "tx-usecs-high",
            "tx-frames-high",
            "sample-interval",
        ],
    ),
    ("-A", "pause", &["autoneg", "rx", "tx"]),
    ("-G", "ring", &["rx", "rx-mini", "rx-jumbo", "tx"]),
    ("-L", "channels", &["rx", "tx", "combined"]),
    ("-K", "features", &[]),
];

/// The words of one knob, with their option as the section; `None` if the plugin has no option for it.
pub(super) fn words(knob: Knob, value: &Value) -> Option<Words> {
    match (knob, value, commands::command(knob, value)) {
        (Knob::Mtu, Value::Count(bytes), _) => Some(vec![("mtu", bytes.to_string())]),
        (Knob::Txqueuelen, Value::Count(packets), _) => {
            Some(vec![("txqueuelen", packets.to_string())])
        }
        (_, _, Command::Ethtool { option, words }) => {
            let (_, name, known) = OPTIONS.iter().find(|(flag, ..)| *flag == option)?;
            let parameter = words.split(' ').next()?;
            let is_known = known.is_empty() || known.contains(&parameter);
            is_known.then(|| vec![(*name, words)])
        }
        _ => None,
    }
}

/// TuneD merges sections of one name, also those of a profile that another includes: each interface has its own. It gives a
/// device to the first section that takes it, by priority: an included `[net]` takes all.
pub(super) fn document(target: &Target, words: &[(&'static str, String)]) -> (String, String) {
    let name = target.interface();
    let file = format!("/etc/tuned/latput-{name}/tuned.conf");
    let mut body = format!(
        "# Keep as {file}, name the profile of now as `include` below (`tuned-adm active`\n\
         # shows it), then `tuned-adm profile latput-{name}`.\n\
         [main]\nsummary=settings of {name}\n#include=PROFILE\n\n\
         [latput-{name}]\ntype=net\ndevices={name}\npriority=-1\n"
    );
    for (option, words) in sections(words) {
        let _ = writeln!(body, "{option}={}", words.join(" "));
    }
    (file, body)
}
