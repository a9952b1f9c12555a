//! The daemon on the real driver of a guest: interrupts move the right way with the load.

use std::process::Command;
use std::thread;
use std::time::Duration;

use latput_vm::{CommandEvent, ENDPOINTS, Guest, GuestCommand};
use serde_json::Value;

use crate::vm_knobs::{latput_on_sut, start};
use crate::{Place, guest_turn, print_note, wait_until};

/// QEMU's cards wait at least 128 us between two interrupts, so that only longer delays have an effect.
const MOST: &str = "4ms";
const FLOOR_NS: u64 = 128_000;
/// Long enough for the walk of a load, of which each sample takes 50 ms, on a machine that is busy.
const LOAD_SETTLES: Duration = Duration::from_secs(10);
/// Looks at the status that show traffic; each may take a second.
const LOOKS: usize = 9;
/// At fewer packets the guest stands still, as it does on a busy machine for a second at a time.
const LEAST_PPS: f64 = 30.0;

/// Figures of a phase.
#[derive(Clone, Copy, Debug)]
struct PhaseFigures {
    delay_ns: u64,
    packets_per_s: f64,
    interrupts_per_s: f64,
    interrupts_per_packet: f64,
}

/// A guest whose machine is shared stands still for a second at a time, and a load of that second is another one: what
/// went wrong once is tried again, and must go right then.
const ATTEMPTS: usize = 3;

#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn interrupts_move_the_right_way_in_each_phase() {
    let Some(_turn) = guest_turn() else { return };
    let place = Place::new();
    let guest = start("e1000e");
    place.write("guest.toml", &testbed_toml(&guest));
    let before = read_coalescing(&guest);
    let mut wrong = Vec::new();
    while wrong.len() < ATTEMPTS {
        let found = run_phases(&place, &guest);
        assert!(latput_on_sut(&guest, &["restore"]).is_success());
        assert_eq!(read_coalescing(&guest), before);
        let Err(error) = found else { return };
        print_note(&error);
        wrong.push(error);
    }
    panic!("{}", wrong.join("\n\n"));
}

/// One daemon through all phases; what moved the wrong way, with its log.
fn run_phases(place: &Place, guest: &Guest) -> Result<(), String> {
    let words = ["latput", "moderate", "eth0", "--goal", "save-cpu", "--max-delay", MOST];
    let words = ENDPOINTS[0].exec_words().into_iter().chain(words.map(str::to_owned));
    let mut daemon = GuestCommand::open(guest.folder(), &words.collect::<Vec<_>>()).unwrap();
    wait_until("the daemon", || {
        read_status(guest).is_some_and(|status| status["state"] == "holding")
    });
    let requests = run_phase(place, guest, &["tcp_rr"]);
    let bulk = run_phase(place, guest, &["udp_stream", "rate=24Mbps"]);
    let both = run_phase(place, guest, &["udp_stream", "rate=24Mbps", "probe_hz=50"]);
    wait_until("idle", || {
        let status = read_status(guest);
        status.is_some_and(|it| it["delay_ns"] == 0 && it["rx_pps"].as_f64() < Some(LEAST_PPS))
    });
    let idle = read_phase(guest);
    let again = run_phase(place, guest, &["tcp_rr"]);
    daemon.kill().unwrap();
    let log = all_said(&mut daemon);
    let phases =
        [("rr", requests), ("bulk", bulk), ("both", both), ("idle", idle), ("rr again", again)];
    for (name, phase) in phases {
        let PhaseFigures { delay_ns, packets_per_s, interrupts_per_s, interrupts_per_packet } =
            phase;
        print_note(&format!(
            "{name}: a delay of {} us, {packets_per_s:.0} packets/s, {interrupts_per_s:.0} interrupts/s, \
             {interrupts_per_packet:.2} for each packet",
            delay_ns / 1000
        ));
    }
    for (name, open) in [("bulk", bulk), ("both", both)] {
        if open.delay_ns <= FLOOR_NS {
            return Err(format!("nobody waits for {name}: {open:?}\n{log}"));
        }
    }
    for (name, waited) in [("rr", requests), ("rr again", again)] {
        // Beside the probe, whose lone packets have interrupts of their own, a shorter delay may do.
        let is_fewer = bulk.interrupts_per_packet < 0.8 * waited.interrupts_per_packet;
        if waited.delay_ns >= bulk.delay_ns || !is_fewer {
            return Err(format!("{bulk:?} beside {name} {waited:?}\n{log}"));
        }
    }
    if idle.interrupts_per_s >= 50.0 {
        return Err(format!("idle: {idle:?}\n{log}"));
    }
    Ok(())
}

