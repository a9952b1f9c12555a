//! Testbed files: their hosts, and how to reach them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use latput_linux::files::{self, FileError};
use latput_protocol::control::LEASE;
use latput_trial::observation::Role;
use latput_units::file_words::{line_of, problem_of};
use latput_units::{CpuSet, Nanos};
use serde::Deserialize;

use crate::error::Error;
use crate::host_spec::{HostSpec, own_program};
use crate::target::{FORMS, Target};

/// Allowed leases.
const LEASES: RangeInclusive<Nanos> = Nanos::from_s(1)..=Nanos::from_s(600);

/// Most generators of a testbed: each is an agent with its own control line.
const MOST_GENERATORS: usize = 64;

/// Reads the hosts of a testbed file.
pub fn read_hosts(path: &Path) -> Result<Vec<HostSpec>, Error> {
    let file = path.display().to_string();
    let read = files::read_text(path, files::TEXT_BYTES_MOST);
    let text = read.map_err(|FileError { problem, .. }| Error::TestbedFile {
        file: file.clone(),
        problem: if path.exists() {
            problem
        } else {
            format!(
                "there is no testbed file and no interface of this name (`latput show` lists those of this host): \
                 name `lab`, `loopback`, `sim:SYSTEM`, a testbed file, or hosts ({FORMS})"
            )
        },
    })?;
    parse_hosts(&file, &text)
}

/// Parses the text of a testbed file. `file` is its name in errors.
pub fn parse_hosts(file: &str, text: &str) -> Result<Vec<HostSpec>, Error> {
    let error = |problem: String| Error::TestbedFile { file: file.to_owned(), problem };
    let parsed: TestbedFile = toml::from_str(text).map_err(|parsed| {
        let at = parsed.span().map(|span| span.start);
        let problem = problem_of(parsed.message(), text, at, &WANTED);
        error(format!("line {}: {problem}", line_of(text, at.unwrap_or(0))))
    })?;
    if parsed.schema != 1 {
        return Err(error(format!("schema must be 1, not {}", parsed.schema)));
    }
    let lease = match &parsed.lease {
        None => LEASE,
        Some(text) => text
            .parse()
            .ok()
            .filter(|lease| LEASES.contains(lease))
            .ok_or_else(|| error(format!("lease must be 1s to 10min, not `{text}`")))?,
    };
    let hosts: Vec<HostSpec> = parsed
        .host
        .into_iter()
        .map(|(name, host)| host.into_host_spec(name, lease))
        .collect::<Result<_, _>>()
        .map_err(&error)?;
    check_roles(&hosts).map_err(&error)?;
    if let Some(host) = hosts.iter().find(|h| h.cpus.as_ref().is_some_and(CpuSet::is_empty)) {
        return Err(error(format!("host `{}`: `cpus` names no CPU", host.name)));
    }
    Ok(hosts)
}

