//! The files that hold a kept setting, and the record of what they replaced.
//!
//! The record is written before the first file and removed after the last: a `keep` that was cut short is
//! finished, or taken out, by the next one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use latput_knobs::export::{self, Exported, Match, Target};
use latput_knobs::{Knob, Setting, Value};
use latput_linux::RootFolder;
use latput_linux::files::{FileError, Owner, TEXT_BYTES_MOST};
use latput_report::interface_words;
use serde::{Deserialize, Serialize};

use super::irqbalance::{self, IrqbalancePolicy};
use super::{diff, keyfile, profile, tuned, unit};
use crate::commands::export_settings::ExportFormat;
use crate::exit::{CliError, ExitReason};

/// Where the records are: they outlive a reboot, as the files do.
const RECORDS: &str = "/var/lib/latput/keep";
/// The folder above it.
const STATE: &str = "/var/lib/latput";
/// Files that other knobs may go to than those of the format.
pub(super) const RULES: &str = "/etc/udev/rules.d/";
const SYSCTLS: &str = "/etc/sysctl.d/90-latput.conf";
/// Files that everybody may read, and those of netplan and NetworkManager, which may hold secrets.
const PUBLIC: u32 = 0o644;
const SECRET: u32 = 0o600;
/// A script that another program runs.
const SCRIPT: u32 = 0o755;
/// Folders that everybody may enter, and those of the records.
const OPEN: u32 = 0o755;
const CLOSED: u32 = 0o700;
/// The folders of the records, with their permissions.
const STATE_FOLDERS: [(&str, u32); 4] =
    [("/var", OPEN), ("/var/lib", OPEN), (STATE, CLOSED), (RECORDS, CLOSED)];

/// The first of them belong to the image; an empty one may have neither.
const FOLDERS_OF_OTHERS: usize = 2;

/// The files to write, by their name on the host, with their text and permissions.
pub(super) type Contents = Vec<(String, String, u32)>;
/// Knobs that no file keeps, with the reason.
pub(super) type Unkept = Vec<(String, String)>;
/// Knobs that a file keeps.
pub(super) type KeptKnobs = BTreeMap<Knob, KeptValue>;

/// A value that is kept, and the file that keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeptValue {
    pub(super) value: Value,
    pub(super) file: String,
}

/// The values of a setting that its files keep.
pub(super) fn kept_values(
    setting: &Setting,
    exported: &Exported,
    interface: &str,
    files: &Contents,
) -> KeptKnobs {
    let written = |file: &str| files.iter().any(|(name, ..)| name == file);
    let place = |knob: Knob| -> Option<String> {
        if knob == Knob::SmpAffinity {
            return Some(unit::unit_file(&unit::affinity_unit(interface)))
                .filter(|file| written(file));
        }
        let Some(left) = exported.elsewhere.iter().find(|left| left.knob == knob) else {
            return files.first().map(|(name, ..)| name.clone());
        };
        let file = left.file.as_deref()?;
        let file = if file == SYSCTLS { sysctl_file(interface) } else { file.to_owned() };
        Some(file).filter(|file| written(file))
    };
    let kept = setting.iter().filter_map(|(knob, value)| {
        Some((*knob, KeptValue { value: value.clone(), file: place(*knob)? }))
    });
    kept.collect()
}

