//! The hosts of a fleet, from a file or a command that lists them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use latput_knobs::Setting;
use latput_linux::files;
use latput_load::Stop;
use latput_reach::broker::command::check_interface;
use latput_reach::broker::process::HostProcess;
use latput_reach::target::{InterfaceSelector, Target};
use latput_trial::program::split;
use latput_units::Nanos;

use crate::ansible;
use crate::context::{Error, FleetContext, FleetProgress};
use crate::inventory::{self, FleetHost, ListedHost};
use crate::subprocess::{SubprocessEnding, Until, ended_in_words, last_line, run_with_timeout};

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
#[derive(Clone, Debug, Default)]
pub struct HostSource {
    /// A file of groups, or an Ansible inventory.
    pub inventory: Option<PathBuf>,
    /// A command that prints the hosts, in the place of an inventory.
    pub hosts_from: Option<String>,
    /// The groups that are meant; all where none is named.
    pub groups: Vec<String>,
    /// The interface of hosts without one in the list.
    pub interface: Option<String>,
    /// The static latput to take along; by default this program.
    pub bring: Option<PathBuf>,
    /// Hosts to work on at a time.
    pub parallel: usize,
    /// Most time of one answer.
    pub timeout: Nanos,
}

/// Values that every host is to have.
#[derive(Clone, Debug, Default)]
pub struct FleetWish {
    /// The values; empty if the inventory tells them.
    pub setting: Setting,
    /// The driver that they were measured with.
    pub driver: Option<String>,
}

impl FleetWish {
    /// A host with what is wanted of it.
    pub(crate) fn applied_to(&self, host: FleetHost) -> FleetHost {
        let FleetHost { setting, driver, .. } = &host;
        let setting = if self.setting.is_empty() { setting } else { &self.setting };
        let driver = driver.clone().or_else(|| self.driver.clone());
        FleetHost { setting: setting.clone(), driver, ..host }
    }
}

impl HostSource {
    /// The error of a problem of the list.
    pub(crate) fn list_error(&self, problem: impl Display) -> Error {
        Error::Usage(match &self.hosts_from {
            Some(line) => format!("--hosts-from `{line}`: {problem}"),
            None => format!("{}: {problem}", self.path().display()),
        })
    }

    fn path(&self) -> &Path {
        self.inventory.as_deref().unwrap_or(Path::new(INVENTORY))
    }

    /// Which hosts there are, and how many are left out.
    pub(crate) fn list_hosts(
        &self,
        context: FleetContext<'_>,
    ) -> Result<(Vec<FleetHost>, usize), Error> {
        let mut listed = match &self.hosts_from {
            Some(line) => self.read_command(line, context.stop)?,
            None => self.read_file(context.stop)?,
        };
        listed.retain(|host| host.is_in(&self.groups));
        tell_not_followed(&listed, context.progress);
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
                    context.progress.report_remark(&format!("host `{name}` is left out: {why}"));
                    left_out += 1;
                }
                Err(problem) => return Err(self.list_error(problem)),
            }
        }
        if hosts.is_empty() {
            return Err(if left_out > 0 {
                self.list_error("every host is left out")
            } else {
                self.list_error(format_args!("no host is in group {}", self.groups.join(", ")))
            });
        }
        Ok((hosts, left_out))
    }

    fn read_file(&self, stop: &Stop) -> Result<Vec<ListedHost>, Error> {
        let path = self.path();
        let read = || {
            files::read_text(path, INVENTORY_BYTES_MOST).map_err(|error| {
                Error::Usage(format!("{error}: name the hosts with --inventory or --hosts-from"))
            })
        };
        let listed = match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => inventory::parse(&read()?),
            Some("json") => ansible::parse(&read()?),
            _ => {
                read()?; // a file that is not there is told of in our words
                let mut command = Command::new(ANSIBLE);
                command.arg("-i").arg(path).arg("--list").env(MUST_PARSE_ALL, "True");
                let listing = run_lister(&mut command, ANSIBLE, stop, unparsed_line);
                ansible::parse(&listing.map_err(|why| {
                    self.list_error(format_args!(
                        "{why}. A file that is not .toml is read by `{ANSIBLE}` (ansible-core). Where that is \
                         not installed, give its output with --list as a .json file"
                    ))
                })?)
            }
        };
        listed.map_err(|error| self.list_error(error))
    }

    fn read_command(&self, line: &str, stop: &Stop) -> Result<Vec<ListedHost>, Error> {
        let words = split(line).map_err(|error| self.list_error(error))?;
        let program = words.first().ok_or_else(|| self.list_error("it names no command"))?;
        let mut command = Command::new(program);
        let said = run_lister(command.args(&words[1..]), program, stop, last_line);
        let listed = inventory::parse_lines(&said.map_err(|why| self.list_error(why))?);
        listed.map_err(|error| self.list_error(error))
    }

    /// These options as words of a command line, as far as they say which hosts.
    pub(crate) fn to_arg_text(&self) -> String {
        let path = |path: &PathBuf| path.display().to_string();
        let options = [
            ("-i", self.inventory.as_ref().map(path)),
            ("--hosts-from", self.hosts_from.clone()),
            ("--interface", self.interface.clone()),
            ("--bring", self.bring.as_ref().map(path)),
        ];
        let groups = self.groups.iter().map(|group| ("--group", Some(group.clone())));
        let given = options.into_iter().chain(groups);
        let word = |(name, value): (&str, Option<String>)| {
            Some(format!(" {name} {}", latput_report::shell_word(&value?)))
        };
        given.filter_map(word).collect()
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
            way: target.launch_command(self.bring.as_deref()),
            interface,
            driver,
            setting,
        })
    }
}

