//! netperf's control messages: 164 words of 32 bits, the first big-endian and the rest raw bytes,
//! as in `src/netlib.h` and `src/nettest_bsd.h` of netperf 2.7.0 and later. Pure.

/// Bytes of every message since 2.6.0; earlier ones had 256.
pub const MESSAGE_BYTES: usize = 656;

/// The request for a test of any kind.
const DO_OMNI: u32 = 97;
/// The answer to [`DO_OMNI`].
const OMNI_RESPONSE: u32 = 98;
/// Words before the raw bytes of a request.
const REQUEST_WORDS: usize = 38;
/// Flag: the server measures its host's CPU time.
const MEASURE_CPU: u32 = 8;
/// Flag: `TCP_NODELAY` on the server's data socket.
const NO_DELAY: u32 = 1;
/// The system default, for sizes.
const DEFAULT: u32 = u32::MAX;
/// Buffer alignment in bytes, netperf's default.
const ALIGNMENT: u32 = 8;
/// The protocol's address families (`NF_INET`, `NF_INET6`).
const FAMILY_IPV4: u32 = 4;
const FAMILY_IPV6: u32 = 6;

/// The direction of the data, from the server's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDirection {
    /// The server only sends.
    Sends,
    /// The server only receives.
    Receives,
    /// The server answers requests.
    Answers,
}

/// The request for a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlRequest<'a> {
    /// Whether the test uses UDP; otherwise TCP.
    pub udp: bool,
    /// The direction of the data.
    pub flow: DataDirection,
    /// Size of a request; 0 for bulk.
    pub request_bytes: u32,
    /// Size of a response; 0 for bulk.
    pub response_bytes: u32,
    /// Size of one bulk send of the server.
    pub send_bytes: u32,
    /// Seconds until the server's timer ends the test.
    pub length_s: u32,
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// `SO_SNDBUF` of the server's data socket.
    pub send_buffer: Option<u32>,
    /// `SO_RCVBUF` of the server's data socket.
    pub receive_buffer: Option<u32>,
    /// Congestion control of the server's data socket.
    pub congestion: &'a str,
    /// The CPU to which the server binds itself.
    pub cpu: Option<u32>,
    /// Whether the data flows over IPv6.
    pub ipv6: bool,
    /// This end's UDP port; the address is that of its first datagram.
    pub our_port: u16,
}

impl ControlRequest<'_> {
    /// The encoded message.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut words = [0_u32; 2 + REQUEST_WORDS];
        words[0] = DO_OMNI;
        words[1] = self.cpu.unwrap_or(u32::MAX);
        let flags = if self.nodelay { MEASURE_CPU | NO_DELAY } else { MEASURE_CPU };
        let direction = match self.flow {
            DataDirection::Sends => 2,
            DataDirection::Receives => 4,
            DataDirection::Answers => 6,
        };
        let data = &mut words[2..];
        data[0] = self.send_buffer.unwrap_or(DEFAULT);
        data[1] = if self.send_bytes == 0 { DEFAULT } else { self.send_bytes };
        data[2] = ALIGNMENT;
        data[5] = self.request_bytes;
        data[6] = self.receive_buffer.unwrap_or(DEFAULT);
        data[7] = DEFAULT;
        data[8] = ALIGNMENT;
        data[11] = self.response_bytes;
        data[12] = flags;
        data[14] = self.length_s;
        data[21] = if self.ipv6 { FAMILY_IPV6 } else { FAMILY_IPV4 };
        (data[22], data[23]) = if self.udp { (2, 17) } else { (1, 6) }; // socket type, IPPROTO
        data[24] = direction;
        data[25] = self.our_port.into();
        let mut bytes = [0; MESSAGE_BYTES];
        for (word, place) in words.iter().zip(bytes.as_chunks_mut::<4>().0) {
            *place = word.to_be_bytes();
        }
        let name = self.congestion.as_bytes();
        let at = words.len() * 4;
        let length = name.len().min(15); // 16 with the NUL
        bytes[at..at + length].copy_from_slice(&name[..length]);
        bytes
    }
}

/// The server's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupResponse {
    /// The port of its data socket.
    pub data_port: u16,
    /// Whether it measures its host's CPU time.
    pub measures_cpu: bool,
}

/// A reason why a message is no valid answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// The server failed with this error number of its system.
    Errno(u32),
    /// The message is of another protocol.
    Foreign(String),
}

