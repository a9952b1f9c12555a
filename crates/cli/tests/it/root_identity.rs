//! Which interface `restore` puts back: renamed, moved, made anew, and in a namespace whose number is used again.
//! `ip` makes the trouble and says what is there.

use latput_testkit::needs;

use crate::{CommandOutput, Place};

/// Sets the MTU of `v0` to 1400 and dies before it can commit.
const KILLED_SET: &str = "killed() { strace -f -o /dev/null -e trace=renameat2 \
    -e inject=renameat2:signal=KILL:when=1 $latput set \"$@\"; }; \
    mtu() { ip -o link show \"$1\" | sed 's/.* mtu \\([0-9]*\\) .*/\\1/'; }; \
    code() { \"$@\"; echo \"code $?\"; }; \
    killed v0 mtu=1400 2>/dev/null; echo \"changed $(mtu v0)\"; ";

#[needs("root", "unshare", "strace", "nsenter", "ip")]
#[test]
fn renamed_interface_is_restored_by_identity() {
    check_script(
        "ip link set v0 name w0; ip link set v1 name v0; ip link set v0 mtu 1300; \
         code $latput restore w0; echo now $(mtu w0) $(mtu v0); $latput restore",
        &["changed 1400", "put back w0 mtu (device) from 1400 to 1500", "code 0", "now 1500 1300"],
        &["nothing to restore"],
    );
}

#[needs("root", "unshare", "strace", "nsenter", "ip")]
#[test]
fn moved_interface_keeps_checkpoint_until_back() {
    check_script(
        "unshare -n sleep 60 & there=$!; \
         until [ /proc/$there/ns/net -ef /proc/$there/ns/net ] && \
            [ \"$(readlink /proc/$there/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do sleep 0.1; done; \
         ip link set v0 netns $there; code $latput restore; \
         nsenter -t $there -n ip link set v0 netns $$; echo back $(mtu v0); kill $there; \
         code $latput restore; echo now $(mtu v0)",
        &["changed 1400", "code 5", "back 1400", "put back v0 mtu", "code 0", "now 1500"],
        &["not in this network namespace", "mtu (device) was 1500", "--forget"],
    );
}

#[needs("root", "unshare", "strace", "nsenter", "ip")]
#[test]
fn recreated_interface_is_left_alone() {
    check_script(
        "ip link del v0; ip link add v0 mtu 1300 type veth peer name v1; code $latput restore; \
         echo kept $(mtu v0); code $latput set v0 mtu=1290; echo set $(mtu v0); \
         id=$($latput restore 2>&1 | sed -n 's/.*--forget \\([0-9-]*\\).*/\\1/p'); \
         code $latput restore --forget $id; $latput restore",
        &["code 5", "kept 1300", "set 1290", "forgot", "nothing to restore"],
        &["the v0 of now is another: number"],
    );
}

#[needs("root", "unshare", "strace", "nsenter", "ip")]
#[test]
fn reused_ifindex_is_another_interface() {
    check_script(
        "n=$(ip -o link show v0 | cut -d: -f1); ip link del v0; \
         ip link add v0 index $n mtu 1300 type bridge; code $latput restore; echo kept $(mtu v0)",
        &["changed 1400", "code 5", "kept 1300"],
        &["bridge", "veth"],
    );
}

#[needs("root", "unshare", "strace", "nsenter", "ip")]
#[test]
fn reused_ifindex_and_kind_is_another_interface() {
    check_script(
        "n=$(ip -o link show v0 | cut -d: -f1); ip link del v0; \
         ip link add v0 index $n mtu 1400 type veth peer name v1; code $latput restore; echo kept $(mtu v0)",
        &["changed 1400", "code 5", "kept 1400"],
        &["v0"],
    );
}

#[needs("root", "unshare", "strace", "nsenter", "ip")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn reused_namespace_number_is_another_namespace() {
    let place = Place::new();
    let first = run(&place, "readlink /proc/self/ns/net");
    let number = first.out.lines().last().unwrap();
    let script = format!(
        "[ \"$(readlink /proc/self/ns/net)\" = '{number}' ] || exit 77; \
         ip link set v0 mtu 1300; code $latput restore; echo kept $(mtu v0); $latput restore"
    );
    // The kernel gives the lowest free number, once it has cleaned up; another process may have taken it.
    for _ in 0..300 {
        let ran = place
            .wrapped_command(&["unshare", "-n", "sh", "-c", &with_helpers(&script, false)], &[])
            .output();
        let ran = CommandOutput::from(ran.unwrap());
        if ran.code != Some(77) {
            for words in ["v0 was deleted", "code 0", "kept 1300", "nothing to restore"] {
                assert!(ran.out.contains(words), "{words}: {ran:#?}");
            }
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    println!("skipped: no namespace got the number {number} again");
}

/// The script in a namespace of its own with a pair of interfaces.
fn with_helpers(script: &str, changes: bool) -> String {
    let latput = crate::latput_path();
    let helpers = if changes { KILLED_SET } else { KILLED_SET.split("killed v0").next().unwrap() };
    format!("latput={latput}; ip link add v0 type veth peer name v1; {helpers}{script}")
}

fn run(place: &Place, script: &str) -> CommandOutput {
    let script = with_helpers(script, true);
    CommandOutput::from(
        place.wrapped_command(&["unshare", "-n", "sh", "-c", &script], &[]).output().unwrap(),
    )
}

/// Runs the script, and checks its output in order, and latput's output beside it.
#[track_caller]
fn check_script(script: &str, out: &[&str], anywhere: &[&str]) {
    let ran = run(&Place::new(), script);
    let mut rest = ran.out.as_str();
    for words in out {
        let at = rest.find(words).unwrap_or_else(|| panic!("{words}: {ran:#?}"));
        rest = &rest[at + words.len()..];
    }
    for words in anywhere {
        assert!(ran.out.contains(words) || ran.err.contains(words), "{words}: {ran:#?}");
    }
}
