//! View of a host: facts that a controller must know before it can choose an interface and its address.

use std::net::IpAddr;

use latput_linux::interfaces::Interface;
use latput_units::CpuSet;
use serde::{Deserialize, Serialize};

/// A host as its agent sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostView {
    /// [`crate::control::SCHEMA`] of the agent.
    pub schema: u32,
    /// Version of the agent.
    pub version: String,
    /// Whether latput was brought there for this run.
    pub is_brought: bool,
    /// Identity of this network namespace: the boot and the namespace's number.
    pub namespace: String,
    /// As in [`crate::control::AgentInfo::clock`].
    pub clock: String,
    /// The kernel's release.
    pub kernel: String,
    /// The CPUs that the agent may use.
    pub cpus: CpuSet,
    /// Capabilities that the agent has not, with what that hinders, in sentences.
    pub missing: Vec<String>,
    /// Every interface but the loopback.
    pub interfaces: Vec<Interface>,
    /// The ways to the addresses that were asked about, in their order.
    pub ways: Vec<RouteView>,
    /// Of the interface that was asked about.
    pub knobs: Option<KnobsView>,
    /// Share of the CPUs' time that was not idle, 0 to 1, where an interface was asked about.
    pub busy_ratio: Option<f64>,
}

/// The way from a host to an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteView {
    /// Where to.
    pub to: IpAddr,
    /// The interface by which packets leave; `None` where there is no way.
    pub interface: Option<String>,
    /// The address that they leave with.
    pub source: Option<IpAddr>,
    /// Whether `to` is the host's own.
    pub is_local: bool,
    /// Whether no router is in between.
    pub is_direct: bool,
}

/// The knobs of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnobsView {
    /// The names of those that can be set here.
    pub settable: Vec<String>,
    /// How many can only be read.
    pub read_only_count: u32,
}

impl HostView {
    /// Whether both are on one machine, under one kernel.
    pub fn shares_kernel_with(&self, other: &Self) -> bool {
        // Behind the boot is the number of the namespace.
        let boot = |view: &'_ Self| view.namespace.split(' ').next().map(str::to_owned);
        !self.namespace.is_empty() && boot(self) == boot(other)
    }

    /// The interface of this name.
    pub fn find_interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }
}
