//! `cargo xtask bench-kills`: kill -9 at any moment of a change, and what is left of it afterwards.
//!
//! `ip`, `ethtool`, `tc`, sysfs and raw netlink say what is there, never latput. Who is killed: the maker of a change, what
//! watches it, a restore, a confirmation, the daemon, an agent, a controller, its broker. Moments are uniform over time, or a system
//! call by its number. After `latput restore` every value is as before, unless the change was committed: then
//! making it again changes nothing. `--faults` has system calls fail in the place of kills.

mod faults;
pub mod pair;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use latput_units::SeededRng;

use crate::ci::Tally;
use crate::processes::kill_process;
use crate::workspace::Workspace;
use pair::VethPair;

/// Counts of each kind of victim and fault; a kill has no fault.
type Counts = BTreeMap<(KillVictim, String), VictimCounts>;

/// How the interface is before the change.
const BASELINES: &[&str] = &[
    "true",
    "ip link set v0 mtu 9000 txqueuelen 500; ethtool -K v0 tso off",
    "tc qdisc add dev v0 root handle 1: pfifo limit 7; ethtool -L v0 rx 1 tx 1",
    "tc qdisc add dev v0 root handle 1: mq; tc qdisc add dev v0 parent 1:1 handle 11: pfifo limit 7; \
     echo 2 > /sys/class/net/v0/queues/rx-0/rps_cpus; echo 64 > /sys/class/net/v0/queues/rx-1/rps_flow_cnt",
    "echo 1 > /sys/class/net/v0/threaded; echo 1 > /sys/class/net/v0/queues/tx-0/xps_cpus",
    "ethtool -K v0 gro off rx-gro-list on",
    "ip link set v0 mtu 9000; ip link add m0 link v0 type macvlan; echo 4000 > /proc/sys/net/ipv6/conf/v0/mtu",
    "tc qdisc add dev v0 root handle 1: mq; \
     tc qdisc add dev v0 parent 1:2 handle 12: tbf rate 100mbit burst 32k limit 64k",
    "ethtool -K v0 sg off; echo 1 > /sys/class/net/v0/threaded",
    "echo 1 > /sys/class/net/v0/threaded; \"$PYTHON\" -IS \"$NAPI\" v0 bind",
];

/// Every knob that a veth has, each with two values.
const VALUES: &[(&str, [&str; 2])] = &[
    ("mtu", ["1400", "9000"]),
    ("rx-channels", ["1", "2"]),
    ("tx-channels", ["1", "2"]),
    ("rx-checksum", ["off", "on"]),
    ("tx-checksum", ["off", "on"]),
    ("sg", ["off", "on"]),
    ("gro", ["off", "on"]),
    ("gso", ["off", "on"]),
    ("tso", ["off", "on"]),
    ("tx-udp-segmentation", ["off", "on"]),
    ("rx-gro-list", ["on", "off"]),
    ("rx-udp-gro-forwarding", ["on", "off"]),
    ("rx-vlan", ["off", "on"]),
    ("tx-vlan", ["off", "on"]),
    ("tx-nocache-copy", ["on", "off"]),
    ("gso-max-size", ["40000", "65536"]),
    ("gso-ipv4-max-size", ["30000", "65536"]),
    ("gro-max-size", ["40000", "65536"]),
    ("gro-ipv4-max-size", ["30000", "65536"]),
    ("txqueuelen", ["700", "1000"]),
    ("qdisc", ["pfifo limit=9", "mq"]),
    ("queue-qdisc", ["bfifo limit=90000", "pfifo limit=5"]),
    ("rps-cpus", ["0-1", "0"]),
    ("rps-flow-cnt", ["32", "0"]),
    ("xps-cpus", ["0-1", "1"]),
    ("tcp-rmem", ["4096 9000 99000", "4096 131072 6291456"]),
    ("tcp-wmem", ["4096 9000 99000", "4096 16384 4194304"]),
    ("tcp-notsent-lowat", ["131072", "262144"]),
    ("tcp-limit-output-bytes", ["131072", "1048576"]),
    ("tcp-autocorking", ["off", "on"]),
    ("tcp-congestion-control", ["reno", "cubic"]),
    ("threaded", ["on", "off"]),
    ("napi-defer-hard-irqs", ["10", "0"]),
    ("gro-flush-timeout", ["50us", "0us"]),
    ("irq-suspend-timeout", ["90us", "0us"]),
];

