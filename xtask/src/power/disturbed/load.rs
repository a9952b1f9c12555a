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
use rustix::process::Signal;

use super::tree::{self, CpuQuota};
use crate::peers::lab::{CLIENT, Lab, RunningProcess, SERVER};
use crate::processes::to_pid;
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
enum LoadKind {
    /// A C compiler, over and over.
    Compiler,
    /// Arithmetic for a part of the time.
    Cpu,
    /// Writes that empty the caches.
    Cache,
    /// Two processes that wake each other.
    Switch,
    /// A whole CPU for a second, then none for three.
    Burst,
    /// A limit on the CPU time of the run's processes.
    Quota,
    /// The run's agents are stopped for milliseconds, as by a hypervisor.
    Pause,
}

/// Work beside a run, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BackgroundLoad {
    kind: LoadKind,
    /// The percent of a CPU that a stressor takes.
    pub(super) cpu_percent: Option<u32>,
    /// The host of the lab on whose CPUs it is; `None` for what concerns both.
    host: Option<&'static str>,
}

/// All loads.
pub(super) fn all_loads() -> Vec<BackgroundLoad> {
    let stressors = [LoadKind::Cpu, LoadKind::Cache, LoadKind::Switch];
    let parts = PERCENTS.into_iter().flat_map(|part| stressors.map(|kind| (kind, Some(part))));
    let on_one = [(LoadKind::Compiler, None), (LoadKind::Burst, None)].into_iter().chain(parts);
    let make = |kind, cpu_percent, host| BackgroundLoad { kind, cpu_percent, host };
    let hosts = |(kind, part)| [CLIENT, SERVER].map(|host| make(kind, part, Some(host)));
    let on_both = [LoadKind::Quota, LoadKind::Pause].map(|kind| make(kind, None, None));
    on_one.flat_map(hosts).chain(on_both).collect()
}

/// The loads of these names, which may leave out the host; all where there are none.
pub(super) fn select_loads(names: &[String]) -> Result<Vec<BackgroundLoad>> {
    if let Some(unknown) = names.iter().find(|name| !all_loads().iter().any(|load| load.is(name))) {
        let known: Vec<String> = all_loads().iter().map(BackgroundLoad::name).collect();
        bail!("there is no load `{unknown}`; there are {}", known.join(", "));
    }
    let mut loads = all_loads();
    loads.retain(|load| names.is_empty() || names.iter().any(|name| load.is(name)));
    Ok(loads)
}

impl BackgroundLoad {
    /// `cpu30@b`.
    pub(super) fn name(&self) -> String {
        let host = self.host.map_or_else(String::new, |host| format!("@{host}"));
        self.kind_name() + &host
    }

    fn kind_name(&self) -> String {
        let part = self.cpu_percent.map_or_else(String::new, |part| part.to_string());
        format!("{:?}{part}", self.kind).to_lowercase()
    }

    fn is(&self, name: &str) -> bool {
        name == self.name() || name == self.kind_name()
    }

