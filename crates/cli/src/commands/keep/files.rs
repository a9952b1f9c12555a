//! The files that hold a kept setting, and the record of what they replaced.
//!
//! The record is written before the first file and removed after the last: a `keep` that was cut short is
//! finished, or taken out, by the next one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use latput_knobs::export::Exported;
use latput_linux::files::{self, FileError, Owner};
use serde::{Deserialize, Serialize};

use super::{below, diff};
use crate::commands::export_settings::ExportFormat;
use crate::exit::{CliError, Code};

/// Where the records are: they outlive a reboot, as the files do.
const RECORDS: &str = "/var/lib/latput/keep";
/// The folder of NetworkManager's profiles.
const PROFILES: &str = "/etc/NetworkManager/system-connections";
/// Files that other knobs may go to than those of the format.
const RULES: &str = "/etc/udev/rules.d/";
const SYSCTLS: &str = "/etc/sysctl.d/90-latput.conf";
/// Files that everybody may read, and those of netplan and NetworkManager, which may hold secrets.
const PUBLIC: u32 = 0o644;
const SECRET: u32 = 0o600;

/// The files to write, by their name on the host, with their text and permissions.
pub(super) type Contents = Vec<(String, String, u32)>;
/// Knobs that no file keeps, with the reason.
pub(super) type Unkept = Vec<(String, String)>;

/// The files that keep an exported setting of `interface`.
pub(super) fn contents(
    root: &Path,
    format: ExportFormat,
    interface: &str,
    exported: &Exported,
) -> Result<(Contents, Unkept), CliError> {
    let mut files = Contents::new();
    match format {
        ExportFormat::NetworkManager => {
            let found = profiles(root, interface)?;
            let [profile] = found.as_slice() else {
                let message = format!(
                    "{} profiles in {PROFILES} name {interface}. Set `connection.interface-name` in exactly one, \
                     or use --format systemd-link",
                    found.len()
                );
                return Err(CliError::new(Code::Failed, message));
            };
            let text = read(profile)?.unwrap_or_default();
            let name = profile.strip_prefix(root).unwrap_or(profile).display().to_string();
            files.push((
                format!("/{}", name.trim_start_matches('/')),
                merged(&text, &exported.text),
                SECRET,
            ));
        }
        ExportFormat::Netplan => files.push((exported.file.clone(), exported.text.clone(), SECRET)),
        ExportFormat::Tuned => {
            let active = below(root, "/etc/tuned/active_profile");
            let active = fs::read_to_string(active).unwrap_or_default();
            // The own profile must not include itself.
            let active: Vec<&str> =
                active.split_whitespace().filter(|name| !name.starts_with("latput-")).collect();
            let include = format!("include={}", active.join(" "));
            let text = if active.is_empty() {
                exported.text.clone()
            } else {
                exported.text.replace("#include=PROFILE", &include)
            };
            files.push((exported.file.clone(), text, PUBLIC));
        }
        _ => files.push((exported.file.clone(), exported.text.clone(), PUBLIC)),
    }
    let mut unkept = Unkept::new();
    let mut elsewhere: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for left in &exported.elsewhere {
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
    for (file, lines) in elsewhere {
        // The host's own knobs are of no interface, so that each interface has a file of its own.
        let file = if file == SYSCTLS {
            format!("/etc/sysctl.d/90-latput-{interface}.conf")
        } else {
            file.to_owned()
        };
        let text = format!("# Settings of {interface}, by `latput keep`.\n{}\n", lines.join("\n"));
        files.push((file, text, PUBLIC));
    }
    Ok((files, unkept))
}

/// NetworkManager's profiles for an interface.
pub(super) fn profiles(root: &Path, interface: &str) -> Result<Vec<PathBuf>, CliError> {
    let wanted = format!("interface-name={interface}");
    let folder = match fs::read_dir(below(root, PROFILES)) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut profiles: Vec<PathBuf> = folder.flatten().map(|file| file.path()).collect();
    profiles.retain(|path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        path.extension().is_some_and(|end| end == "nmconnection")
            && text.lines().any(|line| line.trim() == wanted)
    });
    profiles.sort();
    Ok(profiles)
}

