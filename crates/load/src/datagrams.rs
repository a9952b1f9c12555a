//! UDP sockets of the traffic. Each flow has one socket at each end, connected to the other.
//!
//! The generator sends the port of each flow on the authenticated TCP connection of that flow. The
//! reflector answers nobody else: on a connected socket the kernel accepts datagrams from its peer
//! only.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};

use latput_trial::SocketOptions;

use crate::dial::unreachable;
use crate::error::Error;
use crate::hello::Hello;
use crate::socket;

/// One flow's socket at this end, connected to the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow<'a> {
    pub(crate) socket: &'a UdpSocket,
    /// The tag of this flow's datagrams in this run.
    pub(crate) tag: u32,
}

/// A UDP socket of `peer`'s address family on any free port.
pub fn bind_same_family(peer: SocketAddr) -> io::Result<UdpSocket> {
    let any = match peer.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    UdpSocket::bind((any, 0))
}

/// Generator end: one socket toward `peer` for each of `flows`.
pub(crate) fn open_generator_sockets(
    peer: SocketAddr,
    flows: usize,
    options: &SocketOptions,
) -> Result<Vec<UdpSocket>, Error> {
    let open = |_| {
        let socket =
            bind_same_family(peer).map_err(|source| Error::io("open a UDP socket", source))?;
        socket::prepare_datagrams(&socket)?;
        socket::apply(&socket, options)?;
        socket.connect(peer).map_err(|source| unreachable(peer, source))?;
        Ok(socket)
    };
    (0..flows).map(open).collect()
}

/// Reflector end: one socket for each flow on the port that `reserved` holds, connected to the
/// authenticated address of the flow.
pub(crate) fn open_reflector_sockets(
    reserved: UdpSocket,
    sockets: &[TcpStream],
    hellos: &[Hello],
    options: &SocketOptions,
) -> Result<Vec<UdpSocket>, Error> {
    let failed = |source| Error::io("direct a UDP socket to the generator", source);
    let here = reserved.local_addr().map_err(failed)?;
    // The reserved socket is connected last. Until then it takes every datagram, so no generator
    // gets a "port unreachable".
    let others = (1..hellos.len()).map(|_| socket::bind_datagrams(here).map_err(failed));
    let mut directed = others.collect::<Result<Vec<_>, _>>()?;
    directed.push(reserved);
    for ((socket, shown_on), hello) in directed.iter().zip(sockets).zip(hellos) {
        let peer = shown_on.peer_addr().map_err(failed)?.ip();
        socket::prepare_datagrams(socket)?;
        socket::apply(socket, options)?;
        socket.connect(SocketAddr::new(peer, hello.udp_port)).map_err(failed)?;
    }
    Ok(directed)
}

/// The flows of one generator thread. `tag` is the tag of the run's first flow.
pub(crate) fn build_flows(sockets: &[UdpSocket], first: usize, tag: u32) -> Vec<Flow<'_>> {
    (first..)
        .zip(sockets)
        .map(|(place, socket)| Flow { socket, tag: flow_tag(tag, place) })
        .collect()
}

/// The tag of flow `place`, different for each flow of a run.
pub(crate) fn flow_tag(tag: u32, place: usize) -> u32 {
    tag.wrapping_add(u32::try_from(place).expect("connections are counted in 32 bits"))
}

/// The local port of a socket; 0 without a socket.
pub(crate) fn local_port(socket: Option<&UdpSocket>) -> Result<u16, Error> {
    let port = socket.map(|socket| socket.local_addr().map(|address| address.port()));
    let failed = |source: io::Error| Error::io("read the port of a UDP socket", source);
    port.transpose().map_err(failed).map(|port| port.unwrap_or(0))
}
