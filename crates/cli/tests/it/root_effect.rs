//! `latput set --verify-effect` on a lab: a timer that holds polls back, one that packets go around,
//! and no traffic to tell.

use std::process::Child;

use latput_testkit::{isolate, needs};

use crate::Place;
use crate::root_settings::Lab;

const SET: [&str; 5] =
    ["set", "lat0", "gro-flush-timeout=500us", "napi-defer-hard-irqs=100", "--verify-effect"];

/// Other traffic of this machine is in what these measure: CI runs them with nothing beside.
mod alone {
    use super::*;

    #[needs("root", "bash", "timeout")]
    #[test]
    fn timer_effect_is_judged_by_polls() {
        isolate();
        let place = Place::new();
        let lab = Lab::set_up(&place);
        // IPv6 looks for neighbours on a new link: traffic of its own.
        for host in ["a", "b"] {
            let off = "echo 1 > /proc/sys/net/ipv6/conf/lat0/disable_ipv6";
            place.run(&["lab", "exec", host, "--", "sh", "-c", off]).expect(0, &[]);
        }
        let before = lab.read_knobs();
        lab.run_on_b(&SET).expect(0, &["changed lat0", "undecided"]);
        let back = ["set", "lat0", "gro-flush-timeout=0us", "napi-defer-hard-irqs=0"];
        lab.run_on_b(&back).expect(0, &[]);
        {
            let _flood = DatagramFlood::start(&place);
            lab.run_on_b(&SET).expect(0, &["changed lat0", "gro-flush-timeout: agrees", "polls/s"]);
            lab.run_on_b(&back).expect(0, &[]);
        }
        // From a sender that cuts large packets late, they skip the receiver's NAPI, and its timer.
        lab.run_on_a(&["set", "lat0", "tso=on"]).expect(0, &[]);
        let _flood = DatagramFlood::start(&place);
        lab.run_on_b(&SET).expect(4, &["ignored by the device", "everything was put back"]);
        assert_eq!(lab.read_knobs(), before);
        lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
    }
}

#[needs("root")]
#[test]
fn zero_gap_is_reported_unverified() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    lab.run_on_b(&["set", "lat0", "mtu=1400", "--verify-effect"])
        .expect(0, &["changed lat0 mtu", "effect not verified"]);
    lab.run_on_b(&["set", "lat0", "mtu=1400", "--verify-effect", "--dry-run"])
        .expect(2, &["--verify-effect"]);
}

/// Small datagrams from host `a` to host `b` while this lives, and for ten seconds at most.
struct DatagramFlood(Child);

impl DatagramFlood {
    fn start(place: &Place) -> Self {
        let send = "while :; do echo x; done > /dev/udp/198.18.0.2/9 2> /dev/null";
        let words = ["lab", "exec", "a", "--", "timeout", "10", "bash", "-c", send];
        Self(place.start(&words))
    }
}

impl Drop for DatagramFlood {
    fn drop(&mut self) {
        // `lab exec` has become the command, which passes the signal on.
        crate::interrupt_pid(self.0.id());
        self.0.wait().unwrap();
    }
}
