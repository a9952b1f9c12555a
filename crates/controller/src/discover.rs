//! Two hosts in two words: asks both ends what they have, chooses the interfaces between them, and says why.

mod pair;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use latput_linux::interfaces::Interface;
use latput_load::Stop;
use latput_protocol::host_view::HostView;
use latput_reach::Error as ReachError;
use latput_reach::host_spec::{HostSpec, own_program};
use latput_reach::target::{InterfaceSelector, ReachMethod, Target};
use latput_runner::Error;
use latput_trial::observation::Role;
use latput_units::CpuSet;

use self::pair::{HostEnd, InterfacePair, PairingError, choose_pair};
use crate::agent_pool::HostInspector;
use crate::shared_cpus;

/// Two hosts, and what was found between them.
#[derive(Clone, Debug)]
pub struct DiscoveredHosts {
    /// The words that they were named by.
    pub name: String,
    /// The system under test and the generator.
    pub hosts: [HostSpec; 2],
    /// Choices and their reasons, in sentences.
    pub said: Vec<String>,
    /// Conditions that may spoil the figures, and lacks, in sentences.
    pub warnings: Vec<String>,
    /// The same hosts as a testbed file.
    pub file: String,
    /// Identity of each host's network namespace.
    pub namespaces: [String; 2],
}

const ROLES: [Role; 2] = [Role::Sut, Role::Generator];

/// Finds the interfaces between the system under test and the generator. `bring` is the latput to take along
/// where it is missing; without it this program.
pub fn discover_hosts(
    targets: [&Target; 2],
    bring: Option<&Path>,
    stop: &Stop,
) -> Result<DiscoveredHosts, Error> {
    let names = name_hosts(targets);
    let own = own_program();
    let specs = [0, 1].map(|end| {
        let reach = targets[end].via_command(&own, bring);
        let spec = HostSpec::from_launch_command(&names[end], ROLES[end], reach);
        HostSpec { may_be_brought: targets[end].is_elsewhere(), ..spec }
    });
    let views = inspect_hosts(&specs, stop)?;
    let between = format!("{} and {}", targets[0], targets[1]);
    if views[0].namespace == views[1].namespace {
        return Err(ReachError::Target {
            target: between,
            problem:
                "both are the same host and network namespace. Name two, or measure `loopback`"
                    .to_owned(),
        }
        .into());
    }
    let ends = [0, 1].map(|end| HostEnd {
        name: &names[end],
        view: &views[end],
        at: targets[end].at.as_ref(),
    });
    let (pair, others) =
        choose_pair(ends).map_err(|unclear| explain_pairing_error(unclear, targets, between))?;
    let cpus = assign_cpus(targets, &views)?;
    let hosts = [0, 1].map(|end| {
        let (interface, address) = pair.ends[end].clone();
        HostSpec { interface, address, cpus: cpus[end].clone(), ..specs[end].clone() }
    });
    let (mut said, mut warnings) =
        (describe_choice(&ends, &pair, &others), collect_warnings(&ends, &pair, targets));
    if let [Some(sut), Some(generator)] = &cpus
        && views[0].shares_kernel_with(&views[1])
    {
        let [first, second] = &names;
        said.push(format!("both are on one machine: {first} has CPUs {sut}, {second} {generator}"));
        warnings.extend(shared_cpus::note_shared_cpus([sut, generator]));
    }
    Ok(DiscoveredHosts {
        name: format!("{},{}", targets[0], targets[1]),
        said,
        warnings,
        file: render_testbed_file(targets, &hosts, bring),
        namespaces: [0, 1].map(|end| views[end].namespace.clone()),
        hosts,
    })
}

/// One host with live traffic, and the interface that is meant. `bring` is the latput to take along where it is missing.
///
/// # Errors
///
/// The host cannot be reached, or it is not clear which of its interfaces is meant.
pub fn discover_single_host(
    target: &Target,
    bring: Option<&Path>,
    stop: &Stop,
) -> Result<(HostSpec, Vec<String>), Error> {
    let name = match target.reach {
        ReachMethod::Command(_) => Role::Sut.name().to_owned(),
        _ => target.name(),
    };
    let spec = make_spec(target, &name, bring);
    let view = HostInspector::start(&spec)?.inspect_host(&[], None, stop)?;
    let interface = find_meant_interface(target, &view)?;
    let address = match &target.at {
        Some(InterfaceSelector::Address(address)) => Some(*address),
        _ => interface.addresses.first().copied(),
    };
    let warnings = view.missing.iter().map(|missing| format!("{name}: {missing}")).collect();
    let address = address.unwrap_or(spec.address);
    let cpus = own_cpus(target, &view)?;
    Ok((HostSpec { interface: interface.name.clone(), address, cpus, ..spec }, warnings))
}

