//! Sends and receives many datagrams with few system calls: several messages per call (sendmmsg(2),
//! recvmmsg(2)), and several datagrams per message if the kernel cuts and joins them
//! (`UDP_SEGMENT`, `UDP_GRO`; `Documentation/networking/segmentation-offloads.rst`).
#![allow(unsafe_code, reason = "recvmmsg(2) and its control messages have no safe wrapper")]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use libc::{c_int, c_uint, iovec, mmsghdr};
use rustix::io::Errno;

/// Most datagrams of one message: `UDP_MAX_SEGMENTS` of `include/linux/udp.h` up to Linux 6.8;
/// later kernels take 128.
const MOST_SEGMENTS: usize = 64;
/// Most payload of one message: the limit of an IPv4 packet.
const LARGEST_MESSAGE: usize = 65_507;
/// Room for one control message, the size of joined datagrams, aligned for its header.
type SegmentControl = [u64; 4];

/// Datagrams to send, all of one size.
#[expect(missing_debug_implementations, reason = "it holds pointers")]
pub struct Outgoing {
    payload: Box<[u8]>,
    datagram: usize,
    per_message: usize,
    vectors: Box<[iovec]>,
    headers: Box<[mmsghdr]>,
}

impl Outgoing {
    /// Room for `slots` datagrams of `datagram` bytes. Each is a message of its own.
    pub fn new(slots: usize, datagram: usize) -> Self {
        let (vectors, headers) = messages(slots);
        Self {
            payload: vec![0; slots * datagram].into(),
            datagram,
            per_message: 1,
            vectors,
            headers,
        }
    }

    /// Number of datagrams of `datagram` bytes that fit one message.
    pub(crate) fn most_per_message(datagram: usize) -> usize {
        (LARGEST_MESSAGE / datagram.max(1)).clamp(1, MOST_SEGMENTS)
    }

    /// Puts `per_message` datagrams into each message. The sockets must be set to cut them.
    pub(crate) fn set_per_message(&mut self, per_message: usize) {
        self.per_message = per_message.max(1);
    }

    /// Datagrams in a message.
    pub(crate) fn per_message(&self) -> usize {
        self.per_message
    }

    /// The bytes of datagram `idx`.
    pub fn slot_mut(&mut self, idx: usize) -> &mut [u8] {
        &mut self.payload[idx * self.datagram..][..self.datagram]
    }

    /// Sends the first `count` datagrams. Returns how many the kernel took, or its error.
    pub fn send(&mut self, socket: &UdpSocket, count: usize) -> Result<usize, Errno> {
        let message = self.per_message * self.datagram;
        let chunks = self.payload[..count * self.datagram].chunks_mut(message);
        let used = chunks.len();
        for ((chunk, vector), header) in chunks.zip(&mut self.vectors).zip(&mut self.headers) {
            vector.iov_base = chunk.as_mut_ptr().cast();
            vector.iov_len = chunk.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        let used = c_uint::try_from(used).expect("a batch has few slots");
        let headers = self.headers.as_mut_ptr();
        // SAFETY: `count` is at most the slots (the slice above would have panicked), of which there
        // are as many vectors and headers; each of the first `used` headers names one vector and each
        // vector a part of `payload`, all owned by `self`, which stays borrowed until the call returns.
        let sent =
            unsafe { libc::sendmmsg(socket.as_raw_fd(), headers, used, libc::MSG_NOSIGNAL as _) };
        let sent = completed(sent)?;
        // The kernel takes a whole message or none. Only the last message may hold fewer datagrams.
        let bytes: usize = self.headers[..sent].iter().map(|one| one.msg_len as usize).sum();
        Ok(bytes / self.datagram)
    }
}

/// Room for received datagrams.
pub(crate) struct Incoming {
    payload: Box<[u8]>,
    slot_bytes: usize,
    /// Bytes of each message, and the size of the datagrams in it.
    shapes: Box<[(usize, usize)]>,
    controls: Box<[SegmentControl]>,
    vectors: Box<[iovec]>,
    headers: Box<[mmsghdr]>,
}

impl Incoming {
    /// Room for `slots` messages of `slot_bytes`.
    pub(crate) fn new(slots: usize, slot_bytes: usize) -> Self {
        let (vectors, headers) = messages(slots);
        Self {
            payload: vec![0; slots * slot_bytes].into(),
            slot_bytes,
            shapes: vec![(0, 0); slots].into(),
            controls: vec![[0; 4]; slots].into(),
            vectors,
            headers,
        }
    }

