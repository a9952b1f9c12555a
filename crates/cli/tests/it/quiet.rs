//! Runs that begin only on quiet hosts.

mod alone {
    use std::process::{Child, Command};

    use latput_testkit::needs;

    use crate::{Place, wait_until};

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
    struct BusyProcess(Child);

    impl BusyProcess {
        fn start(place: &Place) -> Self {
            let program = place.path(BUSY);
            std::fs::copy("/bin/sh", &program).unwrap();
            let loops = format!("exec {} -c 'while :; do :; done'", program.display());
            let mut command = Command::new("timeout");
            Self(command.args(["600", "sh", "-c", &loops]).spawn().unwrap())
        }

        fn kill_all(&mut self) {
            for child in crate::children_of(self.0.id()) {
                crate::kill_pid(child);
            }
            self.0.wait().unwrap();
        }
    }

    impl Drop for BusyProcess {
        fn drop(&mut self) {
            for child in crate::children_of(self.0.id()) {
                crate::kill_pid(child);
            }
            let _ended_already = self.0.kill();
        }
    }

    /// Of a refused run no results file is left, and one that is there is as before.
    #[track_caller]
    fn check_leaves_no_file(place: &Place) {
        let refused = |file: &str| {
            let ran = place.run(&[&MEASURE[..], &["0s", "-o", file]].concat());
            ran.expect(1, &["the hosts are not quiet"]);
        };
        let names = || {
            let entries = std::fs::read_dir(place.path(".")).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort_unstable();
            names
        };
        let sim = ["measure", "sim:server-10g", "--workload", "tcp_rr", "--duration", "50ms"];
        place.run(&[&sim[..], &["-o", "kept.db"]].concat()).expect(0, &[]);
        let (before, kept) = (names(), std::fs::read(place.path("kept.db")).unwrap());
        refused("new.db");
        refused("kept.db");
        assert_eq!(names(), before);
        assert_eq!(std::fs::read(place.path("kept.db")).unwrap(), kept);
    }

    /// `--check` on a busy host says what the run would do, with its exit code.
    #[track_caller]
    fn check_asks_as_the_start_does(place: &Place, named: &str) {
        let plan = "schema = 1\ngoal = \"latency\"\n[[workload]]\nkind = \"tcp_rr\"\n";
        place.write("plan.toml", plan);
        let check = |flags: &[&str]| {
            let run = ["run", "plan.toml", "--on", "loopback", "-o", "none.db", "--check"];
            place.run(&[&run[..], flags].concat())
        };
        check(&["--quiet-within", "0s"]).expect(1, &["the hosts are not quiet", named, "--beside"]);
        let waits = check(&["--quiet-within", "600s"]);
        waits.expect(0, &["it would wait up to 600s for quiet hosts", named, "can start"]);
        let goes_on = check(&["--as-it-is"]);
        goes_on.expect(0, &["it would begin on hosts that are not quiet", named, "can start"]);
        assert!(!place.path("none.db").exists());
    }

    #[needs("timeout")]
    #[test]
    fn busy_host_is_refused_until_quiet() {
        let place = Place::new();
        let mut busy = BusyProcess::start(&place);
        let named = format!("{BUSY} (pid ");
        let ran = place.run(&[&MEASURE[..], &["0s"]].concat());
        ran.expect(1, &["the hosts are not quiet", &named, "% of CPU", "--quiet-within 2min"]);
        // Whoever waits for quiet is not refused for something else afterwards.
        let tune = ["tune", "loopback", "--factor", "sut.mtu=1500,9000", "--budget", "3s"];
        let tune = [&tune[..], &["--quiet-within", "0s"]].concat();
        place.run(&tune).expect(2, &["the budget of 3s is too short"]);
        check_asks_as_the_start_does(&place, &named);
        check_leaves_no_file(&place);
        let mut child = place.start(&[&MEASURE[..], &["600s"]].concat());
        let said = || std::fs::read_to_string(place.path("stderr")).unwrap();
        wait_until("it to wait", || said().contains("waiting up to 600s for quiet hosts"));
        busy.kill_all();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{}", said());
        assert!(said().contains("the hosts are quiet"), "{}", said());
    }
}
