//! Combines the reports of all hosts into one observation, and their counts of an interval into progress output.
//!
//! Each generator and its reflector count one flow. Bytes, transactions and datagrams are added,
//! and histograms merged. A host's CPU time comes once, from its own counters, however many flows
//! it carries.

#[cfg(test)]
mod mutated;

use std::collections::VecDeque;

use latput_load::{ReceiverOutcome, SliceLayout};
use latput_protocol::control::{HostInterval, HostSlice, HostTrialResult};
use latput_runner::Error;
use latput_runner::checks::{self, HostPart};
use latput_runner::trials::IntervalCounts;
use latput_stats::Histogram;
use latput_trial::observation::{
    ContextSwitches, DatagramObservation, FlowObservation, HostObservation, ProbeObservation,
    TrafficObservation,
};
use latput_trial::{Check, Observation, Traffic, Workload};
use latput_units::Nanos;

use crate::clock::{ClockOffset, format_duration, format_offset};

/// Most open intervals. If a host lags further behind, the oldest is closed without it.
const MOST_OPEN: usize = 16;

/// The data of a trial beside the hosts' counts.
pub(crate) struct TrialContext<'a> {
    pub(crate) workload: &'a Workload,
    /// Duration of a window without slices.
    pub(crate) duration: Nanos,
    pub(crate) slices: Option<SliceLayout>,
    /// The sending hosts, by index in the testbed, each with its part.
    pub(crate) parts: Vec<(usize, Workload)>,
    pub(crate) clocks: Vec<ClockOffset>,
    pub(crate) boot_ids: Vec<String>,
}

impl TrialContext<'_> {
    /// Joins the hosts' counts, slice by slice, and checks them.
    pub(crate) fn join_observations(
        &self,
        mut finished: Vec<HostTrialResult>,
    ) -> Result<Vec<Observation>, Error> {
        let expected = self.slices.map_or(1, |slices| slices.count as usize);
        if finished.iter().any(|part| part.slices.len() != expected) {
            return Err(self.traffic_error("a host did not answer for every slice".to_owned()));
        }
        let of_trial = self.checks_of_trial(&finished);
        let mut by_host: Vec<_> =
            finished.iter_mut().map(|part| std::mem::take(&mut part.slices).into_iter()).collect();
        (0..)
            .take(expected)
            .map(|idx| {
                let slice: Vec<HostSlice> = by_host.iter_mut().filter_map(Iterator::next).collect();
                let mut observation = self.join_slice(idx, slice)?;
                observation.checks.extend(of_trial.iter().cloned());
                Ok(observation)
            })
            .collect()
    }

    /// The checks that are equal for every slice.
    fn checks_of_trial(&self, finished: &[HostTrialResult]) -> Vec<Check> {
        let host = |part: &HostTrialResult| part.slices[0].host.host.clone();
        let start = |(part, clock): (&HostTrialResult, &ClockOffset)| HostStart {
            host: host(part),
            clock: *clock,
            late: part.late,
        };
        let starts: Vec<HostStart> = finished.iter().zip(&self.clocks).map(start).collect();
        let drift: Vec<String> = finished
            .iter()
            .flat_map(|part| part.drift.iter().map(|change| format!("{}: {change}", host(part))))
            .collect();
        let measured = self.slices.map_or(self.duration, |slices| slices.measured_length(0));
        let together = started_together(&starts, measured);
        let held_back: Vec<String> = finished
            .iter()
            .flat_map(|part| part.held_back.iter().map(|why| format!("{}: {why}", host(part))))
            .collect();
        let of_hosts = [checks::knob_drift(&drift), checks::check_throttling(&held_back)];
        let sliced = if self.slices.is_some() { finished } else { &[] };
        let of_slices = sliced.iter().filter_map(|part| {
            checks::steal_of_slices(part.slices.iter().map(|slice| &slice.host))
        });
        together.into_iter().chain(of_hosts).chain(of_slices).collect()
    }

    /// Joins slice `idx`, or the whole window.
    fn join_slice(&self, idx: u32, mut slice: Vec<HostSlice>) -> Result<Observation, Error> {
        let cpus: Vec<Nanos> = slice.iter().map(traffic_cpu).collect();
        let (flows, mut probe, mut checks) = self.combine_flows(&mut slice)?;
        let traffic = merge_flows(flows);
        for part in &mut slice {
            if let Some(outcome) = part.probe.take() {
                let (alone, on_schedule) = convert_probe_outcome(outcome);
                probe = Some(alone);
                checks.push(on_schedule);
            }
        }
        checks.extend(self.slices.map(|slices| changed_in_cut(&slice, slices.cut)));
        let hosts: Vec<HostObservation> = slice.into_iter().map(|part| part.host).collect();
        let parts = self.boot_ids.iter().zip(&cpus);
        let parts: Vec<HostPart<'_>> =
            parts.map(|(boot_id, &traffic_cpu)| HostPart { boot_id, traffic_cpu }).collect();
        checks.extend(checks::of_trial(&self.workload.traffic, &traffic, &hosts, &parts));
        let is_program = self.workload.traffic == Traffic::Command;
        if self.workload.count.is_none() && !is_program {
            let planned = self.slices.map_or(self.duration, |slices| slices.measured_length(idx));
            checks.extend(checks::on_schedule(&hosts, planned));
        }
        Ok(Observation { traffic, probe, hosts, checks, ..Observation::default() })
    }

    fn traffic_error(&self, problem: String) -> Error {
        Error::Traffic { workload: self.workload.name.clone(), problem }
    }

    /// Each generator's flow with the far end's part of it, and the checks of each.
    #[expect(clippy::type_complexity, reason = "the three things that joining two ends gives")]
    fn combine_flows(
        &self,
        slice: &mut [HostSlice],
    ) -> Result<(Vec<TrafficObservation>, Option<ProbeObservation>, Vec<Check>), Error> {
        let missing = |end: &str| self.traffic_error(format!("the {end}'s figures are missing"));
        let receivers: Vec<ReceiverOutcome> =
            slice.iter_mut().flat_map(|part| part.receivers.drain(..)).collect();
        if receivers.len() != self.parts.len() {
            return Err(missing("receiver"));
        }
        let mut flows = Vec::new();
        let mut probe = None;
        let mut checks = Vec::new();
        for ((idx, workload), receiver) in self.parts.iter().zip(&receivers) {
            let part = &mut slice[*idx];
            let sender = part.sender.take().ok_or_else(|| missing("sender"))?;
            let (flow, beside, of_flow) = latput_load::combine(workload, &sender, receiver);
            flows.push(flow);
            probe = probe.or(beside);
            checks.push((part.host.host.clone(), of_flow));
        }
        Ok((flows, probe, merge_checks(checks)))
    }
}

