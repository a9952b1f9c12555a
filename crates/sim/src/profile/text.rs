//! Profiles as texts: shipped ones and users' own. Each is checked as a whole.

use latput_trial::{Traffic, Workload};
use latput_units::file_words::problem_of;
use latput_units::{BitsPerSecond, Bytes, Nanos};
use serde::de::DeserializeOwned;

use super::SystemProfile;
use crate::validate::InvalidValue;

/// The shipped profiles, by name.
const SHIPPED: &[(&str, &str)] = &[
    ("bl25p-tg3", include_str!("../../../../data/systems/bl25p-tg3.toml")),
    ("dragonfly-em", include_str!("../../../../data/systems/dragonfly-em.toml")),
    ("freebsd-em", include_str!("../../../../data/systems/freebsd-em.toml")),
    ("hs22-ixgbe", include_str!("../../../../data/systems/hs22-ixgbe.toml")),
    ("memcached-mlx5", include_str!("../../../../data/systems/memcached-mlx5.toml")),
    ("p4-e1000", include_str!("../../../../data/systems/p4-e1000.toml")),
    ("rx1600-e1000", include_str!("../../../../data/systems/rx1600-e1000.toml")),
    ("rx1600-tg3-2.6.12", include_str!("../../../../data/systems/rx1600-tg3-2.6.12.toml")),
    ("rx1600-tg3-2.6.8", include_str!("../../../../data/systems/rx1600-tg3-2.6.8.toml")),
    ("rx1620-e1000", include_str!("../../../../data/systems/rx1620-e1000.toml")),
    ("rx1620-e1000-7", include_str!("../../../../data/systems/rx1620-e1000-7.toml")),
    ("rx1620-s2io", include_str!("../../../../data/systems/rx1620-s2io.toml")),
    ("server-10g", include_str!("../../../../data/systems/server-10g.toml")),
];

/// An error in the text of a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TextError(String);

impl SystemProfile {
    /// The names of the shipped profiles.
    pub fn shipped_names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The shipped profile of this name.
    pub fn find_shipped(name: &str) -> Option<Self> {
        let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name)?;
        Some(parse(text).expect("the shipped profiles are tested"))
    }

    /// Parses the text of a profile. Refuses a profile on which no trial could run.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        parse(text).map_err(TextError)
    }
}

/// Reads a document of TOML. An error of syntax names its line, one of a value its key.
///
/// The value is read from the parsed table: `toml::from_str` compiles three readers of each struct.
pub fn read_toml<T: DeserializeOwned>(text: &str) -> Result<T, TextError> {
    let table: toml::Table =
        toml::from_str(text).map_err(|error| TextError(error.to_string().trim_end().to_owned()))?;
    let read = table.try_into();
    read.map_err(|error: toml::de::Error| TextError(problem_of(&error.to_string(), "", None, &[])))
}

fn parse(text: &str) -> Result<SystemProfile, String> {
    let profile: SystemProfile = read_toml(text).map_err(|TextError(problem)| problem)?;
    let is_word = |name: &str| (1..=40).contains(&name.len()) && !name.contains(char::is_control);
    if !is_word(&profile.name) {
        return Err(String::from("name must have 1 to 40 printable characters"));
    }
    profile.build_scenario(&minimal_workload(), 0, Nanos::from_ms(1)).map_err(|invalid| {
        let InvalidValue { key, found, wanted } = &invalid;
        let key = to_profile_key(&profile, key);
        format!("{key} is {found}, must be {wanted}")
    })?;
    Ok(profile)
}

/// The key of a profile for a key of its scenario.
fn to_profile_key(profile: &SystemProfile, key: &str) -> String {
    let generator = if profile.generator.is_some() { "generator." } else { "sut." };
    // The other generators are equal, so the first has the same error.
    let last = format!("host.{}.", profile.generators + 1);
    let unit = match key {
        "network.rate" => "_bps",
        "network.latency" => "_ns",
        "network.mtu" => "_bytes",
        _ => "",
    };
    let key = key.replace("host.0.", generator).replace("host.1.", "sut.");
    key.replace(&last, "observer.") + unit
}

/// A minimal workload, to check a profile.
pub(crate) fn minimal_workload() -> Workload {
    let traffic = Traffic::udp_stream(Bytes::new(64), BitsPerSecond::new(1_000));
    Workload::plain(String::new(), traffic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_shipped_by_name() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/systems");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().display().to_string())
            .collect();
        files.sort();
        assert_eq!(files, SystemProfile::shipped_names().collect::<Vec<_>>());
        for name in SystemProfile::shipped_names() {
            assert_eq!(SystemProfile::find_shipped(name).unwrap().name, name);
        }
    }

    #[test]
    fn impossible_profile_is_refused_by_key() {
        assert_parse_error("cores = 4", "cores = 0", "sut.machine.cores is 0, must be 1 to 1024");
        assert_parse_error("cores = 4", "cores = -4", "-4");
        assert_parse_error("wake_ns = 900", "wake_us = 1", "wake_us");
        assert_parse_error(
            "latency_ns = 5000",
            "latency_ns = 99000000000000",
            "network.latency_ns is ",
        );
        assert_parse_error("schema = 1", "schema = 9", "schema is 9, must be 1");
        assert_parse_error("[network]", "[net]", "net");
        assert_parse_error("name = \"server-10g\"", "name = \"\"", "name must have");
        assert_parse_error("schema = 1", "schema = ", "line 3");
        assert_parse_error(
            "schema = 1",
            "schema = 1\ngenerators = 2",
            "network.switch_buffer_bytes is absent",
        );
        assert_parse_error(
            "schema = 1",
            "schema = 1\ngenerators = 0",
            "generators is 0, must be 1 to 64",
        );
    }

    #[test]
    fn wrong_values_are_told_in_profile_words() {
        for (name, text) in SHIPPED {
            let whole: toml::Table = text.parse().unwrap();
            let refused = latput_testkit::check_wrong_values(&whole, |text| {
                SystemProfile::parse(text).err().map(|error| error.to_string())
            });
            assert!(refused > 200, "{name}: {refused}");
        }
    }

    #[track_caller]
    fn assert_parse_error(from: &str, to: &str, expected: &str) {
        let (_, good) = SHIPPED.iter().find(|(name, _)| *name == "server-10g").unwrap();
        assert!(good.contains(from));
        let problem = SystemProfile::parse(&good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(problem.contains(expected), "{problem}");
    }
}
