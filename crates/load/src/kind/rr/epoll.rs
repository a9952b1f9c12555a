//! Many connections, or messages that may fill both ends' buffers: level-triggered epoll.

use std::io::IoSlice;
use std::net::TcpStream;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{MMsgHdr, RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmmsg};

use super::{CHUNK_BYTES, InFlight, SEND_BATCH, Side};
use crate::clock::now;
use crate::error::Error;
use crate::meter::{Meter, Phase};
use crate::poll::{self, Poll};
use crate::workers::WorkerContext;

/// One connection with its state.
struct Connection<'a> {
    socket: &'a TcpStream,
    id: usize,
    /// Received bytes of an incomplete message.
    partial_in: usize,
    /// Messages still to send, including a partly sent one.
    to_send: usize,
    /// Sent bytes of a partly sent message.
    partial_out: usize,
    /// Send times of its messages, at the leading end, which measures round trips.
    in_flight: Option<InFlight>,
    waits_to_write: bool,
}

/// State shared by the connections.
struct Exchange<'s, 'm, 'b> {
    poll: Poll,
    side: &'s Side,
    /// A message, or the largest part of one that is sent at once.
    message: &'m [u8],
    batch: &'b mut [MMsgHdr<'m>],
    flags: SendFlags,
    buffer: Vec<u8>,
}

/// The reason for the end of the traffic.
enum End {
    Over,
    Closed(Option<Errno>),
}

pub(super) fn run(
    worker: &WorkerContext<'_>,
    sockets: &[TcpStream],
    side: &Side,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    let message = vec![0_u8; side.outgoing.min(CHUNK_BYTES)];
    let payload = [IoSlice::new(&message)];
    let mut controls: Vec<_> = (0..SEND_BATCH).map(|_| SendAncillaryBuffer::new(&mut [])).collect();
    let mut batch: Vec<_> =
        controls.iter_mut().map(|control| MMsgHdr::new(&payload, control)).collect();
    let mut exchange = Exchange {
        poll: Poll::new(worker.run.polling)?,
        side,
        message: &message,
        batch: &mut batch,
        flags: side.send_flags() | SendFlags::DONTWAIT,
        buffer: side.read_buffer(),
    };
    match exchange.serve(sockets, meter)? {
        End::Over => Ok(()),
        End::Closed(errno) => worker.closed(errno),
    }
}

impl Exchange<'_, '_, '_> {
    fn serve(&mut self, sockets: &[TcpStream], meter: &mut Meter<'_>) -> Result<End, Error> {
        let mut connections = Vec::with_capacity(sockets.len());
        for (id, socket) in sockets.iter().enumerate() {
            self.poll.add(socket, id, EventFlags::IN)?;
            connections.push(Connection::new(socket, id, self.side.leads));
        }
        for connection in &mut connections {
            connection.owe(now(), self.side.first_messages());
            if let Err(errno) = self.write(connection, meter) {
                return Ok(End::Closed(Some(errno)));
            }
        }
        let mut events = poll::events();
        loop {
            self.poll.wait(&mut events, None)?;
            for event in &events {
                let connection = &mut connections[poll::id(event)];
                if let Some(end) = self.turn(connection, event.flags, meter) {
                    return Ok(end);
                }
            }
        }
    }

    /// Reads once, answers the completed messages, and continues blocked sends.
    fn turn(
        &mut self,
        connection: &mut Connection<'_>,
        events: EventFlags,
        meter: &mut Meter<'_>,
    ) -> Option<End> {
        let mut bytes = 0;
        if events != EventFlags::OUT {
            bytes = match recv(connection.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Some(End::Closed(None)),
                Ok((bytes, _)) => bytes,
                Err(Errno::INTR | Errno::AGAIN) => 0,
                Err(errno) => return Some(End::Closed(Some(errno))),
            };
        }
        let now = now();
        if meter.phase(now) == Phase::Over {
            return Some(End::Over);
        }
        let messages = self.side.completed(&mut connection.partial_in, bytes);
        meter.received(bytes, messages);
        if let Some(in_flight) = connection.in_flight.as_mut().filter(|_| messages > 0) {
            in_flight.answered(now, messages, meter);
        }
        meter.done(now, u64::from(messages));
        connection.owe(now, messages);
        self.write(connection, meter).err().map(|errno| End::Closed(Some(errno)))
    }

    /// Sends due messages as far as the socket buffer has room.
    fn write(
        &mut self,
        connection: &mut Connection<'_>,
        meter: &mut Meter<'_>,
    ) -> Result<(), Errno> {
        while connection.to_send > 0 {
            let sent = match self.send_some(connection) {
                Ok(sent) => sent,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            };
            meter.sent(sent);
            connection.partial_out += sent;
            connection.to_send -= connection.partial_out / self.side.outgoing;
            connection.partial_out %= self.side.outgoing;
        }
        let waits_to_write = connection.to_send > 0;
        if waits_to_write != connection.waits_to_write {
            connection.waits_to_write = waits_to_write;
            let wanted =
                if waits_to_write { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            self.poll.modify(connection.socket, connection.id, wanted)?;
        }
        Ok(())
    }

    /// Makes one send call. Returns the bytes that the kernel took.
    fn send_some(&mut self, connection: &Connection<'_>) -> Result<usize, Errno> {
        let whole = self.side.outgoing;
        if connection.partial_out > 0 || connection.to_send == 1 || whole > self.message.len() {
            let left = whole - connection.partial_out;
            let piece = &self.message[..left.min(self.message.len())];
            return send(connection.socket, piece, self.flags);
        }
        let group = connection.to_send.min(self.batch.len());
        let sent = sendmmsg(connection.socket, &mut self.batch[..group], self.flags)?;
        Ok(self.batch[..sent].iter().map(MMsgHdr::bytes_sent).sum())
    }
}

impl<'a> Connection<'a> {
    fn new(socket: &'a TcpStream, id: usize, leads: bool) -> Self {
        Self {
            socket,
            id,
            partial_in: 0,
            to_send: 0,
            partial_out: 0,
            in_flight: leads.then(InFlight::default),
            waits_to_write: false,
        }
    }

    /// Adds `messages` to send from `now` on.
    fn owe(&mut self, now: latput_units::Nanos, messages: u32) {
        self.to_send += messages as usize;
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.sent(now, messages);
        }
    }
}
