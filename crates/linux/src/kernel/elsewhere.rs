//! Interfaces of other network namespaces that lie on one of this namespace.
//!
//! A macvlan that was moved into a container still takes a lower MTU from the interface below it. From here it can be seen,
//! and not be put back: the container may be gone by then, or its interface may have another name.

use std::collections::BTreeSet;

use latput_knobs::{KernelErrorKind, WritePurpose};
use latput_units::{Bytes, IntoSet};

use super::LinuxKernel;
use super::failure::Failure;
use super::followers::is_bridge;
use crate::error::Error;
use crate::namespace::{Namespace, Unopened};
use crate::route::{Link, Route};

/// Kinds that a change of the MTU below moves only where it is larger than the new one: `macvlan_device_event`,
/// `vlan_device_event`, `macsec_notify`.
const CLAMPED: &[&str] = &["macvlan", "macvtap", "vlan", "macsec"];
/// Bytes that macsec adds to a packet: its tag with a channel's identifier, and a check value (`macsec_extra_len`).
const MACSEC_ADDS: u64 = 32;
/// Kinds that have the MTU of the interface below at any time: `ipvlan_adjust_mtu`.
const EQUAL: &[&str] = &["ipvlan", "ipvtap"];
/// MTU of a bridge without ports (`ETH_DATA_LEN`).
const ETHERNET_MTU: Bytes = Bytes::new(1500);
/// Most interfaces that are named in a message.
const NAMED_MOST: usize = 3;

/// An interface of another namespace.
#[derive(Clone, Debug)]
struct UpperElsewhere {
    link: Link,
    namespace: String,
}

/// The result of looking into the other namespaces.
#[derive(Default)]
struct Elsewhere {
    uppers: Vec<UpperElsewhere>,
    /// The namespaces that were not looked into, and why.
    unseen: Vec<(String, Failure)>,
}

impl LinuxKernel {
    /// Why an MTU cannot be set: it would move interfaces of other namespaces; `None` if it would move none. A namespace that
    /// cannot be looked into is an error, because latput could not put back what the MTU moves there.
    pub(super) fn mtu_obstacle(
        &self,
        interface: &str,
        mtu: Bytes,
        purpose: WritePurpose,
    ) -> Result<Option<String>, Failure> {
        let link = self.route.link(interface)?;
        if let Some(master) = link.master {
            let master = self.route.link_numbered(master)?;
            if master.kind.as_deref() == Some("team") {
                // `team_device_event` answers with "operation not permitted".
                let team = master.name;
                return Ok(Some(format!(
                    "the team {team} sets the mtu of its ports: set it on {team}"
                )));
            }
        }
        if is_bridge(&link) && self.may_follow_ports(&link)? {
            return Ok(Some(format!(
                "the bridge may follow the mtu of its ports, and would never again once it is set, also not after an undo. \
                 To set it for good: `ip link set {interface} mtu {}`",
                mtu.get()
            )));
        }
        if let Some(obstacle) = self.lower_obstacle(&link, mtu)? {
            return Ok(Some(obstacle));
        }
        let linked = self.linked_to(&link)?;
        if purpose == WritePurpose::Change
            && let Some(obstacle) = self.ipv6_obstacle(&link, &linked, mtu)
        {
            return Ok(Some(obstacle));
        }
        if let Some(obstacle) = self.route_obstacle(&link, &linked, mtu, purpose)? {
            return Ok(Some(obstacle));
        }
        let below: BTreeSet<u32> = linked.iter().map(|it| it.index).chain([link.index]).into_set();
        let Elsewhere { mut uppers, unseen } = uppers_elsewhere(&below)?;
        uppers.retain(|upper| is_moved(&upper.link, mtu));
        match (obstacle(&uppers, mtu), not_looked_into(interface, unseen)) {
            (None, Some(failure)) => Err(failure),
            (moved, _) => Ok(moved),
        }
    }

    /// The interface below, where its MTU is too small (`macvlan_change_mtu`, `vlan_dev_change_mtu`, `macsec_change_mtu`).
    fn lower_obstacle(&self, link: &Link, mtu: Bytes) -> Result<Option<String>, Failure> {
        let is_limited = link.kind.as_deref().is_some_and(|kind| CLAMPED.contains(&kind));
        let Some(lower) = link.lower.filter(|_| is_limited) else { return Ok(None) };
        let lower = self.route.link_numbered(lower)?;
        let is_larger = mtu.get() + added_bytes(link) > lower.mtu.get();
        Ok(is_larger.then(|| {
            format!("{} below it has mtu {}: set that first", lower.name, lower.mtu.get())
        }))
    }

