//! Surroundings of a host's trials: disturbances that are seen before the first one.

use latput_units::{CpuSet, Nanos, text};
use serde::{Deserialize, Serialize};

use crate::observation::OtherProcess;

/// Load and set-up of a host while nothing is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Surroundings {
    /// The host's name in the testbed.
    pub host: String,
    /// The measured interface.
    pub interface: String,
    /// How long it was looked at.
    pub span: Nanos,
    /// The boot of its kernel: hosts with the same one share a machine.
    pub boot: String,
    /// The CPUs that are the host's.
    pub cpus: CpuSet,
    /// Busy share of the host's CPUs.
    pub busy_ratio: f64,
    /// CPU time of other processes on its CPUs, as a share of one CPU; `None` where they cannot be told apart.
    pub other_work_cpu_ratio: Option<f64>,
    /// The busiest of those processes.
    pub others: Vec<OtherProcess>,
    /// Share of its CPUs' time that a hypervisor gave to others.
    pub steal_ratio: f64,
    /// Packets of the interface, both ways, per second.
    pub packets_per_s: f64,
    /// The clock governors of its CPUs, each once; empty where the kernel does not set clocks.
    pub governors: Vec<String>,
    /// The enabled idle state with the longest wake-up, with that time; `None` without idle states.
    pub deepest_idle: Option<(String, Nanos)>,
    /// The processes that change what is measured, each with the name from `/proc/PID/comm`.
    pub tuners: Vec<Tuner>,
}

/// A process that changes knobs, interrupts or CPU clocks by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuner {
    /// Its name: one of [`TUNERS`], or `latput moderate`.
    pub name: String,
    /// Its process id.
    pub pid: u32,
}

/// Something that could disturb the trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name: the first column of the table in `docs/quiet.md`.
    pub name: String,
    /// The hosts where it was found.
    pub hosts: Vec<String>,
    /// The observation, with figures.
    pub seen: String,
    /// Its effect on the trials.
    pub meaning: String,
    /// How to mend it.
    pub remedy: String,
}

/// The name of the finding that names somebody's programs.
pub const OTHER_LOAD: &str = "other load";
/// Names of programs that tune a host by themselves, as the kernel has them (`comm`, 15 characters).
pub const TUNERS: &[&str] = &["irqbalance", "tuned", "bpftune", "numad", "auto-cpufreq", "tlp"];
/// The name under which a daemon of our own is told.
pub const MODERATE: &str = "latput moderate";

/// Most busy share of the CPUs of a host without traffic: a kernel at rest has some 1%.
pub const BUSY_LIMIT: f64 = 0.05;
/// Most CPU time of other work with which a run that is to be acted on begins unasked, as a share of one CPU.
pub const OTHER_WORK_LIMIT: f64 = 0.2;
/// Most stolen share: half of what fails the check of a trial.
pub const STEAL_LIMIT: f64 = 0.01;
/// Most packets per second beside the trials: a control connection and the network's own have some ten.
pub const PACKETS_PER_S_LIMIT: f64 = 100.0;
/// Longest wake-up that is not worth a word: C1E of Intel's CPUs has 10 us.
pub const WAKE_UP_LIMIT: Nanos = Nanos::from_us(20);

