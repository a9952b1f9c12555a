//! Peers that close, stay silent, lie about lengths or are something else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use latput_load::Stop;
use latput_peers::{Error, Peer, PeerResult};
use latput_units::Nanos;

use crate::{WINDOW, free_port, measure_workload, parse_workload};

#[test]
fn what_is_no_iperf3_server_is_named() {
    check_error("iperf3", drop, |error| matches!(error, Error::PeerGone { .. }));
    check_error(
        "iperf3",
        |line| send_reply(line, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        |error| matches!(error, Error::Malformed { problem, .. } if problem.contains("0x48")),
    );
    check_error(
        "iperf3",
        |line| send_reply(line, &[1]),
        |error| matches!(error, Error::Malformed { problem, .. } if problem.contains("TestStart")),
    );
}

#[test]
fn servers_own_words_are_told() {
    let refusal = [0xfe, 0, 0, 0, 142, 0, 0, 0, 0];
    check_error(
        "iperf3",
        move |line| send_reply(line, &refusal),
        |error| matches!(error, Error::Refusal { text, .. } if text.contains("user name")),
    );
    check_error(
        "iperf3",
        move |line| send_reply(line, &refusal[..5]),
        |error| matches!(error, Error::Refusal { text, .. } if text.ends_with("(iperf3 error 142)")),
    );
    check_error(
        "iperf3",
        |line| send_reply(line, &[0xff]),
        |error| matches!(error, Error::Busy { .. }),
    );
    check_error(
        "iperf3",
        |line| send_reply(line, &[11]),
        |error| matches!(error, Error::Terminated { .. }),
    );
}

#[test]
fn server_between_two_tests_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("iperf3://127.0.0.1:{}", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        drop(listener.accept().unwrap());
        send_reply(listener.accept().unwrap().0, &[11]);
    });
    let error = measure_workload(&url, "tcp_stream").unwrap_err();
    assert!(matches!(error, Error::Terminated { .. }), "the second answer: {error}");
}

#[test]
fn nobody_and_silence_are_told_apart() {
    let error = Peer::parse(&format!("iperf3://127.0.0.1:{}", free_port()))
        .unwrap()
        .and_then(|peer| {
            peer.open(
                peer.resolve()?,
                &parse_workload("tcp_stream"),
                Nanos::ZERO,
                WINDOW,
                &Stop::new(),
            )
        })
        .unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let silent = |line: TcpStream| {
        thread::sleep(Duration::from_secs(8));
        drop(line);
    };
    check_error("iperf3", silent, |error| matches!(error, Error::NoAnswer { .. }));
}

#[test]
fn lying_server_is_refused() {
    check_results(
        1,
        &u32::MAX.to_be_bytes(),
        |error| matches!(error, Error::Malformed { problem, .. } if problem.contains("4294967295 byte")),
    );
    check_results(
        1,
        &frame_document("{\"streams\":7}"),
        |error| matches!(error, Error::Malformed { problem, .. } if problem.contains("no streams")),
    );
    check_results(1, &frame_document(&" ".repeat(100))[..50], |error| {
        matches!(error, Error::PeerGone { .. })
    });
    check_results(1, &frame_document("{\"streams\":[]}"), |error| {
        matches!(error, Error::TooOld { .. })
    });
}

#[test]
fn absurd_numbers_cause_no_crash() {
    let deep = "[".repeat(100_000);
    for text in [
        "{\"cpu_util_total\":NaN}",
        "{\"cpu_util_total\":Infinity}",
        "{\"streams\":[{\"id\":1,\"bytes\":1e999}]}",
        "{\"streams\":[{\"id\":\"one\"}]}",
        deep.as_str(),
    ] {
        check_results(1, &frame_document(text), |error| matches!(error, Error::Malformed { .. }));
    }
    for bytes in ["-1", "1e300", "18446744073709551615"] {
        let stream = format!(
            "{{\"id\":1,\"bytes\":{bytes},\"retransmits\":{bytes},\"jitter\":{bytes},\"errors\":{bytes},\
             \"packets\":{bytes},\"start_time\":0,\"end_time\":{bytes}}}"
        );
        let text = format!(
            "{{\"cpu_util_total\":{bytes},\"cpu_util_user\":{bytes},\"cpu_util_system\":{bytes},\
             \"sender_has_retransmits\":{bytes},\"streams\":[{stream}]}}"
        );
        let _figures_or_refusal = results_of(1, &frame_document(&text));
    }
}