/// Refuses a testbed with missing, duplicate or unreachable roles.
fn check_roles(hosts: &[HostSpec]) -> Result<(), String> {
    for (role, plural, allowed, needs) in [
        (Role::Sut, "systems under test", 1..=1, "exactly one host needs"),
        (Role::Generator, "generators", 1..=MOST_GENERATORS, "1 to 64 hosts need"),
        (Role::Observer, "observers", 0..=1, "at most one host may have"),
    ] {
        let count = hosts.iter().filter(|host| host.role == role).count();
        if !allowed.contains(&count) {
            return Err(format!("{count} {plural}: {needs} `role = \"{}\"`", role.name()));
        }
    }
    let sut = hosts.iter().find(|host| host.role == Role::Sut);
    let other_family =
        |host: &&HostSpec| sut.is_some_and(|sut| sut.address.is_ipv4() != host.address.is_ipv4());
    if let Some(host) = hosts.iter().find(other_family) {
        return Err(format!(
            "host `{}`: its address and the system under test's must both be IPv4 or both IPv6",
            host.name
        ));
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestbedFile {
    schema: u32,
    lease: Option<String>,
    #[serde(default)]
    host: BTreeMap<String, HostFile>,
}

/// Forms of the keys whose values are tables or words.
const WANTED: [(&str, &str); 3] = [
    ("host", "a table of tables: `[host.NAME]`, and below each lines such as `role = \"sut\"`"),
    ("role", "\"sut\", \"generator\" or \"observer\""),
    ("via", "a list of words such as `[\"ssh\", \"root@server\"]`"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostFile {
    role: Role,
    target: Option<String>,
    bring: Option<PathBuf>,
    #[serde(default)]
    via: Vec<String>,
    latput: Option<String>,
    interface: String,
    address: String,
    cpus: Option<CpuSet>,
    allow_link_reset: Option<String>,
}

impl HostFile {
    fn into_host_spec(self, name: String, lease: Nanos) -> Result<HostSpec, String> {
        if self.allow_link_reset.as_ref().is_some_and(|named| *named != self.interface) {
            return Err(format!(
                "host `{name}`: `allow_link_reset` must repeat `interface`, which is \"{}\"",
                self.interface
            ));
        }
        let address =
            resolve_address(&self.address).map_err(|why| format!("host `{name}`: {why}"))?;
        let (reach, may_be_brought) =
            self.resolve_launch_command().map_err(|why| format!("host `{name}`: {why}"))?;
        Ok(HostSpec {
            interface: self.interface,
            address,
            cpus: self.cpus,
            is_named_twice: self.allow_link_reset.is_some(),
            lease,
            may_be_brought,
            ..HostSpec::from_launch_command(&name, self.role, reach)
        })
    }

    /// `via` and the latput there, and whether it may have to be taken along.
    fn resolve_launch_command(&self) -> Result<((Vec<String>, String), bool), String> {
        let own = own_program();
        let Some(target) = &self.target else {
            if self.bring.is_some() {
                return Err("`bring` goes with `target`".to_owned());
            }
            let program = self.latput.clone();
            let program = program
                .unwrap_or_else(|| if self.via.is_empty() { own } else { "latput".to_owned() });
            return Ok(((self.via.clone(), program), false));
        };
        if !self.via.is_empty() || self.latput.is_some() {
            return Err("`target` takes the place of `via` and `latput`".to_owned());
        }
        if !Target::is_told_by(target) {
            return Err(format!("target `{target}` is not ssh://, netns:// or exec:"));
        }
        let target = Target::parse(target).map_err(|error| error.to_string())?;
        if target.at.is_some() || target.cpus.is_some() {
            return Err("`target` must not repeat `interface`, `address` and `cpus`".to_owned());
        }
        Ok((target.via_command(&own, self.bring.as_deref()), target.is_elsewhere()))
    }
}

/// An IP address, or the first address of a host name.
fn resolve_address(address: &str) -> Result<IpAddr, String> {
    let found = latput_names::resolve(address).map_err(|error| {
        format!(
            "address `{address}` is not an IP address, and it does not resolve as a name: {error}"
        )
    })?;
    Ok(found[0])
}

#[cfg(test)]
mod tests {
    use latput_protocol::control::LinkReset;
    use latput_trial::Plan;

    use super::*;

    const GOOD: &str = r#"
        schema = 1
        [host.sut]
        role = "sut"
        via = ["ssh", "root@sut"]
        interface = "eth2"
        address = "192.0.2.10"
        cpus = "0-3"
        [host.load]
        role = "generator"
        interface = "eth1"
        address = "192.0.2.11"
    "#;

    #[test]
    fn wrong_values_are_told_in_file_words() {
        let whole = format!(
            "lease = \"30s\"\n{GOOD}\nlatput = \"latput\"\ntarget = \"ssh://b\"\nbring = \"l\"\nallow_link_reset = \"eth1\""
        );
        let whole: toml::Table = whole.parse().unwrap();
        let refused = latput_testkit::check_wrong_values(&whole, |text| {
            parse_hosts("rack.toml", text).err().map(|error| error.to_string())
        });
        assert!(refused > 100, "{refused}");
        for text in ["no-such-key = 1", "schema = 1\n[host.a]\nno-such-key = 1"] {
            let problem = parse_hosts("rack.toml", text).unwrap_err().to_string();
            for key in problem.split('`').skip(3).step_by(2) {
                assert!(
                    toml::to_string(&whole).unwrap().contains(key),
                    "`{key}` is not in the whole file"
                );
            }
        }
    }

    #[test]
    fn testbed_file_names_hosts_and_ways() {
        let hosts = parse_hosts("rack.toml", GOOD).unwrap();
        let sut = &hosts[1];
        assert_eq!((sut.name.as_str(), sut.program.as_str()), ("sut", "latput"));
        assert_eq!(sut.via, ["ssh", "root@sut"]);
        assert_eq!(sut.cpus.as_ref().unwrap().len(), 4);
        assert_eq!(sut.lease, LEASE);
        assert_eq!(sut.to_shell_line(&["restore"]), "ssh root@sut latput restore");
        let lease = GOOD.replace("schema = 1", "schema = 1\nlease = \"30s\"");
        let hosts = parse_hosts("rack.toml", &lease).unwrap();
        assert!(hosts.iter().all(|host| host.lease == Nanos::from_s(30)));
    }

    #[test]
    fn plan_and_testbed_allow_link_resets_separately() {
        let twice = GOOD.replace("eth2", "eth2\"\nallow_link_reset = \"eth2");
        let hosts = parse_hosts("rack.toml", &twice).unwrap();
        let mut plan = Plan::parse("built in", latput_trial::plan::BUILT_IN).unwrap();
        let under =
            |plan: &Plan| [&hosts[0], &hosts[1]].map(|host| host.with_plan(plan).link_reset);
        assert_eq!(under(&plan), [LinkReset::Refused; 2]);
        plan.method.allow_link_reset = true;
        assert_eq!(under(&plan), [LinkReset::Allowed, LinkReset::AllowedOnControl]);
    }

    const OBSERVER: &str = r#"
        [host.eye]
        role = "observer"
        interface = "eth0"
        address = "192.0.2.12"
    "#;

    #[test]
    fn several_generators_and_an_observer_are_a_testbed() {
        let more = GOOD.replace("host.sut", "host.load2").replace("\"sut\"", "\"generator\"");
        let more = more.replace("schema = 1", "").replace("host.load]", "host.load3]");
        let hosts = parse_hosts("rack.toml", &format!("{GOOD}{more}{OBSERVER}")).unwrap();
        let roles: Vec<&str> = hosts.iter().map(|host| host.role.name()).collect();
        assert_eq!(roles, ["observer", "generator", "generator", "generator", "sut"]);
    }

    #[test]
    fn examples_are_testbeds() {
        for (text, hosts) in [
            (include_str!("../../../examples/testbeds/rack.toml"), 2),
            (include_str!("../../../examples/testbeds/four-hosts.toml"), 4),
        ] {
            assert_eq!(parse_hosts("example", text).unwrap().len(), hosts);
        }
    }

    #[test]
    fn bad_testbed_is_refused_with_reason() {
        assert_parse_error(&GOOD.replace("schema = 1", "schema = 2"), "schema must be 1");
        assert_parse_error(&GOOD.replace("\"generator\"", "\"sut\""), "2 systems under test");
        assert_parse_error(&GOOD.replace("\"generator\"", "\"observer\""), "0 generators");
        assert_parse_error(
            &format!("{GOOD}{OBSERVER}{}", OBSERVER.replace(".eye", ".ear")),
            "2 observers",
        );
        assert_parse_error(&GOOD.replace("192.0.2.11", "2001:db8::1"), "must both be IPv4");
        assert_parse_error(&GOOD.replace("eth1\"", "eth1\"\ncolour = 1"), "colour");
        assert_parse_error(&GOOD.replace("192.0.2.10", "no where"), "does not resolve");
        assert_parse_error(&GOOD.replace("0-3", "3-0"), "list of CPUs");
        assert_parse_error(&GOOD.replace("0-3", "none"), "names no CPU");
        let twice = |name: &str| format!("eth2\"\nallow_link_reset = \"{name}");
        assert_parse_error(
            &GOOD.replace("eth2", &twice("eth1")),
            "must repeat `interface`, which is \"eth2\"",
        );
        assert_parse_error(
            &GOOD.replace("schema = 1", "schema = 1\nlease = \"500ms\""),
            "lease must be 1s to",
        );
        assert_parse_error(
            &GOOD.replace("schema = 1", "schema = 1\nlease = \"10\""),
            "lease must be 1s to",
        );
        assert_parse_error("", "schema");
    }

    #[track_caller]
    fn assert_parse_error(text: &str, expected: &str) {
        let problem = parse_hosts("rack.toml", text).unwrap_err().to_string();
        assert!(problem.contains(expected) && problem.contains("rack.toml"), "{problem}");
    }
}
