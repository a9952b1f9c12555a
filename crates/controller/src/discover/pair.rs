//! Chooses the interfaces between two hosts from what both ends say of their links, addresses and routes.
//!
//! A pair fits where the first host's packets to an address of the second leave by the one interface, and the
//! second one's answers leave by the interface that has this address.

use std::fmt;
use std::net::IpAddr;

use latput_linux::interfaces::Interface;
use latput_protocol::host_view::HostView;
use latput_reach::target::InterfaceSelector;

/// One of the two hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostEnd<'a> {
    /// Name in the testbed.
    pub(super) name: &'a str,
    /// As its agent sees it, with its ways to the addresses of the other.
    pub(super) view: &'a HostView,
    /// Interface or address that is meant.
    pub(super) at: Option<&'a InterfaceSelector>,
}

/// An interface and an address at each end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InterfacePair {
    pub(super) ends: [(String, IpAddr); 2],
    /// Whether no router is in between.
    pub(super) is_direct: bool,
}

/// Why there is no pair, or not one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PairingError {
    /// In words.
    None(String),
    /// One for each pair of interfaces.
    Several(Vec<InterfacePair>),
}

impl HostEnd<'_> {
    /// Its addresses that are meant, with their interface.
    fn candidate_addresses(&self) -> impl Iterator<Item = (&Interface, IpAddr)> {
        let of = |interface| move |&address: &IpAddr| (interface, address);
        let all =
            self.view.interfaces.iter().flat_map(move |one| one.addresses.iter().map(of(one)));
        all.filter(|(interface, address)| self.is_meant(&interface.name, *address))
    }

    fn is_meant(&self, interface: &str, address: IpAddr) -> bool {
        match self.at {
            None => true,
            Some(InterfaceSelector::Interface(name)) => name == interface,
            Some(InterfaceSelector::Address(meant)) => *meant == address,
        }
    }

    /// The interface and the own address by which its packets to an address leave.
    fn find_route(&self, to: IpAddr) -> Option<(&str, IpAddr, bool)> {
        let way = self.view.ways.iter().find(|way| way.to == to && !way.is_local)?;
        let interface = self.view.find_interface(way.interface.as_deref()?)?;
        let fits = |address: &&IpAddr| {
            address.is_ipv4() == to.is_ipv4() && self.is_meant(&interface.name, **address)
        };
        let source = way.source.filter(|source| fits(&source));
        let source = source.or_else(|| interface.addresses.iter().find(fits).copied())?;
        Some((&interface.name, source, way.is_direct))
    }
}

/// The best pair where all that fit have the same two interfaces, and the others.
pub(super) fn choose_pair(
    ends: [HostEnd<'_>; 2],
) -> Result<(InterfacePair, Vec<InterfacePair>), PairingError> {
    let [first, second] = ends;
    let mut pairs = Vec::new();
    let mut crossed = Vec::new();
    for (interface, address) in second.candidate_addresses() {
        let Some((leaves_by, own, there)) = first.find_route(address) else { continue };
        let Some((answers_by, _, back)) = second.find_route(own) else { continue };
        if answers_by != interface.name {
            crossed.push(format!(
                "{} has {address} on {} and answers {own} by {answers_by}",
                second.name, interface.name
            ));
            continue;
        }
        let ends = [(leaves_by.to_owned(), own), (interface.name.clone(), address)];
        pairs.push(InterfacePair { ends, is_direct: there && back });
    }
    // Without a router first, then IPv4; then as the kernel has them.
    pairs.sort_by_key(|pair| (!pair.is_direct, pair.ends[0].1.is_ipv6()));
    let Some(best) = pairs.first().cloned() else {
        return Err(PairingError::None(explain_no_pair(ends, &crossed)));
    };
    let mut by_interfaces: Vec<InterfacePair> = Vec::new();
    for pair in &pairs {
        if !by_interfaces.iter().any(|known| known.interface_names() == pair.interface_names()) {
            by_interfaces.push(pair.clone());
        }
    }
    if by_interfaces.len() > 1 {
        return Err(PairingError::Several(by_interfaces));
    }
    Ok((best, pairs.split_off(1)))
}

impl InterfacePair {
    fn interface_names(&self) -> [&str; 2] {
        [0, 1].map(|end| self.ends[end].0.as_str())
    }
}

impl fmt::Display for InterfacePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(first, own), (second, address)] = &self.ends;
        let router = if self.is_direct { "" } else { ", by a router" };
        write!(f, "{first} {own} to {second} {address}{router}")
    }
}

