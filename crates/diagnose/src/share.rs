//! A snapshot that can be given to others: without addresses and names.

use std::collections::BTreeMap;

use crate::snapshot::{Look, Snapshot};

/// Files of an interface that hold an address or a name.
const PRIVATE: [&str; 6] =
    ["address", "broadcast", "ifalias", "phys_port_id", "phys_switch_id", "phys_port_name"];
const GROUPS: &str = "sys/fs/cgroup/";

/// Numbers in the place of names, the same in both looks.
#[derive(Default)]
struct Aliases(BTreeMap<String, usize>);

impl Aliases {
    fn number_of(&mut self, name: &str) -> usize {
        let next = self.0.len() + 1;
        *self.0.entry(name.to_owned()).or_insert(next)
    }
}

impl Snapshot {
    /// Replaces addresses of connections and names of control groups by numbers, and leaves addresses and names of
    /// interfaces' files out. The name of the judged interface stays.
    #[must_use]
    pub fn without_names(&self) -> Self {
        let (mut ends, mut groups) = (Aliases::default(), Aliases::default());
        let mut shared = |look: &Look| {
            let mut kept = Look::default();
            for (name, text) in look.texts_below("") {
                let is_private = name.starts_with("sys/class/net/")
                    && name.rsplit('/').next().is_some_and(|file| PRIVATE.contains(&file));
                if is_private {
                    continue;
                }
                if let Some(rest) = name.strip_prefix(GROUPS) {
                    let (group, file) = rest.rsplit_once('/').unwrap_or(("", rest));
                    let group = groups.number_of(group);
                    kept.insert(&format!("{GROUPS}g{group}/{file}"), text.to_owned());
                } else if name.starts_with("ss_") {
                    kept.insert(name, hide_addresses(text, &mut ends));
                } else {
                    kept.insert(name, text.to_owned());
                }
            }
            kept
        };
        let (before, after) = (shared(&self.before), shared(&self.after));
        let (interface, stages) = (self.interface.clone(), self.stages.clone());
        Self { interface, before, after, stages, ..*self }
    }
}

/// The lines of `ss` with a number for each address and port.
fn hide_addresses(text: &str, ends: &mut Aliases) -> String {
    let line = |(idx, line): (usize, &str)| {
        if idx == 0 || line.starts_with([' ', '\t']) {
            return format!("{line}\n");
        }
        let words: Vec<String> = line
            .split_whitespace()
            .enumerate()
            .map(|(place, word)| match place {
                0..=2 => word.to_owned(),
                3 | 4 => format!("end{}:{}", ends.number_of(word), port_kind(word)),
                // Of later words the program's name and number are one.
                _ => String::new(),
            })
            .collect();
        format!("{}\n", words.join(" ").trim_end())
    };
    text.lines().enumerate().map(line).collect()
}

/// The first port of clients (`ip_local_port_range`) for one of theirs, else 0: rules ask which end is the server.
fn port_kind(address: &str) -> u16 {
    const FIRST_OF_CLIENTS: u16 = 32_768;
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_some_and(|port| port >= FIRST_OF_CLIENTS) { FIRST_OF_CLIENTS } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_snapshot_has_no_address() {
        let text = "State Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n\
            ESTAB 0 5 10.1.2.3:22 10.9.8.7:50000 users:((\"secret\"))\n\t rtt:3/1\n";
        let mut look = Look::default();
        look.insert("ss_-tin", text.to_owned());
        look.insert("sys/class/net/eth0/address", "02:fc:00:00:00:01\n".to_owned());
        look.insert("sys/fs/cgroup/customer.slice/cpu.stat", "nr_throttled 5\n".to_owned());
        let made = Snapshot::from_looks(Some("eth0"), look.clone(), look).unwrap();
        let shared = made.without_names();
        let document = serde_json::to_string(&shared).unwrap();
        for secret in ["10.1.2.3", "10.9.8.7", "secret", "02:fc", "customer"] {
            assert!(!document.contains(secret), "{secret} in {document}");
        }
        assert_eq!(shared.before, shared.after);
        assert!(
            shared
                .after
                .text("ss_-tin")
                .unwrap()
                .contains("ESTAB 0 5 end1:0 end2:32768\n\t rtt:3/1")
        );
    }
}
