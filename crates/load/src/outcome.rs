//! What each end brings home, and how the two halves become an observation.

use latput_stats::Histogram;
use latput_trial::observation::{
    DatagramObservation, FlowObservation, ProbeObservation, TrafficObservation,
};
use latput_trial::{Check, Direction, Traffic, Workload};
use latput_units::{BitsPerSecond, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::meter::Usage;

/// The generator's half of a trial, over its window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SenderOutcome {
    /// Length of the window.
    pub window: Nanos,
    /// Payload bytes that the kernel took.
    pub sent_bytes: u64,
    /// Payload bytes that the application got.
    #[serde(default)]
    pub received_bytes: u64,
    /// Completed transactions, of a request/response load; objects of a `fetch`.
    pub transactions: Option<u64>,
    /// Their round-trip times.
    pub latency: Option<Histogram>,
    /// TCP segments that this end sent again.
    pub retransmits: Option<u64>,
    /// CPU time of the traffic threads.
    pub cpu: Nanos,
    /// CPU time of that thread which used most.
    #[serde(default)]
    pub busiest_cpu: Nanos,
    /// Datagrams, of a datagram load.
    pub datagrams: Option<DatagramsSent>,
    /// The probe beside the traffic, if there was one.
    pub probe: Option<ProbeOutcome>,
}

/// What the sender of datagrams did in its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatagramsSent {
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Payload of each.
    pub bytes: Bytes,
    /// The rate that was asked for.
    pub offered: BitsPerSecond,
    /// How many were sent together: 1 up to one in 50 us, then more.
    pub group: u64,
    /// Datagrams left out because the sender was held up for longer than it makes up for.
    pub skipped: u64,
}

/// What the receiver counted of the datagrams that were sent in the sender's window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatagramsReceived {
    /// Different datagrams.
    pub received: u64,
    /// Received again.
    pub duplicates: u64,
    /// Received after a later one (RFC 4737, section 3.3).
    pub reordered: u64,
    /// Interarrival jitter at the end of the window (RFC 3550, section 6.4.1), in nanoseconds, of the
    /// instants at which the application got them.
    pub jitter_ns: f64,
    /// Datagrams that this host's kernel dropped because the socket's buffer was full, since the
    /// warm-up; `None` where it does not tell.
    pub dropped_by_kernel: Option<u64>,
    /// Datagrams from the generator's port that were not of this run.
    pub foreign: u64,
}

/// What came of the probe in the generator's window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeOutcome {
    /// Echo requests sent.
    pub sent: u64,
    /// Of those, answered within a second of the window's end.
    pub received: u64,
    /// Requests left out because the prober was held up for longer than it makes up for.
    pub skipped: u64,
    /// Round-trip times, from just before a request is handed to the kernel until its answer is read.
    pub rtt: Histogram,
}

/// The reflector's half of a trial, over its window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiverOutcome {
    /// Length of the window.
    pub window: Nanos,
    /// Payload bytes that the application got.
    pub received_bytes: u64,
    /// Payload bytes that the kernel took.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Requests that came in whole, of a request/response load.
    pub requests: Option<u64>,
    /// TCP segments that this end sent again.
    pub retransmits: Option<u64>,
    /// CPU time of the traffic threads.
    pub cpu: Nanos,
    /// Connections that showed another key, or none in time, since the port was opened.
    pub wrong_keys: u64,
    /// Datagrams, of a datagram load.
    pub datagrams: Option<DatagramsReceived>,
}

/// The share of the offered rate that counts as having kept it.
const KEPT: f64 = 0.99;
/// The share of its window that a thread may compute before it, and not the network, sets the rate.
const SATURATED: f64 = 0.97;

impl SenderOutcome {
    /// Adds what another thread of the same end brought home.
    pub(crate) fn merge(&mut self, other: Self) {
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.transactions = sum(self.transactions, other.transactions);
        self.retransmits = sum(self.retransmits, other.retransmits);
        self.cpu = self.cpu + other.cpu;
        self.busiest_cpu = self.busiest_cpu.max(other.busiest_cpu);
        match (&mut self.latency, other.latency) {
            (Some(all), Some(one)) => all.merge(&one),
            (all, one) => *all = all.take().or(one),
        }
        self.datagrams = self.datagrams.or(other.datagrams);
    }

