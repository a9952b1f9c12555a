//! A setting as commands that a person can read and run: ethtool(8), ip(8), tc(8), sysctl(8), and
//! writes to sysfs.

use std::fmt::Write as _;

use latput_units::CpuSet;

use super::{Target, Words, number};
use crate::catalogue::Knob;
use crate::catalogue::spec::Group;
use crate::profile::Profile;
use crate::qdisc::{ParameterValue, Qdisc};
use crate::rss::QueueTable;
use crate::value::{Named, Value};

/// How one knob is set by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// `ethtool OPTION IFACE WORDS`; several of one option become one command.
    Ethtool { option: &'static str, words: String },
    /// A whole command; `IFACE` stands for the interface.
    Shell(String),
    /// The same to files of the interface in sysfs, by a pattern.
    Files { pattern: String, content: String },
    /// A sysctl.
    Sysctl { name: &'static str, value: String },
    /// The CPUs of every interrupt; `None`: those that the driver hints at.
    Interrupts(Option<CpuSet>),
    /// A parameter of the driver's module.
    LoadTime { name: &'static str, number: u64 },
    /// Nothing needs to be done.
    Nothing(&'static str),
    /// There is no command for it.
    Unknown(&'static str),
}

/// How `knob` is set to `value` by hand.
pub(super) fn command(knob: Knob, value: &Value) -> Command {
    if let Some(name) = knob.sysctl() {
        let value = match (value, number(knob, value)) {
            (Value::Switch(on), _) => u8::from(*on).to_string(),
            (_, Some(number)) => number.to_string(),
            (other, None) => other.to_string(),
        };
        return Command::Sysctl { name, value };
    }
    match (knob, value) {
        (_, Value::Named(Named::Max)) => Command::Unknown(
            "ethtool does not know `max`: write the number that `ethtool -g` or `-l` shows",
        ),
        (Knob::SmpAffinity, Value::Cpus(cpus)) => Command::Interrupts(Some(cpus.clone())),
        (_, Value::Named(Named::Hint)) => Command::Interrupts(None),
        (Knob::Mtu, Value::Count(bytes)) => {
            Command::Shell(format!("ip link set dev IFACE mtu {bytes}"))
        }
        (Knob::Txqueuelen, Value::Count(packets)) => {
            Command::Shell(format!("ip link set dev IFACE txqueuelen {packets}"))
        }
        (
            Knob::GsoMaxSize | Knob::GsoIpv4MaxSize | Knob::GroMaxSize | Knob::GroIpv4MaxSize,
            Value::Count(bytes),
        ) => Command::Shell(format!(
            "ip link set dev IFACE {} {bytes}",
            knob.name().replace('-', "_")
        )),
        (Knob::Qdisc, Value::Qdisc(qdisc)) => root_qdisc(qdisc),
        (Knob::QueueQdisc, Value::Qdisc(qdisc)) => queue_qdisc(qdisc),
        (_, Value::Table(table)) => rss(table),
        (_, Value::Profile(profile)) => {
            Command::Ethtool { option: "-C", words: format!("{knob} {}", points(profile)) }
        }
        (_, Value::Switch(on)) => switch(knob, *on),
        (_, Value::Cpus(cpus)) => {
            Command::Files { pattern: pattern(knob), content: cpus.to_hex_mask() }
        }
        _ => match (knob.module_parameter(), number(knob, value)) {
            (Some(name), Some(number)) => Command::LoadTime { name, number },
            (None, Some(number)) => build_number_command(knob, number),
            (_, None) => Command::Unknown("its value is of another kind"),
        },
    }
}

fn build_number_command(knob: Knob, number: u64) -> Command {
    let ethtool =
        |option, name: &str| Command::Ethtool { option, words: format!("{name} {number}") };
    match knob.spec().group {
        Group::Coalescing => ethtool("-C", knob.name()),
        Group::Queues if knob.name().ends_with("-channels") => {
            ethtool("-L", knob.name().trim_end_matches("-channels"))
        }
        Group::Queues => ethtool("-G", knob.name().trim_end_matches("-ring")),
        Group::Link => ethtool("--set-eee", "tx-timer"),
        Group::Napi if knob == Knob::IrqSuspendTimeout => Command::Unknown(
            "only the netdev netlink family sets it, for each NAPI id: the application does, or `latput set`",
        ),
        _ => Command::Files { pattern: pattern(knob), content: number.to_string() },
    }
}

fn switch(knob: Knob, on: bool) -> Command {
    let word = if on { "on" } else { "off" };
    let ethtool = |option, name: &str| Command::Ethtool { option, words: format!("{name} {word}") };
    match knob {
        Knob::Threaded => {
            Command::Files { pattern: "threaded".to_owned(), content: u8::from(on).to_string() }
        }
        Knob::PauseAutoneg | Knob::PauseRx | Knob::PauseTx => {
            ethtool("-A", knob.name().trim_start_matches("pause-"))
        }
        Knob::Eee => ethtool("--set-eee", "eee"),
        Knob::EeeTxLpi => ethtool("--set-eee", "tx-lpi"),
        Knob::TxPush | Knob::RxPush => ethtool("-G", knob.name()),
        _ => match feature(knob) {
            Some(feature) => ethtool("-K", feature),
            None => ethtool("-C", knob.name()),
        },
    }
}

/// ethtool's name of an offload: its short name where it has one.
pub(super) const fn feature(knob: Knob) -> Option<&'static str> {
    Some(match knob {
        Knob::RxChecksum => "rx",
        Knob::TxChecksum => "tx",
        Knob::Sg => "sg",
        Knob::Gro => "gro",
        Knob::Gso => "gso",
        Knob::Tso => "tso",
        Knob::TxUdpSegmentation => "tx-udp-segmentation",
        Knob::Lro => "lro",
        Knob::RxGroHw => "rx-gro-hw",
        Knob::RxGroList => "rx-gro-list",
        Knob::RxUdpGroForwarding => "rx-udp-gro-forwarding",
        Knob::RxHashing => "rxhash",
        Knob::RxNtuple => "ntuple",
        Knob::RxVlan => "rxvlan",
        Knob::TxVlan => "txvlan",
        Knob::TxNocacheCopy => "tx-nocache-copy",
        _ => return None,
    })
}

/// The files of a knob below the interface's folder in sysfs.
fn pattern(knob: Knob) -> String {
    match knob {
        Knob::BqlLimitMin => "queues/tx-*/byte_queue_limits/limit_min".to_owned(),
        Knob::BqlLimitMax => "queues/tx-*/byte_queue_limits/limit_max".to_owned(),
        Knob::XpsCpus | Knob::XpsRxqs => format!("queues/tx-*/{}", underscored(knob)),
        Knob::RpsCpus | Knob::RpsFlowCnt => format!("queues/rx-*/{}", underscored(knob)),
        _ => underscored(knob),
    }
}

fn underscored(knob: Knob) -> String {
    knob.name().replace('-', "_")
}

fn rss(table: &QueueTable) -> Command {
    let weights = match table {
        QueueTable::Equal(queues) => format!("equal {queues}"),
        QueueTable::List(entries) => {
            let runs: Vec<&[u32]> = entries.chunk_by(|a, b| a == b).collect();
            let in_order = (0..).zip(&runs).all(|(queue, run)| run[0] == queue);
            if !in_order {
                return Command::Unknown("ethtool -X writes tables of contiguous runs only");
            }
            let lengths: Vec<String> = runs.iter().map(|run| run.len().to_string()).collect();
            format!("weight {}", lengths.join(" "))
        }
    };
    Command::Ethtool { option: "-X", words: weights }
}

/// Points as ethtool has them: `1,256,n_8,256,n`.
fn points(profile: &Profile) -> String {
    let word = |number: Option<u64>| number.map_or_else(|| "n".to_owned(), |n| n.to_string());
    let points = profile.points().iter().map(|point| {
        let delay = word(point.delay.map(|delay| delay.as_ns() / 1_000));
        let [packets, completions] =
            [point.packets, point.completions].map(|number| word(number.map(u64::from)));
        format!("{delay},{packets},{completions}")
    });
    points.collect::<Vec<_>>().join("_")
}

fn root_qdisc(qdisc: &Qdisc) -> Command {
    if qdisc.is_default() {
        return Command::Nothing(
            "the kernel attaches its default by itself (net.core.default_qdisc)",
        );
    }
    if qdisc.is_opaque() {
        return Command::Unknown("latput does not know the options of this queue discipline");
    }
    // A handle of its own lets commands name the queues of mq.
    let handle = if qdisc.kind() == "mq" { "handle 1: " } else { "" };
    Command::Shell(format!("tc qdisc replace dev IFACE root {handle}{}", tc_words(qdisc)))
}

fn queue_qdisc(qdisc: &Qdisc) -> Command {
    if qdisc.is_default() || qdisc.is_opaque() {
        return root_qdisc(qdisc);
    }
    Command::Shell(format!(
        "tc qdisc replace dev IFACE root handle 1: mq; \
         for queue in /sys/class/net/IFACE/queues/tx-*; do \
         tc qdisc replace dev IFACE parent 1:$(printf %x $((${{queue##*-}} + 1))) {}; done",
        tc_words(qdisc)
    ))
}

/// A discipline in tc's words.
fn tc_words(qdisc: &Qdisc) -> String {
    let mut text = qdisc.kind().to_owned();
    for (name, parameter) in qdisc.parameters() {
        let _ = match parameter {
            ParameterValue::Count(count) => write!(text, " {name} {count}"),
            ParameterValue::Size(size) => write!(text, " {name} {}", size.get()),
            ParameterValue::Rate(rate) => write!(text, " {name} {}bit", rate.get()),
            ParameterValue::Share(_) => {
                write!(text, " {name} {parameter}")
            }
            ParameterValue::Time(time) => {
                // netem's jitter follows its delay without a name.
                let name = if name == "jitter" { String::new() } else { format!("{name} ") };
                let ns = time.as_ns();
                if ns % 1_000 == 0 {
                    write!(text, " {name}{}us", ns / 1_000)
                } else {
                    write!(text, " {name}{ns}ns")
                }
            }
            ParameterValue::Switch(on) => match (name, on) {
                ("horizon_drop", true) => write!(text, " horizon_drop"),
                ("horizon_drop", false) => write!(text, " horizon_cap"),
                (_, true) => write!(text, " {name}"),
                (_, false) => write!(text, " no{name}"),
            },
        };
    }
    text
}

/// The lines of the script for one knob; `None` if there is no command.
pub(super) fn words(knob: Knob, value: &Value, target: &Target) -> Option<Words> {
    let line = match command(knob, value) {
        Command::Ethtool { option, words } => return Some(vec![(option, words)]),
        Command::Shell(command) => command.replace("IFACE", target.interface()),
        Command::Files { pattern, content } => write_files(target.interface(), &pattern, &content),
        Command::Sysctl { name, value } if value.contains(' ') => {
            format!("sysctl -w {name}='{value}'")
        }
        Command::Sysctl { name, value } => format!("sysctl -w {name}={value}"),
        Command::Interrupts(cpus) => write_affinity(target.interface(), cpus.as_ref()),
        Command::LoadTime { .. } | Command::Nothing(_) | Command::Unknown(_) => return None,
    };
    Some(vec![("", line)])
}

/// A shell command that writes `content` to the interface's files.
pub(super) fn write_files(interface: &str, pattern: &str, content: &str) -> String {
    let path = format!("/sys/class/net/{interface}/{pattern}");
    if pattern.contains('*') {
        format!("for file in {path}; do echo {content} > \"$file\"; done")
    } else {
        format!("echo {content} > {path}")
    }
}

/// A shell command that moves the interrupts of the interface.
pub(super) fn write_affinity(interface: &str, cpus: Option<&CpuSet>) -> String {
    let write = match cpus {
        Some(cpus) => format!("echo {cpus} > /proc/irq/$irq/smp_affinity_list"),
        None => "cat /proc/irq/$irq/affinity_hint > /proc/irq/$irq/smp_affinity".to_owned(),
    };
    let folder = format!("/sys/class/net/{interface}/device");
    format!(
        "for irq in $(ls {folder}/msi_irqs {folder}/../msi_irqs 2>/dev/null | grep '^[0-9]' || \
         cat {folder}/irq); do [ ! -d /proc/irq/$irq ] || {write}; done"
    )
}

/// The script. Neighbours with the same option of ethtool become one command, which the kernel then
/// sets in one go.
pub(super) fn document(target: &Target, words: &[(&'static str, String)]) -> (String, String) {
    let name = target.interface();
    let file = format!("/usr/local/sbin/latput-{name}");
    let mut body = format!(
        "# Keep as {file} (mode 755) and run it as root once {name} is up: from `up` in\n\
         # /etc/network/interfaces, a dispatcher script, or a unit after network-online.target.\n\
         set -eu\n"
    );
    let mut open = "";
    for (option, text) in words {
        if option.is_empty() {
            let _ = write!(body, "\n{text}");
        } else if *option == open {
            let _ = write!(body, " {text}");
        } else {
            let _ = write!(body, "\nethtool {option} {name} {text}");
        }
        open = option;
    }
    body.push('\n');
    (file, body)
}
