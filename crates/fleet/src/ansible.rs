//! Hosts of an Ansible inventory, as `ansible-inventory -i FILE --list` prints it (JSON).
//!
//! Its form is that of Ansible's "developing inventory" guide: `_meta.hostvars` has every variable of every host, those
//! of its groups included; each other key is a group with `hosts` and `children`.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::Setting;
use latput_units::IntoSet;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::inventory::{InventoryError, ListedHost, UNGROUPED, check_name, counted, setting_of};

/// Groups that every inventory has, which say nothing of a host's kind.
const NO_KIND: [&str; 2] = ["all", "ungrouped"];

#[derive(Deserialize)]
struct Listing {
    #[serde(rename = "_meta", default)]
    meta: Meta,
    #[serde(flatten)]
    groups: BTreeMap<String, ListedGroup>,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default)]
    hostvars: BTreeMap<String, BTreeMap<String, Json>>,
}

#[derive(Deserialize)]
struct ListedGroup {
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    children: Vec<String>,
}

/// Variables of Ansible's that change the way to a host and that latput does not follow, each with those of its values
/// that change nothing.
const NOT_FOLLOWED: &[(&str, &[&str])] = &[
    ("ansible_become", &["false", "no", "False"]),
    ("ansible_ssh_common_args", &[""]),
    ("ansible_ssh_extra_args", &[""]),
    ("ansible_ssh_private_key_file", &[""]),
    ("ansible_ssh_pass", &[""]),
    ("ansible_password", &[""]),
];

/// Reads the listing. A host's group is the first, in the order of names, that lists it itself.
pub fn parse(text: &str) -> Result<Vec<ListedHost>, InventoryError> {
    let Listing { meta, groups } = serde_json::from_slice(text.as_bytes()).map_err(|error| {
        InventoryError::new(format!("not what `ansible-inventory --list` prints: {error}"))
    })?;
    let mut group_of: BTreeMap<&str, &str> = BTreeMap::new();
    let mut names: BTreeSet<&str> = meta.hostvars.keys().map(String::as_str).into_set();
    for (group, listed) in &groups {
        for host in &listed.hosts {
            names.insert(host);
            if !NO_KIND.contains(&group.as_str()) {
                group_of.entry(host).or_insert(group);
            }
        }
    }
    let all_groups = groups_of_hosts(&groups);
    let nothing = BTreeMap::new();
    let hosts = names.into_iter().map(|name| {
        let variables = Variables(meta.hostvars.get(name).unwrap_or(&nothing));
        let group = group_of.get(name).copied().unwrap_or(UNGROUPED);
        let groups = all_groups.get(name).cloned().unwrap_or_default();
        listed(name, group, &variables)
            .map(|host| ListedHost { groups, ..host })
            .map_err(|why| InventoryError::new(format!("host `{}`: {why}", name.escape_debug())))
    });
    counted(hosts.collect::<Result<_, _>>()?)
}

/// The groups of each host: those that list it, and those above them.
fn groups_of_hosts(groups: &BTreeMap<String, ListedGroup>) -> BTreeMap<&str, Vec<String>> {
    let mut parents: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, group) in groups {
        for child in &group.children {
            parents.entry(child).or_default().push(name);
        }
    }
    let mut of_hosts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, group) in groups {
        // A listing may be wrong, and have a group below itself.
        let mut above: BTreeSet<&str> = BTreeSet::new();
        let mut open = vec![name.as_str()];
        while let Some(group) = open.pop() {
            if above.insert(group) {
                open.extend(parents.get(group).into_iter().flatten());
            }
        }
        for host in &group.hosts {
            let known = of_hosts.entry(host).or_default();
            known.extend(above.iter().map(|group| (*group).to_owned()));
        }
    }
    of_hosts
}

struct Variables<'a>(&'a BTreeMap<String, Json>);

