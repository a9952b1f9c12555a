//! The catalogue: every knob latput knows, with the kernel's own name and unit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One thing that can be set on a host's network path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    /// Largest packet of the interface (`IFLA_MTU`).
    Mtu,
    /// Length of the transmit queue (`IFLA_TXQLEN`).
    Txqueuelen,
    /// Generic receive offload (`rx-gro`).
    Gro,
    /// Generic segmentation offload (`tx-generic-segmentation`).
    Gso,
    /// TCP segmentation offload (`tx-tcp-segmentation` and its IPv6 and ECN kin).
    Tso,
    /// Receive packet steering: the CPUs that take over packets of a receive queue (`rps_cpus`).
    RpsCpus,
    /// NAPI polls in a kernel thread instead of softirq (`threaded`).
    Threaded,
    /// Empty polls before the interrupt is unmasked again (`napi_defer_hard_irqs`).
    NapiDeferHardIrqs,
    /// Delay before a deferred NAPI polls again, and before GRO passes on what it holds
    /// (`gro_flush_timeout`).
    GroFlushTimeout,
}

impl Knob {
    /// Every knob, in the order in which changes are written: what recreates queues and NAPIs first.
    pub const ALL: &[Self] = &[
        Self::Mtu,
        Self::Txqueuelen,
        Self::Gro,
        Self::Gso,
        Self::Tso,
        Self::RpsCpus,
        Self::Threaded,
        Self::NapiDeferHardIrqs,
        Self::GroFlushTimeout,
    ];

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mtu => "mtu",
            Self::Txqueuelen => "txqueuelen",
            Self::Gro => "gro",
            Self::Gso => "gso",
            Self::Tso => "tso",
            Self::RpsCpus => "rps-cpus",
            Self::Threaded => "threaded",
            Self::NapiDeferHardIrqs => "napi-defer-hard-irqs",
            Self::GroFlushTimeout => "gro-flush-timeout",
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no knob has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no knob is called `{name}`")]
pub struct UnknownKnob {
    /// What was asked for.
    pub name: String,
}

impl FromStr for Knob {
    type Err = UnknownKnob;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|knob| knob.name() == name)
            .ok_or_else(|| UnknownKnob { name: name.to_owned() })
    }
}
