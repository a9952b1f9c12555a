//! The interface between the transaction and a kernel.

use std::fmt;

use crate::catalogue::Knob;
use crate::catalogue::spec::Limits;
use crate::device::{Device, Whereabouts};
use crate::transaction::permit::WritePermit;
use crate::value::{Named, Place, Value};

/// The purpose of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePurpose {
    /// A value that somebody asks for: it will have to go back.
    Change,
    /// The value from before a change.
    WayBack,
}

/// Reads knobs. One implementation value stands for one network namespace.
pub trait KernelRead {
    /// Every place of `knob` on `interface` with its value, in ascending order of place; never
    /// empty. Where the kernel has a device-wide value beside those of the NAPIs, both are listed:
    /// a place that is not listed is neither written nor put back. A knob that this interface or
    /// kernel does not have is [`KernelErrorKind::Unsupported`]. A knob of the host is read also
    /// when there is no such interface.
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError>;

    /// The same of several knobs, in their order. A kernel that answers for more than one knob at once need
    /// be asked only once.
    fn read_many(
        &self,
        interface: &str,
        knobs: &[Knob],
    ) -> Vec<Result<Vec<(Place, Value)>, KernelError>> {
        knobs.iter().map(|knob| self.read(interface, *knob)).collect()
    }

    /// The values that a write of each of these knobs moves along ([`Place::is_follower`]), in ascending order of
    /// place.
    fn read_followers(
        &self,
        interface: &str,
        knobs: &[Knob],
    ) -> Vec<Result<Vec<(Place, Value)>, KernelError>> {
        let _ = interface;
        knobs.iter().map(|_| Ok(Vec::new())).collect()
    }

    /// Whether the interface is up. While it is down, queues and NAPIs may be missing that come back with it.
    fn is_up(&self, interface: &str) -> bool {
        let _ = interface;
        true
    }

    /// Whether `knob` could be set here, and through what; decided without changing anything and without
    /// regard to who asks: a missing privilege shows as [`KernelErrorKind::Permission`] on a write.
    fn capability(&self, interface: &str, knob: Knob) -> Capability;

    /// Why this value of a knob that can be set must not be: what it would move could not be put back. `None` if nothing
    /// stands against it. An error means that this cannot be told.
    fn obstacle_to(
        &self,
        interface: &str,
        knob: Knob,
        value: &Value,
        purpose: WritePurpose,
    ) -> Result<Option<String>, KernelError> {
        let _ = (interface, knob, value, purpose);
        Ok(None)
    }

    /// Why this process cannot give NAPI threads that are made anew the CPUs and policies of the old ones; `None` if it can.
    fn thread_obstacle(&self) -> Option<String> {
        None
    }

    /// The limits of this interface for a knob, where its kernel or driver tells them.
    fn limits(&self, interface: &str, knob: Knob) -> Limits {
        let _ = (interface, knob);
        Limits::default()
    }

    /// The value that a word stands for at one place; never a word again.
    fn resolve(
        &self,
        interface: &str,
        knob: Knob,
        place: Place,
        named: Named,
    ) -> Result<Value, KernelError> {
        Err(KernelError {
            interface: interface.to_owned(),
            knob: Some(knob),
            operation: format!("resolve `{named}` at {place}"),
            kind: KernelErrorKind::Unsupported,
            errno: None,
            reason: "neither the kernel nor the driver reports it".to_owned(),
        })
    }

    /// Whether a change of the knob takes the link of this interface down and up. The catalogue knows
    /// it of hardware in general; an interface without hardware has no link to lose.
    fn resets_link(&self, interface: &str, knob: Knob) -> bool {
        let _ = interface;
        knob.spec().resets_link
    }

    /// Whether it is the value that a place has when the driver has just made it, so that nobody has set it.
    fn is_fresh(&self, interface: &str, knob: Knob, place: Place, value: &Value) -> bool {
        let _ = (interface, knob, place);
        value.is_fresh()
    }

    /// The knobs whose values of the device one request sets, this one among them; none where each is set alone.
    fn set_with(&self, knob: Knob) -> Vec<Knob> {
        let _ = knob;
        Vec::new()
    }

    /// Which device `interface` is.
    fn device(&self, interface: &str) -> Result<Device, KernelError>;

    /// Where a device is now. That it was deleted is told only if [`device`](Self::device) has named it before.
    fn find(&self, device: &Device) -> Result<Whereabouts, KernelError>;
}

/// Writes knobs. Only the transaction can call this: it alone has the permit.
pub trait KernelWrite: KernelRead {
    /// Writes one value at one place, and returns when a read would show it. An `Ok` is not a proof:
    /// the transaction reads back.
    fn write(
        &mut self,
        permit: &WritePermit,
        interface: &str,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), KernelError>;

    /// Writes the present values of a knob's table again, where that may tell that they could not be put back.
    fn rewrite(
        &mut self,
        permit: &WritePermit,
        interface: &str,
        knob: Knob,
    ) -> Result<(), KernelError> {
        let _ = (permit, interface, knob);
        Ok(())
    }

    /// Writes the device's values of knobs that one request sets ([`KernelRead::set_with`]), all or none.
    fn write_together(
        &mut self,
        permit: &WritePermit,
        interface: &str,
        values: &[(Knob, Value)],
    ) -> Result<(), KernelError> {
        let _ = permit;
        Err(KernelError {
            interface: interface.to_owned(),
            knob: values.first().map(|(knob, _)| *knob),
            operation: "write it together with others".to_owned(),
            kind: KernelErrorKind::Unsupported,
            errno: None,
            reason: "each is set alone".to_owned(),
        })
    }

