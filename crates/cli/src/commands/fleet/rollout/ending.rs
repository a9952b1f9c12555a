//! Ending of every host of a rollout, for people, programs and the exit code.

use std::fmt::Write as _;
use std::process::ExitCode;

use latput_runner::error::LeftChanged;
use latput_report::NO_KEEP;
use latput_units::text::format_utc;

use super::super::table::hosts_in_words;
use super::{HostPhase, Rollout, RolloutEnded, RolloutHost, find_differences};
use crate::document::fleet::{RolloutDocument, RolloutHostPart};
use crate::exit::{CliError, CutShort, ExitReason};
use crate::output;

/// The outcomes in the order of tables.
const OUTCOMES: [&str; 9] = [
    "confirmed",
    "same",
    "would-change",
    "unchanged",
    "would-refuse",
    "put-back",
    "left-out",
    "goes-back",
    "stranded",
];

impl HostPhase {
    /// The name of a host's outcome.
    fn outcome_name(&self, ended: &RolloutEnded) -> &'static str {
        match self {
            Self::Same => "same",
            Self::LeftOut(_) => "left-out",
            Self::WouldRefuse(_) => "would-refuse",
            Self::Planned if *ended == RolloutEnded::Rehearsed => "would-change",
            Self::Planned => "unchanged",
            Self::Changed(_) | Self::GoesBack(..) => "goes-back",
            Self::Confirmed(_) => "confirmed",
            Self::PutBack(_) => "put-back",
            Self::Stranded(_) => "stranded",
        }
    }

    /// Whether the host is, or may be, neither as it was nor as it is to be.
    const fn is_left(&self) -> bool {
        matches!(self, Self::Changed(_) | Self::GoesBack(..) | Self::Stranded(_))
    }

    fn back_by_unix_ms(&self) -> Option<u64> {
        match self {
            Self::Changed(lease) | Self::GoesBack(_, lease) => Some(lease.back_by_unix_ms),
            _ => None,
        }
    }

    /// Reason of its ending; empty if its outcome says all.
    fn explain_outcome(&self) -> String {
        match self {
            Self::LeftOut(why)
            | Self::WouldRefuse(why)
            | Self::PutBack(why)
            | Self::Stranded(why) => why.clone(),
            Self::GoesBack(why, lease) => {
                format!(
                    "{why}; it goes back by itself by {}",
                    format_utc(lease.back_by_unix_ms / 1000)
                )
            }
            _ => String::new(),
        }
    }
}

