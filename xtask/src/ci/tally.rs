//! Tests in a step's output: passed, failed, skipped.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::silence;
use crate::workspace::missing_for_root;

/// Counted tests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed; a step that failed without a test counts as one.
    pub failed: usize,
    /// Arms that did not run, each with its test where that is known, and what it needs.
    pub skipped: Vec<String>,
    /// The tests that failed and have a name, and the steps that failed without such a test.
    pub failures: Vec<TestFailure>,
    /// Targets of the failed tests, as cargo names them at the end behind the package: `--test it`.
    pub failed_targets: Vec<String>,
    /// Tests that failed beside others and passed alone.
    pub unsteady: Vec<TestFailure>,
    /// How long each test took, where it is asked for.
    pub times: Option<Vec<TestTime>>,
    /// The test program that runs, as cargo names it.
    program: String,
    /// The test whose output is passing by.
    test: Option<String>,
    /// Whether what passes by is the output of tests that failed. Their lines with the verdict may be torn
    /// by what the test writes past libtest.
    is_of_failures: bool,
}

/// A test that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestFailure {
    /// With its modules.
    pub name: String,
    /// Its output, [`SAID_LINES`] at most.
    pub said: Vec<String>,
}

/// How long a test took, beside those that ran at the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestTime {
    /// By libtest's clock.
    pub seconds: f64,
    /// The test program and the test.
    pub name: String,
}

/// Tests that say nothing for so long hang. None takes more than a few minutes, and each says that it ended.
const TESTS_SILENT: Duration = Duration::from_secs(600);
/// Builds and benches may be silent while they work.
const ANY_SILENT: Duration = Duration::from_secs(24 * 3600);
/// Lines of a failed test that are repeated at the end.
const SAID_LINES: usize = 30;

impl Tally {
    /// An empty one, with the times of tests if so wanted.
    pub fn new(is_timed: bool) -> Self {
        Self { times: is_timed.then(Vec::new), ..Self::default() }
    }

    /// Adds what made a step fail. Where tests failed, they are the reason, and nothing is added.
    pub fn record_failed_step(&mut self, name: &str, why: &str) {
        if self.failed == 0 {
            self.record_failure(&format!("step {name}"), why);
        }
    }

