//! Packets that tcpdump records on the lab's wire.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::peers::lab::{INTERFACE, Lab, RunningProcess, SERVER_ADDRESS};
use crate::workspace::capture_output;

/// Until tcpdump listens; and until the kernel has given it the last packets.
const SETTLE: Duration = Duration::from_millis(1500);
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// tcpdump, running on a host's interface.
#[derive(Debug)]
pub struct PacketCapture {
    tcpdump: RunningProcess,
    file: PathBuf,
}

/// One packet on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Microseconds since 1970.
    pub at_us: u64,
    /// Whether the system under test sent it; else it is on its way there.
    pub from_sut: bool,
    /// Its content, in tcpdump's words.
    pub text: String,
}

impl PacketCapture {
    /// Starts on one of the lab's hosts.
    pub fn start(lab: &Lab, host: &str) -> Result<Self> {
        let file = lab.scratch.join("wire.pcap");
        // The kernel holds 64 MiB for it; headers suffice. What it says of lost packets is on stderr.
        let script =
            format!("exec tcpdump -i {INTERFACE} -n -s 64 -B 65536 -Z root -w \"$0\" 2>&1");
        let command = ["sh".to_owned(), "-c".to_owned(), script, file.display().to_string()];
        let tcpdump = lab.start_in(host, &command)?;
        lab.sleep_interruptible(SETTLE)?;
        Ok(Self { tcpdump, file })
    }

    /// Ends tcpdump, and reads what it recorded.
    pub fn stop_capture(self, lab: &Lab) -> Result<Vec<CapturedPacket>> {
        lab.sleep_interruptible(SETTLE)?;
        let said = self.tcpdump.terminate_and_wait(&lab.stop, Instant::now() + ENDS_WITHIN)?;
        ensure!(said.contains("\n0 packets dropped by kernel"), "tcpdump lost packets: {said}");
        let mut read = Command::new("tcpdump");
        let text = capture_output(read.args(["-n", "-tt", "-q", "-r"]).arg(&self.file))
            .context("tcpdump(8) is needed")?;
        Ok(text.lines().filter_map(parse).collect())
    }
}

/// A line such as `1795559986.848123 IP 198.18.0.1 > 198.18.0.2: ICMP echo request, ...`; `None` for what is not
/// between the two hosts.
fn parse(line: &str) -> Option<CapturedPacket> {
    let (at, rest) = line.split_once(" IP ")?;
    let (seconds, micros) = at.split_once('.').filter(|(_, micros)| micros.len() == 6)?;
    let at_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    let (ends, text) = rest.split_once(": ")?;
    let (from, to) = ends.split_once(" > ")?;
    let (from_sut, to_sut) = (is_sut(from), is_sut(to));
    (from_sut != to_sut).then(|| CapturedPacket { at_us, from_sut, text: text.to_owned() })
}

/// Whether an end, with or without a port, is the system under test.
fn is_sut(end: &str) -> bool {
    end.strip_prefix(SERVER_ADDRESS).is_some_and(|port| port.is_empty() || port.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_a_time_and_a_direction() {
        let request = "1795559986.048123 IP 198.18.0.1 > 198.18.0.2: ICMP echo request, id 7, seq 1, length 64";
        let packet = parse(request).unwrap();
        assert_eq!((packet.at_us, packet.from_sut), (1_795_559_986_048_123, false));
        assert_eq!(packet.text, "ICMP echo request, id 7, seq 1, length 64");
        let answer = "1795559986.048200 IP 198.18.0.2.4242 > 198.18.0.1.1025: tcp 1";
        assert!(parse(answer).unwrap().from_sut);
        for other in [
            "1795559986.048200 ARP, Request who-has 198.18.0.2 tell 198.18.0.1, length 28",
            "1795559986.048200 IP 198.18.0.1.1 > 198.18.0.25.2: tcp 1",
            "1795559986.048 IP 198.18.0.1.1 > 198.18.0.2.2: tcp 1",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
