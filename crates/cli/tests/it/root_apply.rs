//! `latput apply` of measured results on two hosts: the lab while it is up, named by a testbed file.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use latput_testkit::{isolate, needs};

use crate::root_settings::Lab;
use crate::two_hosts::write_script;
use crate::{Place, assert_no_capability, broker_of, is_gone, kill_pid, status_of, wait_until};

const PLAN: &str = "schema = 1\nname = \"apply\"\n[factors]\nmtu = [1500, 1400]\n[[workload]]\nkind = \"tcp_rr\"\n\
    [method]\ndesign = \"blocks\"\nrepetitions = { min = 1, max = 1 }\nwarmup = \"20ms\"\nduration = \"100ms\"\n";

/// The lab, and results of it as hosts of a testbed file.
fn set_up_measured(place: &Place) -> Lab<'_> {
    let lab = Lab::set_up(place);
    write_testbed(place, "two.toml", "lat0");
    place.write("plan.toml", PLAN);
    place.run(&["run", "plan.toml", "--on", "two.toml", "-o", "r.db"]).expect(0, &[]);
    lab
}

fn write_testbed(place: &Place, file: &str, interface_of_a: &str) {
    let latput = crate::latput_path();
    let host = |name: &str, role: &str, address: &str, interface: &str| {
        format!(
            "[host.{name}]\nrole = \"{role}\"\nvia = [\"{latput}\", \"lab\", \"exec\", \"{name}\", \"--\"]\n\
             latput = \"{latput}\"\ninterface = \"{interface}\"\naddress = \"{address}\"\n"
        )
    };
    let a = host("a", "generator", "198.18.0.1", interface_of_a);
    let b = host("b", "sut", "198.18.0.2", "lat0");
    fs::write(place.path(file), format!("schema = 1\n{a}{b}")).unwrap();
}

fn applied_mtus(lab: &Lab<'_>) -> [bool; 2] {
    let has = |ran: crate::CommandOutput| ran.expect(0, &[]).out.contains("mtu 1400");
    let show = |host: &str| lab.run_ip(host, &["link", "show", "lat0"]);
    [has(show("a")), has(show("b"))]
}

#[needs("root")]
#[test]
fn apply_sets_every_host_and_undo_reverts() {
    isolate();
    let place = Place::new();
    let lab = set_up_measured(&place);
    let apply = ["apply", "r.db", "--setting", "1400"];
    place
        .run(&[&apply[..], &["--dry-run"]].concat())
        .expect(0, &["a: would change lat0 mtu", "b: would"]);
    assert_eq!(applied_mtus(&lab), [false, false], "a dry run changes nothing");
    let words = [
        "a: changed lat0 mtu",
        "confirmed: lat0 of b",
        "undo:  latput lab exec a -- latput undo",
        "keep:  a network namespace has no files of its own",
    ];
    place.run(&apply).expect(0, &words);
    assert_eq!(applied_mtus(&lab), [true, true]);
    for host in [Lab::run_on_a, Lab::run_on_b] {
        host(&lab, &["log"]).expect(0, &["apply by ", ": in force"]);
        host(&lab, &["undo"]).expect(0, &["undid lat0 mtu"]);
    }
    assert_eq!(applied_mtus(&lab), [false, false]);
}

#[needs("root")]
#[test]
fn unconfirmed_apply_reverts_on_every_host() {
    isolate();
    let place = Place::new();
    let lab = set_up_measured(&place);
    let apply = ["apply", "r.db", "--setting", "1400", "--confirm-within"];
    place
        .run(&[&apply[..], &["2s"]].concat())
        .expect(0, &["goes back in 2s unless `latput apply r.db --setting 1400 --confirm`"]);
    assert_eq!(applied_mtus(&lab), [true, true]);
    wait_until("both hosts to go back", || applied_mtus(&lab) == [false, false]);
    place.run(&["apply", "r.db", "--setting", "1400", "--confirm"]).expect(4, &["too late"]);
    let asked = place.run(&[&apply[..], &["10min"]].concat());
    let printed = asked.expect(0, &[]).err.split('`').nth(1).unwrap();
    // Without the setting it would mean the recommended one, which nobody has applied.
    place.run(&["apply", "r.db", "--confirm"]).expect(2, &["--setting"]);
    let words: Vec<&str> = printed.split(' ').skip(1).collect();
    place.run(&words).expect(0, &["confirmed: lat0 of a"]);
    assert_eq!(applied_mtus(&lab), [true, true]);
}

