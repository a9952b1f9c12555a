//! Reading a pipe so that a signal ends it: Ctrl-C only raises a flag, and whoever waits in `open(2)` or `read(2)` does not see it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;

/// A file that is open for reading; a pipe is waited for in a way that a signal ends.
pub(super) enum InputFile {
    /// A regular file, a folder, a device.
    Plain(File),
    /// A pipe, named or not.
    Pipe(File),
}

impl InputFile {
    /// Opens a file. A pipe needs no writer yet.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if !path.metadata()?.file_type().is_fifo() {
            return Ok(Self::Plain(File::open(path)?));
        }
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        Ok(Self::Pipe(OpenOptions::new().read(true).custom_flags(flags).open(path)?))
    }

    pub(super) const fn file(&self) -> &File {
        match self {
            Self::Plain(file) | Self::Pipe(file) => file,
        }
    }
}

impl Read for InputFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(buffer),
            Self::Pipe(file) => loop {
                // Until a writer comes, `read` finds an end where `poll` finds nothing.
                match poll(&mut [PollFd::new(file, PollFlags::IN)], None) {
                    // `read_to_end` would try `Interrupted` again.
                    Err(rustix::io::Errno::INTR) => {
                        return Err(io::Error::other("a signal came while it waited for a writer"));
                    }
                    Err(error) => return Err(error.into()),
                    Ok(_) => {}
                }
                match file.read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn named_pipe_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let write = {
            let path = path.clone();
            thread::spawn(move || {
                let mut pipe = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                for part in ["one ", "two"] {
                    pipe.write_all(part.as_bytes()).unwrap();
                    thread::sleep(Duration::from_millis(20));
                }
            })
        };
        assert_eq!(super::super::read(&path, 100).unwrap(), b"one two");
        write.join().unwrap();
    }

    /// As the shell's `<(command)` gives it; the writer may be gone before it is opened.
    #[test]
    fn pipe_without_writer_has_an_end() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"all").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert_eq!(super::super::read(path.as_ref(), 100).unwrap(), b"all");
        assert_eq!(super::super::read(path.as_ref(), 100).unwrap(), b"");
    }
}
