//! The format of the line between host and guest: a tag, a length, the bytes.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// No frame is longer.
const MAX_BYTES: u32 = 1 << 20;
/// Streams are cut into pieces of this size.
pub(crate) const PIECE: usize = 64 << 10;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// To the guest: run this, with nothing on its stdin yet.
    Run(Vec<String>),
    /// To the guest: more for its stdin.
    Input(Vec<u8>),
    /// To the guest: its stdin ends here.
    EndOfInput,
    /// To the guest: end it by SIGKILL.
    Kill,
    /// To the host: from its stdout.
    Output(Vec<u8>),
    /// To the host: from its stderr.
    Errors(Vec<u8>),
    /// To the host: how it ended; the last.
    Ended(CommandExit),
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CommandExit {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It could not be started.
    Failed(String),
}

impl Frame {
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let json = |value: serde_json::Result<Vec<u8>>| value.map_err(io::Error::other);
        let (tag, payload) = match self {
            Self::Run(words) => (b'r', json(serde_json::to_vec(words))?),
            Self::Input(bytes) => (b'i', bytes.clone()),
            Self::EndOfInput => (b'e', Vec::new()),
            Self::Kill => (b'k', Vec::new()),
            Self::Output(bytes) => (b'o', bytes.clone()),
            Self::Errors(bytes) => (b'x', bytes.clone()),
            Self::Ended(ended) => (b'q', json(serde_json::to_vec(ended))?),
        };
        let length = u32::try_from(payload.len()).ok().filter(|&length| length <= MAX_BYTES);
        let length = length.ok_or_else(|| io::Error::other("a frame of more than 1 MiB"))?;
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend(payload);
        to.write_all(&bytes)?;
        to.flush()
    }

    /// The next one; `None` where the line ends, also in the middle of a frame.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut head = [0; 5];
        if !fill_buffer(from, &mut head)? {
            return Ok(None);
        }
        let [tag, length @ ..] = head;
        let length = u32::from_le_bytes(length);
        if length > MAX_BYTES {
            return Err(io::Error::other(format!("a frame of {length} bytes")));
        }
        let mut payload = vec![0; length as usize];
        if !fill_buffer(from, &mut payload)? {
            return Ok(None);
        }
        Ok(Some(match tag {
            b'r' => Self::Run(serde_json::from_slice(&payload)?),
            b'i' => Self::Input(payload),
            b'e' => Self::EndOfInput,
            b'k' => Self::Kill,
            b'o' => Self::Output(payload),
            b'x' => Self::Errors(payload),
            b'q' => Self::Ended(serde_json::from_slice(&payload)?),
            other => return Err(io::Error::other(format!("a frame of the unknown kind {other}"))),
        }))
    }
}

/// Fills the buffer; false where the stream ends first.
fn fill_buffer(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_survives_the_line() {
        let frames = [
            Frame::Run(vec!["latput".into(), "show".into()]),
            Frame::Input(b"{}\n".to_vec()),
            Frame::EndOfInput,
            Frame::Kill,
            Frame::Output(vec![0; PIECE]),
            Frame::Errors(Vec::new()),
            Frame::Ended(CommandExit::Code(3)),
            Frame::Ended(CommandExit::Failed("no such file".into())),
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).unwrap();
        }
        let mut from = bytes.as_slice();
        for frame in frames {
            assert_eq!(Frame::read(&mut from).unwrap(), Some(frame));
        }
        assert_eq!(Frame::read(&mut from).unwrap(), None);
    }

    #[test]
    fn cut_line_ends_and_garbage_fails() {
        let mut bytes = Vec::new();
        Frame::Input(vec![1, 2, 3]).write(&mut bytes).unwrap();
        for end in 0..bytes.len() {
            assert_eq!(Frame::read(&mut &bytes[..end]).unwrap(), None, "{end}");
        }
        check_read_error(b"?\0\0\0\0", "unknown kind");
        check_read_error(b"i\xff\xff\xff\xff", "frame of 4294967295");
        check_read_error(b"r\x01\0\0\0[", "EOF");
    }

    #[track_caller]
    fn check_read_error(bytes: &[u8], expected: &str) {
        let problem = Frame::read(&mut &bytes[..]).unwrap_err().to_string();
        assert!(problem.contains(expected), "{problem}");
    }
}
