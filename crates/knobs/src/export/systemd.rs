//! systemd.link(5), as of systemd 252: udev applies it when the interface appears.

use super::{Match, Target, Words, number};
use crate::catalogue::Knob;
use crate::value::{Named, Value};

/// The lines of one knob; `None` if there is no key for it, or the key does not take the value.
pub(super) fn words(knob: Knob, value: &Value) -> Option<Words> {
    let lines = match (knob, value) {
        (Knob::Mtu, Value::Count(bytes)) => vec![format!("MTUBytes={bytes}")],
        (Knob::Txqueuelen, Value::Count(packets)) => vec![format!("TransmitQueueLength={packets}")],
        (Knob::GsoMaxSize, Value::Count(bytes)) => {
            vec![format!("GenericSegmentOffloadMaxBytes={bytes}")]
        }
        (Knob::Tso, Value::Switch(on)) => {
            ["TCPSegmentationOffload", "TCP6SegmentationOffload"].map(|key| switch(key, *on)).into()
        }
        (_, Value::Switch(on)) => vec![switch(switch_key(knob)?, *on)],
        (_, Value::Named(Named::Max)) => vec![format!("{}=max", size_key(knob)?)],
        // Channels, rings, the sampling interval and the statistics block cannot be 0 here.
        (_, Value::Count(0)) if size_key(knob).is_some() => return None,
        (_, Value::Count(count)) => {
            vec![format!("{}={count}", size_key(knob).or(count_key(knob))?)]
        }
        (Knob::SampleInterval, Value::Time(_)) => match number(knob, value)? {
            0 => return None,
            seconds => vec![format!("CoalescePacketRateSampleIntervalSec={seconds}s")],
        },
        (Knob::StatsBlockUsecs, Value::Time(_)) if number(knob, value) == Some(0) => return None,
        (_, Value::Time(_)) => vec![format!("{}={}us", time_key(knob)?, number(knob, value)?)],
        _ => return None,
    };
    Some(lines.into_iter().map(|line| ("Link", line)).collect())
}

fn switch(key: &str, on: bool) -> String {
    format!("{key}={}", if on { "yes" } else { "no" })
}

const fn switch_key(knob: Knob) -> Option<&'static str> {
    Some(match knob {
        Knob::PauseAutoneg => "AutoNegotiationFlowControl",
        Knob::PauseRx => "RxFlowControl",
        Knob::PauseTx => "TxFlowControl",
        Knob::RxChecksum => "ReceiveChecksumOffload",
        Knob::TxChecksum => "TransmitChecksumOffload",
        Knob::Gro => "GenericReceiveOffload",
        Knob::Gso => "GenericSegmentationOffload",
        Knob::Lro => "LargeReceiveOffload",
        Knob::RxGroHw => "GenericReceiveOffloadHardware",
        Knob::RxNtuple => "NTupleFilter",
        Knob::RxVlan => "ReceiveVLANCTAGHardwareAcceleration",
        Knob::TxVlan => "TransmitVLANCTAGHardwareAcceleration",
        Knob::AdaptiveRx => "UseAdaptiveRxCoalesce",
        Knob::AdaptiveTx => "UseAdaptiveTxCoalesce",
        _ => return None,
    })
}

/// Keys that take a number from 1, or `max`.
const fn size_key(knob: Knob) -> Option<&'static str> {
    Some(match knob {
        Knob::CombinedChannels => "CombinedChannels",
        Knob::RxChannels => "RxChannels",
        Knob::TxChannels => "TxChannels",
        Knob::RxRing => "RxBufferSize",
        Knob::RxMiniRing => "RxMiniBufferSize",
        Knob::RxJumboRing => "RxJumboBufferSize",
        Knob::TxRing => "TxBufferSize",
        _ => return None,
    })
}

