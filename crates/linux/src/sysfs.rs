//! One value per file, under `/sys/class/net/INTERFACE` and under `/proc`.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType};

use crate::error::{Error, check_interface_name};
use crate::process::Capability;

/// Longer than any attribute: sysfs gives at most a page.
const MAX_VALUE_BYTES: u64 = 4096;

/// Files with one value each, below one folder: the system's, or a recorded one in tests.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    root: PathBuf,
}

impl Files {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The path of a file. The caller checks names that come from outside.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// Reads a value without the newline at its end.
    pub(crate) fn read(&self, file: &str) -> Result<String, Error> {
        let path = self.path(file);
        let failed = |source| Error::system(format!("read {}", path.display()), source);
        // Bounded: whatever stands in the place of the file must not fill the memory.
        let mut bytes = Vec::new();
        let opened = fs::File::open(&path).map_err(failed)?;
        opened.take(MAX_VALUE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        let is_long = bytes.len() as u64 > MAX_VALUE_BYTES;
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::parse(path.display().to_string(), "text", "other bytes"))?;
        if is_long {
            return Err(Error::parse(path.display().to_string(), "a short text", &text));
        }
        Ok(text.trim_end().to_owned())
    }

    /// Reads a decimal number.
    pub(crate) fn read_number(&self, file: &str) -> Result<u64, Error> {
        let text = self.read(file)?;
        text.parse().map_err(|_| {
            let path = self.path(file);
            Error::parse(path.display().to_string(), "a decimal number", &text)
        })
    }

    /// Whether a file is on a file system that nobody can write to. A missing right is something else.
    pub(crate) fn is_read_only(&self, file: &str) -> bool {
        rustix::fs::access(self.path(file), rustix::fs::Access::WRITE_OK)
            == Err(rustix::io::Errno::ROFS)
    }

    /// Writes a value in one system call, as sysfs wants it.
    pub(crate) fn write(&self, file: &str, value: &str) -> Result<(), Error> {
        let path = self.path(file);
        let operation = || format!("write {value} to {}", path.display());
        // Never creates: a missing attribute is one that the kernel does not have.
        let mut file = fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(|source| Error::system(operation(), source))?;
        let written =
            file.write(value.as_bytes()).map_err(|source| Error::system(operation(), source))?;
        if written != value.len() {
            let short = io::Error::new(io::ErrorKind::WriteZero, "only a part was taken");
            return Err(Error::system(operation(), short));
        }
        Ok(())
    }
}

/// A sysfs tree, by interface.
#[derive(Clone, Debug)]
pub(crate) struct Sysfs {
    pub(crate) files: Files,
}

impl Sysfs {
    pub(crate) fn new(root: &Path) -> Self {
        Self { files: Files::new(root) }
    }

    /// The path of an interface's attribute.
    pub(crate) fn path(&self, interface: &str, attribute: &str) -> PathBuf {
        self.files.path(&file(interface, attribute))
    }

    /// Reads an attribute without the newline at its end.
    pub(crate) fn read(&self, interface: &str, attribute: &str) -> Result<String, Error> {
        check_interface_name(interface)?;
        self.files.read(&file(interface, attribute)).map_err(|error| self.explain(interface, error))
    }

    /// Reads an attribute that is a decimal number.
    pub(crate) fn read_number(&self, interface: &str, attribute: &str) -> Result<u64, Error> {
        check_interface_name(interface)?;
        let number = self.files.read_number(&file(interface, attribute));
        number.map_err(|error| self.explain(interface, error))
    }

    /// Writes an attribute.
    pub(crate) fn write(&self, interface: &str, attribute: &str, value: &str) -> Result<(), Error> {
        check_interface_name(interface)?;
        let written = self.files.write(&file(interface, attribute), value);
        written.map_err(|error| self.explain(interface, error))
    }

    /// A missing file of an interface that this sysfs does not show tells nothing of the interface: the error says so.
    fn explain(&self, interface: &str, error: Error) -> Error {
        let is_missing = error.errno() == Some(libc::ENOENT);
        if is_missing && !self.path(interface, "").exists() && is_interface(interface) {
            let root = self.files.root.display();
            return Error::Other(format!(
                "{root} does not show {interface}: mount the sysfs of this network namespace there"
            ));
        }
        error
    }

