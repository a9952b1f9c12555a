//! A profile of `export-settings --format tuned`, set and verified by the real TuneD.
//!
//! Its daemon has a network, a bus and folders of the test's own, and no profile but ours: it could otherwise choose one for
//! this machine. TuneD leaves interfaces that lie under `/sys/devices/virtual` alone, and here there are no others, so one
//! function of its plugin is told that `eth0` is not virtual.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use latput_testkit::{isolate, needs};

use crate::two_hosts::run_ip;
use crate::{CommandOutput, Place, run_program, wait_until};

const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen>
<policy context="default"><allow user="*"/><allow own="*"/>
<allow send_type="method_call"/><allow send_type="signal"/>
<allow send_requested_reply="true" send_type="method_return"/>
<allow send_requested_reply="true" send_type="error"/>
<allow receive_type="method_call"/><allow receive_type="method_return"/>
<allow receive_type="error"/><allow receive_type="signal"/>
</policy></busconfig>
"#;
/// Starts TuneD's daemon, with `eth0` as an interface that is not virtual if it is told so.
const START: &str = r#"
import runpy, sys
import tuned.plugins.plugin_net as net
def init_devices(self):
    self._devices_supported = True
    self._free_devices = {"eth0"}
    self._assigned_devices = set()
if sys.argv[1] == "hardware":
    net.NetTuningPlugin._init_devices = init_devices
sys.argv = ["tuned", "--no-socket", "--profile", "latput-eth0"]
runpy.run_path("/usr/sbin/tuned", run_name="__main__")
"#;
/// Distributions' profiles since TuneD 2.23; the owner's are then in a folder of the same name.
const PROFILES: &str = "/usr/lib/tuned/profiles";
const APPLIED: &str = "static tuning from profile 'latput-eth0' applied";

/// TuneD's daemon and its bus; they end with this.
struct TunedDaemon {
    place: Place,
    profile: &'static str,
    bus: Child,
    daemon: Option<Child>,
}

impl TunedDaemon {
    /// A veth `eth0`, folders of TuneD that hold nothing, and a bus.
    fn set_up() -> Self {
        isolate();
        let profile = if fs::exists(PROFILES).unwrap() {
            "/etc/tuned/profiles/latput-eth0/tuned.conf"
        } else {
            "/etc/tuned/latput-eth0/tuned.conf"
        };
        for folder in ["/etc/tuned", "/usr/lib/tuned"] {
            run_program(&["mount", "-t", "tmpfs", "none", folder]);
        }
        fs::create_dir("/run/dbus").unwrap();
        fs::create_dir_all(Path::new(profile).parent().unwrap()).unwrap();
        fs::write("/etc/tuned/tuned-main.conf", "daemon = 1\ndynamic_tuning = 0\n").unwrap();
        run_ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "eth1"]);
        run_ip(&["link", "set", "eth0", "up"]);
        run_ip(&["link", "set", "eth1", "up"]);
        let place = Place::new();
        place.write("bus.conf", BUS);
        place.write("start.py", START);
        let config = format!("--config-file={}", place.path("bus.conf").display());
        let mut bus = Command::new("dbus-daemon");
        bus.args([&config, "--nofork", "--nopidfile"]).stdin(Stdio::null());
        let bus = bus.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the bus", || {
            fs::exists("/proc/thread-self/root/run/dbus/system_bus_socket").unwrap()
        });
        Self { place, profile, bus, daemon: None }
    }

    /// Starts the daemon, and waits until it has done what it will do.
    fn start(&mut self, kind: &str) {
        let said = File::create(self.place.path("tuned")).unwrap();
        let mut daemon = Command::new("/usr/bin/python3"); // Debian's, which has TuneD's modules
        daemon.arg(self.place.path("start.py")).arg(kind).stdin(Stdio::null());
        daemon.stdout(said.try_clone().unwrap()).stderr(said);
        let mut daemon = daemon.spawn().unwrap();
        wait_until("TuneD to have applied the profile or to end", || {
            self.read_log().contains(APPLIED) || daemon.try_wait().unwrap().is_some()
        });
        self.daemon = Some(daemon);
        assert!(self.read_log().contains(APPLIED), "{}", self.read_log());
        let active = Command::new("tuned-adm").arg("active").output().unwrap();
        CommandOutput::from(active).expect(0, &["Current active profile: latput-eth0"]);
    }

    /// Ends the daemon, which puts everything back.
    fn stop_daemon(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        Command::new("kill").arg(daemon.id().to_string()).status().unwrap();
        daemon.wait().unwrap();
    }

    fn read_log(&self) -> String {
        fs::read_to_string(self.place.path("tuned")).unwrap()
    }

    fn export_profile(&self, knobs: &[&str]) {
        let words =
            [&["export-settings", "eth0"], knobs, &["--format", "tuned", "-o", self.profile]];
        self.place.run(&words.concat()).expect(0, &[]);
    }
}

