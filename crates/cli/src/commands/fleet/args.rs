//! Words of the command line that say which hosts, and what is wanted of them.

use std::path::{Path, PathBuf};

use latput_fleet::workers::WAITED_FOR_MOST;
use latput_fleet::{Fleet, FleetWish, HostSource};
use latput_linux::confine::UsedFiles;
use latput_results::ResultsDb;
use latput_units::Nanos;

use super::fleet_context;
use crate::commands::change;
use crate::commands::export_settings::ExportedRole;
use crate::commands::proven::proven_setting;
use crate::commands::report::setting_of;
use crate::context::CliContext;
use crate::exit::CliError;
use crate::output;
use crate::targets::SIMULATED;

/// Which hosts, and how they are asked.
#[derive(Debug, clap::Args)]
pub(super) struct FleetArgs {
    /// The hosts: a file of groups (.toml), or an Ansible inventory, read by `ansible-inventory`; or its output with
    /// --list (.json) [default: inventory.toml].
    #[arg(short, long, value_name = "FILE", conflicts_with = "hosts_from")]
    inventory: Option<PathBuf>,
    /// A command that prints the hosts, one word a line, such as `ssh://root@web1%eth0`. No shell reads it.
    #[arg(long, value_name = "COMMAND")]
    hosts_from: Option<String>,
    /// Only the hosts of this group. May be repeated.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// The interface of hosts without one in the list.
    #[arg(long, value_name = "IFACE")]
    interface: Option<String>,
    /// Hosts to work on at a time; a host that is silent for a second does not count.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = parse_parallel)]
    parallel: usize,
    /// Longest time for one answer of one host (1s to 1h); give more where latput must be copied over a slow line.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_timeout)]
    timeout: Nanos,
    /// The static latput to copy to hosts without this version; by default this program.
    #[arg(long, value_name = "FILE")]
    bring: Option<PathBuf>,
}

fn parse_parallel(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=WAITED_FOR_MOST).contains(count));
    count.ok_or_else(|| format!("give a number from 1 to {WAITED_FOR_MOST}"))
}

fn parse_timeout(text: &str) -> Result<Nanos, String> {
    let time = Nanos::from_text_or_seconds(text).map_err(|error| error.to_string())?;
    let is_meant = (Nanos::from_s(1)..=Nanos::from_s(3600)).contains(&time);
    is_meant.then_some(time).ok_or_else(|| "must be 1s to 1h".to_owned())
}

/// Operations of a command that need rights.
#[derive(Debug, Default)]
pub(super) struct FleetRights<'a> {
    /// Whether it changes hosts.
    pub(super) changes: bool,
    /// The words of the user's guards, as given.
    pub(super) guards: &'a [Vec<String>],
    /// The files that it uses.
    pub(super) files: UsedFiles<'a>,
}

impl FleetArgs {
    /// Reads the hosts, and gives up the rights of this process but for `rights`. Then it reads the `wish`, which may be a
    /// stranger's.
    pub(super) fn open<'c>(
        &self,
        rights: &FleetRights<'_>,
        wish: impl FnOnce() -> Result<FleetWish, CliError>,
        context: &'c CliContext,
    ) -> Result<Fleet<'c>, CliError> {
        let source = HostSource {
            inventory: self.inventory.clone(),
            hosts_from: self.hosts_from.clone(),
            groups: self.group.clone(),
            interface: self.interface.clone(),
            bring: self.bring.clone(),
            parallel: self.parallel,
            timeout: self.timeout,
        };
        let mut fleet = Fleet::list(source, fleet_context(context))?;
        let permitted = fleet.permissions(rights.changes, rights.guards);
        context.leave_rights_to_broker(&permitted, &rights.files)?;
        fleet.settle_wish(&wish()?)?;
        Ok(fleet)
    }
}

/// The wanted values, where they are not those of the inventory.
#[derive(Debug, clap::Args)]
pub(super) struct WantedArgs {
    /// The wanted values instead of the inventory's.
    #[arg(value_name = "KNOB=VALUE")]
    wanted: Vec<String>,
    /// Take the wanted values from the recommendation of a results file. Hosts with another driver than the measured
    /// one are `other`, unless the inventory names their driver.
    #[arg(long, value_name = "RESULTS", conflicts_with = "wanted")]
    from: Option<PathBuf>,
    /// A setting other than the recommended one of the results file, by label or a unique part of it.
    #[arg(long, value_name = "SETTING", requires = "from", conflicts_with = "wanted")]
    setting: Option<String>,
    /// Run number in the results file; by default the newest run.
    #[arg(long, value_name = "N", requires = "from", conflicts_with = "wanted")]
    run: Option<i64>,
    /// The role in the results file that the fleet's hosts have.
    #[arg(long, value_enum, default_value = "sut", requires = "from")]
    role: ExportedRole,
}

impl WantedArgs {
    /// Refuses words of the command line that are no values.
    pub(super) fn check_values(&self) -> Result<(), CliError> {
        change::setting_of(&self.wanted).map(drop)
    }

    /// These options as words of a command line.
    pub(super) fn to_arg_text(&self) -> String {
        let role = (self.role != ExportedRole::Sut).then(|| "generator".to_owned());
        let options = [
            ("--from", self.from.as_ref().map(|path| path.display().to_string())),
            ("--setting", self.setting.clone()),
            ("--run", self.run.map(|run| run.to_string())),
            ("--role", role),
        ];
        let word = |(name, value): (&str, Option<String>)| {
            Some(format!(" {name} {}", latput_report::shell_word(&value?)))
        };
        let values =
            self.wanted.iter().map(|value| format!(" {}", latput_report::shell_word(value)));
        options.into_iter().filter_map(word).chain(values).collect()
    }

    /// The results file, if one is named.
    pub(super) fn results_file(&self) -> Option<&Path> {
        self.from.as_deref()
    }

    /// Reads what is wanted.
    pub(super) fn read(&self) -> Result<FleetWish, CliError> {
        match &self.from {
            Some(path) => self.read_results(path),
            None => Ok(FleetWish { setting: change::setting_of(&self.wanted)?, driver: None }),
        }
    }

    fn read_results(&self, path: &Path) -> Result<FleetWish, CliError> {
        let file = path.display();
        let results = ResultsDb::open(path)?.load_chosen(self.run)?;
        if self.setting.is_none() && results.is_imported() {
            return Err(CliError::usage(format!(
                "{file} was imported from a report, and anybody can have edited it. Check its settings, then name \
                 one with --setting"
            )));
        }
        let chosen = match &self.setting {
            Some(name) => setting_of(&results, name)?,
            None => proven_setting(&results)?,
        };
        let role = self.role.to_role();
        let labelled = &results.settings[chosen];
        let setting = labelled.by_role.get(&role).cloned().unwrap_or_default();
        if setting.is_empty() {
            return Err(CliError::usage(format!(
                "setting `{}` of {file} changes no knob of that host: name another with --setting or --role",
                labelled.label
            )));
        }
        output::print_remark(&format!(
            "latput: the wanted values are setting `{}` of {file}",
            labelled.label
        ));
        if results.testbed.starts_with(SIMULATED) {
            output::print_remark(&format!(
                "latput: {file} is a simulation (`{}`): no host was measured",
                results.testbed
            ));
        }
        let host = results.hosts.iter().find(|host| host.role == role);
        let fact = host.and_then(|host| host.facts.iter().find(|(name, _)| name == DRIVER));
        Ok(FleetWish { setting, driver: fact.map(|(_, driver)| driver.clone()) })
    }
}

/// The fact of a host that names its driver.
const DRIVER: &str = "driver";
