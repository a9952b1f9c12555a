//! `latput hosts`: whether a testbed is ready to be measured.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use latput_controller::hosts::{self, HostCheck, HostFound};
use latput_experiment::Testbed;
use latput_experiment::testbed::TestbedKind;
use latput_knobs::{ChangeOutcome, Refusal};
use latput_linux::confine::UsedFiles;

use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;
use crate::targets::HostArgs;

/// Check the hosts of a testbed; nothing is set.
///
/// For each host: whether it is reached, its clock, versions, interface, speed, MTU, driver, knobs that can be set,
/// and load.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput hosts rack.toml                              the hosts that a testbed file names
  latput hosts ssh://root@server ssh://root@client    the way between two hosts
  latput hosts eth0 --peer ssh://root@client          this host and another
  latput hosts ssh://a ssh://b --save rack.toml       and keep what was found

Exit code 1 where a host cannot be used, 3 where only rights are missing.")]
pub(crate) struct Args {
    /// A testbed file, `lab`, or one or two hosts: the system under test, and the one that makes the traffic.
    #[arg(required = true, num_args = 1..=2, value_name = "TESTBED")]
    testbed: Vec<String>,
    #[command(flatten)]
    hosts: HostArgs,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let word = self.testbed.join(",");
        if word.starts_with("sim:") {
            return Err(CliError::usage(format!(
                "`{word}` is simulated: it has no hosts to check"
            )));
        }
        let place = match self.hosts.named_hosts(&word)? {
            Some(place) => place,
            None if word == "loopback" => self.hosts.of_testbed(Testbed::create_loopback()),
            None => self.hosts.of_testbed(Testbed::from_file(Path::new(&word))?),
        };
        place.give_up_rights(None, &UsedFiles::default(), context)?;
        let testbed = place.open(context)?;
        let TestbedKind::Hosts(specs) = &testbed.kind else {
            return Err(CliError::usage(format!("`{word}` has no hosts to check")));
        };
        let checks = hosts::check_hosts(specs, &context.stop);
        if context.json {
            let hosts: Vec<serde_json::Value> = checks.iter().map(build_document).collect();
            output::print_json(&serde_json::json!({ "schema": 1, "hosts": hosts }))?;
        } else {
            output::print_text(&checks.iter().map(render_text).collect::<String>())?;
        }
        let lost: Vec<&str> = checks
            .iter()
            .filter(|check| check.found.is_err())
            .map(|check| check.spec.name.as_str())
            .collect();
        if lost.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let mut outcomes = checks.iter().filter_map(|check| check.found.as_ref().err());
        let lacks_rights = |error: &latput_runner::Error| {
            error.outcome() == ChangeOutcome::Refused(Refusal::Permission)
        };
        let are_all_denied = outcomes.all(lacks_rights);
        let code = if are_all_denied { ExitReason::Permission } else { ExitReason::Failed };
        Err(CliError::new(code, format!("cannot be used: {}", lost.join(", "))))
    }
}

fn render_text(check: &HostCheck) -> String {
    let spec = &check.spec;
    let mut text = format!("{} ({})\n", spec.name, spec.role.name());
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:<10} {value}");
    };
    let found = match &check.found {
        Ok(found) => found,
        Err(error) => {
            line("error", &error.to_string());
            return text;
        }
    };
    let HostFound { view, clock, warnings } = found;
    let brought = if view.is_brought { ", copied for this run" } else { "" };
    line("latput", &format!("{}{brought}; Linux {}", view.version, view.kernel));
    line("clock", clock);
    let busy = view.busy_ratio.map_or(String::new(), |busy| format!(", {:.0}% busy", busy * 100.0));
    let own = spec.cpus.as_ref().map_or(String::new(), |cpus| format!("{cpus} of "));
    line("cpus", &format!("{own}{}{busy}", view.cpus.len()));
    line("interface", &format!("{} {}", spec.interface, spec.address));
    if let Some(interface) = view.find_interface(&spec.interface) {
        let speed =
            interface.speed.map_or_else(|| "not known".to_owned(), |speed| speed.to_string());
        line("speed", &format!("{speed}, mtu {}", interface.mtu.get()));
        line("driver", &interface.driver);
    }
    if let Some(knobs) = &view.knobs {
        let (settable, fixed) = (knobs.settable.len(), knobs.read_only_count);
        line("knobs", &format!("{settable} can be set, {fixed} only read"));
    }
    for warning in warnings {
        line("warning", warning);
    }
    text
}

fn build_document(check: &HostCheck) -> serde_json::Value {
    let spec = &check.spec;
    let mut document = serde_json::json!({
        "name": spec.name,
        "role": spec.role.name(),
        "interface": spec.interface,
        "address": spec.address,
    });
    match &check.found {
        Err(error) => document["error"] = error.to_string().into(),
        Ok(HostFound { view, clock, warnings }) => {
            let interface = view.find_interface(&spec.interface);
            document["latput"] = view.version.as_str().into();
            document["is_brought"] = view.is_brought.into();
            document["kernel"] = view.kernel.as_str().into();
            document["clock"] = clock.as_str().into();
            document["cpus"] = view.cpus.len().into();
            document["busy_ratio"] = view.busy_ratio.into();
            document["driver"] = interface.map(|found| found.driver.as_str()).into();
            document["mtu"] = interface.map(|found| found.mtu.get()).into();
            document["speed_bps"] = interface
                .and_then(|found| found.speed)
                .map(latput_units::BitsPerSecond::get)
                .into();
            document["settable"] =
                view.knobs.iter().flat_map(|knobs| &knobs.settable).cloned().collect();
            document["warnings"] = warnings.clone().into();
        }
    }
    document
}
