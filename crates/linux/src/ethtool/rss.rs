//! Additional RSS contexts: tables of their own for chosen flows (`ethtool -X IFACE context new`).
//!
//! Semantics: `Documentation/networking/ethtool-netlink.rst`, `RSS_GET`.

use super::{Ethtool, HEADER, put_device};
use crate::error::{Error, check_interface_name};
use crate::netlink::{Attributes, Malformed, NetlinkError, uapi};

/// `ETHTOOL_A_RSS_CONTEXT`, `include/uapi/linux/ethtool_netlink_generated.h`.
const CONTEXT: u16 = 2;

impl Ethtool {
    /// The numbers of an interface's additional contexts; none where it cannot have any, and before Linux 6.12, which does not list
    /// them.
    pub fn rss_contexts(&self, interface: &str) -> Result<Vec<u32>, Error> {
        check_interface_name(interface)?;
        let what = format!("list the RSS contexts of {interface}");
        let request = self
            .0
            .request(what.clone(), uapi::ETHTOOL_MSG_RSS_GET)
            .dump()
            .nested(HEADER, |header| put_device(header, interface));
        let answer = match self.0.exchange(&request).map_err(Error::from) {
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => return Ok(Vec::new()),
            answer => answer?,
        };
        let contexts = answer.iter().filter_map(|message| parse_context(message).transpose());
        let contexts = contexts.collect::<Result<Vec<u32>, Malformed>>();
        Ok(contexts.map_err(|source| NetlinkError::Malformed { request: what, source })?)
    }
}

/// The number of the context that a message is about; `None` for the interface's own table.
fn parse_context(attributes: &[u8]) -> Result<Option<u32>, Malformed> {
    let found = Attributes::new(attributes).find_kind(CONTEXT)?;
    let number = found.map(|attribute| attribute.as_u32()).transpose()?;
    Ok(number.filter(|number| *number != 0))
}

/// Why contexts stand against a change; `None` without any. Drivers that make their receive queues or tables anew drop them
/// (`bnxt_clear_rss_ctxs`), and latput cannot make them again.
pub(crate) fn contexts_obstacle(interface: &str, contexts: &[u32]) -> Option<String> {
    let numbers: Vec<String> = contexts.iter().map(u32::to_string).collect();
    (!contexts.is_empty()).then(|| {
        format!(
            "the driver may drop additional RSS contexts with it ({}): `ethtool -X {interface} context N delete` removes one",
            numbers.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::put;

    #[test]
    fn contexts_are_those_with_a_number() {
        let mut own = Vec::new();
        put(&mut own, 4, &[0; 8]);
        assert_eq!(parse_context(&own).unwrap(), None);
        put(&mut own, CONTEXT, &7_u32.to_ne_bytes());
        assert_eq!(parse_context(&own).unwrap(), Some(7));
        let mut short = Vec::new();
        put(&mut short, CONTEXT, &[1]);
        assert!(parse_context(&short).is_err());
    }

    #[test]
    fn loopback_has_no_contexts() {
        let ethtool = Ethtool::open().unwrap();
        assert!(ethtool.rss_contexts("lo").unwrap().is_empty());
        let error = ethtool.rss_contexts("nobody-has-this").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV), "{error}");
    }

    #[test]
    fn contexts_are_named_in_a_refusal() {
        assert_eq!(contexts_obstacle("eth0", &[]), None);
        let said = contexts_obstacle("eth0", &[1, 3]).unwrap();
        assert!(said.contains("(1, 3)") && said.contains("ethtool -X eth0 context"), "{said}");
    }
}
