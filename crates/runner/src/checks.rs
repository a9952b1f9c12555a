//! The checks on every trial. What a failed one voids is in `latput_trial::check`; a trial is stored all the same.

mod beside;
mod connections;
mod phase_lock;
mod steal;

use latput_knobs::effect::{self, EffectVerdict, Events, Seen};
use latput_trial::check::KNOB_DRIFT;
use latput_trial::observation::{CpuSource, HostObservation, Role, TrafficObservation};
use latput_trial::surroundings::SHARED_CPUS;
use latput_trial::workload::TrafficMaker;
use latput_trial::{Check, Traffic};
use latput_units::Nanos;

pub use self::beside::{check_throttling, on_schedule};
pub use self::steal::steal_of_slices;

/// Least change that counts as a step: more than NTP's slewing in a window, and less than a clock
/// is set by.
const WALL_CLOCK_STEP_S: f64 = 0.1;
/// Most difference between the parts of the CPU time and the whole, as a share of the window,
/// beside two clock ticks a CPU: the kernel does not read the lines of `/proc/stat` at one instant.
const PARTS_LIMIT: f64 = 0.02;
const CLOCK_TICK: Nanos = Nanos::from_ms(10);
/// Most difference between sources of CPU time, as a share of the window.
const SOURCES_LIMIT: f64 = 0.03;
/// Most CPU time of latput's own sampling and tracing, as a share of a CPU.
const SAMPLING_LIMIT: f64 = 0.005;
/// Most difference in packets between the halves of the window.
const STEADY_LIMIT: f64 = 0.2;
/// Fewest tenths of a second in each half for a comparison.
const STEADY_INTERVALS: usize = 4;
/// Most deviation of packets per transaction from one in each direction.
const BUNDLING_LIMIT: f64 = 0.05;
/// Most retransmitted packets, as a share: more means a faulty path, not a setting's cost.
const RETRANSMIT_LIMIT: f64 = 0.001;

/// The data of a host beside its counters.
#[derive(Clone, Copy, Debug)]
pub struct HostPart<'a> {
    /// The kernel's boot id: hosts with the same one share a kernel.
    pub boot_id: &'a str,
    /// CPU time of the traffic threads there.
    pub traffic_cpu: Nanos,
}

