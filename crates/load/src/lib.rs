//! The traffic engine: makes the load of a trial between two hosts and measures what the
//! applications at both ends saw.
//!
//! A [`Reflector`] runs on the system under test, a [`Generator`] on the load generator; each spreads
//! its connections over threads of its own, held to the CPUs it was given, and returns its half of the
//! figures, which [`combine`] joins. No async runtime: blocking calls for one connection,
//! level-triggered epoll for many.

mod acceptor;
mod clock;
mod crr;
mod datagrams;
mod descriptors;
mod dial;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod generator;
mod hello;
mod key;
mod limits;
mod meter;
mod open_loop;
mod outcome;
mod peer_traffic;
mod ping;
mod poll;
mod probe;
mod progress;
mod reflector;
mod rpc;
mod rr;
mod schedule;
mod socket;
mod stop;
mod stream;
mod tally;
mod udp;
mod udp_rr;
mod unauthenticated;
mod wait;
mod workers;

pub use clock::{COOL_DOWN, Slices, Window, now, thread_cpu};
pub use datagrams::bind_like;
pub use error::{Error, ErrorKind};
pub use generator::Generator;
pub use key::Key;
pub use outcome::{
    DatagramsReceived, DatagramsSent, ProbeOutcome, ReceiverOutcome, SenderOutcome, combine,
};
pub use peer_traffic::{Exchange, PeerTraffic};
pub use probe::Prober;
pub use progress::Progress;
pub use reflector::Reflector;
pub use stop::Stop;
pub use udp::batch::Outgoing;
pub use udp::pace::{Due, LARGEST_GROUP, Pace};
pub use workers::bind_to as bind_thread;
