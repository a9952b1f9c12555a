//! Circles of files: files of a crate that use each other in a loop cannot be read one after the other.
//!
//! An arrow is a path in `use` or in code that begins with `crate`, `super`, `self` or a module of the file's own, followed
//! through what modules hand on. That a module uses its parent is no arrow: it is a part of it.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::code::find_word;
use super::tree::{SourceFile, SourceTree};

/// Most modules through which a name is followed: two modules may name each other.
const FOLLOWED: usize = 8;

/// A module by its names from the root of its crate.
type Path = Vec<String>;
/// Which file uses which, and a name that it takes.
type Arrows = BTreeMap<(usize, usize), String>;

/// Every circle.
pub fn check_circles(tree: &SourceTree) -> Vec<Finding> {
    let crates = collect_crates(tree);
    let finding = |circle: FileCycle<'_>| {
        let message =
            format!("{} files use each other in a circle: {}", circle.files.len(), circle.arrows);
        Finding::new(circle.files[0], 0, message)
    };
    crates.iter().flat_map(CrateFiles::find_cycles).map(finding).collect()
}

/// Files that use each other, and how.
struct FileCycle<'a> {
    files: Vec<&'a str>,
    arrows: String,
}

/// The files of one crate.
#[derive(Default)]
struct CrateFiles<'a> {
    files: Vec<&'a SourceFile>,
    modules: BTreeMap<Path, usize>,
    /// Their code without tests and without `use`.
    code: Vec<String>,
    /// Imports of each file: the name that an item has there, and the path.
    imports: Vec<Vec<(String, Path)>>,
}

fn collect_crates(tree: &SourceTree) -> Vec<CrateFiles<'_>> {
    let mut houses = BTreeMap::<&str, CrateFiles<'_>>::new();
    for file in tree.files.iter().filter(|file| file.is(&["rs"])) {
        let Some((root, inside)) = file.path.split_once("/src/") else { continue };
        let house = houses.entry(root).or_default();
        let mut path: Path = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if path.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
            path.pop();
        }
        house.modules.insert(path, house.files.len());
        house.files.push(file);
        let (imports, rest) = extract_imports(&file.product);
        house.imports.push(imports);
        house.code.push(rest);
    }
    houses.into_values().collect()
}

impl<'a> CrateFiles<'a> {
    fn find_cycles(&self) -> Vec<FileCycle<'a>> {
        let arrows = self.find_arrows();
        let mut reaches: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.files.len()];
        for (from, reached) in reaches.iter_mut().enumerate() {
            let mut todo = vec![from];
            while let Some(at) = todo.pop() {
                let next = arrows.range((at, 0)..(at + 1, 0)).map(|((_, to), _)| *to);
                todo.extend(next.filter(|to| reached.insert(*to)));
            }
        }
        let name = |idx: usize| -> &'a str { &self.files[idx].path };
        let circle = |first: usize| {
            let is_in = |other: &usize| reaches[*other].contains(&first);
            let members: Vec<usize> = reaches[first].iter().copied().filter(is_in).collect();
            let within = arrows
                .iter()
                .filter(|((from, to), _)| members.contains(from) && members.contains(to));
            let arrows = within
                .map(|((from, to), taken)| format!("{} -> {} ({taken})", name(*from), name(*to)));
            (members.len() > 1 && members[0] == first).then(|| FileCycle {
                arrows: arrows.collect::<Vec<_>>().join(", "),
                files: members.iter().map(|idx| name(*idx)).collect(),
            })
        };
        (0..self.files.len()).filter_map(circle).collect()
    }

    fn find_arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (module, from) in &self.modules {
            let imported = self.imports[*from].iter().map(|(_, path)| path.clone());
            let in_code = self.paths_in_code(module, *from);
            for path in imported.chain(in_code) {
                let Some((place, to)) = self.resolve_module(module, &path, FOLLOWED) else {
                    continue;
                };
                if !module.starts_with(&place) {
                    let taken = path.last().cloned().unwrap_or_default();
                    arrows.entry((*from, to)).or_insert(taken);
                }
            }
        }
        arrows
    }

    /// Paths that code names in full, or from one of its own modules.
    fn paths_in_code(&self, module: &Path, file: usize) -> Vec<Path> {
        let is_own = |path: &&Path| path.split_last().is_some_and(|(_, up)| up == *module);
        let own = self.modules.keys().filter(is_own).filter_map(|path| path.last().cloned());
        let roots = ["crate", "super", "self"].map(str::to_owned).into_iter().chain(own);
        let code = &self.code[file];
        let mut found = Vec::new();
        for root in roots {
            for at in find_word(code, &root) {
                let path: Path = parse_path(&code[at..]);
                let is_start = !code[..at].ends_with("::") && !code[..at].ends_with('.');
                if is_start && path.len() > 1 {
                    found.push(path);
                }
            }
        }
        found
    }

    /// The module that has what `path` names, seen from `module`.
    fn resolve_module(
        &self,
        module: &[String],
        path: &[String],
        follow: usize,
    ) -> Option<(Path, usize)> {
        let absolute = self.make_absolute(module, path)?;
        let is_module = |length: &usize| self.modules.contains_key(&absolute[..*length]);
        let (place, rest) = absolute.split_at((0..=absolute.len()).rev().find(is_module)?);
        let file = self.modules[place];
        let handed_on = rest.first().filter(|_| follow > 0).and_then(|name| {
            let (_, path) = self.imports[file].iter().find(|(known, _)| known == name)?;
            self.resolve_module(place, path, follow - 1)
        });
        Some(handed_on.unwrap_or_else(|| (place.to_vec(), file)))
    }

    /// A path from the root of the crate; `None` for one of another crate.
    fn make_absolute(&self, module: &[String], path: &[String]) -> Option<Path> {
        let mut at = module.to_vec();
        for (idx, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()?),
                own => {
                    at.push(own.to_owned());
                    if idx == 0 && !self.modules.contains_key(&at) {
                        return None;
                    }
                }
            }
        }
        Some(at)
    }
}

