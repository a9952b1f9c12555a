//! Connections without the key on the data port, while traffic flows. A process of its own, for it
//! sets the limit on open files.
#![allow(clippy::unwrap_used, reason = "a step that fails here fails the test")]

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use latput_load::{Generator, Key, Reflector, Stop, Window, now};
use latput_trial::{Traffic, Workload};
use latput_units::{Bytes, CpuSet, Nanos};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How a test tells its second process the time at which both begin, the port and the key.
const TOLD: &str = "LATPUT_TEST_RUN";

#[test]
fn idle_strangers_take_no_descriptors() {
    const STRANGERS: usize = 3000;
    // Descriptors of both ends and the test, beside the strangers' own ends.
    let wanted = STRANGERS as u64 + 900;
    if getrlimit(Resource::Nofile).maximum.is_some_and(|hard| hard < wanted) {
        eprintln!("skipped: the hard limit on open files is below {wanted}");
        return;
    }
    set_limit(wanted);
    let (workload, key) = (crr(64, 64), Key::generate().unwrap());
    let reflector = open(&key, &workload);
    let generator = connect(reflector.port(), &key, &workload);
    let crowd = strangers(&reflector, STRANGERS);
    let window = window(now());
    let receiver = thread::spawn(move || only(reflector.run(window, &Stop::new()).unwrap()));
    let sent = only(generator.run(window, &Stop::new()).unwrap());
    let received = receiver.join().unwrap();
    drop(crowd);
    assert!(sent.transactions.unwrap() > 0, "{sent:?}");
    assert!(received.auth_failures > 256, "none was pushed out: {received:?}");
    a_process_without_descriptors_goes_on();
}

/// The second part of the test above, for the limit is one of the whole process. The generator has a process
/// of its own.
fn a_process_without_descriptors_goes_on() {
    let (workload, key) = (crr(1, 1), Key::generate().unwrap());
    let reflector = open(&key, &workload);
    let begin = now();
    let mut generator = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "generator_of_another_test", "--ignored"])
        .env(TOLD, format!("{} {} {}", begin.as_ns(), reflector.port(), String::from(key.clone())))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let crowd = strangers(&reflector, 200);
    let open_now = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    set_limit(open_now + 8);
    let received = only(reflector.run(window(begin), &Stop::new()).unwrap());
    assert!(generator.wait().unwrap().success());
    drop(crowd);
    assert!(received.requests.unwrap() > 0, "{received:?}");
    assert!(received.auth_failures > 100, "none was pushed out: {received:?}");
}

#[test]
#[ignore = "another test starts it"]
fn generator_of_another_test() {
    let told = std::env::var(TOLD).unwrap();
    let [begin, port, key] = *told.split(' ').collect::<Vec<_>>() else { panic!("{told}") };
    let begin = Nanos::from_ns(begin.parse().unwrap());
    let generator = connect(port.parse().unwrap(), &key.parse().unwrap(), &crr(1, 1));
    let sent = only(generator.run(window(begin), &Stop::new()).unwrap());
    assert!(sent.transactions.unwrap() > 0, "{sent:?}");
}

fn set_limit(limit: u64) {
    let limit = Rlimit { current: Some(limit), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
}

fn crr(connections: u32, threads: u32) -> Workload {
    let byte = Bytes::new(1);
    let traffic = Traffic::TcpCrr {
        request_bytes: byte,
        response_bytes: byte,
        nodelay: true,
        connections,
        threads,
    };
    Workload::plain("test", traffic)
}

fn open(key: &Key, workload: &Workload) -> Reflector {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Reflector::open(any, key.clone(), workload, CpuSet::new()).unwrap()
}

fn connect(port: u16, key: &Key, workload: &Workload) -> Generator {
    Generator::connect(Ipv4Addr::LOCALHOST.into(), port, key, workload, CpuSet::new()).unwrap()
}

/// They wait in the kernel until the traffic's threads take them, all at once.
fn strangers(reflector: &Reflector, count: usize) -> Vec<TcpStream> {
    reflector.wait_ready(now() + Nanos::from_s(30)).unwrap();
    let address = (Ipv4Addr::LOCALHOST, reflector.port());
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

fn window(begin: Nanos) -> Window {
    Window::starting_after(begin, Nanos::from_s(2), Nanos::from_s(2)).unwrap()
}

fn only<T>(slices: Vec<T>) -> T {
    slices.into_iter().next().unwrap()
}
