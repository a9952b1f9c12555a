//! Combines the reports of all hosts into one observation.
//!
//! Each generator and its reflector count one flow. Bytes, transactions and datagrams are added,
//! and histograms merged. A host's CPU time comes once, from its own counters, however many flows
//! it carries.

use latput_stats::Histogram;
use latput_trial::Check;
use latput_trial::observation::{
    ContextSwitches, DatagramObservation, FlowObservation, ProbeObservation, TrafficObservation,
};
use latput_units::Nanos;

use crate::clock::{ClockOffset, format_duration, format_offset};

/// Merges the flows of several generators. Their windows are equal unless a count ended some early;
/// then the longest is used.
pub(crate) fn merge_flows(parts: Vec<TrafficObservation>) -> TrafficObservation {
    parts.into_iter().reduce(merge_pair).unwrap_or_default()
}

fn merge_pair(a: TrafficObservation, b: TrafficObservation) -> TrafficObservation {
    TrafficObservation {
        sender_window: a.sender_window.max(b.sender_window),
        receiver_window: a.receiver_window.max(b.receiver_window),
        sent_bytes: a.sent_bytes.saturating_add(b.sent_bytes),
        received_bytes: a.received_bytes.saturating_add(b.received_bytes),
        transactions: merge_options(a.transactions, b.transactions, u64::saturating_add),
        reverse: merge_options(a.reverse, b.reverse, |a, b| FlowObservation {
            sent_bytes: a.sent_bytes.saturating_add(b.sent_bytes),
            received_bytes: a.received_bytes.saturating_add(b.received_bytes),
        }),
        latency: merge_options(a.latency, b.latency, merge_histograms),
        latency_raw: merge_options(a.latency_raw, b.latency_raw, merge_histograms),
        datagrams: merge_options(a.datagrams, b.datagrams, merge_datagrams),
        retransmits: merge_options(a.retransmits, b.retransmits, u64::saturating_add),
        offered_bps: merge_options(a.offered_bps, b.offered_bps, |a, b| a + b),
        offered_per_s: merge_options(a.offered_per_s, b.offered_per_s, |a, b| a + b),
        sender_cpu: a.sender_cpu.saturating_add(b.sender_cpu),
        receiver_cpu: a.receiver_cpu.saturating_add(b.receiver_cpu),
        sender_switches: merge_options(
            a.sender_switches,
            b.sender_switches,
            ContextSwitches::joined,
        ),
        receiver_switches: merge_options(
            a.receiver_switches,
            b.receiver_switches,
            ContextSwitches::joined,
        ),
        busiest_ratio: merge_options(a.busiest_ratio, b.busiest_ratio, f64::max),
    }
}

fn merge_histograms(mut all: Histogram, more: Histogram) -> Histogram {
    all.merge(&more);
    all
}

/// Joins two optional figures. If one flow lacks a figure, the total is unknown.
fn merge_options<T>(a: Option<T>, b: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    a.zip(b).map(|(a, b)| join(a, b))
}

/// Adds datagram counts. Jitter is a mean over datagrams, so that a busier flow has more weight
/// (RFC 3550 has it by source).
fn merge_datagrams(a: DatagramObservation, b: DatagramObservation) -> DatagramObservation {
    let weight = |part: &DatagramObservation| part.received as f64;
    let all = weight(&a) + weight(&b);
    let jitter_ns =
        if all > 0.0 { (a.jitter_ns * weight(&a) + b.jitter_ns * weight(&b)) / all } else { 0.0 };
    DatagramObservation {
        sent: a.sent.saturating_add(b.sent),
        received: a.received.saturating_add(b.received),
        lost: a.lost.saturating_add(b.lost),
        reordered: a.reordered.saturating_add(b.reordered),
        duplicates: a.duplicates.saturating_add(b.duplicates),
        late: a.late.saturating_add(b.late),
        jitter_ns,
    }
}

/// The probe of a host without traffic, with the check on its schedule. (`latput_load::combine`
/// checks a probe beside traffic.)
pub(crate) fn convert_probe_outcome(
    outcome: latput_load::ProbeOutcome,
) -> (ProbeObservation, Check) {
    let latput_load::ProbeOutcome { sent, received, skipped, rtt, .. } = outcome;
    let check = Check {
        name: "probe-on-schedule".to_owned(),
        passed: skipped == 0,
        detail: format!("{sent} echo requests were sent on time and {skipped} left out"),
    };
    (ProbeObservation { sent, received, rtt }, check)
}

/// Merges the checks of several flows by name: a check passes if it passes for all. `hosts` names
/// each flow.
pub(crate) fn merge_checks(by_flow: Vec<(String, Vec<Check>)>) -> Vec<Check> {
    let is_single = by_flow.len() == 1;
    let mut all: Vec<Check> = Vec::new();
    for (host, checks) in by_flow {
        for mut check in checks {
            if !is_single {
                check.detail = format!("{host}: {}", check.detail);
            }
            match all.iter_mut().find(|other| other.name == check.name) {
                None => all.push(check),
                Some(other) => {
                    other.passed &= check.passed;
                    other.detail = format!("{}; {}", other.detail, check.detail);
                }
            }
        }
    }
    all
}

