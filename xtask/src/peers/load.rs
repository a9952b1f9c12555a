//! The workloads that are compared, as each program's command line has them.

use std::fmt;

use super::lab::SERVER_ADDRESS;

/// A workload that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerWorkload {
    /// One byte each way, one transaction in flight.
    Rr,
    /// The same, with 16 more in flight.
    Burst16,
    /// The same, with 128 more in flight.
    Burst128,
    /// One byte each way on 100 connections, one transaction in flight on each.
    Rr100,
    /// The same on 1000 connections.
    Rr1000,
    /// Bulk in sends of 32 KB.
    Stream,
    /// The same on 8 connections.
    Stream8,
    /// Datagrams of 1470 byte as fast as they go.
    Udp,
    /// The same, each datagram sent by itself.
    UdpUncut,
    /// 1000 connections downloading an object of [`OBJECT_BYTES`] again and again.
    Fetch,
}

/// Size of the object that is downloaded.
pub const OBJECT_BYTES: u64 = 1_000_000;
/// Payload of a datagram.
const DATAGRAM_BYTES: f64 = 1470.0;

/// Unit of a load's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkUnit {
    /// Requests and responses.
    Transactions,
    /// Bytes in order.
    Bulk,
    /// Datagrams that came.
    Datagrams,
}

impl PeerWorkload {
    /// All of them, in the order of tables.
    pub const ALL: &[Self] = &[
        Self::Rr,
        Self::Burst16,
        Self::Burst128,
        Self::Rr100,
        Self::Rr1000,
        Self::Stream,
        Self::Stream8,
        Self::Udp,
        Self::UdpUncut,
        Self::Fetch,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rr => "rr",
            Self::Burst16 => "burst16",
            Self::Burst128 => "burst128",
            Self::Rr100 => "rr100",
            Self::Rr1000 => "rr1000",
            Self::Stream => "stream",
            Self::Stream8 => "stream8",
            Self::Udp => "udp",
            Self::UdpUncut => "udp-uncut",
            Self::Fetch => "fetch",
        }
    }

    /// Unit of its work.
    pub const fn work_unit(self) -> WorkUnit {
        match self {
            Self::Rr | Self::Burst16 | Self::Burst128 | Self::Rr100 | Self::Rr1000 => {
                WorkUnit::Transactions
            }
            Self::Stream | Self::Stream8 | Self::Fetch => WorkUnit::Bulk,
            Self::Udp | Self::UdpUncut => WorkUnit::Datagrams,
        }
    }

    /// The unit of the rate, and the unit of work whose CPU cost is told.
    pub const fn unit_labels(self) -> (&'static str, &'static str) {
        match self.work_unit() {
            WorkUnit::Transactions => ("1/s", "us/transaction"),
            WorkUnit::Bulk => ("bit/s", "us/KB"),
            WorkUnit::Datagrams => ("pkt/s", "us/packet"),
        }
    }

    /// Units of work per second at a rate: transactions, datagrams, or KB of 1024 byte.
    pub fn units_per_s(self, rate: f64) -> f64 {
        match self.work_unit() {
            WorkUnit::Transactions | WorkUnit::Datagrams => rate,
            WorkUnit::Bulk => rate / 8.0 / 1024.0,
        }
    }

    /// The rate that goodput in bit/s is.
    pub fn rate_of_goodput(self, bps: f64) -> f64 {
        if self.work_unit() == WorkUnit::Datagrams { bps / 8.0 / DATAGRAM_BYTES } else { bps }
    }

    /// How many connections it has.
    pub const fn connection_count(self) -> u32 {
        match self {
            Self::Rr100 => 100,
            Self::Rr1000 | Self::Fetch => 1000,
            Self::Stream8 => 8,
            _ => 1,
        }
    }

    /// latput's kind and fields.
    pub fn for_latput(self) -> Vec<String> {
        let line = match self {
            Self::Rr => "tcp_rr burst=0",
            Self::Burst16 => "tcp_rr burst=16",
            Self::Burst128 => "tcp_rr burst=128",
            Self::Rr100 => "tcp_rr connections=100",
            Self::Rr1000 => "tcp_rr connections=1000",
            Self::Stream => "tcp_stream message_bytes=32768",
            Self::Stream8 => "tcp_stream message_bytes=32768 connections=8",
            Self::Udp => "udp_stream datagram_bytes=1470 rate=max",
            Self::UdpUncut => "udp_stream datagram_bytes=1470 rate=max segmentation=false",
            Self::Fetch => {
                return split_words(&format!("fetch connections=1000 object_bytes={OBJECT_BYTES}"));
            }
        };
        split_words(line)
    }

    /// netperf's test. `-D` sets `TCP_NODELAY` at both ends, as latput does; `-b 16` is 16 more requests
    /// in flight.
    pub fn for_netperf(self, port: u16, seconds: u32) -> Vec<String> {
        let test = match self {
            Self::Burst16 => "-t TCP_RR -- -r 1,1 -D -b 16",
            Self::Burst128 => "-t TCP_RR -- -r 1,1 -D -b 128",
            Self::Stream => "-t TCP_STREAM -f m -- -m 32768",
            _ => "-t TCP_RR -- -r 1,1 -D",
        };
        split_words(&format!(
            "-H {SERVER_ADDRESS} -4 -p {port} -l {seconds} -P 0 {test} -o THROUGHPUT"
        ))
    }

    /// iperf3's options; `-b 0` is no limit, which datagrams have otherwise.
    pub fn for_iperf3(self, port: u16, seconds: u32) -> Vec<String> {
        let test = match self {
            Self::Udp | Self::UdpUncut => "-u -b 0 -l 1470",
            Self::Stream8 => "-l 32K -P 8",
            _ => "-l 32K",
        };
        split_words(&format!("-c {SERVER_ADDRESS} -4 -p {port} -t {seconds} {test} -J"))
    }
}

/// The words of a line without quotes.
pub fn split_words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

impl fmt::Display for PeerWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rr => "tcp_rr",
            Self::Burst16 => "tcp_rr burst 16",
            Self::Burst128 => "tcp_rr burst 128",
            Self::Rr100 => "tcp_rr 100 conn",
            Self::Rr1000 => "tcp_rr 1000 conn",
            Self::Stream => "tcp_stream 32 KB",
            Self::Stream8 => "tcp_stream 8 conn",
            Self::Udp => "udp_stream 1470",
            Self::UdpUncut => "udp_stream uncut",
            Self::Fetch => "fetch 1000 conn",
        })
    }
}