/// Whether each change of the setting ended within the cut. A longer one reaches into the measured
/// part.
fn changed_in_cut(slice: &[HostSlice], cut: Nanos) -> Check {
    let longest = slice.iter().max_by_key(|part| part.change);
    let change = longest.map_or(Nanos::ZERO, |part| part.change);
    let host = longest.map_or("", |part| part.host.host.as_str());
    Check {
        name: "changed-in-cut".to_owned(),
        passed: change <= cut,
        detail: format!(
            "{host}: changing the setting took {:.1} ms of the {:.1} ms that are cut",
            change.as_us_f64() / 1e3,
            cut.as_us_f64() / 1e3
        ),
    }
}

/// CPU time of a host's own traffic threads.
fn traffic_cpu(part: &HostSlice) -> Nanos {
    let receivers = part.receivers.iter().map(|receiver| receiver.cpu);
    let sender = part.sender.iter().map(|sender| sender.cpu);
    receivers.chain(sender).fold(Nanos::ZERO, Nanos::saturating_add)
}

/// Merges the flows of several generators. Their windows are equal unless a count ended some early;
/// then the longest is used.
fn merge_flows(parts: Vec<TrafficObservation>) -> TrafficObservation {
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
fn convert_probe_outcome(outcome: latput_load::ProbeOutcome) -> (ProbeObservation, Check) {
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
fn merge_checks(by_flow: Vec<(String, Vec<Check>)>) -> Vec<Check> {
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
struct HostStart {
    host: String,
    /// Offset of its clock.
    clock: ClockOffset,
    /// Delay of the start request after its window began.
    late: Nanos,
}

/// Whether every host started in time, and how well their windows overlap.
fn started_together(starts: &[HostStart], window: Nanos) -> Option<Check> {
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

/// Joins the hosts' lines by interval.
///
/// Every agent sends a line for each interval of the window. The lines of one interval are joined once all hosts have sent
/// theirs. They are for progress output, not for results.
#[derive(Debug)]
pub(crate) struct IntervalJoiner {
    hosts: Vec<String>,
    unit_bytes: Option<u64>,
    /// The number of the first open interval.
    first: u32,
    open: VecDeque<Vec<Option<HostInterval>>>,
}

impl IntervalJoiner {
    pub(crate) fn new(hosts: Vec<String>, traffic: &Traffic) -> Self {
        Self { hosts, unit_bytes: traffic.unit_bytes(), first: 0, open: VecDeque::new() }
    }

    /// Adds a host's line; returns every interval that this completes. A line that is out of order
    /// or far off is ignored.
    pub(crate) fn add_interval(&mut self, host: usize, line: HostInterval) -> Vec<IntervalCounts> {
        let Some(idx) = line.number.checked_sub(self.first).map(|idx| idx as usize) else {
            return Vec::new();
        };
        if idx >= 2 * MOST_OPEN || host >= self.hosts.len() {
            return Vec::new();
        }
        while self.open.len() <= idx {
            self.open.push_back(vec![None; self.hosts.len()]);
        }
        self.open[idx][host] = Some(line);
        let mut complete = Vec::new();
        while let Some(lines) = self.open.front()
            && (lines.iter().all(Option::is_some) || self.open.len() > MOST_OPEN)
        {
            complete.extend(self.join_interval(lines));
            self.open.pop_front();
            self.first += 1;
        }
        complete
    }

    fn join_interval(&self, lines: &[Option<HostInterval>]) -> Option<IntervalCounts> {
        let end = lines.iter().flatten().map(|line| line.end).max()?;
        let per_s =
            |count: u64, line: &HostInterval| count as f64 / line.length.as_secs_f64().max(1e-9);
        let units = lines.iter().flatten();
        let units_per_s = units.map(|line| per_s(line.units.unwrap_or(0), line)).sum::<f64>();
        let hosts = self.hosts.iter().zip(lines);
        let packets_per_s = hosts.filter_map(|(host, line)| {
            let line = line.as_ref()?;
            Some((host.clone(), per_s(line.rx_packets, line), per_s(line.tx_packets, line)))
        });
        Some(IntervalCounts {
            end,
            units_per_s,
            bits_per_s: self.unit_bytes.map(|bytes| units_per_s * bytes as f64 * 8.0),
            packets_per_s: packets_per_s.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use latput_units::Bytes;

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

    #[test]
    fn interval_is_told_once_all_agree() {
        let mut joiner = make_joiner(2);
        assert_eq!(joiner.add_interval(0, make_host_interval(0, Some(10))), []);
        assert_eq!(joiner.add_interval(0, make_host_interval(1, Some(20))), []);
        let told = joiner.add_interval(1, make_host_interval(0, Some(5)));
        assert_eq!(told.len(), 1);
        // Half a second each: 15 units are 30 a second.
        assert!((told[0].units_per_s - 30.0).abs() < 1e-9, "{told:?}");
        assert_eq!(told[0].bits_per_s, Some(30.0 * 8000.0));
        assert_eq!(told[0].packets_per_s[1], ("h1".to_owned(), 200.0, 400.0));
        assert_eq!(joiner.add_interval(1, make_host_interval(1, None)).len(), 1);
    }

    #[test]
    fn lagging_host_holds_up_nothing() {
        let mut joiner = make_joiner(2);
        let told: usize = (0..100)
            .map(|number| joiner.add_interval(0, make_host_interval(number, Some(1))).len())
            .sum();
        assert_eq!(told, 100 - MOST_OPEN);
        assert_eq!(joiner.add_interval(1, make_host_interval(0, Some(1))), []);
        assert_eq!(joiner.add_interval(1, make_host_interval(u32::MAX, Some(1))), []);
        assert_eq!(joiner.add_interval(7, make_host_interval(90, Some(1))), []);
        assert!(joiner.open.len() <= 2 * MOST_OPEN);
    }

    fn make_joiner(hosts: usize) -> IntervalJoiner {
        let names = (0..hosts).map(|idx| format!("h{idx}")).collect();
        IntervalJoiner::new(names, &Traffic::tcp_stream(Bytes::new(1000), 1))
    }

    fn make_host_interval(number: u32, units: Option<u64>) -> HostInterval {
        let length = Nanos::from_ms(500);
        let end = length.saturating_mul(u64::from(number) + 1);
        HostInterval { number, end, length, units, rx_packets: 100, tx_packets: 200 }
    }
}
