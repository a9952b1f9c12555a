//! Generic netlink: finds a family by name and knows which commands it has.

use super::socket::{Protocol, Socket};
use super::{Attributes, Malformed, NetlinkError, Request, malformed, uapi};

const CONTROLLER: u16 = 16;
/// Length of `struct genlmsghdr`.
const HEADER: usize = 4;

/// A socket to one generic netlink family.
#[derive(Debug)]
pub(crate) struct Generic {
    socket: Socket,
    family: &'static str,
    known: Family,
}

/// The kernel's description of a family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Family {
    id: u16,
    commands: Vec<u32>,
    /// Multicast groups: name and number.
    groups: Vec<(String, u32)>,
}

impl Generic {
    /// Opens a socket in the calling thread's namespace and looks the family up. A kernel that does
    /// not have it answers `ENOENT`.
    pub(crate) fn open(family: &'static str) -> Result<Self, NetlinkError> {
        let socket = Socket::open(Protocol::Generic)?;
        let what = format!("find the netlink family `{family}`");
        let request = Request::new(what.clone(), CONTROLLER)
            .header(&[uapi::CTRL_CMD_GETFAMILY, 1, 0, 0])
            .text(uapi::CTRL_ATTR_FAMILY_NAME, family);
        let answer = socket.exchange_for_one(&request)?;
        let known = parse_family(&answer)
            .map_err(|source| NetlinkError::Malformed { request: what, source })?;
        Ok(Self { socket, family, known })
    }

    /// Whether this kernel's family has the command.
    pub(crate) fn has_command(&self, command: u8) -> bool {
        self.known.commands.contains(&u32::from(command))
    }

    /// The number of a multicast group, if this kernel's family has it.
    pub(crate) fn group(&self, name: &str) -> Option<u32> {
        self.known.groups.iter().find(|(known, _)| known == name).map(|(_, id)| *id)
    }

    /// Starts a request of this family.
    pub(crate) fn request(&self, what: impl Into<String>, command: u8) -> Request {
        Request::new(what, self.known.id).header(&[command, 1, 0, 0])
    }

    /// Sends a request and returns the attributes of each message of the answer.
    pub(crate) fn exchange(&self, request: &Request) -> Result<Vec<Vec<u8>>, NetlinkError> {
        let mut answer = self.socket.exchange(request)?;
        for message in &mut answer {
            if message.len() < HEADER {
                return Err(NetlinkError::Malformed {
                    request: format!("{} ({})", request.what(), self.family),
                    source: malformed("a generic header is cut short"),
                });
            }
            message.drain(..HEADER);
        }
        Ok(answer)
    }
}

/// For the fuzzer: whatever a kernel might answer.
pub(crate) fn parse_any(payload: &[u8]) {
    let _ = parse_family(payload);
}

fn parse_family(payload: &[u8]) -> Result<Family, Malformed> {
    let attributes = payload.get(HEADER..).ok_or(malformed("a generic header is cut short"))?;
    let mut family = Family::default();
    let mut has_id = false;
    for attribute in Attributes::new(attributes) {
        let attribute = attribute?;
        match attribute.kind {
            uapi::CTRL_ATTR_FAMILY_ID => {
                family.id = attribute.as_u16()?;
                has_id = true;
            }
            uapi::CTRL_ATTR_OPS => {
                for command in attribute.nested() {
                    if let Some(number) = command?.nested().find_kind(uapi::CTRL_ATTR_OP_ID)? {
                        family.commands.push(number.as_u32()?);
                    }
                }
            }
            uapi::CTRL_ATTR_MCAST_GROUPS => {
                for group in attribute.nested() {
                    let group = group?.nested();
                    let name = group.clone().find_kind(uapi::CTRL_ATTR_MCAST_GRP_NAME)?;
                    if let (Some(name), Some(id)) =
                        (name, group.find_kind(uapi::CTRL_ATTR_MCAST_GRP_ID)?)
                    {
                        family.groups.push((name.as_text().into_owned(), id.as_u32()?));
                    }
                }
            }
            _ => {}
        }
    }
    if has_id { Ok(family) } else { Err(malformed("a family without an id")) }
}

#[cfg(test)]
mod tests {
    use super::super::attribute::{put, put_nested};
    use super::*;

    #[test]
    fn family_has_an_id_and_commands() {
        let mut payload = vec![1, 2, 0, 0];
        put(&mut payload, uapi::CTRL_ATTR_FAMILY_ID, &33_u16.to_ne_bytes());
        put_nested(&mut payload, uapi::CTRL_ATTR_OPS, |ops| {
            for (idx, command) in [(1, 11_u32), (2, 14)] {
                put_nested(ops, idx, |op| put(op, uapi::CTRL_ATTR_OP_ID, &command.to_ne_bytes()));
            }
        });
        put_nested(&mut payload, uapi::CTRL_ATTR_MCAST_GROUPS, |groups| {
            put_nested(groups, 1, |group| {
                put(group, uapi::CTRL_ATTR_MCAST_GRP_ID, &5_u32.to_ne_bytes());
                put(group, uapi::CTRL_ATTR_MCAST_GRP_NAME, b"monitor\0");
            });
            put_nested(groups, 2, |_| {});
        });
        let groups = vec![("monitor".to_owned(), 5)];
        assert_eq!(parse_family(&payload), Ok(Family { id: 33, commands: vec![11, 14], groups }));
    }

    #[test]
    fn cut_family_answer_is_malformed() {
        assert!(parse_family(&[]).is_err());
        assert!(parse_family(&[1, 2, 0, 0]).is_err());
        assert!(parse_family(&[1, 2, 0, 0, 6, 0, 1, 0, 9]).is_err());
    }
}
