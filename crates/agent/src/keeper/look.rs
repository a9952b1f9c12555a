//! A keeper's looks at its host: the facts that an agent asks for before it opens it, and the texts that a diagnosis reads.

use std::net::IpAddr;
use std::time::Duration;

use latput_knobs::Capability as KnobCapability;
use latput_linux::look::{LookTexts, read_look};
use latput_linux::route::Route;
use latput_linux::{Capability, LinuxKernel, Namespace, interfaces, process};
use latput_protocol::control::{
    Answer, Failure, InspectRequest, MAX_LINE_BYTES, SCHEMA, clock_id, make_failure,
};
use latput_protocol::host_view::{HostView, KnobsView, RouteView};
use latput_protocol::text::format_error_chain;

use crate::brought;

/// How long a host is watched to say how busy it is.
const WATCH: Duration = Duration::from_millis(300);
/// More addresses than any honest controller asks about.
const TOWARD_MOST: usize = 1000;
/// Most bytes of all texts together. In JSON a line's end has two bytes, so that the message is longer.
const MOST_BYTES: usize = MAX_LINE_BYTES / 4 * 3;

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

/// Looks at this host and one of its interfaces.
pub(super) fn record_look(interface: &str) -> Result<Answer, Failure> {
    let links = Route::open().and_then(|route| route.links());
    let links = links.map_err(|error| make_failure(format_error_chain(&error)))?;
    // A name that no interface has could be a path to files that are nobody else's business.
    if !links.iter().any(|link| link.name == interface) {
        return Err(make_failure(format!("there is no interface `{interface}`")));
    }
    let at = latput_load::now();
    let mut texts = read_look(interface);
    fit(&mut texts, MOST_BYTES);
    Ok(Answer::Recorded { at, texts })
}

/// Leaves out the largest texts until the others fit. What is missing counts as not seen.
fn fit(texts: &mut LookTexts, most: usize) {
    let size = |texts: &LookTexts| {
        let of = |(name, text): (&String, &String)| {
            name.len() + text.len() + text.bytes().filter(|byte| b"\n\t\"\\".contains(byte)).count()
        };
        texts.iter().map(of).sum::<usize>()
    };
    while size(texts) > most {
        let largest = texts.iter().max_by_key(|(_, text)| text.len());
        let Some(name) = largest.map(|(name, _)| name.clone()) else { return };
        texts.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_text_is_left_out_first() {
        let mut texts: LookTexts = [("a", 500), ("b", 90), ("c", 40)]
            .map(|(name, length)| (name.to_owned(), "\n".repeat(length)))
            .into();
        fit(&mut texts, 300);
        assert_eq!(texts.keys().collect::<Vec<_>>(), ["b", "c"]);
        fit(&mut texts, 300);
        assert_eq!(texts.len(), 2);
    }

    #[test]
    fn interface_must_exist() {
        let refused = record_look("no-such-nic0").unwrap_err();
        assert!(refused.message.contains("no-such-nic0"), "{refused:?}");
        let Ok(Answer::Recorded { texts, .. }) = record_look("lo") else { panic!("no look") };
        assert!(texts.contains_key("sys/class/net/lo/statistics/rx_packets"));
    }
}
