//! The outcome of each end, and the observation made of both halves.

use latput_stats::Histogram;
use latput_trial::observation::{
    ContextSwitches, DatagramObservation, FlowObservation, ProbeObservation, TrafficObservation,
};
use latput_trial::{Check, Traffic, Workload};
use latput_units::text::format_count;
use latput_units::{BitsPerSecond, Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The generator's half of a trial, over one slice of its window or all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SenderOutcome {
    /// Length of the window, or of the measured part of the slice.
    pub window: Nanos,
    /// Payload bytes that the kernel took.
    pub sent_bytes: u64,
    /// Payload bytes that the application got.
    #[serde(default)]
    pub received_bytes: u64,
    /// Completed transactions, of a request/response load; objects of a `fetch`.
    pub transactions: Option<u64>,
    /// Round-trip times; in an open loop from the due time of the request. A slice leaves out
    /// requests in flight before its start, cut included.
    pub latency: Option<Histogram>,
    /// Round-trip times from the send time of the request, in an open loop.
    pub latency_raw: Option<Histogram>,
    /// How far the schedule was kept, in an open loop.
    pub schedule: Option<ScheduleKept>,
    /// TCP segments that this end retransmitted.
    pub retransmits: Option<u64>,
    /// CPU time of the traffic threads.
    pub cpu: Nanos,
    /// Context switches of the traffic threads.
    #[serde(default)]
    pub switches: Option<ContextSwitches>,
    /// CPU time of the busiest traffic thread.
    #[serde(default)]
    pub busiest_cpu: Nanos,
    /// Datagrams, of a datagram load.
    pub datagrams: Option<DatagramsSent>,
    /// Requests and responses, of a datagram load that is made of them.
    pub exchange: Option<DatagramsExchanged>,
    /// The probe beside the traffic, if there was one.
    pub probe: Option<ProbeOutcome>,
}

/// How far an open loop kept its schedule in its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleKept {
    /// Requests that were due.
    pub due: u64,
    /// Requests that were handed to the kernel.
    pub sent: u64,
    /// Requests that were due and not yet handed over when the window ended.
    pub backlog: u64,
}

/// Requests sent in the sender's window, and their fates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatagramsExchanged {
    /// Requests that the kernel took.
    pub sent: u64,
    /// Requests answered in time.
    pub answered: u64,
    /// Requests not answered in time.
    pub lost: u64,
    /// Responses that came after their request counted as lost.
    pub late: u64,
    /// Responses to requests that were answered before.
    pub duplicates: u64,
    /// Datagrams from the reflector's port that were no responses of this run.
    pub foreign: u64,
}

/// Counts of the datagram sender in its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatagramsSent {
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Payload of each.
    pub bytes: Bytes,
    /// The requested rate; `None` for as fast as possible.
    pub offered: Option<BitsPerSecond>,
    /// Datagrams sent together: 1 up to one datagram per 50 us, then more.
    pub group: u64,
    /// Most datagrams that the kernel cut from one send; 1 without segmentation.
    pub cut: u64,
    /// Datagrams left out because the sender was delayed for too long.
    pub skipped: u64,
}

/// Counts of the datagram receiver, of datagrams sent in the sender's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatagramsReceived {
    /// Different datagrams.
    pub received: u64,
    /// Received again.
    pub duplicates: u64,
    /// Received after a later one (RFC 4737, section 3.3).
    pub reordered: u64,
    /// Interarrival jitter at the last datagram of the window or slice (RFC 3550, section 6.4.1) in
    /// nanoseconds, at the application. Over several flows it is their mean, weighted by datagrams.
    pub jitter_ns: f64,
    /// Datagrams that this host's kernel dropped at a full socket buffer, in the slice or, without
    /// slices, since the warm-up. `None` if the kernel has no count.
    pub dropped_by_kernel: Option<u64>,
    /// Datagrams from the generator's port that were not of this run.
    pub foreign: u64,
}

