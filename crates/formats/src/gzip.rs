//! gzip, the compression of flent's files.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

/// The first bytes of a gzip member (RFC 1952, section 2.3.1).
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Whether `bytes` begin like a gzip file.
pub fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// `text` as a gzip file.
pub fn pack(text: &str) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer
        .write_all(text.as_bytes())
        .and_then(|()| packer.finish())
        .expect("writing to memory cannot fail")
}

/// The content of a gzip file. Refuses content longer than `limit` bytes: a few KB can unpack to
/// many GB.
pub fn unpack(bytes: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(bytes).take(limit as u64 + 1).read_to_end(&mut unpacked)?;
    if unpacked.len() > limit {
        let message = format!("it unpacks to more than {} MiB", limit >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_unpacked_up_to_limit() {
        let text = "a ".repeat(10_000);
        let packed = pack(&text);
        assert!(is_gzip(&packed) && packed.len() < 200);
        assert_eq!(unpack(&packed, 20_000).unwrap(), text.as_bytes());
        assert!(unpack(&packed, 19_999).unwrap_err().to_string().contains("unpacks to more"));
        assert!(unpack(&packed[..packed.len() - 9], 20_000).is_err(), "cut short");
        assert!(unpack(b"no gzip", 10).is_err());
    }
}
