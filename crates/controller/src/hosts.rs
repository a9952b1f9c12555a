//! Checks the hosts of a testbed before anything is measured: whether each is reached, and whether it has what the
//! testbed says.

use std::net::IpAddr;

use latput_load::Stop;
use latput_protocol::host_view::HostView;
use latput_reach::Error as ReachError;
use latput_reach::host_spec::HostSpec;
use latput_runner::Error;
use latput_trial::observation::Role;

use crate::agent_pool::HostInspector;
use crate::clock::{format_duration, format_offset};

/// A host with more of its CPUs' time in use measures its other work too.
const BUSY_RATIO_MOST: f64 = 0.1;

/// A host of a testbed, and what was found there.
#[derive(Debug)]
pub struct HostCheck {
    /// As the testbed has it.
    pub spec: HostSpec,
    /// Findings, or why the host is of no use.
    pub found: Result<HostFound, Error>,
}

/// Findings about a host.
#[derive(Clone, Debug)]
pub struct HostFound {
    /// As its agent sees it, with its way to the system under test (of that: to the first other host).
    pub view: HostView,
    /// Its clock against this host's, in words.
    pub clock: String,
    /// Conditions that may spoil the figures, in sentences.
    pub warnings: Vec<String>,
}

/// Looks at every host, also where others fail. All agents start at the same time.
pub fn check_hosts(hosts: &[HostSpec], stop: &Stop) -> Vec<HostCheck> {
    let scouts: Vec<_> = hosts.iter().map(|host| (host, HostInspector::start(host))).collect();
    let checks = scouts.into_iter().map(|(host, scout)| {
        let peers: Vec<IpAddr> = find_peers(hosts, host).map(|peer| peer.address).collect();
        let found = scout.and_then(|mut scout| check_host(&mut scout, host, &peers, stop));
        HostCheck { spec: host.clone(), found }
    });
    let mut checks: Vec<HostCheck> = checks.collect();
    compare_mtu(&mut checks);
    checks
}

/// The hosts that a host exchanges traffic with.
fn find_peers<'a>(hosts: &'a [HostSpec], host: &HostSpec) -> impl Iterator<Item = &'a HostSpec> {
    let is_sut = host.role == Role::Sut;
    hosts.iter().filter(move |other| (other.role == Role::Sut) != is_sut)
}

fn check_host(
    scout: &mut HostInspector,
    host: &HostSpec,
    peers: &[IpAddr],
    stop: &Stop,
) -> Result<HostFound, Error> {
    let interface = host.interface.as_str();
    let view = scout.inspect_host(peers, Some(interface), stop)?;
    let clock = scout.measure_clock_offset(stop)?;
    let clock = format!(
        "{} ± {} (round trip {})",
        format_offset(clock.offset_ns),
        format_duration(clock.uncertainty),
        format_duration(clock.round_trip)
    );
    let mut warnings = Vec::new();
    match view.find_interface(interface) {
        None if host.address.is_loopback() => {}
        None => {
            let names: Vec<&str> =
                view.interfaces.iter().map(|found| found.name.as_str()).collect();
            return Err(ReachError::Agent {
                host: host.name.clone(),
                problem: format!(
                    "there is no interface {interface}; the interfaces are {}",
                    names.join(", ")
                ),
                permission: false,
            }
            .into());
        }
        Some(found) => {
            if !found.is_up {
                warnings.push(format!("{interface} is down or has no carrier"));
            }
            if !found.addresses.contains(&host.address) {
                warnings.push(format!("{interface} does not have the address {}", host.address));
            }
            warnings.extend(found.describe_stacking());
        }
    }
    for way in view.ways.iter().filter(|way| !way.is_local) {
        match &way.interface {
            None => warnings.push(format!("no route leads to {}", way.to)),
            Some(leaves) if leaves != interface => {
                warnings
                    .push(format!("packets to {} leave through {leaves}, not {interface}", way.to));
            }
            Some(_) => {}
        }
    }
    if view.busy_ratio.is_some_and(|busy| busy > BUSY_RATIO_MOST) {
        warnings.push("its CPUs are busy with other work, which is measured too".to_owned());
    }
    warnings.extend(view.missing.iter().cloned());
    Ok(HostFound { view, clock, warnings })
}

/// The system under test's MTU must be that of the others.
fn compare_mtu(checks: &mut [HostCheck]) {
    let mtu = |check: &HostCheck| {
        let found = check.found.as_ref().ok()?;
        found.view.find_interface(&check.spec.interface).map(|interface| interface.mtu)
    };
    let sut = checks.iter().find(|check| check.spec.role == Role::Sut);
    let Some((name, expected)) = sut.and_then(|sut| Some((sut.spec.name.clone(), mtu(sut)?)))
    else {
        return;
    };
    for check in checks {
        if let Some(own) = mtu(check)
            && own != expected
            && let Ok(found) = &mut check.found
        {
            found.warnings.push(format!(
                "its MTU is {} and that of {name} {}: give both the same",
                own.get(),
                expected.get()
            ));
        }
    }
}
