//! `latput tune --live` beside a server that closes each connection after its answer, and what is done with such a run.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use latput_linux::Namespace;
use latput_testkit::{isolate, needs};
use serde_json::Value;

use crate::root_settings::Lab;
use crate::{Place, print_note};

const B: &str = "198.18.0.2";
const HOST: &str = "netns://latput-b%lat0";
const PORT: u16 = 7010;
const REQUEST_BYTES: usize = 100;
const ANSWER_BYTES: usize = 10_000;

/// A request and its answer on each connection, as with HTTP/1.0.
struct ShortTraffic {
    stop: Arc<AtomicBool>,
    /// Answers that the client has got whole.
    answers: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl ShortTraffic {
    /// Starts a server in `latput-b` and a client in `latput-a`.
    fn start() -> Self {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let namespace = |name| Namespace::open_pinned(name).unwrap();
        let listener = namespace("latput-b").run_in(|| TcpListener::bind((B, PORT)).unwrap());
        let listener = listener.unwrap();
        listener.set_nonblocking(true).unwrap();
        let serving = Arc::clone(&stop);
        let server = thread::spawn(move || serve_requests(&listener, &serving));
        let (asking, counted) = (Arc::clone(&stop), Arc::clone(&answers));
        let client = thread::spawn(move || {
            namespace("latput-a").run_in(|| send_requests(&asking, &counted)).unwrap();
        });
        Self { stop, answers, threads: vec![server, client] }
    }
}

impl Drop for ShortTraffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn serve_requests(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        let mut request = [0; REQUEST_BYTES];
        if stream.read_exact(&mut request).is_ok() {
            let _gone = stream.write_all(&[7; ANSWER_BYTES]);
        }
    }
}

fn send_requests(stop: &AtomicBool, answers: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        // At the end the server may be gone first.
        let answer = TcpStream::connect((B, PORT)).and_then(|mut stream| {
            stream.write_all(&[1; REQUEST_BYTES])?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)
        });
        if answer.is_ok_and(|bytes| bytes == ANSWER_BYTES) {
            answers.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn figure_value(run: &Value, figure: &str) -> f64 {
    run[figure].as_f64().unwrap_or_else(|| panic!("{figure}: {run:#}"))
}

/// The bytes of a run: payload of TCP, and those that the interface counted, which the CPU time per packet and per KB give.
fn bytes_of(run: &Value) -> (f64, f64) {
    let (host, metrics) = (&run["hosts"][0], &run["metrics"]);
    let seconds = figure_value(host, "window_ns") / 1e9;
    let packets = figure_value(host, "rx_packets_count") + figure_value(host, "tx_packets_count");
    let busy = figure_value(metrics, "sut_packet_cpu_ns") * packets;
    let payload = figure_value(metrics, "tcp_throughput_bps") * seconds / 8.0;
    (payload, 1024.0 * busy / figure_value(metrics, "sut_kb_cpu_ns"))
}

#[needs("root")]
#[test]
fn connections_shorter_than_a_reading_are_counted() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let traffic = ShortTraffic::start();
    let begun = Instant::now();
    let port = PORT.to_string();
    let observe = ["tune", HOST, "--live", "--observe", "--port", &port, "--by", "port"];
    let files = ["-o", "live.db", "--report", "live.html", "--budget", "10s", "--slice", "600ms"];
    let ran = place.run(&[&observe[..], &files].concat());
    let took = begun.elapsed();
    ran.expect(0, &["Observed only", " of at most 9 s"]);
    let rate = traffic.answers.load(Ordering::Relaxed) as f64 / took.as_secs_f64();
    drop(traffic);
    // It changes nothing: no plan is saved, and nothing is said of knobs.
    assert!(!ran.err.contains("plan:") && !ran.err.contains("skipped"), "{}", ran.err);
    assert!(!ran.err.contains("trials") && !ran.err.contains("not seen"), "{}", ran.err);
    assert!(!place.path("latput-plan-lat0.toml").exists());
    assert_eq!(lab.read_knobs(), before);
    let report = place.report_json("live.db");
    let runs = report["runs"].as_array().unwrap();
    // Five blocks of 1.8 s fit into 10 s. One in which a busy machine sent nothing is tried again.
    assert!((1..=5).contains(&runs.len()), "{}", runs.len());
    let (mut payload, mut on_the_wire, mut seconds, mut ended) = (0.0, 0.0, 0.0, 0.0);
    for run in runs {
        let bytes = bytes_of(run);
        (payload, on_the_wire) = (payload + bytes.0, on_the_wire + bytes.1);
        let window_s = figure_value(&run["hosts"][0], "window_ns") / 1e9;
        seconds += window_s;
        ended += figure_value(&run["metrics"], "tcp_ended_per_s") * window_s;
        let passed = run["checks_passed"].as_array().unwrap();
        assert!(passed.contains(&"connections-seen".into()), "{run:#}");
        let group = &run["tcp_groups"]["local:7010"]["metrics"];
        assert_eq!(group["tcp_throughput_bps"], run["metrics"]["tcp_throughput_bps"], "{run:#}");
    }
    let by_answers = rate * (REQUEST_BYTES + ANSWER_BYTES) as f64 * seconds;
    print_note(&format!(
        "{rate:.0} connections/s: {:.2} of the interface's bytes, {:.2} of the client's",
        payload / on_the_wire,
        payload / by_answers
    ));
    // The rest of the interface's bytes are headers, and packets without payload.
    assert!((0.8..1.0).contains(&(payload / on_the_wire)), "{payload} of {on_the_wire}");
    // A connection at an edge of a window is whole in one part and not in the other.
    let each = payload / ended / (REQUEST_BYTES + ANSWER_BYTES) as f64;
    assert!((0.9..1.1).contains(&each), "{payload} bytes of {ended} connections");
    // The client's mean is over the whole run, in which this machine may be busy for a while.
    assert!((0.3..3.0).contains(&(payload / by_answers)), "{payload} of {by_answers}");
    let refused = place.run(&["apply", "live.db", "--dry-run"]);
    refused.expect(2, &["the run only observed", "without --observe"]);
}