    /// Whether the kernel may set the MTU of a bridge to the lowest of its ports (`br_mtu_auto_adjust`).
    /// It does until somebody sets one, which it does not show: another MTU than that of the ports was set.
    fn may_follow_ports(&self, bridge: &Link) -> Result<bool, Failure> {
        let links = self.route.links()?;
        let ports = links.iter().filter(|link| link.master == Some(bridge.index));
        let lowest = ports.map(|port| port.mtu).min();
        Ok(bridge.mtu == lowest.unwrap_or(ETHERNET_MTU))
    }
}

/// Whether the MTU of the interface below takes that of an upper one along.
fn is_moved(upper: &Link, mtu: Bytes) -> bool {
    let is_one_of =
        |kinds: &[&str]| upper.kind.as_deref().is_some_and(|kind| kinds.contains(&kind));
    (is_one_of(CLAMPED) && upper.mtu.get() + added_bytes(upper) > mtu.get())
        || (is_one_of(EQUAL) && upper.mtu != mtu)
}

/// Bytes that an interface adds to its packets before they go to the one below.
fn added_bytes(link: &Link) -> u64 {
    if link.kind.as_deref() == Some("macsec") { MACSEC_ADDS } else { 0 }
}

fn obstacle(moved: &[UpperElsewhere], mtu: Bytes) -> Option<String> {
    let words = |upper: &UpperElsewhere| {
        let UpperElsewhere { link, namespace } = upper;
        let kind = link.kind.as_deref().unwrap_or_default();
        format!("{} ({kind} in network namespace {namespace}, mtu {})", link.name, link.mtu.get())
    };
    (!moved.is_empty()).then(|| {
        format!(
            "the kernel would set {} to {} too, and latput could not put that back from here: set it there first",
            named(moved, words),
            mtu.get()
        )
    })
}

/// Why it cannot be told what lies on the interface: some namespaces were not looked into. `None` if all were.
fn not_looked_into(interface: &str, mut unseen: Vec<(String, Failure)>) -> Option<Failure> {
    let is_permission = |failure: &Failure| failure.kind == KernelErrorKind::Permission;
    // Without a thread or a descriptor, namespaces are not seen that may not be opened by another process's name either.
    unseen.sort_by_key(|(_, failure)| is_permission(failure));
    let names = named(&unseen, |(name, _)| name.clone());
    let (_, first) = unseen.into_iter().next()?;
    let remedy = if is_permission(&first) {
        ". CAP_SYS_ADMIN and CAP_SYS_PTRACE of the first user namespace let latput look"
    } else {
        ""
    };
    let reason = format!(
        "cannot look into network namespace {names}: {}. An interface there that lies on {interface} would get its \
         MTU, and latput could not put that back{remedy}",
        first.reason
    );
    Some(Failure { reason, ..first })
}

/// The first few by name, and how many more there are.
fn named<T>(all: &[T], name: impl Fn(&T) -> String) -> String {
    let mut names: Vec<String> = all.iter().take(NAMED_MOST).map(name).collect();
    let more = all.len().saturating_sub(NAMED_MOST);
    names.extend((more > 0).then(|| format!("{more} more")));
    names.join(", ")
}

/// The interfaces of other namespaces that lie on these. A namespace that ends meanwhile has none.
fn uppers_elsewhere(below: &BTreeSet<u32>) -> Result<Elsewhere, Error> {
    let ours = Namespace::current()?;
    let mut found = Elsewhere::default();
    let mut seen = BTreeSet::new();
    let mut unopened = Vec::new();
    for (name, other) in ours.others()? {
        let other = match other {
            Ok(other) => other,
            Err(failed) => {
                unopened.push((name, failed));
                continue;
            }
        };
        let look = || Ok((links_above(&ours, below)?, Namespace::current_mark()));
        match other.run_sockets_in(look).and_then(|looked| looked) {
            Ok((links, mark)) => {
                let upper = |link| UpperElsewhere { link, namespace: name.clone() };
                found.uppers.extend(links.into_iter().map(upper));
                seen.extend(mark);
            }
            Err(error) => found.unseen.push((name, error.into())),
        }
    }
    found.unseen.extend(never_seen(unopened, seen));
    Ok(found)
}