    /// Whether an attribute is there, and may be written by whoever may change the interface: not below a read-only
    /// mount, nor by a user who has the capability but not the file.
    pub(crate) fn may_be_set(&self, interface: &str, attribute: &str) -> bool {
        use rustix::fs::{Access, access};
        use rustix::io::Errno;
        match access(self.path(interface, attribute), Access::WRITE_OK) {
            Ok(()) => true,
            // Nobody's values may be hidden from who only reads: his writes fail either way.
            Err(Errno::ACCESS | Errno::PERM) => !Capability::NetAdmin.is_effective(),
            Err(_) => false,
        }
    }

    /// The interfaces that this one stands on, by name.
    pub(crate) fn lower(&self, interface: &str) -> Vec<String> {
        let mut lower = names(&self.path(interface, ""), "lower_");
        lower.sort();
        lower
    }

    /// The interface of the physical function, of a virtual function whose parent this namespace shows.
    pub(crate) fn physical_function(&self, interface: &str) -> Option<String> {
        names(&self.path(interface, "device/physfn/net"), "").into_iter().next()
    }

    /// The numbers of an interface's receive (`rx-`) or transmit (`tx-`) queues, in order.
    pub(crate) fn queues(&self, interface: &str, prefix: &str) -> Result<Vec<u32>, Error> {
        check_interface_name(interface)?;
        let path = self.path(interface, "queues");
        let failed = |source| Error::system(format!("read {}", path.display()), source);
        let mut queues = Vec::new();
        let entries = fs::read_dir(&path).map_err(failed);
        for entry in entries.map_err(|error| self.explain(interface, error))? {
            let name = entry.map_err(failed)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
            queues.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        queues.sort_unstable();
        Ok(queues)
    }
}

/// Whether the network namespace has an interface of this name.
fn is_interface(name: &str) -> bool {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
    socket.is_ok_and(|socket| name_to_index(socket, name).is_ok())
}

fn file(interface: &str, attribute: &str) -> String {
    format!("class/net/{interface}/{attribute}")
}

/// The names in a folder that begin with a prefix, without it; none if there is no such folder.
fn names(folder: &Path, prefix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let name =
        |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_prefix(prefix)?.to_owned());
    entries.flatten().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_but_never_created() {
        let (folder, sysfs) =
            tree(&[("gro_flush_timeout", "50000\n"), ("queues/rx-0/rps_cpus", "0\n")]);
        assert_eq!(sysfs.read_number("eth0", "gro_flush_timeout").unwrap(), 50_000);
        sysfs.write("eth0", "gro_flush_timeout", "0").unwrap();
        assert!(sysfs.write("eth0", "threaded", "1").is_err());
        assert!(!folder.path().join("class/net/eth0/threaded").exists());
    }

    #[test]
    fn queues_come_in_the_order_of_their_numbers() {
        let (_folder, sysfs) = tree(&[
            ("queues/rx-10/rps_cpus", "0"),
            ("queues/rx-2/rps_cpus", "0"),
            ("queues/rx-x/rps_cpus", "0"),
            ("queues/tx-0/xps_cpus", "0"),
        ]);
        assert_eq!(sysfs.queues("eth0", "rx-").unwrap(), [2, 10]);
    }

    #[test]
    fn damaged_values_name_their_file() {
        let huge = "1".repeat(5000);
        for value in ["", "abc", "-1", "99999999999999999999999", huge.as_str()] {
            let (_folder, sysfs) = tree(&[("mtu", value)]);
            let error = sysfs.read_number("eth0", "mtu").unwrap_err().to_string();
            assert!(error.contains("class/net/eth0/mtu"), "{error}");
        }
        let (_folder, sysfs) = tree(&[]);
        assert!(sysfs.read("../../../etc", "hostname").is_err());
    }

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Sysfs) {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in files {
            let path = folder.path().join("class/net/eth0").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        let sysfs = Sysfs::new(folder.path());
        (folder, sysfs)
    }
}
