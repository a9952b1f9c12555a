//! Checks on what goes on beside a trial and changes what it measures.

use latput_trial::Check;
use latput_trial::check::{ON_SCHEDULE, OTHER_TRAFFIC, OTHER_WORK, THROTTLED};
use latput_trial::observation::{HostObservation, InterfaceCounters, Role};
use latput_units::Nanos;
use latput_units::text::format_cpu_share;

/// Most CPU time of other work, as a share of a CPU. A loop that takes a sixth has turned an answer round; a quiet host has
/// some 0.01 (docs/adr/019-fit-trials.md).
pub(super) const OTHER_WORK_LIMIT: f64 = 0.125;
/// Most packets and bytes that one end counts beyond what the others do, as a share: counters are read up to 2% apart.
const OTHER_TRAFFIC_LIMIT: f64 = 0.2;
/// Packets a second that are no traffic: a control connection and the network's own.
const PACKETS_PER_S_AT_REST: f64 = 100.0;
/// Most difference of a window from its planned length, as a share.
const LATE_LIMIT: f64 = 0.1;

/// Whether other processes ran on the host's CPUs. Where they are not seen, what is left of the process time without the
/// traffic's threads and the NAPI threads stands for them, and can be too small: those threads' clocks run in interrupts too.
pub(super) fn other_work(traffic: Nanos, host: &HostObservation) -> Option<Check> {
    if host.role == Role::Observer {
        return None; // its probe's thread is not accounted for
    }
    let others = host.other_work_cpu.unwrap_or_else(|| {
        let time = host.cpu();
        let ours = [host.napi_threads_cpu.unwrap_or_default(), host.sampling_cpu];
        let ours = ours.into_iter().fold(traffic, Nanos::saturating_add);
        time.user.saturating_add(time.system).saturating_sub(ours)
    });
    let share = super::compute_share(others, host.window);
    Some(Check {
        name: OTHER_WORK.to_owned(),
        passed: share <= OTHER_WORK_LIMIT,
        detail: format!("{}: other programs used {}", host.host, format_cpu_share(share)),
    })
}

/// Whether the interface of the system under test carried what the other ends sent and got, and no more. `None` where one
/// end is not known.
pub(super) fn other_traffic(hosts: &[HostObservation]) -> Option<Check> {
    let sut = hosts.iter().find(|host| host.role == Role::Sut)?;
    let others: Vec<&HostObservation> =
        hosts.iter().filter(|host| host.role != Role::Sut).collect();
    if others.is_empty() {
        return None;
    }
    let all = |count: fn(&InterfaceCounters) -> u64| {
        others.iter().map(|host| count(&host.interface) as f64).sum::<f64>()
    };
    let own = &sut.interface;
    let ways = [
        (
            "in",
            own.rx_packets as f64,
            all(|it| it.tx_packets),
            own.rx_bytes as f64,
            all(|it| it.tx_bytes),
        ),
        (
            "out",
            own.tx_packets as f64,
            all(|it| it.rx_packets),
            own.tx_bytes as f64,
            all(|it| it.rx_bytes),
        ),
    ];
    let at_rest = PACKETS_PER_S_AT_REST * sut.window.as_secs_f64();
    // Offloads count large packets or small ones, so that only both counts together tell of other traffic.
    let found = ways.into_iter().find(|(_, packets, known, bytes, known_bytes)| {
        let is_more = |own: f64, known: f64| own - known > OTHER_TRAFFIC_LIMIT * own.max(known);
        packets - known > at_rest && is_more(*packets, *known) && is_more(*bytes, *known_bytes)
    });
    let detail = match found {
        Some((way, packets, known, ..)) => {
            format!("{}: the trial made {known:.0} of the {packets:.0} packets {way}", sut.host)
        }
        None => format!("{}: no packets beside the trial's", sut.host),
    };
    Some(Check { name: OTHER_TRAFFIC.to_owned(), passed: found.is_none(), detail })
}

