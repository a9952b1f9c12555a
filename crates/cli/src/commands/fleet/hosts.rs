//! The hosts of a fleet, from the command line's words, and how each is asked.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use latput_reach::broker::command::{HostCommand, HostVerb, check_interface};
use latput_reach::broker::message::{HostInterface, LaunchCommand, RunPermissions};
use latput_reach::broker::process::HostProcess;
use latput_reach::target::{InterfaceSelector, Target};
use latput_fleet::inventory::{self, FleetHost, ListedHost};
use latput_fleet::{InventoryError, ansible};
use latput_linux::confine::UsedFiles;
use latput_linux::files;
use latput_load::Stop;
use latput_trial::program::split;
use latput_units::{IntoSet, Nanos};
use rustix::io::Errno;

use super::crew::{HostSlot, WAITED_FOR_MOST};
use super::guard_command;
use super::wanted::FleetWish;
use crate::commands::ask::{AskEnding, WaitObserver, ended_in_words, run_with_timeout};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// The inventory where none is named.
const INVENTORY: &str = "inventory.toml";
/// Most bytes of an inventory.
const INVENTORY_BYTES_MOST: u64 = 16 << 20;
/// Most time of a command that lists hosts.
const LIST_WITHIN: Duration = Duration::from_secs(60);
/// Program that reads Ansible's inventories.
const ANSIBLE: &str = "ansible-inventory";
/// Has it fail for a file that it cannot read. Otherwise it warns, and lists the hosts before the fault.
const MUST_PARSE_ALL: &str = "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED";

/// Which hosts, and how they are asked.
#[derive(Debug, clap::Args)]
pub(super) struct FleetArgs {
    /// The hosts: a file of groups (.toml), or an Ansible inventory, read by `ansible-inventory`; or its output with
    /// --list (.json) [default: inventory.toml].
    #[arg(short, long, value_name = "FILE", conflicts_with = "hosts_from")]
    inventory: Option<PathBuf>,
    /// A command that prints the hosts, one word a line, such as `ssh://root@web1%eth0`. No shell reads it.
    #[arg(long, value_name = "COMMAND")]
    hosts_from: Option<String>,
    /// Only the hosts of this group. May be repeated.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// The interface of hosts without one in the list.
    #[arg(long, value_name = "IFACE")]
    interface: Option<String>,
    /// Hosts to work on at a time; a host that is silent for a second does not count.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = parse_parallel)]
    parallel: usize,
    /// Longest time for one answer of one host (1s to 1h); give more where latput must be copied over a slow line.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_timeout)]
    timeout: Nanos,
    /// The static latput to copy to hosts without this version; by default this program.
    #[arg(long, value_name = "FILE")]
    bring: Option<PathBuf>,
}

fn parse_parallel(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=WAITED_FOR_MOST).contains(count));
    count.ok_or_else(|| format!("give a number from 1 to {WAITED_FOR_MOST}"))
}

fn parse_timeout(text: &str) -> Result<Nanos, String> {
    let time = Nanos::from_text_or_seconds(text).map_err(|error| error.to_string())?;
    let is_meant = (Nanos::from_s(1)..=Nanos::from_s(3600)).contains(&time);
    is_meant.then_some(time).ok_or_else(|| "must be 1s to 1h".to_owned())
}

/// The hosts with how to get to each.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) members: Vec<FleetMember>,
    /// Number of hosts of the list that cannot be reached as it says.
    pub(super) left_out: usize,
    pub(super) parallel: usize,
    /// Most time of one answer.
    pub(super) timeout: Nanos,
}

/// A host of the fleet.
#[derive(Clone, Debug)]
pub(super) struct FleetMember {
    pub(super) host: FleetHost,
    way: LaunchCommand,
}

/// Operations of a command that need rights.
#[derive(Debug, Default)]
pub(super) struct FleetRights<'a> {
    /// Whether it changes hosts.
    pub(super) changes: bool,
    /// The words of the user's guards, as given.
    pub(super) guards: &'a [Vec<String>],
    /// The files that it uses.
    pub(super) files: UsedFiles<'a>,
}

