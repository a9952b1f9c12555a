//! The unit of the daemon under a systemd that runs, in a container of its own with this machine's files.

use std::path::Path;
use std::process::Command;

use latput_testkit::needs;

use crate::{CommandOutput, Place};

const UNIT: &str = include_str!("../../../../packaging/latput-moderate@.service");
/// Where the container has the binary.
const LATPUT: &str = "/opt/latput";
/// `systemd-analyze security`: the most that it may say.
const EXPOSURE_MOST: f64 = 1.5;

/// Script for the container. `nsenter` sees the file systems as the daemon sees them.
const SCRIPT: &str = r#"
for folder in class devices; do mount -o remount,rw /sys/$folder; done # as on a host
ip link add br-lan type veth peer name other; ip link set other up; ip link set br-lan up
ethtool -K br-lan gro on
unit=latput-moderate@br-lan
systemctl start $unit; echo "started $? $(systemctl is-active $unit)"
pid=$(systemctl show -p MainPID --value $unit)
latput moderate br-lan --status
inside() { nsenter -t $pid -m sh -c "$1" && echo "can: $1" || echo "cannot: $1"; }

inside 'echo 0 > /sys/class/net/br-lan/gro_flush_timeout'
inside 'echo 1 > /proc/sys/kernel/printk'
inside 'touch /etc/hosts'
sed -n 's/^\(CapEff\|NoNewPrivs\|Seccomp\):\s*/\1 /p' /proc/$pid/status
# The process of the metrics gives its rights up when it has begun.
n=0; until grep -q '^CapEff:\s*0*$' /proc/$(pgrep -P $pid)/status || [ $n = 50 ]; do n=$((n + 1)); sleep 0.1; done
sed -n 's/^CapEff:\s*/metrics: CapEff /p' /proc/$(pgrep -P $pid)/status
curl -sS --max-time 5 --unix-socket /run/latput/metrics.sock http://localhost/metrics | grep '^latput_moderate_uptime'
kill -9 $pid; sleep 1; until systemctl is-active -q $unit; do sleep 0.2; done; echo "again $(systemctl is-active $unit)"
systemctl stop $unit; echo "stopped $? $(systemctl is-active $unit)"
latput restore
systemctl poweroff
"#;

#[needs("root", "systemd-nspawn", "nsenter", "ethtool", "ip", "timeout", "curl", "pgrep")]
#[test]
fn unit_moderates_with_few_rights() {
    let unit = UNIT
        .replace("/usr/bin/latput", &format!("{LATPUT}/latput"))
        .replace("--goal standard", "--goal standard --metrics unix:/run/latput/metrics.sock");
    let ran = in_container(SCRIPT, &[("latput-moderate@.service", &unit)]);
    let said = |words: &str| {
        assert!(ran.out.contains(words), "{words}: {ran:#?}");
    };
    said("started 0 active");
    said("br-lan: holding");
    said("can: echo 0 > /sys/class/net/br-lan/gro_flush_timeout");
    said("cannot: echo 1 > /proc/sys/kernel/printk");
    said("cannot: touch /etc/hosts");
    said("CapEff 0000000000001000"); // CAP_NET_ADMIN, and no other
    said("metrics: CapEff 0000000000000000");
    said("latput_moderate_uptime_seconds{interface=\"br-lan\"}");
    said("NoNewPrivs 1");
    said("Seccomp 2");
    said("again active");
    said("stopped 0 inactive");
    said("nothing to restore");
}

/// Both watchers are stopped before they are killed, so that neither starts the other again.
const WITHOUT_WATCHERS: &str = r#"
ip link add lat0 type veth peer name lat1
mtu() { cat /sys/class/net/lat0/mtu; }
timers() { systemctl list-units --all --plain --no-legend 'latput-watcher-*.timer' | wc -l; }
latput set lat0 mtu=1400 --confirm-within 3s
echo "waits: mtu $(mtu), $(timers) timer"
watchers=$(pgrep -f 'latput watcher|exe watcher'); set -- $watchers; echo "$# watchers"
kill -STOP $watchers; kill -9 $watchers
echo "killed: mtu $(mtu)"
for _ in $(seq 300); do [ $(mtu) = 1500 ] && break; sleep 0.1; done
echo "at last: mtu $(mtu)"
latput restore
latput set lat0 mtu=1300 --confirm-within 1s && latput confirm lat0
for _ in $(seq 300); do [ $(timers) = 0 ] && break; sleep 0.1; done
echo "confirmed: mtu $(mtu), $(timers) timer"
systemctl --failed --plain --no-legend 'latput-*' | wc -l | sed 's/$/ failed/'
systemctl poweroff
"#;

#[needs("root", "systemd-nspawn", "ip", "timeout", "pgrep")]
#[test]
fn systemd_timer_restores_after_killed_watchers() {
    let ran = in_container(WITHOUT_WATCHERS, &[]);
    for words in [
        "waits: mtu 1400, 1 timer",
        "2 watchers",
        "killed: mtu 1400",
        "at last: mtu 1500",
        "nothing to restore",
        "confirmed: mtu 1300, 0 timer",
        "0 failed",
    ] {
        assert!(ran.out.contains(words), "{words}: {ran:#?}");
    }
}

/// Runs `script` as a service under a systemd of its own, with these `units` beside it.
fn in_container(script: &str, units: &[(&str, &str)]) -> CommandOutput {
    let place = Place::new();
    place.write("script", &format!("PATH=$PATH:{LATPUT}\n{script}"));
    let service = "[Service]\nType=oneshot\nExecStart=/bin/sh /opt/try/script\nStandardOutput=journal+console\n";
    let bind = |from: &Path, to: &str| format!("--bind-ro={}:{to}", from.display());
    let binary = Path::new(crate::latput_path());
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "90", "systemd-nspawn", "--quiet", "-D", "/", "--volatile=yes"]);
    command.args(["--private-network", "--register=no", "--keep-unit", "-b"]);
    command.arg(bind(binary, &format!("{LATPUT}/latput")));
    command.arg(bind(&place.path("script"), "/opt/try/script"));
    for (name, text) in [("try.service", service)].iter().chain(units) {
        place.write(name, text);
        command.arg(bind(&place.path(name), &format!("/etc/systemd/system/{name}")));
    }
    command.args(["systemd.mask=systemd-firstboot.service", "systemd.wants=try.service"]);
    CommandOutput::from(command.output().unwrap())
}

#[needs("systemd-analyze")]
#[test]
fn unit_is_not_exposed() {
    let place = Place::new();
    place.write("latput-moderate@.service", UNIT);
    let unit = place.path("latput-moderate@.service");
    let mut command = Command::new("systemd-analyze");
    let ran = CommandOutput::from(
        command.args(["security", "--offline=true"]).arg(unit).output().unwrap(),
    );
    let said = ran.out.split("exposure level").nth(1).and_then(|rest| rest.split(": ").nth(1));
    let level = said.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    assert!(level.is_some_and(|level| level <= EXPOSURE_MOST), "{level:?}: {ran:#?}");
}
