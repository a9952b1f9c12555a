//! The profiles of published machines.

use std::collections::BTreeMap;

use latput_sim::SystemProfile;
use latput_sim::profile::read_toml;
use latput_sim::vector::InterruptDelay;
use latput_units::{IntoMap, IntoSet};
use serde::Deserialize;

use crate::kind::ExperimentKind;
use crate::row::{CsvRow, RowError};
use crate::setting::ThrottleSetting;

/// The shipped profile of no published machine.
const UNPUBLISHED: &str = "server-10g";
const MACHINES: &str = include_str!("../../../data/machines.toml");

/// The published machines and their profiles.
#[derive(Clone, Debug)]
pub struct SystemCatalog {
    machines: Vec<PublishedMachine>,
    profiles: BTreeMap<String, SystemProfile>,
}

/// One published machine with its names in rows.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedMachine {
    /// The column `system`.
    pub system: String,
    /// The column `driver`.
    pub driver: String,
    /// Beginnings of the column `driver_version`; empty for any.
    #[serde(default)]
    pub driver_versions: Vec<String>,
    /// Its profile.
    pub profile: String,
    /// Most load generators. Further instances share them.
    #[serde(default = "one")]
    pub generators: u32,
    /// Whether the other hosts have the measured one's setting by default.
    #[serde(default)]
    pub set_alike: bool,
    /// `rx-frames` of the other hosts if only the measured one has a receive delay.
    #[serde(default)]
    pub others_rx_frames: Option<u32>,
    /// The driver's default transmit delay (TIDV, TADV), if it is not the profile's.
    #[serde(default)]
    pub default_tx: Option<InterruptDelay>,
    /// The driver's default `InterruptThrottleRate`, if it is not the profile's.
    #[serde(default)]
    pub default_throttle: Option<u32>,
}

const fn one() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    machine: Vec<PublishedMachine>,
}

impl SystemCatalog {
    /// The shipped machines and profiles.
    pub fn load_shipped() -> Self {
        let machines: MachineFile =
            read_toml(MACHINES).expect("the table of machines is shipped and tested");
        let published = SystemProfile::shipped_names().filter(|name| *name != UNPUBLISHED);
        let profiles = published
            .filter_map(|name| Some((name.to_owned(), SystemProfile::find_shipped(name)?)))
            .into_map();
        Self { machines: machines.machine, profiles }
    }

    /// Replaces the shipped profile of the same name.
    pub fn replace_profile(&mut self, profile: SystemProfile) {
        self.profiles.insert(profile.name.clone(), profile);
    }

    /// A profile by name.
    pub fn find_profile(&self, name: &str) -> Option<&SystemProfile> {
        self.profiles.get(name)
    }

    /// The names of the profiles.
    pub fn profile_names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// The machines.
    pub fn machines(&self) -> impl Iterator<Item = &PublishedMachine> {
        self.machines.iter()
    }

    /// The machine of a row and its profile.
    pub fn for_row(
        &self,
        row: &CsvRow<'_>,
    ) -> Result<(&PublishedMachine, &SystemProfile), RowError> {
        let [system, driver, version] = ["system", "driver", "driver_version"].map(|c| row.text(c));
        let matches = |machine: &&PublishedMachine| {
            let any = machine.driver_versions.is_empty();
            machine.system == system
                && machine.driver == driver
                && (any || machine.driver_versions.iter().any(|from| version.starts_with(from)))
        };
        let machine = self.machines.iter().find(matches).ok_or_else(|| {
            let known = self.machines.iter().map(|m| format!("{} with {}", m.system, m.driver));
            let known: std::collections::BTreeSet<String> = known.into_set();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            row.unknown_machine(
                "system",
                format!(
                    "no profile for the machine `{system}`, driver `{driver}` {version}, kernel `{}`; \
                     there are: {known}",
                    row.text("kernel")
                ),
            )
        })?;
        Ok((machine, self.expect_profile(&machine.profile)))
    }

    /// The name of the profile for a row of this kind.
    pub fn profile_of(&self, kind: ExperimentKind, row: &CsvRow<'_>) -> Result<&str, RowError> {
        match kind {
            ExperimentKind::FqCodel => Ok("hs22-ixgbe"),
            ExperimentKind::PingIdle => Ok("dragonfly-em"),
            ExperimentKind::DevicePolling => Ok("freebsd-em"),
            ExperimentKind::IrqSuspension => Ok("memcached-mlx5"),
            _ => Ok(&self.for_row(row)?.0.profile),
        }
    }

    /// The profile for a file without machine columns.
    pub fn expect_profile(&self, name: &str) -> &SystemProfile {
        self.profiles.get(name).expect("every machine's profile is shipped; a test sees to it")
    }
}

impl PublishedMachine {
    /// The driver's default throttle, if it is not the profile's.
    pub fn default_throttle(&self) -> Option<ThrottleSetting> {
        self.default_throttle.map(ThrottleSetting::from_parameter)
    }
}