impl FleetArgs {
    /// Reads the hosts, and gives up the rights of this process but for `rights`. Then it reads the `wish`, which may be a
    /// stranger's: what it has takes the place of each host's setting.
    pub(super) fn open(
        &self,
        rights: &FleetRights<'_>,
        wish: impl FnOnce() -> Result<FleetWish, CliError>,
        context: &CliContext,
    ) -> Result<Fleet, CliError> {
        let (source, hosts, left_out) = self.list_hosts(context)?;
        let wrong = |error: InventoryError| CliError::usage(format!("{source}: {error}"));
        let members = hosts.into_iter().map(|host| self.resolve_member(host));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        context.leave_rights_to_broker(&broker_permissions(&members, rights), &rights.files)?;
        let wish = wish()?;
        let hosts = members.into_iter().map(|member| wish.applied_to(member.host)).collect();
        let (hosts, remarks) = inventory::once_each(hosts).map_err(wrong)?;
        for remark in remarks {
            output::print_remark(&format!("latput: {remark}"));
        }
        let members = hosts.into_iter().map(|host| self.resolve_member(host));
        let members = members.collect::<Result<_, _>>()?;
        Ok(Fleet { members, left_out, parallel: self.parallel, timeout: self.timeout })
    }

    /// Which hosts there are, who says so, and how many are left out.
    fn list_hosts(
        &self,
        context: &CliContext,
    ) -> Result<(String, Vec<FleetHost>, usize), CliError> {
        let (source, listed) = if let Some(line) = &self.hosts_from {
            (format!("--hosts-from `{line}`"), hosts_of_command(line, &context.stop)?)
        } else {
            let path = self.inventory.as_deref().unwrap_or(Path::new(INVENTORY));
            (path.display().to_string(), hosts_of_file(path, &context.stop)?)
        };
        let wrong = |error: InventoryError| CliError::usage(format!("{source}: {error}"));
        let mut listed = listed.map_err(wrong)?;
        listed.retain(|host| host.is_in(&self.group));
        tell_not_followed(&listed);
        let mut hosts = Vec::new();
        let mut left_out = 0;
        for host in listed {
            let name = host.name.as_deref().unwrap_or(&host.word).to_owned();
            // One that is wrong in an inventory that others use too says nothing of the rest.
            let may_be_left_out = host.is_from_ansible();
            let resolved = match host.left_out.clone() {
                Some(why) => Err(why),
                None => self.resolve_host(host),
            };
            match resolved {
                Ok(host) => hosts.push(host),
                Err(why) if may_be_left_out => {
                    output::print_remark(&format!("latput: host `{name}` is left out: {why}"));
                    left_out += 1;
                }
                Err(problem) => return Err(wrong(InventoryError { problem })),
            }
        }
        if hosts.is_empty() && left_out > 0 {
            return Err(CliError::usage(format!("{source}: every host is left out")));
        }
        if hosts.is_empty() {
            let groups = self.group.join(", ");
            return Err(CliError::usage(format!("{source}: no host is in group {groups}")));
        }
        Ok((source, hosts, left_out))
    }

    /// These options as words of a command line, as far as they say which hosts.
    pub(super) fn to_arg_text(&self) -> String {
        let path = |path: &PathBuf| path.display().to_string();
        let options = [
            ("-i", self.inventory.as_ref().map(path)),
            ("--hosts-from", self.hosts_from.clone()),
            ("--interface", self.interface.clone()),
            ("--bring", self.bring.as_ref().map(path)),
        ];
        let groups = self.group.iter().map(|group| ("--group", Some(group.clone())));
        let given = options.into_iter().chain(groups);
        let word = |(name, value): (&str, Option<String>)| {
            Some(format!(" {name} {}", latput_report::shell_word(&value?)))
        };
        given.filter_map(word).collect()
    }

    /// Most time of one answer.
    pub(super) const fn timeout(&self) -> Nanos {
        self.timeout
    }