    /// Receives the available messages, up to the number of slots, and returns how many. With
    /// `may_wait` it waits for the first one, up to the socket's timeout.
    pub(crate) fn receive(&mut self, socket: &UdpSocket, may_wait: bool) -> Result<usize, Errno> {
        let slots = self.payload.chunks_exact_mut(self.slot_bytes);
        let parts = self.vectors.iter_mut().zip(&mut self.headers).zip(&mut self.controls);
        for (slot, ((vector, header), control)) in slots.zip(parts) {
            vector.iov_base = slot.as_mut_ptr().cast();
            vector.iov_len = slot.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = size_of::<SegmentControl>() as _;
        }
        let count = c_uint::try_from(self.headers.len()).expect("a batch has few slots");
        let flags = if may_wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        let headers = self.headers.as_mut_ptr();
        // SAFETY: every header names one vector, a slot of `payload`, and one control buffer, with
        // their true lengths, all owned by `self`, which stays borrowed until the call returns; there
        // is room for no address.
        let received =
            unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, count, flags as _, null_mut()) };
        let received = completed(received)?;
        for (shape, header) in self.shapes.iter_mut().zip(&self.headers[..received]) {
            let bytes = (header.msg_len as usize).min(self.slot_bytes);
            *shape = (bytes, joined_size(header).unwrap_or(bytes));
        }
        Ok(received)
    }

    /// The datagrams of received message `idx`. The last one is truncated if the slot was too
    /// short.
    pub(crate) fn datagrams(&self, idx: usize) -> impl Iterator<Item = &[u8]> {
        let (bytes, datagram) = self.shapes[idx];
        self.payload[idx * self.slot_bytes..][..bytes].chunks(datagram.max(1))
    }
}

/// The size of the datagrams that the kernel joined into one message; `None` if it did not.
fn joined_size(header: &mmsghdr) -> Option<usize> {
    // SAFETY: the kernel has filled the header's control buffer, which is aligned for its contents and
    // lives in the same batch; CMSG_FIRSTHDR gives null unless a whole control header fits what it
    // filled in.
    let control = unsafe { libc::CMSG_FIRSTHDR(&raw const header.msg_hdr) };
    if control.is_null() {
        return None;
    }
    // SAFETY: not null, so a whole control header is there.
    let kind = unsafe { control.read() };
    if (kind.cmsg_level, kind.cmsg_type) != (libc::SOL_UDP, libc::UDP_GRO) {
        return None;
    }
    // SAFETY: the header is followed by what belongs to it.
    let data = unsafe { libc::CMSG_DATA(control) };
    // SAFETY: for this kind that is an int (udp_cmsg_recv in net/ipv4/udp.c), inside the buffer.
    let size = unsafe { data.cast::<c_int>().read_unaligned() };
    usize::try_from(size).ok().filter(|&size| size > 0)
}

fn messages(count: usize) -> (Box<[iovec]>, Box<[mmsghdr]>) {
    let vector = iovec { iov_base: null_mut(), iov_len: 0 };
    // SAFETY: an mmsghdr is integers and pointers, for which zero (null, length 0) is valid.
    let header: mmsghdr = unsafe { zeroed() };
    (vec![vector; count].into(), vec![header; count].into())
}

fn completed(answer: c_int) -> Result<usize, Errno> {
    usize::try_from(answer)
        .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;
    use crate::socket::{dropped_datagrams, join_receipts, segment_sends};

    #[test]
    fn kernel_counts_datagrams_dropped_from_batches() {
        let (sender, receiver) = pair();
        let mut outgoing = numbered(3, 4);
        assert_eq!(outgoing.send(&sender, 3), Ok(3));
        let mut incoming = Incoming::new(8, 3);
        assert_eq!(incoming.receive(&receiver, true), Ok(3));
        let second: Vec<&[u8]> = incoming.datagrams(1).collect();
        assert_eq!(second, [[1, 1, 1]], "longer than its slot");
        assert_eq!(incoming.receive(&receiver, true), Err(Errno::AGAIN));
        assert_eq!(incoming.receive(&receiver, false), Err(Errno::AGAIN));

        assert_eq!(dropped_datagrams(&receiver), Some(0));
        socket2::SockRef::from(&receiver).set_recv_buffer_size(1).unwrap();
        assert_eq!(numbered(32, 4096).send(&sender, 32), Ok(32));
        assert!(dropped_datagrams(&receiver) > Some(0));
    }

    #[test]
    fn split_and_joined_datagrams_are_equal() {
        for joined in [false, true] {
            let (sender, receiver) = pair();
            assert!(!joined || join_receipts(&receiver));
            assert!(segment_sends(&sender, 100));
            let mut outgoing = numbered(70, 100);
            outgoing.set_per_message(30);
            assert_eq!(outgoing.send(&sender, 70), Ok(70));
            let mut incoming = Incoming::new(70, 65_535);
            let mut seen = Vec::new();
            while let Ok(messages) = incoming.receive(&receiver, false) {
                for idx in 0..messages {
                    seen.extend(incoming.datagrams(idx).map(|one| (one.len(), one[0])));
                }
            }
            let sent: Vec<(usize, u8)> = (0..70).map(|number| (100, number)).collect();
            assert_eq!(seen, sent, "joined: {joined}");
        }
    }

    #[test]
    fn message_holds_what_the_kernel_cuts() {
        assert_eq!(Outgoing::most_per_message(1470), 44);
        assert_eq!(Outgoing::most_per_message(18), 64);
        assert_eq!(Outgoing::most_per_message(40_000), 1);
    }

    fn numbered(count: u8, bytes: usize) -> Outgoing {
        let mut outgoing = Outgoing::new(count.into(), bytes);
        for idx in 0..count {
            outgoing.slot_mut(idx.into()).fill(idx);
        }
        outgoing
    }

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        (sender, receiver)
    }
}