impl DatagramsSent {
    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.skipped += other.skipped;
        self.group = self.group.max(other.group);
        self.cut = self.cut.min(other.cut);
        self.offered = self
            .offered
            .zip(other.offered)
            .map(|(one, other)| BitsPerSecond::new(one.get().saturating_add(other.get())));
    }
}

impl DatagramsReceived {
    /// Adds the counts of other flows.
    pub(crate) fn add(&mut self, other: &Self) {
        let (ours, theirs) = (self.received as f64, other.received as f64);
        if theirs > 0.0 {
            self.jitter_ns = (self.jitter_ns * ours + other.jitter_ns * theirs) / (ours + theirs);
        }
        self.received += other.received;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        let dropped = self.dropped_by_kernel.zip(other.dropped_by_kernel);
        self.dropped_by_kernel = dropped.map(|(one, other)| one + other);
        self.foreign += other.foreign;
    }
}

impl DatagramsExchanged {
    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.lost += other.lost;
        self.late += other.late;
        self.duplicates += other.duplicates;
        self.foreign += other.foreign;
    }
}

impl ScheduleKept {
    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.due += other.due;
        self.sent += other.sent;
        self.backlog += other.backlog;
    }
}

/// Counts of the probe in the generator's window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeOutcome {
    /// Echo requests sent, of those due in the window or slice.
    pub sent: u64,
    /// Requests answered within a second of the window's end.
    pub received: u64,
    /// Requests left out because the prober was delayed for too long.
    pub skipped: u64,
    /// Answers with a receive timestamp of the kernel.
    #[serde(default)]
    pub stamped: u64,
    /// Round-trip times, from just before the send until the kernel received the answer or, without
    /// a timestamp, until the read.
    pub rtt: Histogram,
}

/// The reflector's half of a trial, over one slice of its window or all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiverOutcome {
    /// Length of the window, or of the measured part of the slice.
    pub window: Nanos,
    /// Payload bytes that the application got.
    pub received_bytes: u64,
    /// Payload bytes that the kernel took.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Complete requests received, of a request/response load.
    pub requests: Option<u64>,
    /// TCP segments that this end retransmitted.
    pub retransmits: Option<u64>,
    /// CPU time of the traffic threads.
    pub cpu: Nanos,
    /// Context switches of the traffic threads.
    #[serde(default)]
    pub switches: Option<ContextSwitches>,
    /// Connections that did not prove the key in time, since the port was opened; the same in every
    /// slice.
    pub auth_failures: u64,
    /// Datagrams, of a datagram load.
    pub datagrams: Option<DatagramsReceived>,
    /// Datagrams in the window that were no requests of this run.
    #[serde(default)]
    pub foreign: u64,
}

/// Least share of the offered rate that counts as kept.
const KEPT: f64 = 0.99;
/// Share of CPU time above which a thread, and not the network, may limit the rate.
const SATURATED: f64 = 0.97;

impl SenderOutcome {
    /// Adds the counts of another thread of the same end.
    pub(crate) fn merge(&mut self, other: Self) {
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.transactions = sum(self.transactions, other.transactions);
        self.retransmits = sum(self.retransmits, other.retransmits);
        self.cpu = self.cpu + other.cpu;
        self.switches = join_switches(self.switches, other.switches);
        self.busiest_cpu = self.busiest_cpu.max(other.busiest_cpu);
        match (&mut self.latency, other.latency) {
            (Some(all), Some(one)) => all.merge(&one),
            (all, one) => *all = all.take().or(one),
        }
        match (&mut self.latency_raw, other.latency_raw) {
            (Some(all), Some(one)) => all.merge(&one),
            (all, one) => *all = all.take().or(one),
        }
        both(&mut self.schedule, other.schedule, ScheduleKept::add);
        both(&mut self.datagrams, other.datagrams, DatagramsSent::add);
        both(&mut self.exchange, other.exchange, DatagramsExchanged::add);
    }
}

