//! Takes names, addresses and paths out of a text.

use core::net::{Ipv4Addr, Ipv6Addr};

use latput_trial::observation::Role;

/// Names shorter than this are words of sentences as well, such as `a`; they are replaced only where
/// a text is the name, or begins with it and a colon.
const SHORTEST_NAME: usize = 3;
/// Words that are no secret wherever they stand.
const PLAIN: [&str; 12] = [
    "sut",
    "generator",
    "observer",
    "lab",
    "root",
    "ssh",
    "netns",
    "exec",
    "toml",
    "eth",
    "iface",
    "sudo",
];
/// Paths that every Linux has.
const COMMON_PATHS: [&str; 3] = ["/proc/", "/sys/", "/dev/"];

/// The names to be replaced, with what stands in their place.
#[derive(Debug, Default)]
pub(super) struct NameFilter {
    /// Hosts, whose new names are those of their roles.
    hosts: Vec<(String, String)>,
    /// All names, longest first.
    all: Vec<(String, String)>,
}

impl NameFilter {
    /// Replaces a host's name everywhere.
    pub(super) fn rename_host(&mut self, host: &str, new: &str) {
        self.hosts.push((host.to_owned(), new.to_owned()));
        self.hide_name(host, new);
    }

    /// Replaces a name everywhere.
    pub(super) fn hide_name(&mut self, name: &str, new: &str) {
        let is_plain = PLAIN.contains(&name.to_ascii_lowercase().as_str());
        if name.is_empty() || is_plain {
            return;
        }
        self.all.push((name.to_owned(), new.to_owned()));
        self.all.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    }

    /// The new name of a host; an unknown one gets that of its role.
    pub(super) fn lookup_host(&self, name: &str, role: Role) -> String {
        let known = self.hosts.iter().find(|(old, _)| old == name);
        known.map_or_else(|| role.name().to_owned(), |(_, new)| new.clone())
    }

    /// The text without names, addresses and paths.
    pub(super) fn redact_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, new) in &self.all {
            if name.len() >= SHORTEST_NAME {
                text = replace_word(&text, name, new);
            } else if let Some(rest) = text.strip_prefix(name.as_str())
                && (rest.is_empty() || rest.starts_with(':'))
            {
                text = format!("{new}{rest}");
            }
        }
        without_addresses(&text)
    }
}

/// The text with every whole word `name` replaced, in capitals or not.
fn replace_word(text: &str, name: &str, new: &str) -> String {
    let (lower, name) = (text.to_ascii_lowercase(), name.to_ascii_lowercase());
    let is_inner = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut kept = String::new();
    let mut from = 0;
    for (at, _) in lower.match_indices(&name) {
        let end = at + name.len();
        let inside =
            is_inner(text[..at].chars().next_back()) || is_inner(text[end..].chars().next());
        if at < from || inside {
            continue;
        }
        kept += &text[from..at];
        kept += new;
        from = end;
    }
    kept + &text[from..]
}

/// The text with ADDRESS in place of what looks like one, and PATH in place of a file's path.
fn without_addresses(text: &str) -> String {
    let ends_word = |c: char| c.is_whitespace() || "\"'`()<>=,;|".contains(c);
    let mut kept = String::new();
    for piece in text.split_inclusive(ends_word) {
        let word = piece.trim_end_matches(ends_word);
        let trimmed = word.trim_end_matches([':', '.', '!', '?']);
        let tail = &piece[trimmed.len()..];
        match classify_word(trimmed) {
            Some(kind) => kept = kept + kind + tail,
            None => kept += piece,
        }
    }
    kept
}

/// Kind of a word that must not be passed on; `None` for one that may.
fn classify_word(word: &str) -> Option<&'static str> {
    let is_path = word.starts_with("~/")
        || word.contains(":/") && !word.contains("://")
        || word.len() > 1
            && word.starts_with('/')
            && !COMMON_PATHS.iter().any(|common| word.starts_with(common));
    if is_path {
        return Some("PATH");
    }
    let is_user =
        word.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    (word.contains("://") || is_user || is_address(word)).then_some("ADDRESS")
}

/// Whether a word is an IP or MAC address, with or without a port, prefix or zone.
fn is_address(word: &str) -> bool {
    let plain = word.trim_start_matches('[');
    let plain = plain.split(['/', '%', ']']).next().unwrap_or(plain);
    let without_port = plain.split_once(':').map_or(plain, |(host, _)| host);
    if without_port.parse::<Ipv4Addr>().is_ok() || plain.parse::<Ipv6Addr>().is_ok() {
        return true;
    }
    let is_pair = |pair: &str| pair.len() == 2 && pair.chars().all(|c| c.is_ascii_hexdigit());
    [':', '-'].iter().any(|between| {
        let pairs: Vec<&str> = plain.split(*between).collect();
        pairs.len() >= 6 && pairs.iter().all(|pair| is_pair(pair))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_paths_go_and_the_rest_stays() {
        for (text, kept) in [
            ("no route to 10.1.2.3: try 10.1.2.3:5201", "no route to ADDRESS: try ADDRESS"),
            ("fd00::1%eth0 and [fe80::2]:22", "ADDRESS and ADDRESS"),
            ("mac 52:54:00:12:34:56, 192.0.2.0/24", "mac ADDRESS, ADDRESS"),
            ("ssh://root@db and ann@db.example", "ADDRESS and ADDRESS"),
            ("`/srv/ann/plan.toml` (~/x)", "`PATH` (PATH)"),
            ("/proc/stat: 9.41 Gbit/s at 12:30:01", "/proc/stat: 9.41 Gbit/s at 12:30:01"),
            ("6.18.0-1-amd64, CPU @ 2.60GHz 1/2", "6.18.0-1-amd64, CPU @ 2.60GHz 1/2"),
        ] {
            assert_eq!(without_addresses(text), kept);
        }
    }

    #[test]
    fn names_match_as_whole_words() {
        let mut words = NameFilter::default();
        words.rename_host("db1", "sut");
        words.rename_host("db1.example", "generator");
        words.rename_host("a", "observer");
        words.hide_name("root", "NAME");
        let without = |text: &str| words.redact_text(text);
        assert_eq!(without("DB1: db1.example, adb1 and db12"), "sut: generator, adb1 and db12");
        assert_eq!(without("a: 97% of a CPU, needs root"), "observer: 97% of a CPU, needs root");
        assert_eq!(words.lookup_host("unknown", Role::Sut), "sut");
    }
}