/// System calls that a change is made of.
const CALLS: &[&str] =
    &["sendto", "write", "openat", "fsync", "rename,renameat,renameat2", "unlink,unlinkat"];
/// How long anything may take that nobody kills: each of its processes may stall at several calls.
const WHOLE: Duration = Duration::from_secs(180);

/// Time of a sample in CI, seconds.
const WITHIN_S: u64 = 240;

const PLAN: &str = "schema = 1\nname = \"kills\"\n[factors]\n\"gro-flush-timeout + napi-defer-hard-irqs\" = [[\"0us\", 0], [\"1ms\", 10]]\n\
    mtu = [1500, 1400]\n[[workload]]\nkind = \"tcp_rr\"\n[method]\ndesign = \"blocks\"\n\
    repetitions = { min = 2, max = 2 }\nwarmup = \"20ms\"\nduration = \"100ms\"\n";

/// How thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// How many kills.
    #[arg(long, default_value_t = 10_000)]
    kills: u64,
    /// Where the random numbers begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many at a time, each on a pair of interfaces of its own. A kill mostly waits.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Begin no other after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    within_s: Option<u64>,
    /// Faults in the place of kills.
    #[arg(long)]
    faults: bool,
    /// No kills: every pair of knobs with each of their values, there and back.
    #[arg(long)]
    pairs: bool,
    /// The latput to kill, in the place of a release build.
    #[arg(long, value_name = "FILE")]
    latput: Option<PathBuf>,
}

/// A step of CI: as many kills and faults as it has time for.
pub fn run_sample(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    if tally.skips_without(&[]) {
        return Ok(());
    }
    let latput = workspace.built_latput()?;
    let (within_s, latput) = (Some(WITHIN_S), Some(latput));
    let kills =
        Options { kills: 250, seed: 7, jobs: 8, within_s, faults: false, pairs: false, latput };
    run(workspace, &kills)?;
    run(workspace, &Options { kills: 500, jobs: 32, faults: true, ..kills })
}

/// Process that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KillVictim {
    Set,
    SetAtCall,
    SetToConfirm,
    Watcher,
    Restore,
    Confirm,
    Daemon,
    Controller,
    Broker,
    Agent,
    /// A set and its watchers.
    SetFault,
    RestoreFault,
    ConfirmFault,
    UndoFault,
    /// One of these four, while another owner's change of another interface waits.
    BesideFault,
}

/// Of a hundred kills, who.
const SHARES: &[(KillVictim, usize)] = &[
    (KillVictim::Set, 28),
    (KillVictim::SetAtCall, 25),
    (KillVictim::SetToConfirm, 12),
    (KillVictim::Watcher, 6),
    (KillVictim::Restore, 12),
    (KillVictim::Confirm, 7),
    (KillVictim::Daemon, 4),
    (KillVictim::Controller, 2),
    (KillVictim::Broker, 2),
    (KillVictim::Agent, 2),
];

/// The same of a hundred faults.
const FAULT_SHARES: &[(KillVictim, usize)] = &[
    (KillVictim::SetFault, 40),
    (KillVictim::RestoreFault, 15),
    (KillVictim::ConfirmFault, 10),
    (KillVictim::UndoFault, 15),
    (KillVictim::BesideFault, 20),
];

/// Results of the kills of one kind of victim.
#[derive(Clone, Copy, Debug, Default)]
struct VictimCounts {
    kills: u64,
    /// A checkpoint was there, so that the kill hit the middle of a change.
    in_the_middle: u64,
    /// The change was committed before.
    committed: u64,
    /// It could not be made: the kernel or latput refused it.
    refused: u64,
    /// Another owner's change still waited at the end, untouched.
    beside: u64,
}

