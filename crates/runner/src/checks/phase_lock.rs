//! Checks whether a closed loop ran in phase with a moderation timer. Then the timer sets its rate,
//! and the rate tells nothing of the host.
//!
//! A request that waits for a timer is answered just after it fires, so the next one waits for the
//! whole next interval, and so on: a fixed 125 us throttle gives exactly 8000 transactions a second
//! on any host (Evan Jones, "Ethernet latency").

use latput_knobs::{Knob, Value};
use latput_trial::observation::{HostObservation, TrafficObservation};
use latput_trial::{Check, Traffic};
use latput_units::Nanos;

/// Knobs that are a timer's interval, by name: which of them exist depends on the driver.
const TIMERS: &[&str] = &["gro-flush-timeout", "rx-usecs"];
/// Most relative distance of the rate from the timer's in phase.
const CLOSE: f64 = 0.005;
/// Most intervals in a round trip; beyond, every round trip is close to a multiple.
const MOST_INTERVALS: u32 = 8;
/// In phase, half of the round trips differ by no more than this share.
const ALIKE: f64 = 0.1;

/// `None` without a timer, or for an open loop, which cannot be in phase with it and is the remedy.
pub(super) fn check_phase_lock(
    traffic: &Traffic,
    flow: &TrafficObservation,
    hosts: &[HostObservation],
) -> Option<Check> {
    let round_trip = round_trip(traffic, flow)?;
    let timers = find_timers(hosts);
    if timers.is_empty() {
        return None;
    }
    let mean = format!("{:.1} us", round_trip.as_us_f64());
    let locked = timers.iter().find_map(|(host, knob, interval)| {
        let intervals = intervals_in(round_trip, *interval)?;
        is_alike(flow).then(|| format!("{host}: the mean round trip of {mean} is {intervals} x {} ({interval}); two timers may be in phase: repeat with an open loop (`rate_per_s`)", knob.name()))
    });
    let detail = locked.clone().unwrap_or_else(|| {
        format!("the mean round trip of {mean} is no multiple of a moderation interval")
    });
    Some(Check { name: "timer-phase-lock".to_owned(), passed: locked.is_none(), detail })
}

/// Mean round trip of a closed loop by Little's law: requests in flight over the rate.
fn round_trip(traffic: &Traffic, flow: &TrafficObservation) -> Option<Nanos> {
    let (Traffic::TcpRr { burst, connections, arrivals: None, .. }
    | Traffic::UdpRr { burst, connections, arrivals: None, .. }) = *traffic
    else {
        return None;
    };
    let in_flight = (f64::from(burst) + 1.0) * f64::from(connections);
    let transactions = flow.transactions.filter(|count| *count > 0)? as f64;
    Some(Nanos::from_secs_f64(flow.sender_window.as_secs_f64() * in_flight / transactions))
}

/// The distinct timer intervals on the hosts.
fn find_timers(hosts: &[HostObservation]) -> Vec<(&str, Knob, Nanos)> {
    let mut timers: Vec<(&str, Knob, Nanos)> = Vec::new();
    for host in hosts {
        for ((knob, _), value) in &host.state.0 {
            let Value::Time(interval) = value else { continue };
            let is_new = !timers.iter().any(|(_, one, other)| one == knob && other == interval);
            if TIMERS.contains(&knob.name()) && *interval > Nanos::ZERO && is_new {
                timers.push((&host.host, *knob, *interval));
            }
        }
    }
    timers
}

/// The number of intervals in a round trip, if it is close to a whole number.
fn intervals_in(round_trip: Nanos, interval: Nanos) -> Option<u32> {
    let round_trip = round_trip.as_secs_f64();
    (1..=MOST_INTERVALS).find(|&count| {
        let expected = f64::from(count) * interval.as_secs_f64();
        (round_trip / expected - 1.0).abs() <= CLOSE
    })
}

/// Whether the middle half of the round trips is narrow; true if they are unknown.
fn is_alike(flow: &TrafficObservation) -> bool {
    let Some(latency) = &flow.latency else { return true };
    let quantile = |share| latency.quantile(share).map(Nanos::as_secs_f64);
    match (quantile(0.25), quantile(0.5), quantile(0.75)) {
        (Some(low), Some(middle), Some(high)) => high - low <= ALIKE * middle,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use latput_knobs::{Place, State};
    use latput_stats::Histogram;
    use latput_trial::{Arrivals, Distribution};

    use super::*;

    const RR: Traffic = Traffic::tcp_rr(0);

    #[test]
    fn only_rates_at_timers_are_marked() {
        // 125 us: 8000 a second, 4000 at two intervals, 1000 at eight.
        check_locked(RR, 125, 8000, Some("1 x gro-flush-timeout (125us)"));
        check_locked(RR, 125, 7965, Some("1 x"));
        check_locked(RR, 125, 7900, None);
        check_locked(RR, 125, 4000, Some("2 x"));
        check_locked(RR, 125, 1000, Some("8 x"));
        check_locked(RR, 125, 5000, None);
        check_locked(RR, 125, 80_000, None);
        // Seventeen in flight are answered together.
        check_locked(Traffic::tcp_rr(16), 125, 136_000, Some("1 x"));
    }

    #[test]
    fn open_loop_has_no_phase_check() {
        assert_eq!(check_phase_lock(&RR, &make_flow(8000, 0), &[]), None);
        assert_eq!(check_phase_lock(&RR, &make_flow(8000, 0), &[make_host(0)]), None);
        let arrivals = Some(Arrivals { rate_per_s: 8000, gaps: Distribution::Fixed });
        let Traffic::TcpRr { request_bytes, response_bytes, .. } = RR else { unreachable!() };
        let open = Traffic::TcpRr {
            request_bytes,
            response_bytes,
            burst: 0,
            connections: 1,
            threads: 1,
            nodelay: true,
            arrivals,
        };
        assert_eq!(check_phase_lock(&open, &make_flow(8000, 0), &[make_host(125)]), None);
    }

    #[test]
    fn varied_round_trips_are_not_in_step() {
        let check = check_phase_lock(&RR, &make_flow(8000, 40), &[make_host(125)]).unwrap();
        assert!(check.passed, "{check:?}");
    }

    #[track_caller]
    fn check_locked(traffic: Traffic, timer_us: u64, per_s: u64, expected: Option<&str>) {
        let check =
            check_phase_lock(&traffic, &make_flow(per_s, 0), &[make_host(timer_us)]).unwrap();
        assert_eq!(check.passed, expected.is_none(), "{check:?}");
        assert!(check.detail.contains(expected.unwrap_or("no multiple")), "{check:?}");
    }

    /// Round trips around 125 us, `spread_us` apart.
    fn make_flow(per_s: u64, spread_us: u64) -> TrafficObservation {
        let mut latency = Histogram::new();
        for round_trip in [125 - spread_us / 2, 125 + spread_us / 2] {
            latency.record_n(Nanos::from_us(round_trip), 100);
        }
        TrafficObservation {
            sender_window: Nanos::from_s(1),
            transactions: Some(per_s),
            latency: Some(latency),
            ..TrafficObservation::default()
        }
    }

    fn make_host(timer_us: u64) -> HostObservation {
        let timer = ((Knob::GroFlushTimeout, Place::Device), Value::Time(Nanos::from_us(timer_us)));
        HostObservation {
            host: "b".to_owned(),
            state: State(BTreeMap::from([timer])),
            ..HostObservation::default()
        }
    }
}