    fn resolve_host(&self, listed: ListedHost) -> Result<FleetHost, String> {
        let ListedHost { name, word, group, interface, driver, setting, .. } = listed;
        let Target { reach, at, cpus } = Target::parse(&word).map_err(|error| error.to_string())?;
        if cpus.is_some() {
            return Err(format!("`{word}`: a fleet has no `?cpus=`: leave it out"));
        }
        let named = match at {
            Some(InterfaceSelector::Interface(name)) => Some(name),
            Some(InterfaceSelector::Address(_)) => {
                return Err(format!("`{word}`: name the interface, not its address"));
            }
            None => None,
        };
        let interface = named.or(interface).or_else(|| self.interface.clone());
        let interface = interface.ok_or_else(|| {
            format!("`{word}`: no interface is named: `interface = \"eth0\"` in its group, `{word}%eth0`, or \
                 --interface eth0")
        })?;
        check_interface(&interface)?;
        let target = Target { reach, at: None, cpus: None };
        Ok(FleetHost {
            name: name.unwrap_or_else(|| target.name()),
            group,
            reach: target.to_string(),
            interface,
            driver,
            setting,
        })
    }

    fn resolve_member(&self, host: FleetHost) -> Result<FleetMember, CliError> {
        let way = Target::parse(&host.reach)?.launch_command(self.bring.as_deref());
        Ok(FleetMember { host, way })
    }
}

/// Names what a list says of the way to its hosts, and that is not followed.
fn tell_not_followed(hosts: &[ListedHost]) {
    let mut by_variable: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for host in hosts {
        for variable in &host.not_followed {
            by_variable.entry(variable).or_default().extend(host.name.as_deref());
        }
    }
    for (variable, names) in by_variable {
        let more = match names.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        output::print_remark(&format!(
            "latput: `{variable}` is ignored ({}{more}): put options into ssh_config, use a key and sudo without \
             a password, or set latput_target",
            names.first().unwrap_or(&"?")
        ));
    }
}

/// Permissions of the broker for these hosts.
fn broker_permissions(members: &[FleetMember], rights: &FleetRights<'_>) -> RunPermissions {
    let interface = |member: &FleetMember| HostInterface {
        way: member.way.clone(),
        name: Some(member.host.interface.clone()),
    };
    let guards = members.iter().flat_map(|member| {
        rights.guards.iter().map(|words| guard_command::of_host(words, &member.host))
    });
    RunPermissions {
        interfaces: members.iter().map(interface).into_set(),
        changes: rights.changes,
        guards: guards.into_set(),
        ..RunPermissions::default()
    }
}

type Listed = Result<Vec<ListedHost>, InventoryError>;

fn hosts_of_file(path: &Path, stop: &Stop) -> Result<Listed, CliError> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let read = || {
        files::read_text(path, INVENTORY_BYTES_MOST).map_err(|error| {
            let message = format!("{error}: name the hosts with --inventory or --hosts-from");
            CliError { code: ExitReason::Usage, error: anyhow::Error::msg(message) }
        })
    };
    match extension {
        Some("toml") => Ok(inventory::parse(&read()?)),
        Some("json") => Ok(ansible::parse(&read()?)),
        _ => {
            read()?; // a file that is not there is told of in our words
            let mut command = Command::new(ANSIBLE);
            command.arg("-i").arg(path).arg("--list").env(MUST_PARSE_ALL, "True");
            let listing = said_by(&mut command, ANSIBLE, stop, unparsed_line).map_err(|why| {
                CliError::usage(format!(
                    "{}: {why}. A file that is not .toml is read by `{ANSIBLE}` (ansible-core). Where that is \
                     not installed, give its output with --list as a .json file",
                    path.display()
                ))
            })?;
            Ok(ansible::parse(&listing))
        }
    }
}

fn hosts_of_command(line: &str, stop: &Stop) -> Result<Listed, CliError> {
    let wrong = |why: String| CliError::usage(format!("--hosts-from `{line}`: {why}"));
    let words = split(line).map_err(|error| wrong(error.to_string()))?;
    let program = words.first().ok_or_else(|| wrong("it names no command".to_owned()))?;
    let mut command = Command::new(program);
    let said = said_by(command.args(&words[1..]), program, stop, last_line).map_err(wrong)?;
    Ok(inventory::parse_lines(&said))
}