/// Names what a list says of the way to its hosts, and that is not followed.
fn tell_not_followed(hosts: &[ListedHost], progress: &dyn FleetProgress) {
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
        progress.report_remark(&format!(
            "`{variable}` is ignored ({}{more}): put options into ssh_config, use a key and sudo without \
             a password, or set latput_target",
            names.first().unwrap_or(&"?")
        ));
    }
}

/// Runs a command of this host, and returns its output. `explain` finds the reason of a failure in what it said.
fn run_lister(
    command: &mut Command,
    program: &str,
    stop: &Stop,
    explain: fn(&str) -> String,
) -> Result<String, String> {
    let start = || HostProcess::start_here(command);
    let ending = run_with_timeout(start, b"", LIST_WITHIN, &mut Until::Stop(stop));
    match ending.map_err(|error| format!("cannot start `{program}`: {error}"))? {
        SubprocessEnding::Ended { code: Some(0), out, .. } => String::from_utf8(out)
            .map_err(|_| format!("`{program}` printed something that is not text")),
        SubprocessEnding::Ended { code, err, .. } => {
            Err(format!("`{program}` {}: {}", ended_in_words(code), explain(&err)))
        }
        SubprocessEnding::TimedOut => Err(format!("`{program}` took longer than {LIST_WITHIN:?}")),
        SubprocessEnding::TooLong => Err(format!("`{program}` printed too much")),
        SubprocessEnding::Stopped => Err("interrupted".to_owned()),
    }
}

/// The line in which `ansible-inventory` names the fault of a file: the one behind `Failed to parse FILE with ini plugin:`.
fn unparsed_line(said: &str) -> String {
    let mut lines = said.lines().skip_while(|line| !line.contains("Failed to parse ")).skip(1);
    lines.next().map_or_else(|| last_line(said), last_line)
}

#[cfg(test)]
mod tests {
    use latput_reach::target::FORMS;

    use super::*;

    fn listed_host(word: &str, interface: Option<&str>) -> ListedHost {
        let interface = interface.map(str::to_owned);
        ListedHost { word: word.to_owned(), interface, ..ListedHost::default() }
    }

    #[test]
    fn interface_comes_from_word_list_or_flag() {
        let given = HostSource { interface: Some("ens1".to_owned()), ..HostSource::default() };
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
        let given = HostSource::default();
        let mut host = listed_host("ssh://a", Some("eth0"));
        host.setting = setting("gro=off");
        let found = wish.applied_to(given.resolve_host(host.clone()).unwrap());
        assert_eq!(found.setting, setting("mtu=1400"));
        assert_eq!(found.driver.as_deref(), Some("ice"));
        host.driver = Some("veth".to_owned());
        let found = wish.applied_to(given.resolve_host(host.clone()).unwrap());
        assert_eq!(found.driver.as_deref(), Some("veth"));
        let found = FleetWish::default().applied_to(given.resolve_host(host).unwrap());
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
            let said =
                HostSource::default().resolve_host(listed_host(word, interface)).unwrap_err();
            assert!(said.contains(problem), "{word}: {said}");
        }
    }
}
