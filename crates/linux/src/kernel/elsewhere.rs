//! Interfaces of other network namespaces that lie on one of this namespace.
//!
//! A macvlan that was moved into a container still takes a lower MTU from the interface below it. From here it can be seen,
//! and not be put back: the container may be gone by then, or its interface may have another name.

use std::collections::BTreeSet;

use latput_units::{Bytes, IntoSet};

use super::LinuxKernel;
use super::failure::Failure;
use crate::error::Error;
use crate::namespace::Namespace;
use crate::route::{Link, Route};

/// Kinds that a change of the MTU below moves only where it is larger than the new one: `macvlan_device_event`,
/// `vlan_device_event`, `macsec_notify`.
const CLAMPED: &[&str] = &["macvlan", "macvtap", "vlan", "macsec"];
/// Kinds that have the MTU of the interface below at any time: `ipvlan_adjust_mtu`.
const EQUAL: &[&str] = &["ipvlan", "ipvtap"];
/// Most interfaces that are named in a message.
const NAMED_MOST: usize = 3;

/// An interface of another namespace.
#[derive(Clone, Debug)]
struct UpperElsewhere {
    link: Link,
    namespace: String,
}

impl LinuxKernel {
    /// Why an MTU cannot be set: it would move interfaces of other namespaces; `None` if it would move none.
    pub(super) fn mtu_obstacle(
        &self,
        interface: &str,
        mtu: Bytes,
    ) -> Result<Option<String>, Failure> {
        let link = self.route.link(interface)?;
        let below: BTreeSet<u32> =
            self.linked_to(&link)?.iter().map(|it| it.index).chain([link.index]).into_set();
        let mut moved = uppers_elsewhere(&below)?;
        moved.retain(|upper| is_moved(&upper.link, mtu));
        Ok(obstacle(&moved, mtu))
    }
}

/// Whether the MTU of the interface below takes that of an upper one along.
fn is_moved(upper: &Link, mtu: Bytes) -> bool {
    let is_one_of =
        |kinds: &[&str]| upper.kind.as_deref().is_some_and(|kind| kinds.contains(&kind));
    (is_one_of(CLAMPED) && upper.mtu > mtu) || (is_one_of(EQUAL) && upper.mtu != mtu)
}

fn obstacle(moved: &[UpperElsewhere], mtu: Bytes) -> Option<String> {
    let words = |upper: &UpperElsewhere| {
        let UpperElsewhere { link, namespace } = upper;
        let kind = link.kind.as_deref().unwrap_or_default();
        format!("{} ({kind} in network namespace {namespace}, mtu {})", link.name, link.mtu.get())
    };
    let mut names: Vec<String> = moved.iter().take(NAMED_MOST).map(words).collect();
    let more = moved.len().saturating_sub(NAMED_MOST);
    names.extend((more > 0).then(|| format!("{more} more")));
    (!moved.is_empty()).then(|| {
        format!(
            "the kernel would set {} to {} too, and latput could not put that back from here: set it there first",
            names.join(", "),
            mtu.get()
        )
    })
}

/// The interfaces of other namespaces that lie on these. Namespaces that cannot be entered are left out, as is one that ends
/// meanwhile.
fn uppers_elsewhere(below: &BTreeSet<u32>) -> Result<Vec<UpperElsewhere>, Error> {
    let ours = Namespace::current()?;
    let mut uppers = Vec::new();
    for (name, other) in ours.others()? {
        let links = other.run_sockets_in(|| links_above(&ours, below));
        let links = links.and_then(|links| links).unwrap_or_default();
        uppers
            .extend(links.into_iter().map(|link| UpperElsewhere { link, namespace: name.clone() }));
    }
    Ok(uppers)
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
}
