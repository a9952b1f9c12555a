//! Which of ethtool's features one switch of ours stands for, and whether it can.

use latput_knobs::Capability;

use crate::ethtool::Features;

/// `tso` sets these two. Their kin (`tx-tcp-ecn-segmentation`, `tx-tcp-mangleid-segmentation`) follow
/// by themselves: the kernel holds them back while these are off, remembers what was wanted of them,
/// and lets them come back (`netdev_fix_features`, `net/core/dev.c`), so nothing of them is lost.
pub(super) const TSO_FEATURES: &[&str] = &["tx-tcp-segmentation", "tx-tcp6-segmentation"];

pub(super) fn changeable_tso(features: &Features) -> impl Iterator<Item = &'static str> {
    TSO_FEATURES
        .iter()
        .copied()
        .filter(|name| features.get(*name).is_some_and(|feature| feature.is_changeable))
}

/// Why one switch cannot set, and later put back, the TSO features; `None` if it can.
pub(super) fn tso_obstacle(features: &Features) -> Option<String> {
    let mut wanted = changeable_tso(features).map(|name| features[name].is_active);
    let Some(first) = wanted.next() else {
        return Some("the driver cannot change tx-tcp-segmentation".to_owned());
    };
    wanted.any(|on| on != first).then(|| {
        "tx-tcp-segmentation and tx-tcp6-segmentation differ, and one switch could not put that \
         back: make them alike first"
            .to_owned()
    })
}

pub(super) fn feature_capability(features: &Features, name: &str) -> Capability {
    if features.get(name).is_some_and(|feature| feature.is_changeable) {
        Capability::Settable(format!("ethtool netlink, feature {name}"))
    } else {
        Capability::ReadOnly(format!("the driver cannot change {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethtool::Feature;

    #[test]
    fn unlike_tso_features_are_not_lumped_together() {
        let feature = |is_active| Feature { is_active, is_wanted: is_active, is_changeable: true };
        let features = |v4, v6| -> Features {
            [
                ("tx-tcp-segmentation".to_owned(), feature(v4)),
                ("tx-tcp6-segmentation".to_owned(), feature(v6)),
                ("tx-tcp-mangleid-segmentation".to_owned(), feature(false)),
            ]
            .into()
        };
        assert_eq!(tso_obstacle(&features(true, true)), None);
        assert_eq!(tso_obstacle(&features(false, false)), None);
        assert!(tso_obstacle(&features(true, false)).is_some());
        assert!(tso_obstacle(&Features::new()).is_some());
    }
}
