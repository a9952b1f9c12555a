//! The kernel modules that a guest needs, with those that they depend on.
//!
//! An unpacked kernel package has no `modules.dep` (installing it makes that), so dependencies are
//! read from the modules themselves: `depends=` in their `.modinfo` (`Documentation/kbuild/modules.rst`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// The modules of one kernel.
#[derive(Debug)]
pub(crate) struct KernelModules {
    folder: PathBuf,
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

/// A module to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelModule {
    /// Its name, with underscores.
    pub(crate) name: String,
    /// Its code, not compressed.
    pub(crate) code: Vec<u8>,
}

impl KernelModules {
    /// Looks through the folder of a kernel's modules.
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder.join("kernel")];
        while let Some(folder) = folders.pop() {
            let failed = |source| Error::io(format!("read {}", folder.display()), source);
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                if entry.file_type().map_err(failed)?.is_dir() {
                    folders.push(entry.path());
                } else if let Some(name) = module_name(&entry.path()) {
                    files.insert(name, entry.path());
                }
            }
        }
        let list = folder.join("modules.builtin");
        let text = fs::read_to_string(&list)
            .map_err(|source| Error::io(format!("read {}", list.display()), source))?;
        let builtin = text.lines().filter_map(|line| module_name(Path::new(line))).collect();
        Ok(Self { folder: folder.to_owned(), files, builtin })
    }

    /// The wanted modules, each after those it depends on. What is built into the kernel is left out.
    pub(crate) fn with_dependencies(&self, wanted: &[&str]) -> Result<Vec<KernelModule>, Error> {
        let mut modules = Vec::new();
        let mut under_way = BTreeSet::new();
        for name in wanted {
            self.add(name, &mut under_way, &mut modules)?;
        }
        Ok(modules)
    }

    fn add(
        &self,
        name: &str,
        under_way: &mut BTreeSet<String>,
        modules: &mut Vec<KernelModule>,
    ) -> Result<(), Error> {
        if self.builtin.contains(name) || !under_way.insert(name.to_owned()) {
            return Ok(());
        }
        let path = self.files.get(name).ok_or_else(|| Error::Missing {
            what: format!("the kernel module `{name}` is not in {}", self.folder.display()),
            mend: "use a kernel package with drivers of real hardware (on Debian \
                   `linux-image-amd64`, not one of the `cloud` kernels)"
                .to_owned(),
        })?;
        let packed = fs::read(path)
            .map_err(|source| Error::io(format!("read {}", path.display()), source))?;
        let code = decompress_file(&packed)?
            .ok_or_else(|| Error::damaged(path, "is neither a module nor a compressed one"))?;
        for dependency in parse_dependencies(&code) {
            self.add(&dependency, under_way, modules)?;
        }
        modules.push(KernelModule { name: name.to_owned(), code });
        Ok(())
    }
}

/// `snd-pcm.ko.xz` is the module `snd_pcm`.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (name, suffix) = file.split_once(".ko")?;
    matches!(suffix, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

/// The modules that a module's code says it depends on.
fn parse_dependencies(code: &[u8]) -> Vec<String> {
    // The entries of .modinfo end with a NUL each.
    let mut entries = code.split(|&byte| byte == 0);
    let list = entries.find_map(|entry| entry.strip_prefix(b"depends="));
    let list = list.and_then(|list| std::str::from_utf8(list).ok()).unwrap_or_default();
    let names = list.split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

/// How a compressed file begins, and the program that undoes it.
const PACKERS: [(&[u8], &str); 4] = [
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x1f\x8b", "gzip"),
    (b"\x02\x21\x4c\x18", "lz4"),
];

/// The first bytes of an ELF file.
pub(crate) const ELF_MAGIC: &[u8] = b"\x7fELF";

/// A file of the kernel package without its compression; as it is if it has none that is known and is
/// an ELF file, and `None` if it is something else.
pub(crate) fn decompress_file(packed: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    if packed.starts_with(ELF_MAGIC) {
        return Ok(Some(packed.to_owned()));
    }
    let Some((_, program)) = PACKERS.iter().find(|(magic, _)| packed.starts_with(magic)) else {
        return Ok(None);
    };
    let mut child = Command::new(program)
        .args(["--decompress", "--stdout"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| Error::Missing {
            what: format!("cannot start `{program}`, which undoes the compression: {source}"),
            mend: format!("install `{program}`"),
        })?;
    let mut input = child.stdin.take().expect("stdin is piped");
    let output = std::thread::scope(|scope| {
        // A kernel image goes on with its length after the compressed part: the program may stop
        // reading, and end with a complaint, when it has unpacked everything.
        scope.spawn(move || drop(input.write_all(packed)));
        child.wait_with_output()
    });
    let output = output.map_err(|source| Error::io(format!("run `{program}`"), source))?.stdout;
    Ok((!output.is_empty()).then_some(output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_follows_its_dependencies_once() {
        let root = kernel_folder();
        let modules = KernelModules::read(root.path()).unwrap();
        let found = modules.with_dependencies(&["net-failover", "virtio_net"]);
        assert!(found.unwrap_err().to_string().contains("`net-failover`"), "names are as in lsmod");
        let found = modules.with_dependencies(&["virtio_net", "net_failover"]).unwrap();
        let names: Vec<&str> = found.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["failover", "net_failover", "virtio_net"]);
        assert!(modules.with_dependencies(&["ptp"]).unwrap().is_empty(), "it is built in");
    }

    #[test]
    fn bad_module_is_told_with_remedy() {
        let root = kernel_folder();
        let modules = KernelModules::read(root.path()).unwrap();
        check_module_error(&modules, "e1000e", "linux-image-amd64");
        check_module_error(&modules, "broken", "neither a module nor a compressed one");
        assert!(KernelModules::read(&root.path().join("none")).is_err());
    }

    #[test]
    fn dependencies_are_read_from_the_module() {
        assert_eq!(parse_dependencies(b"ELF\0depends=ptp,pps-core\0name=x\0"), ["ptp", "pps_core"]);
        assert!(parse_dependencies(b"ELF\0depends=\0").is_empty());
        assert!(parse_dependencies(b"").is_empty());
    }

    fn kernel_folder() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("kernel/net/virtio-net.ko", "\x7fELF\0depends=net-failover\0");
        write("kernel/net/net_failover.ko", "\x7fELF\0depends=failover\0");
        write("kernel/net/core/failover.ko", "\x7fELF\0depends=\0");
        write("kernel/broken.ko", "hello");
        write("modules.builtin", "kernel/drivers/ptp/ptp.ko\n");
        root
    }

    #[track_caller]
    fn check_module_error(modules: &KernelModules, name: &str, expected: &str) {
        let problem = modules.with_dependencies(&[name]).unwrap_err().to_string();
        assert!(problem.contains(expected) && problem.contains(name), "{problem}");
    }
}