const fn count_key(knob: Knob) -> Option<&'static str> {
    Some(match knob {
        Knob::RxFrames => "RxMaxCoalescedFrames",
        Knob::RxFramesIrq => "RxMaxCoalescedIrqFrames",
        Knob::RxFramesLow => "RxMaxCoalescedLowFrames",
        Knob::RxFramesHigh => "RxMaxCoalescedHighFrames",
        Knob::TxFrames => "TxMaxCoalescedFrames",
        Knob::TxFramesIrq => "TxMaxCoalescedIrqFrames",
        Knob::TxFramesLow => "TxMaxCoalescedLowFrames",
        Knob::TxFramesHigh => "TxMaxCoalescedHighFrames",
        Knob::PktRateLow => "CoalescePacketRateLow",
        Knob::PktRateHigh => "CoalescePacketRateHigh",
        _ => return None,
    })
}

const fn time_key(knob: Knob) -> Option<&'static str> {
    Some(match knob {
        Knob::RxUsecs => "RxCoalesceSec",
        Knob::RxUsecsIrq => "RxCoalesceIrqSec",
        Knob::RxUsecsLow => "RxCoalesceLowSec",
        Knob::RxUsecsHigh => "RxCoalesceHighSec",
        Knob::TxUsecs => "TxCoalesceSec",
        Knob::TxUsecsIrq => "TxCoalesceIrqSec",
        Knob::TxUsecsLow => "TxCoalesceLowSec",
        Knob::TxUsecsHigh => "TxCoalesceHighSec",
        Knob::StatsBlockUsecs => "StatisticsBlockCoalesceSec",
        _ => return None,
    })
}

/// How systemd's own `99-default.link` names an interface.
const DEFAULT_POLICIES: [&str; 3] = [
    "NamePolicy=keep kernel database onboard slot path",
    "AlternativeNamesPolicy=database onboard slot path",
    "MACAddressPolicy=persistent",
];
/// The key that may be there several times.
const REPEATED: &str = "AlternativeName";

/// The lines of `[Link]` of a .link file: how an interface is named, and all else that it says. The last of each key counts.
pub(super) fn link_lines(link_file: &str) -> Vec<String> {
    let is_plain = |text: &str| text.chars().all(|c| c == ' ' || c.is_ascii_graphic());
    let mut section = "";
    let mut found = Vec::new();
    for line in link_file.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        }
        if let Some((key, value)) = line.split_once('=')
            && section == "[Link]"
            && !line.starts_with(['#', ';'])
            && is_plain(line)
        {
            let key = key.trim();
            found.retain(|line: &String| key == REPEATED || key_of(line) != key);
            found.push(format!("{key}={}", value.trim()));
        }
    }
    found
}

pub(super) fn key_of(line: &str) -> &str {
    line.split_once('=').map_or(line, |(key, _)| key)
}

/// Only the first file that matches an interface counts, so that this one must also say what the one in force would have.
pub(super) fn document(target: &Target, words: &[(&'static str, String)]) -> (String, String) {
    let name = target.interface();
    let file = format!("/etc/systemd/network/10-latput-{name}.link");
    let matched = match &target.matched {
        Match::Mac(mac) => format!("PermanentMACAddress={mac}"),
        Match::Path(path) => format!("Path={path}"),
        Match::Driver(driver) => format!("Driver={driver}"),
        Match::Name => format!(
            "# The name that the kernel gave at first, before any renaming: `udevadm info\n\
             # /sys/class/net/{name}` tells a path or an address, which are surer.\n\
             OriginalName={name}"
        ),
    };
    let before = target.link_lines.clone();
    let before = before.unwrap_or_else(|| DEFAULT_POLICIES.map(str::to_owned).into());
    let own = words.iter().map(|(_, line)| line.as_str());
    let is_own = |line: &str| own.clone().any(|own| key_of(own) == key_of(line));
    let before = before.iter().map(String::as_str).filter(|line| !is_own(line));
    let lines: Vec<&str> = before.chain(own.clone()).collect();
    let body = format!(
        "# Keep as {file}; udev applies it when {name} appears:\n\
         # `udevadm control --reload && udevadm trigger --action=add /sys/class/net/{name}`, or a\n\
         # reboot (after `update-initramfs -u` where the initramfs holds .link files).\n\
         # Only the first file that matches counts. If {name} has one already (`udevadm info` shows\n\
         # ID_NET_LINK_FILE), its naming policies belong here, or these lines into FILE.link.d/latput.conf.\n\
         [Match]\n{matched}\n\n\
         [Link]\n\
         {}\n",
        lines.join("\n")
    );
    (file, body)
}
