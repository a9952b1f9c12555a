//! The traffic engine: makes the load of a trial between two hosts and measures it at the
//! applications of both ends.
//!
//! A [`Reflector`] runs on the system under test, a [`Generator`] on the load generator. Each
//! divides its connections among its threads, bound to its CPUs, and returns its half of the
//! figures. [`combine`] joins the halves. There is no async runtime: one connection uses blocking
//! calls, many use level-triggered epoll.

mod acceptor;
mod clock;
mod datagrams;
mod descriptors;
mod dial;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod generator;
mod hello;
mod key;
mod kind;
mod limits;
mod meter;
mod outcome;
mod peer_traffic;
mod poll;
mod probe;
mod reflector;
mod rights;
mod schedule;
mod slices;
mod socket;
mod stop;
mod switches;
mod unauthenticated;
mod wait;
mod workers;

pub use clock::{COOL_DOWN, Window, now, thread_cpu};
pub use datagrams::bind_same_family;
pub use error::{Error, ErrorKind};
pub use generator::Generator;
pub use key::Key;
pub use kind::udp::batch::Outgoing;
pub use kind::udp::pace::{Due, LARGEST_GROUP, Pace};
pub use outcome::{
    DatagramsReceived, DatagramsSent, ProbeOutcome, ReceiverOutcome, SenderOutcome, combine,
};
pub use peer_traffic::{Exchange, PeerTraffic};
pub use probe::Prober;
pub use reflector::Reflector;
pub use rights::{PrivilegedOption, Rights, open_echo_socket, set_with_rights, use_rights_of};
pub use slices::SliceLayout;
pub use stop::Stop;
pub use workers::{Progress, bind_to as bind_thread};
