//! The kernel's own view of TCP connections: `sock_diag(7)` with `struct tcp_info`.
//!
//! Layouts: `include/uapi/linux/inet_diag.h` and `include/uapi/linux/tcp.h`. The kernel only ever appends to `struct tcp_info`,
//! so a field that an older kernel lacks is absent, and what a newer one adds is not read.

mod ended;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use latput_units::{IntoSet, Nanos};

pub use self::ended::{ConnectionEnds, EndedConnections};
use crate::error::Error;
use crate::netlink::{Attributes, Malformed, NetlinkError, Protocol, Request, Socket, malformed};

/// `SOCK_DIAG_BY_FAMILY`, `include/uapi/linux/sock_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `INET_DIAG_INFO`, the attribute with `struct tcp_info`.
const INET_DIAG_INFO: u16 = 2;
/// States as bits of `idiag_states`, `include/net/tcp_states.h`: `TCP_ESTABLISHED`, and those of an end that closes and may
/// still have data on its way (`TCP_FIN_WAIT1`, `TCP_FIN_WAIT2`, `TCP_CLOSE_WAIT`, `TCP_LAST_ACK`, `TCP_CLOSING`).
const CONNECTED: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// `TCP_LISTEN`.
const LISTENING: u32 = 1 << 10;
/// Bytes of `struct inet_diag_req_v2` without its `struct inet_diag_sockid`, and of that.
const REQUEST_HEAD_BYTES: usize = 8;
const SOCKET_ID_BYTES: usize = 48;
/// Bytes of `struct inet_diag_msg`.
const MESSAGE_BYTES: usize = 72;
/// `AF_INET` and `AF_INET6`, and how many bytes an address of each has.
const FAMILIES: [(u8, usize); 2] = [(2, 4), (10, 16)];
/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// Reads TCP connections. Belongs to the network namespace of the thread that opened it, and needs no rights.
#[derive(Debug)]
pub struct TcpMeter {
    socket: Socket,
}

/// A connection. What the kernel does not say is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConnection {
    /// The kernel's number of the socket: unlike addresses and ports it is not used again.
    pub cookie: u64,
    /// This end: address and port.
    pub local: (IpAddr, u16),
    /// The other end: address and port.
    pub remote: (IpAddr, u16),
    /// Smoothed round-trip time (`tcpi_rtt`, RFC 6298). Zero until one was measured.
    pub rtt: Nanos,
    /// Its mean deviation (`tcpi_rttvar`).
    pub rtt_deviation: Nanos,
    /// Shortest round trip of late (`tcpi_min_rtt`, Linux 4.6).
    pub min_rtt: Option<Nanos>,
    /// Segments sent again in its life (`tcpi_total_retrans`).
    pub retransmitted: u32,
    /// Payload that the other end has acknowledged (`tcpi_bytes_acked`, Linux 4.1).
    pub acked_bytes: Option<u64>,
    /// Payload received (`tcpi_bytes_received`, Linux 4.1).
    pub received_bytes: Option<u64>,
    /// Payload delivered in a round trip of late, bytes per second (`tcpi_delivery_rate`, Linux 4.9).
    pub delivery_bytes_per_s: Option<u64>,
    /// Time since it last sent data, or received data or an acknowledgement (`tcpi_last_*`), to some milliseconds.
    pub idle: Nanos,
}

