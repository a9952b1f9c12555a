//! Loads beside a run: what they are, and how they are started and ended.
//!
//! Each is a child in a process group of its own, under `timeout(1)`: it ends with the value, and by itself where this
//! program is killed.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};

use super::tree::{self, Quota};
use crate::peers::lab::{CLIENT, Lab, Running, SERVER};
use crate::workspace::find_on_path;

/// A stressor that gets a part of the time is stopped and continued this often.
const DUTY_PERIOD: Duration = Duration::from_millis(50);
/// A burst of a second in so many.
const BURST_PERIOD: Duration = Duration::from_secs(4);
const BURST_PERCENT: u32 = 25;
/// The run's agents are stopped for a tenth of this, each time.
const PAUSE_PERIOD: Duration = Duration::from_millis(100);
const PAUSE_PERCENT: u32 = 10;
/// CPU time of all processes of a run under a quota, of one CPU.
const QUOTA_PERCENT: u32 = 50;
/// Functions of the file that is compiled: a second's work.
const FUNCTIONS: usize = 600;
/// Parts of a CPU that a stressor gets.
const PERCENTS: [u32; 3] = [10, 30, 60];

/// Work beside a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A C compiler, over and over.
    Compiler,
    /// Arithmetic for so many percent of a CPU.
    Cpu(u32),
    /// Writes that empty the caches.
    Cache(u32),
    /// Two processes that wake each other.
    Switch(u32),
    /// A whole CPU for a second, then none for three.
    Burst,
    /// A limit on the CPU time of the run's processes.
    Quota,
    /// The run's agents are stopped for milliseconds, as by a hypervisor.
    Pause,
}

/// Work beside a run, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Load {
    kind: Kind,
    /// The host of the lab on whose CPUs it is; `None` for what concerns both.
    host: Option<&'static str>,
}

/// All loads.
pub(super) fn all() -> Vec<Load> {
    let stressors = PERCENTS.map(|part| [Kind::Cpu(part), Kind::Cache(part), Kind::Switch(part)]);
    let on_one = [Kind::Compiler, Kind::Burst].into_iter().chain(stressors.into_iter().flatten());
    let hosts = |kind| [CLIENT, SERVER].map(|host| Load { kind, host: Some(host) });
    let on_both = [Kind::Quota, Kind::Pause].map(|kind| Load { kind, host: None });
    on_one.flat_map(hosts).chain(on_both).collect()
}

/// The loads of these names, which may leave out the host; all where there are none.
pub(super) fn named(names: &[String]) -> Result<Vec<Load>> {
    if let Some(unknown) = names.iter().find(|name| !all().iter().any(|load| load.is(name))) {
        let known: Vec<String> = all().iter().map(Load::name).collect();
        bail!("there is no load `{unknown}`; there are {}", known.join(", "));
    }
    let mut loads = all();
    loads.retain(|load| names.is_empty() || names.iter().any(|name| load.is(name)));
    Ok(loads)
}

impl Load {
    /// `cpu30@b`.
    pub(super) fn name(&self) -> String {
        let host = self.host.map_or_else(String::new, |host| format!("@{host}"));
        self.word() + &host
    }

    fn word(&self) -> String {
        match self.kind {
            Kind::Compiler => "compiler".to_owned(),
            Kind::Cpu(part) => format!("cpu{part}"),
            Kind::Cache(part) => format!("cache{part}"),
            Kind::Switch(part) => format!("switch{part}"),
            Kind::Burst => "burst".to_owned(),
            Kind::Quota => "quota".to_owned(),
            Kind::Pause => "pause".to_owned(),
        }
    }

    fn is(&self, name: &str) -> bool {
        name == self.name() || name == self.word()
    }

    /// The percent of a CPU that a stressor takes.
    pub(super) const fn percent(&self) -> Option<u32> {
        match self.kind {
            Kind::Cpu(part) | Kind::Cache(part) | Kind::Switch(part) => Some(part),
            Kind::Compiler | Kind::Burst | Kind::Quota | Kind::Pause => None,
        }
    }

    /// Why it cannot be here, or what takes its place.
    pub(super) fn lacks(&self) -> Option<Lacks> {
        match self.kind {
            Kind::Compiler if find_on_path("cc").is_none() => {
                Some(Lacks::Skipped("cc is not installed"))
            }
            Kind::Quota if !Quota::is_possible() => {
                Some(Lacks::Skipped("there is no cgroup with a CPU controller"))
            }
            Kind::Cpu(_) | Kind::Cache(_) | Kind::Switch(_)
                if find_on_path("stress-ng").is_none() =>
            {
                Some(Lacks::Replaced("stress-ng is not installed: a loop of the shell instead"))
            }
            _ => None,
        }
    }

