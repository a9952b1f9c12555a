//! Inventories of public reports on which the reader was wrong once, as `ansible-inventory --list` gives them, each with
//! what is right.

use latput_fleet::ListedHost;
use latput_fleet::ansible::parse;

const ONE_SWITCH: &str = include_str!("cases/ansible-one-switch.json");
const TEMPLATED_HOST: &str = include_str!("cases/ansible-templated-host.json");

fn find_host<'h>(hosts: &'h [ListedHost], name: &str) -> &'h ListedHost {
    hosts.iter().find(|host| host.name.as_deref() == Some(name)).expect("a host of the case")
}

#[test]
fn switch_leaves_the_servers() {
    let hosts = parse(ONE_SWITCH).unwrap();
    let switch = find_host(&hosts, "sw1");
    let why = switch.left_out.as_deref().unwrap();
    assert!(why.contains("connection `network_cli`"), "{why}");
    let web = ["web".to_owned()];
    assert!(!switch.is_in(&web));
    let servers: Vec<&ListedHost> = hosts.iter().filter(|host| host.is_in(&web)).collect();
    assert_eq!(servers.len(), 2);
    assert_eq!(find_host(&hosts, "web02").left_out, None);
}

#[test]
fn templated_host_is_named_with_its_variable() {
    let hosts = parse(TEMPLATED_HOST).unwrap();
    let why = find_host(&hosts, "web01").left_out.as_deref().unwrap();
    assert!(why.contains("`ansible_host` is a template"), "{why}");
    let jumped = find_host(&hosts, "web02");
    assert_eq!(jumped.left_out, None);
    assert!(jumped.word.contains("bastion.example.net"), "{}", jumped.word);
}
