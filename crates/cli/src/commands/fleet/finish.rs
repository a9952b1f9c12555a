//! `latput fleet finish`: ends a rollout whose own process ended before it had confirmed every host.

use std::collections::BTreeMap;
use std::process::ExitCode;

use latput_reach::broker::command::{HostUndo, HostVerb};
use latput_fleet::judge::JudgedHost;
use latput_fleet::judge_hosts;
use latput_fleet::look::RolloutState;
use latput_fleet::rollouts::{OpenRollout, open_rollouts};
use latput_linux::process::unix_ms;

use super::done::HostOutcomes;
use super::hosts::{Fleet, FleetArgs, FleetRights};
use super::look;
use super::wanted::FleetWish;
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Finish a rollout that was cut short: confirm it on the hosts that wait, or take it back on all.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("which way").required(true),
    after_help = "\
Examples:
  latput fleet finish -i inventory.toml --confirm       the hosts that wait keep it
  latput fleet finish -i inventory.toml --back          every host goes back, also those that have confirmed it
  latput fleet finish fleet-1a21f0015cc-7fbf -i inventory.toml --back

A rollout is cut short where `latput fleet apply` ends while it confirms one host after the other. The other commands of
`latput fleet` name it then. A host that waits goes back by itself at the end of its time; with --confirm such a host is
named (exit code 6), and `latput fleet apply` sets it again."
)]
pub(super) struct Args {
    /// The name of the rollout; needed where several are open.
    #[arg(value_name = "ROLLOUT")]
    rollout: Option<String>,
    /// Confirm it on the hosts that wait.
    #[arg(long, group = "which way")]
    confirm: bool,
    /// Take it back on the hosts that wait, and on those that have confirmed it.
    #[arg(long, group = "which way")]
    back: bool,
    /// Allow changes that take the link down and up, unless it carries the connection to the host.
    #[arg(long)]
    allow_link_reset: bool,
    #[command(flatten)]
    fleet: FleetArgs,
}

impl Args {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let rights = FleetRights { changes: true, ..FleetRights::default() };
        let fleet = self.fleet.open(&rights, || Ok(FleetWish::default()), context)?;
        let judged = inspect_hosts(&fleet, context);
        let open = self.choose_rollout(open_rollouts(&judged, unix_ms()))?;
        output::print_remark(&format!("latput: {open}"));
        let mut done = HostOutcomes::new("finish", &fleet);
        let unknown = judged.iter().enumerate().filter(|(_, one)| one.look.is_none());
        for (at, one) in unknown {
            done.set_outcome(
                at,
                "left-out",
                format!("{}: {}", one.state.name(), one.state.explanation()),
            );
        }
        let (mut waiting, mut confirmed, mut back) = (Vec::new(), BTreeMap::new(), Vec::new());
        for (at, host) in &open.hosts {
            match host.state {
                RolloutState::Waits(_) => waiting.push(*at),
                RolloutState::Confirmed(entry) => drop(confirmed.insert(*at, entry)),
                RolloutState::WentBack => back.push(*at),
            }
        }
        let by = Some(open.name.clone());
        if self.confirm {
            let verb = |_: &usize| HostVerb::Confirm { made_by: by.clone() };
            let words = ("hosts confirmed", "confirmed");
            done.run_on_hosts(&waiting, context, words, verb, |_| String::new());
            for at in confirmed.into_keys() {
                done.set_outcome(at, "confirmed", String::new());
            }
            for at in back {
                let why = "it went back before: `latput fleet apply` sets it again".to_owned();
                done.set_outcome(at, "went-back", why);
            }
        } else {
            let restore = |_: &usize| HostVerb::Restore { made_by: by.clone() };
            let words = ("hosts put back", "put-back");
            done.run_on_hosts(&waiting, context, words, restore, |_| String::new());
            let undo = |at: &usize| {
                let (entry, allow_link_reset) = (Some(confirmed[at]), self.allow_link_reset);
                HostVerb::Undo(HostUndo {
                    entry,
                    made_by: by.clone(),
                    allow_link_reset,
                    json: true,
                })
            };
            let which: Vec<usize> = confirmed.keys().copied().collect();
            done.run_on_hosts(&which, context, ("hosts undone", "undone"), undo, |_| String::new());
            for at in back {
                done.set_outcome(at, "unchanged", "it went back before".to_owned());
            }
        }
        Ok(done.print_outcomes(context, Some(open.name)))
    }

    /// The rollout that is meant.
    fn choose_rollout(&self, mut open: Vec<OpenRollout>) -> Result<OpenRollout, CliError> {
        if let Some(name) = &self.rollout {
            open.retain(|one| one.name == *name);
        }
        if open.len() > 1 {
            let all: Vec<String> = open.iter().map(ToString::to_string).collect();
            let problem = format!("several rollouts are open, name one: {}", all.join(". "));
            return Err(CliError::usage(problem));
        }
        open.pop().ok_or_else(|| {
            let which = self.rollout.as_deref().map_or("no rollout is", |_| "that rollout is not");
            let problem = format!(
                "{which} under way or cut short on these hosts: `latput fleet undo` takes a whole one back"
            );
            CliError::new(ExitReason::Failed, problem)
        })
    }
}

fn inspect_hosts(fleet: &Fleet, context: &CliContext) -> Vec<JudgedHost> {
    let mut hosts = fleet.hosts();
    for host in &mut hosts {
        host.setting.clear();
    }
    judge_hosts(&hosts, look::inspect_all(fleet, Some(&[]), context))
}

/// Looks at the hosts, and names the rollouts that are open.
pub(super) fn tell_open(args: &FleetArgs, fleet: &Fleet, context: &CliContext) {
    warn_open_rollouts(args, &inspect_hosts(fleet, context));
}

/// Names the rollouts that are open, and how each is finished.
pub(super) fn warn_open_rollouts(args: &FleetArgs, judged: &[JudgedHost]) {
    for open in open_rollouts(judged, unix_ms()) {
        let finish = format!("latput fleet finish {}{}", open.name, args.to_arg_text());
        output::print_remark(&format!(
            "latput: warning: {open}. Unless somebody is at it: `{finish} --confirm` or `{finish} --back`"
        ));
    }
}
