//! Generic netlink: finds a family by name and knows which commands it has.
//!
//! Numbers: `include/uapi/linux/genetlink.h`.

use super::socket::{Protocol, Socket};
use super::{Attributes, Malformed, NetlinkError, Request, malformed};

const CONTROLLER: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_OPS: u16 = 6;
const CTRL_ATTR_OP_ID: u16 = 1;
/// Length of `struct genlmsghdr`.
const HEADER: usize = 4;

/// A socket to one generic netlink family.
#[derive(Debug)]
pub struct Generic {
    socket: Socket,
    family: &'static str,
    id: u16,
    commands: Vec<u32>,
}

impl Generic {
    /// Opens a socket in the calling thread's namespace and looks the family up. A kernel that does
    /// not have it answers `ENOENT`.
    pub fn open(family: &'static str) -> Result<Self, NetlinkError> {
        let socket = Socket::open(Protocol::Generic)?;
        let what = format!("find the netlink family `{family}`");
        let request = Request::new(what.clone(), CONTROLLER)
            .header(&[CTRL_CMD_GETFAMILY, 1, 0, 0])
            .text(CTRL_ATTR_FAMILY_NAME, family);
        let answer = socket.exchange_for_one(&request)?;
        let (id, commands) = parse_family(&answer)
            .map_err(|source| NetlinkError::Malformed { request: what, source })?;
        Ok(Self { socket, family, id, commands })
    }

    /// Whether this kernel's family has the command.
    pub fn has_command(&self, command: u8) -> bool {
        self.commands.contains(&u32::from(command))
    }

    /// Starts a request of this family.
    pub fn request(&self, what: impl Into<String>, command: u8) -> Request {
        Request::new(what, self.id).header(&[command, 1, 0, 0])
    }

    /// Sends a request and returns the attributes of each message of the answer.
    pub fn exchange(&self, request: &Request) -> Result<Vec<Vec<u8>>, NetlinkError> {
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

fn parse_family(payload: &[u8]) -> Result<(u16, Vec<u32>), Malformed> {
    let attributes = payload.get(HEADER..).ok_or(malformed("a generic header is cut short"))?;
    let mut id = None;
    let mut commands = Vec::new();
    for attribute in Attributes::new(attributes) {
        let attribute = attribute?;
        match attribute.kind {
            CTRL_ATTR_FAMILY_ID => id = Some(attribute.as_u16()?),
            CTRL_ATTR_OPS => {
                for command in attribute.nested() {
                    if let Some(number) = command?.nested().find_kind(CTRL_ATTR_OP_ID)? {
                        commands.push(number.as_u32()?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok((id.ok_or(malformed("a family without an id"))?, commands))
}

#[cfg(test)]
mod tests {
    use super::super::attribute::{put, put_nested};
    use super::*;

    #[test]
    fn a_family_has_an_id_and_commands() {
        let mut payload = vec![1, 2, 0, 0];
        put(&mut payload, CTRL_ATTR_FAMILY_ID, &33_u16.to_ne_bytes());
        put_nested(&mut payload, CTRL_ATTR_OPS, |ops| {
            for (idx, command) in [(1, 11_u32), (2, 14)] {
                put_nested(ops, idx, |op| put(op, CTRL_ATTR_OP_ID, &command.to_ne_bytes()));
            }
        });
        assert_eq!(parse_family(&payload), Ok((33, vec![11, 14])));
    }

    #[test]
    fn a_family_without_an_id_or_cut_short_is_malformed() {
        assert!(parse_family(&[]).is_err());
        assert!(parse_family(&[1, 2, 0, 0]).is_err());
        assert!(parse_family(&[1, 2, 0, 0, 6, 0, 1, 0, 9]).is_err());
    }
}