/// The files that keep an exported setting of `interface`.
pub(super) fn build_files(
    root: &RootFolder,
    format: ExportFormat,
    interface: &str,
    exported: &Exported,
) -> Result<(Contents, Unkept), CliError> {
    let mut files = Contents::new();
    match format {
        ExportFormat::NetworkManager => {
            let failed = |why: String| CliError::new(ExitReason::Failed, why);
            let found = profile::of_interface(root, interface)?.ok_or_else(|| {
                let name = "connection.interface-name";
                failed(format!(
                    "no profile of NetworkManager is of {interface}: set `{name}` in one"
                ))
            })?;
            if let Some(why) = found.why_not_edited() {
                return Err(failed(why));
            }
            let text = read(root, &found.path)?.unwrap_or_default();
            let text = keyfile::merge_keyfiles(&text, &exported.text);
            if let Some(why) = keyfile::why_refused(&text) {
                let path = &found.path;
                return Err(failed(format!(
                    "NetworkManager would refuse {path}: {why}. Change one there"
                )));
            }
            files.push((found.path, text, SECRET));
        }
        ExportFormat::Netplan => files.push((exported.file.clone(), exported.text.clone(), SECRET)),
        ExportFormat::Tuned => {
            // The profiles of before, and those of other interfaces, stay in force by being included.
            let included = tuned::profiles_to_include(root, interface);
            let before = tuned::options_of_interface(root, &included, interface);
            let before =
                before.map_err(|why| CliError::usage(format!("{why}: use --format udev")))?;
            let text = tuned::render_profile(&exported.text, &included, &before);
            if let Some(why) = tuned::why_not_read(root, interface, &text) {
                return Err(CliError::usage(why));
            }
            files.push((tuned::profile_file(root, interface), text, PUBLIC));
        }
        // A file without a setting says nothing.
        _ if exported.is_empty => {}
        _ => files.push((exported.file.clone(), exported.text.clone(), PUBLIC)),
    }
    let mut unkept = Unkept::new();
    let mut elsewhere: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let has_systemd = root.has("/etc/systemd") || root.has("/run/systemd/system");
    for left in &exported.elsewhere {
        if left.knob == Knob::SmpAffinity && has_systemd {
            match unit::affinity_text(interface, &left.value) {
                Ok(text) => {
                    files.push((unit::unit_file(&unit::affinity_unit(interface)), text, PUBLIC));
                    add_policy(root, interface, (&mut files, &mut unkept));
                }
                Err(why) => unkept.push((format!("{}={}", left.knob, left.value), why)),
            }
            continue;
        }
        match left.file.as_deref() {
            Some(file) if file.starts_with(RULES) || file == SYSCTLS => {
                elsewhere.entry(file).or_default().push(&left.line);
            }
            Some(file) => {
                unkept.push((
                    format!("{}={}", left.knob, left.value),
                    format!("put into {file}: {}", left.line),
                ));
            }
            None => unkept.push((format!("{}={}", left.knob, left.value), left.line.clone())),
        }
    }
    add_files_beside(&mut files, interface, elsewhere);
    Ok((files, unkept))
}

/// Adds the files of rules and sysctls with these lines. Comments of the others then name the right one.
fn add_files_beside(files: &mut Contents, interface: &str, lines: BTreeMap<&str, Vec<&str>>) {
    // The host's own knobs are of no interface, so that each interface has a file of its own.
    let sysctls = sysctl_file(interface);
    for (_, text, _) in &mut *files {
        *text = text.replace(SYSCTLS, &sysctls);
    }
    for (file, lines) in lines {
        let file = if file == SYSCTLS { sysctls.clone() } else { file.to_owned() };
        let text = format!("# Settings of {interface}, by `latput keep`.\n{}\n", lines.join("\n"));
        files.push((file, text, PUBLIC));
    }
}

/// Adds the files that have irqbalance leave the interrupts, where it is installed.
fn add_policy(root: &RootFolder, interface: &str, (files, unkept): (&mut Contents, &mut Unkept)) {
    match IrqbalancePolicy::of_interface(root, interface) {
        None => {}
        Some(Ok(policy)) => {
            files.push((irqbalance::script_file(interface), policy.script, SCRIPT));
            files.push((irqbalance::drop_in_file(interface), policy.drop_in, PUBLIC));
        }
        Some(Err(why)) => unkept.push((Knob::SmpAffinity.name().to_owned(), why)),
    }
}

/// The file of the host's own knobs that were set with an interface.
fn sysctl_file(interface: &str) -> String {
    format!("/etc/sysctl.d/90-latput-{interface}.conf")
}

/// Whether `keep` writes a file of this name for `interface`.
fn is_kept_file(name: &str, interface: &str) -> bool {
    let profile = name.strip_prefix(profile::PROFILES).and_then(|name| name.strip_prefix('/'));
    let is_profile =
        |name: &str| profile::is_profile_name(profile::PROFILES, name) && !name.contains('/');
    let Ok(target) = Target::new(interface, Match::Name) else { return false };
    let formats =
        [ExportFormat::SystemdLink, ExportFormat::Netplan, ExportFormat::Tuned, ExportFormat::Udev];
    let file_of = |format: ExportFormat| {
        export::export(format.to_format(), &target, &Setting::new(), "").file
    };
    let mut tuned_files = tuned::profile_files(interface).into_iter();
    profile.is_some_and(is_profile)
        || tuned_files.any(|file| file == name)
        || name == sysctl_file(interface)
        || name == unit::unit_file(&unit::affinity_unit(interface))
        || name == irqbalance::drop_in_file(interface)
        || name == irqbalance::script_file(interface)
        || formats.into_iter().any(|format| file_of(format) == name)
}

