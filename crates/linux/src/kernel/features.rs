//! Which of ethtool's features one switch of ours stands for, and whether it can.

use crate::ethtool::Features;

/// Why one switch cannot set, and later put back, the features that it stands for; `None` if it can.
pub(super) fn obstacle(features: &Features, names: &[&str]) -> Option<String> {
    let changeable =
        names.iter().filter_map(|name| features.get(*name)).filter(|f| f.is_changeable);
    let mut states = changeable.map(|feature| feature.is_active);
    let Some(first) = states.next() else {
        return Some(format!("the driver cannot change {}", names[0]));
    };
    states.any(|state| state != first).then(|| {
        format!(
            "{} differ, which one switch could not put back: make them alike first",
            names.join(" and ")
        )
    })
}

/// Why rules that steer flows stand against switching their offload off; `None` without rules. Some drivers delete them with it
/// (`i40e_set_features`, `ice_set_features`), and nothing brings them back.
pub(super) fn rules_obstacle(interface: &str, rules: u32) -> Option<String> {
    (rules > 0).then(|| {
        format!(
            "{rules} flow rules need it, and would be lost: `ethtool -n {interface}` lists them, `ethtool -N {interface} \
             delete N` removes one"
        )
    })
}

/// Why ports stand against switching an offload of the interface above them off; `None` without such ports. The kernel
/// switches it off on each (`netdev_sync_lower_features`), and does not switch it on again.
pub(super) fn ports_obstacle(interface: &str, ports: &[String]) -> Option<String> {
    (!ports.is_empty()).then(|| {
        format!(
            "without it on {interface} the kernel would take it from {} for good: switch it off there first",
            ports.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethtool::Feature;

    #[test]
    fn what_goes_with_an_offload_is_named() {
        assert_eq!(rules_obstacle("eth0", 0), None);
        assert!(rules_obstacle("eth0", 2).unwrap().starts_with("2 flow rules need it"));
        assert_eq!(ports_obstacle("bond0", &[]), None);
        let ports = ["eth0".to_owned(), "eth1".to_owned()];
        assert!(ports_obstacle("bond0", &ports).unwrap().contains("from eth0, eth1 for good"));
    }

    #[test]
    fn unlike_features_are_not_lumped_together() {
        let feature = |is_active| Feature { is_active, is_wanted: is_active, is_changeable: true };
        let features = |v4, v6| -> Features {
            [
                ("tx-tcp-segmentation".to_owned(), feature(v4)),
                ("tx-tcp6-segmentation".to_owned(), feature(v6)),
                ("tx-tcp-mangleid-segmentation".to_owned(), feature(false)),
            ]
            .into()
        };
        let tso = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];
        assert_eq!(obstacle(&features(true, true), &tso), None);
        assert_eq!(obstacle(&features(false, false), &tso), None);
        assert!(obstacle(&features(true, false), &tso).unwrap().contains("differ"));
        assert!(obstacle(&Features::new(), &tso).unwrap().contains("cannot change"));
    }
}
