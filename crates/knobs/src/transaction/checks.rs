//! Refusals of wanted values before the first write.

use super::outcome::{ApplyError, Cause};
use crate::catalogue::Knob;
use crate::kernel::{Capability, KernelErrorKind, KernelRead, WritePurpose};
use crate::value::Value;

/// Refuses a knob that cannot be set here.
pub(super) fn check_settable(
    kernel: &dyn KernelRead,
    interface: &str,
    knob: Knob,
) -> Result<(), ApplyError> {
    match kernel.capability(interface, knob) {
        Capability::Settable(_) => Ok(()),
        Capability::ReadOnly(reason) | Capability::Absent(reason) => {
            Err(ApplyError::Unsupported { interface: interface.to_owned(), knob, reason })
        }
    }
}

/// Refuses a value whose write would move what cannot be put back, or of which that cannot be told.
pub(super) fn check_obstacle(
    kernel: &dyn KernelRead,
    interface: &str,
    (knob, to): (Knob, &Value),
    purpose: WritePurpose,
) -> Result<(), ApplyError> {
    let refused =
        |reason| Err(ApplyError::Unsupported { interface: interface.to_owned(), knob, reason });
    match kernel.obstacle_to(interface, knob, to, purpose) {
        Ok(None) => Ok(()),
        Ok(Some(reason)) => refused(reason),
        Err(error) if error.kind == KernelErrorKind::Permission => {
            let cause = Box::new(Cause::Kernel(error));
            Err(ApplyError::Permission { interface: interface.to_owned(), cause })
        }
        Err(error) => refused(format!("it cannot be told what it would move: {}", error.reason)),
    }
}

/// Refuses what the interface is known not to allow, so that nothing is touched in vain.
pub(super) fn check_limits(
    kernel: &dyn KernelRead,
    interface: &str,
    knob: Knob,
    value: &Value,
) -> Result<(), ApplyError> {
    let spec = knob.spec();
    let number = match value {
        Value::Count(count) => *count,
        Value::Time(time) => time.as_ns() / spec.time_unit().as_ns(),
        _ => return Ok(()),
    };
    let limits = kernel.limits(interface, knob);
    let (min, max) = spec.range_within(limits);
    if (min..=max).contains(&number) {
        return Ok(());
    }
    let allowed = spec.allowed_within(limits);
    let interface = interface.to_owned();
    let value = value.clone();
    Err(ApplyError::OutOfRange { interface, knob, value, allowed })
}