/// Files that `keep` has written for one interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeepRecord {
    schema: u32,
    pub(super) interface: String,
    files: Vec<FileChange>,
    /// Folders that were made for the files, outermost first.
    folders: Vec<String>,
    /// The values that the files keep; a record of an earlier latput has none.
    #[serde(default)]
    pub(super) kept: KeptKnobs,
}

/// How a file is that `keep` has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileNow {
    Whole,
    Missing,
    Changed,
}

/// One file: what it was and what it became.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileChange {
    /// Its name on the host.
    file: String,
    /// `None`: there was no such file.
    before: Option<FileVersion>,
    /// `None`: it is to be as it was before.
    after: Option<FileVersion>,
}

impl FileChange {
    /// Whether a profile of NetworkManager, which others edit too, still has what was written into it.
    fn is_in(&self, now: &FileVersion) -> bool {
        let (Some(before), Some(after)) = (&self.before, &self.after) else { return false };
        let is_profile = self.file.starts_with(profile::PROFILES);
        let is_read = now.owner() == after.owner();
        is_profile && is_read && keyfile::has_edit(&before.text, &after.text, &now.text)
    }
}

/// A file's text, owner and permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileVersion {
    text: String,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl FileVersion {
    fn new(text: String, owner: Owner) -> Self {
        let Owner { mode, uid, gid } = owner;
        Self { text, mode, uid, gid }
    }

    const fn owner(&self) -> Owner {
        Owner { mode: self.mode, uid: self.uid, gid: self.gid }
    }
}

impl KeepRecord {
    /// The record of an interface; `None` if nothing is kept for it.
    pub(super) fn read(root: &RootFolder, interface: &str) -> Result<Option<Self>, CliError> {
        let file = record_file(interface);
        let Some(text) = read(root, &file)? else { return Ok(None) };
        let wrong = |why: String| {
            let file = root.below(&file).display().to_string();
            let message = format!(
                "{file}: not a record of this version of latput: {why}: remove the files by hand, and delete it"
            );
            CliError::new(ExitReason::Failed, message)
        };
        let record: Self =
            serde_json::from_slice(text.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        record.check_paths(interface).map_err(wrong)?;
        Ok(Some(record))
    }

    /// The files that keep values, each with its state and with the text that latput gave it.
    pub(super) fn files_now(
        &self,
        root: &RootFolder,
    ) -> Result<Vec<(&str, &str, FileNow)>, CliError> {
        let mut found = Vec::new();
        for kept in &self.files {
            let Some(after) = &kept.after else { continue };
            let now = match read_version(root, &kept.file)? {
                None => FileNow::Missing,
                Some(now) if now == *after || kept.is_in(&now) => FileNow::Whole,
                Some(_) => FileNow::Changed,
            };
            found.push((kept.file.as_str(), after.text.as_str(), now));
        }
        Ok(found)
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("a record has no unserialisable part")
    }

    /// Whether this file is among those that were written.
    pub(super) fn has_file(&self, name: &str) -> bool {
        self.files.iter().any(|kept| kept.file == name)
    }

    /// Every record, by interface.
    pub(super) fn read_all(root: &RootFolder) -> Result<Vec<Self>, CliError> {
        let names = root.entries(RECORDS)?;
        let interfaces = names.iter().filter_map(|name| name.strip_suffix(".json"));
        interfaces.filter_map(|interface| Self::read(root, interface).transpose()).collect()
    }

    /// Believes a record for the files that latput itself writes: whoever made an image may have written it.
    fn check_paths(&self, interface: &str) -> Result<(), String> {
        if self.interface != interface {
            return Err(format!("it is of `{}`", self.interface.escape_debug()));
        }
        for kept in &self.files {
            if !is_kept_file(&kept.file, interface) {
                return Err(format!("latput writes no `{}`", kept.file.escape_debug()));
            }
            let is_strange =
                |version: &FileVersion| version.text != irqbalance::script_text(interface);
            let mut versions = kept.before.iter().chain(&kept.after);
            if kept.file == irqbalance::script_file(interface) && versions.any(is_strange) {
                return Err(format!("latput writes no such `{}`", kept.file.escape_debug()));
            }
        }
        let is_above = |folder: &&String| {
            STATE_FOLDERS.iter().any(|(name, _)| name == folder)
                || self.files.iter().any(|kept| {
                    Path::new(&kept.file)
                        .ancestors()
                        .any(|above| above == Path::new(folder.as_str()))
                })
        };
        match self.folders.iter().find(|folder| !is_above(folder)) {
            Some(folder) => Err(format!("latput makes no `{}`", folder.escape_debug())),
            None => Ok(()),
        }
    }
}

fn record_file(interface: &str) -> String {
    format!("{RECORDS}/{interface}.json")
}

/// Files on their way from what they are to what they are to be.
pub(super) struct FileTransaction<'a> {
    root: &'a RootFolder,
    record: KeepRecord,
    /// Present state of the files.
    now: Vec<Option<FileVersion>>,
    /// State in which latput left them.
    made: Vec<Option<FileVersion>>,
    /// The record of before.
    earlier: Option<KeepRecord>,
}

