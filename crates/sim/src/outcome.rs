//! The outcome of a run, in the window after its warm-up.

use latput_stats::Histogram;
use latput_trial::observation::{
    Check, CpuAccounting, CpuObservation, CpuSource, CpuTime, DatagramObservation, FlowObservation,
    HostObservation, InterfaceCounters, NapiObservation, Observation, ProbeObservation, Role,
    TrafficObservation,
};
use latput_units::{CpuId, Nanos};

use crate::casts::id;
use crate::core::CpuUsage;
use crate::queue::QueueCounters;
use crate::scenario::{Load, Scenario, TrafficKind, Transport};
use crate::setting::read_knob_state;
use crate::tally::LoadCounters;
use crate::world::{CounterSnapshot, World};

/// The outcome of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulationOutcome {
    /// Length of the measured window.
    pub window: Nanos,
    /// The outcome of each load, in the scenario's order.
    pub loads: Vec<LoadOutcome>,
    /// The outcome of each host, in the scenario's order.
    pub hosts: Vec<HostOutcome>,
    /// Retransmitted TCP segments of all connections.
    pub retransmits: u64,
    /// Packets dropped by the switch.
    pub switch_dropped: u64,
    /// Simulated events, including the warm-up.
    pub events: u64,
}

/// The outcome of one load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadOutcome {
    /// Round-trip times of transactions and probes; for datagrams the delay from the due time to
    /// the receiving process.
    pub latency: Histogram,
    /// Round-trip times from the send time, in an open loop; `latency` is from the due time.
    pub raw_latency: Option<Histogram>,
    /// Transactions that timed out.
    pub lost: u64,
    /// Datagrams or probes sent.
    pub sent: u64,
    /// Payload sent by processes, both directions.
    pub sent_bytes: u64,
    /// Payload sent toward the generator.
    pub reverse_sent_bytes: u64,
    /// Transactions completed, datagrams or probe replies received.
    pub received: u64,
    /// Payload received by processes, both directions.
    pub received_bytes: u64,
    /// Payload received by the generator.
    pub reverse_received_bytes: u64,
    /// Retransmitted TCP segments.
    pub retransmits: u64,
    /// Datagrams dropped at a full socket.
    pub socket_dropped: u64,
    /// Datagrams or echoes both sent and received in the window.
    pub matched: u64,
    /// Datagrams or echoes sent in the window and received after its end.
    pub late: u64,
    /// Interarrival jitter at the end (RFC 3550, section 6.4.1), nanoseconds.
    pub jitter_ns: f64,
}

/// The outcome of one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostOutcome {
    /// Use of each core's time.
    pub cores: Vec<CpuTime>,
    /// Each NIC queue.
    pub queues: Vec<QueueOutcome>,
    /// Soft interrupt runs.
    pub softirqs: u64,
    /// CPU time of the traffic's processes.
    pub traffic_cpu: Nanos,
    /// CPU time of NAPI threads, if any.
    pub napi_cpu: Option<Nanos>,
    /// Packets dropped from full backlogs.
    pub backlog_dropped: u64,
}

/// The outcome of one NIC queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueOutcome {
    /// Interrupts.
    pub interrupts: u64,
    /// Polls.
    pub polls: u64,
    /// Polls that found nothing.
    pub empty_polls: u64,
    /// Packets taken by the polls.
    pub polled_packets: u64,
    /// Received packets.
    pub rx_packets: u64,
    /// Received bytes.
    pub rx_bytes: u64,
    /// Packets dropped without a free descriptor.
    pub rx_dropped: u64,
    /// Sent packets.
    pub tx_packets: u64,
    /// Sent bytes.
    pub tx_bytes: u64,
    /// Packets dropped by the queue discipline.
    pub tx_dropped: u64,
    /// Packets (with TSO chunks) in the queue discipline at the beginning and at the end.
    pub waiting_packets: [u64; 2],
    /// Bytes in it, likewise.
    pub waiting_bytes: [u64; 2],
}

impl HostOutcome {
    /// The sum over all cores.
    pub fn cpu_totals(&self) -> CpuTime {
        self.cores.iter().copied().sum()
    }

