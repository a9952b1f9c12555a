//! Single writes to a kernel, for tests of what the kernel does with them.
//!
//! Only a transaction can write. So one is made on an interface that does not exist, and while it writes there, it lends its
//! permit.

use latput_knobs::{
    Capability, Device, KernelError, KernelErrorKind, KernelRead, KernelWrite, Knob, Place,
    Setting, Value, Whereabouts, WritePermit, apply,
};

use crate::MemoryCheckpoints;

/// The interface that does not exist, and the knob that it has.
const INTERFACE: &str = "lent0";
const KNOB: Knob = Knob::Txqueuelen;

/// Writes one value to a kernel, without the checks and the way back of a change.
pub fn write(
    kernel: &mut dyn KernelWrite,
    interface: &str,
    knob: Knob,
    place: Place,
    value: &Value,
) -> Result<(), KernelError> {
    let mut lender = Lender { kernel, wanted: (interface, knob, place, value), answer: None };
    let desired = Setting::from([(KNOB, Value::Count(1))]);
    let mut store = MemoryCheckpoints::default();
    let applied = apply(&mut lender, &mut store, &crate::context(), INTERFACE, &desired);
    lender.answer.unwrap_or_else(|| panic!("a transaction writes what differs: {applied:?}"))
}

struct Lender<'a> {
    kernel: &'a mut dyn KernelWrite,
    wanted: (&'a str, Knob, Place, &'a Value),
    answer: Option<Result<(), KernelError>>,
}

impl KernelRead for Lender<'_> {
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError> {
        if knob == KNOB {
            return Ok(vec![(Place::Device, Value::Count(self.answer.is_some().into()))]);
        }
        Err(KernelError {
            interface: interface.to_owned(),
            knob: Some(knob),
            operation: "read it".to_owned(),
            kind: KernelErrorKind::Unsupported,
            errno: None,
            reason: "the interface does not exist".to_owned(),
        })
    }

    fn capability(&self, _interface: &str, _knob: Knob) -> Capability {
        Capability::Settable("a kernel of the test".to_owned())
    }

    fn device(&self, _interface: &str) -> Result<Device, KernelError> {
        Ok(Device { index: 1, ..Device::default() })
    }

    fn find(&self, _device: &Device) -> Result<Whereabouts, KernelError> {
        Ok(Whereabouts::Here(INTERFACE.to_owned()))
    }
}

impl KernelWrite for Lender<'_> {
    fn write(
        &mut self,
        permit: &WritePermit,
        _interface: &str,
        _knob: Knob,
        _place: Place,
        _value: &Value,
    ) -> Result<(), KernelError> {
        let (interface, knob, place, value) = self.wanted;
        self.answer = Some(self.kernel.write(permit, interface, knob, place, value));
        Ok(())
    }
}