    /// With what the thread used.
    pub(crate) fn with_usage(self, usage: Usage) -> Self {
        Self { cpu: usage.cpu, busiest_cpu: usage.cpu, retransmits: usage.retransmits, ..self }
    }
}

impl ReceiverOutcome {
    /// Adds what another thread of the same end brought home.
    pub(crate) fn merge(&mut self, other: Self) {
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.requests = sum(self.requests, other.requests);
        self.retransmits = sum(self.retransmits, other.retransmits);
        self.cpu = self.cpu + other.cpu;
        self.datagrams = self.datagrams.or(other.datagrams);
    }

    /// With what the thread used.
    pub(crate) fn with_usage(self, usage: Usage) -> Self {
        Self { cpu: usage.cpu, retransmits: usage.retransmits, ..self }
    }
}

/// Of two threads' figures; what one of them could not tell, their sum cannot.
fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map(|(one, other)| one + other)
}

/// Joins the two halves of `workload`, and checks what can be checked from them.
pub fn combine(
    workload: &Workload,
    sender: &SenderOutcome,
    receiver: &ReceiverOutcome,
) -> (TrafficObservation, Option<ProbeObservation>, Vec<Check>) {
    let paced = match workload.traffic {
        Traffic::TcpBulk { rate, .. } => rate,
        _ => sender.datagrams.map(|datagrams| datagrams.offered),
    };
    let traffic = TrafficObservation {
        sender_window: sender.window,
        receiver_window: receiver.window,
        sent_bytes: sender.sent_bytes,
        received_bytes: receiver.received_bytes,
        reverse: flows_back(&workload.traffic).then_some(FlowObservation {
            sent_bytes: receiver.sent_bytes,
            received_bytes: sender.received_bytes,
        }),
        transactions: sender.transactions,
        latency: sender.latency.clone(),
        datagrams: datagrams(sender, receiver),
        retransmits: sender.retransmits.zip(receiver.retransmits).map(|(a, b)| a + b),
        offered_bps: paced.map(|rate| rate.get() as f64),
        sender_cpu: sender.cpu,
        receiver_cpu: receiver.cpu,
    };
    let probe = sender.probe.as_ref().map(|probe| ProbeObservation {
        sent: probe.sent,
        received: probe.received,
        rtt: probe.rtt.clone(),
    });
    let mut checks = vec![wrong_keys(receiver)];
    checks.extend(sender.datagrams.map(|datagrams| offered_rate_kept(sender, &datagrams)));
    checks.extend(receiver.datagrams.and_then(receive_buffer));
    checks.extend(sender.probe.as_ref().map(probe_on_schedule));
    checks.extend(bulk_rate_kept(&workload.traffic, sender, receiver));
    if sender.transactions.is_some() && workload.traffic.is_transactional() {
        checks.push(sender_saturated(sender));
    }
    (traffic, probe, checks)
}

/// Loss is what was sent in the sender's window and never came; both ends mean the same datagrams.
fn datagrams(sender: &SenderOutcome, receiver: &ReceiverOutcome) -> Option<DatagramObservation> {
    let (sent, received) = sender.datagrams.zip(receiver.datagrams)?;
    Some(DatagramObservation {
        sent: sent.sent,
        received: received.received,
        lost: sent.sent.saturating_sub(received.received),
        reordered: received.reordered,
        duplicates: received.duplicates,
        jitter_ns: received.jitter_ns,
    })
}

fn wrong_keys(receiver: &ReceiverOutcome) -> Check {
    let connections = receiver.wrong_keys;
    let foreign = receiver.datagrams.map_or(0, |datagrams| datagrams.foreign);
    check(
        "wrong-keys",
        connections == 0 && foreign == 0,
        format!(
            "{connections} connections to the reflector's port did not show the run's key; {foreign} datagrams were not of this run"
        ),
    )
}

fn offered_rate_kept(sender: &SenderOutcome, datagrams: &DatagramsSent) -> Check {
    let DatagramsSent { sent, bytes, offered, group, skipped } = *datagrams;
    let wanted =
        offered.get() as f64 * sender.window.as_secs_f64() / (bytes.get().max(1) as f64 * 8.0);
    // A group may fall on either side of an end of the window.
    let kept = (sent + group) as f64 >= wanted.floor() * KEPT;
    check(
        "offered-rate-kept",
        kept,
        format!(
            "{sent} of {wanted:.0} datagrams offered were sent, in groups of {group}; {skipped} left out; the busiest sending thread was busy {:.1} % of the time",
            100.0 * busy(sender)
        ),
    )
}