impl SetupResponse {
    /// Reads the answer to a request.
    pub fn parse(bytes: &[u8; MESSAGE_BYTES]) -> Result<Self, MessageError> {
        let kind = word_at(bytes, 0);
        if kind != OMNI_RESPONSE {
            return Err(MessageError::Foreign(format!(
                "a message of kind {kind} came instead of {OMNI_RESPONSE}"
            )));
        }
        check_errno(bytes)?;
        let port = word_at(bytes, 2 + 11);
        let data_port = u16::try_from(port).ok().filter(|port| *port != 0);
        let data_port = data_port
            .ok_or_else(|| MessageError::Foreign(format!("{port} came as the port for data")))?;
        Ok(Self { data_port, measures_cpu: word_at(bytes, 2 + 6) & MEASURE_CPU != 0 })
    }
}

/// The server's counts, from its answer until the data connection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetperfResults {
    /// Bytes received by the server.
    pub bytes_received: u64,
    /// Bytes sent by the server.
    pub bytes_sent: u64,
    /// Requests that the server answered.
    pub transactions: u32,
    /// Length of the measurement in seconds.
    pub elapsed_s: f64,
    /// CPU time of its host; `None` if not measured.
    pub cpu: Option<HostCpu>,
    /// Segments retransmitted by the server; `None` if its kernel has no count.
    pub retransmits: Option<u32>,
}

/// CPU time of a whole host, which netserver reads from `/proc/stat`, in percent of all CPUs.
/// Waiting for a disk counts as busy (`src/netcpu_procstat.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostCpu {
    /// Busy time.
    pub util: f64,
    /// User code.
    pub user: f64,
    /// Kernel code.
    pub system: f64,
    /// Waiting for a disk.
    pub iowait: f64,
    /// Hardware interrupts.
    pub irq: f64,
    /// Soft interrupts.
    pub softirq: f64,
    /// CPUs of the host.
    pub cpus: u32,
    /// The busiest CPU and its busy time.
    pub peak: Option<(u32, f64)>,
}

impl NetperfResults {
    /// Parses the message after the data. Its type is ignored, since servers swap its bytes twice.
    pub fn parse(bytes: &[u8; MESSAGE_BYTES]) -> Result<Self, MessageError> {
        check_errno(bytes)?;
        let data = |idx: usize| word_at(bytes, 2 + idx);
        let long = |idx: usize| u64::from(data(idx)) << 32 | u64::from(data(idx + 1));
        let elapsed_s = f64::from(f32::from_bits(data(10)));
        if !(elapsed_s.is_finite() && (0.0..=1e7).contains(&elapsed_s)) {
            return Err(MessageError::Foreign(format!(
                "{elapsed_s} came as the seconds of the test"
            )));
        }
        let percent = |idx: usize| {
            let value = f64::from(f32::from_bits(data(idx)));
            // Values may exceed 100% by some clock ticks.
            (value.is_finite() && (0.0..=110.0).contains(&value)).then_some(value)
        };
        let part = |idx| percent(idx).unwrap_or(0.0);
        let cpus = data(19);
        let method_is_known = data(18) != 0;
        let cpu = percent(11).filter(|_| method_is_known && (1..=65_536).contains(&cpus));
        Ok(Self {
            bytes_received: long(0),
            bytes_sent: long(4),
            transactions: data(9),
            elapsed_s,
            cpu: cpu.map(|util| HostCpu {
                util,
                user: part(12),
                system: part(13),
                iowait: part(14),
                irq: part(15),
                softirq: part(16),
                cpus,
                peak: percent(21).filter(|_| data(20) < cpus).map(|util| (data(20), util)),
            }),
            retransmits: Some(data(26)).filter(|count| count.cast_signed() >= 0),
        })
    }
}

impl HostCpu {
    /// netperf's service demand (`calc_service_demand_internal`, `src/netlib.c`): utilisation in
    /// percent x 10000 / units per second x CPUs, in microseconds of CPU time per unit. `None`
    /// without units.
    pub fn service_demand_us(&self, units: f64, elapsed_s: f64) -> Option<f64> {
        let per_s = units / elapsed_s;
        (per_s.is_finite() && per_s > 0.0)
            .then(|| self.util * 10_000.0 / per_s * f64::from(self.cpus))
    }
}

fn check_errno(bytes: &[u8; MESSAGE_BYTES]) -> Result<(), MessageError> {
    match word_at(bytes, 1) {
        0 => Ok(()),
        errno => Err(MessageError::Errno(errno)),
    }
}