/// The words of a path at the start of `code`.
fn parse_path(code: &str) -> Path {
    let mut path = Path::new();
    let mut rest = code;
    loop {
        let end = rest.find(|c: char| !super::code::is_word(c)).unwrap_or(rest.len());
        if end == 0 {
            return path;
        }
        path.push(rest[..end].to_owned());
        let Some(more) = rest[end..].strip_prefix("::") else { return path };
        rest = more;
    }
}

/// Reads the `use` items of a file, and returns the code without them.
fn extract_imports(code: &str) -> (Vec<(String, Path)>, String) {
    let mut found = Vec::new();
    let mut rest = String::new();
    let mut end = 0;
    for at in find_word(code, "use") {
        let item = code[at + 3..].split(';').next().unwrap_or_default();
        expand_use_tree(&Path::new(), item.trim(), &mut found);
        rest += &code[end..at];
        end = at + 3 + item.len();
    }
    (found, rest + &code[end..])
}

/// Takes a tree of `use` apart.
fn expand_use_tree(before: &Path, tree: &str, found: &mut Vec<(String, Path)>) {
    if let Some((root, group)) = tree.split_once('{') {
        let mut path = before.clone();
        path.extend(parse_path(root.trim()));
        let group = group.trim_end().strip_suffix('}').unwrap_or(group);
        let mut depth = 0_usize;
        let parts = group.split(|c: char| {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ',' && depth == 0
        });
        for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
            expand_use_tree(&path, part, found);
        }
        return;
    }
    let (taken, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut path = before.clone();
    path.extend(parse_path(taken.trim()));
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let name = if alias.is_empty() {
        path.last().cloned().unwrap_or_default()
    } else {
        alias.trim().to_owned()
    };
    found.push((name, path));
}

#[cfg(test)]
mod tests {
    use super::super::tree::tree_of;
    use super::*;

    #[test]
    fn circle_of_files_is_found() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\n"),
            ("a.rs", "use crate::b::{self, B};\npub struct A(B);\n"),
            ("b.rs", "mod part;\npub struct B(part::P);\n"),
            ("b/part.rs", "use super::B;\npub struct P(crate::c::C, B);\n"),
            ("c.rs", "pub struct C(crate::A);\n"),
        ];
        let [finding] = check_circles(&make_tree(&files)).try_into().unwrap();
        assert_eq!(finding.path, "crates/x/src/a.rs");
        for part in ["4 files", "a.rs -> crates/x/src/b.rs (b)", "c.rs -> crates/x/src/a.rs (A)"] {
            assert!(finding.message.contains(part), "{part}: {}", finding.message);
        }
    }

    #[test]
    fn part_may_use_parent_tests_anything() {
        let files = [
            ("lib.rs", "mod a;\npub struct Top;\n"),
            ("a.rs", "mod b;\nuse self::b::B;\nstruct A(B, crate::Top);\n"),
            ("a/b.rs", "use super::A;\n#[cfg(test)]\nmod tests { use crate::c::C; }\n"),
            ("c.rs", "use crate::a;\nstruct C(a::A);\n"),
        ];
        assert_eq!(check_circles(&make_tree(&files)), []);
    }

    #[test]
    fn two_files_in_a_circle_are_found() {
        let files = [("a.rs", "use crate::b::B;\n"), ("b.rs", "use crate::a::A;\n")];
        assert_eq!(check_circles(&make_tree(&files)).len(), 1);
    }

    fn make_tree(files: &[(&str, &str)]) -> SourceTree {
        let paths: Vec<String> =
            files.iter().map(|(path, _)| format!("crates/x/src/{path}")).collect();
        let files = paths.iter().zip(files).map(|(path, (_, text))| (path.as_str(), *text));
        tree_of(&files.collect::<Vec<_>>())
    }
}