#[needs("root")]
#[test]
fn apply_leaves_out_host_as_wanted() {
    isolate();
    let place = Place::new();
    let lab = set_up_measured(&place);
    let apply = ["apply", "r.db", "--setting", "1400"];
    let [within, confirm] = [&["--confirm-within", "10min"][..], &["--confirm"]]
        .map(|more| [&apply[..], more].concat());
    lab.run_ip("a", &["link", "set", "lat0", "mtu", "1400"]).expect(0, &[]);
    let left_out = "a: nothing to change: lat0 is as wanted";
    let ran = place.run(&apply);
    ran.expect(0, &[left_out, "confirmed: lat0 of b", "lab exec b -- latput undo 1"]);
    assert!(!ran.out.contains("exec a"), "{ran:?}");
    assert_eq!(applied_mtus(&lab), [true, true]);
    // Where no host changes, nothing goes back and nothing is to be undone.
    let ran = place.run(&within);
    ran.expect(0, &[left_out]);
    assert!(!ran.err.contains("goes back") && !ran.out.contains("undo:"), "{ran:?}");
    place.run(&confirm).expect(1, &["nothing was confirmed"]);
    lab.run_on_b(&["undo"]).expect(0, &[]);
    place.run(&within).expect(0, &[left_out, "b: changed lat0 mtu"]);
    place.run(&confirm).expect(0, &["confirmed: lat0 of b"]);
    assert_eq!(applied_mtus(&lab), [true, true]);
}

#[needs("root")]
#[test]
fn where_one_host_refuses_the_others_go_back() {
    isolate();
    let place = Place::new();
    let lab = set_up_measured(&place);
    // Another change of `b` waits for its confirmation.
    lab.run_on_b(&["set", "lat0", "txqueuelen=700", "--confirm-within", "10min"]).expect(0, &[]);
    let ran = place.run(&["apply", "r.db", "--setting", "1400"]);
    ran.expect(4, &["b: ", "waits to be confirmed", "a is as it was"]);
    assert_eq!(applied_mtus(&lab), [false, false]);
    lab.run_on_a(&["log"]).expect(0, &["put back: `latput restore` by"]);
    // Nor is it confirmed for whoever has made it.
    let confirmed = place.run(&["apply", "r.db", "--setting", "1400", "--confirm"]);
    assert_ne!(confirmed.code, Some(0), "{confirmed:#?}");
    lab.run_on_b(&["restore"]).expect(0, &["put back lat0 txqueuelen"]);
}

#[needs("root")]
#[test]
fn unmeasured_interface_is_refused_by_apply() {
    isolate();
    let place = Place::new();
    let _lab = set_up_measured(&place);
    write_testbed(&place, "other.toml", "lo");
    let on = |testbed| place.run(&["apply", "r.db", "--setting", "1400", "--on", testbed]);
    on("other.toml").expect(2, &["a: the results are for lat0, but the testbed names lo"]);
    on("lab").expect(2, &["was made for the run and is gone"]);
    on("sim:example").expect(2, &["is a simulation"]);
    // Under the measured name there is a device of another kind now.
    let swap = "ip link set lat0 down; ip link set lat0 name was; ip link add lat0 type bridge";
    place.run(&["lab", "exec", "b", "--", "sh", "-c", swap]).expect(0, &[]);
    let ran = place.run(&["apply", "r.db", "--setting", "1400"]);
    ran.expect(4, &["b: lat0 is not the measured interface", "bridge", "a is as it was"]);
    // No goal, so that nothing is recommended.
    place.run(&["apply", "r.db"]).expect(2, &["the run recommends nothing", "--setting"]);
}