/// Runs a command of this host, and returns its output. `explain` finds the reason of a failure in what it said.
fn said_by(
    command: &mut Command,
    program: &str,
    stop: &Stop,
    explain: fn(&str) -> String,
) -> Result<String, String> {
    let ending = run_with_timeout(
        || HostProcess::start_here(command),
        b"",
        LIST_WITHIN,
        &mut StopObserver(stop),
    );
    match ending.map_err(|error| format!("cannot start `{program}`: {error}"))? {
        AskEnding::Ended { code: Some(0), out, .. } => String::from_utf8(out)
            .map_err(|_| format!("`{program}` printed something that is not text")),
        AskEnding::Ended { code, err, .. } => {
            Err(format!("`{program}` {}: {}", ended_in_words(code), explain(&err)))
        }
        AskEnding::TimedOut => Err(format!("`{program}` took longer than {LIST_WITHIN:?}")),
        AskEnding::TooLong => Err(format!("`{program}` printed too much")),
        AskEnding::Stopped => Err("interrupted".to_owned()),
    }
}

/// The line in which `ansible-inventory` names the fault of a file: the one behind `Failed to parse FILE with ini plugin:`.
fn unparsed_line(said: &str) -> String {
    let mut lines = said.lines().skip_while(|line| !line.contains("Failed to parse ")).skip(1);
    lines.next().map_or_else(|| last_line(said), last_line)
}

/// The last line that says something, without latput's own beginning.
pub(super) fn last_line(said: &str) -> String {
    let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or("it printed nothing").trim_start_matches("latput: error: ");
    latput_report::make_printable(line)
}

/// Waits unless a stop comes.
struct StopObserver<'a>(&'a Stop);

impl WaitObserver for StopObserver<'_> {
    fn is_over(&self) -> bool {
        self.0.is_raised()
    }

    fn goes_on(&mut self, _: Duration) {}
}

/// When nobody waits for an answer any more.
#[derive(Clone, Copy, Debug)]
pub(super) enum StopCondition<'a> {
    /// After the first Ctrl-C.
    Stop(&'a Stop),
    /// After the second: what changes a host is not cut short by the first.
    SecondStop(&'a Stop),
}

/// Waits with a host's place in the crew.
pub(super) struct InPlace<'a, 'p> {
    pub(super) place: &'a mut HostSlot<'p>,
    pub(super) until: StopCondition<'a>,
}

impl StopCondition<'_> {
    /// Whether nobody waits any more.
    pub(super) fn is_over(self) -> bool {
        match self {
            Self::Stop(stop) => stop.is_raised(),
            Self::SecondStop(stop) => stop.is_raised_again(),
        }
    }
}

impl WaitObserver for InPlace<'_, '_> {
    fn is_over(&self) -> bool {
        self.until.is_over()
    }

    fn goes_on(&mut self, waited: Duration) {
        self.place.has_waited(waited);
    }
}

impl Fleet {
    /// The hosts, each with its wanted values.
    pub(super) fn hosts(&self) -> Vec<FleetHost> {
        self.members.iter().map(|member| member.host.clone()).collect()
    }

    /// Refuses hosts of which nothing is wanted.
    pub(super) fn must_want(&self) -> Result<(), CliError> {
        match self.members.iter().find(|member| member.host.setting.is_empty()) {
            None => Ok(()),
            Some(FleetMember { host, .. }) => Err(CliError::usage(format!(
                "there are no wanted values for {}: give KNOB=VALUE, or `settings` in group `{}`",
                host.name, host.group
            ))),
        }
    }
}

