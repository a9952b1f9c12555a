//! What a step's output says of its tests: passed, failed, skipped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Counted tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed; a step that failed without a test counts as one.
    pub failed: usize,
    /// Arms that did not run, each with its test where that is known, and what it needs.
    pub skipped: Vec<String>,
    /// The tests that failed and have a name.
    pub failures: Vec<Failure>,
    /// What they belong to, as cargo names it at the end behind the package: `--test it`.
    pub failed_targets: Vec<String>,
    /// Tests that failed beside others and passed alone.
    pub unsteady: Vec<Failure>,
    /// The test whose output is passing by.
    test: Option<String>,
    /// Whether what passes by is the output of tests that failed. Their lines with the verdict may be torn
    /// by what the test writes past libtest.
    is_of_failures: bool,
}

/// A test that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// With its modules.
    pub name: String,
    /// What it printed, [`SAID_LINES`] at most.
    pub said: Vec<String>,
}

/// Lines of a failed test that are repeated at the end.
const SAID_LINES: usize = 30;

impl Tally {
    /// Runs a command without input, shows its output as it comes and counts what it says.
    pub fn run(&mut self, command: &mut Command) -> Result<()> {
        self.watch(command, &mut std::io::stdout())
    }

    fn watch(&mut self, command: &mut Command, screen: &mut impl Write) -> Result<()> {
        let line = shown(command);
        writeln!(screen, "$ {line}").context("cannot show its output")?;
        // One pipe for both streams: what is said in order is shown in order.
        let (output, input) = std::io::pipe().context("cannot make a pipe")?;
        let errors = input.try_clone().context("cannot make a pipe")?;
        command.stdin(Stdio::null()).stdout(input).stderr(errors);
        let child = command.spawn();
        // The command holds the pipe's other end; with it, reading would never end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = child.with_context(|| format!("cannot start `{line}`"))?;
        let mut output = BufReader::new(output);
        let mut bytes = Vec::new();
        while output.read_until(b'\n', &mut bytes).context("cannot read its output")? > 0 {
            self.feed(&String::from_utf8_lossy(&bytes));
            screen.write_all(&bytes).context("cannot show its output")?;
            bytes.clear();
        }
        let status = child.wait().context("cannot wait for it")?;
        if !status.success() {
            bail!("`{line}` ended with {status}");
        }
        Ok(())
    }

    /// Takes note of one line of output.
    pub fn feed(&mut self, line: &str) {
        let line = line.trim();
        let of_test = self.test.as_deref();
        if let Some(failure) = self.failures.iter_mut().find(|it| Some(&*it.name) == of_test)
            && failure.said.len() < SAID_LINES
            && !line.is_empty()
            && !matches!(line, "failures:" | "successes:")
        {
            failure.said.push(line.to_owned());
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
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
                self.failures.push(Failure { name: name.to_owned(), said: Vec::new() });
            }
        } else if let Some((before, need)) = line.split_once("skipped: needs ") {
            // An arm may name itself: `lab_comes_and_goes: skipped: needs root`.
            let named = before.trim_end().strip_suffix(':').and_then(|it| it.rsplit(' ').next());
            let arm = match (named, self.test.as_deref()) {
                (Some(name), _) | (None, Some(name)) => format!("{name}: needs {need}"),
                (None, None) => format!("needs {need}"),
            };
            self.skipped.push(arm);
        }
    }

    /// Adds the counts of another step.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.failures.extend(other.failures);
        self.unsteady.extend(other.unsteady);
    }
}

/// The number that stands before `label`; 0 if there is none.
fn count_before(text: &str, label: &str) -> usize {
    let before = text.split(label).next().unwrap_or_default();
    let digits = before.rsplit(' ').next().unwrap_or_default();
    if text.contains(label) { digits.parse().unwrap_or(0) } else { 0 }
}

/// A command as it would be typed.
fn shown(command: &Command) -> String {
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
    fn closing_lines_of_test_programs_are_added_up() {
        let mut tally = Tally::default();
        tally.feed("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n");
        tally.feed("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured\n");
        tally.feed("the test result: ok. 9 passed; is not a closing line");
        assert_eq!((tally.passed, tally.failed), (15, 2));
    }

    #[test]
    fn a_skipped_arm_is_named_with_its_test() {
        let mut tally = Tally::default();
        tally.feed("skipped: needs chromium");
        tally.feed("---- comes_and_goes stdout ----");
        tally.feed("  skipped: needs root");
        tally.feed("test tests::lab ... tests::lab: skipped: needs two CPUs");
        let expected =
            ["needs chromium", "comes_and_goes: needs root", "tests::lab: needs two CPUs"];
        assert_eq!(tally.skipped, expected);
    }

    #[test]
    fn a_failed_test_is_kept_with_what_it_said() {
        let mut tally = Tally::default();
        let output = "test goes ... ok\ntest a::breaks ... some\nFAILED\n\nsuccesses:\n\n---- goes stdout ----\nfine\n\n\
                      failures:\n\n---- a::breaks stdout ----\n\nthread 'a::breaks' panicked\nleft: 1\n\n\nfailures:\n    \
                      a::breaks\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored;\n\nerror: 1 target failed:\n    \
                      `-p latput-peers --test third_party`\n";
        output.lines().for_each(|line| tally.feed(line));
        let said = ["thread 'a::breaks' panicked", "left: 1"].map(str::to_owned).to_vec();
        assert_eq!(tally.failures, [Failure { name: "a::breaks".into(), said }]);
        assert_eq!(tally.failed_targets, ["--test third_party"]);
    }

    #[test]
    fn a_command_is_counted_and_its_failure_told() {
        let mut tally = Tally::default();
        let said = "echo 'test result: ok. 1 passed; 0 failed;'; exit 3";
        let mut screen = Vec::new();
        let mut run =
            |command: &mut Command| tally.watch(command, &mut screen).unwrap_err().to_string();
        let error = run(Command::new("sh").args(["-c", said]));
        assert!(error.contains("exit status: 3"), "{error}");
        let error = run(&mut Command::new("no-such-program"));
        assert!(error.contains("cannot start `no-such-program`"), "{error}");
        assert_eq!(tally.passed, 1);
        assert!(String::from_utf8(screen).unwrap().contains("1 passed; 0 failed;"));
    }
}
