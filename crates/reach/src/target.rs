//! A host in one word: `ssh://root@server`, `netns://NAME`, `exec:COMMAND`, or an interface of this host.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use latput_units::CpuSet;

use crate::broker::message::LaunchCommand;
use crate::error::Error;
use crate::host_spec::own_program;

/// Forms of a host on a command line.
pub const FORMS: &str =
    "ssh://[USER@]HOST[:PORT], netns://NAME, exec:COMMAND or an interface of this host";

/// Asks ssh for no password and no new host key: nobody is there to answer. A host that is down is told of
/// within seconds.
const SSH: [&str; 6] = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"];
const SSH_SCHEME: &str = "ssh://";
const NAMESPACE_SCHEME: &str = "netns://";
const COMMAND_SCHEME: &str = "exec:";
/// This host, whichever of its interfaces is meant: in the name of a testbed of two hosts.
const THIS_HOST: &str = "this host";
/// Before the interface or the address that is meant, as in the zone of an IPv6 address.
const AT: char = '%';
/// Before the CPUs that are the host's, at the end.
const CPUS: &str = "?cpus=";
/// `IFNAMSIZ` without the NUL (`include/uapi/linux/if.h`).
const INTERFACE_BYTES_MOST: usize = 15;

/// A host, and which of its interfaces is meant where that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// How to get there.
    pub reach: ReachMethod,
    /// Interface or address that is meant there; `None`: find out.
    pub at: Option<InterfaceSelector>,
    /// The CPUs that are the host's; `None`: all, or a part where the other end is on the same machine.
    pub cpus: Option<CpuSet>,
}

/// How to get to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReachMethod {
    /// By the system's ssh.
    Ssh {
        /// `root@server`.
        destination: String,
        /// `None`: what ssh's configuration says.
        port: Option<u16>,
    },
    /// A network namespace of this host that `ip netns` knows.
    Namespace(String),
    /// By a command in front of the one that is to run there.
    Command(Vec<String>),
    /// This host.
    Here,
}

/// Interface or address that is meant on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceSelector {
    /// This interface.
    Interface(String),
    /// The interface with this address, and this one of its addresses.
    Address(IpAddr),
}

impl Target {
    /// Reads a word. An interface of this host is any word that could be the name of one.
    pub fn parse(word: &str) -> Result<Self, Error> {
        let refuse = |problem: &str| Error::Target {
            target: word.to_owned(),
            problem: format!(
                "{problem}: a host is {FORMS}, with %INTERFACE or %ADDRESS and ?cpus=0-3 behind it where needed"
            ),
        };
        if word.chars().any(char::is_control) {
            return Err(refuse("it has a control character"));
        }
        let (word, cpus) = split_cpus(word).map_err(refuse)?;
        if let Some(command) = word.strip_prefix(COMMAND_SCHEME) {
            let (command, at) = split_at(command);
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            if words.is_empty() {
                return Err(refuse("it names no command"));
            }
            return Ok(Self { reach: ReachMethod::Command(words), at, cpus });
        }
        if let Some(rest) = word.strip_prefix(SSH_SCHEME) {
            let (rest, at) = split_at(rest);
            let reach = parse_ssh(rest).map_err(refuse)?;
            return Ok(Self { reach, at, cpus });
        }
        if let Some(rest) = word.strip_prefix(NAMESPACE_SCHEME) {
            let (name, at) = split_at(rest);
            if name.is_empty() || name.starts_with('.') || name.contains('/') {
                return Err(refuse("it names no namespace"));
            }
            return Ok(Self { reach: ReachMethod::Namespace(name.to_owned()), at, cpus });
        }
        if word == THIS_HOST {
            return Ok(Self { reach: ReachMethod::Here, at: None, cpus });
        }
        let at = parse_selector(word)
            .ok_or_else(|| refuse("this is neither a host nor an interface"))?;
        Ok(Self { reach: ReachMethod::Here, at: Some(at), cpus })
    }

    /// Whether a word can only be a host: it begins as one.
    pub fn is_told_by(word: &str) -> bool {
        [SSH_SCHEME, NAMESPACE_SCHEME, COMMAND_SCHEME].iter().any(|scheme| word.starts_with(scheme))
    }