impl Drop for TunedDaemon {
    fn drop(&mut self) {
        for child in self.daemon.iter_mut().chain([&mut self.bus]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether TuneD says that all values of the profile are in force.
fn verify_profile() -> bool {
    let ran = CommandOutput::from(Command::new("tuned-adm").arg("verify").output().unwrap());
    let word = if ran.code == Some(0) { "succeeded" } else { "Verification failed" };
    assert!(ran.out.contains(word), "{ran:?}");
    ran.code == Some(0)
}

/// MTU, length of the queue, GRO and TSO of `eth0`, as `ip` and `ethtool` say them.
fn values() -> [String; 4] {
    let said = |words: &[&str]| {
        CommandOutput::from(Command::new(words[0]).args(&words[1..]).output().unwrap()).out
    };
    let link = said(&["ip", "-o", "link", "show", "eth0"]);
    let features = said(&["ethtool", "-k", "eth0"]);
    let link = |name: &str| {
        let mut words = link.split([' ', '\\']).skip_while(|word| *word != name);
        words.nth(1).unwrap().to_owned()
    };
    let feature = |name: &str| {
        let line = features.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim_start_matches(':').trim().to_owned()
    };
    [
        link("mtu"),
        link("qlen"),
        feature("generic-receive-offload"),
        feature("tcp-segmentation-offload"),
    ]
}

#[needs("root", "tuned-adm", "dbus-daemon", "ip", "ethtool")]
#[test]
fn tuned_applies_and_verifies_exported_profile() {
    let mut tuned = TunedDaemon::set_up();
    let before = values();
    tuned.export_profile(&["mtu=1400", "txqueuelen=700", "gro=on", "tso=off"]);
    tuned.start("hardware");
    let wanted = ["1400", "700", "on", "off"].map(str::to_owned);
    assert_eq!(values(), wanted, "{}", tuned.read_log());
    assert_ne!(before, wanted);
    assert!(verify_profile(), "{}", tuned.read_log());
    let queue = |length| ["ip", "link", "set", "eth0", "txqueuelen", length];
    for (other, right) in [
        (
            &["ip", "link", "set", "eth0", "mtu", "1401"][..],
            &["ip", "link", "set", "eth0", "mtu", "1400"][..],
        ),
        (&queue("701"), &queue("700")),
        (&["ethtool", "-K", "eth0", "gro", "off"], &["ethtool", "-K", "eth0", "gro", "on"]),
        (&["ethtool", "-K", "eth0", "tso", "on"], &["ethtool", "-K", "eth0", "tso", "off"]),
    ] {
        run_program(other);
        assert!(!verify_profile(), "{other:?}: {}", tuned.read_log());
        run_program(right);
        assert!(verify_profile(), "{right:?}: {}", tuned.read_log());
    }
    tuned.stop_daemon();
    assert_eq!(values(), before, "it puts back what it has set");
}

#[needs("root", "tuned-adm", "dbus-daemon", "ip", "ethtool")]
#[test]
fn tuned_ignores_virtual_and_absent_values() {
    let mut tuned = TunedDaemon::set_up();
    let before = values();
    tuned.export_profile(&["mtu=1400", "txqueuelen=700"]);
    tuned.start("as it is");
    assert_eq!(values(), before, "{}", tuned.read_log());
    tuned.stop_daemon();
    // A veth has no interrupt moderation.
    tuned.export_profile(&["mtu=1400", "rx-usecs=50us"]);
    tuned.start("hardware");
    assert_eq!(values()[0], "1400", "{}", tuned.read_log());
    assert!(!verify_profile(), "{}", tuned.read_log());
    tuned.stop_daemon();
    assert_eq!(values(), before);
}