/// Why no pair fits.
fn explain_no_pair([first, second]: [HostEnd<'_>; 2], crossed: &[String]) -> String {
    for end in [first, second] {
        if end.candidate_addresses().next().is_none() {
            let what = match end.at {
                None => "an address that another host can reach",
                Some(InterfaceSelector::Interface(name))
                    if end.view.find_interface(name).is_none() =>
                {
                    let interfaces = end.view.interfaces.iter();
                    let names: Vec<&str> = interfaces.map(|found| found.name.as_str()).collect();
                    return format!(
                        "{} has no interface {name}, but {}",
                        end.name,
                        names.join(", ")
                    );
                }
                Some(InterfaceSelector::Interface(name)) => {
                    return format!(
                        "{name} of {} has no address: give it one (`ip address add ADDRESS/BITS dev {name}`)",
                        end.name
                    );
                }
                Some(InterfaceSelector::Address(address)) => &format!("the address {address}"),
            };
            return format!(
                "{} does not have {what}: bring an interface up and give it one (`ip address add`)",
                end.name
            );
        }
    }
    let families = [first, second].map(|end| {
        [true, false]
            .map(|v4| end.candidate_addresses().any(|(_, address)| address.is_ipv4() == v4))
    });
    if !(0..2).any(|family| families[0][family] && families[1][family]) {
        let name = |end: usize| if families[end][0] { "IPv4" } else { "IPv6" };
        return format!(
            "{} has only {} addresses and {} only {}: give both one of the same kind",
            first.name,
            name(0),
            second.name,
            name(1)
        );
    }
    if !crossed.is_empty() {
        return format!(
            "answers come back by another interface: {}; check the routes there",
            crossed.join("; ")
        );
    }
    let [there, back] = [(first, second), (second, first)].map(|(from, to)| {
        let reaches =
            to.candidate_addresses().any(|(_, address)| from.find_route(address).is_some());
        (!reaches).then(|| {
            let addresses: Vec<String> =
                to.candidate_addresses().map(|(_, address)| address.to_string()).collect();
            format!("no route leads from {} to {} ({})", from.name, to.name, addresses.join(", "))
        })
    });
    match (there, back) {
        (None, None) => format!(
            "no route of {} leads back to its source address; see `ip route get` at both ends",
            first.name
        ),
        (there, back) => {
            let both: Vec<String> = there.into_iter().chain(back).collect();
            format!("{}: add one (`ip route add`), or put both on one network", both.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use latput_protocol::host_view::RouteView;

    use super::*;

    #[test]
    fn only_route_is_found_without_container_bridge() {
        let server = make_host_view(
            &[("eth0", "10.0.0.1"), ("docker0", "172.17.0.1")],
            &[("10.0.0.2", "eth0", "10.0.0.1", true)],
        );
        let client = make_host_view(
            &[("eth7", "10.0.0.2"), ("docker0", "172.17.0.1")],
            &[("10.0.0.1", "eth7", "10.0.0.2", true), ("172.17.0.1", "lo", "172.17.0.1", true)],
        );
        assert_choice(&server, None, &client, None, "eth0 10.0.0.1 to eth7 10.0.0.2");
    }

    #[test]
    fn ipv4_without_router_is_preferred() {
        let names = [("eth0", "10.0.0.1"), ("eth0", "fd00::1")];
        let ways = [("10.0.0.2", "eth0", "10.0.0.1", false), ("fd00::2", "eth0", "fd00::1", true)];
        let back = [("10.0.0.1", "eth0", "10.0.0.2", false), ("fd00::1", "eth0", "fd00::2", true)];
        let other = [("eth0", "10.0.0.2"), ("eth0", "fd00::2")];
        assert_choice(
            &make_host_view(&names, &ways),
            None,
            &make_host_view(&other, &back),
            None,
            "eth0 fd00::1 to eth0 fd00::2",
        );
        assert_choice(
            &make_host_view(&names[1..], &ways[1..]),
            None,
            &make_host_view(&other[1..], &back[1..]),
            None,
            "eth0 fd00::1 to eth0 fd00::2",
        );
        let meant = InterfaceSelector::Address("10.0.0.2".parse().unwrap());
        let expected = "eth0 10.0.0.1 to eth0 10.0.0.2, by a router";
        assert_choice(
            &make_host_view(&names, &ways),
            None,
            &make_host_view(&other, &back),
            Some(&meant),
            expected,
        );
    }

    #[test]
    fn ambiguous_route_must_be_named() {
        let server = make_host_view(
            &[("eth0", "10.0.0.1"), ("eth1", "10.0.1.1")],
            &[("10.0.0.2", "eth0", "10.0.0.1", true), ("10.0.1.2", "eth1", "10.0.1.1", true)],
        );
        let client = make_host_view(
            &[("eth0", "10.0.0.2"), ("eth1", "10.0.1.2")],
            &[("10.0.0.1", "eth0", "10.0.0.2", true), ("10.0.1.1", "eth1", "10.0.1.2", true)],
        );
        assert_choice(
            &server,
            None,
            &client,
            None,
            "several: eth0 10.0.0.1 to eth0 10.0.0.2; eth1 10.0.1.1 to eth1 10.0.1.2",
        );
        let meant = InterfaceSelector::Interface("eth1".to_owned());
        assert_choice(&server, Some(&meant), &client, None, "eth1 10.0.1.1 to eth1 10.0.1.2");
        assert_choice(&server, None, &client, Some(&meant), "eth1 10.0.1.1 to eth1 10.0.1.2");
        let meant = InterfaceSelector::Interface("eth9".to_owned());
        assert_choice(
            &server,
            None,
            &client,
            Some(&meant),
            "b has no interface eth9, but eth0, eth1",
        );
    }

    #[test]
    fn what_is_in_the_way_is_told() {
        let v4 = make_host_view(&[("eth0", "10.0.0.1")], &[]);
        assert_choice(&v4, None, &make_host_view(&[], &[]), None, "b does not have an address");
        assert_choice(
            &v4,
            None,
            &make_host_view(&[("eth0", "fd00::2")], &[]),
            None,
            "a has only IPv4 addresses and b only IPv6",
        );
        let far = make_host_view(&[("eth0", "10.9.0.1")], &[]);
        assert_choice(
            &v4,
            None,
            &far,
            None,
            "no route leads from a to b (10.9.0.1); no route leads from b to a (10.0.0.1)",
        );
        let there =
            make_host_view(&[("eth0", "10.0.0.1")], &[("10.9.0.1", "eth0", "10.0.0.1", true)]);
        assert_choice(&there, None, &far, None, "no route leads from b to a (10.0.0.1): add one");
        let crossed = make_host_view(
            &[("eth0", "10.9.0.1"), ("eth1", "10.8.0.1")],
            &[("10.0.0.1", "eth1", "10.8.0.1", true)],
        );
        assert_choice(
            &there,
            None,
            &crossed,
            None,
            "b has 10.9.0.1 on eth0 and answers 10.0.0.1 by eth1",
        );
    }

    type WayOf<'a> = (&'a str, &'a str, &'a str, bool);

    fn make_host_view(addresses: &[(&str, &str)], ways: &[WayOf<'_>]) -> HostView {
        let mut view = HostView::default();
        for (name, address) in addresses {
            if view.find_interface(name).is_none() {
                let found = Interface { name: (*name).to_owned(), ..Interface::default() };
                view.interfaces.push(found);
            }
            let found = view.interfaces.iter_mut().find(|interface| interface.name == *name);
            found.unwrap().addresses.push(address.parse().unwrap());
        }
        view.ways = ways
            .iter()
            .map(|(to, interface, source, is_direct)| RouteView {
                to: to.parse().unwrap(),
                interface: Some((*interface).to_owned()),
                source: Some(source.parse().unwrap()),
                is_local: *interface == "lo",
                is_direct: *is_direct,
            })
            .collect();
        view
    }

    #[track_caller]
    fn assert_choice(
        a: &HostView,
        at_a: Option<&InterfaceSelector>,
        b: &HostView,
        at_b: Option<&InterfaceSelector>,
        expected: &str,
    ) {
        let ends =
            [HostEnd { name: "a", view: a, at: at_a }, HostEnd { name: "b", view: b, at: at_b }];
        let found = match choose_pair(ends) {
            Ok((pair, _)) => pair.to_string(),
            Err(PairingError::None(why)) => why,
            Err(PairingError::Several(pairs)) => {
                let pairs: Vec<String> = pairs.iter().map(ToString::to_string).collect();
                format!("several: {}", pairs.join("; "))
            }
        };
        assert!(found.starts_with(expected) || found.contains(expected), "{found}");
    }
}
