//! Two hosts in two words: asks both ends what they have, chooses the interfaces between them, and says why.

mod pair;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use latput_linux::interfaces;
use latput_load::Stop;
use latput_trial::observation::Role;
use latput_units::CpuSet;

use self::pair::{End, Pair, Unclear, choose};
use crate::controller::Scout;
use crate::error::Error;
use crate::host_spec::{HostSpec, own_program};
use crate::host_view::{HostView, InterfaceView};
use crate::shared_cpus;
use crate::target::{At, Reach, Target};

/// Two hosts, and what was found between them.
#[derive(Clone, Debug)]
pub struct Discovered {
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
pub fn discover(
    targets: [&Target; 2],
    bring: Option<&Path>,
    stop: &Stop,
) -> Result<Discovered, Error> {
    let names = names(targets);
    let own = own_program();
    let specs = [0, 1].map(|end| {
        let reach = targets[end].via(&own, bring);
        let spec = HostSpec::unknown(&names[end], ROLES[end], reach);
        HostSpec { may_be_brought: targets[end].is_elsewhere(), ..spec }
    });
    let views = look(&specs, stop)?;
    let between = format!("{} and {}", targets[0], targets[1]);
    if views[0].namespace == views[1].namespace {
        return Err(Error::Target {
            target: between,
            problem:
                "both are the same host and network namespace. Name two, or measure `loopback`"
                    .to_owned(),
        });
    }
    let ends = [0, 1].map(|end| End {
        name: &names[end],
        view: &views[end],
        at: targets[end].at.as_ref(),
    });
    let (pair, others) = choose(ends).map_err(|unclear| explained(unclear, targets, between))?;
    let cpus = cpus(targets, &views)?;
    let hosts = [0, 1].map(|end| {
        let (interface, address) = pair.ends[end].clone();
        HostSpec { interface, address, cpus: cpus[end].clone(), ..specs[end].clone() }
    });
    let (mut said, mut warnings) = (said(&ends, &pair, &others), warnings(&ends, &pair, targets));
    if let [Some(sut), Some(generator)] = &cpus
        && views[0].shares_kernel_with(&views[1])
    {
        let [first, second] = &names;
        said.push(format!("both are on one machine: {first} has CPUs {sut}, {second} {generator}"));
        warnings.extend(shared_cpus::note([sut, generator]));
    }
    Ok(Discovered {
        name: format!("{},{}", targets[0], targets[1]),
        said,
        warnings,
        file: file(targets, &hosts, bring),
        namespaces: [0, 1].map(|end| views[end].namespace.clone()),
        hosts,
    })
}

/// One host with live traffic, and the interface that is meant. `bring` is the latput to take along where it is missing.
///
/// # Errors
///
/// The host cannot be reached, or it is not clear which of its interfaces is meant.
pub fn alone(
    target: &Target,
    bring: Option<&Path>,
    stop: &Stop,
) -> Result<(HostSpec, Vec<String>), Error> {
    let (own, name) = (own_program(), target.name());
    let name = if matches!(target.reach, Reach::Command(_)) { "sut".to_owned() } else { name };
    let spec = HostSpec::unknown(&name, Role::Sut, target.via(&own, bring));
    let spec = HostSpec { may_be_brought: target.is_elsewhere(), ..spec };
    let view = Scout::start(&spec)?.look(&[], None, stop)?;
    let is_meant = |one: &&InterfaceView| match &target.at {
        Some(At::Interface(name)) => one.name == *name,
        Some(At::Address(address)) => one.addresses.contains(address),
        None => one.addresses.iter().any(|address| !address.is_loopback()),
    };
    let meant: Vec<&InterfaceView> = view.interfaces.iter().filter(is_meant).collect();
    let [interface] = meant[..] else {
        let names: Vec<&str> = view.interfaces.iter().map(|one| one.name.as_str()).collect();
        return Err(Error::Target {
            target: target.to_string(),
            problem: format!(
                "name the interface with the live traffic; the interfaces are {}",
                names.join(", ")
            ),
        });
    };
    let address = match &target.at {
        Some(At::Address(address)) => Some(*address),
        _ => interface.addresses.first().copied(),
    };
    let warnings = view.missing.iter().map(|missing| format!("{name}: {missing}")).collect();
    let address = address.unwrap_or(spec.address);
    let cpus = own_cpus(target, &view)?;
    Ok((HostSpec { interface: interface.name.clone(), address, cpus, ..spec }, warnings))
}

/// The CPUs of each end: those that its word says; and of two ends on one machine some of its own.
fn cpus(targets: [&Target; 2], views: &[HostView; 2]) -> Result<[Option<CpuSet>; 2], Error> {
    for (target, view) in targets.into_iter().zip(views) {
        own_cpus(target, view)?;
    }
    let said = targets.map(|target| target.cpus.as_ref());
    if !views[0].shares_kernel_with(&views[1]) {
        return Ok(said.map(Option::<&CpuSet>::cloned));
    }
    Ok(shared_cpus::divided([&views[0].cpus, &views[1].cpus], said).map(Some))
}

/// The CPUs that a word says, which the host has.
fn own_cpus(target: &Target, view: &HostView) -> Result<Option<CpuSet>, Error> {
    match &target.cpus {
        Some(cpus) if !cpus.is_subset(&view.cpus) => Err(Error::Target {
            target: target.to_string(),
            problem: format!("the CPUs there are {}", view.cpus),
        }),
        said => Ok(said.clone()),
    }
}

/// Looks at both hosts, with the ways between them.
fn look(specs: &[HostSpec; 2], stop: &Stop) -> Result<[HostView; 2], Error> {
    // Both are on their way before the first is waited for.
    let [mut first, mut second] = [Scout::start(&specs[0])?, Scout::start(&specs[1])?];
    let addresses = |view: &HostView| -> Vec<IpAddr> {
        view.interfaces.iter().flat_map(|interface| interface.addresses.clone()).collect()
    };
    let here = addresses(&first.look(&[], None, stop)?);
    let there = addresses(&second.look(&here, None, stop)?);
    Ok([first.look(&there, None, stop)?, second.look(&here, None, stop)?])
}

fn explained(unclear: Unclear, targets: [&Target; 2], between: String) -> Error {
    match unclear {
        Unclear::None(problem) => Error::NoWay { between, problem },
        Unclear::Several(pairs) => {
            let lines = pairs.iter().map(|pair| {
                let [first, second] = [0, 1].map(|end| {
                    let interface = &pair.ends[end].0;
                    match &targets[end].reach {
                        Reach::Here => interface.clone(),
                        _ => format!("{}%{interface}", targets[end].way_there()),
                    }
                });
                format!("\n  {first} {second}   ({pair})")
            });
            Error::Target {
                target: between,
                problem: format!(
                    "{} paths lead from one to the other: name one of them{}",
                    pairs.len(),
                    lines.collect::<String>()
                ),
            }
        }
    }
}

/// Names of the two in the testbed.
fn names(targets: [&Target; 2]) -> [String; 2] {
    let name = |end: usize| match targets[end].reach {
        Reach::Command(_) => ROLES[end].name().to_owned(),
        _ => targets[end].name(),
    };
    let [first, second] = [name(0), name(1)];
    if first == second {
        return ROLES.map(|role| format!("{first}-{}", role.name()));
    }
    [first, second]
}

fn said(ends: &[End<'_>; 2], pair: &Pair, others: &[Pair]) -> Vec<String> {
    let mut said: Vec<String> = (0..2)
        .map(|end| {
            let (this, other) = (ends[end].name, ends[1 - end].name);
            let ((name, address), to) = (&pair.ends[end], pair.ends[1 - end].1);
            let about = ends[end].view.interface(name).map_or(String::new(), about);
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

fn about(interface: &InterfaceView) -> String {
    let speed = interface.speed.map_or(String::new(), |speed| format!(", {speed}"));
    format!("{}{speed}, mtu {}", interface.driver, interface.mtu.get())
}

fn warnings(ends: &[End<'_>; 2], pair: &Pair, targets: [&Target; 2]) -> Vec<String> {
    let mut warnings = Vec::new();
    let found = [0, 1].map(|end| ends[end].view.interface(&pair.ends[end].0));
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
        warnings.extend(found.and_then(stacked).map(|stacked| format!("{}: {stacked}", end.name)));
        if let Some(interface) = found.filter(|interface| !interface.is_up) {
            warnings.push(format!("{}: {} is down or has no carrier", end.name, interface.name));
        }
    }
    for (end, target) in ends.iter().zip(targets) {
        let mend = match (&target.reach, end.view.missing.is_empty()) {
            (_, true) => continue,
            (Reach::Ssh { destination, .. }, _) => {
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

/// Describes an interface that lies on others, and which of them has the knobs.
pub(crate) fn stacked(interface: &InterfaceView) -> Option<String> {
    let InterfaceView { name, kind, beneath, is_virtual_function, .. } = interface;
    interfaces::whose_knobs(name, kind.as_deref(), beneath, *is_virtual_function)
}

/// A testbed file of the two hosts.
fn file(targets: [&Target; 2], hosts: &[HostSpec; 2], bring: Option<&Path>) -> String {
    let mut text = format!("# Found between {} and {}.\nschema = 1\n", targets[0], targets[1]);
    for (target, host) in targets.into_iter().zip(hosts) {
        let string = |text: &str| toml::Value::from(text).to_string();
        let _ =
            write!(text, "\n[host.{}]\nrole = {}\n", string(&host.name), string(host.role.name()));
        if target.reach != Reach::Here {
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
    use super::*;
    use crate::testbed::{Testbed, TestbedKind};

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
            let names = names(targets);
            let hosts = [0, 1].map(|end| {
                let reach = targets[end].via(&own_program(), bring);
                HostSpec {
                    may_be_brought: targets[end].is_elsewhere(),
                    interface: "eth1".to_owned(),
                    address: [10, 0, 0, u8::try_from(end).unwrap()].into(),
                    cpus: targets[end].cpus.clone(),
                    ..HostSpec::unknown(&names[end], ROLES[end], reach)
                }
            });
            let text = file(targets, &hosts, bring);
            let testbed = Testbed::parse("saved.toml", &text).unwrap();
            let TestbedKind::Hosts(mut read) = testbed.kind else { panic!("{text}") };
            read.sort_by_key(|host| host.role != Role::Sut);
            assert_eq!(read, hosts, "{text}");
        }
    }
}
