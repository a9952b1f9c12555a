//! The client: one connection, one thread, blocking calls.

use std::net::TcpStream;

use latput_stats::Histogram;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{HEAD_BYTES, MessageSplitter, RECEIVE_BYTES, ReadParameters};
use crate::clock::now;
use crate::error::Error;
use crate::meter::{Meter, Phase};
use crate::workers::WorkerContext;

/// Reads until the meter reports the end or the server closes.
pub(crate) fn run(
    worker: &WorkerContext<'_>,
    reads: &ReadParameters,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    meter.tally.latency = Some(Histogram::new());
    // There are as many threads as clients: each has one connection.
    for socket in worker.sockets {
        if let Err(errno) = read_on(socket, reads, meter) {
            worker.closed(errno)?;
        }
    }
    Ok(())
}

/// Reads on one connection. Returns the reason if it ended early: an error, or `None` for the end
/// of file.
fn read_on(
    socket: &TcpStream,
    reads: &ReadParameters,
    meter: &mut Meter<'_>,
) -> Result<(), Option<Errno>> {
    let mut sent_at = vec![now(); reads.outstanding as usize];
    let mut calls = Vec::with_capacity(sent_at.len() * HEAD_BYTES);
    (0..reads.outstanding).for_each(|number| push_call(&mut calls, number));
    send_all(socket, &calls).map_err(Some)?;
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut framing = MessageSplitter::default();
    loop {
        let bytes = match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => return Err(None),
            Ok((bytes, _)) => bytes,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(Some(errno)),
        };
        let now = now();
        if meter.phase(now) == Phase::Over {
            return Ok(());
        }
        calls.clear();
        let mut done = 0;
        framing.feed(&buffer[..bytes], reads.reply_bytes(), |number| {
            // A number without a call is no reply.
            let Some(sent_at) = sent_at.get_mut(number as usize) else { return };
            let started = std::mem::replace(sent_at, now);
            meter.round_trips(started, now, 1);
            push_call(&mut calls, number);
            done += 1;
        });
        send_all(socket, &calls).map_err(Some)?;
        meter.received(bytes, done);
        meter.sent(calls.len());
        meter.done(now, u64::from(done));
    }
}

fn push_call(calls: &mut Vec<u8>, number: u32) {
    let end = calls.len() + HEAD_BYTES;
    calls.extend_from_slice(&number.to_be_bytes());
    calls.resize(end, 0);
}

/// Sends all of `rest`. The server always reads, so this never waits for long.
fn send_all(socket: &TcpStream, mut rest: &[u8]) -> Result<(), Errno> {
    while !rest.is_empty() {
        match send(socket, rest, SendFlags::NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