impl ReceiverOutcome {
    /// Adds the counts of another thread of the same end.
    pub(crate) fn merge(&mut self, other: Self) {
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.requests = sum(self.requests, other.requests);
        self.retransmits = sum(self.retransmits, other.retransmits);
        self.cpu = self.cpu + other.cpu;
        self.switches = join_switches(self.switches, other.switches);
        both(&mut self.datagrams, other.datagrams, DatagramsReceived::add);
        self.foreign += other.foreign;
    }
}

/// Merges the slices of all threads by their number.
pub(crate) fn merged<T>(threads: Vec<Vec<T>>, merge: impl Fn(&mut T, T)) -> Vec<T> {
    let mut threads = threads.into_iter();
    let mut all = threads.next().expect("there is at least one thread");
    for thread in threads {
        all.iter_mut().zip(thread).for_each(|(ours, theirs)| merge(ours, theirs));
    }
    all
}

/// Adds a part that every thread has, or none.
fn both<T>(ours: &mut Option<T>, theirs: Option<T>, add: impl Fn(&mut T, &T)) {
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        add(ours, &theirs);
    }
}

/// The sum of two figures; `None` if either is unknown.
fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map(|(one, other)| one + other)
}

fn join_switches(
    one: Option<ContextSwitches>,
    other: Option<ContextSwitches>,
) -> Option<ContextSwitches> {
    one.zip(other).map(|(one, other)| one.joined(other))
}

/// Joins the two halves of `workload` and checks them against each other. Sums saturate, since
/// either half may hold any number.
pub fn combine(
    workload: &Workload,
    sender: &SenderOutcome,
    receiver: &ReceiverOutcome,
) -> (TrafficObservation, Option<ProbeObservation>, Vec<Check>) {
    let paced = match sender.datagrams {
        Some(datagrams) => datagrams.offered,
        None => workload.traffic.offered_rate(),
    };
    let traffic = TrafficObservation {
        sender_window: sender.window,
        receiver_window: receiver.window,
        sent_bytes: sender.sent_bytes,
        received_bytes: receiver.received_bytes,
        reverse: workload.traffic.flows_back().then_some(FlowObservation {
            sent_bytes: receiver.sent_bytes,
            received_bytes: sender.received_bytes,
        }),
        transactions: sender.transactions,
        latency: sender.latency.clone(),
        latency_raw: sender.latency_raw.clone(),
        datagrams: datagrams(sender, receiver),
        retransmits: sender.retransmits.zip(receiver.retransmits).map(|(a, b)| a.saturating_add(b)),
        offered_bps: paced.map(|rate| rate.get() as f64),
        offered_per_s: sender.schedule.and_then(|it| per_s(it.due, sender.window)),
        sender_cpu: sender.cpu,
        receiver_cpu: receiver.cpu,
        sender_switches: sender.switches,
        receiver_switches: receiver.switches,
        busiest_ratio: Some(busy(sender)),
    };
    let probe = sender.probe.as_ref().map(|probe| ProbeObservation {
        sent: probe.sent,
        received: probe.received,
        rtt: probe.rtt.clone(),
    });
    let mut checks = vec![auth_failures(sender, receiver)];
    checks.extend(sender.datagrams.and_then(|datagrams| offered_rate_kept(sender, &datagrams)));
    checks.extend(sender.schedule.map(|schedule| schedule_kept(sender, &schedule)));
    checks.extend(receiver.datagrams.and_then(receive_buffer));
    checks.extend(sender.probe.as_ref().map(probe_on_schedule));
    checks.extend(bulk_rate_kept(&workload.traffic, sender, receiver));
    if sender.transactions.is_some() && workload.traffic.is_transactional() {
        checks.push(sender_saturated(sender));
    }
    (traffic, probe, checks)
}