impl VictimCounts {
    fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.in_the_middle += other.in_the_middle;
        self.committed += other.committed;
        self.refused += other.refused;
        self.beside += other.beside;
    }
}

/// Kills `latput`, compares and prints the table; fails at the first difference.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let latput = &workspace.given_latput(options.latput.as_deref())?;
    let folder = workspace.target.join("bench-kills");
    if options.pairs {
        return KillBench::open(latput, &folder, options.seed, 0)?.check_value_pairs();
    }
    let begun = Instant::now();
    let is_over =
        || options.within_s.is_some_and(|most| begun.elapsed() > Duration::from_secs(most));
    let has_failed = AtomicBool::new(false);
    let counts = std::thread::scope(|scope| -> Result<Vec<_>> {
        let start = |job: u64| {
            let (folder, has_failed, is_over) =
                (folder.join(job.to_string()), &has_failed, &is_over);
            scope.spawn(move || {
                let ends = || has_failed.load(Ordering::Relaxed) || is_over();
                kill_all(latput, &folder, job, options, &ends)
                    .inspect_err(|_| has_failed.store(true, Ordering::Relaxed))
            })
        };
        let jobs: Vec<_> = (0..options.jobs.max(1) as u64).map(start).collect();
        jobs.into_iter().map(|job| job.join().expect("a job does not panic")).collect()
    })?;
    let mut sum: Counts = Counts::new();
    for (kind, count) in counts.into_iter().flatten() {
        sum.entry(kind).or_default().add(count);
    }
    print_counts(&sum);
    let done: u64 = sum.values().map(|count| count.kills).sum();
    println!("{done} of {} in {} s", options.kills, begun.elapsed().as_secs());
    // However slow the machine is.
    let fewest = options.kills / 2;
    ensure!(done >= fewest, "the time is over: at least {fewest} are wanted");
    Ok(())
}

/// The share of one job, with random numbers of its own. It ends early where another has failed, or the time is over.
fn kill_all(
    latput: &Path,
    folder: &Path,
    job: u64,
    options: &Options,
    ends: &dyn Fn() -> bool,
) -> Result<Counts> {
    let mut bench = KillBench::open(latput, folder, options.seed, job)?;
    let mut counts = Counts::new();
    for number in (job..options.kills).step_by(options.jobs.max(1)) {
        if ends() {
            break;
        }
        let shares = if options.faults { FAULT_SHARES } else { SHARES };
        let case = KillCase::from_rng(&mut bench.rng, shares);
        bench.count = VictimCounts { kills: 1, ..VictimCounts::default() };
        let ended = if options.faults {
            bench.fault_one(&case)
        } else {
            bench.kill_one(&case).map(|()| String::new())
        };
        let fault =
            ended.with_context(|| format!("kill {number} of seed {}: {case:?}", options.seed))?;
        counts.entry((case.victim, fault)).or_default().add(bench.count);
    }
    Ok(counts)
}

fn print_counts(counts: &Counts) {
    println!(
        "{:<14} {:<14} {:>7} {:>14} {:>10} {:>8} {:>7}  left different (goal: 0)",
        "killed", "fault", "kills", "in the middle", "committed", "refused", "beside"
    );
    for ((victim, fault), count) in counts {
        let VictimCounts { kills, in_the_middle, committed, refused, beside } = count;
        let name = format!("{victim:?}");
        println!(
            "{name:<14} {fault:<14} {kills:>7} {in_the_middle:>14} {committed:>10} {refused:>8} {beside:>7}  0"
        );
    }
}

/// One change, and who is killed during it.
#[derive(Clone, Debug)]
struct KillCase {
    victim: KillVictim,
    baseline: &'static str,
    /// `KNOB=VALUE`.
    setting: Vec<String>,
}

