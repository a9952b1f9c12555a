//! From the name of a host to its addresses, without the C library's resolver.
//!
//! A static latput must not call `getaddrinfo`: glibc then loads its modules (NSS) at run time, and
//! those of another version crash it. See docs/adr/009-names-without-nss.md. Where the host has
//! `getent`, that is asked: it knows all sources that the host is configured for. Else `/etc/hosts`
//! and the name servers of `/etc/resolv.conf` are.

mod config;
mod dns;
mod getent;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use config::{Hosts, ServerConfig};

/// DNS names are shorter (RFC 1035, section 2.3.4); other sources know none that is longer.
const NAME_BYTES_MOST: usize = 253;

/// Why a name has no address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No host can be called so.
    #[error("it is no name of a host")]
    Invalid,
    /// Everybody who was asked says that there is no such name, or that it has no address.
    #[error("no address is known for it ({asked})")]
    Unknown {
        /// The files and servers asked.
        asked: String,
    },
    /// A name server gave no usable answer.
    #[error("name server {server}: {problem}")]
    Server {
        /// Its address.
        server: SocketAddr,
        /// The fault of its answer.
        problem: String,
    },
    /// A file or program of this host failed.
    #[error("cannot {operation}: {source}")]
    Io {
        /// The operation that failed: `read /etc/hosts`.
        operation: String,
        /// Why not.
        source: io::Error,
    },
}

/// The addresses of `name`, an IP address or the name of a host; at least one, the best first.
///
/// Waits as long as `getent` does, or as `/etc/resolv.conf` says.
pub fn resolve(name: &str) -> Result<Vec<IpAddr>, Error> {
    if let Ok(address) = name.parse() {
        return Ok(vec![address]);
    }
    let is_odd = |c: char| c.is_whitespace() || c.is_control();
    if name.is_empty()
        || name.len() > NAME_BYTES_MOST
        || name.starts_with('-')
        || name.contains(is_odd)
    {
        return Err(Error::Invalid);
    }
    match getent::ask(name)? {
        Some(addresses) => Ok(addresses),
        None => by_files(name, &Hosts::read()?, &ServerConfig::read()?),
    }
}

/// Looks into the hosts file, then asks the name servers.
fn by_files(name: &str, hosts: &Hosts, servers: &ServerConfig) -> Result<Vec<IpAddr>, Error> {
    let name_in_files = name.strip_suffix('.').unwrap_or(name);
    let listed = hosts.addresses(name_in_files);
    if !listed.is_empty() {
        return Ok(best_first(listed));
    }
    // RFC 6761, section 6.3: it is never asked for.
    if name_in_files.eq_ignore_ascii_case("localhost") {
        return Ok(best_first(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]));
    }
    dns::ask(name, servers).map(best_first)
}

/// Those that this host has a way to come first, as RFC 6724 has it (rule 1); else the order stays.
fn best_first(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    addresses.sort_by_key(|address| !has_route(*address));
    addresses
}

/// A UDP socket connects where there is a route; nothing is sent.
fn has_route(address: IpAddr) -> bool {
    UdpSocket::bind(dns::any_address_like(address))
        .and_then(|socket| socket.connect((address, config::PORT)))
        .is_ok()
}

#[cfg(test)]
mod tests;
