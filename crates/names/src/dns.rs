//! Asks name servers (RFC 1035): by UDP, and by TCP where the answer is cut short.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE};

use crate::Error;
use crate::config::ServerConfig;

/// An answer by UDP has at most 512 bytes (RFC 1035, section 4.2.1); more is cut off and told.
const DATAGRAM_BYTES: usize = 512;

/// A server's answer to one question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Its addresses; none where the name has others or does not exist.
    Addresses(Vec<IpAddr>),
    /// There is more than fits a datagram.
    Truncated,
    /// It would not or could not say.
    Refused(RCODE),
    /// It belongs to another question.
    Other,
}

/// The addresses of `name`: those of the first candidate that has any.
pub(crate) fn ask(name: &str, config: &ServerConfig) -> Result<Vec<IpAddr>, Error> {
    for candidate in config.candidates(name) {
        let mut addresses = question(&candidate, TYPE::AAAA, config)?;
        addresses.extend(question(&candidate, TYPE::A, config)?);
        if !addresses.is_empty() {
            return Ok(addresses);
        }
    }
    let servers: Vec<String> = config.servers.iter().map(|it| it.ip().to_string()).collect();
    Err(Error::Unknown { asked: format!("/etc/hosts, name server {}", servers.join(", ")) })
}

/// Asks one server after the other until one answers.
fn question(name: &str, kind: TYPE, config: &ServerConfig) -> Result<Vec<IpAddr>, Error> {
    let id = random_id();
    let query = query(name, kind, id)?;
    let mut last = None;
    for _ in 0..config.attempts {
        for &server in &config.servers {
            let problem = match exchange(server, &query, config.timeout) {
                Ok(Answer::Addresses(addresses)) => return Ok(addresses),
                Ok(Answer::Refused(code)) => format!("answers {code:?}"),
                Ok(Answer::Truncated | Answer::Other) => "its answer is no answer".to_owned(),
                Err(error) if is_timeout(&error) => {
                    format!("no answer within {} s", config.timeout.as_secs())
                }
                Err(error) => error.to_string(),
            };
            last = Some(Error::Server { server, problem });
        }
    }
    Err(last.unwrap_or(Error::Invalid))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// The bytes of a question.
fn query(name: &str, kind: TYPE, id: u16) -> Result<Vec<u8>, Error> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).map_err(|_| Error::Invalid)?;
    packet.questions.push(Question::new(name, kind.into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().map_err(|_| Error::Invalid)
}

fn exchange(server: SocketAddr, query: &[u8], timeout: Duration) -> io::Result<Answer> {
    match by_udp(server, query, timeout)? {
        Answer::Truncated => by_tcp(server, query, timeout),
        answer => Ok(answer),
    }
}

fn by_udp(server: SocketAddr, query: &[u8], timeout: Duration) -> io::Result<Answer> {
    let deadline = Instant::now() + timeout;
    let socket = UdpSocket::bind(any_address_like(server.ip()))?;
    socket.connect(server)?; // the kernel drops what others send
    socket.send(query)?;
    let mut buffer = [0; DATAGRAM_BYTES];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let length = socket.recv(&mut buffer)?;
        // A late answer to an earlier question is passed over.
        match read(&buffer[..length], query) {
            Answer::Other => {}
            answer => return Ok(answer),
        }
    }
}

fn by_tcp(server: SocketAddr, query: &[u8], timeout: Duration) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let length = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), query].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(read(&answer, query))
}

/// Reads the bytes of `answer` as the answer to the bytes of `query`.
pub(crate) fn read(answer: &[u8], query: &[u8]) -> Answer {
    let (Ok(answer), Ok(query)) = (Packet::parse(answer), Packet::parse(query)) else {
        return Answer::Other;
    };
    let asks_the_same = match (answer.questions.first(), query.questions.first()) {
        (Some(theirs), Some(ours)) => {
            theirs.qtype == ours.qtype
                && theirs.qname.to_string().eq_ignore_ascii_case(&ours.qname.to_string())
        }
        _ => false,
    };
    if answer.id() != query.id() || !answer.has_flags(PacketFlag::RESPONSE) || !asks_the_same {
        return Answer::Other;
    }
    if answer.has_flags(PacketFlag::TRUNCATION) {
        return Answer::Truncated;
    }
    match answer.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Answer::Addresses(Vec::new()),
        code => return Answer::Refused(code),
    }
    // Aliases stand among them; a server that resolves for us sends their addresses too.
    let addresses = answer.answers.iter().filter_map(|record| match &record.rdata {
        RData::A(it) => Some(Ipv4Addr::from(it.address).into()),
        RData::AAAA(it) => Some(Ipv6Addr::from(it.address).into()),
        _ => None,
    });
    Answer::Addresses(addresses.collect())
}

/// The unspecified address of the family of `address`, with any port.
pub(crate) fn any_address_like(address: IpAddr) -> SocketAddr {
    match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// A query number that nobody can guess: a stranger who cannot see the question must not be able to answer it.
fn random_id() -> u16 {
    let mut bytes = [0; 2];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled, Ok(bytes.len()), "getrandom(2) gives up to 256 bytes at once");
    u16::from_ne_bytes(bytes)
}