/// Whether bulk flows from the system under test to the generator.
fn flows_back(traffic: &Traffic) -> bool {
    match traffic {
        Traffic::TcpBulk { direction, .. } => *direction != Direction::ToSut,
        Traffic::Fetch { .. } | Traffic::RpcRead { .. } => true,
        _ => false,
    }
}

/// Bulk at a rate: each end that sends must have got rid of what was offered.
fn bulk_rate_kept(
    traffic: &Traffic,
    sender: &SenderOutcome,
    receiver: &ReceiverOutcome,
) -> Option<Check> {
    let Traffic::TcpBulk { direction, message_bytes, rate: Some(rate), connections, .. } = *traffic
    else {
        return None;
    };
    let wanted = |window: Nanos| rate.get() as f64 / 8.0 * window.as_secs_f64();
    // A message of each connection may fall on either side of an end of the window.
    let slack = message_bytes.get() as f64 * f64::from(connections);
    let mut kept = true;
    let mut shares = Vec::new();
    for (sends, sent, window, end) in [
        (direction != Direction::FromSut, sender.sent_bytes, sender.window, "generator"),
        (direction != Direction::ToSut, receiver.sent_bytes, receiver.window, "sut"),
    ] {
        if sends {
            let wanted = wanted(window);
            kept &= sent as f64 + slack >= wanted * KEPT;
            let share = 100.0 * sent as f64 / wanted.max(1.0);
            shares.push(format!("the {end} sent {share:.1} % of what was offered"));
        }
    }
    Some(check("offered-rate-kept", kept, shares.join(", ")))
}

fn receive_buffer(datagrams: DatagramsReceived) -> Option<Check> {
    let dropped = datagrams.dropped_by_kernel?;
    let detail = format!("the receiver's kernel dropped {dropped} datagrams for want of buffer");
    Some(check("udp-receive-buffer", dropped == 0, detail))
}

fn probe_on_schedule(probe: &ProbeOutcome) -> Check {
    let ProbeOutcome { sent, skipped, .. } = probe;
    check(
        "probe-on-schedule",
        *skipped == 0,
        format!(
            "{sent} echo requests were sent; {skipped} left out because the prober was held up"
        ),
    )
}

fn sender_saturated(sender: &SenderOutcome) -> Check {
    let busy = busy(sender);
    let detail =
        format!("the generator's busiest thread was busy {:.1} % of the time", 100.0 * busy);
    check("sender-saturated", busy < SATURATED, detail)
}

/// The share of the window that the busiest sending thread was on a CPU.
fn busy(sender: &SenderOutcome) -> f64 {
    let window = sender.window.as_secs_f64();
    if window > 0.0 { sender.busiest_cpu.as_secs_f64() / window } else { 0.0 }
}