impl FleetMember {
    /// Runs its latput with this command and this input.
    pub(super) fn run_latput(
        &self,
        verb: &HostVerb,
        input: &str,
        timeout: Nanos,
        waiting: &mut dyn WaitObserver,
    ) -> io::Result<AskEnding> {
        let interface = &self.host.interface;
        let command = HostCommand { interface: interface.clone(), verb: verb.clone() };
        let begun = Instant::now();
        loop {
            let start = || HostProcess::start_command(&self.way, command.clone());
            let asked = run_with_timeout(start, input.as_bytes(), timeout.as_duration(), waiting);
            // Too many processes or open files for a moment: others end.
            let is_for_now = |error: &io::Error| {
                let few = [Errno::AGAIN, Errno::NOMEM, Errno::NFILE, Errno::MFILE];
                Errno::from_io_error(error).is_some_and(|errno| few.contains(&errno))
            };
            match asked {
                Err(error) if is_for_now(&error) && begun.elapsed() < timeout.as_duration() => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                other => return other,
            }
        }
    }

    /// The command line to be typed here that runs its latput: this program is called by its name.
    pub(super) fn command_line(&self, args: &[&str]) -> String {
        let own = std::env::current_exe().unwrap_or_default();
        let word = |word: &String| {
            if Path::new(word) == own {
                "latput".to_owned()
            } else {
                latput_report::shell_word(word)
            }
        };
        self.way.to_command_line(args).iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use latput_reach::target::FORMS;

    use super::*;

    fn parse_args(words: &[&str]) -> FleetArgs {
        #[derive(clap::Parser)]
        struct TestCli {
            #[command(flatten)]
            fleet: FleetArgs,
        }
        let words = std::iter::once(&"latput").chain(words);
        <TestCli as clap::Parser>::parse_from(words).fleet
    }

    fn listed_host(word: &str, interface: Option<&str>) -> ListedHost {
        let interface = interface.map(str::to_owned);
        ListedHost { word: word.to_owned(), interface, ..ListedHost::default() }
    }

    #[test]
    fn interface_comes_from_word_list_or_flag() {
        let given = parse_args(&["--interface", "ens1"]);
        for (word, interface, expected) in [
            ("ssh://a%eth1", Some("eth0"), "eth1"),
            ("ssh://a", Some("eth0"), "eth0"),
            ("ssh://a", None, "ens1"),
            ("eth7", None, "eth7"),
        ] {
            let host = given.resolve_host(listed_host(word, interface)).unwrap();
            assert_eq!(host.interface, expected, "{word}");
        }
        let host = given.resolve_host(listed_host("ssh://root@a:22", None)).unwrap();
        assert_eq!((host.name.as_str(), host.reach.as_str()), ("a", "ssh://root@a:22"));
    }

    #[test]
    fn wish_replaces_list_values_not_driver() {
        let setting = |text: &str| {
            let (knob, value) = latput_knobs::parse_assignment(text).unwrap();
            latput_knobs::Setting::from([(knob, value)])
        };
        let wish = FleetWish { setting: setting("mtu=1400"), driver: Some("ice".to_owned()) };
        let mut host = listed_host("ssh://a", Some("eth0"));
        host.setting = setting("gro=off");
        let found = wish.applied_to(parse_args(&[]).resolve_host(host.clone()).unwrap());
        assert_eq!(found.setting, setting("mtu=1400"));
        assert_eq!(found.driver.as_deref(), Some("ice"));
        host.driver = Some("veth".to_owned());
        assert_eq!(
            wish.applied_to(parse_args(&[]).resolve_host(host.clone()).unwrap()).driver.as_deref(),
            Some("veth")
        );
        let found = FleetWish::default().applied_to(parse_args(&[]).resolve_host(host).unwrap());
        assert_eq!(found.setting, setting("gro=off"));
    }

    #[test]
    fn host_that_cannot_be_asked_is_refused() {
        for (word, interface, problem) in [
            ("ssh://a", None, "no interface is named"),
            ("ssh://a%10.0.0.1", None, "not its address"),
            ("ssh://", None, FORMS),
            ("ssh://a", Some("eth0;reboot"), "cannot be named"),
            ("ssh://a", Some("--stdin"), "cannot be named"),
        ] {
            let said = parse_args(&[]).resolve_host(listed_host(word, interface)).unwrap_err();
            assert!(said.contains(problem), "{word}: {said}");
        }
    }

    #[test]
    fn last_line_tells_why() {
        assert_eq!(last_line("a\nlatput: error: b\n\n"), "b");
        assert_eq!(last_line(" \n"), "it printed nothing");
    }
}
