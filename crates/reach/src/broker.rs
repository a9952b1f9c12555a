//! The broker: the process of a run that has rights.
//!
//! Where latput has a capability, a run is two processes of one program. The one that the user started becomes the
//! controller: it starts the broker, gives up every right before it reads what a host or a results file says, and does all
//! the rest. The broker starts latput on the hosts, ends it, and makes the lab: `broker/message.rs` has its whole list. It
//! reads nothing but that, and which hosts there are it was told by the controller before that read anything.

mod admit;
pub(crate) mod client;
pub mod command;
pub mod message;
pub mod process;
mod server;

pub use self::admit::admit_hosts;
pub use self::client::{COMMAND, start};
pub use self::server::{BrokerError, serve_controller};
