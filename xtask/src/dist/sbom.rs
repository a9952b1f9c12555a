//! Parts of the binary, as `CycloneDX` 1.5.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ReleaseInfo, write_file};
use crate::workspace::{capture_output, cargo_command};

/// The binary's package.
const ROOT: &str = "latput";

#[derive(Debug, Deserialize)]
struct ResolvedMetadata {
    packages: Vec<ResolvedPackage>,
    resolve: DependencyGraph,
}

#[derive(Debug, Deserialize)]
struct ResolvedPackage {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    targets: Vec<PackageTarget>,
}

#[derive(Debug, Deserialize)]
struct PackageTarget {
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct DependencyGraph {
    nodes: Vec<GraphNode>,
}

#[derive(Debug, Deserialize)]
struct GraphNode {
    id: String,
    deps: Vec<GraphEdge>,
}

#[derive(Debug, Deserialize)]
struct GraphEdge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
struct EdgeKind {
    kind: Option<String>,
}

/// Makes `latput-VERSION-ARCH-linux.cdx.json`.
pub fn make_sbom(release: &ReleaseInfo) -> Result<PathBuf> {
    let mut ask = cargo_command();
    ask.args(["metadata", "--locked", "--format-version", "1", "--filter-platform"]);
    ask.arg(format!("{}-unknown-linux-gnu", release.arch)).current_dir(&release.workspace.root);
    let metadata: ResolvedMetadata = serde_json::from_str(&capture_output(&mut ask)?)
        .context("cannot read the answer of `cargo metadata`")?;
    let document = build_document(&metadata, release)?;
    let file = release.package_path("", ".cdx.json");
    write_file(&file, &serde_json::to_vec_pretty(&document)?, 0o644)?;
    Ok(file)
}

fn build_document(metadata: &ResolvedMetadata, release: &ReleaseInfo) -> Result<Value> {
    let packages: BTreeMap<&str, &ResolvedPackage> =
        metadata.packages.iter().map(|it| (it.id.as_str(), it)).collect();
    let linked = find_linked_packages(metadata, &packages)?;
    let (mut components, mut dependencies) = (Vec::new(), Vec::new());
    for (id, needs) in &linked {
        let package = packages[id];
        if package.name != ROOT {
            components.push(describe_component(package));
        }
        let mut needs: Vec<String> = needs.iter().map(|id| package_url(packages[id])).collect();
        needs.sort();
        dependencies.push(json!({ "ref": package_url(package), "dependsOn": needs }));
    }
    components.extend(of_toolchain()?);
    components.sort_by_key(|it| it["bom-ref"].to_string());
    dependencies.sort_by_key(|it| it["ref"].to_string());
    let root = packages.values().find(|it| it.name == ROOT).context("latput is a package")?;
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.format_commit_time()?,
            "component": {
                "type": "application",
                "bom-ref": package_url(root),
                "name": ROOT,
                "version": root.version,
                "licenses": [{ "expression": "Apache-2.0 OR MIT" }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// The packages whose code is in the binary, each with those it needs. Procedural macros and build scripts only
/// run when it is built.
fn find_linked_packages<'a>(
    metadata: &'a ResolvedMetadata,
    packages: &BTreeMap<&str, &ResolvedPackage>,
) -> Result<BTreeMap<&'a str, BTreeSet<&'a str>>> {
    let nodes: BTreeMap<&str, &GraphNode> =
        metadata.resolve.nodes.iter().map(|it| (it.id.as_str(), it)).collect();
    let is_macro = |id: &str| {
        packages[id].targets.iter().any(|target| target.kind.iter().any(|it| it == "proc-macro"))
    };
    let root = metadata.packages.iter().find(|it| it.name == ROOT).context("latput is missing")?;
    let mut linked = BTreeMap::new();
    let mut open = vec![root.id.as_str()];
    while let Some(id) = open.pop() {
        if linked.contains_key(id) {
            continue;
        }
        let edges = nodes[id].deps.iter().filter(|edge| {
            edge.dep_kinds.iter().any(|it| it.kind.is_none()) && !is_macro(&edge.pkg)
        });
        let needs: BTreeSet<&str> = edges.map(|edge| edge.pkg.as_str()).collect();
        open.extend(&needs);
        linked.insert(nodes[id].id.as_str(), needs);
    }
    Ok(linked)
}

fn describe_component(package: &ResolvedPackage) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": package_url(package),
        "name": package.name,
        "version": package.version,
    });
    if let Some(license) = &package.license {
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    if package.source.is_some() {
        component["purl"] = json!(package_url(package));
    }
    component
}

/// A package URL for what is from a registry; crates of this repository are named alike.
fn package_url(package: &ResolvedPackage) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// Libraries that the toolchain links into every static program.
fn of_toolchain() -> Result<Vec<Value>> {
    let libc = capture_output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    let rust = capture_output(Command::new("rustc").arg("--version"))?;
    let word = |text: &str| text.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let library = |name: &str, version: String, license: &str| {
        json!({
            "type": "library",
            "bom-ref": format!("{name}@{version}"),
            "name": name,
            "version": version,
            "licenses": [{ "expression": license }],
        })
    };
    Ok(vec![
        library("glibc", word(&libc), "LGPL-2.1-or-later"),
        library("rust-std", word(&rust), "MIT OR Apache-2.0"),
    ])
}
