//! Every parser of what the kernel says, for the fuzz targets in `fuzz/`: none may panic.

use latput_knobs::{Profile, Qdisc, QueueTable};
use latput_units::{CpuSet, Nanos};

use crate::counters::parse;
use crate::netlink::message::Messages;
use crate::{ethtool, netdev, netlink, route};

/// A datagram from a netlink socket: its messages, and each of them as the answer to everything that
/// latput asks.
pub fn netlink(datagram: &[u8]) {
    for message in Messages::new(datagram).flatten() {
        let _ = (message.outcome(), message.is_dump_interrupted());
        answers(message.payload);
    }
    answers(datagram);
}

fn answers(payload: &[u8]) {
    ethtool::parse_any(payload);
    ethtool::parameters::parse_any(payload);
    netdev::parse_any(payload);
    netlink::socket::parse_any(payload);
    route::parse_any(payload);
    route::qdisc::parse_any(payload);
}

/// The content of a file of sysfs or procfs. What is understood must be written as it is read.
pub fn files(bytes: &[u8]) {
    let cpus: CpuSet = "0-1".parse().expect("this is a list of CPUs");
    let _ = parse::cpu_times(bytes, Nanos::from_ms(10), &cpus, &mut Vec::new());
    let _ = (
        parse::interrupts(bytes, &cpus),
        parse::protocol_counter(parse::SNMP, bytes, "Udp", "InErrors"),
    );
    let _ = parse::softirqs(bytes, &[b"NET_RX"], &cpus);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(cpus) = CpuSet::from_hex_mask(text) {
        assert_eq!(CpuSet::from_hex_mask(&cpus.to_hex_mask()), Ok(cpus));
    }
    if let Ok(cpus) = text.parse::<CpuSet>() {
        assert_eq!(cpus.to_string().parse(), Ok(cpus));
    }
    if let Ok(qdisc) = text.parse::<Qdisc>() {
        assert_eq!(qdisc.to_string().parse(), Ok(qdisc));
    }
    if let Ok(table) = text.parse::<QueueTable>() {
        assert_eq!(table.to_string().parse(), Ok(table));
    }
    if let Ok(profile) = text.parse::<Profile>() {
        assert_eq!(profile.to_string().parse(), Ok(profile));
    }
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;

    const LETTERS: &[u8] = b"0123456789abcdfx,.-= %:nqueltosmkGMKBip_";

    #[test]
    fn random_bytes_and_texts_never_panic() {
        let mut rng = SeededRng::from_seed(6);
        let mut random = |length: usize, below: usize| -> Vec<u8> {
            (0..length).map(|_| u8::try_from(rng.next_below(below)).expect("a byte")).collect()
        };
        for length in 0..80 {
            for below in [4, 32, 256] {
                netlink(&random(length, below));
                files(&random(length, below));
            }
            for _ in 0..200 {
                let letters = LETTERS.len();
                let text: Vec<u8> = random(length, letters)
                    .into_iter()
                    .map(|idx| LETTERS[usize::from(idx)])
                    .collect();
                files(&text);
                files(&[b"fq_codel ", &text[..]].concat());
                files(&[b"netem loss=", &text[..]].concat());
            }
        }
    }
}
