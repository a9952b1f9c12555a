//! The description of one host of a testbed.

use std::net::IpAddr;
use std::time::Duration;

use latput_protocol::control::{LEASE, LinkReset};
use latput_trial::Plan;
use latput_trial::observation::Role;
use latput_units::{CpuSet, Nanos};

use crate::broker::message::LaunchCommand;

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
    /// Whether latput may have to be taken there first, which takes its time.
    pub may_be_brought: bool,
}

/// An agent answers the first request within so long, unless latput is taken there first.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// The same where it is: some 10 MB, over a slow line.
const BROUGHT_WITHIN: Duration = Duration::from_secs(180);

impl HostSpec {
    /// A host of which nothing is known but the way to it.
    pub fn from_launch_command(
        name: &str,
        role: Role,
        (via, program): (Vec<String>, String),
    ) -> Self {
        Self {
            name: name.to_owned(),
            role,
            via,
            program,
            interface: String::new(),
            address: IpAddr::from([0; 4]),
            cpus: None,
            binds_napi_threads: false,
            link_reset: LinkReset::Refused,
            is_named_twice: false,
            lease: LEASE,
            may_be_brought: false,
        }
    }

    /// This host, of which nothing else is known.
    pub fn for_this_host(name: &str, role: Role) -> Self {
        let LaunchCommand { via, program } = own_way();
        Self::from_launch_command(name, role, (via, program))
    }

    /// How long the first answer of its latput may take.
    pub const fn first_answer_within(&self) -> Duration {
        if self.may_be_brought { BROUGHT_WITHIN } else { FIRST_ANSWER_WITHIN }
    }

    /// How its latput is started.
    pub fn launch_command(&self) -> LaunchCommand {
        LaunchCommand { via: self.via.clone(), program: self.program.clone() }
    }

    /// The command line that runs its latput with these arguments, quoted for a shell of this host.
    pub fn to_shell_line(&self, args: &[impl AsRef<str>]) -> String {
        self.launch_command().to_shell_line(args)
    }

    /// Whether the way to it enters a network namespace, which has no configuration files of its own.
    pub fn is_namespace(&self) -> bool {
        let words: Vec<&str> = self.via.iter().map(String::as_str).collect();
        let runs = |first: &str, second: &str| words.windows(2).any(|it| it == [first, second]);
        // `lab exec HOST --`: a host of the lab, or one in a word.
        let of_lab =
            words.iter().rposition(|word| *word == "--").and_then(|end| words[..end].last());
        let is_of_lab = of_lab.is_some_and(|host| {
            host.starts_with("netns://") || !(host.contains("://") || host.starts_with("exec:"))
        });
        runs("netns", "exec") || words.contains(&"nsenter") || (runs("lab", "exec") && is_of_lab)
    }

    /// This host under a plan, which may allow more than the testbed does.
    pub fn with_plan(&self, plan: &Plan) -> Self {
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

/// How latput is started on this host.
pub fn own_way() -> LaunchCommand {
    LaunchCommand { via: Vec::new(), program: own_program() }
}

/// This program, by a path that another namespace of this machine can start.
pub fn own_program() -> String {
    std::env::current_exe()
        .map_or_else(|_| "latput".to_owned(), |path| path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn way_into_namespace_is_known() {
        for (via, expected) in [
            ("", false),
            ("ssh root@server", false),
            ("latput lab exec a --", true),
            ("latput lab exec netns://a --", true),
            ("ssh root@server ip netns exec a", true),
            ("nsenter --net=/run/netns/a", true),
            ("latput lab exec --bring static ssh://root@server --", false),
            ("latput lab exec exec:docker --", false),
            ("docker exec -i a", false),
        ] {
            let via = via.split_whitespace().map(str::to_owned).collect();
            let host = HostSpec::from_launch_command("a", Role::Sut, (via, "latput".to_owned()));
            assert_eq!(host.is_namespace(), expected, "{:?}", host.via);
        }
    }
}