    /// Writes values of one knob in their order up to the first that fails, and adds those that did not to
    /// `done`.
    fn write_many(
        &mut self,
        permit: &WritePermit,
        interface: &str,
        knob: Knob,
        values: &[(Place, Value)],
        done: &mut usize,
    ) -> Result<(), KernelError> {
        for (place, value) in values {
            self.write(permit, interface, knob, *place, value)?;
            *done += 1;
        }
        Ok(())
    }
}

impl<K: KernelRead + ?Sized> KernelRead for &mut K {
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError> {
        (**self).read(interface, knob)
    }

    fn read_many(
        &self,
        interface: &str,
        knobs: &[Knob],
    ) -> Vec<Result<Vec<(Place, Value)>, KernelError>> {
        (**self).read_many(interface, knobs)
    }

    fn read_followers(
        &self,
        interface: &str,
        knobs: &[Knob],
    ) -> Vec<Result<Vec<(Place, Value)>, KernelError>> {
        (**self).read_followers(interface, knobs)
    }

    fn is_up(&self, interface: &str) -> bool {
        (**self).is_up(interface)
    }

    fn capability(&self, interface: &str, knob: Knob) -> Capability {
        (**self).capability(interface, knob)
    }

    fn obstacle_to(
        &self,
        interface: &str,
        knob: Knob,
        value: &Value,
        purpose: WritePurpose,
    ) -> Result<Option<String>, KernelError> {
        (**self).obstacle_to(interface, knob, value, purpose)
    }

    fn limits(&self, interface: &str, knob: Knob) -> Limits {
        (**self).limits(interface, knob)
    }

    fn resolve(
        &self,
        interface: &str,
        knob: Knob,
        place: Place,
        named: Named,
    ) -> Result<Value, KernelError> {
        (**self).resolve(interface, knob, place, named)
    }

    fn thread_obstacle(&self) -> Option<String> {
        (**self).thread_obstacle()
    }

    fn resets_link(&self, interface: &str, knob: Knob) -> bool {
        (**self).resets_link(interface, knob)
    }

    fn is_fresh(&self, interface: &str, knob: Knob, place: Place, value: &Value) -> bool {
        (**self).is_fresh(interface, knob, place, value)
    }

    fn set_with(&self, knob: Knob) -> Vec<Knob> {
        (**self).set_with(knob)
    }

    fn device(&self, interface: &str) -> Result<Device, KernelError> {
        (**self).device(interface)
    }

    fn find(&self, device: &Device) -> Result<Whereabouts, KernelError> {
        (**self).find(device)
    }
}

impl<K: KernelWrite + ?Sized> KernelWrite for &mut K {
    fn write(
        &mut self,
        permit: &WritePermit,
        interface: &str,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), KernelError> {
        (**self).write(permit, interface, knob, place, value)
    }

    fn rewrite(
        &mut self,
        permit: &WritePermit,
        interface: &str,
        knob: Knob,
    ) -> Result<(), KernelError> {
        (**self).rewrite(permit, interface, knob)
    }

    fn write_together(
        &mut self,
        permit: &WritePermit,
        interface: &str,
        values: &[(Knob, Value)],
    ) -> Result<(), KernelError> {
        (**self).write_together(permit, interface, values)
    }

    fn write_many(
        &mut self,
        permit: &WritePermit,
        interface: &str,
        knob: Knob,
        values: &[(Place, Value)],
        done: &mut usize,
    ) -> Result<(), KernelError> {
        (**self).write_many(permit, interface, knob, values, done)
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
    /// The attempted operation and its means: `read /sys/class/net/eth0/gro_flush_timeout`.
    pub operation: String,
    /// The kind of failure, which tells a caller how to react.
    pub kind: KernelErrorKind,
    /// The kernel's error number, where it gave one.
    pub errno: Option<i32>,
    /// The kernel's own words (netlink extended acknowledgement), or the text of the error number.
    pub reason: String,
}

/// The words for an interface that is not there.
pub fn format_no_interface(name: &str) -> String {
    match another_host(name) {
        Some(hint) => format!("`{name}` is a host, and this command works on this one: {hint}"),
        None => format!("there is no interface `{name}`: `latput show` lists them"),
    }
}

/// The words for what cannot be the name of an interface.
pub(crate) fn format_no_interface_name(name: &str) -> String {
    if another_host(name).is_some() {
        return format_no_interface(name);
    }
    format!("`{name}` is not an interface name: 1 to 15 bytes without `/`, `:` or blanks")
}

/// How latput is run on the host of a URL such as `netns://a/eth0`; `None` for any other name.
fn another_host(name: &str) -> Option<String> {
    let (scheme, rest) = name.split_once("://")?;
    let (host, interface) = rest.split_once(['/', '%']).unwrap_or((rest, "IFACE"));
    Some(match scheme {
        "netns" => format!("`ip netns exec {host} latput COMMAND {interface}`"),
        "ssh" => format!("`ssh {host} latput COMMAND {interface}`, or `latput fleet`"),
        _ => "`latput fleet` works on others".to_owned(),
    })
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

/// The kind of a [`KernelError`], which tells a caller how to react.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_for_interface_gives_the_command() {
        let said = format_no_interface("netns://a/v0");
        assert!(said.contains("`ip netns exec a latput COMMAND v0`"), "{said}");
        let said = format_no_interface_name("ssh://root@web1%eth0");
        assert!(said.contains("`ssh root@web1 latput COMMAND eth0`"), "{said}");
        assert!(format_no_interface_name("netns://a").contains("a latput COMMAND IFACE"));
        assert!(format_no_interface("eth7").contains("there is no interface `eth7`"));
        assert!(format_no_interface_name("a/b").contains("is not an interface name"));
    }
}
