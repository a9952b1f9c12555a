//! `/etc/hosts` (hosts(5)) and `/etc/resolv.conf` (resolv.conf(5)).

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::Error;

/// Where name servers listen.
pub(crate) const PORT: u16 = 53;

const HOSTS: &str = "/etc/hosts";
const SERVERS: &str = "/etc/resolv.conf";

/// The limits and values of resolv.conf(5).
const SERVERS_MOST: usize = 3;
const DOTS: (usize, usize) = (1, 15);
const TIMEOUT_S: (u64, u64) = (5, 30);
const ATTEMPTS: (u32, u32) = (2, 5);

/// The lines of `/etc/hosts`: an address and the names that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<(IpAddr, Vec<String>)>);

impl Hosts {
    /// Empty where there is no such file.
    pub(crate) fn read() -> Result<Self, Error> {
        read_file(HOSTS).map(|text| Self::parse(&text))
    }

    /// An invalid line is passed over, as the C library does.
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| {
            let mut words = words_of(line);
            Some((words.next()?.parse().ok()?, words.map(str::to_owned).collect()))
        });
        Self(lines.collect())
    }

    /// In the order of the file.
    pub(crate) fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let has_name = |names: &[String]| names.iter().any(|it| it.eq_ignore_ascii_case(name));
        let lines = self.0.iter().filter(|(_, names)| has_name(names));
        lines.map(|(address, _)| *address).collect()
    }
}

/// Whom to ask, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerConfig {
    pub(crate) servers: Vec<SocketAddr>,
    /// Domains that are tried behind a name.
    search: Vec<String>,
    /// A name with so many dots is tried as it is first.
    dots: usize,
    /// For one server to answer one question.
    pub(crate) timeout: Duration,
    /// How often each server is asked.
    pub(crate) attempts: u32,
}

impl ServerConfig {
    /// The defaults where there is no such file.
    pub(crate) fn read() -> Result<Self, Error> {
        read_file(SERVERS).map(|text| Self::parse(&text))
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut config = Self {
            servers: Vec::new(),
            search: Vec::new(),
            dots: DOTS.0,
            timeout: Duration::from_secs(TIMEOUT_S.0),
            attempts: ATTEMPTS.0,
        };
        for line in text.lines().filter(|line| !line.starts_with(';')) {
            let mut words = words_of(line);
            match words.next() {
                Some("nameserver") => {
                    let server = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    config.servers.extend(server.map(|address| SocketAddr::new(address, PORT)));
                }
                Some("domain" | "search") => config.search = words.map(str::to_owned).collect(),
                Some("options") => words.for_each(|option| config.set(option)),
                _ => (),
            }
        }
        config.servers.truncate(SERVERS_MOST);
        if config.servers.is_empty() {
            config.servers.push((Ipv4Addr::LOCALHOST, PORT).into());
        }
        config
    }

    fn set(&mut self, option: &str) {
        let Some((name, value)) = option.split_once(':') else { return };
        let Ok(value) = value.parse::<u32>() else { return };
        match name {
            "ndots" => self.dots = (value as usize).min(DOTS.1),
            "timeout" => {
                self.timeout = Duration::from_secs(u64::from(value).clamp(1, TIMEOUT_S.1));
            }
            "attempts" => self.attempts = value.clamp(1, ATTEMPTS.1),
            _ => (),
        }
    }

    /// Names to query, in order, where a person gives `name`.
    pub(crate) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(whole) = name.strip_suffix('.') {
            return vec![whole.to_owned()];
        }
        let as_it_is = name.to_owned();
        let behind = self.search.iter().map(|domain| match domain.trim_matches('.') {
            "" => name.to_owned(),
            domain => format!("{name}.{domain}"),
        });
        if name.matches('.').count() >= self.dots {
            std::iter::once(as_it_is).chain(behind).collect()
        } else {
            behind.chain(std::iter::once(as_it_is)).collect()
        }
    }
}

/// The words before a comment.
fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split('#').next().unwrap_or_default().split_whitespace()
}

fn read_file(path: &str) -> Result<String, Error> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(Error::Io { operation: format!("read {path}"), source }),
    }
}
