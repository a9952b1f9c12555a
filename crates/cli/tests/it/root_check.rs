//! `--check` on hosts: their interfaces are asked for knobs and levels, and nothing is set.

use std::process::Command;

use latput_testkit::{isolate, needs};

use crate::Place;

const TESTBED: &str = r#"
schema = 1
[host.sut]
role = "sut"
interface = "lat1"
address = "10.9.9.2"
via = ["ip", "netns", "exec", "far"]
[host.load]
role = "generator"
interface = "lat0"
address = "10.9.9.1"
"#;

#[needs("root")]
#[test]
fn check_asks_every_host() {
    isolate();
    for args in [
        "netns add far",
        "link add lat0 type veth peer name lat1 netns far",
        "addr add 10.9.9.1/24 dev lat0",
        "link set lat0 up",
        "-n far addr add 10.9.9.2/24 dev lat1",
        "-n far link set lat1 up",
    ] {
        assert!(Command::new("ip").args(args.split(' ')).status().unwrap().success(), "ip {args}");
    }
    let place = Place::new();
    let program = format!("latput = \"{}\"\nvia =", crate::latput_path());
    place.write("rack.toml", &TESTBED.replace("via =", &program));
    let check = |factors: &str, code: i32, words: &[&str]| {
        let plan = format!("schema = 1\n[factors]\n{factors}\n[[workload]]\nkind = \"tcp_rr\"\n");
        place.write("plan.toml", &plan);
        let args = ["run", "plan.toml", "--on", "rack.toml", "--check", "-o", "kept.db"];
        place.run(&args).expect(code, words);
    };
    check("\"sut.mtu\" = [1500, 1400]", 0, &["sut lat1", "load lat0", "can start", "min"]);
    check("\"sut.mtu\" = [1500, 65536]", 2, &["host `sut`", "mtu", "65535"]);
    check("\"load.lro\" = [\"on\"]", 2, &["load"]);
    check("rx-usecs = [\"10us\"]", 2, &["rx-usecs cannot be set here"]);
    check("lro = [\"off\", \"on\"]", 2, &["lro"]);
    check("mtu = [1400]\n[method]\non_unsupported = \"skip\"", 0, &["can start"]);
    assert!(!place.path("kept.db").exists());
    let shown = place.run(&["show", "lat0", "mtu"]);
    shown.expect(0, &["mtu: 1500"]);
    // A port that nothing may reach is no reason to wait: the interface is what is asked.
    place.write("rack.toml", &TESTBED.replace("lat1", "lat9").replace("via =", &program));
    check("\"sut.mtu\" = [1500, 1400]", 2, &["host `sut`", "no interface `lat9`"]);
}