impl<'a> FileTransaction<'a> {
    /// Plans to write `files` for an interface, and to put back those of the earlier `record` that are not among them.
    pub(super) fn plan(
        root: &'a RootFolder,
        interface: &str,
        record: Option<KeepRecord>,
        files: Contents,
    ) -> Result<Self, CliError> {
        let mut folders = record.as_ref().map_or_else(Vec::new, |record| record.folders.clone());
        let earlier = record.as_ref().map_or_else(Vec::new, |record| record.files.clone());
        let made_of = |file: &str| earlier.iter().find(|kept| kept.file == file);
        let mut kept = Vec::new();
        for (file, text, mode) in files {
            let now = read_version(root, &file)?;
            let owner = now.as_ref().map_or_else(|| Owner::ours(mode), FileVersion::owner);
            let before = made_of(&file).map_or(now, |kept| kept.before.clone());
            kept.push(FileChange { file, before, after: Some(FileVersion::new(text, owner)) });
        }
        for old in &earlier {
            if !kept.iter().any(|kept| kept.file == old.file) {
                kept.push(FileChange { after: None, ..old.clone() });
            }
        }
        // A folder that was made for another interface goes with the last of them.
        let of_others = KeepRecord::read_all(root)?.into_iter().flat_map(|record| record.folders);
        let of_others: Vec<String> = of_others.collect();
        let of_record = STATE_FOLDERS.iter().take(FOLDERS_OF_OTHERS).map(|(name, _)| *name);
        let of_files = kept.iter().filter(|kept| kept.after.is_some()).flat_map(|kept| {
            let above: Vec<&Path> = Path::new(&kept.file).ancestors().skip(1).collect();
            above.into_iter().rev().filter_map(Path::to_str)
        });
        for name in of_record.chain(of_files) {
            let is_new = !root.has(name) || of_others.iter().any(|it| it == name);
            if is_new && !folders.iter().any(|it| it == name) {
                folders.push(name.to_owned());
            }
        }
        let now =
            kept.iter().map(|kept| read_version(root, &kept.file)).collect::<Result<_, _>>()?;
        let made = kept.iter().map(|kept| made_of(&kept.file)?.after.clone()).collect();
        let interface = interface.to_owned();
        let before = record;
        let record =
            KeepRecord { schema: 1, interface, files: kept, folders, kept: KeptKnobs::default() };
        Ok(Self { root, record, now, made, earlier: before })
    }

    /// Records the values that the files keep.
    pub(super) fn with_values(mut self, kept: KeptKnobs) -> Self {
        self.record.kept = kept;
        self
    }

    /// Values that were kept, and whose knobs are not any more.
    pub(super) fn dropped_values(&self) -> impl Iterator<Item = (Knob, &Value)> {
        let earlier = self.earlier.iter().flat_map(|record| &record.kept);
        let dropped = earlier.filter(|(knob, _)| !self.record.kept.contains_key(knob));
        dropped.map(|(knob, kept)| (*knob, &kept.value))
    }

