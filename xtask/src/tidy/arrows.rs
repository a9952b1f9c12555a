//! Rules of crates: the arrows between them are those of the table in ARCHITECTURE.md, pure crates
//! stand on pure ones, and every third-party crate has its reason in docs/adr/003-dependencies.md.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::SourceTree;
use crate::workspace::{Dependency, Package, folder_of};

/// The crates that do no I/O, read no clock, use no threads; the table must say the same of them.
const PURE: &str =
    "units stats knobs trial policy sim model calibrate reproduce formats diagnose report";

/// Third-party crates that only compute, and may stand under pure crates.
const PURE_THIRD_PARTY: &str = "base64 comfy-table flate2 hdrhistogram minijinja rand rand_xoshiro schemars regex-lite serde \
    serde_json statrs strsim thiserror toml unicode-width";

const MAP: &str = "ARCHITECTURE.md";
const MAP_HEADER: &[&str] = &["crate", "one line", "uses", "kind"];
const REASONS: &str = "docs/adr/003-dependencies.md";
const KINDS: &[&str] = &["pure", "world", "edge", "dev"];

/// Whether a crate, by its folder, is pure.
pub fn is_pure(folder: &str) -> bool {
    PURE.split(' ').any(|one| one == folder)
}

/// Every violation of these rules.
pub fn check_crate_map(tree: &SourceTree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = match tree.find_file(MAP).map(|file| read_map(&file.text)) {
        None => vec![Finding::new(MAP, 0, "is missing; it holds the table of crates")],
        Some(rows) if rows.is_empty() => {
            let header = MAP_HEADER.join(" | ");
            vec![Finding::new(MAP, 0, format!("has no table with the columns {header}"))]
        }
        Some(rows) => {
            let mut findings = map_is_in_order(&rows);
            findings.extend(arrows_are_those_of_the_map(&rows, packages));
            findings
        }
    };
    findings.extend(pure_crates_stand_on_pure_ones(packages));
    findings.extend(check_third_party(tree, packages));
    findings
}

/// One row of the table of crates.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CrateRow {
    line: usize,
    name: String,
    uses: BTreeSet<String>,
    kind: String,
}

/// The rows of the table of crates; empty if there is no such table.
fn read_map(text: &str) -> Vec<CrateRow> {
    let mut lines = text.lines().enumerate();
    let is_header = |line: &str| split_cells(line).is_some_and(|cells| cells == MAP_HEADER);
    if !lines.any(|(_, line)| is_header(line)) {
        return Vec::new();
    }
    let rows = lines.map_while(|(idx, line)| Some((idx + 1, split_cells(line)?)));
    rows.filter(|(_, cells)| cells.len() == MAP_HEADER.len() && !cells[0].starts_with("--"))
        .map(|(line, cells)| CrateRow {
            line,
            name: cells[0].trim_matches('`').to_owned(),
            uses: words_in_ticks(cells[2]).map(str::to_owned).collect(),
            kind: cells[3].to_owned(),
        })
        .collect()
}

fn split_cells(line: &str) -> Option<Vec<&str>> {
    let inside = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split('|').map(str::trim).collect())
}

