//! Shared parts of the root tests. As a test of its own it is empty.
#![allow(dead_code, reason = "every test file uses another part")]
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use latput_linux::{Lab, process};

/// A UDP socket in each host of the lab, generator first, with a receive timeout.
pub(crate) fn udp_pair(lab: &Lab) -> [UdpSocket; 2] {
    lab.hosts().map(|host| {
        let socket = host.run_in(|| UdpSocket::bind((host.address, 0)).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    })
}

/// Runs ethtool in the namespace of the calling thread; it must succeed.
pub(crate) fn ethtool(args: &[&str]) {
    assert!(Command::new("ethtool").args(args).status().unwrap().success(), "{args:?}");
}

/// Starts this test program again, for one test, with more environment.
pub(crate) fn respawn(test: &str, environment: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The first line of a child's output that holds `marker`, from there on: the test harness puts its
/// own words before it.
pub(crate) fn line_with(child: &mut Child, marker: &str) -> String {
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(start) = line.find(marker) {
            return line[start..].to_owned();
        }
    }
    panic!("the child never said `{marker}`");
}

/// Waits up to ten seconds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_done() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Links to tracepoints that this process has open.
pub(crate) fn attached() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    targets
        .filter(|target| {
            target.to_string_lossy().contains("bpf_link")
                || target.to_string_lossy().contains("bpf-link")
        })
        .count()
}

/// Whether a process id is that of a NAPI kernel thread now.
pub(crate) fn is_napi_thread(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with("napi/"))
}

/// Sends a datagram from `a` to `b` and back, `transactions` times, each end on its host's CPUs, and
/// returns the round-trip times. Fails after `limit`.
#[track_caller]
pub(crate) fn ping_pong(lab: &Lab, transactions: u64, limit: Duration) -> Vec<Duration> {
    let [client, server] = udp_pair(lab);
    let target = (lab.b.address, server.local_addr().unwrap().port());
    let deadline = Instant::now() + limit;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            process::bind_thread(&lab.b.cpus).unwrap();
            let mut buffer = [0; 16];
            for _ in 0..transactions {
                let (length, from) = server.recv_from(&mut buffer).unwrap();
                server.send_to(&buffer[..length], from).unwrap();
            }
        });
        let client = scope.spawn(|| {
            process::bind_thread(&lab.a.cpus).unwrap();
            let mut buffer = [0; 16];
            let mut times = Vec::new();
            for _ in 0..transactions {
                let start = Instant::now();
                client.send_to(b"x", target).unwrap();
                client.recv(&mut buffer).unwrap();
                times.push(start.elapsed());
                assert!(Instant::now() < deadline, "the ping-pong takes too long");
            }
            times
        });
        client.join().unwrap()
    })
}