/// One row of the table of findings.
struct Rule {
    name: &'static str,
    /// The observation; `None` where it was not seen.
    seen: fn(&Surroundings) -> Option<String>,
    meaning: &'static str,
    remedy: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        name: OTHER_LOAD,
        seen: |host| {
            (host.busy_ratio > BUSY_LIMIT).then(|| {
                let busy = percent(host.busy_ratio);
                let who: Vec<String> = host.others.iter().map(format_process).collect();
                let who =
                    if who.is_empty() { String::new() } else { format!(" ({})", who.join("; ")) };
                format!("its CPUs are {busy} busy before any traffic{who}")
            })
        },
        meaning: "latency and CPU figures are noisier",
        remedy: "stop the other work, or give the trials CPUs of their own (`cpus` in the testbed)",
    },
    Rule {
        name: "steal",
        seen: |host| {
            (host.steal_ratio > STEAL_LIMIT).then(|| {
                format!("the hypervisor takes {} of its CPU time", percent(host.steal_ratio))
            })
        },
        meaning: "trials pause at random: tails are the hypervisor's, not the setting's",
        remedy: "give the guest CPUs of its own, or measure on hardware",
    },
    Rule {
        name: "other traffic",
        seen: |host| {
            (host.packets_per_s > PACKETS_PER_S_LIMIT).then(|| {
                format!(
                    "{} had {:.0} packets/s before latput sent any",
                    host.interface, host.packets_per_s
                )
            })
        },
        meaning: "it shares the link, the queues and the interrupts with the trials",
        remedy: "stop it, or measure on another interface",
    },
    Rule {
        name: "clock governor",
        seen: |host| {
            let others: Vec<&str> = host
                .governors
                .iter()
                .map(String::as_str)
                .filter(|name| *name != "performance")
                .collect();
            (!others.is_empty()).then(|| format!("the clock governor is {}", others.join(", ")))
        },
        meaning: "CPU clocks follow the load: a setting that saves CPU time also lowers the clock",
        remedy: "`cpupower frequency-set -g performance`",
    },
    Rule {
        name: "idle states",
        seen: |host| {
            let (name, wake_up) = host.deepest_idle.as_ref()?;
            (*wake_up > WAKE_UP_LIMIT).then(|| format!("{name} takes {wake_up} to wake up"))
        },
        meaning: "an idle CPU adds up to that much to a round trip, so a busier setting can look faster",
        remedy: "`cpupower idle-set -D 20`, unless the host also sleeps so in production",
    },
    Rule {
        name: "interrupts move",
        seen: |host| format_running_tuners(host, &["irqbalance"]),
        meaning: "it moves interrupts to other CPUs every ten seconds, also during trials",
        remedy: "`systemctl stop irqbalance` while latput measures",
    },
    Rule {
        name: "second tuner",
        seen: |host| {
            let others: Vec<&str> =
                TUNERS.iter().copied().filter(|name| *name != "irqbalance").collect();
            format_running_tuners(host, &[&*others, &[MODERATE]].concat())
        },
        meaning: "it changes knobs or clocks by itself, so trials may measure other values than were set",
        remedy: "stop it while latput measures (`systemctl stop NAME`)",
    },
];

/// Sentence for two hosts that run on the same CPUs.
pub const SHARED_CPUS: &str = "Do not use the CPU figures: both hosts run on the same CPUs.";

impl Surroundings {
    /// CPU time of other work, as a share of one CPU. latput rests while it looks, so all that is busy is other work: also
    /// programs that came and went in between, and interrupts, which no process is charged with.
    pub fn other_work(&self) -> f64 {
        let cpus = self.cpus.len() as f64;
        let busy = self.busy_ratio * cpus;
        // Time of a process that changed CPUs is spread over them by estimate.
        busy.max(self.other_work_cpu_ratio.unwrap_or_default().min(cpus))
    }

    /// Processes that take it, as far as they are known.
    fn describe_other_work(&self) -> String {
        let mut who: Vec<String> = self.others.iter().map(format_process).collect();
        let known: f64 = self.others.iter().map(|other| other.cpu_ratio).sum();
        if known < self.other_work() / 2.0 {
            who.push("short-lived programs, interrupts, or work that cannot be seen".to_owned());
        }
        who.join("; ")
    }
}

/// Disturbances that spoil a run whose answer is to be acted on, in sentences; empty where it can begin.
pub fn find_disturbances(hosts: &[Surroundings]) -> Vec<String> {
    let busy = hosts.iter().filter(|host| host.other_work() > OTHER_WORK_LIMIT).map(|host| {
        let share = text::format_cpu_share(host.other_work());
        format!("{}: other work takes {share}: {}", host.host, host.describe_other_work())
    });
    busy.chain(find_shared_cpus(hosts).map(|(hosts, cpus)| {
        format!("{} run on the same CPUs ({cpus}): give each its own", hosts.join(" and "))
    }))
    .collect()
}

