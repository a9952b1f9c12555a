//! Which guest: the driver of its network cards.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The options of the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// Of both network cards.
    pub driver: CardDriver,
}

/// A network card that QEMU emulates and Linux has a driver for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CardDriver {
    /// Intel 82574L: several vectors (MSI-X), interrupt throttling.
    #[default]
    E1000e,
    /// Intel 82540EM: one legacy interrupt, interrupt throttling.
    E1000,
    /// The paravirtual card.
    VirtioNet,
}

/// Of both drivers alike (`e1000_param.c`, `e1000e/param.c`).
pub const E1000_PARAMETERS: [(&str, u64); 5] = [
    ("InterruptThrottleRate", 3),
    ("RxIntDelay", 0),
    ("RxAbsIntDelay", 8),
    ("TxIntDelay", 8),
    ("TxAbsIntDelay", 32),
];

impl CardDriver {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::E1000e, Self::E1000, Self::VirtioNet];

    /// As `vm:` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::E1000e => "e1000e",
            Self::E1000 => "e1000",
            Self::VirtioNet => "virtio-net",
        }
    }

    /// The parameters on interrupts that it reads when it is loaded, with what it takes by itself.
    pub const fn load_parameters(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::E1000e | Self::E1000 => &E1000_PARAMETERS,
            Self::VirtioNet => &[],
        }
    }

    /// QEMU's name of the card.
    pub(crate) const fn qemu_device(self) -> &'static str {
        match self {
            Self::E1000e => "e1000e",
            Self::E1000 => "e1000",
            Self::VirtioNet => "virtio-net-pci",
        }
    }

    /// The kernel's module.
    pub(crate) const fn kernel_module(self) -> &'static str {
        match self {
            Self::E1000e => "e1000e",
            Self::E1000 => "e1000",
            Self::VirtioNet => "virtio_net",
        }
    }
}

impl FromStr for GuestSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = |problem: String| Error::Spec { name: text.to_owned(), problem };
        let driver = CardDriver::ALL.into_iter().find(|known| known.name() == text);
        let driver = driver.ok_or_else(|| {
            let names = CardDriver::ALL.map(CardDriver::name).join(", ");
            refused(format!("the driver must be one of {names}"))
        })?;
        Ok(Self { driver })
    }
}

impl fmt::Display for GuestSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.driver.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_is_named_by_its_driver() {
        for name in ["e1000e", "e1000", "virtio-net"] {
            assert_eq!(name.parse::<GuestSpec>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn unknown_guest_is_refused_with_list() {
        check_refused("igb", "e1000e, e1000, virtio-net");
        check_refused("", "e1000e, e1000, virtio-net");
        check_refused("e1000e,kvm", "e1000e, e1000, virtio-net");
    }

    #[track_caller]
    fn check_refused(name: &str, expected: &str) {
        let problem = name.parse::<GuestSpec>().unwrap_err().to_string();
        assert!(problem.contains(expected) && problem.contains(name), "{problem}");
    }
}
