//! An agent's facts of its host before it is opened.

use std::net::IpAddr;
use std::time::Duration;

use latput_knobs::Capability as KnobCapability;
use latput_linux::route::Route;
use latput_linux::{Capability, LinuxKernel, Namespace, interfaces, process};
use latput_protocol::control::{Failure, InspectRequest, SCHEMA, clock_id, make_failure};
use latput_protocol::host_view::{HostView, KnobsView, RouteView};
use latput_protocol::text::format_error_chain;

use crate::brought;

/// How long a host is watched to say how busy it is.
const WATCH: Duration = Duration::from_millis(300);
/// More addresses than any honest controller asks about.
const TOWARD_MOST: usize = 1000;

/// Looks at the host that this process is on.
pub(super) fn inspect_host(look: &InspectRequest) -> Result<HostView, Failure> {
    if look.toward.len() > TOWARD_MOST {
        return Err(make_failure(format!(
            "routes to more than {TOWARD_MOST} addresses are not looked up"
        )));
    }
    build_host_view(look).map_err(|error| make_failure(format_error_chain(&error)))
}

fn build_host_view(look: &InspectRequest) -> Result<HostView, latput_linux::Error> {
    let boot_id = process::boot_id()?;
    let route = Route::open()?;
    let (mut knobs, mut busy_ratio) = (None, None);
    if let Some(interface) = &look.interface {
        knobs = Some(knobs_of(interface)?);
        busy_ratio = interfaces::busy_ratio(|| std::thread::sleep(WATCH));
    }
    Ok(HostView {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        is_brought: brought::is_brought(),
        namespace: format!("{boot_id} {}", Namespace::current()?.inode()?),
        clock: clock_id(&boot_id),
        kernel: latput_linux::facts::kernel_release(),
        cpus: process::allowed_cpus()?,
        missing: list_missing_capabilities(),
        interfaces: interfaces::collect()?,
        ways: look.toward.iter().map(|&to| find_route(&route, to)).collect(),
        knobs,
        busy_ratio,
    })
}

fn find_route(route: &Route, to: IpAddr) -> RouteView {
    let none = RouteView { to, interface: None, source: None, is_local: false, is_direct: false };
    // Whatever the kernel says against it: there is no way.
    route.toward(to).map_or(none, |way| RouteView {
        to,
        interface: Some(way.interface),
        source: way.source,
        is_local: way.is_local,
        is_direct: way.is_direct,
    })
}

fn knobs_of(interface: &str) -> Result<KnobsView, latput_linux::Error> {
    let surveyed = LinuxKernel::open()?.survey(interface);
    let here = surveyed.iter().filter(|knob| !knob.is_absent());
    let (settable, fixed): (Vec<_>, Vec<_>) =
        here.partition(|knob| matches!(knob.capability, KnobCapability::Settable(_)));
    Ok(KnobsView {
        settable: settable.iter().map(|knob| knob.knob.name().to_owned()).collect(),
        read_only_count: u32::try_from(fixed.len()).unwrap_or(u32::MAX),
    })
}

/// The capabilities that this process has not, and what that hinders.
fn list_missing_capabilities() -> Vec<String> {
    let hindered = [
        (Capability::NetAdmin, "no knob can be set"),
        (
            Capability::NetRaw,
            "probes and pings cannot be sent unless net.ipv4.ping_group_range allows it",
        ),
        (Capability::Bpf, "CPU time is counted in steps of 10 ms, and NAPI polls are not counted"),
    ];
    let missing = hindered.into_iter().filter(|(capability, _)| !capability.is_effective());
    missing
        .map(|(capability, hinders)| {
            let name = capability.name();
            let verb = if name.contains(" and ") { "are" } else { "is" };
            format!("{name} {verb} missing: {hinders}")
        })
        .collect()
}
