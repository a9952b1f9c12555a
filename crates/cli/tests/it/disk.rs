//! A disk that forgets what was not synced, filled from the system calls of a program.
//!
//! `strace` writes down what the program did to the files below one folder. [`Disk::from_calls`] is what a power cut leaves: of
//! each file the bytes of its last `fsync`, and a name only where the folder that holds it was synced after the name
//! was made. POSIX promises no more; most file systems keep more. What was not synced may also have reached the disk: a
//! torn disk has a random part of its sectors, and of the names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use latput_units::SeededRng;

/// Files and folders below a folder, path by path; `None` is a folder.
pub(crate) type Left = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// Part of a file that a disk writes as a whole.
const SECTOR: usize = 512;

/// The options that [`Disk`] needs of strace, before the program.
pub(crate) const STRACE: [&str; 12] = [
    "strace",
    "-f",
    "-y",
    "-xx",
    "-s",
    "1048576",
    "-e",
    "signal=none",
    "-e",
    "trace=open,openat,write,pwrite64,ftruncate,fsync,fdatasync,/^rename,/^unlink,/^link,/^mkdir,/^symlink,rmdir",
    "-o",
    "calls",
];

/// One call that changes files, or tells somebody something.
#[derive(Clone, Debug)]
pub(crate) enum FileCall {
    Create(PathBuf),
    MakeFolder(PathBuf),
    Write {
        path: PathBuf,
        at: usize,
        bytes: Vec<u8>,
    },
    Truncate(PathBuf, usize),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    /// Bytes that people see on stdout or stderr.
    Tell(String),
}

/// The calls below `folder`, in the order in which they ended.
pub(crate) fn parse_calls(trace: &str, folder: &Path) -> Vec<FileCall> {
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    // Where the next `write` to an open file goes.
    let mut positions: BTreeMap<PathBuf, usize> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let (pid, text) = line.split_once(' ').unwrap();
        let text = text.trim_start();
        let whole = if let Some(start) = text.strip_suffix(" <unfinished ...>") {
            begun.insert(pid, start);
            continue;
        } else if let Some(rest) = text.strip_prefix("<... ") {
            let (_, rest) = rest.split_once(" resumed>").unwrap();
            format!("{}{rest}", begun.remove(pid).unwrap_or_default())
        } else {
            text.to_owned()
        };
        calls.extend(StraceLine::parse(&whole).and_then(|it| it.to_call(folder, &mut positions)));
    }
    calls
}

/// One line of strace: `name(arguments) = result`.
struct StraceLine {
    name: String,
    arguments: Vec<String>,
    /// The result's file, of `open`.
    opened: Option<PathBuf>,
}

impl StraceLine {
    /// `None` where the call failed, or the line is not one.
    fn parse(line: &str) -> Option<Self> {
        let (call, result) = line.rsplit_once(" = ")?;
        if result.starts_with('-') || result.starts_with('?') {
            return None;
        }
        let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
        Some(Self {
            name: name.to_owned(),
            arguments: arguments.split(", ").map(str::to_owned).collect(),
            opened: file_of(result),
        })
    }

    /// The call that it made below `folder`.
    fn to_call(&self, folder: &Path, positions: &mut BTreeMap<PathBuf, usize>) -> Option<FileCall> {
        let inside = |path: PathBuf| path.starts_with(folder).then_some(path);
        let file = || inside(file_of(&self.arguments[0])?);
        // A path after the folder it is relative to.
        let at = |idx: usize| {
            let named = PathBuf::from(parse_string(&self.arguments[idx + 1])?);
            inside(file_of(&self.arguments[idx])?.join(named))
        };
        // One that is relative to where the program runs: in the folder above.
        let plain = |idx: usize| inside(folder.parent()?.join(parse_string(&self.arguments[idx])?));
        let number = |idx: usize| self.arguments[idx].parse::<usize>().ok();
        match self.name.as_str() {
            "open" | "openat" => {
                let path = inside(self.opened.clone()?)?;
                positions.insert(path.clone(), 0);
                self.arguments
                    .iter()
                    .any(|it| it.contains("O_CREAT"))
                    .then_some(FileCall::Create(path))
            }
            "write" if matches!(self.arguments[0].split('<').next(), Some("1" | "2")) => {
                Some(FileCall::Tell(
                    String::from_utf8_lossy(&parse_bytes(&self.arguments[1])?).into_owned(),
                ))
            }
            "write" => {
                let path = file()?;
                let bytes = parse_bytes(&self.arguments[1])?;
                let position = positions.entry(path.clone()).or_default();
                let at = *position;
                *position += bytes.len();
                Some(FileCall::Write { path, at, bytes })
            }
            "pwrite64" => Some(FileCall::Write {
                path: file()?,
                at: number(3)?,
                bytes: parse_bytes(&self.arguments[1])?,
            }),
            "ftruncate" => Some(FileCall::Truncate(file()?, number(1)?)),
            "fsync" | "fdatasync" => Some(FileCall::Sync(file()?)),
            "rename" => Some(FileCall::Rename(plain(0)?, plain(1)?)),
            "renameat" | "renameat2" => Some(FileCall::Rename(at(0)?, at(2)?)),
            "unlink" | "rmdir" => Some(FileCall::Remove(plain(0)?)),
            "unlinkat" => Some(FileCall::Remove(at(0)?)),
            "mkdir" => Some(FileCall::MakeFolder(plain(0)?)),
            "mkdirat" => Some(FileCall::MakeFolder(at(0)?)),
            other => panic!("this model of a disk lacks `{other}`"),
        }
    }
}