impl TcpMeter {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel has no `NETLINK_SOCK_DIAG`.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { socket: Socket::open(Protocol::SockDiag)? })
    }

    /// Every connection of the namespace, over IPv4 and IPv6: established, or closing with data that may be on its way.
    ///
    /// # Errors
    ///
    /// The kernel refuses (its module `tcp_diag` is missing), or its answer makes no sense.
    pub fn connections(&self) -> Result<Vec<TcpConnection>, Error> {
        self.sockets(CONNECTED, connection)
    }

    /// The ports on which the namespace listens, over IPv4 and IPv6.
    ///
    /// # Errors
    ///
    /// As [`Self::connections`].
    pub fn listening_ports(&self) -> Result<BTreeSet<u16>, Error> {
        let port = |message: &[u8], _| local_port(message).map(Some);
        Ok(self.sockets(LISTENING, port)?.into_set())
    }

    /// Reads every socket that is in one of these states. `read` gets the message and an address's length in bytes.
    fn sockets<T>(
        &self,
        states: u32,
        read: impl Fn(&[u8], usize) -> Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>, Error> {
        let mut found = Vec::new();
        for (family, address_bytes) in FAMILIES {
            let request = request(family, states);
            let answers = match self.socket.exchange(&request) {
                Ok(answers) => answers,
                // A kernel without IPv6 has no connections over it.
                Err(error) if family != FAMILIES[0].0 && error.errno() == Some(libc::ENOENT) => {
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for answer in answers {
                let one = read(&answer, address_bytes).map_err(|source| {
                    NetlinkError::Malformed { request: request.what().to_owned(), source }
                })?;
                found.extend(one);
            }
        }
        Ok(found)
    }
}

/// The request for a family's sockets in these states.
fn request(family: u8, states: u32) -> Request {
    let mut header = [0; REQUEST_HEAD_BYTES + SOCKET_ID_BYTES];
    header[0] = family;
    header[1] = TCP;
    header[2] = 1 << (INET_DIAG_INFO - 1);
    header[4..8].copy_from_slice(&states.to_ne_bytes());
    Request::new("list the TCP sockets", SOCK_DIAG_BY_FAMILY).header(&header).dump()
}

/// One connection of an answer; `None` if the kernel gives no `struct tcp_info` of it.
fn connection(message: &[u8], address_bytes: usize) -> Result<Option<TcpConnection>, Malformed> {
    let head = Fields(message.get(..MESSAGE_BYTES).ok_or(malformed("a socket is cut short"))?);
    let attributes = Attributes::new(&message[MESSAGE_BYTES..]);
    let Some(info) = attributes.find_kind(INET_DIAG_INFO)? else { return Ok(None) };
    let info = Fields(info.payload);
    let short = || malformed("a socket's `tcp_info` is cut short");
    let us = |micros: u32| Nanos::from_us(micros.into());
    let ms = |millis: u32| Nanos::from_ms(millis.into());
    let end = |port: usize, address: usize| {
        let port = u16::from_be_bytes(head.at(port).ok_or(malformed("a port is missing"))?);
        let address = head.0.get(address..address + address_bytes);
        Ok((ip(address.ok_or(malformed("an address is missing"))?)?, port))
    };
    Ok(Some(TcpConnection {
        cookie: head.u64(44).ok_or(malformed("a cookie is missing"))?,
        local: end(4, 8)?,
        remote: end(6, 24)?,
        rtt: info.u32(68).map(us).ok_or_else(short)?,
        rtt_deviation: info.u32(72).map(us).ok_or_else(short)?,
        min_rtt: info.u32(148).filter(|micros| *micros != u32::MAX).map(us),
        retransmitted: info.u32(100).ok_or_else(short)?,
        acked_bytes: info.u64(120),
        received_bytes: info.u64(128),
        delivery_bytes_per_s: info.u64(160),
        idle: [44, 52, 56].into_iter().filter_map(|at| info.u32(at)).min().map_or(Nanos::ZERO, ms),
    }))
}

/// The port of this end.
fn local_port(message: &[u8]) -> Result<u16, Malformed> {
    Fields(message).at(4).map(u16::from_be_bytes).ok_or(malformed("a port is missing"))
}

/// An address; one of IPv4 within IPv6 is of IPv4.
fn ip(bytes: &[u8]) -> Result<IpAddr, Malformed> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Ok(Ipv4Addr::from(bytes).into());
    }
    let bytes = <[u8; 16]>::try_from(bytes).map_err(|_| malformed("an address is no address"))?;
    Ok(Ipv6Addr::from(bytes).to_canonical())
}