    /// Why it cannot be here.
    pub(super) fn find_limitation(&self) -> Option<&'static str> {
        match self.kind {
            LoadKind::Compiler if find_on_path("cc").is_none() => Some("cc is not installed"),
            LoadKind::Quota if !CpuQuota::is_possible() => {
                Some("there is no cgroup with a CPU controller")
            }
            _ => None,
        }
    }

    /// Starts it beside a run, for `longest` at most.
    pub(super) fn start(&self, lab: &Lab, run: u32, longest: Duration) -> Result<ActiveLoad> {
        match self.kind {
            LoadKind::Quota => {
                let quota = Some(CpuQuota::new(run, QUOTA_PERCENT)?);
                return Ok(ActiveLoad { _quota: quota, ..ActiveLoad::default() });
            }
            LoadKind::Pause => {
                let agents = tree::find_agents(run);
                ensure!(!agents.is_empty(), "the run has no agents to pause");
                let signal = move |signal| {
                    for agent in &agents {
                        let _gone_already = rustix::process::kill_process(*agent, signal);
                    }
                };
                let duty = DutyCycle::start(PAUSE_PERIOD, 100 - PAUSE_PERCENT, longest, signal);
                return Ok(ActiveLoad { _duty: Some(duty), ..ActiveLoad::default() });
            }
            _ => {}
        }
        let cpus = if self.host == Some(CLIENT) { &lab.client_cpus } else { &lab.server_cpus };
        let mut command = Command::new("timeout");
        command.args(["--kill-after=1", &longest.as_secs().to_string(), "taskset", "-c", cpus]);
        match self.find_stressor() {
            Some(stressor) => command.arg("stress-ng").args(stressor),
            None => command.args(["sh", "-c", &self.render_script(&lab.scratch)?]),
        };
        let running = RunningProcess::start(command)?;
        let group = to_pid(running.id()).context("a process has no id")?;
        let signal = move |signal| {
            let _gone_already = rustix::process::kill_process_group(group, signal);
        };
        let burst = (self.kind == LoadKind::Burst).then_some((BURST_PERIOD, BURST_PERCENT));
        let duty = burst.or(self.cpu_percent.map(|part| (DUTY_PERIOD, part)));
        let duty = duty.map(|(period, percent)| DutyCycle::start(period, percent, longest, signal));
        Ok(ActiveLoad { _duty: duty, _running: Some(running), _quota: None })
    }

    /// Options of stress-ng(1) that take a whole CPU in the way of this load; `None` for other loads, and where it is not
    /// installed: a loop of the shell does something like it.
    fn find_stressor(&self) -> Option<&'static [&'static str]> {
        let options: &[&str] = match self.kind {
            LoadKind::Cpu => &["--cpu", "1", "--temp-path", "/tmp", "--quiet"],
            LoadKind::Cache => {
                &["--cache", "1", "--cache-no-affinity", "--temp-path", "/tmp", "--quiet"]
            }
            LoadKind::Switch => &["--switch", "1", "--temp-path", "/tmp", "--quiet"],
            LoadKind::Compiler | LoadKind::Burst | LoadKind::Quota | LoadKind::Pause => {
                return None;
            }
        };
        find_on_path("stress-ng").map(|_| options)
    }

    /// A script of the shell that takes a whole CPU.
    fn render_script(&self, scratch: &Path) -> Result<String> {
        Ok(match self.kind {
            LoadKind::Compiler => {
                let source = scratch.join("load.c");
                std::fs::write(&source, c_source()).context("cannot write the C file")?;
                let source = source.display();
                format!("while :; do cc -O2 -c '{source}' -o /dev/null || exit; done")
            }
            LoadKind::Cache => "exec dd if=/dev/zero of=/dev/null bs=16M".to_owned(),
            LoadKind::Switch => "dd if=/dev/zero bs=1 | dd of=/dev/null bs=1".to_owned(),
            _ => "while :; do :; done".to_owned(),
        })
    }
}

/// A load that is there while the value lives. The duty ends before the process, which else could not hear of its end.
#[derive(Debug, Default)]
pub(super) struct ActiveLoad {
    _duty: Option<DutyCycle>,
    _running: Option<RunningProcess>,
    _quota: Option<CpuQuota>,
}

/// A thread that lets processes run for a part of the time.
#[derive(Debug)]
struct DutyCycle {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DutyCycle {
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

impl Drop for DutyCycle {
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
            select_loads(&words).unwrap().iter().map(BackgroundLoad::name).collect()
        };
        assert_eq!(names(&["cpu30", "pause"]), ["cpu30@a", "cpu30@b", "pause"]);
        assert_eq!(names(&["compiler@b"]), ["compiler@b"]);
        assert_eq!(names(&[]).len(), all_loads().len());
        let error = select_loads(&["cpu31".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("cpu31") && error.contains("switch60@b"), "{error}");
    }

    #[test]
    fn each_cpu_share_is_on_either_end() {
        for part in PERCENTS {
            let with =
                all_loads().into_iter().filter(|load| load.cpu_percent == Some(part)).count();
            assert_eq!(with, 6, "{part}%");
        }
    }

    #[test]
    fn duty_takes_its_share_and_ends() {
        let (seen, hears) = std::sync::mpsc::channel();
        let duty =
            DutyCycle::start(Duration::from_millis(20), 50, Duration::from_secs(60), move |it| {
                let _ = seen.send(it);
            });
        let first: Vec<Signal> = hears.iter().take(5).collect();
        drop(duty);
        let (stop, go) = (Signal::STOP, Signal::CONT);
        assert_eq!(first, [go, stop, go, stop, go]);
        assert_eq!(hears.iter().last(), Some(go));
    }
}