impl KillCase {
    fn from_rng(rng: &mut SeededRng, shares: &[(KillVictim, usize)]) -> Self {
        let mut left = rng.next_below(100);
        let mut victim = KillVictim::Set;
        for (who, share) in shares {
            victim = *who;
            if left < *share {
                break;
            }
            left -= share;
        }
        let baseline = *pick_random(rng, BASELINES);
        let mut knobs: Vec<_> = VALUES.to_vec();
        let most = if rng.next_below(4) == 0 { 12 } else { 3 };
        let size = 1 + rng.next_below(most);
        let mut setting = Vec::new();
        for _ in 0..size {
            let (knob, values) = knobs.swap_remove(rng.next_below(knobs.len()));
            setting.push(format!("{knob}={}", pick_random(rng, &values)));
        }
        Self { victim, baseline, setting }
    }

    /// The words of `latput set`, with more behind.
    fn set_arguments(&self, more: &[&str]) -> Vec<String> {
        let mut words = vec!["set".to_owned(), "v0".to_owned()];
        words.extend(self.setting.iter().cloned());
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words
    }
}

fn pick_random<'a, T>(rng: &mut SeededRng, of: &'a [T]) -> &'a T {
    &of[rng.next_below(of.len())]
}

/// The kills of one job.
#[derive(Debug)]
struct KillBench {
    pair: VethPair,
    rng: SeededRng,
    /// Results of the kill that is under way.
    count: VictimCounts,
    /// Kills of each victim come within this time, which is made to fit: at half of it, half of the changes are made.
    windows_us: BTreeMap<KillVictim, usize>,
}

impl KillBench {
    fn open(latput: &Path, folder: &Path, seed: u64, job: u64) -> Result<Self> {
        let pair = VethPair::open(latput, folder)?;
        let rng = SeededRng::from_seed_and_index(seed, job);
        Ok(Self { pair, rng, count: VictimCounts::default(), windows_us: BTreeMap::new() })
    }

    fn window_us(&mut self, victim: KillVictim) -> &mut usize {
        self.windows_us.entry(victim).or_insert(30_000)
    }

    /// Whether the kill came before the end of the change.
    fn adapt_window(&mut self, victim: KillVictim, was_early: bool) {
        let window_us = self.window_us(victim);
        let fitting = if was_early { *window_us * 21 / 20 } else { *window_us * 20 / 21 };
        *window_us = fitting.clamp(1_000, 1_000_000);
    }

    /// A new pair of interfaces, as foreign tools show it.
    fn begin_case(&self, case: &KillCase) -> Result<String> {
        self.pair.new_pair(case.baseline)?;
        self.pair.read_interfaces()
    }

    fn kill_one(&mut self, case: &KillCase) -> Result<()> {
        let before = self.begin_case(case)?;
        match case.victim {
            KillVictim::Set => {
                // Half of them once there is a checkpoint, as long as there is one.
                let waits = self.rng.next_below(2) == 0;
                let set = self.pair.latput_command(case.set_arguments(&[]));
                let window_us = *self.window_us(case.victim);
                self.kill_in_time(set, window_us, waits)?;
                let was_early =
                    self.pair.has_checkpoint() || self.check_unchanged(&before, "").is_ok();
                self.adapt_window(case.victim, was_early);
            }
            KillVictim::SetAtCall => self.kill_at_call(case)?,
            KillVictim::SetToConfirm => {
                let set = self.pair.latput_command(case.set_arguments(&["--confirm-within", "1s"]));
                let waits = self.rng.next_below(2) == 0;
                self.kill_in_time(set, 60_000, waits)?;
                // Nobody helps: what watches it puts it back.
                self.pair.settle()?;
                ensure!(!self.pair.has_checkpoint(), "the watcher left a checkpoint");
                return self.check_unchanged(&before, "without `latput restore`");
            }
            KillVictim::Watcher => {
                let words = case.set_arguments(&["--confirm-within", "60s"]);
                let set = self.pair.latput_command(words).spawn()?;
                let kill = || {
                    self.pair.find_latput_processes("watcher").into_iter().for_each(kill_process);
                };
                sleep_random(&mut self.rng, 150_000);
                kill();
                wait_for_exit(set)?;
                kill();
            }
            KillVictim::Restore | KillVictim::Confirm => {
                if !self.run_latput(case.set_arguments(&["--confirm-within", "60s"]))? {
                    return self.check_refusal(&before);
                }
                let word = if case.victim == KillVictim::Restore { "restore" } else { "confirm" };
                let window_us = *self.window_us(case.victim);
                self.kill_in_time(self.pair.latput_command([word]), window_us, false)?;
                self.adapt_window(case.victim, self.pair.has_checkpoint());
            }
            KillVictim::Daemon => {
                let mut traffic = self.pair.namespace_command(1, Path::new("ping"));
                let traffic =
                    traffic.args(["-q", "-i", "0.0002", "-c", "4000", "10.77.0.1"]).spawn()?;
                let words = ["moderate", "v0", "--cpu-budget", "0.1%"];
                self.kill_in_time(self.pair.latput_command(words), 900_000, false)?;
                wait_for_exit(traffic)?;
            }
            KillVictim::Controller | KillVictim::Broker | KillVictim::Agent => {
                self.kill_run(case.victim)?;
            }
            _ => bail!("a fault is no kill"),
        }
        self.count.in_the_middle += u64::from(self.pair.has_checkpoint());
        self.restore_and_compare(case, &before)
    }

