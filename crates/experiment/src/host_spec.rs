//! One host of a testbed, as it was described: how to reach it and what of it is latput's.

use std::net::IpAddr;
use std::process::Command;

use latput_trial::Plan;
use latput_trial::observation::Role;
use latput_units::{CpuSet, Nanos};

use crate::protocol::LinkReset;

/// One host of a testbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The command in front of `latput agent --stdio`: `["ssh", "root@sut"]`; empty for this host.
    pub via: Vec<String>,
    /// The latput to start there.
    pub program: String,
    /// The measured interface.
    pub interface: String,
    /// Its address, which the other host connects to.
    pub address: IpAddr,
    /// The CPUs that are this host's; `None`: all.
    pub cpus: Option<CpuSet>,
    /// Whether the interface's NAPI threads are held to those CPUs: a host of the lab must not work
    /// on the other's.
    pub binds_napi_threads: bool,
    /// Whether settings may take its link down and up, whatever the plan says: where the host is
    /// latput's own.
    pub link_reset: LinkReset,
    /// Whether its owner has named the interface twice: where a plan allows link resets, they are allowed
    /// here even if the control connection goes through it.
    pub is_named_twice: bool,
    /// Its agent puts it back and ends when it hears nothing from the controller for so long.
    pub lease: Nanos,
}

impl HostSpec {
    /// What runs its latput with these arguments.
    pub(crate) fn words(&self, args: &[&str]) -> Vec<String> {
        let program = std::iter::once(&self.program).cloned();
        self.via.iter().cloned().chain(program).chain(args.iter().map(|&arg| arg.into())).collect()
    }

    /// The same, to be started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let words = self.words(args);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// This host under a plan, which may allow what the testbed does not.
    pub(crate) fn under(&self, plan: &Plan) -> Self {
        let link_reset = match self.link_reset {
            LinkReset::Refused if plan.method.allow_link_reset && self.is_named_twice => {
                LinkReset::AllowedOnControl
            }
            LinkReset::Refused if plan.method.allow_link_reset => LinkReset::Allowed,
            as_it_is => as_it_is,
        };
        Self { link_reset, ..self.clone() }
    }
}
