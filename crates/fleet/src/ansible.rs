//! Hosts of an Ansible inventory, as `ansible-inventory -i FILE --list` prints it (JSON).
//!
//! Its form is that of Ansible's "developing inventory" guide: `_meta.hostvars` has every variable of every host, those
//! of its groups included; each other key is a group with `hosts` and `children`.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::Setting;
use latput_units::IntoSet;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::inventory::{
    InventoryError, ListedHost, UNGROUPED, check_host_count, check_name, parse_knob_values,
};

/// Groups that every inventory has, which say nothing of a host's kind.
const NO_KIND: [&str; 2] = ["all", "ungrouped"];

#[derive(Deserialize)]
struct AnsibleListing {
    #[serde(rename = "_meta", default)]
    meta: ListingMeta,
    #[serde(flatten)]
    groups: BTreeMap<String, ListedGroup>,
}

#[derive(Default, Deserialize)]
struct ListingMeta {
    #[serde(default)]
    hostvars: BTreeMap<String, BTreeMap<String, Json>>,
}

#[derive(Deserialize)]
struct ListedGroup {
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    children: Vec<String>,
    #[serde(default)]
    vars: BTreeMap<String, Json>,
}

/// Variables of Ansible's that change the way to a host and that latput never follows.
const NOT_FOLLOWED: &[&str] = &[
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_password",
    "ansible_become_password",
    "ansible_become_pass",
    "ansible_sudo_pass",
    "ansible_become_exe",
    "ansible_sudo_exe",
    "ansible_become_flags",
    "ansible_sudo_flags",
];
/// Variables with more words for ssh.
const SSH_WORDS: &[&str] =
    &["ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args"];
/// The file of a key; the first that is there counts.
const KEYS: &[&str] = &["ansible_ssh_private_key_file", "ansible_private_key_file"];
const BECOME: &str = "ansible_become";
/// The program for the way there; latput has its own word for it.
const PROGRAM: &str = "ansible_ssh_executable";

/// The words of ssh itself where a host needs more than an address: nobody is there to answer a question.
const SSH: &[&str] = &["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"];
/// The words that make a user root there.
const SUDO: &[&str] = &["sudo", "-n"];

