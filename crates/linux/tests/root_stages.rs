//! Waits by stage on a real path: they are counted, add up to what a program measures, and leave nothing attached.
//! Needs root.
#![allow(clippy::print_stdout, reason = "figures for whoever looks")]
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use latput_diagnose::stages::{Stage, StageRecord, StageSummary};
use latput_linux::{Lab, LabOptions, StageRecorder, lab, process};
use latput_testkit::{isolate, needs};

/// Transactions of one spell of traffic.
const TRANSACTIONS: u64 = 2000;
/// How long traffic runs: several spans.
const TRAFFIC: Duration = Duration::from_secs(3);

/// Whether nothing could be traced here, which is printed.
fn is_untraced(record: &StageRecord) -> bool {
    let reason = record.unseen.iter().find(|reason| reason.starts_with("waits by stage"));
    if let Some(reason) = reason {
        println!("skipped: {reason}");
    }
    reason.is_some()
}

fn print_record(name: &str, record: &StageRecord) {
    println!(
        "{name}: {} packets in {} s; unseen {:?}",
        record.packets, record.traced_s, record.unseen
    );
    for row in record.summarise() {
        let [mean, median, p99] = [row.mean_ns, row.p50_ns, row.p99_ns].map(|ns| ns / 1000.0);
        let (stage, count) = (row.stage, row.count);
        println!("  {stage:?}: {count}, mean {mean:.2} us, median {median:.2}, p99 {p99:.2}");
    }
}

/// Requests over TCP and their answers, one after the other: the time of each. Reads of UDP cannot be traced on every kernel.
fn ask_and_answer(lab: &Lab) -> Vec<Duration> {
    let bind = || TcpListener::bind((lab.b.address, 0)).unwrap();
    let listener = lab.b.run_in(bind).unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = lab.a.run_in(|| TcpStream::connect(address).unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let mut bytes = [0; 16];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            process::bind_thread(&lab.b.cpus).unwrap();
            let mut bytes = [0; 16];
            while server.read_exact(&mut bytes).is_ok() && server.write_all(&bytes).is_ok() {}
        });
        let asked = scope.spawn(move || {
            process::bind_thread(&lab.a.cpus).unwrap();
            let ask = |_| {
                let start = Instant::now();
                client.write_all(&bytes).unwrap();
                client.read_exact(&mut bytes).unwrap();
                start.elapsed()
            };
            (0..TRANSACTIONS).map(ask).collect()
        });
        asked.join().unwrap()
    })
}

#[track_caller]
fn find_stage(record: &StageRecord, stage: Stage) -> StageSummary {
    let rows = record.summarise();
    let row = rows.iter().find(|row| row.stage == stage).copied();
    row.unwrap_or_else(|| panic!("no {stage:?} in {rows:?}"))
}

/// How many packets of a record were followed to their reader.
fn count_read(record: &StageRecord) -> u64 {
    let rows = record.summarise();
    let ends = rows.iter().filter(|row| matches!(row.stage, Stage::Wakeup | Stage::Socket));
    ends.map(|row| row.count).sum()
}

/// Requests over the lab while both hosts are traced: the mean time of one as its program measures it, and both records.
fn trace_lab() -> (f64, [StageRecord; 2]) {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let recorders =
        lab.hosts().map(|host| host.run_in(|| StageRecorder::start(lab::INTERFACE)).unwrap());
    let begun = Instant::now();
    let mut times = Vec::new();
    while begun.elapsed() < TRAFFIC {
        times.extend(ask_and_answer(&lab));
    }
    let measured = times.iter().sum::<Duration>().as_secs_f64() * 1e9 / times.len() as f64;
    (measured, recorders.map(StageRecorder::finish))
}

#[needs("root")]
#[test]
fn packets_are_followed_to_their_readers() {
    let (measured, records) = trace_lab();
    if is_untraced(&records[0]) {
        return;
    }
    for (name, record) in ["client", "server"].into_iter().zip(&records) {
        print_record(name, record);
        let followed = find_stage(record, Stage::Poll).count;
        assert!(followed > 5 && followed <= record.packets, "{name}: {followed} followed");
        let read = count_read(record);
        // A packet under way at either end of a span has one of the two.
        assert!(read.abs_diff(followed) <= followed / 10 + 3, "{name}: {read} of {followed}");
    }
    // Both hosts of the lab are this kernel, so that the stages of both are the whole round trip. On a busy machine the traced
    // ones differ from the others: this is for whoever looks.
    let [client, server] = &records;
    let whole = client.sum_way().unwrap();
    let here = whole.here_ns + server.sum_way().unwrap().here_ns;
    let sum = here + find_stage(server, Stage::Application).mean_ns;
    let [measured, whole, sum] = [measured, whole.whole_ns, sum].map(|ns| ns / 1e3);
    println!("measured {measured:.2} us, turnaround {whole:.2} us, sum {sum:.2} us");
}

#[needs("root")]
#[test]
fn tcp_over_loopback_is_followed_to_its_reader() {
    isolate();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 100];
        while server.read_exact(&mut bytes).is_ok() && server.write_all(&bytes).is_ok() {}
    });
    let recorder = StageRecorder::start("lo");
    let begun = Instant::now();
    while begun.elapsed() < TRAFFIC {
        let mut bytes = [1; 100];
        client.write_all(&bytes).unwrap();
        client.read_exact(&mut bytes).unwrap();
    }
    let record = recorder.finish();
    if is_untraced(&record) {
        return;
    }
    print_record("lo", &record);
    let [protocol, qdisc] = [Stage::Protocol, Stage::Qdisc].map(|it| find_stage(&record, it));
    assert!(protocol.count > 200 && qdisc.count > 200, "{protocol:?} {qdisc:?}");
    assert!(count_read(&record) * 10 >= protocol.count * 8, "{protocol:?}");
    assert!(protocol.p50_ns < 1e5 && qdisc.p50_ns < 1e5, "{protocol:?} {qdisc:?}");
    find_stage(&record, Stage::Softirq);
    find_stage(&record, Stage::Turnaround);
}

/// Counts BPF links of a process of its own by its open files: what is attached ends with them.
#[needs("root")]
#[test]
fn nothing_is_attached_after_the_end() {
    let mut child = common::respawn("recorder_of_another_test", &[]);
    let output = child.wait().unwrap();
    assert!(output.success());
}

#[test]
#[ignore = "another test starts it in a process of its own"]
fn recorder_of_another_test() {
    let recorder = StageRecorder::start("lo");
    let begun = Instant::now();
    while common::attached() < 5 && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let seen = common::attached();
    let record = recorder.finish();
    assert_eq!(common::attached(), 0, "after the end");
    assert!(seen > 4 || is_untraced(&record), "{seen} while it traces");
    drop(StageRecorder::start("lo"));
    assert_eq!(common::attached(), 0, "after it is given up");
}