fn word_at(bytes: &[u8; MESSAGE_BYTES], idx: usize) -> u32 {
    u32::from_be_bytes(bytes.as_chunks::<4>().0[idx])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_its_words_where_the_server_looks() {
        let request = ControlRequest {
            udp: true,
            flow: DataDirection::Answers,
            request_bytes: 1,
            response_bytes: 200,
            send_bytes: 0,
            length_s: 3,
            nodelay: true,
            send_buffer: None,
            receive_buffer: Some(65_536),
            congestion: "cubic",
            cpu: None,
            ipv6: false,
            our_port: 4242,
        };
        let bytes = request.encode();
        let words: Vec<u32> = (0..40).map(|idx| word_at(&bytes, idx)).collect();
        assert_eq!(words[..3], [97, u32::MAX, u32::MAX]);
        assert_eq!((words[7], words[8], words[13]), (1, 65_536, 200));
        assert_eq!((words[14], words[16]), (9, 3), "flags and length");
        assert_eq!(words[23..28], [4, 2, 17, 6, 4242]);
        assert_eq!(&bytes[160..166], b"cubic\0");
        let long = ControlRequest { congestion: "a name that is far too long", ..request };
        assert_eq!(long.encode()[175], 0, "a NUL stands behind the name");
    }

    #[test]
    fn ready_server_names_its_port() {
        check_ready(|_| {}, Ok(SetupResponse { data_port: 40_000, measures_cpu: true }));
        check_ready(
            |words| words[8] = 0,
            Ok(SetupResponse { data_port: 40_000, measures_cpu: false }),
        );
        check_ready(|words| words[1] = 98, Err(MessageError::Errno(98)));
        check_ready(
            |words| words[13] = 0,
            Err(MessageError::Foreign("0 came as the port for data".into())),
        );
        check_ready(
            |words| words[13] = 70_000,
            Err(MessageError::Foreign("70000 came as the port for data".into())),
        );
        let other = "a message of kind 7 came instead of 98";
        check_ready(|words| words[0] = 7, Err(MessageError::Foreign(other.into())));
    }

    #[test]
    fn netperf_results_are_read_or_refused() {
        let results = NetperfResults::parse(&results_message(|_| {})).unwrap();
        assert_eq!((results.bytes_received, results.transactions), (1 << 32 | 5, 1000));
        assert_eq!(results.retransmits, None, "-1 is unknown");
        let cpu = results.cpu.unwrap();
        assert_eq!((cpu.cpus, cpu.peak), (4, Some((1, 50.0))));
        // 25% of 4 CPUs for 2 s are 2 s of CPU time, over 1000 transactions 2000 us each.
        assert_eq!(cpu.service_demand_us(1000.0, results.elapsed_s), Some(2000.0));
        assert_eq!(cpu.service_demand_us(0.0, 1.0), None);

        let with = |change: fn(&mut [u32])| NetperfResults::parse(&results_message(change));
        assert_eq!(with(|words| words[13] = f32::NAN.to_bits()).unwrap().cpu, None);
        assert_eq!(with(|words| words[21] = 0).unwrap().cpu, None, "no CPUs");
        assert_eq!(with(|words| words[20] = 0).unwrap().cpu, None, "not measured");
        assert!(with(|words| words[12] = f32::NEG_INFINITY.to_bits()).is_err());
        assert_eq!(with(|words| words[1] = 32), Err(MessageError::Errno(32)));
        drop(with(|words| words.fill(u32::MAX)));
    }

    fn encode_words(words: &[u32]) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        for (word, place) in words.iter().zip(bytes.as_chunks_mut::<4>().0) {
            *place = word.to_be_bytes();
        }
        bytes
    }

    #[track_caller]
    fn check_ready(change: impl FnOnce(&mut [u32]), expected: Result<SetupResponse, MessageError>) {
        let mut words = [0; 20];
        (words[0], words[8], words[13]) = (98, MEASURE_CPU, 40_000);
        change(&mut words);
        assert_eq!(SetupResponse::parse(&encode_words(&words)), expected);
    }

    fn results_message(change: impl FnOnce(&mut [u32])) -> [u8; MESSAGE_BYTES] {
        let mut words = [0; 29];
        (words[2], words[3], words[11]) = (1, 5, 1000);
        words[12] = 2.0_f32.to_bits();
        words[13] = 25.0_f32.to_bits();
        (words[20], words[21], words[22], words[23]) = (12, 4, 1, 50.0_f32.to_bits());
        words[28] = u32::MAX;
        change(&mut words);
        encode_words(&words)
    }
}
