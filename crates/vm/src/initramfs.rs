//! Writes the archive that the kernel unpacks as the guest's first and only file system.
//!
//! The format is `newc` cpio, as `Documentation/driver-api/early-userspace/buffer-format.rst`
//! describes it: a header of 13 hexadecimal numbers, the name, the contents, each padded to 4 bytes.

/// `S_IFDIR`, `S_IFREG` of stat(2).
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
/// The entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// An archive in the making.
#[derive(Debug, Default)]
pub(crate) struct InitramfsBuilder {
    bytes: Vec<u8>,
    entries: u32,
}

impl InitramfsBuilder {
    /// Adds a folder; those above it must have been added before.
    pub(crate) fn add_folder(&mut self, path: &str) {
        self.entry(path, FOLDER | 0o755, &[]);
    }

    /// Adds a file that everybody may read and run.
    pub(crate) fn add_file(&mut self, path: &str, contents: &[u8]) {
        self.entry(path, FILE | 0o755, contents);
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8]) {
        let name = path.trim_start_matches('/');
        let size = u32::try_from(contents.len()).expect("programs and modules are below 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("names are short");
        self.entries += 1;
        // Inode, mode, uid, gid, links, mtime, size, device and its part, the same of a device file,
        // size of the name with its NUL, checksum (unused).
        let head = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in head {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad_entry();
        self.bytes.extend_from_slice(contents);
        self.pad_entry();
    }

    fn pad_entry(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_is_what_the_kernel_expects() {
        let mut archive = InitramfsBuilder::default();
        archive.add_folder("/etc");
        archive.add_file("/etc/name", b"hello");
        let bytes = archive.finish();
        let text = String::from_utf8(bytes).unwrap();
        let head = |inode: u32, mode: &str, size: u32, name: u32| {
            let zeros = "00000000".repeat(2);
            format!(
                "070701{inode:08x}{mode}{zeros}00000001{:08x}{size:08x}{}{name:08x}00000000",
                0,
                "00000000".repeat(4)
            )
        };
        let folder = format!("{}etc\0\0\0", head(1, "000041ed", 0, 4));
        let file = format!("{}etc/name\0\0hello\0\0\0", head(2, "000081ed", 5, 9));
        let end = format!("{}TRAILER!!!\0\0\0\0", head(3, "00000000", 0, 11));
        assert_eq!(text, format!("{folder}{file}{end}"));
    }
}
