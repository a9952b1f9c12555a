//! Values of a kind's fields, and their conversion to the parts of traffic.

use std::collections::BTreeMap;

use latput_units::{BitsPerSecond, Bytes};

use super::traffic_parts::{Arrivals, Distribution};

impl Distribution {
    pub(super) fn number(self) -> u64 {
        u64::from(self == Self::Exponential)
    }
}

/// The values of a kind's fields, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(pub(super) BTreeMap<&'static str, Option<u64>>);

impl Values {
    /// The value of a field that is never off.
    pub(super) fn number(&self, field: &str) -> u64 {
        self.0[field].expect("the field has a default")
    }

    pub(super) fn small(&self, field: &str) -> u32 {
        u32::try_from(self.number(field)).expect("the field's range is within 32 bits")
    }

    pub(super) fn bytes(&self, field: &str) -> Bytes {
        Bytes::new(self.number(field))
    }

    pub(super) fn is_on(&self, field: &str) -> bool {
        self.number(field) != 0
    }

    pub(super) fn rate(&self) -> Option<BitsPerSecond> {
        self.0["rate"].map(BitsPerSecond::new)
    }

    pub(super) fn distribution(&self, field: &str) -> Distribution {
        if self.is_on(field) { Distribution::Exponential } else { Distribution::Fixed }
    }

    pub(super) fn arrivals(&self) -> Option<Arrivals> {
        self.0["rate_per_s"]?; // a closed loop has no gaps
        let rate_per_s = self.small("rate_per_s");
        let gaps = self.distribution("gaps");
        Some(Arrivals { rate_per_s, gaps })
    }
}