    /// The sum over all queues.
    pub fn nic_totals(&self) -> QueueOutcome {
        self.queues.iter().fold(QueueOutcome::default(), |sum, queue| QueueOutcome {
            interrupts: sum.interrupts + queue.interrupts,
            polls: sum.polls + queue.polls,
            empty_polls: sum.empty_polls + queue.empty_polls,
            polled_packets: sum.polled_packets + queue.polled_packets,
            rx_packets: sum.rx_packets + queue.rx_packets,
            rx_bytes: sum.rx_bytes + queue.rx_bytes,
            rx_dropped: sum.rx_dropped + queue.rx_dropped,
            tx_packets: sum.tx_packets + queue.tx_packets,
            tx_bytes: sum.tx_bytes + queue.tx_bytes,
            tx_dropped: sum.tx_dropped + queue.tx_dropped,
            waiting_packets: add_pairs(sum.waiting_packets, queue.waiting_packets),
            waiting_bytes: add_pairs(sum.waiting_bytes, queue.waiting_bytes),
        })
    }
}

impl SimulationOutcome {
    /// A count as a rate.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.window.as_secs_f64()
    }

    /// The observation of load `load` of `scenario`, as on every testbed, with the first probe of
    /// the scenario, if any.
    pub fn build_observation(&self, scenario: &Scenario, load: usize) -> Observation {
        let probe = scenario
            .loads
            .iter()
            .enumerate()
            .position(|(idx, probe)| {
                idx != load && matches!(probe.traffic, TrafficKind::Probe { .. })
            })
            .map(|probe| self.build_probe(probe));
        Observation {
            traffic: self.build_traffic(scenario, load),
            probe,
            hosts: (0..self.hosts.len()).map(|host| self.build_host(scenario, host)).collect(),
            checks: self.build_checks(),
            ..Observation::default()
        }
    }

    fn build_traffic(&self, scenario: &Scenario, idx: usize) -> TrafficObservation {
        let load = &self.loads[idx];
        let mut traffic = TrafficObservation {
            sender_window: self.window,
            receiver_window: self.window,
            sent_bytes: load.sent_bytes - load.reverse_sent_bytes,
            received_bytes: load.received_bytes - load.reverse_received_bytes,
            reverse: Some(FlowObservation {
                sent_bytes: load.reverse_sent_bytes,
                received_bytes: load.reverse_received_bytes,
            }),
            retransmits: Some(load.retransmits),
            sender_cpu: self.cpu_of(scenario, Role::Generator),
            receiver_cpu: self.cpu_of(scenario, Role::Sut),
            ..TrafficObservation::default()
        };
        match scenario.loads[idx].traffic {
            TrafficKind::RequestResponse { .. } => {
                traffic.transactions = Some(load.received);
                traffic.latency = Some(load.latency.clone());
                traffic.latency_raw.clone_from(&load.raw_latency);
                self.add_exchange(scenario, idx, &mut traffic);
            }
            TrafficKind::Probe { .. } => {
                traffic.retransmits = None;
                traffic.transactions = Some(load.received);
                traffic.latency = Some(load.latency.clone());
            }
            TrafficKind::Datagrams { .. } => {
                traffic.retransmits = None;
                traffic.offered_bps = scenario.offered_bps(idx);
                traffic.datagrams = Some(DatagramObservation {
                    sent: load.sent,
                    received: load.matched + load.late,
                    lost: load.sent.saturating_sub(load.matched + load.late),
                    reordered: 0,
                    duplicates: 0,
                    late: 0,
                    jitter_ns: load.jitter_ns,
                });
            }
            TrafficKind::Stream { .. } => traffic.offered_bps = scenario.offered_bps(idx),
            TrafficKind::Compute => {}
        }
        traffic
    }

    /// Adds the parts of open loops and datagrams.
    fn add_exchange(&self, scenario: &Scenario, idx: usize, traffic: &mut TrafficObservation) {
        let (load, described) = (&self.loads[idx], &scenario.loads[idx]);
        let is_udp = matches!(
            described.traffic,
            TrafficKind::RequestResponse { transport: Transport::Udp, .. }
        );
        if is_udp {
            traffic.retransmits = None;
            traffic.datagrams = Some(DatagramObservation {
                sent: load.received + load.lost,
                received: load.received,
                lost: load.lost,
                ..DatagramObservation::default()
            });
        }
        let counted =
            |part: &&Load| std::ptr::eq(*part, described) || part.counted_with == Some(idx);
        let parts = scenario.loads.iter().filter(counted);
        traffic.offered_per_s =
            parts.map(|part| part.form.arrivals.map(|arrivals| arrivals.rate_hz)).sum();
    }

    /// CPU time of the traffic's processes on hosts of this role.
    fn cpu_of(&self, scenario: &Scenario, role: Role) -> Nanos {
        let hosts = scenario.hosts.iter().zip(&self.hosts);
        hosts
            .filter(|(host, _)| host.role == role)
            .fold(Nanos::ZERO, |sum, (_, host)| sum.saturating_add(host.traffic_cpu))
    }

    fn build_probe(&self, idx: usize) -> ProbeObservation {
        let load = &self.loads[idx];
        let received = load.matched + load.late;
        ProbeObservation { sent: load.sent, received, rtt: load.latency.clone() }
    }

    fn build_host(&self, scenario: &Scenario, idx: usize) -> HostObservation {
        let (host, described) = (&self.hosts[idx], &scenario.hosts[idx]);
        let nic = host.nic_totals();
        let cpu =
            |(idx, time): (usize, &CpuTime)| CpuObservation { cpu: CpuId(id(idx)), time: *time };
        HostObservation {
            host: described.name.clone(),
            role: described.role,
            window: self.window,
            cpus: host.cores.iter().enumerate().map(cpu).collect(),
            accounting: CpuAccounting { source: CpuSource::Simulated, ..CpuAccounting::default() },
            machine: host.cpu_totals(),
            napi: Some(NapiObservation {
                polls: nic.polls,
                packets: nic.polled_packets,
                empty_polls: nic.empty_polls,
            }),
            softirqs: host.softirqs,
            interrupts: nic.interrupts,
            state: read_knob_state(described, &scenario.network),
            interface: InterfaceCounters {
                rx_packets: nic.rx_packets,
                rx_bytes: nic.rx_bytes,
                tx_packets: nic.tx_packets,
                tx_bytes: nic.tx_bytes,
                rx_dropped: nic.rx_dropped + host.backlog_dropped,
                tx_dropped: nic.tx_dropped,
            },
            napi_threads_cpu: host.napi_cpu,
            tcp_retransmitted: self.retransmits,
            udp_receive_buffer_errors: self.socket_drops(scenario, idx),
            ..HostObservation::default()
        }
    }

    /// Datagrams dropped at full sockets of a host.
    pub(crate) fn socket_drops(&self, scenario: &Scenario, host: usize) -> u64 {
        let loads = scenario.loads.iter().zip(&self.loads);
        loads.filter(|(load, _)| load.to == host).map(|(_, outcome)| outcome.socket_dropped).sum()
    }

    fn build_checks(&self) -> Vec<Check> {
        let dropped: u64 = self.hosts.iter().map(|host| host.nic_totals().rx_dropped).sum();
        vec![Check {
            name: String::from("ring-drops"),
            passed: dropped == 0,
            detail: format!("{dropped} packets found no receive descriptor"),
        }]
    }
}