#[test]
fn endless_words_are_not_read() {
    for (program, word) in [("iperf3", [0x48; 4096]), ("netperf", [0x48; 4096])] {
        let endless = move |mut line: TcpStream| while line.write_all(&word).is_ok() {};
        check_error(program, endless, |error| {
            matches!(error, Error::Malformed { .. } | Error::TooOld { .. })
        });
    }
}

#[test]
fn what_is_no_netserver_is_named() {
    check_error("netperf", drop, |error| matches!(error, Error::PeerGone { .. }));
    check_error(
        "netperf",
        |line| send_reply(line, &[0; 656]),
        |error| matches!(error, Error::Malformed { problem, .. } if problem.contains("kind 0")),
    );
    check_error(
        "netperf",
        |line| send_reply(line, &[0; 256]),
        |error| matches!(error, Error::TooOld { .. }),
    );
    let mut failed = [0; 656];
    (failed[3], failed[7]) = (98, 98);
    check_error(
        "netperf",
        move |line| send_reply(line, &failed),
        |error| matches!(error, Error::Refusal { text, .. } if text.contains("in use")),
    );
}

/// Answers as if at random: whatever comes, it ends with an error and not with a panic or a hang.
#[test]
fn noise_ends_with_an_error() {
    for seed in 0..20_u64 {
        let noise: Vec<u8> = (0..2000_u64)
            .map(|idx| (seed * 7919 + idx * 104_729).to_le_bytes()[(idx % 3) as usize])
            .collect();
        for program in ["iperf3", "netperf"] {
            let noise = noise.clone();
            check_error(program, move |line| send_reply(line, &noise), |_| true);
        }
    }
}

/// Hears the client out and says `bytes`.
fn send_reply(mut line: TcpStream, bytes: &[u8]) {
    let mut scrap = [0; 1024];
    let _heard = line.read(&mut scrap).and_then(|_| line.write_all(bytes));
    let _closed = line.shutdown(std::net::Shutdown::Write);
    while matches!(line.read(&mut scrap), Ok(1..)) {}
}

fn frame_document(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

/// Measures the default workload of `program` with `answer` at the far end.
#[track_caller]
fn check_error(
    program: &str,
    answer: impl FnOnce(TcpStream) + Send + 'static,
    expected: impl FnOnce(&Error) -> bool,
) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || answer(listener.accept().unwrap().0));
    let text = if program == "iperf3" { "tcp_stream" } else { "tcp_rr" };
    let peer = Peer::parse(&format!("{program}://127.0.0.1:{port}")).unwrap().unwrap();
    let address = peer.resolve().unwrap();
    let error =
        peer.open(address, &parse_workload(text), Nanos::ZERO, WINDOW, &Stop::new()).unwrap_err();
    assert!(expected(&error), "{error}");
}

/// A server that does all as it should until its results.
#[track_caller]
fn check_results(streams: usize, results: &[u8], expected: impl FnOnce(&Error) -> bool) {
    let error = results_of(streams, results).unwrap_err();
    assert!(expected(&error), "{error}");
}

fn results_of(streams: usize, results: &[u8]) -> Result<PeerResult, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("iperf3://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let results = results.to_owned();
    thread::spawn(move || {
        let mut line = listener.accept().unwrap().0;
        let mut cookie = [0; 37];
        line.read_exact(&mut cookie).unwrap();
        line.write_all(&[9]).unwrap();
        read_document(&mut line);
        line.write_all(&[10]).unwrap();
        for _ in 0..streams {
            let mut data = listener.accept().unwrap().0;
            thread::spawn(move || while matches!(data.read(&mut [0; 8192]), Ok(1..)) {});
        }
        line.write_all(&[1, 2]).unwrap();
        line.read_exact(&mut [0]).unwrap();
        line.write_all(&[13]).unwrap();
        read_document(&mut line);
        let _refused_before_its_end = line.write_all(&results).and_then(|()| line.write_all(&[14]));
    });
    measure_workload(&url, "tcp_stream")
}

fn read_document(line: &mut TcpStream) {
    let mut length = [0; 4];
    line.read_exact(&mut length).unwrap();
    let mut text = vec![0; u32::from_be_bytes(length) as usize];
    line.read_exact(&mut text).unwrap();
}
