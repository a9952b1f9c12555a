//! A Unix datagram socket that an application sends to. The keeper makes and removes it, since the agent may not; the agent reads
//! what comes.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use latput_trial::live::is_socket_path;
use rustix::fs::{Mode, OFlags, open};

/// Everybody may send.
const MODE: u32 = 0o666;

/// The file of a socket, which goes with the value.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Makes the socket. One that was left by a process that is gone is taken away first; any other file stays, and is an error.
    pub(super) fn bind(path: &str) -> io::Result<(OwnedFd, Self)> {
        if !is_socket_path(path) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let path = Path::new(path);
        let socket = match UnixDatagram::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && is_left_over(path) => {
                fs::remove_file(path)?;
                UnixDatagram::bind(path)?
            }
            other => other?,
        };
        // Whoever owns the folder may put another file there meanwhile: the rights are those of what was looked at.
        let file = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let seen = format!("/proc/self/fd/{}", file.as_raw_fd());
        let found = fs::metadata(&seen)?;
        if !found.file_type().is_socket() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        fs::set_permissions(&seen, Permissions::from_mode(MODE))?;
        let identity = (found.dev(), found.ino());
        Ok((socket.into(), Self { path: path.to_owned(), identity }))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if is_ours {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// Whether it is a socket that nobody reads.
fn is_left_over(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let asked = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    is_socket && asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statsd_socket_is_public_and_replaces_leftover() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.sock");
        let name = path.to_str().unwrap();
        // A process that was killed leaves its file.
        drop(UnixDatagram::bind(&path).unwrap());
        let (socket, file) = SocketFile::bind(name).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        let sender = UnixDatagram::unbound().unwrap();
        sender.send_to(b"a:1|c", &path).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(UnixDatagram::from(socket.try_clone().unwrap()).recv(&mut buffer).unwrap(), 5);
        // One that somebody reads stays his.
        let in_use = SocketFile::bind(name).unwrap_err();
        assert_eq!(in_use.kind(), ErrorKind::AddrInUse);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_is_never_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.sock");
        fs::write(&path, "mine").unwrap();
        assert!(SocketFile::bind(path.to_str().unwrap()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
        let (_socket, file) = SocketFile::bind(path.to_str().unwrap()).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        drop(file);
        assert!(path.exists(), "it was put there by somebody else");
        for wrong in ["app.sock", "/tmp/app", "/tmp/../app.sock"] {
            assert_eq!(SocketFile::bind(wrong).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
}