/// The checks that need all hosts or the counters. The traffic engine makes its own checks. `parts`
/// has one for each of `hosts`.
pub fn of_trial(
    traffic: &Traffic,
    flow: &TrafficObservation,
    hosts: &[HostObservation],
    parts: &[HostPart<'_>],
) -> Vec<Check> {
    let mut checks = cpu_parts(hosts, parts);
    for (host, part) in hosts.iter().zip(parts) {
        checks.push(steal::check_steal(host));
        checks.extend(cpu_covers_window(host));
        checks.extend(cpu_sources_agree(host, part.traffic_cpu));
        // Beside live traffic as much is read under each setting, and readings are rarer where they cost much.
        if traffic.facts().maker.repeats_load() {
            checks.push(check_sampling_cost(host));
        }
        checks.extend(connections::check_connections_seen(host));
        checks.extend(wall_clock(host));
        // A program may let others work for it, as a container's does, so that their work voids no trial.
        if traffic.is_of_latput() {
            checks.extend(beside::other_work(part.traffic_cpu, host));
        }
        checks.extend(check_knob_effects(host));
    }
    // Programs may speak to others too.
    if traffic.is_of_latput() {
        checks.extend(beside::other_traffic(hosts));
    }
    checks.extend(phase_lock::check_phase_lock(traffic, flow, hosts));
    let generator = hosts.iter().find(|host| host.role == Role::Generator);
    checks.extend(generator.and_then(|host| check_steady_load(traffic, host)));
    checks.extend(check_packets(traffic, flow, hosts));
    checks
}

/// The checks that also apply to simulated trials.
pub fn check_packets(
    traffic: &Traffic,
    flow: &TrafficObservation,
    hosts: &[HostObservation],
) -> Vec<Check> {
    let bundling = packets_per_transaction(traffic, flow, hosts);
    bundling.into_iter().chain(check_retransmits(traffic, flow, hosts)).collect()
}

/// Whether the CPU time of hosts that share a kernel, plus that of unused CPUs, is the machine's
/// total. Such hosts are told apart by their CPUs.
fn cpu_parts(hosts: &[HostObservation], parts: &[HostPart<'_>]) -> Vec<Check> {
    let name = "cpu-parts-add-up".to_owned();
    let mut checks = Vec::new();
    for (idx, host) in hosts.iter().enumerate() {
        let sharing: Vec<&HostObservation> = hosts
            .iter()
            .zip(parts)
            .filter(|(_, part)| part.boot_id == parts[idx].boot_id)
            .map(|(host, _)| host)
            .collect();
        let is_first = sharing.first().is_some_and(|first| first.host == host.host);
        if !is_first {
            continue;
        }
        let own_cpus: Vec<_> =
            sharing.iter().flat_map(|host| host.cpus.iter().map(|cpu| cpu.cpu)).collect();
        let mut distinct = own_cpus.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < own_cpus.len() {
            let detail = SHARED_CPUS.to_owned();
            checks.push(Check { name: name.clone(), passed: false, detail });
            continue;
        }
        // The kernel's total is in ticks, so the parts are too.
        let ticks = |host: &&HostObservation| host.cpu_by_ticks().total().as_secs_f64();
        let parts: f64 = sharing.iter().map(ticks).sum();
        let nobody =
            host.other_cpus.total().as_secs_f64() - sharing.iter().skip(1).map(ticks).sum::<f64>();
        let whole = host.machine.total().as_secs_f64();
        let slack =
            whole * PARTS_LIMIT + 2.0 * CLOCK_TICK.as_secs_f64() * (distinct.len() as f64).max(1.0);
        let unused = if nobody < 0.0 {
            format!("{:.3} s more than the machine's CPUs had", -nobody)
        } else {
            format!("unused CPUs {nobody:.3} s")
        };
        checks.push(Check {
            name: name.clone(),
            passed: (parts + nobody - whole).abs() <= slack && nobody >= -slack,
            detail: format!(
                "the CPU times add up to {:.3} s (hosts {parts:.3} s, {unused}) of the \
                 machine's {whole:.3} s",
                parts + nobody
            ),
        });
    }
    checks
}

/// Whether every knob kept its value; `drift` describes the others.
pub fn knob_drift(drift: &[String]) -> Check {
    Check {
        name: KNOB_DRIFT.to_owned(),
        passed: drift.is_empty(),
        detail: if drift.is_empty() {
            "no knob changed during the trial".to_owned()
        } else {
            drift.join("; ")
        },
    }
}

/// Whether user, system, interrupt, stolen and idle time add up to the window of each CPU. Ticks
/// can miss a part of it that depends on the setting.
fn cpu_covers_window(host: &HostObservation) -> Option<Check> {
    if host.accounting.source == CpuSource::Simulated || host.cpus.is_empty() {
        return None;
    }
    let whole = cpu_span(host);
    let miss = (host.cpu().total().as_secs_f64() - whole).abs();
    let resolution = match host.accounting.source {
        CpuSource::Ticks => 2.0 * tick_of_each_cpu(host),
        _ => 0.0,
    };
    Some(Check {
        name: "cpu-covers-window".to_owned(),
        passed: miss <= whole * SOURCES_LIMIT + resolution,
        detail: format!(
            "{}: the CPU times by {} were {:.1}% off the window",
            host.host,
            host.accounting.source.name(),
            100.0 * miss / whole.max(1e-9)
        ),
    })
}

/// Whether two precise sources of busy time agree. Also, the known threads (the traffic's and
/// NAPI's) cannot have run longer than the host was busy.
fn cpu_sources_agree(host: &HostObservation, traffic: Nanos) -> Option<Check> {
    if !matches!(host.accounting.source, CpuSource::Trace | CpuSource::Record) {
        return None;
    }
    let whole = cpu_span(host);
    let busy = host.cpu().busy().as_secs_f64();
    let threads = traffic.saturating_add(host.napi_threads_cpu.unwrap_or_default()).as_secs_f64();
    let resolution = tick_of_each_cpu(host);
    let by_idle = host.accounting.busy_by_idle.map(Nanos::as_secs_f64);
    // In a slice a tick is more than the limit, so an inexact source decides nothing.
    let by_idle = by_idle.filter(|_| resolution <= whole * SOURCES_LIMIT);
    let apart = by_idle.map_or(0.0, |idle| (busy - idle).abs() - resolution).max(threads - busy);
    let share = |seconds: f64| 100.0 * seconds / whole.max(1e-9);
    let idle_words =
        by_idle.map_or_else(String::new, |idle| format!(", {:.1}% by idle time", share(idle)));
    Some(Check {
        name: "cpu-sources-agree".to_owned(),
        passed: apart <= whole * SOURCES_LIMIT,
        detail: format!(
            "{}: the CPUs were busy {:.1}% by {}{idle_words}, {:.1}% by known threads",
            host.host,
            share(busy),
            host.accounting.source.name(),
            share(threads)
        ),
    })
}

/// The window of all of a host's CPUs together, seconds.
fn cpu_span(host: &HostObservation) -> f64 {
    host.window.as_secs_f64() * host.cpus.len() as f64
}

/// A clock tick for each CPU, seconds.
fn tick_of_each_cpu(host: &HostObservation) -> f64 {
    CLOCK_TICK.as_secs_f64() * host.cpus.len() as f64
}

fn check_sampling_cost(host: &HostObservation) -> Check {
    let [sampling, tracing] = [host.sampling_cpu, host.tracing_cpu.unwrap_or_default()]
        .map(|time| compute_share(time, host.window));
    let of_programs = if host.tracing_cpu.is_some() {
        format!(", and tracing {:.2}%", tracing * 100.0)
    } else {
        String::new()
    };
    Check {
        name: "sampling-cost".to_owned(),
        passed: sampling + tracing <= SAMPLING_LIMIT,
        detail: format!(
            "{}: sampling took {:.2}% of a CPU{of_programs}",
            host.host,
            sampling * 100.0
        ),
    }
}

/// Whether somebody set the wall clock in the window. The figures use another clock and stay valid,
/// but times of day in other programs' logs do not.
fn wall_clock(host: &HostObservation) -> Option<Check> {
    let step_s = host.wall_clock_step_ns as f64 / 1e9;
    (step_s.abs() > WALL_CLOCK_STEP_S).then(|| Check {
        name: "wall-clock-step".to_owned(),
        passed: false,
        detail: format!(
            "{}: the wall clock was set {} by {:.1} s; no figure uses it",
            host.host,
            if step_s < 0.0 { "back" } else { "forward" },
            step_s.abs()
        ),
    })
}

/// Whether a moderation knob held polls back: a device may accept a value and ignore it. No check
/// if the counts decide nothing.
fn check_knob_effects(host: &HostObservation) -> Vec<Check> {
    let Some(napi) = host.napi else { return Vec::new() };
    let seen = Seen {
        window: host.window,
        events: Events::Polls { polls: napi.polls, packets: napi.packets, empty: napi.empty_polls },
        rx_packets: host.interface.rx_packets,
        tx_packets: host.interface.tx_packets,
    };
    let decided = effect::judge(&host.state, seen).into_iter();
    let decided = decided.filter(|found| found.verdict != EffectVerdict::Undecided);
    let check = |found: effect::Judgement| {
        let passed = found.verdict == EffectVerdict::Agrees;
        let seen = if passed { "takes effect" } else { "is ignored by the device" };
        let detail = format!("{}: knob {} {seen}: {}", host.host, found.knob, found.detail);
        Check { name: "knob-without-effect".to_owned(), passed, detail }
    };
    decided.map(check).collect()
}

/// Whether the load was steady. One that grows or falls through the window is not warmed up, or has
/// not settled.
fn check_steady_load(traffic: &Traffic, host: &HostObservation) -> Option<Check> {
    let counts = &host.packets_per_interval;
    let (first, second) = counts.split_at(counts.len() / 2);
    if first.len() < STEADY_INTERVALS {
        return None;
    }
    let mean = |counts: &[u64]| {
        counts.iter().map(|&count| count as f64).sum::<f64>() / counts.len() as f64
    };
    let change = mean(second) / mean(first).max(1.0) - 1.0;
    let passed = change.abs() <= STEADY_LIMIT;
    let mut detail = format!(
        "{}: the packet rate changed by {:+.1}% in the second half of the window",
        host.host,
        change * 100.0
    );
    if !passed && change > 0.0 && traffic.facts().maker == TrafficMaker::Programs {
        detail.push_str("; if the program starts slowly, raise `warmup`");
    }
    Some(Check { name: "steady".to_owned(), passed, detail })
}

/// Whether every request and response was a packet of its own, as with `TCP_NODELAY`. If several
/// share a packet, figures per packet are void (netperf manual, "Issues in Request/Response").
fn packets_per_transaction(
    traffic: &Traffic,
    flow: &TrafficObservation,
    hosts: &[HostObservation],
) -> Option<Check> {
    let Traffic::TcpRr { request_bytes, response_bytes, nodelay: true, arrivals: None, .. } =
        traffic
    else {
        return None;
    };
    let is_one_packet = |bytes: u64| bytes <= 1000;
    let transactions = flow.transactions.filter(|count| *count > 0)?;
    if !is_one_packet(request_bytes.get()) || !is_one_packet(response_bytes.get()) {
        return None;
    }
    let mut generators: Vec<&HostObservation> =
        hosts.iter().filter(|host| host.role == Role::Generator).collect();
    if generators.is_empty() {
        generators.extend(hosts.first());
    }
    let per_transaction = |packets: fn(&HostObservation) -> u64| -> f64 {
        let of = |host: &&HostObservation| packets(host) as f64 * window_ratio(flow, host);
        generators.iter().map(of).sum::<f64>() / transactions as f64
    };
    let sent = per_transaction(|host| host.interface.tx_packets);
    let received = per_transaction(|host| host.interface.rx_packets);
    let names: Vec<&str> = generators.iter().map(|host| host.host.as_str()).collect();
    Some(Check {
        name: "packets-per-transaction".to_owned(),
        passed: sent >= 1.0 - BUNDLING_LIMIT && received >= 1.0 - BUNDLING_LIMIT,
        detail: format!(
            "{}: a transaction sent {sent:.3} packets and received {received:.3}",
            names.join(" and ")
        ),
    })
}

fn window_ratio(flow: &TrafficObservation, host: &HostObservation) -> f64 {
    flow.sender_window.as_secs_f64() / host.window.as_secs_f64().max(1e-9)
}

/// Retransmissions of the connections; for short connections those of the hosts.
fn check_retransmits(
    traffic: &Traffic,
    flow: &TrafficObservation,
    hosts: &[HostObservation],
) -> Option<Check> {
    let retransmits = if traffic.facts().connects {
        sum_counts(hosts, |host| host.tcp_retransmitted)
    } else {
        flow.retransmits?
    };
    let packets = sum_counts(hosts, |host| host.interface.tx_packets);
    let share = retransmits as f64 / (packets.max(1)) as f64;
    Some(Check {
        name: "retransmissions".to_owned(),
        passed: share <= RETRANSMIT_LIMIT,
        detail: format!(
            "TCP sent {retransmits} segments again, {:.3}% of the packets",
            share * 100.0
        ),
    })
}

/// Sums a count, saturating: a host may report any number.
fn sum_counts(hosts: &[HostObservation], count: fn(&HostObservation) -> u64) -> u64 {
    hosts.iter().map(count).fold(0, u64::saturating_add)
}

fn compute_share(part: Nanos, whole: Nanos) -> f64 {
    if whole == Nanos::ZERO { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use latput_trial::observation::{CpuObservation, CpuTime, InterfaceCounters, NapiObservation};
    use latput_units::CpuId;

    use super::*;

    #[test]
    fn clock_step_is_told_ntp_slew_is_not() {
        let mut hosts = make_lab_hosts();
        let told = |hosts: &[HostObservation]| wall_clock(&hosts[0]).map(|check| check.detail);
        hosts[0].wall_clock_step_ns = -40_000;
        assert_eq!(told(&hosts), None);
        hosts[0].wall_clock_step_ns = -3_600_000_000_000;
        assert!(
            told(&hosts).is_some_and(|it| it.starts_with("a: ") && it.contains("back by 3600.0 s"))
        );
    }

    #[test]
    fn sound_trial_passes_every_check() {
        for check in run_checks(&make_flow(), &make_lab_hosts()) {
            assert!(check.passed, "{check:?}");
        }
    }

    #[test]
    fn missing_or_double_cpu_time_is_seen() {
        let mut missing = make_lab_hosts();
        missing[0].machine.idle = missing[0].machine.idle + Nanos::from_ms(500);
        assert_only_failure("cpu-parts-add-up", &make_flow(), &missing, "of the machine's 2.500 s");
        let mut twice = make_lab_hosts();
        twice[1].cpus = twice[0].cpus.clone();
        assert_only_failure("cpu-parts-add-up", &make_flow(), &twice, SHARED_CPUS);
        let mut more_than_there_is = make_lab_hosts();
        more_than_there_is[1].accounting.ticks = more_than_there_is[1].cpus.clone();
        more_than_there_is[1].accounting.ticks[0].time.idle = Nanos::from_s(9);
        assert_only_failure(
            "cpu-parts-add-up",
            &make_flow(),
            &more_than_there_is,
            "of the machine's 2.000 s",
        );
    }

    #[test]
    fn partial_cpu_times_mark_the_trial() {
        let mut unseen = make_lab_hosts();
        unseen[1].cpus[0].time.idle = Nanos::from_ms(700);
        for host in &mut unseen {
            host.machine = make_lab_hosts()[1].machine;
            host.accounting.ticks = make_lab_hosts()[1].cpus.clone();
        }
        unseen[0].accounting.ticks[0].cpu = CpuId(0);
        assert_only_failure(
            "cpu-covers-window",
            &make_flow(),
            &unseen,
            "b: the CPU times by ticks were 15.0% off",
        );
        let traced = |busy_by_idle_ms, napi_ms| {
            let mut hosts = make_lab_hosts();
            hosts[1].accounting.source = CpuSource::Trace;
            hosts[1].accounting.busy_by_idle = Some(Nanos::from_ms(busy_by_idle_ms));
            hosts[1].napi_threads_cpu = Some(Nanos::from_ms(napi_ms));
            hosts
        };
        let agrees =
            |hosts: &[HostObservation]| run_checks(&make_flow(), hosts).iter().all(|c| c.passed);
        assert!(agrees(&traced(150, 20)) && agrees(&traced(185, 20)), "a tick is no difference");
        assert_only_failure(
            "cpu-sources-agree",
            &make_flow(),
            &traced(195, 20),
            "b: the CPUs were busy 15.0% by trace",
        );
        assert_only_failure(
            "cpu-sources-agree",
            &make_flow(),
            &traced(150, 90),
            "19.0% by known threads",
        );
    }

    #[test]
    fn separate_kernels_are_checked_separately() {
        let mut hosts = make_lab_hosts();
        // Each machine has two CPUs of which one is the host's: nothing of the other host is in it.
        hosts[1].machine = hosts[0].machine;
        let names = of_trial(&make_traffic(), &make_flow(), &hosts, &make_parts(["one", "two"]));
        let parts: Vec<_> = names.iter().filter(|c| c.name == "cpu-parts-add-up").collect();
        assert!(parts.len() == 2 && parts.iter().all(|check| check.passed), "{parts:?}");
    }

    #[test]
    fn what_spoils_a_trial_marks_it() {
        let mut stolen = make_lab_hosts();
        stolen[1].cpus[0].time.steal = Nanos::from_ms(100);
        stolen[1].cpus[0].time.idle = Nanos::from_ms(750);
        assert_only_failure("steal", &make_flow(), &stolen, "b: the hypervisor took 10.0%");
        let mut costly = make_lab_hosts();
        costly[0].sampling_cpu = Nanos::from_ms(6);
        assert_only_failure("sampling-cost", &make_flow(), &costly, "a: sampling took 0.60%");
        let mut traced = make_lab_hosts();
        traced[1].tracing_cpu = Some(Nanos::from_ms(6));
        assert_only_failure("sampling-cost", &make_flow(), &traced, "of a CPU, and tracing 0.60%");
        let mut busy = make_lab_hosts();
        busy[0].cpus[0].time.user = Nanos::from_ms(420);
        busy[0].cpus[0].time.idle = Nanos::from_ms(480);
        assert_only_failure(
            "other-work",
            &make_flow(),
            &busy,
            "a: other programs used 40% of a CPU",
        );
        let mut growing = make_lab_hosts();
        growing[0].packets_per_interval = vec![10, 10, 10, 10, 20, 20, 20, 20];
        assert_only_failure("steady", &make_flow(), &growing, "+100.0%");
        let of_program = check_steady_load(&Traffic::Command, &growing[0]).unwrap().detail;
        assert!(of_program.ends_with("raise `warmup`"), "{of_program}");
    }

    #[test]
    fn timer_that_holds_nothing_back_marks_the_trial() {
        let deferred = |polls| {
            let mut hosts = make_lab_hosts();
            for (knob, value) in ["gro-flush-timeout=300us", "napi-defer-hard-irqs=100"]
                .map(|text| latput_knobs::parse_assignment(text).unwrap())
            {
                hosts[1].state.0.insert((knob, latput_knobs::Place::Device), value);
            }
            hosts[1].interface.rx_packets = 50_000;
            hosts[1].napi = Some(NapiObservation { polls, packets: 50_000, empty_polls: 0 });
            hosts
        };
        let of_effect = |hosts: &[HostObservation]| {
            run_checks(&make_flow(), hosts)
                .into_iter()
                .find(|check| check.name == "knob-without-effect")
        };
        assert!(of_effect(&deferred(2_000)).unwrap().passed);
        assert_only_failure(
            "knob-without-effect",
            &make_flow(),
            &deferred(40_000),
            "b: knob gro-flush-timeout is ignored",
        );
        assert_eq!(of_effect(&make_lab_hosts()), None, "nothing is asked for");
        let mut beside_others = deferred(40_000);
        beside_others[1].napi.as_mut().unwrap().empty_polls = 37_000;
        assert_eq!(of_effect(&beside_others), None, "other interfaces may poll in vain");
    }

    #[test]
    fn shared_packets_and_retransmits_are_seen() {
        let mut bundled = make_lab_hosts();
        bundled[0].interface.tx_packets = 600;
        assert_only_failure(
            "packets-per-transaction",
            &make_flow(),
            &bundled,
            "sent 0.600 packets and received 1.000",
        );
        let again = TrafficObservation { retransmits: Some(30), ..make_flow() };
        assert_only_failure(
            "retransmissions",
            &again,
            &make_lab_hosts(),
            "TCP sent 30 segments again, 1.500%",
        );
    }

    /// Exactly the check `name` fails, and says `detail`.
    #[track_caller]
    fn assert_only_failure(
        name: &str,
        flow: &TrafficObservation,
        hosts: &[HostObservation],
        detail: &str,
    ) {
        let all = run_checks(flow, hosts);
        let failed: Vec<&Check> = all.iter().filter(|check| !check.passed).collect();
        assert!(!failed.is_empty(), "nothing failed: {all:#?}");
        for check in failed {
            assert!(check.name == name && check.detail.contains(detail), "{check:?}");
        }
    }

    fn run_checks(flow: &TrafficObservation, hosts: &[HostObservation]) -> Vec<Check> {
        of_trial(&make_traffic(), flow, hosts, &make_parts(["boot", "boot"]))
    }

    fn make_parts(boot_ids: [&str; 2]) -> [HostPart<'_>; 2] {
        boot_ids.map(|boot_id| HostPart { boot_id, traffic_cpu: Nanos::from_ms(100) })
    }

    const fn make_traffic() -> Traffic {
        Traffic::tcp_rr(0)
    }

    fn make_flow() -> TrafficObservation {
        TrafficObservation {
            sender_window: Nanos::from_s(1),
            receiver_window: Nanos::from_s(1),
            transactions: Some(1000),
            retransmits: Some(0),
            sender_cpu: Nanos::from_ms(100),
            receiver_cpu: Nanos::from_ms(100),
            ..TrafficObservation::default()
        }
    }

    /// Two hosts on a machine of two CPUs, a second long.
    fn make_lab_hosts() -> Vec<HostObservation> {
        let time = CpuTime {
            user: Nanos::from_ms(50),
            system: Nanos::from_ms(100),
            idle: Nanos::from_ms(850),
            ..CpuTime::default()
        };
        let host = |name: &str, role, cpu| HostObservation {
            host: name.to_owned(),
            role,
            window: Nanos::from_s(1),
            cpus: vec![CpuObservation { cpu: CpuId(cpu), time }],
            other_cpus: time,
            machine: time + time,
            napi_threads_cpu: Some(Nanos::from_ms(20)),
            interface: InterfaceCounters {
                tx_packets: 1000,
                rx_packets: 1000,
                ..InterfaceCounters::default()
            },
            packets_per_interval: vec![10; 9],
            ..HostObservation::default()
        };
        vec![host("a", Role::Generator, 0), host("b", Role::Sut, 1)]
    }
}