    /// Puts back what is left, and compares.
    fn restore_and_compare(&mut self, case: &KillCase, before: &str) -> Result<()> {
        let had_checkpoint = self.pair.has_checkpoint();
        for host in 0..2 {
            let mut restore = self.pair.namespace_command(host, self.pair.latput_path());
            let code = wait_for_exit(restore.arg("restore").spawn()?)?;
            ensure!(code == Some(0), "`latput restore` ended with {code:?}");
        }
        self.pair.settle()?;
        ensure!(!self.pair.has_checkpoint(), "a checkpoint is left");
        let after = self.pair.read_interfaces()?;
        if after == before {
            return Ok(());
        }
        ensure!(!had_checkpoint, "left different:\n{}", diff_lines(before, &after));
        // It was committed: then it is whole.
        self.count.committed += 1;
        ensure!(
            self.run_latput(case.set_arguments(&[]))?,
            "the change was committed and cannot be made again"
        );
        self.check_unchanged(&after, "of a committed change that was made again")
    }

    fn check_unchanged(&self, before: &str, when: &str) -> Result<()> {
        let after = self.pair.read_interfaces()?;
        ensure!(after == before, "left different {when}:\n{}", diff_lines(before, &after));
        Ok(())
    }

    fn check_refusal(&mut self, before: &str) -> Result<()> {
        self.count.refused += 1;
        self.check_unchanged(before, "after a refusal")
    }