/// The host of a word, of which nothing is known but the way to it.
pub(crate) fn make_spec(target: &Target, name: &str, bring: Option<&Path>) -> HostSpec {
    let reach = target.via_command(&own_program(), bring);
    let spec = HostSpec::from_launch_command(name, Role::Sut, reach);
    HostSpec { may_be_brought: target.is_elsewhere(), ..spec }
}

/// The interface that a word names, or the only one with an address.
pub(crate) fn find_meant_interface<'v>(
    target: &Target,
    view: &'v HostView,
) -> Result<&'v Interface, Error> {
    let is_meant = |one: &&Interface| match &target.at {
        Some(InterfaceSelector::Interface(name)) => one.name == *name,
        Some(InterfaceSelector::Address(address)) => one.addresses.contains(address),
        None => one.addresses.iter().any(|address| !address.is_loopback()),
    };
    let meant: Vec<&Interface> = view.interfaces.iter().filter(is_meant).collect();
    let [interface] = meant[..] else {
        let names: Vec<&str> = view.interfaces.iter().map(|one| one.name.as_str()).collect();
        return Err(ReachError::Target {
            target: target.to_string(),
            problem: format!(
                "name the interface with the live traffic; the interfaces are {}",
                names.join(", ")
            ),
        }
        .into());
    };
    Ok(interface)
}

/// The CPUs of each end: those that its word says; and of two ends on one machine some of its own.
fn assign_cpus(targets: [&Target; 2], views: &[HostView; 2]) -> Result<[Option<CpuSet>; 2], Error> {
    for (target, view) in targets.into_iter().zip(views) {
        own_cpus(target, view)?;
    }
    let said = targets.map(|target| target.cpus.as_ref());
    if !views[0].shares_kernel_with(&views[1]) {
        return Ok(said.map(Option::<&CpuSet>::cloned));
    }
    Ok(shared_cpus::divide_cpus([&views[0].cpus, &views[1].cpus], said).map(Some))
}

/// The CPUs that a word says, which the host has.
fn own_cpus(target: &Target, view: &HostView) -> Result<Option<CpuSet>, Error> {
    match &target.cpus {
        Some(cpus) if !cpus.is_subset(&view.cpus) => Err(ReachError::Target {
            target: target.to_string(),
            problem: format!("the CPUs there are {}", view.cpus),
        }
        .into()),
        said => Ok(said.clone()),
    }
}

/// Looks at both hosts, with the ways between them.
fn inspect_hosts(specs: &[HostSpec; 2], stop: &Stop) -> Result<[HostView; 2], Error> {
    // Both are on their way before the first is waited for.
    let [mut first, mut second] =
        [HostInspector::start(&specs[0])?, HostInspector::start(&specs[1])?];
    let addresses = |view: &HostView| -> Vec<IpAddr> {
        view.interfaces.iter().flat_map(|interface| interface.addresses.clone()).collect()
    };
    let here = addresses(&first.inspect_host(&[], None, stop)?);
    let there = addresses(&second.inspect_host(&here, None, stop)?);
    Ok([first.inspect_host(&there, None, stop)?, second.inspect_host(&here, None, stop)?])
}

fn explain_pairing_error(unclear: PairingError, targets: [&Target; 2], between: String) -> Error {
    match unclear {
        PairingError::None(problem) => Error::NoWay { between, problem },
        PairingError::Several(pairs) => {
            let lines = pairs.iter().map(|pair| {
                let [first, second] = [0, 1].map(|end| {
                    let interface = &pair.ends[end].0;
                    match &targets[end].reach {
                        ReachMethod::Here => interface.clone(),
                        _ => format!("{}%{interface}", targets[end].way_there()),
                    }
                });
                format!("\n  {first} {second}   ({pair})")
            });
            ReachError::Target {
                target: between,
                problem: format!(
                    "{} paths lead from one to the other: name one of them{}",
                    pairs.len(),
                    lines.collect::<String>()
                ),
            }
            .into()
        }
    }
}

/// Names of the two in the testbed.
fn name_hosts(targets: [&Target; 2]) -> [String; 2] {
    let name = |end: usize| match targets[end].reach {
        ReachMethod::Command(_) => ROLES[end].name().to_owned(),
        _ => targets[end].name(),
    };
    let [first, second] = [name(0), name(1)];
    if first == second {
        return ROLES.map(|role| format!("{first}-{}", role.name()));
    }
    [first, second]
}