/// Computes the loss: datagrams sent in the sender's window that never arrived. Both ends count the
/// same datagrams.
fn datagrams(sender: &SenderOutcome, receiver: &ReceiverOutcome) -> Option<DatagramObservation> {
    if let Some(exchange) = sender.exchange {
        return Some(DatagramObservation {
            sent: exchange.sent,
            received: exchange.answered,
            lost: exchange.lost,
            late: exchange.late,
            duplicates: exchange.duplicates,
            ..DatagramObservation::default()
        });
    }
    let (sent, received) = sender.datagrams.zip(receiver.datagrams)?;
    Some(DatagramObservation {
        sent: sent.sent,
        received: received.received,
        lost: sent.sent.saturating_sub(received.received),
        reordered: received.reordered,
        duplicates: received.duplicates,
        jitter_ns: received.jitter_ns,
        ..DatagramObservation::default()
    })
}

fn auth_failures(sender: &SenderOutcome, receiver: &ReceiverOutcome) -> Check {
    let connections = receiver.auth_failures;
    let at_sender = sender.exchange.map_or(0, |exchange| exchange.foreign);
    let foreign = receiver.datagrams.map_or(receiver.foreign, |datagrams| datagrams.foreign);
    let foreign = foreign.saturating_add(at_sender);
    check(
        "wrong-keys",
        connections == 0 && foreign == 0,
        format!(
            "without the run's key: {} to the reflector's port, and {} of others",
            format_count(connections, "connection"),
            format_count(foreign, "datagram")
        ),
    )
}

/// Checks that the offered rate was kept; `None` for a sender without a rate.
fn offered_rate_kept(sender: &SenderOutcome, datagrams: &DatagramsSent) -> Option<Check> {
    let DatagramsSent { sent, bytes, offered, group, skipped, .. } = *datagrams;
    let offered = offered?.get() as f64;
    let wanted = offered * sender.window.as_secs_f64() / (bytes.get().max(1) as f64 * 8.0);
    // A group may fall on either side of an end of the window.
    let kept = sent.saturating_add(group) as f64 >= wanted.floor() * KEPT;
    Some(check(
        "offered-rate-kept",
        kept,
        format!(
            "{sent} of {wanted:.0} offered datagrams were sent; {skipped} were left out; groups had {group} \
             datagrams; the busiest sending thread was busy {:.1}% of the time",
            100.0 * busy(sender)
        ),
    ))
}

fn schedule_kept(sender: &SenderOutcome, schedule: &ScheduleKept) -> Check {
    let ScheduleKept { due, sent, backlog } = *schedule;
    let answered = sender.transactions.unwrap_or(0);
    // One request may be in flight at each end of the window.
    let is_kept = |count: u64| count.saturating_add(1) as f64 >= due as f64 * KEPT;
    let rate = |count| per_s(count, sender.window).unwrap_or(0.0);
    check(
        "offered-rate-kept",
        is_kept(sent) && is_kept(answered),
        format!(
            "{:.0} requests per second were due, {:.0} sent, {:.0} answered; at the end of the window \
             {backlog} were due and not sent; the sending thread was busy {:.1}% of the time",
            rate(due),
            rate(sent),
            rate(answered),
            100.0 * busy(sender)
        ),
    )
}

fn per_s(count: u64, window: Nanos) -> Option<f64> {
    (window > Nanos::ZERO).then(|| count as f64 / window.as_secs_f64())
}

/// Checks, for bulk at a rate, that each sending end sent what was offered.
fn bulk_rate_kept(
    traffic: &Traffic,
    sender: &SenderOutcome,
    receiver: &ReceiverOutcome,
) -> Option<Check> {
    let rate = traffic.offered_rate().filter(|_| traffic.is_bulk())?;
    let wanted = |window: Nanos| rate.get() as f64 / 8.0 * window.as_secs_f64();
    // A message of each connection may fall on either side of an end of the window.
    let slack = traffic.unit_bytes()? as f64 * traffic.value("connections")? as f64;
    let payload = traffic.facts().payload;
    let mut kept = true;
    let mut shares = Vec::new();
    for (sends, sent, window, end) in [
        (payload.reaches_sut(), sender.sent_bytes, sender.window, "generator"),
        (payload.reaches_generators(), receiver.sent_bytes, receiver.window, "sut"),
    ] {
        if sends {
            let wanted = wanted(window);
            kept &= sent as f64 + slack >= wanted * KEPT;
            let share = 100.0 * sent as f64 / wanted.max(1.0);
            shares.push(format!("the {end} sent {share:.1}% of the offered rate"));
        }
    }
    Some(check("offered-rate-kept", kept, shares.join(", ")))
}

