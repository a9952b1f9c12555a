//! The words that say where trials run: a testbed, or one or two hosts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use latput_controller::discover::{self, DiscoveredHosts};
use latput_experiment::Testbed;
use latput_experiment::testbed::TestbedKind;
use latput_linux::confine::{self, UsedFiles};
use latput_linux::files;
use latput_linux::route::Route;
use latput_peers::Peer;
use latput_reach::broker::message::{HostInterface, LaunchCommand, RunPermissions};
use latput_reach::host_spec::own_way;
use latput_reach::target::{InterfaceSelector, ReachMethod, Target};
use latput_trial::program::{Program, RunsOn};
use latput_trial::{Plan, Results};
use latput_units::IntoSet;
use latput_vm::GuestSpec;

use crate::context::{CliContext, keep_only_files};
use crate::exit::CliError;
use crate::output;

/// Before the name of a system to simulate.
pub(crate) const SIMULATED: &str = "sim:";
/// Before the driver of a guest's network cards.
const EMULATED: &str = "vm:";

/// Flags for hosts that are named in a word each.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct HostArgs {
    /// The host that makes the traffic, in one word; the host before it is the system under test.
    #[arg(long, value_name = "HOST")]
    peer: Option<String>,
    /// The static latput to copy to hosts without this version; by default this program.
    #[arg(long, value_name = "FILE")]
    bring: Option<PathBuf>,
    /// Save the hosts that were found as a testbed file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

