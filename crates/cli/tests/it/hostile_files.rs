//! Files that others may have put where latput reads and writes, and files that they may lock.

use std::fs::{self, File, Permissions};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use latput_testkit::needs;

use crate::{Place, interrupt_pid, wait_until};

const PLAN: &str = "schema = 1\nname = \"small\"\n[factors]\nrx-usecs = [0, 50]\n\
                    [[workload]]\nkind = \"tcp_rr\"\n[method]\nduration = \"50ms\"\n\
                    warmup = \"0ms\"\nrepetitions = { min = 2, max = 2 }\n";

/// A folder with a results file.
fn place_with_results() -> Place {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    place
}

#[test]
fn no_output_goes_through_a_planted_name() {
    let place = place_with_results();
    place.write("victim", "kept");
    let pipe = place.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // The name that was once used on the way to a report.
    symlink(place.path("victim"), place.path("report.html.part")).unwrap();
    place.run(&["report", "kept.db", "-o", "report.html"]).expect(0, &[]);
    assert!(fs::read_to_string(place.path("report.html")).unwrap().starts_with("<!"));
    let outputs = [
        ("html", "planted.html", "planted.html"),
        ("csv", "planted.csv", "planted.csv"),
        ("flent", "planted.flent", "planted.flent"),
    ];
    for (format, output, name) in outputs {
        for (target, said) in [("victim", "symbolic link"), ("missing", "symbolic link")] {
            symlink(place.path(target), place.path(name)).unwrap();
            let ran = place.run(&["report", "kept.db", "--format", format, "-o", output]);
            ran.expect(1, &[name, said]);
            fs::remove_file(place.path(name)).unwrap();
        }
        fs::hard_link(&pipe, place.path(name)).unwrap();
        let ran = place.run(&["report", "kept.db", "--format", format, "-o", output]);
        // The format of flent writes a folder.
        ran.expect(1, &[name, if format == "flent" { "not a folder" } else { "pipe" }]);
    }
    symlink(place.path("missing"), place.path("latput-results.db")).unwrap();
    place.run(&["run", "plan.toml", "--on", "sim:server-10g"]).expect(1, &["symbolic link"]);
    // Before any trial runs.
    symlink(place.path("victim"), place.path("latput-report.html")).unwrap();
    let tune = ["tune", "plan.toml", "--on", "sim:server-10g", "-o", "tuned.db"];
    place.run(&tune).expect(1, &["latput-report.html", "symbolic link"]);
    assert!(!place.path("tuned.db").exists());
    assert_eq!(fs::read_to_string(place.path("victim")).unwrap(), "kept");
    assert!(!place.path("missing").exists());
}

/// The page does not fit into the pipe: the process waits there with what it has left.
#[test]
fn command_on_a_strangers_file_keeps_no_right() {
    let place = place_with_results();
    if !is_root(&place) {
        return;
    }
    let (from, to) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&to, 4096).unwrap();
    let command = ["report", "kept.db", "--format", "html"];
    let mut child = place.latput_command(&command).stdout(to).spawn().unwrap();
    let line = |name: &str| {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().to_owned()
    };
    let none = "0000000000000000";
    crate::wait_until("rights to be given up", || line("CapEff:") == none);
    for name in ["CapPrm:", "CapBnd:", "CapInh:", "CapAmb:"] {
        assert_eq!(line(name), none, "{name}");
    }
    let users = line("Uid:");
    let users: Vec<&str> = users.split_whitespace().collect();
    assert!(!users[..3].contains(&"0"), "{users:?}");
    assert_eq!(line("NoNewPrivs:"), "1");
    drop(from);
    assert!(child.wait().unwrap().success(), "a reader that goes away is no error");
}

#[test]
fn plans_and_testbeds_have_a_bound() {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    File::create(place.path("large.toml")).unwrap().set_len((16 << 20) + 1).unwrap();
    for args in [
        ["run", "large.toml", "--on", "sim:server-10g"],
        ["run", "plan.toml", "--on", "large.toml"],
        ["run", "plan.toml", "--on", "sim:./large.toml"],
        ["tune", "large.toml", "--on", "sim:server-10g"],
    ] {
        place.run(&args).expect(2, &["large.toml", "16777217 bytes", "16777216"]);
    }
}

#[test]
fn another_user_can_lock_no_results_file() {
    let place = place_with_results();
    if !is_root(&place) {
        return;
    }
    fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(place.path("kept.db"), Permissions::from_mode(0o644)).unwrap();
    let mut holder = spawn_as_nobody("exec flock -x \"$0\" sleep 60", &place.path("kept.db"));
    wait_for_lock(&place.path("kept.db"));
    // The name that was once the lock.
    let meta = place.path("kept.db").metadata().unwrap();
    let name = format!("latput-results-{}-{}", meta.dev(), meta.ino());
    let _holder = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    let ran = place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    ran.expect(0, &[]);
}

#[test]
fn other_users_can_lock_no_lab() {
    let place = Place::new();
    if !is_root(&place) {
        return;
    }
    fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    let args = ["measure", "lab", "--workload", "tcp_rr", "--repetitions", "1"];
    let mut command = place.wrapped_command(&["sh", "-c", "umask 0; exec \"$0\" \"$@\""], &args);
    let mut running = command.stdout(Stdio::null()).spawn().unwrap();
    let lock = place.path("state/lab.lock");
    crate::wait_until("the lab's lock", || lock.exists());
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
    let modes = (mode(&place.path("state")), mode(&lock));
    let opened = spawn_as_nobody("exec 2> /dev/null; exec cat \"$0\"", &lock).wait().unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(0));
    assert_eq!(modes, (0o700, 0o600));
    assert!(!opened.success());
}

fn is_root(place: &Place) -> bool {
    place.path("").metadata().unwrap().uid() == 0
}

/// Starts a script as nobody, with `path` as its `$0`.
fn spawn_as_nobody(script: &str, path: &Path) -> Child {
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script];
    Command::new("setpriv").args(nobody).arg(path).spawn().unwrap()
}

/// Until somebody else has locked it.
fn wait_for_lock(path: &Path) {
    let file = File::open(path).unwrap();
    crate::wait_until("the stranger's lock", || match file.try_lock() {
        Ok(()) => {
            file.unlock().unwrap();
            false
        }
        Err(_) => true,
    });
}

/// Nobody ever writes to it.
#[test]
fn import_from_pipe_ends_with_signal() {
    let place = Place::new();
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    let mut import = place.start(&["import", "iperf3", "pipe", "-o", "r.db"]);
    let waits = || {
        let wchan = fs::read_to_string(format!("/proc/{}/stat", import.id())).unwrap_or_default();
        wchan.contains(") S ")
    };
    wait_until("it to wait for a writer", waits);
    wait_until("it to end", || {
        interrupt_pid(import.id());
        import.try_wait().unwrap().is_some()
    });
    assert_eq!(import.wait().unwrap().code(), Some(2));
    let said = fs::read_to_string(place.path("stderr")).unwrap();
    assert!(said.contains("pipe: cannot read: a signal came"), "{said}");
}

#[needs("root")]
#[test]
fn unreadable_file_of_root_has_remedy() {
    let place = Place::new();
    place.write("closed.json", "{}");
    fs::set_permissions(place.path("closed.json"), Permissions::from_mode(0o000)).unwrap();
    place
        .run(&["import", "iperf3", "closed.json", "-o", "r.db"])
        .expect(2, &["user 0, may not use closed.json", "`chmod u+rwX closed.json`"]);
}