fn receive_buffer(datagrams: DatagramsReceived) -> Option<Check> {
    let dropped = datagrams.dropped_by_kernel?;
    let detail =
        format!("the receiver's kernel dropped {dropped} datagrams from full socket buffers");
    Some(check("udp-receive-buffer", dropped == 0, detail))
}

fn probe_on_schedule(probe: &ProbeOutcome) -> Check {
    let ProbeOutcome { sent, skipped, .. } = probe;
    check(
        "probe-on-schedule",
        *skipped == 0,
        format!("{sent} echo requests were sent on time and {skipped} left out"),
    )
}

fn sender_saturated(sender: &SenderOutcome) -> Check {
    let busy = busy(sender);
    let rate = sender.transactions.and_then(|count| per_s(count, sender.window));
    // The rate that the same CPU cost would allow without waiting.
    let ceiling = rate.filter(|_| busy > 0.0).map_or_else(String::new, |rate| {
        format!("; it can do about {:.0} transactions per second", rate / busy)
    });
    let detail = format!(
        "the generator's busiest thread was busy {:.1}% of the time{ceiling}",
        100.0 * busy
    );
    check("sender-saturated", busy < SATURATED, detail)
}

/// The largest share of the window that a sending thread was on a CPU.
fn busy(sender: &SenderOutcome) -> f64 {
    let window = sender.window.as_secs_f64();
    if window > 0.0 { sender.busiest_cpu.as_secs_f64() / window } else { 0.0 }
}

fn check(name: &str, passed: bool, detail: String) -> Check {
    Check { name: name.to_owned(), passed, detail }
}

#[cfg(test)]
mod tests {
    use latput_trial::Direction;

    use super::*;

    #[test]
    fn loss_is_sent_minus_received() {
        let (traffic, _, _) = combine(&workload(), &sender(1000, 0), &receiver(990, 0));
        let datagrams = traffic.datagrams.unwrap();
        assert_eq!((datagrams.sent, datagrams.received, datagrams.lost), (1000, 990, 10));
        // A receiver that claims more than was sent makes no negative loss.
        let (traffic, _, _) = combine(&workload(), &sender(1000, 0), &receiver(2000, 0));
        assert_eq!(traffic.datagrams.unwrap().lost, 0);
    }

    #[test]
    fn offered_rate_is_kept_to_one_percent() {
        check_failed(&sender(1000, 0), &receiver(1000, 0), &[]);
        check_failed(&sender(990, 10), &receiver(990, 0), &[]);
        check_failed(&sender(985, 15), &receiver(985, 0), &["offered-rate-kept"]);
    }

    #[test]
    fn unpaced_sender_has_no_rate_to_keep() {
        let mut flood = sender(10, 0);
        flood.datagrams.as_mut().unwrap().offered = None;
        check_failed(&flood, &receiver(10, 0), &[]);
        assert_eq!(combine(&workload(), &flood, &receiver(10, 0)).0.offered_bps, None);
    }

    #[test]
    fn open_loop_rate_counts_answered_requests() {
        let open = |due, sent, answered| SenderOutcome {
            window: Nanos::from_s(2),
            transactions: Some(answered),
            schedule: Some(ScheduleKept { due, sent, backlog: due - sent }),
            ..SenderOutcome::default()
        };
        check_failed(&open(1000, 1000, 1000), &ReceiverOutcome::default(), &[]);
        check_failed(&open(1000, 989, 989), &ReceiverOutcome::default(), &[]);
        check_failed(&open(1000, 1000, 980), &ReceiverOutcome::default(), &["offered-rate-kept"]);
        check_failed(&open(1000, 980, 980), &ReceiverOutcome::default(), &["offered-rate-kept"]);
        let (traffic, ..) =
            combine(&workload(), &open(1000, 1000, 1000), &ReceiverOutcome::default());
        assert_eq!(traffic.offered_per_s, Some(500.0));
    }

