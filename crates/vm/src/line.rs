//! Runs commands in a guest from the host, each over a virtio port of its own.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::config::PORTS;
use crate::error::Error;
use crate::frame::{CommandExit, Frame, PIECE};
use crate::qemu::GuestFiles;

/// A short command that is silent for longer hangs.
const SILENCE: Duration = Duration::from_secs(120);

/// One command that runs in the guest. Dropping it closes the command's stdin, and ends it if it then
/// does not end by itself.
#[derive(Debug)]
pub struct GuestCommand {
    stream: UnixStream,
    /// Held for as long as the port is in use.
    lock: File,
}

/// The output of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEvent {
    /// On its stdout.
    Output(Vec<u8>),
    /// On its stderr.
    Errors(Vec<u8>),
    /// With its end.
    Ended(CommandExit),
}

/// All that a command said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// Its stdout.
    pub stdout: Vec<u8>,
    /// Its stderr.
    pub stderr: Vec<u8>,
    /// How it ended.
    pub ended: CommandExit,
}

impl GuestCommand {
    /// Starts a command in the guest that has this folder.
    pub fn open(folder: &Path, words: &[String]) -> Result<Self, Error> {
        let files = GuestFiles(folder.to_owned());
        for idx in 0..PORTS {
            let path = files.lock(idx);
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let mut lock = options.open(&path).map_err(|error| {
                Error::Line(format!("there is no guest in {}: {error}", folder.display()))
            })?;
            if lock.try_lock().is_err() {
                continue;
            }
            // Where the last user was cut off, the guest may still be busy with what it sent.
            let was_cut_off = lock.metadata().is_ok_and(|metadata| metadata.len() > 0);
            if was_cut_off {
                continue;
            }
            let failed = |source| Error::io(format!("use {}", path.display()), source);
            lock.write_all(b"in use").map_err(failed)?;
            let stream = UnixStream::connect(files.port_socket(idx)).map_err(gone_error)?;
            let mut line = Self { stream, lock };
            line.send_frame(&Frame::Run(words.to_vec()))?;
            return Ok(line);
        }
        Err(Error::Line(format!("all its {PORTS} ports are in use")))
    }

    /// Its open files, for another process of this latput.
    pub fn into_files(self) -> [OwnedFd; 2] {
        [self.stream.into(), self.lock.into()]
    }

    /// The line of these files.
    pub fn of_files([stream, lock]: [OwnedFd; 2]) -> Self {
        Self { stream: stream.into(), lock: lock.into() }
    }

    /// Writes to the command's stdin.
    pub fn write_input(&mut self, bytes: &[u8]) -> Result<(), Error> {
        bytes.chunks(PIECE).try_for_each(|piece| self.send_frame(&Frame::Input(piece.to_vec())))
    }

    /// Closes the command's stdin.
    pub fn end_input(&mut self) -> Result<(), Error> {
        self.send_frame(&Frame::EndOfInput)
    }

