//! Asks `getent ahosts` (getent(1)), which the C library of the host brings.

use std::io;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use crate::Error;

/// `getent` exits so where a source does not know the name.
const NOT_FOUND: i32 = 2;

/// The addresses of `name`; `None` where the host has no `getent`.
pub(crate) fn ask(name: &str) -> Result<Option<Vec<IpAddr>>, Error> {
    let asked = Command::new("getent").args(["ahosts", name]).stdin(Stdio::null()).output();
    let output = match asked {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => {
            other.map_err(|source| Error::Io { operation: "start `getent`".to_owned(), source })?
        }
    };
    let addresses = read(&String::from_utf8_lossy(&output.stdout));
    if !addresses.is_empty() {
        return Ok(Some(addresses));
    }
    let asked = format!("`getent ahosts {name}`");
    if output.status.success() || output.status.code() == Some(NOT_FOUND) {
        return Err(Error::Unknown { asked });
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let source = io::Error::other(format!("{}: {words}", output.status));
    Err(Error::Io { operation: format!("run {asked}"), source })
}

/// The first word of each line, each address once: a name has a line for every kind of socket.
fn read(text: &str) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for word in text.lines().filter_map(|line| line.split_whitespace().next()) {
        if let Ok(address) = word.parse()
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_has_each_address_once() {
        let text = "\
192.0.2.7       STREAM sut.test
192.0.2.7       DGRAM
192.0.2.7       RAW
2001:db8::7     STREAM
fe80::1%eth0    STREAM
";
        let expected: Vec<IpAddr> =
            vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        assert_eq!(read(text), expected);
        assert!(read("").is_empty());
    }
}