    pub(super) fn interface(&self) -> &str {
        &self.record.interface
    }

    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.record.files.iter().map(|kept| self.root.below(&kept.file))
    }

    /// Whether this file is to be written.
    pub(super) fn has_file(&self, name: &str) -> bool {
        self.record.files.iter().any(|kept| kept.file == name && kept.after.is_some())
    }

    /// Each file with what it is and what it is to be.
    fn file_steps(
        &self,
    ) -> impl Iterator<Item = (&FileChange, Option<&FileVersion>, Option<&FileVersion>)> {
        self.record
            .files
            .iter()
            .zip(&self.now)
            .map(|(kept, now)| (kept, now.as_ref(), kept.after.as_ref().or(kept.before.as_ref())))
    }

    /// Whether a file keeps anything.
    pub(super) fn keeps_any(&self) -> bool {
        self.record.files.iter().any(|kept| kept.after.is_some())
    }

    /// Whether there is anything to write.
    pub(super) fn has_changes(&self) -> bool {
        let is_kept =
            self.earlier.as_ref().map_or(&BTreeMap::new(), |it| &it.kept) == &self.record.kept;
        !is_kept || self.file_steps().any(|(_, now, wanted)| now != wanted)
    }

    /// The unified difference of all files.
    pub(super) fn render_diff(&self) -> String {
        let text = |version: Option<&FileVersion>| version.map(|version| version.text.clone());
        self.file_steps()
            .map(|(kept, now, wanted)| {
                diff::unified_diff(&kept.file, text(now).as_deref(), text(wanted).as_deref())
            })
            .collect()
    }

    /// A file of somebody else that would be overwritten. A profile of NetworkManager is added to.
    pub(super) fn find_foreign_file(&self) -> Option<PathBuf> {
        let mut steps = self.file_steps().zip(&self.made).filter(|(_, made)| made.is_none());
        let foreign = steps.find(|((kept, now, wanted), _)| {
            let is_other = now.is_some_and(|now| wanted.is_none_or(|it| it.text != now.text));
            is_other && !kept.file.starts_with(profile::PROFILES)
        });
        foreign.map(|((kept, ..), _)| self.root.below(&kept.file))
    }

    /// Files that are neither as they were nor as latput made them, with the difference to that.
    pub(super) fn find_edited_files(&self) -> Vec<(PathBuf, String)> {
        let steps = self.file_steps().zip(&self.made);
        let edited = steps.filter_map(|((kept, now, _), made)| {
            let made = made.as_ref()?;
            if now == Some(made) || now == kept.before.as_ref() {
                return None;
            }
            let found = now.map(|now| now.text.as_str());
            let mut difference = diff::unified_diff(&kept.file, Some(&made.text), found);
            if difference.is_empty() {
                "its owner or its permissions were changed\n".clone_into(&mut difference);
            }
            Some((self.root.below(&kept.file), difference))
        });
        edited.collect()
    }

    /// Writes all files, or leaves all as they were.
    pub(super) fn write(&self) -> Result<(), CliError> {
        let mut made = Vec::new();
        let Err(error) = self.write_each(&mut made) else { return Ok(()) };
        let left = self.take_back(&made);
        if left.is_empty() {
            let code = if error.permission { ExitReason::Permission } else { ExitReason::Failed };
            return Err(CliError::new(code, format!("nothing was changed: {error}")));
        }
        let (left, interface) = (left.join(", "), interface_words(self.interface()));
        let message = format!(
            "{error}. Not put back: {left}. Remove the obstacle, then: latput keep --remove {interface}"
        );
        Err(CliError::new(ExitReason::Stranded, message))
    }

    /// Writes the files; `made` gets the folders that were made.
    fn write_each(&self, made: &mut Vec<String>) -> Result<(), FileError> {
        let root = self.root;
        let record_file = record_file(self.interface());
        let is_removal = self.record.files.iter().all(|kept| kept.after.is_none());
        let mut make = |folder: &str, mode: u32| -> Result<(), FileError> {
            if root.make_folder(folder, mode)? {
                made.push(folder.to_owned());
            }
            Ok(())
        };
        // A removal that is cut short leaves the record of what is to be removed.
        if !is_removal {
            for (folder, mode) in STATE_FOLDERS {
                make(folder, mode)?;
            }
            root.install(&record_file, &self.record.to_bytes(), Owner::ours(SECRET))?;
        }
        for folder in &self.record.folders {
            let mut wanted = self.record.files.iter().filter(|kept| kept.after.is_some());
            if wanted.any(|kept| kept.file.starts_with(folder)) {
                make(folder, OPEN)?;
            }
        }
        // Files that go make room for those that come.
        let (gone, rest): (Vec<_>, Vec<_>) = self
            .file_steps()
            .filter(|(_, now, wanted)| now != wanted)
            .partition(|step| step.2.is_none());
        for (kept, _, wanted) in gone.into_iter().chain(rest) {
            write_or_remove(root, &kept.file, wanted)?;
        }
        if is_removal {
            for folder in self.record.folders.iter().rev() {
                let _is_empty = root.remove_folder(folder);
            }
            root.uninstall(&record_file)?;
            let _are_empty = [RECORDS, STATE].map(|folder| root.remove_folder(folder));
            for (folder, _) in STATE_FOLDERS.iter().take(FOLDERS_OF_OTHERS).rev() {
                if self.record.folders.iter().any(|made| made == folder) {
                    let _is_empty = root.remove_folder(folder);
                }
            }
        }
        Ok(())
    }

    /// Makes the files what they were before [`write`](Self::write); gives those that are not.
    fn take_back(&self, made: &[String]) -> Vec<String> {
        let root = self.root;
        let mut left = Vec::new();
        for (kept, now, _) in self.file_steps() {
            let folders =
                self.record.folders.iter().filter(|folder| kept.file.starts_with(*folder));
            for folder in folders.filter(|_| now.is_some()) {
                let _there_already = root.make_folder(folder, OPEN);
            }
            let is_back = read_version(root, &kept.file).is_ok_and(|found| found.as_ref() == now);
            if !is_back && write_or_remove(root, &kept.file, now).is_err() {
                left.push(root.below(&kept.file).display().to_string());
            }
        }
        // The record of what is left is the way to remove it.
        if left.is_empty() {
            let record_file = record_file(self.interface());
            let _as_before = match &self.earlier {
                Some(earlier) => {
                    root.install(&record_file, &earlier.to_bytes(), Owner::ours(SECRET))
                }
                None => root.uninstall(&record_file),
            };
            for folder in made.iter().rev() {
                let _is_empty = root.remove_folder(folder);
            }
        }
        left
    }
}