impl Scenario {
    /// The payload rate offered by a load and those counted with it; `None` if unlimited.
    fn offered_bps(&self, load: usize) -> Option<f64> {
        let parts = self.loads.iter().enumerate();
        let of_load =
            |(idx, part): &(usize, &Load)| *idx == load || part.counted_with == Some(load);
        parts
            .filter(of_load)
            .map(|(_, part)| match part.traffic {
                TrafficKind::Datagrams { .. } if part.form.floods => None,
                TrafficKind::Datagrams { size, rate_pps, .. } => {
                    Some(size.get() as f64 * 8.0 * rate_pps)
                }
                TrafficKind::Stream { message, .. } => {
                    part.form.arrivals.map(|arrivals| message.get() as f64 * 8.0 * arrivals.rate_hz)
                }
                _ => None,
            })
            .sum()
    }
}

/// The difference of two snapshots of a finished run.
pub(crate) fn collect_outcome(
    world: &World,
    scenario: &Scenario,
    from: &CounterSnapshot,
    to: &CounterSnapshot,
) -> SimulationOutcome {
    let window = Nanos::from_ns(to.at - from.at);
    let host = |idx: usize| {
        let (cores, queues) = world.parts(idx);
        let (traffic_cpu, napi_cpu) = world.thread_cpu(idx, from, to);
        HostOutcome {
            cores: cores
                .clone()
                .map(|core| cpu_time(&from.spent[core], &to.spent[core], window))
                .collect(),
            queues: queues
                .map(|queue| QueueOutcome {
                    waiting_packets: [from, to].map(|look| look.waiting[queue][0]),
                    waiting_bytes: [from, to].map(|look| look.waiting[queue][1]),
                    ..diff_counters(&from.counters[queue], &to.counters[queue])
                })
                .collect(),
            traffic_cpu: Nanos::from_ns(traffic_cpu),
            napi_cpu: napi_cpu.map(Nanos::from_ns),
            softirqs: cores
                .clone()
                .map(|core| to.softirq_runs[core] - from.softirq_runs[core])
                .sum(),
            backlog_dropped: cores
                .map(|core| to.backlog_dropped[core] - from.backlog_dropped[core])
                .sum(),
        }
    };
    let retransmits = to.retransmits.iter().zip(&from.retransmits).map(|(to, from)| to - from);
    SimulationOutcome {
        window,
        loads: world.load_counters().iter().zip(retransmits.clone()).map(collect_load).collect(),
        hosts: (0..scenario.hosts.len()).map(host).collect(),
        retransmits: retransmits.sum(),
        switch_dropped: to.switch_dropped - from.switch_dropped,
        events: world.events,
    }
}

