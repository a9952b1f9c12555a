//! Parts of the binary, as `CycloneDX` 1.5.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::toolchain::Toolchain;
use super::{ReleaseInfo, write_file};
use crate::workspace::{capture_output, cargo_command};

/// The binary's package.
const ROOT: &str = "latput";

/// A package whose code is in the binary.
#[derive(Debug, Default)]
struct LinkedPackage {
    name: String,
    version: String,
    /// SPDX; old ones have `/` for `OR`.
    licence: String,
    /// Whether it is a crate of this repository.
    is_ours: bool,
    /// URLs of those it needs.
    needs: BTreeSet<String>,
}

/// Makes `latput-VERSION-ARCH-linux.cdx.json`.
pub fn make_sbom(release: &ReleaseInfo) -> Result<PathBuf> {
    // Procedural macros and build scripts only run when it is built.
    let words = "tree --locked --edges normal,no-proc-macro --prefix depth --package";
    let target = release.processor().triple();
    let mut tree = cargo_command();
    tree.args(words.split(' ')).args([ROOT, "--target", &target, "--format", "\t{p}\t{l}"]);
    let tree = capture_output(tree.current_dir(&release.workspace.root))?;
    let document = build_document(&parse_tree(&tree)?, release)?;
    let file = release.package_path("", ".cdx.json");
    write_file(&file, &serde_json::to_vec_pretty(&document)?, 0o644)?;
    Ok(file)
}

/// The packages of `cargo tree`, by their URLs: depth, name and version (and place, if it is ours), licence. One that was
/// shown before has a star and none of its needs.
fn parse_tree(text: &str) -> Result<BTreeMap<String, LinkedPackage>> {
    let mut linked: BTreeMap<String, LinkedPackage> = BTreeMap::new();
    let mut above: Vec<String> = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.trim_end_matches(" (*)").split('\t').collect();
        let [depth, package, licence] = cells[..] else { anyhow::bail!("cargo tree: {line}") };
        let mut words = package.split(' ');
        let name = words.next().unwrap_or_default();
        let version = words.next().and_then(|word| word.strip_prefix('v')).context("no version")?;
        let url = package_url(name, version);
        above.truncate(depth.parse()?);
        if let Some(parent) = above.last().and_then(|parent| linked.get_mut(parent)) {
            parent.needs.insert(url.clone());
        }
        above.push(url.clone());
        let is_ours = words.next().is_some();
        linked.entry(url).or_insert_with(|| LinkedPackage {
            name: name.to_owned(),
            version: version.to_owned(),
            licence: licence.replace('/', " OR "),
            is_ours,
            needs: BTreeSet::new(),
        });
    }
    Ok(linked)
}

fn build_document(
    linked: &BTreeMap<String, LinkedPackage>,
    release: &ReleaseInfo,
) -> Result<Value> {
    let others = linked.iter().filter(|(_, package)| package.name != ROOT);
    let mut components: Vec<Value> = others.map(describe_component).collect();
    components.extend(of_toolchain(&release.toolchain)?);
    components.sort_by_key(|it| it["bom-ref"].to_string());
    let dependencies: Vec<Value> = linked
        .iter()
        .map(|(url, package)| json!({ "ref": url, "dependsOn": package.needs }))
        .collect();
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.format_commit_time()?,
            "component": {
                "type": "application",
                "bom-ref": package_url(ROOT, &release.version),
                "name": ROOT,
                "version": release.version,
                "licenses": [{ "expression": "Apache-2.0 OR MIT" }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

fn describe_component((url, package): (&String, &LinkedPackage)) -> Value {
    let mut component = describe_library(url, &package.name, &package.version, &package.licence);
    if !package.is_ours {
        component["purl"] = json!(url);
    }
    component
}

fn describe_library(url: &str, name: &str, version: &str, licence: &str) -> Value {
    json!({
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": version,
        "licenses": [{ "expression": licence }],
    })
}

/// A package URL for what is from a registry; crates of this repository are named alike.
fn package_url(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

/// Libraries that the toolchain links into every static program.
fn of_toolchain(toolchain: &Toolchain) -> Result<[Value; 2]> {
    let library = |name: &str, version: &str, licence: &str| {
        describe_library(&format!("{name}@{version}"), name, version, licence)
    };
    let rustc = capture_output(toolchain.rustc().arg("--version"))?;
    let rustc = rustc.split_whitespace().nth(1).context("rustc tells no version")?;
    let words = ["-include", "features.h", "-dM", "-E", "-x", "c", "/dev/null"];
    let macros = capture_output(toolchain.compiler().args(words))?;
    let value = |name: &str| {
        let line =
            macros.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name));
        line.map(str::trim).context("the C library tells no version")
    };
    let glibc = format!("{}.{}", value("__GLIBC__ ")?, value("__GLIBC_MINOR__ ")?);
    Ok([
        library("glibc", &glibc, "LGPL-2.1-or-later"),
        library("rust-std", rustc, "MIT OR Apache-2.0"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_read_from_the_tree() {
        let tree = "0\tlatput v0.1.0 (/x)\tMIT\n1\tb v2.0.0\tMIT/Apache-2.0\n2\tc v3.0.0\tMIT\n1\tc v3.0.0\tMIT (*)\n";
        let linked = parse_tree(tree).unwrap();
        let needs = |url: &str| linked[url].needs.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(needs("pkg:cargo/latput@0.1.0"), ["pkg:cargo/b@2.0.0", "pkg:cargo/c@3.0.0"]);
        assert_eq!(needs("pkg:cargo/b@2.0.0"), ["pkg:cargo/c@3.0.0"]);
        let b = &linked["pkg:cargo/b@2.0.0"];
        assert_eq!((b.licence.as_str(), b.is_ours), ("MIT OR Apache-2.0", false));
        assert!(linked["pkg:cargo/latput@0.1.0"].is_ours);
    }
}