impl HostArgs {
    /// The flags that name the same hosts again, as words.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let peer = self.peer.iter().flat_map(|peer| ["--peer".to_owned(), peer.clone()]);
        let bring = self.bring.iter().map(|file| file.display().to_string());
        peer.chain(bring.flat_map(|file| ["--bring".to_owned(), file])).collect()
    }

    /// The testbed that a word names, for this plan. No host has said anything yet.
    pub(crate) fn resolve_testbed(
        &self,
        word: &str,
        plan: &Plan,
    ) -> Result<NamedTestbed<'_>, CliError> {
        let source = if plan.live().is_some() {
            TestbedSource::Alone(self.one_target(word)?)
        } else if let Some(named) = self.named_hosts(word)? {
            return Ok(named);
        } else if let Some(peer) = Peer::parse(word) {
            let peer = peer.map_err(latput_runner::Error::from)?;
            TestbedSource::Testbed(Testbed::third_party(peer, plan)?)
        } else {
            let name = (word.strip_prefix(SIMULATED), word.strip_prefix(EMULATED));
            TestbedSource::Testbed(match (word, name) {
                ("loopback", _) => Testbed::create_loopback(),
                ("vm", _) => Testbed::from_guest(GuestSpec::default()),
                (_, (Some(system), _)) => Testbed::from_system(system, plan)?,
                (_, (None, Some(guest))) => Testbed::from_guest(guest.parse()?),
                (file, (None, None)) => Testbed::from_file(Path::new(file))?,
            })
        };
        Ok(NamedTestbed { args: self, word: word.to_owned(), source })
    }

    /// The lab or the hosts of a word; `None` where it names neither.
    pub(crate) fn named_hosts(&self, word: &str) -> Result<Option<NamedTestbed<'_>>, CliError> {
        let named = |source| Ok(Some(NamedTestbed { args: self, word: word.to_owned(), source }));
        if self.peer.is_some() || is_hosts(word) {
            let targets = self.parse_targets(word)?;
            if let Some(path) = &self.save {
                files::check(path)?;
            }
            return named(TestbedSource::Hosts(targets));
        }
        for (flag, is_given) in [("--bring", self.bring.is_some()), ("--save", self.save.is_some())]
        {
            if is_given {
                let message =
                    format!("{flag} is for hosts such as ssh://root@server, not for `{word}`");
                return Err(CliError::usage(message));
            }
        }
        if word == "lab" { named(TestbedSource::Lab) } else { Ok(None) }
    }

    /// The hosts of a word, or those of the testbed file of this name.
    fn hosts_or_file(&self, word: &str) -> Result<NamedTestbed<'_>, CliError> {
        match self.named_hosts(word)? {
            Some(place) => Ok(place),
            None => Ok(self.of_testbed(Testbed::from_file(Path::new(word))?)),
        }
    }

    /// The hosts that measured some results: those of a word or of the testbed file of this name, or the one host of a run on
    /// live traffic.
    pub(crate) fn hosts_of(
        &self,
        word: &str,
        results: &Results,
    ) -> Result<NamedTestbed<'_>, CliError> {
        if !results.is_live() || !is_hosts(word) {
            return self.hosts_or_file(word);
        }
        let source = TestbedSource::Alone(self.one_target(word)?);
        Ok(NamedTestbed { args: self, word: word.to_owned(), source })
    }

    /// The ways and the interfaces that [`Self::hosts_of`] may come to, before the results are read: a host alone may be
    /// all, or the other end of this one. `also` is an interface that is allowed as well.
    pub(crate) fn allowed_for(
        &self,
        word: &str,
        also: Option<&str>,
    ) -> Result<(Vec<LaunchCommand>, BTreeSet<HostInterface>), CliError> {
        if self.peer.is_some() || !is_hosts(word) || Target::split_targets(word).len() > 1 {
            let place = self.hosts_or_file(word)?;
            return Ok((place.ways(), place.interfaces(also)));
        }
        let here = Target { reach: ReachMethod::Here, at: None, cpus: None };
        let ways = [Target::parse(word)?, here].map(|target| target.launch_command(self.bring()));
        let interface = |way: &LaunchCommand| HostInterface { way: way.clone(), name: None };
        let interfaces = ways.iter().map(interface).into_set();
        Ok((ways.into(), interfaces))
    }

    /// The way to the host that makes the traffic, where it is named by itself.
    pub(crate) fn peer_way(&self) -> Result<Option<LaunchCommand>, CliError> {
        let way = |peer: &str| Ok(Target::parse(peer)?.launch_command(self.bring.as_deref()));
        self.peer.as_deref().map(way).transpose()
    }

    /// Whether the host that makes the traffic is named by itself.
    pub(crate) const fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// The latput to take along.
    pub(crate) fn bring(&self) -> Option<&Path> {
        self.bring.as_deref()
    }

    /// The testbed file to write.
    pub(crate) fn save(&self) -> Option<&Path> {
        self.save.as_deref()
    }

    /// A testbed that is known already.
    pub(crate) fn of_testbed(&self, testbed: Testbed) -> NamedTestbed<'_> {
        NamedTestbed {
            args: self,
            word: testbed.name.clone(),
            source: TestbedSource::Testbed(testbed),
        }
    }

    /// The one host that has live traffic.
    fn one_target(&self, word: &str) -> Result<Target, CliError> {
        if self.peer.is_some() || self.save.is_some() {
            let message = "a run on live traffic has one host: leave out --peer and --save";
            return Err(CliError::usage(message));
        }
        let words = Target::split_targets(word);
        let [_] = words[..] else { return Err(latput_runner::Error::NoLiveTraffic.into()) };
        if !is_hosts(word) {
            return Err(latput_runner::Error::NoLiveTraffic.into());
        }
        Ok(Target::parse(word)?)
    }

    fn parse_targets(&self, word: &str) -> Result<[Target; 2], CliError> {
        let mut words = Target::split_targets(word);
        words.extend(self.peer.as_deref());
        let here = Target { reach: ReachMethod::Here, at: None, cpus: None };
        match words.as_slice() {
            [sut, generator] => Ok([Target::parse(sut)?, Target::parse(generator)?]),
            [sut] if Target::is_told_by(sut) => Ok([Target::parse(sut)?, here]),
            [sut] => Err(CliError::usage(format!(
                "`{sut}` is an interface of this host. Name the host at the other end too: `--peer ssh://root@client`"
            ))),
            _ => Err(CliError::usage(
                "only two hosts can be named here: for more use a testbed file",
            )),
        }
    }

    fn print_discovered(&self, found: &DiscoveredHosts) -> Result<(), CliError> {
        for said in &found.said {
            output::print_remark(&format!("latput: {said}"));
        }
        for warning in &found.warnings {
            output::print_remark(&format!("latput: warning: {warning}"));
        }
        if let Some(path) = &self.save {
            files::replace(path, found.file.as_bytes())?;
            output::print_remark(&format!("latput: testbed: {}", path.display()));
        }
        Ok(())
    }
}

