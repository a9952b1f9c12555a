//! The unit of the daemon under a systemd that runs, in a container of its own with this machine's files.

use std::path::Path;
use std::process::Command;

use latput_testkit::needs_root;

use crate::{Place, Ran, needs_program};

const UNIT: &str = include_str!("../../../../packaging/latput-moderate@.service");
/// Where the container has the binary.
const LATPUT: &str = "/opt/latput";
/// `systemd-analyze security`: the most that it may say.
const EXPOSURE_MOST: f64 = 1.5;

/// What is tried in the container. `nsenter` sees the file systems as the daemon sees them.
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
sed -n 's/^CapEff:\s*/metrics: CapEff /p' /proc/$(pgrep -P $pid)/status
curl -sS --max-time 5 --unix-socket /run/latput/metrics.sock http://localhost/metrics | grep '^latput_moderate_uptime'
kill -9 $pid; sleep 1; until systemctl is-active -q $unit; do sleep 0.2; done; echo "again $(systemctl is-active $unit)"
systemctl stop $unit; echo "stopped $? $(systemctl is-active $unit)"
latput restore
systemctl poweroff
"#;

#[test]
fn the_unit_holds_an_interface_under_systemd_with_few_rights() {
    if needs_root()
        || ["systemd-nspawn", "nsenter", "ethtool", "ip", "timeout", "curl", "pgrep"]
            .into_iter()
            .any(needs_program)
    {
        return;
    }
    let place = Place::new();
    place.write(
        "latput-moderate@.service",
        &UNIT
            .replace("/usr/bin/latput", &format!("{LATPUT}/latput"))
            .replace("--goal standard", "--goal standard --metrics unix:/run/latput/metrics.sock"),
    );
    place.write("script", &format!("PATH=$PATH:{LATPUT}{SCRIPT}"));
    place.write(
        "try.service",
        "[Service]\nType=oneshot\nExecStart=/bin/sh /opt/try/script\nStandardOutput=journal+console\n",
    );
    let bind = |from: &Path, to: &str| format!("--bind-ro={}:{to}", from.display());
    let binary = Path::new(env!("CARGO_BIN_EXE_latput"));
    let mut command = Command::new("timeout");
    command.args([
        "-k",
        "5",
        "90",
        "systemd-nspawn",
        "--quiet",
        "-D",
        "/",
        "--volatile=yes",
        "--private-network",
    ]);
    command.args(["--register=no", "--keep-unit", "-b"]);
    command.arg(bind(binary, &format!("{LATPUT}/latput")));
    command.arg(bind(&place.path("script"), "/opt/try/script"));
    for unit in ["latput-moderate@.service", "try.service"] {
        command.arg(bind(&place.path(unit), &format!("/etc/systemd/system/{unit}")));
    }
    command.args(["systemd.mask=systemd-firstboot.service", "systemd.wants=try.service"]);
    let ran = Ran::from(command.output().unwrap());
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

#[test]
fn the_unit_is_not_exposed() {
    if needs_program("systemd-analyze") {
        return;
    }
    let place = Place::new();
    place.write("latput-moderate@.service", UNIT);
    let unit = place.path("latput-moderate@.service");
    let mut command = Command::new("systemd-analyze");
    let ran = Ran::from(command.args(["security", "--offline=true"]).arg(unit).output().unwrap());
    let said = ran.out.split("exposure level").nth(1).and_then(|rest| rest.split(": ").nth(1));
    let level = said.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    assert!(level.is_some_and(|level| level <= EXPOSURE_MOST), "{level:?}: {ran:#?}");
}