/// Writes another testbed into the results.
fn call_testbed(place: &Place, word: &str) {
    let db = rusqlite::Connection::open(place.path("r.db")).unwrap();
    let edit = "UPDATE run SET header = json_set(header, '$.testbed', ?1)";
    assert_eq!(db.execute(edit, [word]).unwrap(), 1);
}

#[needs("root")]
#[test]
fn apply_readers_are_unprivileged() {
    isolate();
    let place = Place::new();
    let lab = set_up_measured(&place);
    // Host `a` is silent, with the words of the first testbed.
    let (mark, latput) = (place.path("asked"), crate::latput_path());
    write_script(&place.path("silent"), &format!("touch {}; exec sleep 1000", mark.display()));
    let silent = place.path("silent").display().to_string();
    let text = fs::read_to_string(place.path("two.toml")).unwrap();
    let via = format!("via = [\"{latput}\", \"lab\", \"exec\", \"a\", \"--\"]");
    assert!(text.contains(&via));
    fs::write(place.path("two.toml"), text.replace(&via, &format!("via = [\"{silent}\"]")))
        .unwrap();
    for on in [&["--on", "two.toml"][..], &[]] {
        let _ = fs::remove_file(&mark);
        let args = ["apply", "r.db", "--setting", "1400"];
        let mut child = place.start(&[&args[..], on].concat());
        wait_until("the silent host to be asked", || mark.exists());
        assert_no_capability(child.id());
        assert_eq!(status_of(child.id(), "CapBnd:"), "0000000000000000");
        let broker = broker_of(child.id()).expect("it has rights");
        let silent = crate::children_of(broker);
        kill_pid(child.id());
        child.wait().unwrap();
        silent.into_iter().for_each(kill_pid);
        wait_until("the broker to end", || is_gone(broker));
    }
    assert_eq!(applied_mtus(&lab), [false, false]);
}

#[needs("root")]
#[test]
fn hostile_results_start_nothing() {
    isolate();
    let place = Place::new();
    let lab = set_up_measured(&place);
    let apply = ["apply", "r.db", "--setting", "1400"];
    let mark = place.path("started");
    call_testbed(&place, &format!("exec:touch {}", mark.display()));
    place.run(&apply).expect(2, &["the command", "anybody can have written", "--on"]);
    call_testbed(&place, &format!("netns://a,exec:touch {}", mark.display()));
    place.run(&apply).expect(2, &["the command"]);
    assert!(!mark.exists());
    place.run_without_root(&apply).expect(2, &["the command"]);
    call_testbed(&place, "two.toml");
    chown(place.path("two.toml"), Some(1234), Some(1234)).unwrap();
    place.run(&apply).expect(2, &["two.toml", "it belongs to user 1234", "--on"]);
    chown(place.path("two.toml"), Some(0), Some(0)).unwrap();
    fs::set_permissions(place.path("two.toml"), Permissions::from_mode(0o646)).unwrap();
    place.run(&apply).expect(2, &["others may write it", "--on"]);
    assert_eq!(applied_mtus(&lab), [false, false]);
    // The user's own word counts. A driver that is a command for the shell of a way is no word.
    let on = [&apply[..], &["--on", "two.toml", "--dry-run"]].concat();
    place.run(&on).expect(0, &["a: would change lat0 mtu"]);
    let db = rusqlite::Connection::open(place.path("r.db")).unwrap();
    let edit = "UPDATE run SET header = replace(header, '\"veth\"', '\"$(id)\"')";
    assert_eq!(db.execute(edit, []).unwrap(), 1);
    drop(db);
    place.run(&on).expect(1, &["$(id)", "cannot be named to another host"]);
    assert_eq!(applied_mtus(&lab), [false, false]);
}
