//! Entry points of the fuzz targets in `fuzz/`: every parser of network bytes. None may panic.

use latput_units::Nanos;

use crate::hello::Hello;
use crate::kind::{udp, udp_rr};
use crate::probe;

/// Parses the first bytes on a data connection. Bytes without the key must be refused.
pub fn hello(bytes: &[u8]) {
    let Some(shown) = bytes.first_chunk() else { return };
    let key = "7".repeat(64).parse().expect("it is a key");
    assert!(Hello::decode(shown, &key).is_none());
}

/// Parses datagrams, each of the size in the first byte: as a stream, as requests and responses,
/// and as echo replies.
pub fn datagrams(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let size = usize::from(*size).max(1);
    let datagrams: Vec<(Nanos, &[u8])> =
        bytes.chunks(size).zip(0..).map(|(one, at)| (Nanos::from_us(at), one)).collect();
    udp::read_any(&datagrams, size);
    udp_rr::read_any(&datagrams, size);
    for (_, datagram) in datagrams {
        probe::read_any(datagram);
    }
}