    /// The words of `A,B`. A command may have commas of its own: behind one only what begins as a host ends it. A list
    /// of CPUs may as well: behind one a digit goes on with it.
    pub fn split_targets(words: &str) -> Vec<&str> {
        let is_end = |place: usize| {
            let rest = &words[place + 1..];
            let is_listing =
                words[..place].contains(CPUS) && rest.starts_with(|c: char| c.is_ascii_digit());
            Self::is_told_by(rest) || !words.starts_with(COMMAND_SCHEME) && !is_listing
        };
        let commas = words.match_indices(',').map(|(place, _)| place);
        match commas.into_iter().find(|&place| is_end(place)) {
            Some(place) => vec![&words[..place], &words[place + 1..]],
            None => vec![words],
        }
    }

    /// Name of the host in a testbed.
    pub fn name(&self) -> String {
        match &self.reach {
            ReachMethod::Ssh { destination, .. } => {
                destination.rsplit('@').next().unwrap_or(destination).to_owned()
            }
            ReachMethod::Namespace(name) => name.clone(),
            ReachMethod::Command(words) => words.join(" "),
            ReachMethod::Here => "this-host".to_owned(),
        }
    }

    /// The command that runs `words` there, without bringing anything; `None` where a process of its own has to
    /// change over first, or need not.
    pub fn remote_command(&self, words: &[String]) -> Option<Vec<String>> {
        let before: Vec<String> = match &self.reach {
            ReachMethod::Ssh { destination, port } => {
                let port = port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]);
                let ssh = SSH.map(str::to_owned).into_iter().chain(port);
                ssh.chain(["--".to_owned(), destination.clone()]).collect()
            }
            ReachMethod::Command(before) => before.clone(),
            ReachMethod::Namespace(_) | ReachMethod::Here => return None,
        };
        Some(before.into_iter().chain(words.iter().cloned()).collect())
    }

    /// `via` of a testbed's host, and the latput to start there. `program` is this latput, which finds the way
    /// (`latput lab exec`) and takes itself along, or the `file`.
    pub fn via_command(&self, program: &str, file: Option<&Path>) -> (Vec<String>, String) {
        let exec = |options: &[String]| {
            let words = [program, "lab", "exec"].map(str::to_owned).into_iter();
            let reach = self.way_there().to_string();
            words.chain(options.iter().cloned()).chain([reach, "--".to_owned()]).collect()
        };
        match &self.reach {
            ReachMethod::Here => (Vec::new(), program.to_owned()),
            ReachMethod::Namespace(_) => (exec(&[]), program.to_owned()),
            ReachMethod::Ssh { .. } | ReachMethod::Command(_) => {
                let file = file.map(|file| vec!["--bring".to_owned(), file.display().to_string()]);
                (exec(&file.unwrap_or_default()), "latput".to_owned())
            }
        }
    }

    /// The same host, of which nothing else is said.
    #[must_use]
    pub fn way_there(&self) -> Self {
        Self { reach: self.reach.clone(), at: None, cpus: None }
    }

    /// How latput is started there, as by [`Self::via_command`].
    pub fn launch_command(&self, file: Option<&Path>) -> LaunchCommand {
        let (via, program) = self.via_command(&own_program(), file);
        LaunchCommand { via, program }
    }

    /// Whether latput may have to be taken there.
    pub const fn is_elsewhere(&self) -> bool {
        matches!(self.reach, ReachMethod::Ssh { .. } | ReachMethod::Command(_))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reach {
            ReachMethod::Ssh { destination, port: None } => write!(f, "{SSH_SCHEME}{destination}"),
            ReachMethod::Ssh { destination, port: Some(port) } => {
                let (user, host) = destination.rsplit_once('@').unwrap_or(("", destination));
                let user = if user.is_empty() { String::new() } else { format!("{user}@") };
                let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
                write!(f, "{SSH_SCHEME}{user}{host}:{port}")
            }
            ReachMethod::Namespace(name) => write!(f, "{NAMESPACE_SCHEME}{name}"),
            ReachMethod::Command(words) => write!(f, "{COMMAND_SCHEME}{}", words.join(" ")),
            ReachMethod::Here if self.at.is_none() => f.write_str(THIS_HOST),
            ReachMethod::Here => Ok(()),
        }?;
        let is_here = matches!(self.reach, ReachMethod::Here);
        match &self.at {
            Some(InterfaceSelector::Interface(name)) if is_here => f.write_str(name),
            Some(InterfaceSelector::Address(address)) if is_here => write!(f, "{address}"),
            Some(InterfaceSelector::Interface(name)) => write!(f, "{AT}{name}"),
            Some(InterfaceSelector::Address(address)) => write!(f, "{AT}{address}"),
            None => Ok(()),
        }?;
        self.cpus.as_ref().map_or(Ok(()), |cpus| write!(f, "{CPUS}{cpus}"))
    }
}