/// The start of one host.
#[derive(Clone, Debug)]
pub(crate) struct HostStart {
    pub(crate) host: String,
    /// Offset of its clock.
    pub(crate) clock: ClockOffset,
    /// Delay of the start request after its window began.
    pub(crate) late: Nanos,
}

/// Whether every host started in time, and how well their windows overlap.
pub(crate) fn started_together(starts: &[HostStart], window: Nanos) -> Option<Check> {
    /// Most offset of the windows as a share of their length. Beyond it they measure different
    /// times.
    const APART: f64 = 0.01;
    let widest = starts.iter().map(|start| start.clock.uncertainty).max()?;
    let is_late = starts.iter().any(|start| start.late > Nanos::ZERO);
    let line = |start: &HostStart| {
        let clock = match start.clock {
            ClockOffset { offset_ns: 0, uncertainty: Nanos::ZERO, .. } => "the same".to_owned(),
            clock => format!(
                "{} ± {}",
                format_offset(clock.offset_ns),
                format_duration(clock.uncertainty)
            ),
        };
        let late = match start.late {
            Nanos::ZERO => String::new(),
            late => format!(" (started {} late)", format_duration(late)),
        };
        format!("{} {clock}{late}", start.host)
    };
    let lines: Vec<String> = starts.iter().map(line).collect();
    Some(Check {
        name: "started-together".to_owned(),
        passed: !is_late && widest.as_secs_f64() <= window.as_secs_f64() * APART,
        detail: format!("clocks against the controller's: {}", lines.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use latput_stats::Histogram;

    use super::*;

    #[test]
    fn flows_add_up_and_their_histograms_merge() {
        let all = merge_flows(vec![make_flow(10, 100), make_flow(30, 300)]);
        assert_eq!((all.transactions, all.received_bytes), (Some(40), 400));
        assert_eq!(all.latency.unwrap().count(), 40);
        assert_eq!((all.sender_window, all.offered_bps), (Nanos::from_s(1), Some(400.0)));
        assert_eq!(all.sender_cpu, Nanos::from_ms(4));
        let datagrams = all.datagrams.unwrap();
        assert_eq!((datagrams.sent, datagrams.lost), (44, 4));
        assert!((datagrams.jitter_ns - 250.0).abs() < 1e-9, "{}", datagrams.jitter_ns);
    }

    #[test]
    fn figure_missing_in_one_flow_is_unknown() {
        let blind = TrafficObservation { retransmits: None, ..make_flow(1, 1) };
        assert_eq!(merge_flows(vec![make_flow(1, 1), blind]).retransmits, None);
        assert_eq!(merge_flows(vec![]), TrafficObservation::default());
    }

    #[test]
    fn equal_checks_join_and_name_the_flow() {
        let check = |passed, detail: &str| Check {
            name: "auth-failures".to_owned(),
            passed,
            detail: detail.to_owned(),
        };
        let flow = |host: &str, check: Check| (host.to_owned(), vec![check]);
        let one = merge_checks(vec![flow("a", check(true, "none"))]);
        assert_eq!(one, [check(true, "none")]);
        let two = merge_checks(vec![flow("a", check(true, "none")), flow("b", check(false, "3"))]);
        assert_eq!(two, [check(false, "a: none; b: 3")]);
    }

    #[test]
    fn separate_or_late_windows_are_marked() {
        let start = |uncertainty, late| HostStart {
            host: "far".to_owned(),
            clock: ClockOffset {
                offset_ns: -1_500_000,
                uncertainty: Nanos::from_us(uncertainty),
                round_trip: Nanos::from_us(2 * uncertainty),
            },
            late: Nanos::from_us(late),
        };
        let check = |starts: &[HostStart]| started_together(starts, Nanos::from_ms(100)).unwrap();
        assert!(check(&[start(1000, 0), start(0, 0)]).passed);
        assert!(!check(&[start(1001, 0), start(0, 0)]).passed);
        let late = check(&[start(0, 0), start(10, 7)]);
        assert!(
            !late.passed && late.detail.contains("far -1.500 ms ± 10.0 us (started 7.0 us late)"),
            "{late:?}"
        );
        assert_eq!(started_together(&[], Nanos::from_s(1)), None);
    }

    fn make_flow(transactions: u64, bytes: u64) -> TrafficObservation {
        let mut latency = Histogram::new();
        latency.record_n(Nanos::from_us(50), transactions);
        TrafficObservation {
            sender_window: Nanos::from_s(1),
            receiver_window: Nanos::from_s(1),
            sent_bytes: bytes,
            received_bytes: bytes,
            transactions: Some(transactions),
            latency: Some(latency),
            datagrams: Some(DatagramObservation {
                sent: transactions + 2,
                received: transactions,
                lost: 2,
                reordered: 0,
                duplicates: 0,
                jitter_ns: bytes as f64,
                ..DatagramObservation::default()
            }),
            retransmits: Some(1),
            offered_bps: Some(bytes as f64),
            sender_cpu: Nanos::from_ms(2),
            receiver_cpu: Nanos::from_ms(1),
            ..TrafficObservation::default()
        }
    }
}
