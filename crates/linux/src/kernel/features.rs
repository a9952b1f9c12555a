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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethtool::Feature;

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
