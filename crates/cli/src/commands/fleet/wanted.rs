//! Wanted values of a fleet: from the command line, or a setting that was measured.

use std::path::{Path, PathBuf};

use latput_results::ResultsDb;
use latput_fleet::FleetHost;
use latput_knobs::Setting;

use crate::commands::change;
use crate::commands::export_settings::ExportedRole;
use crate::commands::proven::proven_setting;
use crate::commands::report::setting_of;
use crate::exit::CliError;
use crate::output;
use crate::targets::SIMULATED;

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

/// Values that every host is to have.
#[derive(Debug, Default)]
pub(super) struct FleetWish {
    /// The values; empty if the inventory tells them.
    pub(super) setting: Setting,
    /// The driver that they were measured with.
    pub(super) driver: Option<String>,
}

impl FleetWish {
    /// A host with what is wanted of it.
    pub(super) fn applied_to(&self, host: FleetHost) -> FleetHost {
        let FleetHost { setting, driver, .. } = &host;
        let setting = if self.setting.is_empty() { setting } else { &self.setting };
        let driver = driver.clone().or_else(|| self.driver.clone());
        FleetHost { setting: setting.clone(), driver, ..host }
    }
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
            Some(path) => self.of_results(path),
            None => Ok(FleetWish { setting: change::setting_of(&self.wanted)?, driver: None }),
        }
    }

    fn of_results(&self, path: &Path) -> Result<FleetWish, CliError> {
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