fn words_in_ticks(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn map_is_in_order(rows: &[CrateRow]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (idx, row) in rows.iter().enumerate() {
        let above: BTreeSet<&str> = rows[..idx].iter().map(|row| row.name.as_str()).collect();
        for name in row.uses.iter().filter(|name| !above.contains(name.as_str())) {
            let message = format!("`{}` uses `{name}`, which is not above it", row.name);
            findings.push(Finding::new(MAP, row.line, message));
        }
        let pure = is_pure(&row.name);
        if !KINDS.contains(&row.kind.as_str()) || pure != (row.kind == "pure") {
            let wanted = if pure { "pure" } else { "world, edge or dev" };
            let message = format!("the kind of `{}` must be {wanted}", row.name);
            findings.push(Finding::new(MAP, row.line, message));
        }
    }
    findings
}

fn arrows_are_those_of_the_map(rows: &[CrateRow], packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let name = package.folder_name();
        let Some(row) = rows.iter().find(|row| row.name == name) else {
            findings.push(Finding::new(MAP, 0, format!("the table has no row for `{name}`")));
            continue;
        };
        let built: BTreeSet<String> = internal_dependencies(package).map(str::to_owned).collect();
        for extra in built.difference(&row.uses) {
            let message = format!("`{name}` depends on `{extra}`, which the table does not allow");
            findings.push(Finding::new(MAP, row.line, message));
        }
        for stale in row.uses.difference(&built) {
            let message = format!("`{name}` does not depend on `{stale}`; take it from the table");
            findings.push(Finding::new(MAP, row.line, message));
        }
    }
    for row in rows.iter().filter(|row| !packages.iter().any(|one| one.folder_name() == row.name)) {
        findings.push(Finding::new(MAP, row.line, format!("there is no crate `{}`", row.name)));
    }
    findings
}

fn pure_crates_stand_on_pure_ones(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages.iter().filter(|package| is_pure(package.folder_name())) {
        for dependency in shipped_dependencies(package) {
            let folder = folder_of(&dependency.name);
            let pure = match dependency.path {
                Some(_) => is_pure(folder),
                None => PURE_THIRD_PARTY.split(' ').any(|name| name == dependency.name),
            };
            if !pure {
                let path = format!("crates/{}/Cargo.toml", package.folder_name());
                let message = format!("a pure crate must not depend on `{}`", dependency.name);
                findings.push(Finding::new(&path, 0, message));
            }
        }
    }
    findings
}

/// Dependencies that end up in the product; tests may lean on anything.
fn shipped_dependencies(package: &Package) -> impl Iterator<Item = &Dependency> {
    package.dependencies.iter().filter(|one| one.kind.as_deref() != Some("dev"))
}

fn internal_dependencies(package: &Package) -> impl Iterator<Item = &str> {
    shipped_dependencies(package).filter(|one| one.path.is_some()).map(|one| folder_of(&one.name))
}