/// `[USER@]HOST[:PORT]`; an IPv6 address with a port is in brackets.
fn parse_ssh(text: &str) -> Result<ReachMethod, &'static str> {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, text),
    };
    let (host, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("its `[` is not closed")?;
            (host, rest.strip_prefix(':').or((!rest.is_empty()).then_some(rest)))
        }
        None if host.matches(':').count() == 1 => {
            host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port)))
        }
        None => (host, None),
    };
    let port = port
        .map(|port| {
            port.parse::<u16>()
                .ok()
                .filter(|&port| port > 0)
                .ok_or("its port must be a number from 1 to 65535")
        })
        .transpose()?;
    // A word that begins with `-` would be an option of ssh, and a shell runs ssh's `ProxyCommand` with the name in it.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:%-".contains(c);
    let is_bad =
        |text: &str| text.is_empty() || text.starts_with('-') || !text.chars().all(is_plain);
    if is_bad(host) || user.is_some_and(is_bad) {
        return Err("it names no host");
    }
    let destination = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
    Ok(ReachMethod::Ssh { destination, port })
}

/// Takes `?cpus=0-3` off the end. In a command it is that only where a list of CPUs follows.
fn split_cpus(text: &str) -> Result<(&str, Option<CpuSet>), &'static str> {
    let Some((rest, list)) = text.rsplit_once(CPUS) else { return Ok((text, None)) };
    match list.parse::<CpuSet>() {
        Ok(cpus) if !cpus.is_empty() => Ok((rest, Some(cpus))),
        _ if text.starts_with(COMMAND_SCHEME) => Ok((text, None)),
        _ => Err("its `cpus` must be a list of CPUs such as 0-3,8"),
    }
}

/// Takes `%INTERFACE` or `%ADDRESS` off the end.
fn split_at(text: &str) -> (&str, Option<InterfaceSelector>) {
    if text.ends_with(']') {
        return (text, None); // the zone of an address that is in brackets
    }
    let split = text.rsplit_once(AT).and_then(|(rest, word)| Some((rest, parse_selector(word)?)));
    split.map_or((text, None), |(rest, at)| (rest, Some(at)))
}

