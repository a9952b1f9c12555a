//! Looks, in the guest, for known faults in how QEMU's cards throttle interrupts, so that a run can
//! say which of them its figures have.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use latput_linux::Namespace;

use crate::config::{ENDPOINTS, GuestEndpoint};
use crate::error::Error;
use crate::init::list_interrupts;

/// The discard service (RFC 863).
const PORT: u16 = 9;
/// Packets on an idle line, each after the throttling window of the one before.
const LONE_PACKETS: u64 = 20;
const BETWEEN: Duration = Duration::from_millis(10);
/// Packets as fast as they go.
const FLOOD: Duration = Duration::from_millis(300);
/// The effects of the last packets.
const SETTLE: Duration = Duration::from_millis(50);
/// QEMU's cards wait at least 500 units of 256 ns between two interrupts, whatever the driver sets
/// (`hw/net/e1000.c`, `hw/net/e1000e_core.c`).
const FLOOR_RATE: f64 = 1e9 / (500.0 * 256.0);

/// Sends packets from the generator to the system under test and says what interrupts they made, in
/// sentences.
pub fn run() -> Result<Vec<String>, Error> {
    let [sut, generator] = ENDPOINTS;
    let receiver = UdpSocket::bind((sut.address, PORT))
        .map_err(|source| Error::io(format!("listen on port {PORT}"), source))?;
    let folder = Path::new(latput_linux::namespace::PIN_FOLDER);
    let there = Namespace::open(&folder.join(generator.name))?;
    let send = |flood| there.run_in(|| send_packets(generator, sut, flood));
    let (lone, interrupts) = count_interrupts(sut, || send(false))?;
    let mut found = vec![of_lone_packets(lone, interrupts)];
    let begun = Instant::now();
    let (packets, interrupts) = count_interrupts(sut, || send(true))?;
    found.push(of_flood(packets, interrupts, begun.elapsed()));
    drop(receiver);
    Ok(found)
}

/// The result of an action, and the interrupts of the host's card meanwhile.
fn count_interrupts(
    host: GuestEndpoint,
    action: impl FnOnce() -> Result<Result<u64, Error>, latput_linux::Error>,
) -> Result<(u64, u64), Error> {
    let before = read_interrupt_count(host)?;
    let sent = action()??;
    thread::sleep(SETTLE);
    Ok((sent, read_interrupt_count(host)?.saturating_sub(before)))
}

fn send_packets(from: GuestEndpoint, to: GuestEndpoint, flood: bool) -> Result<u64, Error> {
    let failed = |source| Error::io("send packets on the hub", source);
    let socket = UdpSocket::bind((from.address, 0)).map_err(failed)?;
    socket.connect((to.address, PORT)).map_err(failed)?;
    let begun = Instant::now();
    let mut sent = 0;
    while if flood { begun.elapsed() < FLOOD } else { sent < LONE_PACKETS } {
        socket.send(&[0]).map_err(failed)?;
        sent += 1;
        if !flood {
            thread::sleep(BETWEEN);
        }
    }
    Ok(sent)
}

/// All interrupts of a host's card so far, on whatever CPU.
fn read_interrupt_count(host: GuestEndpoint) -> Result<u64, Error> {
    let path = "/proc/interrupts";
    let text =
        fs::read_to_string(path).map_err(|source| Error::io(format!("read {path}"), source))?;
    Ok(sum(&text, &list_interrupts(host.interface)))
}

/// Sums the rows of these interrupts over all CPUs.
fn sum(text: &str, interrupts: &[String]) -> u64 {
    let rows = text.lines().filter_map(|line| line.split_once(':'));
    let ours = rows.filter(|(number, _)| interrupts.iter().any(|irq| irq == number.trim()));
    ours.flat_map(|(_, counts)| {
        counts.split_whitespace().map_while(|word| word.parse::<u64>().ok())
    })
    .sum()
}

fn of_lone_packets(packets: u64, interrupts: u64) -> String {
    let verdict = if interrupts > packets + packets / 10 {
        "a real card makes one each: here the end of a throttling window interrupts once more"
    } else {
        "no more than one each, as on a real card"
    };
    format!("emulation: {packets} lone packets made {interrupts} interrupts; {verdict}")
}

fn of_flood(packets: u64, interrupts: u64, took: Duration) -> String {
    let per_s = |count: u64| count as f64 / took.as_secs_f64();
    let verdict = if per_s(interrupts) > FLOOR_RATE {
        "more than QEMU's floor of 128 us between two would allow: this QEMU has none"
    } else {
        "no more than QEMU's floor of 128 us between two allows"
    };
    format!(
        "emulation: a flood of {:.0} packets/s made {:.0} interrupts/s; {verdict}",
        per_s(packets),
        per_s(interrupts)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_interrupts_are_summed_over_vectors() {
        let text = "           CPU0       CPU1\n  4:  9 9 IO-APIC 4-edge ttyS0\n 24:  1 20 PCI-MSI \
                    49152-edge eth0-rx-0\n 25:  300 0 PCI-MSI 49153-edge eth0-tx-0\nNMI: 5 5\n";
        assert_eq!(sum(text, &["24".into(), "25".into()]), 321);
        assert_eq!(sum(text, &[]), 0);
        assert_eq!(sum("", &["24".into()]), 0);
    }

    #[test]
    fn faults_differ_from_real_card_behaviour() {
        check_sentence(&of_lone_packets(20, 23), "interrupts once more");
        check_sentence(&of_lone_packets(20, 21), "as on a real card");
        check_sentence(&of_flood(9000, 2000, Duration::from_secs(1)), "no more than");
        check_sentence(&of_flood(9000, 8000, Duration::from_secs(1)), "has none");
    }

    #[track_caller]
    fn check_sentence(sentence: &str, expected: &str) {
        assert!(sentence.contains(expected), "{sentence}");
    }
}
