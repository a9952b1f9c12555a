//! A connection to each transaction: opened with three segments, closed with three more.
//!
//! The client's kernel repeats a lost first segment as Linux does at first, after one second; a closing
//! segment that is lost is not missed. The socket stays on its NIC queue from connection to connection.

use super::World;
use super::deliver::CONNECT;
use crate::agenda::Time;
use crate::casts::id;
use crate::frame::{Frame, FrameKind};
use crate::socket::{ConnectionState, SocketProtocol};
use crate::task::WorkItem;

/// System calls of a client that opens a connection: socket, connect.
const OPENING_CALLS: Time = 2;
/// RFC 6298, section 2.1.
const SYN_TIMEOUT: Time = 1_000_000_000;

/// The steps of a connection, as control segments carry them.
const SYN: u64 = 0;
const SYN_ACK: u64 = 1;
const OPENING_ACK: u64 = 2;
const FIN: u64 = 3;
const FIN_ACK: u64 = 4;
const LAST_ACK: u64 = 5;

impl World {
    pub(super) fn begin_connect(&self, task: usize, end: u32) -> (WorkItem, Time, Time) {
        let costs = &self.hosts[self.tasks[task].host].costs;
        (WorkItem::Connect { end }, OPENING_CALLS * costs.syscall + costs.tx_packet, 0)
    }

    /// The process asked for a connection.
    pub(super) fn finish_connect(&mut self, task: usize, end: usize) -> Time {
        self.tasks[task].ready.pop();
        let socket = &mut self.ends[end];
        socket.is_ready = false;
        socket.link = ConnectionState::Connecting;
        socket.exchange.connect_at = self.now;
        socket.exchange.connection += 1;
        self.send_syn(end);
        0
    }

    fn send_syn(&mut self, end: usize) {
        self.send_control(end, SYN);
        let host = self.ends[end].host as usize;
        let at = self.now + SYN_TIMEOUT;
        self.hosts[host].timers.push(at, id(end) | CONNECT);
        self.update_timers(host);
    }

    /// A first segment may have been lost.
    pub(super) fn repeat_syn(&mut self, end: usize) {
        let socket = &self.ends[end];
        if socket.link == ConnectionState::Connecting
            && socket.exchange.connect_at + SYN_TIMEOUT <= self.now
        {
            self.send_syn(end);
        }
    }

    fn send_control(&mut self, end: usize, step: u64) {
        let frame = Frame {
            sent_at: self.now,
            seq: step,
            ack: self.ends[end].exchange.connection,
            window: 0xffff,
            end: id(end) ^ 1,
            kind: FrameKind::Control,
            ..Frame::default()
        };
        self.transmit_frame(self.ends[end].queue as usize, &frame);
    }

    /// A control segment reaches its socket; gives what answering it costs.
    pub(super) fn deliver_control(&mut self, core: usize, end: usize, segment: &Frame) -> Time {
        let (step, connection) = (segment.seq, segment.ack);
        let ack = self.hosts[self.ends[end].host as usize].costs.ack;
        let answer = match step {
            SYN => {
                // Asked again for the same connection, the server only answers again.
                if self.ends[end].exchange.connection != connection {
                    self.ends[end].exchange.connection = connection;
                    self.reset_connection(end);
                }
                self.ends[end].link = ConnectionState::Open;
                SYN_ACK
            }
            SYN_ACK => {
                let socket = &self.ends[end];
                if socket.link != ConnectionState::Connecting
                    || socket.exchange.connection != connection
                {
                    return 0;
                }
                self.reset_connection(end);
                self.ends[end].link = ConnectionState::Open;
                self.make_ready(core, end);
                OPENING_ACK
            }
            FIN => FIN_ACK,
            FIN_ACK => LAST_ACK,
            _ => return 0,
        };
        self.send_control(end, answer);
        ack
    }

    fn reset_connection(&mut self, end: usize) {
        let socket = &mut self.ends[end];
        socket.consumed = 0;
        if let SocketProtocol::Tcp(tcp) = &mut socket.protocol {
            tcp.reset_connection();
        }
    }

    /// The client has its response: closes, and begins the next transaction.
    pub(super) fn close(&mut self, task: usize, end: usize) -> Time {
        self.ends[end].link = ConnectionState::Closed;
        self.reset_connection(end); // no timer of it may go off any more
        self.send_control(end, FIN);
        if self.now < self.tasks[task].stop {
            self.ends[end].owed += 1;
        }
        self.hosts[self.ends[end].host as usize].costs.ack
    }
}
