//! Tests with name servers on loopback whose answers are the bytes of RFC 1035.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::thread;

use proptest::prelude::*;

use crate::config::{Hosts, ServerConfig};
use crate::dns::{self, Answer};
use crate::{Error, by_files, resolve};

#[test]
fn address_is_its_own_name() {
    for address in ["192.0.2.7", "2001:db8::7"] {
        assert_eq!(resolve(address).unwrap(), [address.parse::<IpAddr>().unwrap()]);
    }
    for name in ["", "-n", "no where", "a\nb", &"x".repeat(300)] {
        assert!(matches!(resolve(name), Err(Error::Invalid)), "{name}");
    }
}

#[test]
fn localhost_resolves_and_reserved_name_does_not() {
    assert!(resolve("localhost").unwrap().iter().all(IpAddr::is_loopback));
    // RFC 6761, section 6.4.
    let error = resolve("latput.invalid").unwrap_err();
    assert!(!matches!(error, Error::Invalid), "{error}");
}

#[test]
fn hosts_file_parses_as_documented() {
    let hosts = Hosts::parse(
        "127.0.0.1 localhost\n# 192.0.2.1 gone\n192.0.2.7\tSut.example  sut # here\n\
         2001:db8::7 sut\nnonsense sut\n\n",
    );
    let none = ServerConfig::parse("");
    for (name, expected) in [
        ("sut", vec!["192.0.2.7", "2001:db8::7"]),
        ("SUT.example", vec!["192.0.2.7"]),
        ("sut.example.", vec!["192.0.2.7"]),
        ("localhost", vec!["127.0.0.1"]),
    ] {
        let mut found: Vec<String> =
            by_files(name, &hosts, &none).unwrap().iter().map(ToString::to_string).collect();
        found.sort();
        assert_eq!(found, expected, "{name}");
    }
    assert!(hosts.addresses("gone").is_empty());
}

#[test]
fn servers_file_parses_as_documented() {
    let config = ServerConfig::parse(
        "; nameserver 192.0.2.9\nsearch lab.test. test\nnameserver 192.0.2.1\nnameserver 2001:db8::1\n\
         nameserver oops\noptions ndots:2 timeout:99 attempts:0 rotate\n",
    );
    let servers: Vec<String> = config.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53"]);
    assert_eq!((config.timeout.as_secs(), config.attempts), (30, 1));
    assert_eq!(config.candidates("sut"), ["sut.lab.test", "sut.test", "sut"]);
    assert_eq!(config.candidates("a.b.c"), ["a.b.c", "a.b.c.lab.test", "a.b.c.test"]);
    assert_eq!(config.candidates("sut."), ["sut"]);
    assert_eq!(ServerConfig::parse("").servers, ["127.0.0.1:53".parse().unwrap()]);
}

#[test]
fn name_server_is_asked_for_both_families() {
    let server = serve(|query| vec![answer(query, 0, query[query.len() - 3])], None);
    let found = ask("sut.test", server).unwrap();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["2001:db8::7", "192.0.2.7"]);
}

#[test]
fn answer_to_another_question_is_passed_over() {
    let server = serve(
        |query| {
            let right = answer(query, 0, query[query.len() - 3]);
            let mut late = right.clone();
            late[0] ^= 0xff; // its id
            let mut other_name = right.clone();
            other_name[13] ^= 1;
            vec![late, other_name, vec![1, 2, 3], right]
        },
        None,
    );
    assert_eq!(ask("sut.test", server).unwrap().len(), 2);
}

#[test]
fn truncated_answer_is_retried_by_tcp() {
    const TRUNCATED: u8 = 0x02;
    let tcp = |query: &[u8]| answer(query, 0, query[query.len() - 3]);
    let server = serve(|query| vec![answer(query, TRUNCATED, 0)], Some(tcp));
    assert_eq!(ask("sut.test", server).unwrap().len(), 2);
}

#[test]
fn server_failures_are_told_by_address() {
    let refusing = serve(
        |query| {
            let mut bytes = answer(query, 0, 0);
            bytes[3] |= 5; // REFUSED
            vec![bytes]
        },
        None,
    );
    check_error(refusing, "answers Refused");
    let silent = serve(|_| Vec::new(), None);
    check_error(silent, "no answer within");
    let unknown = serve(
        |query| {
            let mut bytes = answer(query, 0, 0);
            bytes[3] |= 3; // NXDOMAIN
            vec![bytes]
        },
        None,
    );
    check_error(unknown, "no address is known for it (/etc/hosts, name server 127.0.0.1)");
}

proptest! {
    #[test]
    fn no_bytes_of_a_server_are_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03sut\x04test\x00\x00\x01\x00\x01";
        let _ = dns::read(&bytes, query);
        // As far as the answers, with our question.
        let mut head = query.to_vec();
        head[2] |= 0x80;
        head[7] = 2;
        head.append(&mut bytes);
        let _ = dns::read(&head, query);
    }
}

#[test]
fn query_is_the_bytes_of_the_standard() {
    let query =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03sut\x04test\x00\x00\x01\x00\x01";
    let expected = vec!["192.0.2.7".parse().unwrap()];
    assert_eq!(dns::read(&answer(query, 0, 1), query), Answer::Addresses(expected));
}

/// An answer by hand (RFC 1035, section 4.1): header, question, and for the types 1 (A) and 28 (AAAA)
/// one record whose name points to the question's.
fn answer(query: &[u8], flags: u8, kind: u8) -> Vec<u8> {
    let address: &[u8] = match kind {
        1 => &[192, 0, 2, 7],
        28 => &[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
        _ => &[],
    };
    let mut bytes = query.to_vec();
    bytes[2] |= 0x80 | flags;
    if !address.is_empty() {
        bytes[7] = 1;
        let length = u8::try_from(address.len()).unwrap();
        bytes.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, length]);
        bytes.extend(address);
    }
    bytes
}

type ByTcp = fn(&[u8]) -> Vec<u8>;

/// A server on loopback that answers each question by UDP with datagrams, and by TCP with bytes.
fn serve(udp: fn(&[u8]) -> Vec<Vec<u8>>, tcp: Option<ByTcp>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    if let Some(tcp) = tcp {
        let listener = TcpListener::bind(address).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut query).unwrap();
                let bytes = tcp(&query);
                let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
                stream.write_all(&[&length, bytes.as_slice()].concat()).unwrap();
            }
        });
    }
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            for bytes in udp(&buffer[..length]) {
                socket.send_to(&bytes, from).unwrap();
            }
        }
    });
    address
}

fn ask(name: &str, server: SocketAddr) -> Result<Vec<IpAddr>, Error> {
    let mut config = ServerConfig::parse("options timeout:1 attempts:1");
    config.servers = vec![server];
    dns::ask(name, &config)
}

#[track_caller]
fn check_error(server: SocketAddr, expected: &str) {
    let error = ask("sut.test", server).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}