/// The log of a daemon that ends.
fn all_said(daemon: &mut GuestCommand) -> String {
    let mut log = Vec::new();
    loop {
        match daemon.receive_event().unwrap() {
            CommandEvent::Output(bytes) | CommandEvent::Errors(bytes) => log.extend(bytes),
            CommandEvent::Ended(_) => return String::from_utf8_lossy(&log).into_owned(),
        }
    }
}

/// The guest's two hosts, reached through its lines.
fn testbed_toml(guest: &Guest) -> String {
    let binary = crate::latput_path();
    let hosts = ENDPOINTS.map(|host| {
        let folder = guest.folder().display().to_string();
        let words = [binary, "vm", "attach", &folder, "--"].map(str::to_owned);
        let via: Vec<String> = words.into_iter().chain(host.exec_words()).collect();
        format!(
            "[host.{}]\nrole = {:?}\nvia = {via:?}\nlatput = \"latput\"\ninterface = {:?}\naddress = \"{}\"\n\n",
            host.name, host.name, host.interface, host.address
        )
    });
    format!("schema = 1\n\n{}", hosts.concat())
}

/// Runs a load beside the daemon; what its status says after a while, by the median delay.
#[track_caller]
fn run_phase(place: &Place, guest: &Guest, workload: &[&str]) -> PhaseFigures {
    let words = ["measure", "guest.toml", "--repetitions", "1..1", "--duration", "90s"];
    let words: Vec<&str> =
        words.into_iter().chain(["--workload"]).chain(workload.iter().copied()).collect();
    let mut load = place.start(&words);
    wait_until("traffic", || {
        assert!(
            load.try_wait().unwrap().is_none(),
            "{}",
            std::fs::read_to_string(place.path("stderr")).unwrap()
        );
        read_status(guest).is_some_and(|status| status["rx_pps"].as_f64() > Some(LEAST_PPS))
    });
    thread::sleep(LOAD_SETTLES);
    let mut looks: Vec<PhaseFigures> = Vec::new();
    while looks.len() < LOOKS {
        let said = std::fs::read_to_string(place.path("stderr")).unwrap();
        assert!(load.try_wait().unwrap().is_none(), "{workload:?}: {said}");
        looks.extend(Some(read_phase(guest)).filter(|look| look.packets_per_s > LEAST_PPS));
        thread::sleep(Duration::from_millis(200));
    }
    Command::new("kill").args(["-TERM", &load.id().to_string()]).status().unwrap();
    load.wait().unwrap();
    looks.sort_by_key(|look| look.delay_ns);
    looks[looks.len() / 2]
}

fn read_phase(guest: &Guest) -> PhaseFigures {
    // On a busy machine the daemon may answer late.
    let mut found = None;
    wait_until("the status", || {
        found = read_status(guest);
        found.is_some()
    });
    let status = found.unwrap();
    let interrupts_per_s = status["interrupts_per_s"].as_f64().unwrap();
    let packets_per_s = status["rx_pps"].as_f64().unwrap() + status["tx_pps"].as_f64().unwrap();
    PhaseFigures {
        delay_ns: status["delay_ns"].as_u64().unwrap(),
        packets_per_s,
        interrupts_per_s,
        interrupts_per_packet: interrupts_per_s / packets_per_s.max(1.0),
    }
}

fn read_status(guest: &Guest) -> Option<Value> {
    let answer = latput_on_sut(guest, &["moderate", "eth0", "--status", "--json"]);
    answer.is_success().then(|| serde_json::from_str(&answer.stdout_text()).unwrap())
}

fn read_coalescing(guest: &Guest) -> Value {
    let text = latput_on_sut(guest, &["show", "eth0", "rx-usecs", "--json"]).stdout_text();
    serde_json::from_str::<Value>(&text).unwrap()["knobs"].take()
}
