//! Properties of a host that could disturb measurements: power saving of its CPUs, and programs that tune it.

use std::fs;
use std::path::Path;

use latput_trial::surroundings::{MODERATE, TUNERS, Tuner};
use latput_units::{CpuSet, IntoSet, Nanos};

/// The folder of CPUs in sysfs.
const CPUS: &str = "/sys/devices/system/cpu";

/// The clock governors of these CPUs, each once; empty where the kernel does not set clocks.
pub fn governors(cpus: &CpuSet) -> Vec<String> {
    governors_in(Path::new(CPUS), cpus)
}

fn governors_in(root: &Path, cpus: &CpuSet) -> Vec<String> {
    let governor = |cpu| read(&root.join(format!("cpu{cpu}/cpufreq/scaling_governor")));
    cpus.iter().filter_map(governor).into_set().into_iter().collect()
}

/// The enabled idle state of these CPUs with the longest wake-up; `None` without idle states.
pub fn deepest_idle(cpus: &CpuSet) -> Option<(String, Nanos)> {
    deepest_idle_in(Path::new(CPUS), cpus)
}

fn deepest_idle_in(root: &Path, cpus: &CpuSet) -> Option<(String, Nanos)> {
    let states = cpus.iter().flat_map(|cpu| {
        let folder = root.join(format!("cpu{cpu}/cpuidle"));
        (0..).map(move |idx| folder.join(format!("state{idx}"))).take_while(|state| state.is_dir())
    });
    let enabled = states.filter(|state| read(&state.join("disable")).as_deref() != Some("1"));
    let wake_up = |state: std::path::PathBuf| {
        let latency_us = read(&state.join("latency"))?.parse().ok()?;
        Some((read(&state.join("name"))?, Nanos::from_us(latency_us)))
    };
    enabled.filter_map(wake_up).max_by_key(|(_, latency)| *latency)
}

/// The running programs that tune a host by themselves, by the name in `/proc/PID/comm`; a program under
/// another name is not found. Only processes of this PID namespace are seen.
pub fn tuners() -> Vec<Tuner> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let tuner = |process: fs::DirEntry| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let comm = read(&process.path().join("comm"))?;
        let name = match comm.as_str() {
            "latput" if is_moderate(&process.path()) => MODERATE,
            comm => TUNERS.iter().find(|name| **name == comm)?,
        };
        Some(Tuner { name: name.to_owned(), pid })
    };
    let mut tuners: Vec<Tuner> = processes.flatten().filter_map(tuner).collect();
    tuners.sort_by_key(|tuner| tuner.pid);
    tuners
}

/// Whether a latput's first word that is no flag is `moderate`.
fn is_moderate(process: &Path) -> bool {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).skip(1).filter(|word| !word.starts_with(b"-"));
    words.next() == Some(b"moderate")
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn governors_and_idle_states_are_named_once() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        for (cpu, governor) in [(0, "powersave"), (1, "powersave"), (2, "performance")] {
            write(&format!("cpu{cpu}/cpufreq/scaling_governor"), governor);
            for (idx, name, latency, disable) in
                [(0, "POLL", "0", "0"), (1, "C1E", "10", "0"), (2, "C6", "133", "1")]
            {
                let state = format!("cpu{cpu}/cpuidle/state{idx}");
                write(&format!("{state}/name"), name);
                write(&format!("{state}/latency"), latency);
                write(&format!("{state}/disable"), disable);
            }
        }
        let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
        assert_eq!(governors_in(root.path(), &cpus("0-1")), ["powersave"]);
        assert_eq!(governors_in(root.path(), &cpus("0-2")), ["performance", "powersave"]);
        let deepest = |text: &str| deepest_idle_in(root.path(), &cpus(text));
        assert_eq!(deepest("0"), Some(("C1E".to_owned(), Nanos::from_us(10))));
        write("cpu1/cpuidle/state2/disable", "0");
        assert_eq!(deepest("0-1"), Some(("C6".to_owned(), Nanos::from_us(133))));
        assert_eq!(deepest("7"), None);
        assert_eq!(governors_in(root.path(), &cpus("7")), Vec::<String>::new());
    }

    #[test]
    fn process_is_found_by_comm_only() {
        let folder = tempfile::tempdir().unwrap();
        let started = |name: &str| {
            let copy = folder.path().join(name);
            fs::copy("/bin/sleep", &copy).unwrap();
            std::process::Command::new(copy).arg("60").spawn().unwrap()
        };
        let mut children = [started("bpftune"), started("not-a-tuner")];
        let pids = children.each_ref().map(std::process::Child::id);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let find = || tuners().into_iter().find(|tuner| tuner.pid == pids[0]);
        while find().is_none() && std::time::Instant::now() < deadline {
            std::thread::yield_now(); // until it has called exec
        }
        let (found, others) = (find(), tuners().iter().any(|tuner| tuner.pid == pids[1]));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found.map(|tuner| tuner.name), Some("bpftune".to_owned()));
        assert!(!others);
    }
}