/// Hosts of one machine that share CPUs which they need not share, with those CPUs.
fn find_shared_cpus(hosts: &[Surroundings]) -> impl Iterator<Item = ([String; 2], CpuSet)> + '_ {
    let pairs = hosts
        .iter()
        .enumerate()
        .flat_map(|(idx, host)| hosts[idx + 1..].iter().map(move |other| (host, other)));
    pairs.filter_map(|(host, other)| {
        let is_one_machine = !host.boot.is_empty() && host.boot == other.boot;
        let shared: CpuSet = host.cpus.iter().filter(|cpu| other.cpus.contains(*cpu)).collect();
        let is_only_cpu = host.cpus.len() == 1 && host.cpus == other.cpus;
        (is_one_machine && !shared.is_empty() && !is_only_cpu)
            .then(|| ([host.host.clone(), other.host.clone()], shared))
    })
}

/// `cc1 (pid 7) 31% of CPU 1`.
fn format_process(other: &OtherProcess) -> String {
    let OtherProcess { name, pid, cpu_ratio, cpus, .. } = other;
    format!("{name} (pid {pid}) {}", text::format_share_on_cpus(*cpu_ratio, cpus))
}

/// The findings on all hosts, each once with the hosts that share it.
pub fn collect_findings(hosts: &[Surroundings]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = find_shared_cpus(hosts)
        .map(|(hosts, cpus)| Finding {
            name: "shared CPUs".to_owned(),
            hosts: hosts.to_vec(),
            seen: format!("both run on CPUs {cpus}"),
            meaning: "the CPU figures of each hold both: do not use them".to_owned(),
            remedy: "`cpus` of its own for each in the testbed, or `?cpus=0` behind the host"
                .to_owned(),
        })
        .collect();
    for rule in RULES {
        for host in hosts {
            let Some(seen) = (rule.seen)(host) else { continue };
            let same =
                findings.iter_mut().find(|known| known.name == rule.name && known.seen == seen);
            match same {
                Some(known) => known.hosts.push(host.host.clone()),
                None => findings.push(Finding {
                    name: rule.name.to_owned(),
                    hosts: vec![host.host.clone()],
                    seen,
                    meaning: rule.meaning.to_owned(),
                    remedy: rule.remedy.to_owned(),
                }),
            }
        }
    }
    findings
}

impl Finding {
    /// The finding in one line: where, what was seen, its effect and the remedy.
    pub fn sentence(&self) -> String {
        format!(
            "{}: {}; {}. To fix it: {}",
            self.hosts.join(" and "),
            self.seen,
            self.meaning,
            self.remedy
        )
    }
}

fn format_running_tuners(host: &Surroundings, names: &[&str]) -> Option<String> {
    let found = host.tuners.iter().filter(|tuner| names.contains(&tuner.name.as_str()));
    let found: Vec<String> =
        found.map(|tuner| format!("{} (pid {})", tuner.name, tuner.pid)).collect();
    (!found.is_empty()).then(|| {
        let verb = if found.len() == 1 { "runs" } else { "run" };
        format!("{} {verb}", found.join(", "))
    })
}

