//! A command that says nothing for long: which of its processes hang, where, and their end.
//!
//! Without it one test that hangs takes CI's whole time, and nobody learns which it was.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader};
use std::process::Child;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::processes::{kill_process, read_process_parents, words_of};

/// Gives `line` each line of the output, until the pipe is closed. After each `limit` without one, the processes of
/// `child` that have none of their own are named and killed, and so what waits for them goes on.
///
/// A pipe that a process of another parent holds open is not waited for any longer than that.
pub fn each_line(
    child: &mut Child,
    output: PipeReader,
    limit: Duration,
    mut line: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let lines = lines_of(output);
    loop {
        match lines.recv_timeout(limit) {
            Ok(bytes) => line(&bytes?)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                let silent = format!("error: no output for {} s; ", limit.as_secs());
                if child.try_wait().context("cannot look at it")?.is_some() {
                    let why = "it has ended, and another process holds its output open";
                    return line(format!("{silent}{why}\n").as_bytes());
                }
                for process in leaves_below(child.id()) {
                    line(format!("{silent}killed: {}\n", describe_process(process)).as_bytes())?;
                    kill_process(process);
                }
            }
        }
    }
}

/// The lines of a pipe, each with its end, read by a thread that ends with the pipe.
fn lines_of(output: PipeReader) -> Receiver<Result<Vec<u8>>> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let mut bytes = Vec::new();
            let read = output.read_until(b'\n', &mut bytes).context("cannot read its output");
            let is_last = !matches!(read, Ok(1..));
            if matches!(read, Ok(0)) || sender.send(read.map(|_| bytes)).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

/// The processes below this one that have no child; itself where there is none.
fn leaves_below(root: u32) -> Vec<u32> {
    let parents = read_process_parents();
    let children_of = |parent: u32| parents.iter().filter(move |(_, of)| *of == parent);
    let (mut leaves, mut left) = (Vec::new(), vec![root]);
    while let Some(process) = left.pop() {
        let before = left.len();
        left.extend(children_of(process).map(|(child, _)| *child));
        if left.len() == before {
            leaves.push(process);
        }
    }
    leaves
}

/// A process with its command line and where each of its threads waits in the kernel.
fn describe_process(process: u32) -> String {
    let words = words_of(process).join(" ");
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let waits = threads.map(|thread| {
        let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let stack = read("stack").lines().filter_map(function_of).collect::<Vec<_>>().join(" < ");
        let place = if stack.is_empty() { read("wchan") } else { stack };
        format!("{} in {place}", read("comm").trim())
    });
    format!("{process} {words}({})", waits.collect::<Vec<_>>().join("; "))
}

/// `[<0>] futex_wait+0x60/0xb0`: the name.
fn function_of(line: &str) -> Option<&str> {
    line.split_once("] ")?.1.split('+').next()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn capture_script_output(script: &str) -> (String, bool) {
        let (output, input) = std::io::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(input);
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut said = String::new();
        let line = |bytes: &[u8]| {
            said.push_str(&String::from_utf8_lossy(bytes));
            Ok(())
        };
        each_line(&mut child, output, Duration::from_secs(1), line).unwrap();
        (said, child.wait().unwrap().success())
    }

    #[test]
    fn hung_step_is_named_and_killed() {
        let (said, is_well) = capture_script_output("echo first; sleep 600; echo \"ended by $?\"");
        assert!(is_well, "{said}");
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!((lines[0], lines[2]), ("first", "ended by 137"));
        assert!(
            lines[1].contains("no output for 1 s; killed: ") && lines[1].contains("sleep 600"),
            "{said}"
        );
    }

    #[test]
    fn held_output_is_not_waited_for() {
        let (said, is_well) = capture_script_output("sleep 4 & echo last");
        assert!(is_well && said.starts_with("last\n"), "{said}");
        assert!(said.ends_with("another process holds its output open\n"), "{said}");
    }

    #[test]
    fn talking_step_is_left_alone() {
        assert_eq!(capture_script_output("echo a; sleep 0.2; printf b"), ("a\nb".to_owned(), true));
    }
}
