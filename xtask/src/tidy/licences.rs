//! Demands of `deny.toml` on the crates of others: their licences, their registry, and which may not come in.
//!
//! `cargo deny` checks the same and more (`cargo xtask ci --full`), and takes a minute to build.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

use super::Finding;
use crate::workspace::{capture_output, cargo_command};

const DEMANDS: &str = "deny.toml";
const LOCK: &str = "Cargo.lock";
/// A crate that comes from elsewhere comes from git. `deny.toml` names the registry too.
const REGISTRY: &str = "registry+";

/// `deny.toml`, as far as it is read here.
#[derive(Debug, Deserialize)]
struct DenyConfig {
    licenses: LicenceConfig,
    bans: BanConfig,
}

#[derive(Debug, Deserialize)]
struct LicenceConfig {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct BanConfig {
    deny: Vec<BannedCrate>,
}

#[derive(Debug, Deserialize)]
struct BannedCrate {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

/// A crate, as `cargo metadata` has it.
#[derive(Clone, Debug, Deserialize)]
struct CrateInfo {
    name: String,
    version: String,
    /// SPDX; old ones have `/` for `OR`.
    license: Option<String>,
    /// `None` for a crate of this repository.
    source: Option<String>,
}

/// Every crate of others that is not as demanded.
pub fn check_licences(root: &Path) -> Result<Vec<Finding>> {
    #[derive(Deserialize)]
    struct CrateMetadata {
        packages: Vec<CrateInfo>,
    }
    let text = std::fs::read_to_string(root.join(DEMANDS)).context(DEMANDS)?;
    let demands: DenyConfig = toml::from_str(&text).context(DEMANDS)?;
    let mut metadata = cargo_command();
    metadata.args(["metadata", "--locked", "--format-version", "1"]).current_dir(root);
    let metadata: CrateMetadata = serde_json::from_str(&capture_output(&mut metadata)?)?;
    let allowed = demands.licenses.allow.iter().map(|licence| {
        Licensee::parse(licence).with_context(|| format!("{DEMANDS}: `{licence}` is no licence"))
    });
    let allowed = allowed.collect::<Result<Vec<_>>>()?;
    let others = metadata.packages.iter().filter(|it| it.source.is_some());
    let wrong = others.filter_map(|it| Some((it, it.find_fault(&allowed, &demands.bans.deny)?)));
    Ok(wrong
        .map(|(it, why)| Finding::new(LOCK, 0, format!("{} {why}", it.format_name())))
        .collect())
}

impl CrateInfo {
    fn format_name(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    fn find_fault(&self, allowed: &[Licensee], banned: &[BannedCrate]) -> Option<String> {
        if let Some(ban) = banned.iter().find(|ban| ban.name == self.name) {
            return Some(format!("may not come in: {}", ban.reason));
        }
        if !self.source.as_deref().is_some_and(|it| it.starts_with(REGISTRY)) {
            return Some("is of no registry".to_owned());
        }
        let Some(licence) = &self.license else { return Some("names no licence".to_owned()) };
        let allows = Expression::parse_mode(licence, ParseMode::LAX).is_ok_and(|terms| {
            terms.evaluate(|term| allowed.iter().any(|licensee| licensee.satisfies(term)))
        });
        let why = format!("has a licence that {DEMANDS} does not allow: {licence}");
        (!allows).then_some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crate_needs_an_allowed_licence_and_the_registry() {
        let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception"];
        let allowed = allowed.map(|it| Licensee::parse(it).unwrap());
        let banned = [BannedCrate { name: "tokio".into(), reason: "no async runtime".into() }];
        let check = |licence: &str, source: &str, expected: Option<&str>| {
            let it = CrateInfo {
                name: if source == "banned" { "tokio" } else { "one" }.into(),
                version: "1.0.0".into(),
                license: Some(licence.to_owned()).filter(|it| !it.is_empty()),
                source: Some(
                    if source == "git" { "git+https://host/one" } else { "registry+https://host" }
                        .into(),
                ),
            };
            let fault = it.find_fault(&allowed, &banned);
            match expected {
                None => assert_eq!(fault, None),
                Some(words) => assert!(fault.as_ref().unwrap().contains(words), "{fault:?}"),
            }
        };
        check("MIT", "", None);
        check("GPL-3.0-only OR MIT", "", None);
        check("GPL-3.0/MIT", "", None);
        check("(MIT OR GPL-2.0-only) AND Apache-2.0 WITH LLVM-exception", "", None);
        check("MIT AND GPL-3.0-only", "", Some("not allow: MIT AND GPL-3.0-only"));
        check("Apache-2.0", "", Some("not allow"));
        check("to be had for free", "", Some("not allow"));
        check("", "", Some("no licence"));
        check("MIT", "git", Some("of no registry"));
        check("MIT", "banned", Some("no async runtime"));
    }
}
