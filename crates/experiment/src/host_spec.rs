//! The description of one host of a testbed.

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
    /// The latput binary on that host.
    pub program: String,
    /// The measured interface.
    pub interface: String,
    /// Its address; the other hosts connect to it.
    pub address: IpAddr,
    /// This host's CPUs; `None` means all.
    pub cpus: Option<CpuSet>,
    /// Whether the interface's NAPI threads are bound to those CPUs, because a host of the lab must
    /// not work on the other's.
    pub binds_napi_threads: bool,
    /// Whether settings may take its link down and up, independent of the plan: for hosts that
    /// belong to latput.
    pub link_reset: LinkReset,
    /// Whether the owner has named the interface twice. Then a plan that allows link resets may
    /// reset it even if the control connection goes through it.
    pub is_named_twice: bool,
    /// Lease: after this time without a message from the controller the agent puts the host back
    /// and ends.
    pub lease: Nanos,
}

impl HostSpec {
    /// The command line that runs its latput with these arguments.
    pub(crate) fn words(&self, args: &[&str]) -> Vec<String> {
        let program = std::iter::once(&self.program).cloned();
        self.via.iter().cloned().chain(program).chain(args.iter().map(|&arg| arg.into())).collect()
    }

    /// The command that runs its latput with these arguments.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let words = self.words(args);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// This host under a plan, which may allow more than the testbed does.
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