impl Rollout<'_> {
    /// Prints what became of every host, and gives the exit code.
    pub(super) fn print_outcomes(&self, ended: &RolloutEnded) -> Result<ExitCode, CliError> {
        if self.context.json {
            output::print_json(&self.build_document(ended))?;
        } else {
            output::print_text(&self.render_text(ended))?;
        }
        match ended {
            RolloutEnded::Broken(why) => Err(self.rollout_failure(why)),
            _ if self.parts.iter().any(|part| !is_well(&part.phase, ended)) => {
                Ok(ExitReason::Partial.into())
            }
            _ => Ok(ExitReason::Done.into()),
        }
    }

    fn rollout_failure(&self, why: &str) -> CliError {
        let left: Vec<LeftChanged> = self.parts.iter().filter_map(Self::left_changed).collect();
        let back = self.in_phase(|phase| matches!(phase, HostPhase::PutBack(_))).len();
        if left.is_empty() && back == 0 {
            return CliError::new(ExitReason::Failed, format!("{why}: nothing was changed"));
        }
        if left.is_empty() {
            let words = format!("{why}: {} put back", hosts_in_words(back));
            return CliError::new(ExitReason::RolledBack, words);
        }
        let of_phase = |is_meant: fn(&HostPhase) -> bool| {
            let meant = self.parts.iter().filter(|part| is_meant(&part.phase));
            meant.map(|part| part.member.host.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let going = of_phase(|phase| matches!(phase, HostPhase::GoesBack(..)));
        let stuck = of_phase(|phase| phase.is_left() && !matches!(phase, HostPhase::GoesBack(..)));
        let mut message = format!("{why}. Put back: {}", hosts_in_words(back));
        for (what, names) in
            [("Going back by themselves, at the time above", going), ("Not put back", stuck)]
        {
            if !names.is_empty() {
                let _ = write!(message, ". {what}: {names}");
            }
        }
        CliError { code: ExitReason::Stranded, error: CutShort { message, left }.into() }
    }

    fn left_changed(part: &RolloutHost) -> Option<LeftChanged> {
        let RolloutHost { member, phase, .. } = part;
        phase.is_left().then(|| LeftChanged {
            host: member.host.name.clone(),
            why: phase.explain_outcome(),
            command: member.command_line(&["restore", &member.host.interface]),
        })
    }

    fn render_text(&self, ended: &RolloutEnded) -> String {
        let mut text = String::new();
        if *ended == RolloutEnded::Rehearsed {
            for (number, stage) in self.stages.iter().enumerate() {
                let names: Vec<&str> =
                    stage.iter().map(|idx| self.parts[*idx].member.host.name.as_str()).collect();
                let _ = writeln!(text, "stage {}: {}", number + 1, names.join(" "));
            }
        }
        for outcome in OUTCOMES {
            let parts: Vec<&RolloutHost> = self
                .parts
                .iter()
                .filter(|part| part.phase.outcome_name(ended) == outcome)
                .collect();
            if parts.is_empty() {
                continue;
            }
            let _ = writeln!(text, "{outcome:<12} {}", hosts_in_words(parts.len()));
            for part in parts {
                let why = Self::explain_host(part, ended);
                if !why.is_empty() {
                    let host = &part.member.host;
                    let _ = writeln!(text, "  {} {}: {why}", host.name, host.interface);
                }
            }
        }
        text + &self.next(ended)
    }

    /// How to take the rollout back, and how to keep it over a reboot.
    fn next(&self, ended: &RolloutEnded) -> String {
        let is_confirmed = |phase: &HostPhase| matches!(phase, HostPhase::Confirmed(_));
        if *ended != RolloutEnded::Confirmed || self.in_phase(is_confirmed).is_empty() {
            return String::new();
        }
        let (hosts, wanted) = (self.args.fleet.to_arg_text(), self.args.wanted.to_arg_text());
        let name = &self.name;
        let mut confirmed = self.parts.iter().filter(|part| is_confirmed(&part.phase));
        let keep = if confirmed.all(|part| part.member.host.reach.starts_with("netns://")) {
            NO_KEEP.to_owned()
        } else {
            format!("latput fleet keep{hosts}{wanted}")
        };
        format!("undo:  latput fleet undo {name}{hosts}\nkeep:  {keep}\n")
    }

    fn explain_host(part: &RolloutHost, ended: &RolloutEnded) -> String {
        if *ended == RolloutEnded::Rehearsed
            && part.phase == HostPhase::Planned
            && let Some(found) = part.before.first()
        {
            return latput_fleet::judge::describe_differences(&find_differences(
                &part.member.host,
                &found.look,
            ));
        }
        part.phase.explain_outcome()
    }

    fn build_document(&self, ended: &RolloutEnded) -> RolloutDocument {
        let name = |idx: &usize| self.parts[*idx].member.host.name.clone();
        let hosts = self.parts.iter().map(|part| RolloutHostPart {
            name: part.member.host.name.clone(),
            group: part.member.host.group.clone(),
            target: part.member.host.reach.clone(),
            interface: part.member.host.interface.clone(),
            outcome: part.phase.outcome_name(ended).to_owned(),
            why: Self::explain_host(part, ended),
            journal: if let HostPhase::Confirmed(number) = part.phase { number } else { None },
            back_by_unix_ms: part.phase.back_by_unix_ms(),
        });
        RolloutDocument {
            schema: 1,
            name: self.name.clone(),
            ended: match ended {
                RolloutEnded::Nothing => "nothing-to-do",
                RolloutEnded::Rehearsed => "dry-run",
                RolloutEnded::Confirmed => "confirmed",
                RolloutEnded::Broken(_) => "put-back",
            }
            .to_owned(),
            broken: if let RolloutEnded::Broken(why) = ended { Some(why.clone()) } else { None },
            stages: self.stages.iter().map(|stage| stage.iter().map(name).collect()).collect(),
            hosts: hosts.collect(),
        }
    }
}

/// Whether a host is as it is to be at the end.
const fn is_well(phase: &HostPhase, ended: &RolloutEnded) -> bool {
    match phase {
        HostPhase::Same | HostPhase::Confirmed(_) => true,
        // Stages need not reach all.
        HostPhase::Planned => !matches!(ended, RolloutEnded::Broken(_)),
        _ => false,
    }
}
