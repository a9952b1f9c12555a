//! What the transaction needs of a kernel.

use std::fmt;

use crate::catalogue::Knob;
use crate::value::{Place, Value};

/// Reads knobs. One implementation value stands for one network namespace.
pub trait KernelRead {
    /// Every place of `knob` on `interface` with its value, in ascending order of place; never
    /// empty. Where the kernel has a device-wide value beside those of the NAPIs, both are listed:
    /// a place that is not listed is neither written nor put back. A knob that this interface or
    /// kernel does not have is [`KernelErrorKind::Unsupported`].
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError>;

    /// Whether `knob` could be set here, and through what; decided without writing and without
    /// regard to who asks: a missing privilege shows as [`KernelErrorKind::Permission`] on a write.
    fn capability(&self, interface: &str, knob: Knob) -> Capability;
}

/// Writes knobs. Only the transaction calls this.
pub trait KernelWrite: KernelRead {
    /// Writes one value at one place, and returns when a read would show it. An `Ok` is not a proof:
    /// the transaction reads back.
    fn write(
        &mut self,
        interface: &str,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), KernelError>;
}

impl<K: KernelRead + ?Sized> KernelRead for &mut K {
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError> {
        (**self).read(interface, knob)
    }

    fn capability(&self, interface: &str, knob: Knob) -> Capability {
        (**self).capability(interface, knob)
    }
}

impl<K: KernelWrite + ?Sized> KernelWrite for &mut K {
    fn write(
        &mut self,
        interface: &str,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), KernelError> {
        (**self).write(interface, knob, place, value)
    }
}

/// Whether and how a knob can be set on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    /// It can; the text says through what: `netdev netlink, per NAPI`.
    Settable(String),
    /// It can be read but not set here; the text says why.
    ReadOnly(String),
    /// This interface or kernel does not have it; the text says why.
    Absent(String),
}

/// A read or write that the kernel did not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct KernelError {
    /// The interface.
    pub interface: String,
    /// The knob; `None` when the interface itself was the problem.
    pub knob: Option<Knob>,
    /// What was tried, through what: `read /sys/class/net/eth0/gro_flush_timeout`.
    pub operation: String,
    /// What a caller may do about it.
    pub kind: KernelErrorKind,
    /// The kernel's error number, where it gave one.
    pub errno: Option<i32>,
    /// The kernel's own words (netlink extended acknowledgement), or the text of the error number.
    pub reason: String,
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.interface)?;
        if let Some(knob) = self.knob {
            write!(f, "{knob}: ")?;
        }
        write!(f, "cannot {}: {}", self.operation, self.reason)
    }
}

/// What a caller may do about a [`KernelError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelErrorKind {
    /// The interface, driver or kernel has no such knob.
    Unsupported,
    /// The value is refused.
    Refused,
    /// The process may not.
    Permission,
    /// There is no such interface (any more).
    NoInterface,
    /// It may work later.
    Busy,
    /// The kernel's answer could not be understood.
    Malformed,
}