    /// Ends the command by SIGKILL.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.send_frame(&Frame::Kill)
    }

    /// Waits for what the command says next.
    pub fn receive_event(&mut self) -> Result<CommandEvent, Error> {
        match Frame::read(&mut self.stream).map_err(gone_error)? {
            Some(Frame::Output(bytes)) => Ok(CommandEvent::Output(bytes)),
            Some(Frame::Errors(bytes)) => Ok(CommandEvent::Errors(bytes)),
            Some(Frame::Ended(ended)) => {
                // The port can be used again. If not, it just stays out of use.
                let _ = self.lock.set_len(0);
                Ok(CommandEvent::Ended(ended))
            }
            Some(other) => Err(Error::Line(format!("the guest sent {other:?}"))),
            None => Err(Error::Line("the guest is gone".to_owned())),
        }
    }

    /// Closes the command's stdin and collects what it says until it ends. One that says nothing for
    /// two minutes is an error.
    pub fn collect_output(mut self) -> Result<CommandOutput, Error> {
        self.stream.set_read_timeout(Some(SILENCE)).map_err(gone_error)?;
        self.end_input()?;
        let mut stdout = Vec::new();
        let mut stderr = Vec::new();
        loop {
            match self.receive_event()? {
                CommandEvent::Output(bytes) => stdout.extend(bytes),
                CommandEvent::Errors(bytes) => stderr.extend(bytes),
                CommandEvent::Ended(ended) => return Ok(CommandOutput { stdout, stderr, ended }),
            }
        }
    }

    /// Passes these streams on as the command's own, until it ends.
    pub fn pass_on(
        mut self,
        mut input: impl Read + Send + 'static,
        mut output: impl Write,
        mut errors: impl Write,
    ) -> Result<CommandExit, Error> {
        let mut to = self.stream.try_clone().map_err(gone_error)?;
        // A thread that may outlive this call: nobody can interrupt its reading.
        thread::spawn(move || {
            let mut buffer = vec![0; PIECE];
            loop {
                let length = input.read(&mut buffer).unwrap_or(0);
                let frame = match length {
                    0 => Frame::EndOfInput,
                    length => Frame::Input(buffer[..length].to_vec()),
                };
                if frame.write(&mut to).is_err() || length == 0 {
                    break;
                }
            }
        });
        let failed = |source| Error::io("pass on what the command in the guest says", source);
        loop {
            match self.receive_event()? {
                CommandEvent::Output(bytes) => {
                    output.write_all(&bytes).and_then(|()| output.flush()).map_err(failed)?;
                }
                CommandEvent::Errors(bytes) => errors.write_all(&bytes).map_err(failed)?,
                CommandEvent::Ended(ended) => return Ok(ended),
            }
        }
    }

    fn send_frame(&mut self, frame: &Frame) -> Result<(), Error> {
        frame.write(&mut self.stream).map_err(gone_error)
    }
}

impl CommandOutput {
    /// Whether the command ended well.
    pub fn is_success(&self) -> bool {
        self.ended == CommandExit::Code(0)
    }

    /// Its stdout as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its stderr as text.
    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

fn gone_error(error: io::Error) -> Error {
    Error::Line(format!("the guest is gone: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn port_serves_one_command_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let files = create_files(&folder);
        let ports: Vec<UnixListener> =
            (0..PORTS).map(|idx| UnixListener::bind(files.port_socket(idx)).unwrap()).collect();
        let open = || GuestCommand::open(folder.path(), &["true".to_owned()]);
        let mut first = open().unwrap();
        let _second = open().unwrap();
        let (mut guest, _) = ports[0].accept().unwrap();
        assert_eq!(Frame::read(&mut guest).unwrap(), Some(Frame::Run(vec!["true".into()])));
        Frame::Ended(CommandExit::Code(0)).write(&mut guest).unwrap();
        assert_eq!(first.receive_event().unwrap(), CommandEvent::Ended(CommandExit::Code(0)));
        drop((first, guest));
        drop(open().unwrap()); // on the first port again, and cut off
        ports[0].accept().unwrap();
        let rest: Vec<GuestCommand> = (2..PORTS).map(|_| open().unwrap()).collect();
        let problem = open().unwrap_err().to_string();
        assert!(problem.contains("all its"), "{problem}");
        drop(rest);
    }

    #[test]
    fn guest_that_is_gone_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let files = create_files(&folder);
        let problem = GuestCommand::open(folder.path(), &[]).unwrap_err().to_string();
        assert!(problem.contains("gone"), "{problem}");
        let port = UnixListener::bind(files.port_socket(1)).unwrap();
        let mut line = GuestCommand::open(folder.path(), &[]).unwrap();
        drop(port.accept().unwrap());
        let problem = line.receive_event().unwrap_err().to_string();
        assert!(problem.contains("gone"), "{problem}");
        let problem = GuestCommand::open(&folder.path().join("none"), &[]).unwrap_err().to_string();
        assert!(problem.contains("there is no guest"), "{problem}");
    }

    fn create_files(folder: &tempfile::TempDir) -> GuestFiles {
        let files = GuestFiles(folder.path().to_owned());
        std::fs::create_dir(files.qemu_folder()).unwrap();
        files
    }
}