fn collect_load((tally, retransmits): (&LoadCounters, u64)) -> LoadOutcome {
    LoadOutcome {
        latency: tally.latency.to_histogram(),
        raw_latency: tally.raw_latency.as_ref().map(|raw| raw.to_histogram()),
        lost: tally.lost,
        sent: tally.sent,
        sent_bytes: tally.sent_bytes,
        reverse_sent_bytes: tally.reverse_sent_bytes,
        received: tally.received,
        received_bytes: tally.received_bytes,
        reverse_received_bytes: tally.reverse_received_bytes,
        retransmits,
        socket_dropped: tally.socket_dropped,
        matched: tally.matched,
        late: tally.late,
        jitter_ns: tally.jitter_ns,
    }
}

fn cpu_time(from: &CpuUsage, to: &CpuUsage, window: Nanos) -> CpuTime {
    let busy = to.total() - from.total();
    CpuTime {
        user: Nanos::from_ns(to.user - from.user),
        system: Nanos::from_ns(to.system - from.system),
        irq: Nanos::from_ns(to.irq - from.irq),
        softirq: Nanos::from_ns(to.softirq - from.softirq),
        idle: window - Nanos::from_ns(busy),
        ..CpuTime::default()
    }
}

fn diff_counters(from: &QueueCounters, to: &QueueCounters) -> QueueOutcome {
    QueueOutcome {
        interrupts: to.interrupts - from.interrupts,
        polls: to.polls - from.polls,
        empty_polls: to.empty_polls - from.empty_polls,
        polled_packets: to.polled_packets - from.polled_packets,
        rx_packets: to.rx_packets - from.rx_packets,
        rx_bytes: to.rx_bytes - from.rx_bytes,
        rx_dropped: to.rx_dropped - from.rx_dropped,
        tx_packets: to.tx_packets - from.tx_packets,
        tx_bytes: to.tx_bytes - from.tx_bytes,
        tx_dropped: to.tx_dropped - from.tx_dropped,
        ..QueueOutcome::default()
    }
}

fn add_pairs(one: [u64; 2], other: [u64; 2]) -> [u64; 2] {
    [one[0] + other[0], one[1] + other[1]]
}