    /// Counts a check as a test. Prints its name and its result.
    pub fn record_result(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("{name} ... ok");
            }
            Err(error) => {
                println!("{name} ... FAILED: {error:#}");
                self.record_failure(name, &format!("{error:#}"));
            }
        }
    }

    /// Counts a failure, which is told again at the end.
    pub fn record_failure(&mut self, name: &str, why: &str) {
        self.failed += 1;
        let said = why.lines().take(SAID_LINES).map(str::to_owned).collect();
        self.failures.push(TestFailure { name: name.to_owned(), said });
    }

    /// Whether a step must be skipped because it needs root or one of these programs; says so.
    pub fn skips_without(&mut self, programs: &[&'static str]) -> bool {
        let Some(missing) = missing_for_root(programs) else { return false };
        self.skip(missing);
        true
    }

    /// Says that something is skipped, and takes note of it.
    pub fn skip(&mut self, need: &str) {
        println!("skipped: needs {need}");
        self.skipped.push(format!("needs {need}"));
    }

    /// Runs a command without input, shows its output as it comes and counts what it says.
    pub fn run(&mut self, command: &mut Command) -> Result<()> {
        self.run_to(command, &mut std::io::stdout())
    }

    /// As [`Self::run`], with the output shown elsewhere.
    pub fn run_to(&mut self, command: &mut Command, screen: &mut impl Write) -> Result<()> {
        self.run_with_limit(command, ANY_SILENT, screen)
    }

    /// Runs `cargo test` with these words for the test programs, and shows what tests say that pass.
    ///
    /// Only a nightly libtest takes `--report-time`, or one that is told to be one. The variable is for the test programs alone:
    /// cargo and rustc would build every crate anew for it.
    pub fn run_tests(&mut self, cargo: &mut Command, how: &str) -> Result<()> {
        if self.times.is_some() {
            let runner = r#"target."cfg(all())".runner = ["env", "RUSTC_BOOTSTRAP=1"]"#;
            cargo.args(["--config", runner]);
        }
        cargo.args(["--", "--show-output"]).args(how.split(' '));
        if self.times.is_some() {
            cargo.args(["-Zunstable-options", "--report-time"]);
        }
        self.run_with_limit(cargo, TESTS_SILENT, &mut std::io::stdout())
    }

    fn run_with_limit(
        &mut self,
        command: &mut Command,
        limit: Duration,
        screen: &mut impl Write,
    ) -> Result<()> {
        let line = format_command(command);
        writeln!(screen, "$ {line}").context("cannot show its output")?;
        // One pipe for both streams: what is said in order is shown in order.
        let (output, input) = std::io::pipe().context("cannot make a pipe")?;
        let errors = input.try_clone().context("cannot make a pipe")?;
        command.stdin(Stdio::null()).stdout(input).stderr(errors);
        let child = command.spawn();
        // The command holds the pipe's other end; with it, reading would never end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = child.with_context(|| format!("cannot start `{line}`"))?;
        silence::each_line(&mut child, output, limit, |bytes| {
            self.record_line(&String::from_utf8_lossy(bytes));
            screen.write_all(bytes).context("cannot show its output")
        })?;
        let status = child.wait().context("cannot wait for it")?;
        if !status.success() {
            bail!("`{line}` ended with {status}");
        }
        Ok(())
    }

    /// Takes note of one line of output.
    pub fn record_line(&mut self, line: &str) {
        let line = line.trim();
        let of_test = self.test.as_deref();
        if let Some(failure) = self.failures.iter_mut().find(|it| Some(&*it.name) == of_test)
            && failure.said.len() < SAID_LINES
            && !line.is_empty()
            && !matches!(line, "failures:" | "successes:")
        {
            failure.said.push(line.to_owned());
        }
        if let Some(times) = &mut self.times
            && let Some((name, seconds)) = parse_test_time(line)
        {
            times.push(TestTime { seconds, name: format!("{} {name}", self.program) });
        }
        if let Some(program) = line.strip_prefix("Running ").and_then(parse_program_name) {
            program.clone_into(&mut self.program);
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count_before(counts, " passed");
            self.failed += count_before(counts, " failed");
            self.test = None;
        } else if let Some((_, target)) =
            line.strip_prefix("`-p ").and_then(|rest| rest.strip_suffix('`')?.split_once(' '))
        {
            self.failed_targets.push(target.to_owned());
        } else if line == "failures:" || line == "successes:" {
            self.is_of_failures = line == "failures:";
            self.test = None;
        } else if let Some(name) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.test = Some(name.to_owned());
            if self.is_of_failures {
                self.failures.push(TestFailure { name: name.to_owned(), said: Vec::new() });
            }
        } else if let Some((before, need)) = line.split_once("skipped: needs ") {
            // An arm may name itself: `lab_comes_and_goes: skipped: needs root`.
            let named = before.trim_end().strip_suffix(':').and_then(|it| it.rsplit(' ').next());
            let arm = match (named, self.test.as_deref()) {
                (Some(name), _) | (None, Some(name)) => format!("{name}: needs {need}"),
                (None, None) => format!("needs {need}"),
            };
            self.skipped.push(arm);
        } else if let Some((before, need)) = line.split_once(" ... ignored, needs ") {
            // By the attribute `needs`. A long test is ignored for another reason, and not skipped. Another process may have
            // written the line's beginning.
            let name = before.rsplit(' ').next().unwrap_or_default();
            self.skipped.push(format!("{name}: needs {need}"));
        }
    }

    /// Adds the counts of another step.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.failures.extend(other.failures);
        self.unsteady.extend(other.unsteady);
        if let (Some(times), Some(more)) = (&mut self.times, other.times) {
            times.extend(more);
        }
    }
}

/// `test a::b ... ok <1.234s>`. What a test writes past libtest may tear the line; then it is not among the times.
fn parse_test_time(line: &str) -> Option<(&str, f64)> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (_, seconds) = verdict.strip_suffix("s>")?.rsplit_once('<')?;
    Some((name, seconds.parse().ok()?))
}

/// `unittests src/lib.rs (target/debug/deps/latput_sim-0123456789abcdef)`: what is between the last `/` and the last `-`.
fn parse_program_name(rest: &str) -> Option<&str> {
    let (_, path) = rest.strip_suffix(')')?.rsplit_once('(')?;
    Some(path.rsplit('/').next()?.rsplit_once('-')?.0)
}