fn describe_choice(
    ends: &[HostEnd<'_>; 2],
    pair: &InterfacePair,
    others: &[InterfacePair],
) -> Vec<String> {
    let mut said: Vec<String> = (0..2)
        .map(|end| {
            let (this, other) = (ends[end].name, ends[1 - end].name);
            let ((name, address), to) = (&pair.ends[end], pair.ends[1 - end].1);
            let about =
                ends[end].view.find_interface(name).map_or(String::new(), describe_interface);
            format!("{this}: {name} {address} ({about}); its route to {other} ({to}) leaves by it")
        })
        .collect();
    if !others.is_empty() {
        let others: Vec<String> =
            others.iter().map(|pair| format!("{} to {}", pair.ends[0].1, pair.ends[1].1)).collect();
        said.push(format!("also there: {}; HOST%ADDRESS chooses", others.join(", ")));
    }
    for end in ends {
        if end.view.is_brought {
            said.push(format!(
                "{}: it has no latput {}; this run copies one and removes it at the end",
                end.name,
                env!("CARGO_PKG_VERSION")
            ));
        }
    }
    said
}

fn describe_interface(interface: &Interface) -> String {
    let speed = interface.speed.map_or(String::new(), |speed| format!(", {speed}"));
    format!("{}{speed}, mtu {}", interface.driver, interface.mtu.get())
}

fn collect_warnings(
    ends: &[HostEnd<'_>; 2],
    pair: &InterfacePair,
    targets: [&Target; 2],
) -> Vec<String> {
    let mut warnings = Vec::new();
    let found = [0, 1].map(|end| ends[end].view.find_interface(&pair.ends[end].0));
    if let [Some(first), Some(second)] = found
        && first.mtu != second.mtu
    {
        warnings.push(format!(
            "the MTU of {} {} is {} and that of {} {} is {}: larger packets are lost or fragmented; give both \
             the same MTU",
            ends[0].name,
            first.name,
            first.mtu.get(),
            ends[1].name,
            second.name,
            second.mtu.get()
        ));
    }
    if !pair.is_direct {
        warnings.push("a router is in between: its effect is measured too".to_owned());
    }
    for (end, found) in ends.iter().zip(found) {
        warnings.extend(
            found
                .and_then(Interface::describe_stacking)
                .map(|stacked| format!("{}: {stacked}", end.name)),
        );
        if let Some(interface) = found.filter(|interface| !interface.is_up) {
            warnings.push(format!("{}: {} is down or has no carrier", end.name, interface.name));
        }
    }
    for (end, target) in ends.iter().zip(targets) {
        let mend = match (&target.reach, end.view.missing.is_empty()) {
            (_, true) => continue,
            (ReachMethod::Ssh { destination, .. }, _) => {
                let host = destination.rsplit('@').next().unwrap_or(destination);
                format!(" (log in as root, or use `exec:ssh {destination} sudo -n` for {host})")
            }
            _ => " (root has it)".to_owned(),
        };
        for missing in &end.view.missing {
            warnings.push(format!("{}: {missing}{mend}", end.name));
        }
    }
    warnings
}

/// A testbed file of the two hosts.
fn render_testbed_file(
    targets: [&Target; 2],
    hosts: &[HostSpec; 2],
    bring: Option<&Path>,
) -> String {
    let mut text = format!("# Found between {} and {}.\nschema = 1\n", targets[0], targets[1]);
    for (target, host) in targets.into_iter().zip(hosts) {
        let string = |text: &str| toml::Value::from(text).to_string();
        let _ =
            write!(text, "\n[host.{}]\nrole = {}\n", string(&host.name), string(host.role.name()));
        if target.reach != ReachMethod::Here {
            let reach = target.way_there().to_string();
            let _ = writeln!(text, "target = {}", string(&reach));
        }
        if let Some(bring) = bring.filter(|_| target.is_elsewhere()) {
            let _ = writeln!(text, "bring = {}", string(&bring.display().to_string()));
        }
        let _ = writeln!(
            text,
            "interface = {}\naddress = {}",
            string(&host.interface),
            string(&host.address.to_string())
        );
        if let Some(cpus) = &host.cpus {
            let _ = writeln!(text, "cpus = {}", string(&cpus.to_string()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use latput_reach::testbed_file::parse_hosts;

    use super::*;

    #[test]
    fn what_is_saved_is_the_same_testbed() {
        for words in [
            ["ssh://root@server:2222%eth1", "ssh://client"],
            ["eth0", "exec:docker exec -i web"],
            ["netns://a?cpus=0,2", "netns://b\"c"],
            ["ssh://root@[2001:db8::1]", "ssh://root@[2001:db8::1]:22"],
        ] {
            let targets = words.map(|word| Target::parse(word).unwrap());
            let targets = [&targets[0], &targets[1]];
            let bring = Some(Path::new("a b/latput"));
            let names = name_hosts(targets);
            let hosts = [0, 1].map(|end| {
                let reach = targets[end].via_command(&own_program(), bring);
                HostSpec {
                    may_be_brought: targets[end].is_elsewhere(),
                    interface: "eth1".to_owned(),
                    address: [10, 0, 0, u8::try_from(end).unwrap()].into(),
                    cpus: targets[end].cpus.clone(),
                    ..HostSpec::from_launch_command(&names[end], ROLES[end], reach)
                }
            });
            let text = render_testbed_file(targets, &hosts, bring);
            let mut read = parse_hosts("saved.toml", &text).unwrap();
            read.sort_by_key(|host| host.role != Role::Sut);
            assert_eq!(read, hosts, "{text}");
        }
    }
}