/// Each third-party crate has its reason, and a user.
fn check_third_party(tree: &SourceTree, packages: &[Package]) -> Vec<Finding> {
    let text_of = |path| tree.find_file(path).map_or("", |file| &file.text);
    let listed = match third_party_crates(text_of("Cargo.toml")) {
        Ok(listed) => listed,
        Err(error) => return vec![Finding::new("Cargo.toml", 0, error.to_string())],
    };
    let rows = text_of(REASONS).lines().filter_map(split_cells);
    let explained: BTreeSet<String> = rows
        .flat_map(|cells| words_in_ticks(cells[0]).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let names = packages.iter().flat_map(|package| &package.dependencies).map(|one| &one.name);
    let used: BTreeSet<String> = names.cloned().collect();
    let finding = |path, message: String| Finding::new(path, 0, message);
    let missing = listed.difference(&explained).map(|it| format!("`{it}` has no reason here"));
    let stale = explained.difference(&listed).map(|it| format!("`{it}` is not used any more"));
    let unused =
        listed.difference(&used).map(|it| format!("no crate uses `{it}`; take it from the table"));
    let of_reasons = missing.chain(stale).map(|message| finding(REASONS, message));
    of_reasons.chain(unused.map(|message| finding("Cargo.toml", message))).collect()
}

fn third_party_crates(manifest: &str) -> Result<BTreeSet<String>, toml::de::Error> {
    let manifest: toml::Table = toml::from_str(manifest)?;
    let table = manifest.get("workspace").and_then(|one| one.get("dependencies"));
    let entries = table.and_then(toml::Value::as_table).into_iter().flatten();
    Ok(entries
        .filter(|(_, spec)| spec.get("path").is_none())
        .map(|(name, _)| name.clone())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::tree::tree_of;
    use super::*;

    const TABLE: &str = "# Map\n\n| crate | one line | uses | kind |\n|---|---|---|---|\n\
        | `units` | a | - | pure |\n| `linux` | b | `units` | world |\n\nEnd.\n";

    #[test]
    fn mapped_tree_is_clean() {
        check_map(
            TABLE,
            &[make_package("latput-units", &[]), linux_package(&["latput-units"])],
            &[],
        );
    }

    #[test]
    fn arrows_must_be_those_of_the_map() {
        let units = make_package("latput-units", &[]);
        check_map(
            TABLE,
            &[units.clone(), linux_package(&[])],
            &["`linux` does not depend on `units`"],
        );
        let arrow = linux_package(&["latput-units", "latput-load"]);
        check_map(TABLE, &[units.clone(), arrow], &["`linux` depends on `load`, which the table"]);
        let new = make_package("latput-new", &[]);
        let linux = linux_package(&["latput-units"]);
        check_map(TABLE, &[units.clone(), linux, new], &["no row for `new`"]);
        check_map(TABLE, &[units], &["there is no crate `linux`"]);
    }

    #[test]
    fn map_must_be_there_and_in_order() {
        let upside_down = "| crate | one line | uses | kind |\n|---|---|---|---|\n\
            | `linux` | b | `units` | world |\n| `units` | a | - | world |\n";
        let packages = [make_package("latput-units", &[]), linux_package(&["latput-units"])];
        let expected = ["`units`, which is not above it", "kind of `units` must be pure"];
        check_map(upside_down, &packages, &expected);
        check_map("# Map\n", &[], &["has no table"]);
        assert_eq!(
            check_crate_map(&tree_of(&[]), &[])[0].message,
            "is missing; it holds the table of crates"
        );
    }

    #[test]
    fn pure_crates_must_stand_on_pure_ones() {
        let check_pure = |package: Package| pure_crates_stand_on_pure_ones(&[package]);
        assert!(check_pure(make_package("latput-model", &["latput-stats"])).is_empty());
        assert_eq!(check_pure(make_package("latput-model", &["latput-linux"])).len(), 1);
        let mut rustix = make_package("latput-model", &["rustix"]);
        rustix.dependencies[0].path = None;
        assert_eq!(check_pure(rustix.clone()).len(), 1);
        rustix.dependencies[0].kind = Some("dev".into());
        assert!(check_pure(rustix).is_empty());
    }

    #[test]
    fn third_party_crates_need_a_reason() {
        let manifest =
            "[workspace.dependencies]\nlatput-units = { path = \"a\" }\nlibc = \"0.2\"\n";
        let reasons = |text| tree_of(&[("Cargo.toml", manifest), (REASONS, text)]);
        let check = |text| check_third_party(&reasons(text), &[linux_package(&["libc"])]);
        assert!(check("| `libc` | constants |\n").is_empty());
        assert_eq!(
            check("# None, though `libc` is named\n")[0].message,
            "`libc` has no reason here"
        );
        let stale = check("| `libc`, `mio` | constants |\n");
        assert_eq!(stale[0].message, "`mio` is not used any more");
    }

    #[test]
    fn every_third_party_crate_must_be_used() {
        let manifest = "[workspace.dependencies]\nlibc = \"0.2\"\n";
        let tree = tree_of(&[("Cargo.toml", manifest), (REASONS, "| `libc` | a |\n")]);
        assert!(check_third_party(&tree, &[linux_package(&["libc"])]).is_empty());
        let findings = check_third_party(&tree, &[linux_package(&["rustix"])]);
        assert_eq!(findings[0].message, "no crate uses `libc`; take it from the table");
    }

    fn make_package(name: &str, uses: &[&str]) -> Package {
        let dependency = |name: &&str| Dependency {
            name: (*name).to_owned(),
            kind: None,
            path: Some("here".into()),
        };
        Package { name: name.to_owned(), dependencies: uses.iter().map(dependency).collect() }
    }

    fn linux_package(uses: &[&str]) -> Package {
        make_package("latput-linux", uses)
    }

    #[track_caller]
    fn check_map(map: &str, packages: &[Package], expected: &[&str]) {
        super::super::check_findings(&check_crate_map(&tree_of(&[(MAP, map)]), packages), expected);
    }
}