    /// Starts it beside a run, for `longest` at most.
    pub(super) fn start(&self, lab: &Lab, run: u32, longest: Duration) -> Result<Beside> {
        match self.kind {
            Kind::Quota => {
                let quota = Quota::new(run, QUOTA_PERCENT)?;
                return Ok(Beside { _duty: None, _running: None, _quota: Some(quota) });
            }
            Kind::Pause => {
                let agents = tree::agents(run);
                ensure!(!agents.is_empty(), "the run has no agents to pause");
                let signal = move |signal| {
                    for agent in &agents {
                        let _gone_already = rustix::process::kill_process(*agent, signal);
                    }
                };
                let duty = Duty::start(PAUSE_PERIOD, 100 - PAUSE_PERCENT, longest, signal);
                return Ok(Beside { _duty: Some(duty), _running: None, _quota: None });
            }
            _ => {}
        }
        let cpus = if self.host == Some(CLIENT) { &lab.client_cpus } else { &lab.server_cpus };
        let mut command = Command::new("timeout");
        command.args(["--kill-after=1", &longest.as_secs().to_string(), "taskset", "-c", cpus]);
        command.args(self.words(&lab.scratch, longest)?);
        let running = Running::start(command)?;
        let group = i32::try_from(running.id()).ok().and_then(Pid::from_raw);
        let group = group.context("a process has no id")?;
        let signal = move |signal| {
            let _gone_already = rustix::process::kill_process_group(group, signal);
        };
        let duty = match self.kind {
            Kind::Burst => Some((BURST_PERIOD, BURST_PERCENT)),
            // stress-ng's own `--cpu-load` is for this stressor only.
            _ => self.percent().map(|part| (DUTY_PERIOD, part)),
        };
        let duty = duty.map(|(period, percent)| Duty::start(period, percent, longest, signal));
        Ok(Beside { _duty: duty, _running: Some(running), _quota: None })
    }

    /// The command that takes a whole CPU.
    fn words(&self, scratch: &Path, longest: Duration) -> Result<Vec<String>> {
        let has_stress = find_on_path("stress-ng").is_some();
        let timeout = format!("{}s", longest.as_secs());
        let stress = |words: &[&str]| {
            let tail = ["--timeout", &timeout, "--temp-path", "/tmp", "--quiet"];
            ["stress-ng"].iter().chain(words).chain(&tail).map(|word| (*word).to_owned()).collect()
        };
        let shell = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();
        Ok(match self.kind {
            Kind::Compiler => {
                let source = scratch.join("load.c");
                std::fs::write(&source, c_source()).context("cannot write the C file")?;
                let source = source.display();
                shell(&format!("while :; do cc -O2 -c '{source}' -o /dev/null || exit; done"))
            }
            Kind::Cpu(_) if has_stress => stress(&["--cpu", "1"]),
            Kind::Cache(_) if has_stress => stress(&["--cache", "1", "--cache-no-affinity"]),
            Kind::Switch(_) if has_stress => stress(&["--switch", "1"]),
            Kind::Cache(_) => shell("exec dd if=/dev/zero of=/dev/null bs=16M"),
            Kind::Switch(_) => shell("dd if=/dev/zero bs=1 | dd of=/dev/null bs=1"),
            _ => shell("while :; do :; done"),
        })
    }
}

/// Lack of the machine for a load.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lacks {
    /// It cannot be.
    Skipped(&'static str),
    /// Something like it can.
    Replaced(&'static str),
}

/// A load that is there while the value lives. The duty ends before the process, which else could not hear of its end.
#[derive(Debug)]
pub(super) struct Beside {
    _duty: Option<Duty>,
    _running: Option<Running>,
    _quota: Option<Quota>,
}

/// A thread that lets processes run for a part of the time.
#[derive(Debug)]
struct Duty {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Duty {
    /// Processes run for `percent` of each period; `signal` stops and continues them.
    fn start(
        period: Duration,
        percent: u32,
        longest: Duration,
        signal: impl Fn(Signal) + Send + 'static,
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let end = Instant::now() + longest;
            let on = period * percent / 100;
            let goes_on = || !over.load(Ordering::Relaxed) && Instant::now() < end;
            let mut next = Instant::now();
            while goes_on() {
                signal(Signal::CONT);
                thread::sleep((next + on).saturating_duration_since(Instant::now()));
                signal(Signal::STOP);
                next += period;
                while goes_on() && Instant::now() < next {
                    let left = next.saturating_duration_since(Instant::now());
                    thread::sleep(left.min(Duration::from_millis(100)));
                }
                // Held up for longer than a period: what was missed is not made up for.
                next = next.max(Instant::now().checked_sub(period).unwrap_or(next));
            }
            signal(Signal::CONT);
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended_by_a_panic_that_was_told = thread.join();
        }
    }
}

/// A C file that takes a compiler about a second.
fn c_source() -> String {
    let function = |number| {
        format!(
            "double f{number}(double *x, int n) {{ double s = {number}; for (int i = 1; i < n; i++) \
             {{ x[i] = x[i - 1] * s + x[i]; s += x[i] > {number} ? x[i] / i : -x[i]; }} return s; }}\n"
        )
    };
    (0..FUNCTIONS).map(function).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_named_with_or_without_host() {
        let names = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            named(&words).unwrap().iter().map(Load::name).collect()
        };
        assert_eq!(names(&["cpu30", "pause"]), ["cpu30@a", "cpu30@b", "pause"]);
        assert_eq!(names(&["compiler@b"]), ["compiler@b"]);
        assert_eq!(names(&[]).len(), all().len());
        let error = named(&["cpu31".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("cpu31") && error.contains("switch60@b"), "{error}");
    }

    #[test]
    fn each_cpu_share_is_on_either_end() {
        for part in PERCENTS {
            let with = all().into_iter().filter(|load| load.percent() == Some(part)).count();
            assert_eq!(with, 6, "{part}%");
        }
    }

    #[test]
    fn duty_takes_its_share_and_ends() {
        let (seen, hears) = std::sync::mpsc::channel();
        let duty = Duty::start(Duration::from_millis(20), 50, Duration::from_secs(60), move |it| {
            let _ = seen.send(it);
        });
        let first: Vec<Signal> = hears.iter().take(5).collect();
        drop(duty);
        let (stop, go) = (Signal::STOP, Signal::CONT);
        assert_eq!(first, [go, stop, go, stop, go]);
        assert_eq!(hears.iter().last(), Some(go));
    }
}