/// Gives a file this content, or removes it.
fn write_or_remove(
    root: &RootFolder,
    file: &str,
    wanted: Option<&FileVersion>,
) -> Result<(), FileError> {
    match wanted {
        // The one text of a script is checked with its record.
        Some(wanted) if file.starts_with(irqbalance::SCRIPTS) => {
            root.install_script(file, wanted.text.as_bytes())
        }
        Some(wanted) => root.install(file, wanted.text.as_bytes(), wanted.owner()),
        None => root.uninstall(file),
    }
}

fn read_version(root: &RootFolder, file: &str) -> Result<Option<FileVersion>, CliError> {
    let found = root.read(file, TEXT_BYTES_MOST)?;
    Ok(found.map(|(text, owner)| FileVersion::new(text, owner)))
}

/// The text of a file; `None` if there is none.
fn read(root: &RootFolder, file: &str) -> Result<Option<String>, CliError> {
    Ok(root.read(file, TEXT_BYTES_MOST)?.map(|(text, _)| text))
}

#[cfg(test)]
mod tests {
    use super::is_kept_file;

    #[test]
    fn only_files_that_keep_writes_are_believed() {
        for name in [
            "/etc/systemd/network/10-latput-nic7.link",
            "/etc/netplan/90-latput-nic7.yaml",
            "/etc/tuned/latput-nic7/tuned.conf",
            "/etc/udev/rules.d/90-latput-nic7.rules",
            "/etc/sysctl.d/90-latput-nic7.conf",
            "/etc/systemd/system/latput-affinity-nic7.service",
            "/etc/systemd/system/irqbalance.service.d/50-latput-nic7.conf",
            "/etc/latput/irqbalance/nic7",
            "/etc/NetworkManager/system-connections/Wired 1.nmconnection",
            "/etc/NetworkManager/system-connections/wired",
        ] {
            assert!(is_kept_file(name, "nic7"), "{name}");
        }
        for name in [
            "/etc/passwd",
            "/../etc/netplan/90-latput-nic7.yaml",
            "/etc/netplan/90-latput-nic8.yaml",
            "/etc/latput/irqbalance/nic8",
            "/etc/NetworkManager/system-connections/../../x.nmconnection",
            "/etc/NetworkManager/system-connections/..",
            "/etc/NetworkManager/system-connections/",
            "/etc/NetworkManager/system-connections/ca.pem",
            "/etc/systemd/network/../network/10-latput-nic7.link",
            "",
        ] {
            assert!(!is_kept_file(name, "nic7"), "{name}");
        }
    }
}
