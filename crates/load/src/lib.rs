//! The traffic engine: makes the load of a trial between two hosts and measures what the
//! applications at both ends saw.
//!
//! A [`Reflector`] runs on the system under test, a [`Generator`] on the load generator; each runs its
//! traffic on one thread of its own, bound to the CPUs it was given, and returns its half of the
//! figures, which [`combine`] joins. No async runtime: blocking calls for one connection,
//! level-triggered epoll for many.

mod clock;
mod door;
mod driven;
mod error;
mod generator;
mod hello;
mod key;
mod limits;
mod meter;
mod outcome;
mod probe;
mod reflector;
mod rr;
mod socket;
mod stop;
mod stream;
mod supervise;
mod udp;

pub use clock::{COOL_DOWN, Window, now};
pub use driven::{Driven, Exchange};
pub use error::{Error, ErrorKind};
pub use generator::Generator;
pub use key::Key;
pub use outcome::{
    DatagramsReceived, DatagramsSent, ProbeOutcome, ReceiverOutcome, SenderOutcome, combine,
};
pub use probe::Prober;
pub use reflector::Reflector;
pub use stop::Stop;
pub use supervise::bind_to as bind_thread;
