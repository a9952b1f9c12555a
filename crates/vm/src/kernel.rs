//! Finds the guest's kernel: a distribution's kernel package, installed or merely unpacked.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::modules::{ELF_MAGIC, decompress_file};

/// Names the folder that the kernel package is unpacked in.
const VARIABLE: &str = "LATPUT_VM_KERNEL";
/// Words that are added to the kernel's command line.
const PARAMETERS: &str = "LATPUT_VM_PARAMETERS";
/// Most bytes of them: x86 cuts the command line at 2048 (`COMMAND_LINE_SIZE`).
const PARAMETERS_MOST: usize = 1024;
/// Why the search ended without one.
const MEND: &str = "install your distribution's kernel package (on Debian `linux-image-amd64`), or \
    unpack it anywhere (`apt-get download`, then `dpkg-deb -x PACKAGE FOLDER`) and name the folder in \
    LATPUT_VM_KERNEL";

/// The kernel parameters of `LATPUT_VM_PARAMETERS`, such as `threadirqs`; empty where it is not set.
pub(crate) fn read_parameters() -> Result<String, Error> {
    let given = std::env::var_os(PARAMETERS).unwrap_or_default();
    checked_parameters(&given.to_string_lossy())
}

fn checked_parameters(given: &str) -> Result<String, Error> {
    let refused = |what: &str| Error::Missing {
        what: format!("{PARAMETERS} {what}"),
        mend: "give words of the kernel's command line, such as `threadirqs nohz=off`".to_owned(),
    };
    if given.len() > PARAMETERS_MOST {
        return Err(refused(&format!("is longer than {PARAMETERS_MOST} bytes")));
    }
    if given.chars().any(|letter| !(letter == ' ' || letter.is_ascii_graphic())) {
        return Err(refused("has a letter that no kernel parameter has"));
    }
    let words: Vec<&str> = given.split_whitespace().collect();
    // The kernel hands words behind `--` to the first process, and `rdinit` names it: both are latput's.
    if words.iter().any(|word| *word == "--" || word.starts_with("rdinit=")) {
        return Err(refused("has `--` or `rdinit=`, which are latput's own"));
    }
    Ok(words.join(" "))
}

/// A kernel and its modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelPackage {
    /// As `uname -r` has it.
    pub(crate) release: String,
    /// The kernel image that a boot loader would load.
    pub(crate) image: PathBuf,
    /// The folder of its modules.
    pub(crate) modules: PathBuf,
}

impl KernelPackage {
    /// The newest kernel in the folder of `LATPUT_VM_KERNEL`, else beside this program (`vm/kernel`,
    /// where `cargo xtask vm` puts it), else the newest that is installed.
    pub(crate) fn find() -> Result<Self, Error> {
        if let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) {
            return Self::find_newest(&folder).ok_or_else(|| Error::Missing {
                what: format!("{VARIABLE} is {}, which holds no kernel", folder.display()),
                mend:
                    "it must hold `boot/vmlinuz-VERSION` and `lib/modules/VERSION` of one version"
                        .to_owned(),
            });
        }
        let places = beside_program("kernel").into_iter().chain([PathBuf::from("/")]);
        places.map(|place| Self::find_newest(&place)).find_map(|kernel| kernel).ok_or_else(|| {
            Error::Missing {
                what: "no kernel for the guest: none in /boot with its modules".to_owned(),
                mend: MEND.to_owned(),
            }
        })
    }

    /// The newest below a folder that stands for `/`, of which both parts are there.
    fn find_newest(root: &Path) -> Option<Self> {
        let images = fs::read_dir(root.join("boot")).ok()?.filter_map(Result::ok);
        let kernels = images.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let release = name.strip_prefix("vmlinuz-")?.to_owned();
            let modules = ["lib/modules", "usr/lib/modules"]
                .map(|folder| root.join(folder).join(&release))
                .into_iter()
                .find(|folder| folder.join("kernel").is_dir())?;
            Some(Self { release, image: entry.path(), modules })
        });
        kernels.max_by_key(|kernel| version_numbers(&kernel.release))
    }

    /// The image without its compression, which an emulated CPU needs ten seconds to undo: QEMU starts
    /// a bare kernel by the PVH entry that its ELF notes name. An image that cannot be unpacked here is
    /// booted as it is.
    pub(crate) fn read_image(&self) -> Result<Vec<u8>, Error> {
        let image = fs::read(&self.image)
            .map_err(|source| Error::io(format!("read {}", self.image.display()), source))?;
        if image.starts_with(ELF_MAGIC) {
            return Ok(image);
        }
        let bare = find_payload(&image).and_then(|payload| decompress_file(payload).ok().flatten());
        Ok(bare.filter(|bare| bare.starts_with(ELF_MAGIC)).unwrap_or(image))
    }
}