/// The bytes of `"\x41\x42"`.
fn parse_bytes(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    inner.split("\\x").skip(1).map(|hex| u8::from_str_radix(hex, 16).ok()).collect()
}

fn parse_string(text: &str) -> Option<String> {
    String::from_utf8(parse_bytes(text)?).ok()
}

/// The file of `3<\x2f\x74>`.
fn file_of(text: &str) -> Option<PathBuf> {
    let (_, rest) = text.split_once('<')?;
    Some(parse_string(&format!("\"{}\"", rest.split_once('>')?.0))?.into())
}

/// A file or a folder. Names point to it by its number.
#[derive(Clone, Debug, Default)]
struct DiskNode {
    is_folder: bool,
    bytes: Vec<u8>,
    /// The bytes of the last sync.
    synced: Vec<u8>,
}

/// The files below one folder, as programs see them and as the disk has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    nodes: Vec<DiskNode>,
    names: BTreeMap<PathBuf, usize>,
    /// The names that the disk has.
    synced: BTreeMap<PathBuf, usize>,
}

impl Disk {
    /// The disk after these calls. `folder` was there before.
    pub(crate) fn from_calls(calls: &[FileCall], folder: &Path) -> Self {
        let mut disk = Self::default();
        disk.add(folder.to_owned(), true);
        disk.synced = disk.names.clone();
        for call in calls {
            disk.apply_call(call);
        }
        disk
    }

    fn add(&mut self, path: PathBuf, is_folder: bool) {
        self.names.insert(path, self.nodes.len());
        self.nodes.push(DiskNode { is_folder, ..DiskNode::default() });
    }

    fn node_mut(&mut self, path: &Path) -> &mut DiskNode {
        if !self.names.contains_key(path) {
            self.add(path.to_owned(), false); // it was there before, and is only looked at
        }
        &mut self.nodes[self.names[path]]
    }

    fn apply_call(&mut self, call: &FileCall) {
        match call {
            FileCall::Create(path) if self.names.contains_key(path) => {}
            FileCall::Create(path) => self.add(path.clone(), false),
            FileCall::MakeFolder(path) => self.add(path.clone(), true),
            FileCall::Write { path, at, bytes } => {
                let file = &mut self.node_mut(path).bytes;
                file.resize(file.len().max(at + bytes.len()), 0);
                file[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            FileCall::Truncate(path, length) => self.node_mut(path).bytes.resize(*length, 0),
            FileCall::Sync(path)
                if self.names.get(path).is_some_and(|it| self.nodes[*it].is_folder) =>
            {
                let is_in = |name: &PathBuf| name.parent() == Some(path);
                self.synced.retain(|name, _| !is_in(name));
                let now = self.names.iter().filter(|(name, _)| is_in(name));
                self.synced.extend(now.map(|(name, node)| (name.clone(), *node)));
            }
            FileCall::Sync(path) => {
                let node = self.node_mut(path);
                node.synced.clone_from(&node.bytes);
            }
            FileCall::Rename(from, to) => {
                let node = self.names.remove(from).expect("a file that was made here");
                self.names.insert(to.clone(), node);
            }
            FileCall::Remove(path) => drop(self.names.remove(path)),
            FileCall::Tell(_) => {}
        }
    }

    /// Files that a power cut leaves below `folder`. With a `torn` disk a random part of the unsynced bytes is there
    /// too.
    pub(crate) fn files_after_cut(&self, folder: &Path, mut torn: Option<&mut SeededRng>) -> Left {
        let mut names = self.synced.clone();
        if let Some(rng) = &mut torn {
            let changed = self.names.keys().chain(self.synced.keys()).cloned();
            for name in changed.collect::<std::collections::BTreeSet<_>>() {
                if rng.next_below(2) == 0 {
                    match self.names.get(&name) {
                        Some(node) => names.insert(name, *node),
                        None => names.remove(&name),
                    };
                }
            }
        }
        let mut left = BTreeMap::new();
        for (name, node) in &names {
            // In a folder that is lost, all is.
            let is_there = |it: &Path| names.contains_key(it);
            if name == folder
                || !name.ancestors().skip(1).take_while(|it| *it != folder).all(is_there)
            {
                continue;
            }
            let node = &self.nodes[*node];
            let bytes = match &mut torn {
                Some(rng) => node.torn_bytes(rng),
                None => node.synced.clone(),
            };
            let path = name.strip_prefix(folder).unwrap().to_owned();
            left.insert(path, (!node.is_folder).then_some(bytes));
        }
        left
    }
}

impl DiskNode {
    /// The synced bytes with a random part of the sectors that were written since.
    fn torn_bytes(&self, rng: &mut SeededRng) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        if self.bytes == self.synced {
            return bytes;
        }
        let length = if rng.next_below(2) == 0 { self.bytes.len() } else { self.synced.len() };
        bytes.resize(length, 0);
        for (start, sector) in (0..).step_by(SECTOR).zip(self.bytes.chunks(SECTOR)) {
            let end = (start + sector.len()).min(length);
            if start < end && rng.next_below(2) == 0 {
                bytes[start..end].copy_from_slice(&sector[..end - start]);
            }
        }
        bytes
    }
}

/// Makes a new folder with these files.
pub(crate) fn lay_out(left: &Left, folder: &Path) {
    let _unless_there_is_none = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    for (path, bytes) in left {
        match bytes {
            None => fs::create_dir_all(folder.join(path)).unwrap(),
            Some(bytes) => fs::write(folder.join(path), bytes).unwrap(),
        }
    }
}
