//! Claims on the cost model: costs recovered from simulated runs, and their consequences.

use latput_sim::SystemProfile;

use super::curve::{max_value, min_value};
use super::{ClaimChecker, ClaimVerdict, Curve, SWEEP, make_verdict};
use crate::delay_mtu::SweepTraffic;
use crate::delay_mtu::costs::{CostCoefficients, WITHIN};

/// MTU and packets per interrupt of the sums in the text.
const EVALUATED: [(&str, f64, f64); 12] = [
    ("T093", 1_500.0, 1.0),
    ("T094", 1_500.0, 10.0),
    ("T095", 1_500.0, 40.0),
    ("T096", 3_000.0, 1.0),
    ("T097", 3_000.0, 10.0),
    ("T098", 3_000.0, 40.0),
    ("T099", 4_500.0, 1.0),
    ("T100", 4_500.0, 10.0),
    ("T101", 4_500.0, 40.0),
    ("T102", 6_000.0, 1.0),
    ("T103", 6_000.0, 10.0),
    ("T104", 6_000.0, 40.0),
];

fn is_within(seen: f64, wanted: f64) -> bool {
    (seen / wanted - 1.0).abs() <= WITHIN
}

impl ClaimChecker<'_> {
    /// Claims on the costs and their consequences.
    pub(super) fn check_costs(&self, profile: &SystemProfile) -> Vec<ClaimVerdict> {
        let of_profile = CostCoefficients::new(profile, self.sweep);
        let recovered = CostCoefficients::from_sweep(self.sweep);
        let jiffy_ns = 1e6 * self.published.claimed_value("T089");
        // Published jiffies per million bytes, per thousand packets and per thousand interrupts.
        let published = |id, each: f64| self.published.claimed_value(id) * jiffy_ns / each;
        let cost = |id, published: f64, pick: fn(&CostCoefficients) -> f64| {
            let wanted = format!(
                "within 15% of {published} ns as published and {} ns of the profile",
                (1e3 * pick(&of_profile)).round() / 1e3
            );
            let seen = recovered.as_ref().map(pick);
            make_verdict(
                id,
                wanted,
                seen.map_or_else(|| String::from("not identified"), |ns| format!("{ns:.3} ns")),
                seen.is_some_and(|ns| is_within(ns, published) && is_within(ns, pick(&of_profile))),
            )
        };
        let mut verdicts = vec![
            cost("T083", published("T083", 1e6), |abg| abg.a),
            cost("T084", published("T084", 1e3), |abg| abg.b),
            cost("T085", published("T085", 1e3), |abg| abg.g),
        ];
        let abg = recovered.unwrap_or(CostCoefficients { a: 0.0, b: 0.0, g: 0.0 });
        verdicts.extend(EVALUATED.map(|(id, mtu, batch)| {
            let jiffies = abg.us_per_mb(mtu, batch) * 1e3 / jiffy_ns;
            let wanted = self.published.claimed_value(id);
            make_verdict(
                id,
                format!("within 15% of {wanted}, from the recovered costs"),
                format!("{jiffies:.4}"),
                is_within(jiffies, wanted),
            )
        }));
        verdicts.extend(self.check_terms(&abg));
        verdicts
    }

    /// Claims on the terms that batch and frame size change.
    fn check_terms(&self, abg: &CostCoefficients) -> [ClaimVerdict; 2] {
        // CPU time of a MB without its interrupts.
        let rest = |delay: u64| {
            let seen = self.result_at_delay(SweepTraffic::Udp10, 1_500, delay);
            let packets = 1e6 / 1_472.0;
            seen.busy_us_per_mb - 1e-3 * abg.g * packets / seen.packets_per_interrupt
        };
        let rests: Curve = [10, 40, 160, SWEEP].map(|delay| (delay, rest(delay))).to_vec();
        let by_mtu = abg.us_per_mb(1_500.0, 10.0) - abg.us_per_mb(6_000.0, 10.0);
        let by_batch = abg.us_per_mb(1_500.0, 10.0) - abg.us_per_mb(1_500.0, 40.0);
        [
            make_verdict(
                "T087",
                "without interrupts a MB costs the same at every delay, within 5% (UDP, MTU 1500)",
                format!("{:.0} to {:.0} us", min_value(&rests), max_value(&rests)),
                max_value(&rests) <= 1.05 * min_value(&rests),
            ),
            make_verdict(
                "T088",
                "four times the MTU saves more than four times the packets per interrupt",
                format!("{by_mtu:.0} and {by_batch:.0} us/MB"),
                by_mtu > by_batch,
            ),
        ]
    }
}