/// Whether nothing held the hosts back; `held_back` describes what did.
pub fn check_throttling(held_back: &[String]) -> Check {
    Check {
        name: THROTTLED.to_owned(),
        passed: held_back.is_empty(),
        detail: if held_back.is_empty() {
            "no quota and no heat held the hosts back".to_owned()
        } else {
            held_back.join("; ")
        },
    }
}

/// Whether each host's window is as long as it was planned: an agent that was held up began or ended it late.
pub fn on_schedule(hosts: &[HostObservation], planned: Nanos) -> Option<Check> {
    let away = |host: &HostObservation| {
        (host.window.as_secs_f64() / planned.as_secs_f64().max(f64::EPSILON) - 1.0).abs()
    };
    let worst = hosts.iter().max_by(|a, b| away(a).total_cmp(&away(b)))?;
    Some(Check {
        name: ON_SCHEDULE.to_owned(),
        passed: away(worst) <= LATE_LIMIT,
        detail: format!(
            "{}: the window took {:.1} ms instead of {:.1} ms",
            worst.host,
            worst.window.as_ms_f64(),
            planned.as_ms_f64()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_host(role: Role, (rx, tx): (u64, u64)) -> HostObservation {
        let interface = InterfaceCounters {
            rx_packets: rx,
            rx_bytes: 100 * rx,
            tx_packets: tx,
            tx_bytes: 100 * tx,
            ..InterfaceCounters::default()
        };
        HostObservation { role, window: Nanos::from_s(1), interface, ..HostObservation::default() }
    }

    #[test]
    fn processes_are_counted_where_they_are_seen() {
        let share = |other_work_cpu: Option<u64>| {
            let mut seen = make_host(Role::Sut, (0, 0));
            seen.other_work_cpu = other_work_cpu.map(Nanos::from_ms);
            other_work(Nanos::ZERO, &seen).unwrap()
        };
        assert!(share(Some(124)).passed && share(None).passed);
        let failed = share(Some(167));
        assert!(!failed.passed && failed.detail.contains("16.7% of a CPU"), "{failed:?}");
        assert_eq!(other_work(Nanos::ZERO, &make_host(Role::Observer, (0, 0))), None);
    }

    #[test]
    fn unsent_packets_are_other_traffic() {
        let check = |sut, ends: &[(u64, u64)]| {
            let ends = ends.iter().map(|counts| make_host(Role::Generator, *counts));
            let hosts: Vec<_> = [make_host(Role::Sut, sut)].into_iter().chain(ends).collect();
            other_traffic(&hosts)
        };
        let passed = |sut, ends: &[(u64, u64)]| check(sut, ends).unwrap().passed;
        assert!(passed((1000, 1000), &[(1000, 1000)]));
        assert!(passed((1000, 1000), &[(400, 500), (600, 500)]), "two ends");
        assert!(!passed((1500, 1000), &[(1000, 1000)]) && !passed((1000, 1500), &[(1000, 1000)]));
        assert!(passed((90, 1000), &[(1000, 0)]), "the network's own");
        assert!(passed((1000, 1000), &[(5000, 5000)]), "what another host sends elsewhere");
        assert_eq!(check((1000, 0), &[]), None);
    }

    #[test]
    fn packets_of_an_offload_are_no_other_traffic() {
        let mut sut = make_host(Role::Sut, (40_000, 1000));
        sut.interface.rx_bytes = 60_000_000;
        let mut sender = make_host(Role::Generator, (1000, 1000));
        sender.interface.tx_bytes = 58_000_000;
        assert!(other_traffic(&[sut, sender]).unwrap().passed);
    }

    #[test]
    fn window_with_delayed_end_is_seen() {
        let hosts = [make_host(Role::Sut, (0, 0)), make_host(Role::Generator, (0, 0))];
        assert!(on_schedule(&hosts, Nanos::from_ms(1050)).unwrap().passed);
        assert!(!on_schedule(&hosts, Nanos::from_ms(800)).unwrap().passed);
        assert!(!check_throttling(&["a: quota".to_owned()]).passed && check_throttling(&[]).passed);
    }
}
