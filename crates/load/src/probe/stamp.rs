//! Receive timestamps of the kernel, as ping(8) uses them. Without them a round trip includes the
//! time until this process gets a CPU.

#![allow(unsafe_code, reason = "recvmsg(2) with receive timestamps has no safe wrapper")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use latput_units::Nanos;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use socket2::Socket;

use crate::clock::{self, from_timespec};
use crate::rights::write_option;

/// Room for one control message with a time.
const CONTROL_BYTES: usize = 64;

/// A buffer for control messages, aligned as their headers must be.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// Asks the kernel to timestamp received packets. If it refuses, packets have no timestamp.
pub(super) fn enable(socket: &Socket) {
    let refused =
        write_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).is_err();
    if refused {
        tracing::info!("the kernel does not stamp echo replies; this process's clock is used");
    }
}

/// Receives one packet without waiting. Returns its length and the kernel's receive time (realtime
/// clock).
pub(super) fn receive(socket: &Socket, packet: &mut [u8]) -> Result<(usize, Option<Nanos>), Errno> {
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
    // SAFETY: all zeroes are a valid msghdr: null pointers and lengths of nothing.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the header points to `packet` and `control` with their lengths, which outlive the call.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let Ok(bytes) = usize::try_from(got) else {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    Ok((bytes, stamp(&header)))
}

/// The time among the control messages of a header that `recvmsg` filled.
fn stamp(header: &libc::msghdr) -> Option<Nanos> {
    // SAFETY: the kernel set the header's control buffer and its length; the macros stay within them.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: not null, so it is a whole control message header in the buffer, which is aligned.
        let message = unsafe { &*next };
        if message.cmsg_level == libc::SOL_SOCKET && message.cmsg_type == libc::SCM_TIMESTAMPNS {
            // SAFETY: this points behind the header, in the same buffer.
            let data = unsafe { libc::CMSG_DATA(next) };
            // SAFETY: the data of a message of this type is a timespec; it need not be aligned.
            let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
            let (s, ns) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
            return Some(Nanos::from_ns(s.checked_mul(1_000_000_000)?.checked_add(ns)?));
        }
        // SAFETY: `next` is a control message of this header.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    None
}

/// The instant of [`clock::now`]'s clock at which a packet came that was stamped at `realtime`; `None`
/// where the realtime clock was set meanwhile, so that it would have come before `earliest` or not yet.
pub(super) fn instant(realtime: Nanos, earliest: Nanos) -> Option<Nanos> {
    let (wall, now) = (from_timespec(clock_gettime(ClockId::Realtime)), clock::now());
    translated(realtime, (wall, now), earliest)
}

fn translated(realtime: Nanos, (wall, now): (Nanos, Nanos), earliest: Nanos) -> Option<Nanos> {
    let age = wall.as_ns().checked_sub(realtime.as_ns())?;
    let at = Nanos::from_ns(now.as_ns().checked_sub(age)?);
    (at >= earliest).then_some(at)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn waiting_packet_keeps_its_arrival_time() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = receiver.local_addr().unwrap();
        let receiver = Socket::from(receiver);
        enable(&receiver);
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // A busy machine may hold this thread up between a look at a clock and the packet.
        let is_stamped_early = (0..20).any(|_| {
            // The kernel begins to stamp a moment after it was asked to.
            thread::sleep(Duration::from_millis(50));
            let before = clock::now();
            sender.send_to(&[1, 2, 3], address).unwrap();
            let sent = clock::now();
            thread::sleep(Duration::from_millis(50));
            let (bytes, realtime) = receive(&receiver, &mut [0; 16]).unwrap();
            assert_eq!(bytes, 3);
            let at = realtime.and_then(|realtime| instant(realtime, before));
            // It is read 50 ms later. The conversion between two clocks is off by the time between both looks.
            at.is_some_and(|at| at <= sent + Nanos::from_ms(25))
        });
        assert!(is_stamped_early, "20 packets have the time at which they were read, or none");
        assert_eq!(receive(&receiver, &mut [0; 16]).unwrap_err(), Errno::AGAIN);
    }

    #[test]
    fn clock_that_was_set_tells_nothing() {
        let ms = Nanos::from_ms;
        let clocks = (ms(1_000_000), ms(500));
        assert_eq!(translated(ms(999_999), clocks, ms(400)), Some(ms(499)));
        assert_eq!(translated(ms(1_000_001), clocks, ms(400)), None, "in the future");
        assert_eq!(translated(ms(999_000), clocks, ms(400)), None, "before it was asked for");
        assert_eq!(translated(ms(999_899), clocks, ms(400)), None, "1 ms before");
    }
}