/// The compressed kernel in a bzImage (`Documentation/arch/x86/boot.rst`: `setup_sects`, `header`,
/// `payload_offset`, `payload_length`).
fn find_payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| {
        let bytes = image.get(at..at + 4)?;
        usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let setup_sectors = match image[0x1f1] {
        0 => 4, // as the format has it for very old loaders
        sectors => usize::from(sectors),
    };
    let start = (setup_sectors + 1) * 512 + number(0x248)?;
    image.get(start..start + number(0x24c)?)
}

/// Files that belong to this program: in the folder `vm` beside the folder that it is in.
pub fn beside_program(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    // `target/debug/latput` and `target/vm`; tests run one folder deeper.
    let folders = program.ancestors().skip(2).take(2);
    folders.map(|folder| folder.join("vm").join(name)).find(|path| path.exists())
}

/// Numbers compare as numbers: 6.1.0-56 is newer than 6.1.0-9.
fn version_numbers(release: &str) -> Vec<u64> {
    let parts = release.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_parameters_keep_first_process() {
        let taken = |given: &str| checked_parameters(given).map_err(|error| error.to_string());
        assert_eq!(taken("  threadirqs   nohz=off "), Ok("threadirqs nohz=off".to_owned()));
        assert_eq!(taken(""), Ok(String::new()));
        for given in ["quiet -- sh", "rdinit=/bin/sh", "a\nb", "\u{e9}", &"x".repeat(2000)] {
            let error = taken(given).unwrap_err();
            assert!(error.contains(PARAMETERS) && error.contains("threadirqs"), "{error}");
        }
    }

    #[test]
    fn newest_kernel_with_modules_is_taken() {
        let root = tempfile::tempdir().unwrap();
        for release in ["6.1.0-9-amd64", "6.1.0-56-amd64", "6.9.0-1-amd64"] {
            let image = root.path().join("boot").join(format!("vmlinuz-{release}"));
            fs::create_dir_all(image.parent().unwrap()).unwrap();
            fs::write(image, "").unwrap();
        }
        assert_eq!(KernelPackage::find_newest(root.path()), None);
        for (folder, release) in [("lib", "6.1.0-9-amd64"), ("usr/lib", "6.1.0-56-amd64")] {
            let modules = root.path().join(folder).join("modules").join(release);
            fs::create_dir_all(modules.join("kernel")).unwrap();
        }
        assert_eq!(KernelPackage::find_newest(root.path()).unwrap().release, "6.1.0-56-amd64");
    }

    #[test]
    fn image_payload_is_found_unless_cut() {
        let mut image = vec![0; 0x400 + 100];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248] = 10;
        image[0x24c] = 20;
        image[0x40a..0x40a + 20].fill(7);
        assert_eq!(find_payload(&image), Some(&[7; 20][..]));
        for end in 0..0x400 + 30 {
            assert_eq!(find_payload(&image[..end]), None, "{end}");
        }
        image[0x202] = 0;
        assert_eq!(find_payload(&image), None);
    }

    #[test]
    fn non_kernel_image_boots_unchanged() {
        let root = tempfile::tempdir().unwrap();
        let image = root.path().join("vmlinuz");
        let kernel = |image: &Path| KernelPackage {
            release: "1".into(),
            image: image.to_owned(),
            modules: PathBuf::new(),
        };
        fs::write(&image, "no kernel").unwrap();
        assert_eq!(kernel(&image).read_image().unwrap(), b"no kernel");
        fs::write(&image, ELF_MAGIC).unwrap();
        assert_eq!(kernel(&image).read_image().unwrap(), ELF_MAGIC);
        assert!(kernel(&root.path().join("none")).read_image().is_err());
    }
}