fn percent(share: f64) -> String {
    text::format_percent((share * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_host_gives_no_finding() {
        let quiet = Surroundings {
            busy_ratio: 0.02,
            packets_per_s: 12.0,
            governors: vec!["performance".to_owned()],
            deepest_idle: Some(("C1E".to_owned(), Nanos::from_us(10))),
            ..Surroundings::default()
        };
        assert_eq!(collect_findings(&[quiet, Surroundings::default()]), []);
    }

    #[test]
    fn each_surrounding_is_found_by_its_sign() {
        let tuner = |name: &str| vec![Tuner { name: name.to_owned(), pid: 7 }];
        let none = Surroundings::default;
        check("other load", "12.3%", Surroundings { busy_ratio: 0.1234, ..none() });
        check("steal", "1.5%", Surroundings { steal_ratio: 0.015, ..none() });
        check("other traffic", "5000 packets/s", Surroundings { packets_per_s: 5e3, ..none() });
        let governors = vec!["performance".to_owned(), "powersave".to_owned()];
        check("clock governor", "is powersave", Surroundings { governors, ..none() });
        let deepest_idle = Some(("C6".to_owned(), Nanos::from_us(133)));
        check("idle states", "C6 takes 133us", Surroundings { deepest_idle, ..none() });
        check("interrupts move", "pid 7", Surroundings { tuners: tuner("irqbalance"), ..none() });
        for name in ["tuned", MODERATE] {
            check("second tuner", name, Surroundings { tuners: tuner(name), ..none() });
        }
        assert_eq!(RULES.len(), 7, "a new row needs a line above");
    }

    #[test]
    fn busy_fifth_of_cpu_spoils_run() {
        let work = |cpu_ratio| OtherProcess {
            name: "cc1".to_owned(),
            pid: 7,
            cpu_ratio,
            cpus: "1".parse().unwrap(),
            switches_per_s: 0.0,
        };
        let host = |cpu_ratio: f64| Surroundings {
            host: "b".to_owned(),
            cpus: "0-1".parse().unwrap(),
            busy_ratio: cpu_ratio / 2.0,
            other_work_cpu_ratio: Some(cpu_ratio),
            others: vec![work(cpu_ratio)],
            ..Surroundings::default()
        };
        assert_eq!(find_disturbances(&[host(0.19)]), Vec::<String>::new());
        let said = "b: other work takes 31% of a CPU: cc1 (pid 7) 31% of CPU 1";
        assert_eq!(find_disturbances(&[host(0.31)]), [said]);
        let mut threads = host(1.74);
        threads.others[0].cpus = "0-1".parse().unwrap();
        let said = "b: other work takes 1.7 CPUs: cc1 (pid 7) 1.7 CPUs (CPUs 0-1)";
        assert_eq!(find_disturbances(&[threads]), [said], "no CPU gives 174% of itself");
        let short_lived = Surroundings { busy_ratio: 0.9, ..host(0.1) };
        let unseen = Surroundings { other_work_cpu_ratio: None, others: vec![], ..host(1.8) };
        for (host, who) in [
            (short_lived, "cc1 (pid 7) 10% of CPU 1; short-lived programs"),
            (unseen, "short-lived programs"),
        ] {
            let said = find_disturbances(&[host]).join("; ");
            assert!(said.contains(&format!("takes 1.8 CPUs: {who}, interrupts")), "{said}");
        }
    }

    #[test]
    fn hosts_sharing_cpus_are_reported() {
        let host = |boot: &str, cpus: &str| Surroundings {
            host: format!("{boot}{cpus}"),
            boot: boot.to_owned(),
            cpus: cpus.parse().unwrap(),
            ..Surroundings::default()
        };
        for (hosts, is_told) in [
            ([host("x", "0-1"), host("x", "0-1")], true),
            ([host("x", "0-2"), host("x", "2")], true),
            ([host("x", "0"), host("x", "1")], false),
            ([host("x", "0"), host("x", "0")], false), // there is no other CPU to give
            ([host("x", "0-1"), host("y", "0-1")], false),
            ([host("", "0-1"), host("", "0-1")], false),
        ] {
            assert_eq!(find_disturbances(&hosts).len(), usize::from(is_told), "{hosts:?}");
            assert_eq!(collect_findings(&hosts).len(), usize::from(is_told), "{hosts:?}");
        }
    }

    #[test]
    fn hosts_that_share_a_finding_share_a_row() {
        let host = |name: &str| Surroundings {
            host: name.to_owned(),
            steal_ratio: 0.1,
            ..Surroundings::default()
        };
        let found = collect_findings(&[host("a"), host("b")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].sentence().starts_with("a and b: the hypervisor takes 10%"), "{found:?}");
    }

    #[track_caller]
    fn check(name: &str, words: &str, host: Surroundings) {
        let found = collect_findings(&[host]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, name);
        assert!(found[0].seen.contains(words), "{found:?}");
    }
}