fn check(name: &str, passed: bool, detail: String) -> Check {
    Check { name: name.to_owned(), passed, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_what_was_sent_and_never_came() {
        let (traffic, _, _) = combine(&workload(), &sender(1000, 0), &receiver(990, 0));
        let datagrams = traffic.datagrams.unwrap();
        assert_eq!((datagrams.sent, datagrams.received, datagrams.lost), (1000, 990, 10));
        // A receiver that claims more than was sent makes no negative loss.
        let (traffic, _, _) = combine(&workload(), &sender(1000, 0), &receiver(2000, 0));
        assert_eq!(traffic.datagrams.unwrap().lost, 0);
    }

    #[test]
    fn the_offered_rate_is_kept_to_one_percent() {
        check_failed(&sender(1000, 0), &receiver(1000, 0), &[]);
        check_failed(&sender(990, 10), &receiver(990, 0), &[]);
        check_failed(&sender(985, 15), &receiver(985, 0), &["offered-rate-kept"]);
    }

    #[test]
    fn what_the_receiver_dropped_or_did_not_know_is_said() {
        check_failed(&sender(1000, 0), &receiver(900, 100), &["udp-receive-buffer"]);
        let mut foreign = receiver(1000, 0);
        foreign.datagrams.as_mut().unwrap().foreign = 1;
        check_failed(&sender(1000, 0), &foreign, &["wrong-keys"]);
        let knocked = ReceiverOutcome { wrong_keys: 1, ..receiver(1000, 0) };
        check_failed(&sender(1000, 0), &knocked, &["wrong-keys"]);
    }

    #[test]
    fn a_thread_that_never_rests_and_a_late_probe_are_said() {
        let workload = Workload::plain("test", Traffic::tcp_rr(0));
        let check_failed = |sender: &SenderOutcome, failed: &[&str]| {
            let (_, _, checks) = combine(&workload, sender, &ReceiverOutcome::default());
            check_names(&checks, failed);
        };
        let busy = |cpu_ms| SenderOutcome {
            window: Nanos::from_s(1),
            transactions: Some(1),
            busiest_cpu: Nanos::from_ms(cpu_ms),
            ..SenderOutcome::default()
        };
        check_failed(&busy(960), &[]);
        check_failed(&busy(980), &["sender-saturated"]);
        let probe = ProbeOutcome { sent: 9, received: 9, skipped: 1, rtt: Histogram::new() };
        let late = SenderOutcome { probe: Some(probe), ..busy(0) };
        check_failed(&late, &["probe-on-schedule"]);
    }

    #[test]
    fn bulk_both_ways_is_counted_at_each_receiver_and_its_rate_checked() {
        let traffic = Traffic::TcpBulk {
            direction: Direction::Both,
            message_bytes: Bytes::new(1000),
            connections: 1,
            threads: 1,
            rate: Some(BitsPerSecond::new(8_000_000)),
        };
        let workload = Workload::plain("test", traffic);
        let window = Nanos::from_s(1);
        let sender = SenderOutcome {
            window,
            sent_bytes: 1_000_000,
            received_bytes: 900_000,
            ..SenderOutcome::default()
        };
        let receiver = |sent_bytes| ReceiverOutcome {
            window,
            sent_bytes,
            received_bytes: 990_000,
            ..ReceiverOutcome::default()
        };
        let kept = |sent_bytes| {
            let (observed, _, checks) = combine(&workload, &sender, &receiver(sent_bytes));
            assert_eq!(observed.goodput_bps(&traffic), Some(8.0 * 1_890_000.0));
            assert_eq!(observed.offered_bps, Some(8e6));
            checks.iter().find(|check| check.name == "offered-rate-kept").unwrap().passed
        };
        assert!(kept(995_000));
        assert!(!kept(900_000));
    }

    #[test]
    fn an_outcome_with_an_unknown_field_is_refused() {
        let text = serde_json::to_string(&receiver(1, 0)).unwrap();
        let longer = text.replacen('{', "{\"surprise\":1,", 1);
        assert!(serde_json::from_str::<ReceiverOutcome>(&text).is_ok());
        assert!(serde_json::from_str::<ReceiverOutcome>(&longer).is_err());
    }

    fn workload() -> Workload {
        let rate = BitsPerSecond::new(1_000_000);
        Workload::plain("test", Traffic::udp_stream(Bytes::new(125), rate))
    }

    /// A second of 125 byte at 1 Mbit/s: 1000 datagrams.
    fn sender(sent: u64, skipped: u64) -> SenderOutcome {
        let (bytes, offered) = (Bytes::new(125), BitsPerSecond::new(1_000_000));
        let datagrams = DatagramsSent { sent, bytes, offered, group: 1, skipped };
        SenderOutcome {
            window: Nanos::from_s(1),
            datagrams: Some(datagrams),
            ..SenderOutcome::default()
        }
    }

    fn receiver(received: u64, dropped: u64) -> ReceiverOutcome {
        let datagrams = DatagramsReceived {
            received,
            duplicates: 0,
            reordered: 0,
            jitter_ns: 0.0,
            dropped_by_kernel: Some(dropped),
            foreign: 0,
        };
        ReceiverOutcome { datagrams: Some(datagrams), ..ReceiverOutcome::default() }
    }

    #[track_caller]
    fn check_failed(sender: &SenderOutcome, receiver: &ReceiverOutcome, failed: &[&str]) {
        let (_, _, checks) = combine(&workload(), sender, receiver);
        check_names(&checks, failed);
    }

    #[track_caller]
    fn check_names(checks: &[Check], failed: &[&str]) {
        let names: Vec<&str> =
            checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str()).collect();
        assert_eq!(names, failed, "{checks:?}");
    }
}