/// A keyfile with the keys of another put into its sections: in the place of their old values, else at the
/// section's end.
fn merged(keyfile: &str, addition: &str) -> String {
    let mut lines: Vec<String> = keyfile.lines().map(str::to_owned).collect();
    let mut section = "";
    for line in addition.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
            continue;
        }
        let Some((key, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let start = lines.iter().position(|known| known.trim() == section).unwrap_or_else(|| {
            if lines.last().is_some_and(|last| !last.is_empty()) {
                lines.push(String::new());
            }
            lines.push(section.to_owned());
            lines.len() - 1
        });
        let end = lines[start + 1..].iter().position(|known| known.starts_with('['));
        let end = end.map_or(lines.len(), |end| start + 1 + end);
        let has_key =
            |known: &String| known.split_once('=').is_some_and(|(name, _)| name.trim() == key);
        if let Some(at) = lines[start + 1..end].iter().position(has_key) {
            line.clone_into(&mut lines[start + 1 + at]);
        } else {
            let blank =
                lines[start + 1..end].iter().rev().take_while(|line| line.is_empty()).count();
            lines.insert(end - blank, line.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

/// What `keep` has written for one interface.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    schema: u32,
    pub(super) interface: String,
    files: Vec<Kept>,
    /// Folders that were made for the files, outermost first.
    folders: Vec<String>,
}

/// One file: what it was and what it became.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Its name on the host.
    file: String,
    /// `None`: there was no such file.
    before: Option<FileVersion>,
    /// `None`: it is to be as it was before.
    after: Option<FileVersion>,
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

impl Record {
    /// The record of an interface; `None` if nothing is kept for it.
    pub(super) fn read(root: &Path, interface: &str) -> Result<Option<Self>, CliError> {
        Self::of_file(&record_file(root, interface))
    }

    /// Every record, by interface.
    pub(super) fn all(root: &Path) -> Result<Vec<Self>, CliError> {
        let folder = match fs::read_dir(below(root, RECORDS)) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut files: Vec<PathBuf> = folder.flatten().map(|file| file.path()).collect();
        files.retain(|file| file.extension().is_some_and(|end| end == "json"));
        files.sort();
        files.iter().filter_map(|file| Self::of_file(file).transpose()).collect()
    }

    fn of_file(file: &Path) -> Result<Option<Self>, CliError> {
        let Some(text) = read(file)? else { return Ok(None) };
        let record: Self = serde_json::from_slice(text.as_bytes()).map_err(|error| {
            let message = format!(
                "{}: no record of this version of latput: {error}: take the files out by hand, and move it away",
                file.display()
            );
            CliError::new(Code::Failed, message)
        })?;
        Ok(Some(record))
    }
}

fn record_file(root: &Path, interface: &str) -> PathBuf {
    below(root, RECORDS).join(format!("{interface}.json"))
}

/// Files on their way from what they are to what they are to be.
pub(super) struct Writing {
    root: PathBuf,
    record: Record,
    /// What the files are now.
    now: Vec<Option<FileVersion>>,
    /// What latput had made of them.
    made: Vec<Option<FileVersion>>,
}

impl Writing {
    /// Plans to write `files` for an interface, and to put back those of the earlier `record` that are not among them.
    pub(super) fn plan(
        root: &Path,
        interface: &str,
        record: Option<Record>,
        files: Contents,
    ) -> Result<Self, CliError> {
        let mut folders = record.as_ref().map_or_else(Vec::new, |record| record.folders.clone());
        let earlier = record.map_or_else(Vec::new, |record| record.files);
        let made_of = |file: &str| earlier.iter().find(|kept| kept.file == file);
        let mut kept = Vec::new();
        for (file, text, mode) in files {
            let now = version(root, &file)?;
            let owner = now.as_ref().map_or_else(|| Owner::ours(mode), FileVersion::owner);
            let before = made_of(&file).map_or(now, |kept| kept.before.clone());
            kept.push(Kept { file, before, after: Some(FileVersion::new(text, owner)) });
        }
        for old in &earlier {
            if !kept.iter().any(|kept| kept.file == old.file) {
                kept.push(Kept { after: None, ..old.clone() });
            }
        }
        for kept in kept.iter().filter(|kept| kept.after.is_some()) {
            let above: Vec<&Path> = Path::new(&kept.file).ancestors().skip(1).collect();
            for folder in above.into_iter().rev() {
                let name = folder.display().to_string();
                if !below(root, &name).exists() && !folders.contains(&name) {
                    folders.push(name);
                }
            }
        }
        let now = kept.iter().map(|kept| version(root, &kept.file)).collect::<Result<_, _>>()?;
        let made = kept.iter().map(|kept| made_of(&kept.file)?.after.clone()).collect();
        let record = Record { schema: 1, interface: interface.to_owned(), files: kept, folders };
        Ok(Self { root: root.to_owned(), record, now, made })
    }

    pub(super) fn interface(&self) -> &str {
        &self.record.interface
    }

    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.record.files.iter().map(|kept| below(&self.root, &kept.file))
    }

    /// Each file with what it is and what it is to be.
    fn steps(&self) -> impl Iterator<Item = (&Kept, Option<&FileVersion>, Option<&FileVersion>)> {
        self.record
            .files
            .iter()
            .zip(&self.now)
            .map(|(kept, now)| (kept, now.as_ref(), kept.after.as_ref().or(kept.before.as_ref())))
    }

    /// Whether there is anything to write.
    pub(super) fn changes(&self) -> bool {
        self.steps().any(|(_, now, wanted)| now != wanted)
    }

    /// The unified difference of all files.
    pub(super) fn difference(&self) -> String {
        let text = |version: Option<&FileVersion>| version.map(|version| version.text.clone());
        self.steps()
            .map(|(kept, now, wanted)| {
                diff::unified(&kept.file, text(now).as_deref(), text(wanted).as_deref())
            })
            .collect()
    }

    /// Files that are neither as they were nor as latput made them, with the difference to that.
    pub(super) fn edited(&self) -> Vec<(PathBuf, String)> {
        let steps = self.steps().zip(&self.made);
        let edited = steps.filter_map(|((kept, now, _), made)| {
            let made = made.as_ref()?;
            if now == Some(made) || now == kept.before.as_ref() {
                return None;
            }
            let found = now.map(|now| now.text.as_str());
            let mut difference = diff::unified(&kept.file, Some(&made.text), found);
            if difference.is_empty() {
                "its owner or its permissions were changed\n".clone_into(&mut difference);
            }
            Some((below(&self.root, &kept.file), difference))
        });
        edited.collect()
    }

    /// Writes the files; each is whole or as it was.
    pub(super) fn write(&self) -> Result<(), FileError> {
        let record_file = record_file(&self.root, self.interface());
        let folder = below(&self.root, RECORDS);
        for public in ["/var", "/var/lib"] {
            files::public_folder(&below(&self.root, public))?;
        }
        files::private_folder(&folder)?;
        let text =
            serde_json::to_vec_pretty(&self.record).expect("a record has no unserialisable part");
        files::install(&self.root, &record_file, &text, Owner::ours(SECRET))?;
        for folder in &self.record.folders {
            if self
                .record
                .files
                .iter()
                .any(|kept| kept.after.is_some() && kept.file.starts_with(folder))
            {
                files::public_folder(&below(&self.root, folder))?;
            }
        }
        for (kept, now, wanted) in self.steps() {
            let path = below(&self.root, &kept.file);
            match wanted {
                _ if now == wanted => {}
                Some(wanted) => {
                    files::install(&self.root, &path, wanted.text.as_bytes(), wanted.owner())?;
                }
                None => files::uninstall(&self.root, &path)?,
            }
        }
        if self.record.files.iter().all(|kept| kept.after.is_none()) {
            for folder in self.record.folders.iter().rev() {
                let _not_empty = fs::remove_dir(below(&self.root, folder));
            }
            files::uninstall(&self.root, &record_file)?;
            let _not_empty = fs::remove_dir(folder);
        }
        Ok(())
    }
}

fn version(root: &Path, file: &str) -> Result<Option<FileVersion>, CliError> {
    let path = below(root, file);
    let Some(text) = read(&path)? else { return Ok(None) };
    Ok(Some(FileVersion::new(text, Owner::of(&path)?)))
}

/// The text of a file; `None` if there is none.
fn read(path: &Path) -> Result<Option<String>, CliError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::new(Code::Failed, format!("{}: {error}", path.display()))),
        Ok(meta) if !meta.is_file() => {
            let message =
                format!("{}: it is no regular file, and latput writes to no other", path.display());
            Err(CliError::new(Code::Failed, message))
        }
        Ok(_) => Ok(Some(files::read_text(path, files::TEXT_BYTES_MOST)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn keys_are_put_into_the_sections_of_a_keyfile() {
        let keyfile =
            "[connection]\nid=wired\n\n[ethernet]\nmtu=1500\nmac=aa\n\n[ipv4]\nmethod=auto\n";
        let addition = "# latput\n[ethernet]\nmtu=9000\n\n[ethtool]\nring-rx=512\ncoalesce-rx-usecs=50\n\n[ipv4]\nx=1\n";
        let expected = "[connection]\nid=wired\n\n[ethernet]\nmtu=9000\nmac=aa\n\n[ipv4]\nmethod=auto\nx=1\n\n\
                        [ethtool]\nring-rx=512\ncoalesce-rx-usecs=50\n";
        assert_eq!(merged(keyfile, addition), expected);
        assert_eq!(merged(expected, addition), expected, "once is enough");
    }
}