    #[test]
    fn losses_of_an_exchange_are_in_the_observation() {
        let exchange = DatagramsExchanged {
            sent: 10,
            answered: 7,
            lost: 3,
            late: 2,
            duplicates: 1,
            foreign: 0,
        };
        let sender = SenderOutcome { exchange: Some(exchange), ..SenderOutcome::default() };
        let (traffic, ..) = combine(&workload(), &sender, &ReceiverOutcome::default());
        let seen = traffic.datagrams.unwrap();
        assert_eq!((seen.sent, seen.received, seen.lost), (10, 7, 3));
        assert_eq!((seen.late, seen.duplicates), (2, 1));
    }

    #[test]
    fn flows_add_up_with_weighted_jitter() {
        let flow = |received, jitter_ns| DatagramsReceived {
            received,
            jitter_ns,
            dropped_by_kernel: Some(1),
            ..DatagramsReceived::default()
        };
        let mut total = flow(100, 10.0);
        total.add(&flow(300, 50.0));
        assert_eq!((total.received, total.dropped_by_kernel), (400, Some(2)));
        assert!((total.jitter_ns - 40.0).abs() < 1e-9);
        total.add(&DatagramsReceived::default());
        assert!((total.jitter_ns - 40.0).abs() < 1e-9 && total.dropped_by_kernel.is_none());
    }

    #[test]
    fn receiver_drops_are_reported() {
        check_failed(&sender(1000, 0), &receiver(900, 100), &["udp-receive-buffer"]);
        let mut foreign = receiver(1000, 0);
        foreign.datagrams.as_mut().unwrap().foreign = 1;
        check_failed(&sender(1000, 0), &foreign, &["wrong-keys"]);
        let knocked = ReceiverOutcome { auth_failures: 1, ..receiver(1000, 0) };
        check_failed(&sender(1000, 0), &knocked, &["wrong-keys"]);
    }

    #[test]
    fn busy_thread_and_late_probe_are_reported() {
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
        let half = SenderOutcome { transactions: Some(1000), ..busy(500) };
        let (_, _, checks) = combine(&workload, &half, &ReceiverOutcome::default());
        assert!(checks.iter().any(|check| check.detail.contains("about 2000 ")), "{checks:?}");
        let probe = ProbeOutcome { sent: 9, received: 9, skipped: 1, ..ProbeOutcome::default() };
        let late = SenderOutcome { probe: Some(probe), ..busy(0) };
        check_failed(&late, &["probe-on-schedule"]);
    }

    #[test]
    fn bidirectional_bulk_is_counted_at_receivers() {
        let traffic = Traffic::TcpBulk {
            direction: Direction::Both,
            message_bytes: Bytes::new(1000),
            connections: 1,
            threads: 1,
            rate: Some(BitsPerSecond::new(8_000_000)),
            vectored: true,
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
            let each_way = (8.0 * 990_000.0, 8.0 * 900_000.0);
            assert_eq!(observed.goodput_each_way_bps(&traffic), Some(each_way));
            assert_eq!(observed.offered_bps, Some(8e6));
            checks.iter().find(|check| check.name == "offered-rate-kept").unwrap().passed
        };
        assert!(kept(995_000));
        assert!(!kept(900_000));
    }

    #[test]
    fn outcome_with_an_unknown_field_is_refused() {
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
        let (bytes, offered) = (Bytes::new(125), Some(BitsPerSecond::new(1_000_000)));
        let datagrams = DatagramsSent { sent, bytes, offered, group: 1, cut: 1, skipped };
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
