//! Settings as ethtool prints them.

use std::collections::BTreeMap;

/// Values by name.
pub(crate) type Settings = BTreeMap<String, String>;

/// Reads `name: value` lines of `ethtool -c`, `-k`, `-a` and of `ethtool IFACE`. Of two values in a line
/// (`Adaptive RX: off  TX: on`) the names are `Adaptive RX` and `Adaptive TX`. `n/a` is absent.
pub(crate) fn parse_settings(text: &str) -> Option<Settings> {
    let mut found = Settings::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let (name, value) = (name.trim(), value.trim());
        if value.is_empty() || value == "n/a" {
            continue;
        }
        if let Some((rx, tx)) = value.split_once("TX:") {
            let stem = name.trim_end_matches("RX").trim();
            found.insert(format!("{stem} RX"), rx.trim().to_owned());
            found.insert(format!("{stem} TX"), tx.trim().to_owned());
        } else {
            found.insert(name.to_owned(), value.to_owned());
        }
    }
    (!found.is_empty()).then_some(found)
}

/// The present values and the largest of `ethtool -g` and `-l`, which print the same names twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) most: Settings,
    pub(crate) now: Settings,
}

/// Reads `ethtool -g` and `-l`.
pub(crate) fn parse_limits(text: &str) -> Option<Limits> {
    let (most, now) = text.split_once("Current hardware settings:")?;
    Some(Limits { most: parse_settings(most)?, now: parse_settings(now)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coalescing_and_features_are_read() {
        let text = "Coalesce parameters for eth0:\nAdaptive RX: off  TX: on\nrx-usecs: 3\nrx-frames: n/a\n";
        let found = parse_settings(text).unwrap();
        assert_eq!((found["Adaptive RX"].as_str(), found["Adaptive TX"].as_str()), ("off", "on"));
        assert_eq!(found["rx-usecs"], "3");
        assert!(!found.contains_key("rx-frames"));
        let features = "Features for eth0:\nrx-checksumming: on [fixed]\n\ttx-checksum-ipv4: off\n";
        assert_eq!(parse_settings(features).unwrap()["rx-checksumming"], "on [fixed]");
    }

    #[test]
    fn rings_have_a_largest_and_a_present_value() {
        let text = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nTX:\t4096\nCurrent hardware settings:\nRX:\t\t512\nTX:\t\t512\n";
        let found = parse_limits(text).unwrap();
        assert_eq!((found.most["RX"].as_str(), found.now["RX"].as_str()), ("4096", "512"));
        assert_eq!(parse_limits("RX: 5\n"), None);
    }
}