/// The number that stands before `label`; 0 if there is none.
fn count_before(text: &str, label: &str) -> usize {
    let before = text.split(label).next().unwrap_or_default();
    let digits = before.rsplit(' ').next().unwrap_or_default();
    if text.contains(label) { digits.parse().unwrap_or(0) } else { 0 }
}

/// A command as it would be typed.
fn format_command(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        Some(format!("{}={:?}", name.to_string_lossy(), value?.to_string_lossy()))
    });
    let program = std::path::Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let arguments = command.get_args().map(|one| one.to_string_lossy().into_owned());
    variables.chain([program]).chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let mut tally = Tally::default();
        tally.record_line(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n",
        );
        tally.record_line("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured\n");
        tally.record_line("the test result: ok. 9 passed; is not a closing line");
        assert_eq!((tally.passed, tally.failed), (15, 2));
    }

    #[test]
    fn skipped_arm_is_named_with_its_test() {
        let mut tally = Tally::default();
        tally.record_line("skipped: needs chromium");
        tally.record_line("---- comes_and_goes stdout ----");
        tally.record_line("  skipped: needs root");
        tally.record_line("test tests::lab ... tests::lab: skipped: needs two CPUs");
        tally.record_line("said by anothertest root_a::goes ... ignored, needs root, ip");
        tally.record_line("test root_b::lasts ... ignored, long: `cargo xtask ci --full` runs it");
        tally.record_line("test child_of_another_test ... ignored, another test starts it");
        let expected = [
            "needs chromium",
            "comes_and_goes: needs root",
            "tests::lab: needs two CPUs",
            "root_a::goes: needs root, ip",
        ];
        assert_eq!(tally.skipped, expected);
    }

    #[test]
    fn times_are_kept_by_program() {
        let lines = [
            "     Running tests/it/main.rs (target/debug/deps/it-dc569ab77f938948)",
            "test root_a::goes ... ok <1.250s>",
            "test root_b::says ... root_b::says: skipped: needs root",
            "ok <0.000s>",
            "test c ... FAILED <2.000s>",
        ];
        let mut tally = Tally::new(true);
        for line in lines {
            tally.record_line(line);
        }
        let time = |seconds, name: &str| TestTime { seconds, name: name.to_owned() };
        assert_eq!(tally.times, Some(vec![time(1.25, "it root_a::goes"), time(2.0, "it c")]));
        let mut tally = Tally::default();
        for line in lines {
            tally.record_line(line);
        }
        assert_eq!(tally.times, None);
    }

    #[test]
    fn failed_test_keeps_its_output() {
        let mut tally = Tally::default();
        let output = "test goes ... ok\ntest a::breaks ... some\nFAILED\n\nsuccesses:\n\n---- goes stdout ----\nfine\n\n\
                      failures:\n\n---- a::breaks stdout ----\n\nthread 'a::breaks' panicked\nleft: 1\n\n\nfailures:\n    \
                      a::breaks\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored;\n\nerror: 1 target failed:\n    \
                      `-p latput-peers --test third_party`\n";
        output.lines().for_each(|line| tally.record_line(line));
        let said = ["thread 'a::breaks' panicked", "left: 1"].map(str::to_owned).to_vec();
        assert_eq!(tally.failures, [TestFailure { name: "a::breaks".into(), said }]);
        assert_eq!(tally.failed_targets, ["--test third_party"]);
    }

    #[test]
    fn command_is_counted_and_its_failure_told() {
        let mut tally = Tally::default();
        let said = "echo 'test result: ok. 1 passed; 0 failed;'; exit 3";
        let mut screen = Vec::new();
        let mut run = |command: &mut Command| {
            tally.run_with_limit(command, ANY_SILENT, &mut screen).unwrap_err().to_string()
        };
        let error = run(Command::new("sh").args(["-c", said]));
        assert!(error.contains("exit status: 3"), "{error}");
        let error = run(&mut Command::new("no-such-program"));
        assert!(error.contains("cannot start `no-such-program`"), "{error}");
        assert_eq!(tally.passed, 1);
        assert!(String::from_utf8(screen).unwrap().contains("1 passed; 0 failed;"));
    }
}