fn parse_selector(word: &str) -> Option<InterfaceSelector> {
    if let Ok(address) = word.parse() {
        return Some(InterfaceSelector::Address(address));
    }
    let is_name = !word.is_empty()
        && word.len() <= INTERFACE_BYTES_MOST
        && !matches!(word, "." | "..")
        && !word.contains(['/', ':', AT, ','])
        && !word.contains(char::is_whitespace);
    is_name.then(|| InterfaceSelector::Interface(word.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_round_trips_as_one_word() {
        let ssh = |destination: &str, port| ReachMethod::Ssh {
            destination: destination.to_owned(),
            port,
        };
        let command =
            |words: &str| ReachMethod::Command(words.split(' ').map(str::to_owned).collect());
        let on = |name: &str| Some(InterfaceSelector::Interface(name.to_owned()));
        for (word, reach, at) in [
            ("ssh://server", ssh("server", None), None),
            ("ssh://root@server:2222", ssh("root@server", Some(2222)), None),
            ("ssh://root@server%eth1", ssh("root@server", None), on("eth1")),
            (
                "ssh://root@server%10.0.0.1",
                ssh("root@server", None),
                Some(InterfaceSelector::Address([10, 0, 0, 1].into())),
            ),
            ("ssh://root@[2001:db8::1]:22", ssh("root@2001:db8::1", Some(22)), None),
            ("ssh://2001:db8::1", ssh("2001:db8::1", None), None),
            ("netns://a%eth0", ReachMethod::Namespace("a".to_owned()), on("eth0")),
            ("exec:kubectl exec -i pod --", command("kubectl exec -i pod --"), None),
            ("exec:docker exec -i web%eth0", command("docker exec -i web"), on("eth0")),
            ("eth0", ReachMethod::Here, on("eth0")),
            ("this host", ReachMethod::Here, None),
        ] {
            let target = Target::parse(word).unwrap();
            assert_eq!(target, Target { reach, at, cpus: None }, "{word}");
            assert_eq!(target.to_string(), word);
        }
        let zone = Target::parse("ssh://root@[fe80::1%eth0]").unwrap();
        assert_eq!((zone.name().as_str(), zone.at), ("fe80::1%eth0", None));
    }

    #[test]
    fn cpus_of_a_host_are_behind_all_else() {
        for (word, there, cpus) in [
            ("netns://a?cpus=0", "netns://a", "0"),
            ("netns://a%eth0?cpus=0-3,8", "netns://a", "0-3,8"),
            ("ssh://root@server:22?cpus=1", "ssh://root@server:22", "1"),
            ("ssh://root@[2001:db8::1]:22?cpus=1", "ssh://root@[2001:db8::1]:22", "1"),
            ("exec:docker exec -i web?cpus=0,2", "exec:docker exec -i web", "0,2"),
            ("eth0?cpus=2-3", "this host", "2-3"),
        ] {
            let target = Target::parse(word).unwrap();
            assert_eq!(target.cpus.as_ref().map(ToString::to_string).as_deref(), Some(cpus));
            assert_eq!(
                (target.to_string().as_str(), target.way_there().to_string().as_str()),
                (word, there)
            );
        }
        let command = Target::parse("exec:sh -c curl_x?cpus=all").unwrap();
        assert_eq!(
            (command.cpus, command.reach),
            (
                None,
                ReachMethod::Command(["sh", "-c", "curl_x?cpus=all"].map(str::to_owned).to_vec())
            )
        );
    }

    #[test]
    fn bad_host_is_refused_with_forms() {
        for (word, problem) in [
            ("ssh://", "names no host"),
            ("ssh://-oProxyCommand=x", "names no host"),
            ("ssh://a b", "names no host"),
            ("ssh://`id`", "names no host"),
            ("ssh://$(id)", "names no host"),
            ("ssh://a;id", "names no host"),
            ("ssh://a|id", "names no host"),
            ("ssh://$USER@a", "names no host"),
            ("ssh://a\u{2028}b", "names no host"),
            ("ssh://@host", "names no host"),
            ("ssh://host:0", "port"),
            ("ssh://host:99999", "port"),
            ("ssh://[::1", "not closed"),
            ("netns://", "names no namespace"),
            ("netns://../x", "names no namespace"),
            ("exec: ", "names no command"),
            ("netns://a?cpus=", "list of CPUs"),
            ("ssh://a?cpus=3-0", "list of CPUs"),
            ("eth0?cpus=none", "list of CPUs"),
            ("ssh://host\u{1b}[2J", "control character"),
            ("a-name-that-is-too-long", "neither a host nor an interface"),
        ] {
            let said = Target::parse(word).unwrap_err().to_string();
            assert!(said.contains(problem) && said.contains(FORMS), "{word}: {said}");
        }
    }

    #[test]
    fn two_hosts_are_split_at_comma() {
        for (words, expected) in [
            ("ssh://a,ssh://b", &["ssh://a", "ssh://b"][..]),
            ("eth0,ssh://b", &["eth0", "ssh://b"]),
            ("ssh://a,eth0", &["ssh://a", "eth0"]),
            ("exec:a --of x,y,netns://b", &["exec:a --of x,y", "netns://b"]),
            (
                "netns://a?cpus=0,2,netns://b?cpus=1,3",
                &["netns://a?cpus=0,2", "netns://b?cpus=1,3"],
            ),
            ("netns://a?cpus=0,eth0?cpus=1", &["netns://a?cpus=0", "eth0?cpus=1"]),
            ("ssh://a", &["ssh://a"]),
        ] {
            assert_eq!(Target::split_targets(words), expected);
        }
    }

    #[test]
    fn host_is_reached_through_latput_without_prompt() {
        let target = Target::parse("ssh://root@server:2222%eth1").unwrap();
        let (via, latput) = target.via_command("/opt/latput", Some(Path::new("static")));
        let words = "/opt/latput lab exec --bring static ssh://root@server:2222 --";
        assert_eq!((via.join(" ").as_str(), latput.as_str()), (words, "latput"));
        let ssh = target.remote_command(&["sh".to_owned()]).unwrap().join(" ");
        assert_eq!(ssh, "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -p 2222 -- root@server sh");
        let (via, latput) = Target::parse("netns://a").unwrap().via_command("/opt/latput", None);
        assert_eq!(
            (via.join(" ").as_str(), latput.as_str()),
            ("/opt/latput lab exec netns://a --", "/opt/latput")
        );
    }
}
