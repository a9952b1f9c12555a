//! One connection: blocking calls, one read and one send call per wake-up.

use std::io::IoSlice;
use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::{MMsgHdr, RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmmsg};

use super::{InFlight, SEND_BATCH, Side};
use crate::clock::now;
use crate::error::Error;
use crate::meter::{Meter, Phase};
use crate::workers::WorkerContext;

pub(super) fn run(
    worker: &WorkerContext<'_>,
    socket: &TcpStream,
    side: &Side,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    let message = vec![0_u8; side.outgoing];
    let payload = [IoSlice::new(&message)];
    let mut controls: Vec<_> = (0..SEND_BATCH).map(|_| SendAncillaryBuffer::new(&mut [])).collect();
    let mut batch: Vec<_> =
        controls.iter_mut().map(|control| MMsgHdr::new(&payload, control)).collect();
    let flags = side.send_flags();
    let mut buffer = side.read_buffer();
    let mut in_flight = InFlight::default();
    let mut partial = 0;

    let first = side.first_messages();
    if side.leads {
        in_flight.sent(now(), first);
    }
    if let Err(errno) = send_messages(socket, first, &message, &mut batch, flags) {
        return worker.closed(Some(errno));
    }
    loop {
        let bytes = match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => return worker.closed(None),
            Ok((bytes, _)) => bytes,
            Err(Errno::INTR) => continue,
            Err(errno) => return worker.closed(Some(errno)),
        };
        let now = now();
        if meter.phase(now) == Phase::Over {
            return Ok(());
        }
        let messages = side.completed(&mut partial, bytes);
        if let Err(errno) = send_messages(socket, messages, &message, &mut batch, flags) {
            return worker.closed(Some(errno));
        }
        // Record the figures while the peer works.
        meter.received(bytes, messages);
        meter.sent(messages as usize * side.outgoing);
        if side.leads {
            in_flight.answered(now, messages, meter);
            in_flight.sent(now, messages);
        }
        meter.done(now, u64::from(messages));
    }
}

/// Sends `count` messages, as many as possible per system call.
fn send_messages(
    socket: &TcpStream,
    count: u32,
    message: &[u8],
    batch: &mut [MMsgHdr<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut left = count as usize;
    while left > 1 {
        let group = left.min(batch.len());
        match sendmmsg(socket, &mut batch[..group], flags) {
            Ok(sent) => {
                left -= sent;
                // The kernel stops after a message that a signal interrupted.
                let cut =
                    sent.checked_sub(1).map_or(message.len(), |last| batch[last].bytes_sent());
                send_all(socket, &message[cut.min(message.len())..], flags)?;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    if left == 1 { send_all(socket, message, flags) } else { Ok(()) }
}

fn send_all(socket: &TcpStream, mut rest: &[u8], flags: SendFlags) -> Result<(), Errno> {
    while !rest.is_empty() {
        match send(socket, rest, flags) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