/// A structure of the kernel by its offsets.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..)?.first_chunk().copied()
    }

    fn u32(&self, offset: usize) -> Option<u32> {
        self.at(offset).map(u32::from_ne_bytes)
    }

    fn u64(&self, offset: usize) -> Option<u64> {
        self.at(offset).map(u64::from_ne_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use latput_units::SeededRng;

    use super::*;
    use crate::netlink::message::put;

    #[test]
    fn own_connections_have_round_trip_time() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue }; // no IPv6 here
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut far = listener.accept().unwrap().0;
            near.write_all(b"ask").unwrap();
            far.read_exact(&mut [0; 3]).unwrap();
            far.write_all(b"answer").unwrap();
            near.read_exact(&mut [0; 6]).unwrap();
            let meter = TcpMeter::open().unwrap();
            let listening = meter.listening_ports().unwrap();
            assert!(listening.contains(&listener.local_addr().unwrap().port()), "{listening:?}");
            assert!(!listening.contains(&near.local_addr().unwrap().port()), "{listening:?}");
            let found = meter.connections().unwrap();
            let of = |stream: &TcpStream| {
                let (local, remote) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
                let ends = ((local.ip(), local.port()), (remote.ip(), remote.port()));
                *found.iter().find(|one| (one.local, one.remote) == ends).unwrap()
            };
            let (near, far) = (of(&near), of(&far));
            assert_ne!(near.cookie, far.cookie);
            assert!(near.rtt > Nanos::ZERO && near.rtt < Nanos::from_s(10), "{near:?}");
            // The kernel counts the handshake's SYN as a byte in some versions.
            assert!(near.acked_bytes.is_none_or(|bytes| (3..=4).contains(&bytes)), "{near:?}");
            assert!(near.received_bytes.is_none_or(|bytes| bytes == 6), "{near:?}");
        }
    }

    #[test]
    fn answer_of_old_kernel_lacks_new_fields() {
        let connection = connection(&message(104), 4).unwrap().unwrap();
        assert_eq!(connection.local, (Ipv4Addr::new(10, 0, 0, 1).into(), 443));
        assert_eq!(connection.remote, (Ipv4Addr::new(10, 0, 0, 2).into(), 50_000));
        assert_eq!(
            (connection.rtt, connection.rtt_deviation),
            (Nanos::from_us(250), Nanos::from_us(30))
        );
        assert_eq!((connection.retransmitted, connection.cookie), (7, 0x0102_0304_0506_0708));
        assert_eq!((connection.min_rtt, connection.acked_bytes), (None, None));
        assert_eq!(connection.idle, Nanos::from_ms(30), "the latest of its three");
        let newer = super::connection(&message(300), 4).unwrap().unwrap();
        assert_eq!((newer.min_rtt, newer.delivery_bytes_per_s), (Some(Nanos::ZERO), Some(0)));
        assert!(super::connection(&message(90), 4).is_err(), "no kernel has had less");
        assert_eq!(super::connection(&message(300)[..MESSAGE_BYTES], 4), Ok(None));
    }

    #[test]
    fn cut_and_random_answers_never_panic() {
        let whole = message(232);
        for length in 0..whole.len() {
            let _ = connection(&whole[..length], 4);
            let _ = connection(&whole[..length], 16);
        }
        let mut rng = SeededRng::from_seed(5);
        for _ in 0..2_000 {
            let length = rng.next_below(400);
            let bytes: Vec<u8> =
                (0..length).map(|_| u8::try_from(rng.next_below(256)).unwrap()).collect();
            let _ = connection(&bytes, 16);
        }
    }

    /// A socket from 10.0.0.1:443 to 10.0.0.2:50000, with so many bytes of `struct tcp_info`.
    pub(super) fn message(info_bytes: usize) -> Vec<u8> {
        let mut message = vec![0; MESSAGE_BYTES];
        message[4..6].copy_from_slice(&443_u16.to_be_bytes());
        message[6..8].copy_from_slice(&50_000_u16.to_be_bytes());
        message[8..12].copy_from_slice(&[10, 0, 0, 1]);
        message[24..28].copy_from_slice(&[10, 0, 0, 2]);
        message[44..52].copy_from_slice(&0x0102_0304_0506_0708_u64.to_ne_bytes());
        let mut info = vec![0; info_bytes.max(104)];
        info[68..72].copy_from_slice(&250_u32.to_ne_bytes());
        info[72..76].copy_from_slice(&30_u32.to_ne_bytes());
        info[100..104].copy_from_slice(&7_u32.to_ne_bytes());
        for (at, ms) in [(44, 90_u32), (52, 30), (56, 40)] {
            info[at..at + 4].copy_from_slice(&ms.to_ne_bytes());
        }
        info.truncate(info_bytes);
        put(&mut message, INET_DIAG_INFO, &info);
        message
    }
}