/// Where trials run, as far as that is known before a host has said anything.
#[derive(Debug)]
pub(crate) struct NamedTestbed<'a> {
    args: &'a HostArgs,
    word: String,
    source: TestbedSource,
}

#[derive(Debug)]
enum TestbedSource {
    Lab,
    /// The system under test and the generator.
    Hosts([Target; 2]),
    /// The host with live traffic.
    Alone(Target),
    Testbed(Testbed),
}

impl NamedTestbed<'_> {
    /// Gives up the rights of this process, but for using `files`. A broker keeps them, and starts the agents of these
    /// hosts. Nothing is given up where there are none, nor by a process without rights. To be called before a
    /// results file or a host is read, and before a thread is started.
    pub(crate) fn give_up_rights(
        &self,
        plan: Option<&Plan>,
        files: &UsedFiles<'_>,
        context: &CliContext,
    ) -> Result<(), CliError> {
        let outputs = files.outputs.iter().copied().chain(self.args.save.as_deref());
        let files = UsedFiles::new(files.reads.iter().copied(), outputs);
        if let TestbedSource::Testbed(Testbed { kind: TestbedKind::Simulator(_), .. }) =
            &self.source
        {
            return if confine::has_capabilities() { keep_only_files(&files) } else { Ok(()) };
        }
        let mut ways = self.ways();
        let lab = matches!(self.source, TestbedSource::Lab) && Testbed::can_create_lab();
        let guest = match &self.source {
            TestbedSource::Testbed(Testbed { kind: TestbedKind::Guest(spec), .. }) => Some(*spec),
            _ => None,
        };
        if ways.is_empty() && !lab && guest.is_none() {
            return Ok(());
        }
        let runs_here = |program: &Program| program.on == RunsOn::Controller;
        let is_here = plan.is_some_and(|plan| plan.programs().any(runs_here));
        ways.extend(is_here.then(own_way));
        let programs = plan.is_some_and(Plan::runs_programs);
        let permitted = RunPermissions { ways, lab, guest, programs, ..RunPermissions::default() };
        context.leave_rights_to_broker(&permitted, &files)
    }

    /// How its hosts are reached; empty where latput makes them.
    pub(crate) fn ways(&self) -> Vec<LaunchCommand> {
        let bring = self.args.bring.as_deref();
        match &self.source {
            TestbedSource::Lab => Vec::new(),
            TestbedSource::Hosts(targets) => {
                targets.iter().map(|target| target.launch_command(bring)).collect()
            }
            TestbedSource::Alone(target) => vec![target.launch_command(bring)],
            TestbedSource::Testbed(testbed) => testbed.launch_commands(),
        }
    }

    /// The interfaces of its hosts: those of a testbed file and `also` this one, and any where they are found out.
    pub(crate) fn interfaces(&self, also: Option<&str>) -> BTreeSet<HostInterface> {
        let interface = |way: LaunchCommand, name: Option<&str>| HostInterface {
            way,
            name: name.map(str::to_owned),
        };
        match &self.source {
            TestbedSource::Testbed(Testbed { kind: TestbedKind::Hosts(hosts), .. }) => hosts
                .iter()
                .flat_map(|host| {
                    also.into_iter()
                        .chain([host.interface.as_str()])
                        .map(|name| interface(host.launch_command(), Some(name)))
                })
                .into_set(),
            _ => self.ways().into_iter().map(|way| interface(way, None)).into_set(),
        }
    }

    /// The testbed. What was found of hosts is told.
    pub(crate) fn open(self, context: &CliContext) -> Result<Testbed, CliError> {
        let bring = self.args.bring.as_deref();
        match self.source {
            TestbedSource::Lab => Ok(Testbed::create_lab()?),
            TestbedSource::Testbed(testbed) => Ok(testbed),
            TestbedSource::Hosts([sut, generator]) => {
                let between = format!("{sut} and {generator}");
                output::print_remark(&format!("latput: looking for the path between {between}"));
                let found = discover::discover_hosts([&sut, &generator], bring, &context.stop)?;
                self.args.print_discovered(&found)?;
                Ok(Testbed::from_discovered(&found))
            }
            TestbedSource::Alone(target) => {
                let (host, warnings) =
                    discover::discover_single_host(&target, bring, &context.stop)?;
                for warning in warnings {
                    output::print_remark(&format!("latput: warning: {warning}"));
                }
                Ok(Testbed::from_single_host(&self.word, host))
            }
        }
    }
}