impl Variables<'_> {
    /// A text or a number.
    fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.0.get(name) {
            None | Some(Json::Null) => Ok(None),
            Some(value) => scalar(value).map(Some).map_err(|why| format!("{name}: {why}")),
        }
    }

    /// The first of several that is there.
    fn first(&self, names: &[&str]) -> Result<Option<String>, String> {
        for name in names {
            if let Some(text) = self.text(name)? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    fn setting(&self) -> Result<Setting, String> {
        let values = match self.0.get("latput_settings") {
            None | Some(Json::Null) => return Ok(Setting::new()),
            Some(Json::Object(values)) => values,
            Some(_) => return Err("latput_settings is not a dictionary of knobs".to_owned()),
        };
        let values = values.iter().map(|(knob, value)| Ok((knob.as_str(), scalar(value)?)));
        let values = values.collect::<Result<Vec<_>, String>>();
        values.and_then(setting_of).map_err(|why| format!("latput_settings: {why}"))
    }
}

fn scalar(value: &Json) -> Result<String, String> {
    match value {
        Json::String(text) => Ok(text.clone()),
        Json::Number(number) => Ok(number.to_string()),
        Json::Bool(on) => Ok(on.to_string()),
        other => Err(format!("`{other}` is neither a text, a number nor a truth value")),
    }
}

fn listed(name: &str, group: &str, variables: &Variables<'_>) -> Result<ListedHost, String> {
    for part in [name, group] {
        check_name(part).map_err(|error| error.problem)?;
    }
    let interface = variables.text("latput_interface")?;
    let (word, left_out) = match word(name, interface.as_deref(), variables)? {
        Ok(word) => (word, None),
        Err(why) => (String::new(), Some(why)),
    };
    let has_target = variables.text("latput_target")?.is_some();
    let is_given = |(name, unset): &&(&str, &[&str])| {
        variables.text(name).is_ok_and(|it| it.is_some_and(|it| !unset.contains(&it.as_str())))
    };
    let not_followed = NOT_FOLLOWED.iter().filter(|_| !has_target).filter(is_given);
    Ok(ListedHost {
        name: Some(name.to_owned()),
        word,
        group: group.to_owned(),
        interface,
        driver: variables.text("latput_driver")?,
        setting: variables.setting()?,
        left_out,
        not_followed: not_followed.map(|(name, _)| *name).collect(),
        ..ListedHost::default()
    })
}

/// The variable that `ansible-inventory` leaves as a template, among these.
fn template<'n>(variables: &Variables<'_>, names: &[&'n str]) -> Option<&'n str> {
    let is_template =
        |name: &&&str| variables.text(name).is_ok_and(|it| it.is_some_and(|it| it.contains("{{")));
    names.iter().find(is_template).copied()
}

/// How to get there: `latput_target`, else by the variables of Ansible's connection. The inner error says why this host is
/// left out, and the outer one that its variables are no values.
fn word(
    name: &str,
    interface: Option<&str>,
    variables: &Variables<'_>,
) -> Result<Result<String, String>, String> {
    if let Some(target) = variables.text("latput_target")? {
        return Ok(Ok(target));
    }
    let names = [
        "ansible_connection",
        "ansible_host",
        "ansible_ssh_host",
        "ansible_user",
        "ansible_ssh_user",
        "ansible_port",
        "ansible_ssh_port",
    ];
    if let Some(variable) = template(variables, &names) {
        return Ok(Err(format!(
            "its `{variable}` is a template, and `ansible-inventory` does not expand it: give it a plain \
             value, or set latput_target"
        )));
    }
    let connection = variables.text("ansible_connection")?;
    match connection.as_deref().map(|it| it.rsplit('.').next().unwrap_or(it)) {
        Some("local") => {
            return Ok(interface
                .map(str::to_owned)
                .ok_or_else(|| "it is this host: set latput_interface".to_owned()));
        }
        None | Some("ssh" | "smart" | "paramiko" | "paramiko_ssh") => {}
        Some(other) => {
            return Ok(Err(format!("its connection `{other}` is not ssh: set latput_target")));
        }
    }
    let host = variables.first(&["ansible_host", "ansible_ssh_host"])?;
    let host = host.unwrap_or_else(|| name.to_owned());
    let user = variables.first(&["ansible_user", "ansible_ssh_user"])?;
    let user = user.map_or_else(String::new, |user| format!("{user}@"));
    let port = variables.first(&["ansible_port", "ansible_ssh_port"])?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Ok(Ok(format!("ssh://{user}{host}{}", port.map_or(String::new(), |port| format!(":{port}")))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = r#"{
        "_meta": {"hostvars": {
            "web1": {"ansible_host": "192.0.2.1", "ansible_user": "root", "latput_interface": "eth0",
                     "latput_settings": {"rx-usecs": "50us", "gro": true}},
            "web2": {"ansible_port": 2222, "ansible_host": "2001:db8::2", "latput_interface": "eth0"},
            "own": {"ansible_connection": "local", "latput_interface": "lo"},
            "pod": {"ansible_connection": "community.docker.docker", "latput_target": "exec:docker exec -i pod"}
        }},
        "all": {"children": ["ungrouped", "web", "prod"]},
        "prod": {"children": ["web"]},
        "ungrouped": {"hosts": ["own", "plain"]},
        "web": {"hosts": ["web1", "web2"]}
    }"#;

    #[test]
    fn hosts_come_with_their_variables() {
        let hosts = parse(LISTING).unwrap();
        let said: Vec<(&str, &str, &str)> = hosts
            .iter()
            .map(|host| (host.name.as_deref().unwrap(), host.group.as_str(), host.word.as_str()))
            .collect();
        let expected = [
            ("own", "hosts", "lo"),
            ("plain", "hosts", "ssh://plain"),
            ("pod", "hosts", "exec:docker exec -i pod"),
            ("web1", "web", "ssh://root@192.0.2.1"),
            ("web2", "web", "ssh://[2001:db8::2]:2222"),
        ];
        assert_eq!(said, expected);
        assert_eq!(hosts[3].setting.len(), 2);
        assert_eq!(hosts[3].interface.as_deref(), Some("eth0"));
    }

    #[test]
    fn hosts_out_of_reach_are_left_out() {
        for (from, to, name, problem) in [
            ("\"latput_target\"", "\"other\"", "pod", "its connection `docker` is not ssh"),
            ("\"latput_interface\": \"lo\"", "\"x\": 1", "own", "it is this host"),
            ("192.0.2.1", "{{ name }}.example", "web1", "its `ansible_host` is a template"),
        ] {
            let hosts = parse(&LISTING.replace(from, to)).unwrap();
            let out: Vec<&ListedHost> = hosts.iter().filter(|it| it.left_out.is_some()).collect();
            let [only] = out[..] else { panic!("{out:?}") };
            assert_eq!(only.name.as_deref(), Some(name));
            assert!(only.left_out.as_ref().unwrap().contains(problem), "{only:?}");
        }
    }

    #[test]
    fn groups_hold_the_hosts_of_their_children() {
        let hosts = parse(LISTING).unwrap();
        let of = |group: &str| {
            let groups = [group.to_owned()];
            let hosts = hosts.iter().filter(|host| host.is_in(&groups));
            hosts.map(|host| host.name.clone().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of("prod"), ["web1", "web2"]);
        assert_eq!(of("all"), ["own", "plain", "web1", "web2"]);
        let circle =
            LISTING.replace("\"children\": [\"web\"]", "\"children\": [\"web\", \"prod\"]");
        assert!(parse(&circle).is_ok());
    }

    #[test]
    fn unfollowed_variables_are_named() {
        let text =
            LISTING.replace("\"ansible_port\"", "\"ansible_become\": true, \"ansible_port\"");
        let hosts = parse(&text).unwrap();
        assert_eq!(hosts[4].not_followed, ["ansible_become"]);
        assert!(hosts[3].not_followed.is_empty());
    }

    #[test]
    fn a_listing_that_cannot_be_meant_is_refused_with_the_host() {
        for (from, to, problem) in [
            ("rx-usecs", "rx-usec", "host `web1`: latput_settings: there is no knob"),
            ("2222", "[1]", "host `web2`: ansible_port: `[1]`"),
            ("\"_meta\"", "\"_meta\" 1", "not what `ansible-inventory --list` prints"),
            ("own\"", "o\\u001bwn\"", "is not a name"),
        ] {
            let said = parse(&LISTING.replace(from, to)).unwrap_err().to_string();
            assert!(said.contains(problem), "{said}");
        }
        assert!(parse("{}").unwrap_err().problem.contains("names no host"));
        let deep = "[".repeat(100_000);
        assert!(parse(&deep).is_err());
    }
}
