//! Runs that begin only on quiet hosts.

mod alone {
    use std::process::{Child, Command};

    use crate::{Place, needs_program, wait_until};

    const MEASURE: [&str; 9] = [
        "measure",
        "loopback",
        "--workload",
        "tcp_rr",
        "--duration",
        "100ms",
        "--repetitions",
        "1..1",
        "--quiet-within",
    ];
    /// The program that keeps a CPU busy; at most 15 characters.
    const BUSY: &str = "busy-elsewhere";

    /// A busy process, which is killed with the value.
    struct Busy(Child);

    impl Busy {
        fn start(place: &Place) -> Self {
            let program = place.path(BUSY);
            std::fs::copy("/bin/sh", &program).unwrap();
            let loops = format!("exec {} -c 'while :; do :; done'", program.display());
            let mut command = Command::new("timeout");
            Self(command.args(["600", "sh", "-c", &loops]).spawn().unwrap())
        }

        fn end(&mut self) {
            for child in crate::children_of(self.0.id()) {
                crate::kill(child);
            }
            self.0.wait().unwrap();
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            for child in crate::children_of(self.0.id()) {
                crate::kill(child);
            }
            let _ended_already = self.0.kill();
        }
    }

    #[test]
    fn a_busy_host_is_refused_until_it_is_quiet() {
        if needs_program("timeout") {
            return;
        }
        let place = Place::new();
        let mut busy = Busy::start(&place);
        let named = format!("{BUSY} (pid ");
        let ran = place.run(&[&MEASURE[..], &["0s"]].concat());
        ran.expect(1, &["the hosts are not quiet", &named, "% of CPU", "--quiet-within 2min"]);
        let mut child = place.start(&[&MEASURE[..], &["600s"]].concat());
        let said = || std::fs::read_to_string(place.path("stderr")).unwrap();
        wait_until("it to wait", || said().contains("waiting up to 600s for quiet hosts"));
        busy.end();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{}", said());
        assert!(said().contains("the hosts are quiet"), "{}", said());
    }
}