/// The hosts of a command line as one word: `first`, and the words at the front of `more` that name hosts, which are
/// taken from there.
pub(crate) fn take_hosts(first: String, more: &mut Vec<String>) -> String {
    if !is_hosts(&first) {
        return first;
    }
    let is_field = |word: &str| word.contains('=') && !Target::is_told_by(word);
    let count = more.iter().take_while(|word| !is_field(word) && is_hosts(word)).count();
    let hosts: Vec<String> = [first].into_iter().chain(more.drain(..count)).collect();
    hosts.join(",")
}

/// Whether a word names hosts: it begins as one, or is an interface of this host and no file.
pub(crate) fn is_hosts(word: &str) -> bool {
    if Target::is_told_by(word) {
        return true;
    }
    // The name of an interface alone, without the CPUs behind it.
    let name = |target: Target| match target.at {
        Some(InterfaceSelector::Interface(name)) => Some(name),
        _ => None,
    };
    let first = Target::parse(Target::split_targets(word)[0]).ok().and_then(name);
    let is_interface =
        || first.is_some_and(|first| Route::open().is_ok_and(|route| route.link(&first).is_ok()));
    !names_testbed(word) && !Path::new(word).exists() && is_interface()
}

/// Whether a word names a testbed that latput has itself: `lab`, `loopback`, `vm`, a system of the simulator or a guest.
pub(crate) fn names_testbed(word: &str) -> bool {
    matches!(word, "lab" | "loopback" | "vm")
        || word.starts_with(SIMULATED)
        || word.starts_with(EMULATED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_hosts_are_one_target() {
        for (words, target, left) in [
            (&["netns://a", "netns://b", "burst=4"][..], "netns://a,netns://b", &["burst=4"][..]),
            (&["netns://a,netns://b", "burst=4"], "netns://a,netns://b", &["burst=4"]),
            (&["netns://a?cpus=0", "netns://b?cpus=1"], "netns://a?cpus=0,netns://b?cpus=1", &[]),
            (&["ssh://a", "rate=1G", "ssh://b"], "ssh://a", &["rate=1G", "ssh://b"]),
            (&["loopback", "burst=4"], "loopback", &["burst=4"]),
            (&["sim:server-10g", "netns://b"], "sim:server-10g", &["netns://b"]),
            (&["lo", "netns://b"], "lo,netns://b", &[]),
        ] {
            let mut more: Vec<String> = words[1..].iter().map(|&word| word.to_owned()).collect();
            assert_eq!(take_hosts(words[0].to_owned(), &mut more), target, "{words:?}");
            assert_eq!(more, left, "{words:?}");
        }
    }
}