    /// Runs latput to its end; whether it succeeded.
    fn run_latput(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<bool> {
        Ok(wait_for_exit(self.pair.latput_command(words).spawn()?)? == Some(0))
    }

    /// Starts it, waits for a checkpoint if told to, and kills it after a random time of at most so many
    /// microseconds.
    fn kill_in_time(&mut self, mut command: Command, most_us: usize, waits: bool) -> Result<()> {
        let mut child = command.spawn().context("cannot start nsenter")?;
        let most_us = if waits { most_us / 4 } else { most_us };
        while waits && !self.pair.has_checkpoint() && child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_micros(200)); // other jobs want the CPU
        }
        sleep_random(&mut self.rng, most_us);
        child.kill().context("cannot kill")?;
        child.wait().context("cannot wait")?;
        Ok(())
    }

    fn kill_at_call(&mut self, case: &KillCase) -> Result<()> {
        let call = *pick_random(&mut self.rng, CALLS);
        let is_frequent = matches!(call, "sendto" | "openat" | "write");
        let nth = 1 + self.rng.next_below(if is_frequent { 120 } else { 6 });
        let fault = format!("signal=KILL:when={nth}");
        self.run_in_strace(call, &fault, &case.set_arguments(&[])).map(drop)
    }

    /// Runs latput to its end where strace does something at calls of a kind; its exit code.
    fn run_in_strace(&self, calls: &str, fault: &str, words: &[String]) -> Result<Option<i32>> {
        let mut command = self.pair.namespace_command(0, Path::new("strace"));
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
        command.args(["-e", &format!("inject={calls}:{fault}")]).arg(self.pair.latput_path());
        wait_for_exit(command.args(words).spawn().context("cannot start strace")?)
    }

    /// A run on both hosts, of which the controller, its broker or an agent is killed.
    fn kill_run(&mut self, victim: KillVictim) -> Result<()> {
        let folder = self.pair.folder();
        let testbed = self.pair.render_testbed(["sut", "generator"], false);
        std::fs::write(folder.join("testbed.toml"), testbed)?;
        std::fs::write(folder.join("plan.toml"), PLAN)?;
        let _none_yet = std::fs::remove_file(folder.join("results.db"));
        let mut command = Command::new(self.pair.latput_path());
        command.args(["run", "plan.toml", "--on", "testbed.toml", "-o", "results.db"]);
        let mut run = self.pair.configure_command(&mut command).current_dir(folder).spawn()?;
        sleep_random(&mut self.rng, 4_000_000);
        if victim == KillVictim::Controller {
            run.kill()?;
        } else {
            let word = if victim == KillVictim::Broker { "broker" } else { "agent" };
            self.pair.find_latput_processes(word).into_iter().take(1).for_each(kill_process);
        }
        wait_for_exit(run)?;
        self.pair.settle()
    }

    /// Every pair of knobs with each of their values, there and back: writes that move each other's knobs too.
    fn check_value_pairs(&self) -> Result<()> {
        let (mut done, mut refused) = (0, 0);
        let pairs = VALUES
            .iter()
            .enumerate()
            .flat_map(|(at, first)| VALUES[at + 1..].iter().map(move |second| (at, first, second)));
        for (number, (at, first, second)) in pairs.enumerate() {
            let values = first.1.iter().flat_map(|one| second.1.map(|other| (one, other)));
            for (turn, (one, other)) in values.enumerate() {
                let baseline = BASELINES[(at + number + turn) % BASELINES.len()];
                let setting = vec![format!("{}={one}", first.0), format!("{}={other}", second.0)];
                let case = KillCase { victim: KillVictim::Set, baseline, setting };
                self.pair.new_pair(baseline)?;
                let before = self.pair.read_interfaces()?;
                let went = self.run_latput(case.set_arguments(&["--confirm-within", "60s"]))?;
                if went {
                    ensure!(self.run_latput(["restore"])?, "{case:?}: restore failed");
                }
                self.pair.settle()?;
                self.check_unchanged(&before, "after there and back")
                    .with_context(|| format!("{case:?}"))?;
                *(if went { &mut done } else { &mut refused }) += 1;
            }
        }
        println!("{done} pairs of values there and back, {refused} refused: 0 left different");
        Ok(())
    }
}

/// Waits for the end; its exit code. What takes too long is killed.
fn wait_for_exit(mut child: Child) -> Result<Option<i32>> {
    let deadline = Instant::now() + WHOLE;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait")? {
            return Ok(status.code());
        }
        if Instant::now() > deadline {
            child.kill().context("cannot kill")?;
            child.wait().context("cannot wait")?;
            bail!("a process has not ended in {} s", WHOLE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn sleep_random(rng: &mut SeededRng, most_us: usize) {
    std::thread::sleep(Duration::from_micros(rng.next_below(most_us) as u64));
}

/// The lines that differ.
fn diff_lines(before: &str, after: &str) -> String {
    let [before, after] = [before, after].map(|text| text.lines().collect::<BTreeSet<_>>());
    let gone = before.difference(&after).map(|line| format!("- {line}"));
    let new = after.difference(&before).map(|line| format!("+ {line}"));
    gone.chain(new).collect::<Vec<_>>().join("\n")
}