#[needs("root")]
#[test]
fn observing_a_live_plan_tries_no_factor() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let plan = "schema = 1\n[factors]\nrx-ring = [256, 512]\n[[workload]]\nkind = \"live\"\nslice = \"200ms\"\n";
    place.write("plan.toml", &format!("{plan}disruptive = [\"rx-ring\"]\n"));
    let traffic = ShortTraffic::start();
    let files = ["-o", "live.db", "--report", "live.html", "--budget", "6s"];
    let tune = [&["tune", "plan.toml", HOST, "--observe"][..], &files].concat();
    place.run(&[&tune[..], &["--check"]].concat()).expect(0, &["observes only"]);
    let short = place.run(&[&tune[..8], &["--budget", "2s"]].concat());
    short.expect(2, &["needs at least 4s"]);
    let ran = place.run(&tune);
    ran.expect(0, &["Observed only"]);
    assert!(!ran.err.contains("skipped"), "{}", ran.err);
    drop(traffic);
    assert_eq!(lab.read_knobs(), before);
}

#[needs("root")]
#[test]
fn live_setting_is_applied_where_tried() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let plan = "schema = 1\nname = \"live\"\n[factors]\ntxqueuelen = [1000, 1234]\n[[workload]]\nkind = \"live\"\n\
                slice = \"200ms\"\n[method]\nbudget = \"60s\"\nrepetitions = { min = 3, max = 3 }\n";
    place.write("plan.toml", plan);
    let traffic = ShortTraffic::start();
    let tune = ["tune", "plan.toml", HOST, "-o", "live.db", "--report", "live.html"];
    place.run(&tune).expect(0, &[]);
    drop(traffic);
    let before = lab.read_knobs();
    let apply = ["apply", "live.db", "--setting", "1234"];
    let with = |more: &[&str]| place.run(&[&apply[..], more].concat());
    with(&["--dry-run"]).expect(0, &["would change lat0 txqueuelen", "from 1000 to 1234"]);
    assert_eq!(lab.read_knobs(), before, "a dry run changes nothing");
    let asked = with(&["--confirm-within", "10min"]);
    asked.expect(0, &["changed lat0 txqueuelen", "latput apply live.db --setting 1234 --confirm"]);
    assert_eq!(queue_length(), 1234);
    let undo = "undo:  latput lab exec netns://latput-b -- latput undo";
    with(&["--confirm"]).expect(0, &["confirmed: lat0", undo, "keep:"]);
    let undone = || {
        let undo = ["lab", "exec", "netns://latput-b", "--", crate::latput_path(), "undo"];
        place.run(&undo).expect(0, &["undid lat0 txqueuelen"]);
        assert_eq!(queue_length(), 1000);
    };
    undone();
    // The same host, named.
    with(&["--on", HOST]).expect(0, &["changed lat0 txqueuelen"]);
    undone();
    with(&["--on", HOST, "--peer", "netns://latput-a"]).expect(2, &["one host", "--peer"]);
    // On the host itself its interface is enough of a name.
    let here = ["--on", "lat0", "--interface", "lat0"];
    lab.run_on_b(&[&apply[..], &here].concat()).expect(0, &["changed lat0 txqueuelen"]);
    assert_eq!(queue_length(), 1234);
    lab.run_on_b(&["undo"]).expect(0, &[]);
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

#[needs("root")]
#[test]
fn made_live_plan_fits_the_budget() {
    isolate();
    let place = Place::new();
    let _lab = Lab::set_up(&place);
    let tune = ["tune", HOST, "--live", "--budget"];
    let fits = place.run(&[&tune[..], &["2min", "--check"]].concat());
    fits.expect(0, &["the budget of 120s is enough for ", " settings", "the run can start"]);
    let short = place.run(&[&tune[..], &["20s"]].concat());
    short.expect(2, &["the budget of 20s is too short"]);
    assert!(!place.path("latput-plan-lat0.toml").exists(), "a refused plan is not saved");
}

fn queue_length() -> u64 {
    let b = Namespace::open_pinned("latput-b").unwrap();
    let text = b.run_in(|| std::fs::read_to_string("/sys/class/net/lat0/tx_queue_len").unwrap());
    text.unwrap().trim().parse().unwrap()
}
