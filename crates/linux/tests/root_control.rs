//! The interface that carries an ssh session is found through the route to its other end. Needs root.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod common;

use latput_linux::{Control, Lab, LabOptions};
use latput_testkit::needs;

/// In the environment of a test that was started again: to say what it finds.
const SAYS: &str = "LATPUT_TEST_SAYS_CONTROL";

#[needs("root")]
#[test]
fn session_interface_is_found_by_route() {
    if std::env::var_os(SAYS).is_some() {
        let control = Control::find().unwrap();
        println!("found {:?} by {:?};", control.peers, control.interfaces);
        return;
    }
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let found = |peer: String| {
        let connection = format!("{peer} 50022 198.18.0.2 22");
        lab.b
            .run_in(|| {
                let test = "session_interface_is_found_by_route";
                let environment = [(SAYS, "1"), ("SSH_CONNECTION", connection.as_str())];
                let mut child = common::respawn(test, &environment);
                let line = common::line_with(&mut child, "found");
                child.wait().unwrap();
                line
            })
            .unwrap()
    };
    let a = lab.a.address;
    assert!(found(a.to_string()).contains("\"lat0\""), "{}", found(a.to_string()));
    assert!(found(format!("::ffff:{a}")).contains("\"lat0\""));
    // From another namespace: there is no way to it from here.
    let elsewhere = found("192.0.2.1".to_owned());
    assert!(elsewhere.contains("192.0.2.1") && !elsewhere.contains("lat0"), "{elsewhere}");
}