/// Reads the listing. A host's group is the first, in the order of names, that lists it itself.
pub fn parse(text: &str) -> Result<Vec<ListedHost>, InventoryError> {
    let AnsibleListing { meta, groups } =
        serde_json::from_slice(text.as_bytes()).map_err(|error| {
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
    reject_group_variables(&groups)?;
    let all_groups = map_hosts_to_groups(&groups);
    let nothing = BTreeMap::new();
    let hosts = names.into_iter().map(|name| {
        let variables = HostVariables(meta.hostvars.get(name).unwrap_or(&nothing));
        let group = group_of.get(name).copied().unwrap_or(UNGROUPED);
        let groups = all_groups.get(name).cloned().unwrap_or_default();
        // A host that is wrong says nothing of the others, which may be all that are asked for.
        let host = parse_host(name, group, &variables).unwrap_or_else(|why| ListedHost {
            name: Some(name.escape_debug().to_string()),
            group: group.to_owned(),
            left_out: Some(why),
            ..ListedHost::default()
        });
        ListedHost { groups, ..host }
    });
    check_host_count(hosts.collect())
}

/// Refuses variables of groups: only `ansible-inventory` knows which of several groups gives a host its value.
fn reject_group_variables(groups: &BTreeMap<String, ListedGroup>) -> Result<(), InventoryError> {
    let is_read = |name: &String| name.starts_with("latput_") || name.starts_with("ansible_");
    let found = groups
        .iter()
        .find_map(|(group, it)| Some((group, it.vars.keys().find(|name| is_read(name))?)));
    found.map_or(Ok(()), |(group, variable)| {
        Err(InventoryError::new(format!(
            "group `{}` has `{}` as a variable of its own, as `--export` prints it: give the output of \
             `ansible-inventory --list` without --export, which has it at each host",
            group.escape_debug(),
            variable.escape_debug()
        )))
    })
}

/// The groups of each host: those that list it, and those above them.
fn map_hosts_to_groups(groups: &BTreeMap<String, ListedGroup>) -> BTreeMap<&str, Vec<String>> {
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

struct HostVariables<'a>(&'a BTreeMap<String, Json>);

impl HostVariables<'_> {
    /// A text or a number. `ansible-inventory` leaves templates as they are.
    fn plain_value(&self, name: &str) -> Result<Option<String>, String> {
        match self.raw_value(name)? {
            Some(text) if is_template(&text) => Err(format!(
                "its `{name}` is a template, and `ansible-inventory` does not expand it: give it a plain value"
            )),
            text => Ok(text),
        }
    }

    /// The same where whoever asks can tell a template from others.
    fn raw_value(&self, name: &str) -> Result<Option<String>, String> {
        match self.0.get(name) {
            None | Some(Json::Null) => Ok(None),
            Some(value) => scalar_text(value).map(Some).map_err(|why| format!("{name}: {why}")),
        }
    }

    /// Whether a variable is there and not empty, in whatever form: a password may be encrypted.
    fn is_set(&self, name: &str) -> bool {
        self.0
            .get(name)
            .is_some_and(|value| !matches!(value, Json::Null) && value.as_str() != Some(""))
    }

    /// The first of several that is there.
    fn first_value(&self, names: &[&str]) -> Result<Option<String>, String> {
        for name in names {
            if let Some(text) = self.plain_value(name)? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    fn parse_setting(&self) -> Result<Setting, String> {
        let values = match self.0.get("latput_settings") {
            None | Some(Json::Null) => return Ok(Setting::new()),
            Some(Json::Object(values)) => values,
            Some(_) => return Err("latput_settings is not a dictionary of knobs".to_owned()),
        };
        let values = values.iter().map(|(knob, value)| match scalar_text(value)? {
            text if is_template(&text) => {
                Err(format!("`{knob}` is a template, which nobody has expanded"))
            }
            text => Ok((knob.as_str(), text)),
        });
        parse_knob_values(values).map_err(|why| format!("latput_settings: {why}"))
    }
}

fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

fn scalar_text(value: &Json) -> Result<String, String> {
    match value {
        Json::String(text) => Ok(text.clone()),
        Json::Number(number) => Ok(number.to_string()),
        Json::Bool(on) => Ok(on.to_string()),
        other => Err(format!("`{other}` is neither a text, a number nor a truth value")),
    }
}

fn parse_host(
    name: &str,
    group: &str,
    variables: &HostVariables<'_>,
) -> Result<ListedHost, String> {
    for part in [name, group] {
        check_name(part).map_err(|error| error.problem)?;
    }
    let interface = variables.plain_value("latput_interface")?;
    let way = resolve_connection(name, interface.as_deref(), variables)?;
    Ok(ListedHost {
        name: Some(name.to_owned()),
        word: way.word,
        group: group.to_owned(),
        interface,
        driver: variables.plain_value("latput_driver")?,
        setting: variables.parse_setting()?,
        not_followed: way.not_followed,
        ..ListedHost::default()
    })
}

/// How to get to a host.
#[derive(Debug, Default)]
struct HostConnection {
    word: String,
    not_followed: Vec<&'static str>,
}

impl From<String> for HostConnection {
    fn from(word: String) -> Self {
        Self { word, not_followed: Vec::new() }
    }
}

/// How to get there: `latput_target`, else by the variables of Ansible's connection. The error says why latput cannot.
fn resolve_connection(
    name: &str,
    interface: Option<&str>,
    variables: &HostVariables<'_>,
) -> Result<HostConnection, String> {
    if let Some(target) = variables.plain_value("latput_target")? {
        return Ok(target.into());
    }
    let connection = variables.plain_value("ansible_connection")?;
    match connection.as_deref().map(|it| it.rsplit('.').next().unwrap_or(it)) {
        Some("local") => {
            return interface
                .map(|interface| interface.to_owned().into())
                .ok_or_else(|| "it is this host: set latput_interface".to_owned());
        }
        None | Some("ssh" | "smart" | "paramiko" | "paramiko_ssh") => {}
        Some(other) => {
            return Err(format!("its connection `{other}` is not ssh: set latput_target"));
        }
    }
    let first = |names: &[&str]| {
        variables.first_value(names).map_err(|why| format!("{why}, or set latput_target"))
    };
    let host = first(&["ansible_host", "ansible_ssh_host"])?;
    let host = host.unwrap_or_else(|| name.to_owned());
    let user = first(&["ansible_user", "ansible_ssh_user"])?;
    let port = first(&["ansible_port", "ansible_ssh_port"])?;
    ssh_connection(&host, user.as_deref(), port.as_deref(), variables)
}

/// The way by ssh. What needs more than user, host and port becomes a command.
fn ssh_connection(
    host: &str,
    user: Option<&str>,
    port: Option<&str>,
    variables: &HostVariables<'_>,
) -> Result<HostConnection, String> {
    let mut not_followed: Vec<&'static str> = Vec::new();
    let mut options: Vec<String> = Vec::new();
    for variable in SSH_WORDS {
        match variables.raw_value(variable)?.map(|text| ssh_words(&text)) {
            None => {}
            Some(Some(words)) => options.extend(words),
            Some(None) => not_followed.push(variable),
        }
    }
    let key = KEYS.iter().find(|variable| variables.is_set(variable));
    if let Some(variable) = key {
        match variables.raw_value(variable)?.filter(|file| is_safe_word(file)) {
            Some(file) => options.extend(["-i".to_owned(), file]),
            None => not_followed.push(variable),
        }
    }
    let after = match resolve_sudo(user, variables)? {
        Some(true) => SUDO,
        Some(false) => &[],
        None => {
            not_followed.push(BECOME);
            &[]
        }
    };
    not_followed.extend(NOT_FOLLOWED.iter().filter(|variable| variables.is_set(variable)));
    if variables.is_set(PROGRAM) && variables.raw_value(PROGRAM)?.is_none_or(|it| it != SSH[0]) {
        not_followed.push(PROGRAM);
    }
    let at_user = user.map_or_else(String::new, |user| format!("{user}@"));
    if options.is_empty() && after.is_empty()
        || !is_host_or_user_name(host)
        || !user.is_none_or(is_host_or_user_name)
    {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        return Ok(HostConnection { word: format!("ssh://{at_user}{host}{port}"), not_followed });
    }
    let port = port.into_iter().flat_map(|port| ["-p", port]);
    let destination = format!("{at_user}{host}");
    let words = SSH.iter().copied().chain(options.iter().map(String::as_str)).chain(port);
    let words = words.chain(["--", &destination]).chain(after.iter().copied());
    Ok(HostConnection {
        word: format!("exec:{}", words.collect::<Vec<_>>().join(" ")),
        not_followed,
    })
}

/// Whether the user there is to become root by sudo; `None` where it is something else that latput cannot do.
fn resolve_sudo(user: Option<&str>, variables: &HostVariables<'_>) -> Result<Option<bool>, String> {
    let Some(word) = variables.raw_value(BECOME)? else { return Ok(Some(false)) };
    if user == Some("root") {
        return Ok(Some(false));
    }
    if is_template(&word) {
        return Ok(None);
    }
    if !is_truthy(&word) {
        return Ok(Some(false));
    }
    let method = variables.raw_value("ansible_become_method")?;
    let is_sudo =
        method.is_none_or(|it| it.strip_prefix("ansible.builtin.").unwrap_or(&it) == "sudo");
    let mut is_root = true;
    for variable in ["ansible_become_user", "ansible_sudo_user"] {
        is_root &= variables.raw_value(variable)?.is_none_or(|it| it == "root");
    }
    Ok((is_sudo && is_root).then_some(true))
}

/// The words of a variable for ssh; `None` where one of them cannot stand in a command of latput's.
fn ssh_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for word in split_words(text)? {
        // Ansible documents this form for a jump host: `-o ProxyCommand="ssh -W %h:%p -q gateway"`.
        let option = word.strip_prefix("-o").unwrap_or(&word);
        match option.strip_prefix("ProxyCommand=") {
            Some(command) => {
                let jump = parse_jump_host(command)?;
                if words.last().is_some_and(|last| last == "-o") {
                    words.pop();
                }
                words.extend(["-J".to_owned(), jump]);
            }
            None => words.push(word),
        }
    }
    words.iter().all(|word| is_safe_word(word)).then_some(words)
}

/// The host through which a `ProxyCommand` of ssh goes, if it does nothing else.
fn parse_jump_host(command: &str) -> Option<String> {
    let mut words = command.split_whitespace().filter(|word| *word != "-q").peekable();
    (words.next() == Some("ssh")).then_some(())?;
    let rest: Vec<&str> = words.collect();
    match rest[..] {
        ["-W", "%h:%p" | "[%h]:%p", host] | [host, "-W", "%h:%p" | "[%h]:%p"] => {
            host.split('@').all(is_host_or_user_name).then(|| host.to_owned())
        }
        _ => None,
    }
}

/// The words of a text, in which quotes protect spaces; `None` where one is not closed.
fn split_words(text: &str) -> Option<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in text.chars() {
        match (letter, quote) {
            (letter, Some(open)) if letter == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (letter, None) if letter.is_whitespace() => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// Whether a command of latput's, which is split at spaces, can have it as one word.
fn is_safe_word(text: &str) -> bool {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || "%?{}$`".contains(c);
    !text.is_empty() && !text.contains(is_bad)
}

/// Whether it is a name or an address, and no option.
fn is_host_or_user_name(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_of_name)
}

/// A truth value as Ansible reads it.
fn is_truthy(text: &str) -> bool {
    ["true", "yes", "on", "1", "y", "t"].contains(&text.to_ascii_lowercase().as_str())
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
    fn unusable_hosts_are_left_out_by_name() {
        for (from, to, name, problem) in [
            ("\"latput_target\"", "\"other\"", "pod", "its connection `docker` is not ssh"),
            ("\"latput_interface\": \"lo\"", "\"x\": 1", "own", "it is this host"),
            ("192.0.2.1", "{{ name }}.example", "web1", "its `ansible_host` is a template"),
            ("\"eth0\",\n", "\"{{ nic }}\",\n", "web1", "its `latput_interface` is a template"),
            ("exec:docker", "exec:{{ tool }}", "pod", "its `latput_target` is a template"),
            ("50us", "{{ usecs }}", "web1", "latput_settings: `rx-usecs` is a template"),
            ("\"rx-usecs\"", "\"rx-usec\"", "web1", "latput_settings: there is no knob"),
            ("2222", "[1]", "web2", "ansible_port: `[1]`"),
            ("own\"", "o\\u001bwn\"", "o\\u{1b}wn", "is not a name"),
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

    /// The word of `web2` with more variables, and those of them that are not followed.
    fn parse_with_variables(variables: &str) -> (String, Vec<&'static str>) {
        let text = LISTING.replace("\"ansible_port\": 2222", variables);
        let host = parse(&text).unwrap().swap_remove(4);
        (host.word, host.not_followed)
    }

    #[test]
    fn jump_hosts_keys_and_become_are_followed() {
        let ssh = "exec:ssh -T -o BatchMode=yes -o ConnectTimeout=10";
        let at = "2001:db8::2";
        for (variables, way) in [
            (
                r#""ansible_ssh_common_args": "-J gw.example""#,
                format!("{ssh} -J gw.example -- {at}"),
            ),
            (
                r#""ansible_ssh_common_args": "-o ProxyCommand=\"ssh -W %h:%p -q root@gw\"""#,
                format!("{ssh} -J root@gw -- {at}"),
            ),
            (
                r#""ansible_ssh_extra_args": "-oProxyJump=gw", "ansible_port": 22, "ansible_user": "ops""#,
                format!("{ssh} -oProxyJump=gw -p 22 -- ops@{at}"),
            ),
            (
                r#""ansible_become": true, "ansible_user": "ops""#,
                format!("{ssh} -- ops@{at} sudo -n"),
            ),
            (r#""ansible_become": "yes", "ansible_user": "root""#, format!("ssh://root@[{at}]")),
            (r#""ansible_become": false"#, format!("ssh://[{at}]")),
            (
                r#""ansible_become": true, "ansible_become_method": "ansible.builtin.sudo""#,
                format!("{ssh} -- {at} sudo -n"),
            ),
            (r#""ansible_ssh_executable": "ssh""#, format!("ssh://[{at}]")),
            (r#""ansible_private_key_file": "/k""#, format!("{ssh} -i /k -- {at}")),
            (
                r#""ansible_ssh_private_key_file": "~/.ssh/id_ops""#,
                format!("{ssh} -i ~/.ssh/id_ops -- {at}"),
            ),
        ] {
            assert_eq!(parse_with_variables(variables), (way, Vec::new()), "{variables}");
        }
    }

    #[test]
    fn unfollowed_variables_are_named() {
        for (variables, name) in [
            (r#""ansible_become": true, "ansible_become_method": "doas""#, BECOME),
            (r#""ansible_become": true, "ansible_become_user": "app""#, BECOME),
            (r#""ansible_ssh_common_args": "-o ProxyCommand='nc -x p %h %p'""#, SSH_WORDS[1]),
            (r#""ansible_ssh_common_args": "-o ProxyCommand='ssh -W %h:%p $(id)'""#, SSH_WORDS[1]),
            (r#""ansible_ssh_common_args": "-J \"gw""#, SSH_WORDS[1]),
            (r#""ansible_ssh_extra_args": "-J {{ gateway }}""#, SSH_WORDS[2]),
            (r#""ansible_ssh_private_key_file": "/a b""#, KEYS[0]),
            (r#""ansible_private_key_file": "{{ key }}""#, KEYS[1]),
            (r#""ansible_password": "x""#, "ansible_password"),
            (r#""ansible_become": "{{ x }}""#, BECOME),
            (r#""ansible_become": true, "ansible_become_user": "{{ x }}""#, BECOME),
            (r#""ansible_become_pass": {"__ansible_vault": "x"}"#, "ansible_become_pass"),
            (r#""ansible_sudo_pass": "ssh""#, "ansible_sudo_pass"),
            (r#""ansible_ssh_executable": "/opt/ssh""#, PROGRAM),
        ] {
            let (word, not_followed) = parse_with_variables(variables);
            assert_eq!((word.as_str(), &not_followed[..]), ("ssh://[2001:db8::2]", &[name][..]));
        }
        let (word, _) =
            parse_with_variables(r#""ansible_ssh_common_args": "-J gw", "ansible_user": "a b""#);
        assert_eq!(word, "ssh://a b@[2001:db8::2]", "which is refused");
    }

    #[test]
    fn hosts_of_large_inventory_are_all_listed() {
        let names: Vec<String> = (0..1000).map(|idx| format!("\"web{idx:03}\"")).collect();
        let vars = names.iter().map(|name| format!("{name}: {{\"ansible_become\": true}}"));
        let text = format!(
            "{{\"_meta\": {{\"hostvars\": {{{}}}}}, \"all\": {{\"children\": [\"web\"]}}, \"web\": {{\"hosts\": [{}]}}}}",
            vars.collect::<Vec<_>>().join(","),
            names.join(",")
        );
        let hosts = parse(&text).unwrap();
        assert_eq!(hosts.len(), 1000);
        assert!(hosts.iter().all(|host| host.is_in(&["all".to_owned()])));
        assert!(hosts.iter().all(|host| host.word.ends_with("sudo -n")));
    }

    #[test]
    fn bad_listing_is_refused() {
        for (from, to, problem) in [
            ("\"_meta\"", "\"_meta\" 1", "not what `ansible-inventory --list` prints"),
            (
                "\"prod\": {",
                "\"prod\": {\"vars\": {\"latput_settings\": {}}, ",
                "group `prod` has `latput_settings` as a variable of its own",
            ),
        ] {
            let said = parse(&LISTING.replace(from, to)).unwrap_err().to_string();
            assert!(said.contains(problem), "{said}");
        }
        let other = LISTING.replace("\"prod\": {", "\"prod\": {\"vars\": {\"rack\": 1}, ");
        assert!(parse(&other).is_ok());
        assert!(parse("{}").unwrap_err().problem.contains("names no host"));
        let deep = "[".repeat(100_000);
        assert!(parse(&deep).is_err());
    }
}
