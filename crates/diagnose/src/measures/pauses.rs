//! PAUSE frames (802.3x) and their priority kin.

use crate::evidence::Evidence;

/// The longest pause of a frame: 65,535 times the time of 512 bits.
const BITS_OF_PAUSE: f64 = 65_535.0 * 512.0;
/// Fewer frames a second stop nobody for long: at 100 Gbit/s they are at most 1.7% of the time.
const LEAST_PER_S: f64 = 50.0;
/// The fewest frames where nobody knows the window.
const LEAST_FRAMES: u64 = 1000;
/// A smaller part of the time is no harm.
const LEAST_SHARE: f64 = 0.01;

/// Pauses in one direction that are harm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pauses {
    pub(crate) frames: u64,
    /// Frames a second.
    pub(crate) per_s: Option<f64>,
    /// The part of the time that the sender stood still: counted by the card, else estimated.
    pub(crate) share: Option<f64>,
    pub(crate) is_counted: bool,
}

/// Frames of a direction; `None` where no counter is known. Counters of a card overlap, so that the largest counts. Where
/// a card counts both, only those that stop (XOFF) count.
pub(crate) fn count_pauses(evidence: &Evidence<'_>, direction: PauseDirection) -> Option<u64> {
    let families: [&[&str]; 8] = match direction {
        PauseDirection::Received => [
            // Intel.
            &["rx_flow_control_xoff"],
            &["link_xoff_rx*", "port.link_xoff_rx"],
            // mlx5: of the port, of the whole link, of each priority.
            &["rx_pause_ctrl_phy"],
            &["rx_global_pause", "rx_prio*_pause"],
            // bnxt, be2net, qede; tg3; ixgbe by priority; bnxt by priority.
            &["rx_pause_frames"],
            &["rx_xoff_pause_rcvd", "rx_xoff_frames"],
            &["rx_pb_*_pxoff", "rx_priority_*_xoff*", "port.rx_priority_*_xoff"],
            &["rx_pfc_ena_frames_pri*", "rx_pause", "port_rx_pause"],
        ],
        PauseDirection::Sent => [
            &["tx_flow_control_xoff"],
            &["link_xoff_tx*", "port.link_xoff_tx"],
            &["tx_pause_ctrl_phy"],
            &["tx_global_pause", "tx_prio*_pause"],
            &["tx_pause_frames"],
            &["tx_xoff_sent", "tx_xoff_frames"],
            &["tx_pb_*_pxoff", "tx_priority_*_xoff*", "port.tx_priority_*_xoff"],
            &["tx_pfc_ena_frames_pri*", "tx_pause", "port_tx_pause"],
        ],
    };
    families.iter().filter_map(|family| evidence.driver(family)).max()
}

/// The way of a PAUSE frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseDirection {
    Received,
    Sent,
}

/// Pauses of a direction if they are harm.
pub(crate) fn find_pauses(evidence: &Evidence<'_>, direction: PauseDirection) -> Option<Pauses> {
    let frames = count_pauses(evidence, direction)?;
    let window = evidence.window_s();
    let per_s = window.map(|window| frames as f64 / window);
    // mlx5 counts microseconds.
    let durations: &[&str] = match direction {
        PauseDirection::Received => &["rx_global_pause_duration", "rx_prio*_pause_duration"],
        PauseDirection::Sent => &["tx_global_pause_duration", "tx_prio*_pause_duration"],
    };
    let counted = evidence.driver(durations).filter(|duration| *duration > 0);
    if let (Some(counted), Some(window)) = (counted, window) {
        let share = counted as f64 / 1e6 / window;
        let pauses = Pauses { frames, per_s, share: Some(share.min(1.0)), is_counted: true };
        return (share >= LEAST_SHARE).then_some(pauses);
    }
    let is_harm = per_s.map_or(frames >= LEAST_FRAMES, |rate| rate >= LEAST_PER_S && frames >= 100);
    // A frame is sent again before half of its time is over, or ended early by another: half of the longest. Where the
    // speed is unknown it is taken for 100 Gbit/s, at which pauses are short.
    let bits_per_s = evidence.link_speed_mbit().unwrap_or(100_000.0) * 1e6;
    let share = per_s.map(|rate| (rate * BITS_OF_PAUSE / bits_per_s / 2.0).min(1.0));
    is_harm.then_some(Pauses { frames, per_s, share, is_counted: false })
}

impl Pauses {
    /// The figures in words: ` in the window, 900000 a second; 21.7% of the time`.
    pub(crate) fn describe(&self) -> String {
        let rate = self.per_s.map(|rate| format!(" ({rate:.0} a second)")).unwrap_or_default();
        let sort = if self.is_counted { "" } else { "up to " };
        let share = self.share.map(|share| format!(", {sort}{:.1}% of the time", share * 100.0));
        format!("{} PAUSE frames{rate}{}", self.frames, share.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    fn find(counters: &[(&str, u64)]) -> Option<Pauses> {
        let snapshot = Fixture::new().driver(counters).sysfs("speed", "10000\n").into_snapshot();
        find_pauses(&Evidence::from_snapshot(&snapshot), PauseDirection::Received)
    }

    #[test]
    fn pauses_are_judged_by_time() {
        let counted = [("rx_prio0_pause", 900), ("rx_prio0_pause_duration", 2_170_000)];
        assert!(is_near(find(&counted).unwrap().share, 0.217));
        assert_eq!(find(&[("rx_prio0_pause", 900), ("rx_prio0_pause_duration", 9000)]), None);
        // 100 frames a second of at most 3.4 ms each.
        let estimated = find(&[("rx_flow_control_xoff", 1000), ("rx_flow_control_xon", 9000)]);
        assert!(is_near(estimated.unwrap().share, 0.168), "{estimated:?}");
        assert_eq!(find(&[("rx_flow_control_xoff", 90)]), None);
        assert_eq!(find(&[("tx_pause_ctrl_phy", 9000)]), None);
    }
}