/// Those that were not looked into through another process either, each once.
fn never_seen(
    unopened: Vec<(String, Unopened)>,
    mut seen: BTreeSet<u64>,
) -> impl Iterator<Item = (String, Failure)> {
    let is_new =
        move |(_, failed): &(String, Unopened)| failed.mark.is_none_or(|mark| seen.insert(mark));
    unopened.into_iter().filter(is_new).map(|(name, failed)| (name, failed.error.into()))
}

/// The interfaces of the calling thread's namespace that lie on these of another.
fn links_above(other: &Namespace, below: &BTreeSet<u32>) -> Result<Vec<Link>, Error> {
    let route = Route::open()?;
    let mut links = route.links()?;
    // Listing them gives the namespace below a number.
    let Some(number) = route.number_of(other.as_fd())? else { return Ok(Vec::new()) };
    links.retain(|link| {
        link.lower_elsewhere.is_some_and(|(lower, id)| id == number && below.contains(&lower))
    });
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upper(kind: &str, mtu: u64) -> UpperElsewhere {
        let link = Link {
            name: "up0".to_owned(),
            kind: Some(kind.to_owned()),
            mtu: Bytes::new(mtu),
            ..Link::default()
        };
        UpperElsewhere { link, namespace: "blue".to_owned() }
    }

    #[test]
    fn larger_and_ipvlan_uppers_are_moved() {
        for (kind, mtu, moves) in [
            ("macvlan", 9000, true),
            ("macvlan", 1500, false),
            ("vlan", 1501, true),
            ("macsec", 1468, false),
            ("macsec", 1469, true),
            ("ipvlan", 1400, true),
            ("ipvlan", 1500, false),
            ("veth", 9000, false),
        ] {
            assert_eq!(is_moved(&upper(kind, mtu).link, Bytes::new(1500)), moves, "{kind} {mtu}");
        }
    }

    #[test]
    fn moved_uppers_are_named_with_their_namespace() {
        assert_eq!(obstacle(&[], Bytes::new(1500)), None);
        let said = obstacle(&vec![upper("macvlan", 9000); 5], Bytes::new(1500)).unwrap();
        assert!(said.contains("up0 (macvlan in network namespace blue, mtu 9000), "), "{said}");
        assert!(said.contains(", 2 more to 1500 too"), "{said}");
    }

    #[test]
    fn namespaces_seen_through_others_are_left_out() {
        let of = |name: &str, mark| {
            let error = Error::system("open x", std::io::Error::from_raw_os_error(libc::EACCES));
            (name.to_owned(), Unopened { error, mark })
        };
        let all = vec![
            of("seen", Some(7)),
            of("new", Some(8)),
            of("again", Some(8)),
            of("unknown", None),
            of("unknown too", None),
        ];
        let left: Vec<String> =
            never_seen(all, BTreeSet::from([7])).map(|(name, _)| name).collect();
        assert_eq!(left, ["new", "unknown", "unknown too"]);
    }

    #[test]
    fn namespace_not_looked_into_is_an_error() {
        assert!(not_looked_into("eth0", Vec::new()).is_none());
        let unseen = |errno| {
            let error = Error::system("open x", std::io::Error::from_raw_os_error(errno));
            ("blue".to_owned(), Failure::from(error))
        };
        for (errnos, kind) in [
            (&[libc::EACCES][..], KernelErrorKind::Permission),
            (&[libc::EMFILE], KernelErrorKind::Busy),
            (&[libc::EMFILE, libc::EPERM, libc::EMFILE, libc::EPERM], KernelErrorKind::Busy),
            (&[libc::EPERM, libc::EAGAIN], KernelErrorKind::Busy),
        ] {
            let all = errnos.iter().map(|errno| unseen(*errno)).collect();
            let failure = not_looked_into("eth0", all).unwrap();
            assert_eq!(failure.kind, kind, "{errnos:?}");
            let said = failure.reason;
            assert!(said.contains("blue") && said.contains("(open x)"), "{said}");
            assert_eq!(said.contains("1 more"), errnos.len() > 3, "{said}");
            assert_eq!(said.contains("CAP_"), kind == KernelErrorKind::Permission, "{said}");
        }
    }
}
