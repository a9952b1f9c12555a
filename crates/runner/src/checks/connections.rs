//! The check on readings of TCP connections.

use latput_trial::Check;
use latput_trial::check::CONNECTIONS_SEEN;
use latput_trial::observation::HostObservation;

/// Most share of the opened connections that may be missed.
const MISSED_LIMIT: f64 = 0.05;
/// Most connections at an edge of the window: opened within it, and seen in the next reading.
const AT_THE_EDGES: u64 = 20;

/// Whether the connections that the kernel opened in the window were seen: each is found by a reading, or told of at its end.
/// The bytes of the others are in no figure.
pub(super) fn check_connections_seen(host: &HostObservation) -> Option<Check> {
    let tcp = host.tcp.as_ref()?;
    let missed = tcp.opened.saturating_sub(tcp.seen);
    let share = missed as f64 / tcp.opened.max(1) as f64;
    Some(Check {
        name: CONNECTIONS_SEEN.to_owned(),
        passed: missed <= AT_THE_EDGES || share <= MISSED_LIMIT,
        detail: format!(
            "{}: {missed} of {} TCP connections that were opened were not seen ({:.0}%)",
            host.host,
            tcp.opened,
            100.0 * share
        ),
    })
}

#[cfg(test)]
mod tests {
    use latput_trial::observation::TcpObservation;

    use super::*;

    #[test]
    fn many_missed_connections_fail_the_check() {
        for (opened, found, passes) in [
            (0, 0, true),
            (20, 0, true),
            (1_000, 950, true),
            (1_000, 940, false),
            (250, 1, false),
            (250, 300, true),
        ] {
            let tcp = TcpObservation { opened, seen: found, ..TcpObservation::default() };
            let host = HostObservation {
                host: "b".to_owned(),
                tcp: Some(tcp),
                ..HostObservation::default()
            };
            let check = check_connections_seen(&host).unwrap();
            assert_eq!(check.passed, passes, "{check:?}");
        }
        assert_eq!(check_connections_seen(&HostObservation::default()), None, "nothing was read");
    }

    #[test]
    fn share_that_was_missed_is_told() {
        let tcp = TcpObservation { opened: 250, seen: 25, ..TcpObservation::default() };
        let host = HostObservation { tcp: Some(tcp), ..HostObservation::default() };
        let detail = check_connections_seen(&host).unwrap().detail;
        assert!(detail.contains("225 of 250") && detail.contains("(90%)"), "{detail}");
    }
}
