//! A system profile: one machine, its NIC and network, as `data/systems/*.toml` describes them.
//!
//! Reading files is for the edges; here are the structs that a file fills, with every unknown key
//! refused, and the step from a profile and a workload to a scenario.

use latput_trial::observation::Role;
use latput_trial::workload::{Direction, Traffic as Wanted, Workload};
use latput_units::{BitsPerSecond, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Nic, Stack};
use crate::scenario::{Adaptive, Host, Load, Network, Scenario, Spacing, Traffic, Transport};
use crate::validate::Invalid;

/// Datagrams that latput's own receiver takes per call.
const RECEIVE_BATCH: u32 = 32;

/// The schema that this version reads.
pub const SCHEMA: u32 = 1;

/// A system: the machine under test, what loads it, and what is between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Must be [`SCHEMA`].
    pub schema: u32,
    /// What it is called, as `sim:NAME`.
    pub name: String,
    /// Where its figures come from.
    pub source: String,
    /// The system under test.
    pub sut: HostProfile,
    /// Each load generator; like the system under test if absent.
    pub generator: Option<HostProfile>,
    /// What is between them.
    pub network: NetworkProfile,
}

/// One host of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostProfile {
    /// Processor and costs.
    pub machine: Machine,
    /// NIC and driver.
    pub nic: Nic,
    /// Network stack.
    pub stack: Stack,
}

/// The network of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkProfile {
    /// Rate of every link.
    #[serde(rename = "rate_bps")]
    pub rate: BitsPerSecond,
    /// One way, whatever the size.
    #[serde(rename = "latency_ns")]
    pub latency: Nanos,
    /// The latency varies upwards by this share.
    #[serde(default)]
    pub latency_jitter_ratio: f64,
    /// Largest IP packet.
    #[serde(rename = "mtu_bytes", default = "ethernet_mtu")]
    pub mtu: Bytes,
}

const fn ethernet_mtu() -> Bytes {
    Bytes::new(1_500)
}

impl Profile {
    /// The scenario of one trial: `workload` between a generator (host 0) and the system under test (host
    /// 1), checked.
    pub fn scenario(
        &self,
        workload: &Workload,
        seed: u64,
        duration: Nanos,
    ) -> Result<Scenario, Invalid> {
        if self.schema != SCHEMA {
            return Err(Invalid {
                key: String::from("schema"),
                found: self.schema.to_string(),
                wanted: format!("{SCHEMA}, the schema that this version reads"),
            });
        }
        let generator = self.generator.as_ref().unwrap_or(&self.sut);
        let mut loads = vec![Load::new(0, 1, traffic(&workload.traffic)?)];
        if let Some(probe) = workload.probe {
            loads.push(Load::new(0, 1, Traffic::Probe { rate_hz: f64::from(probe.rate_hz) }));
        }
        let scenario = Scenario {
            seed,
            warmup: Nanos::from_ns(duration.as_ns() / 10),
            duration,
            hosts: vec![
                host("generator", Role::Generator, generator),
                host("sut", Role::Sut, &self.sut),
            ],
            network: Network {
                rate: self.network.rate,
                latency: self.network.latency,
                latency_jitter_ratio: self.network.latency_jitter_ratio,
                mtu: self.network.mtu,
                switch: None,
            },
            loads,
        };
        scenario.check()?;
        Ok(scenario)
    }
}

fn host(name: &str, role: Role, profile: &HostProfile) -> Host {
    Host {
        name: name.to_owned(),
        role,
        machine: profile.machine,
        nic: profile.nic.clone(),
        stack: profile.stack.clone(),
        adaptive: Adaptive::default(),
    }
}

/// Datagrams that latput's own sender sends together: what is due in 50 us, at most 64.
#[expect(clippy::cast_possible_truncation, reason = "clamped")]
fn group(rate_pps: f64) -> u32 {
    (rate_pps * 50e-6).clamp(1.0, 64.0) as u32
}

fn traffic(wanted: &Wanted) -> Result<Traffic, Invalid> {
    Ok(match *wanted {
        Wanted::TcpRr {
            request_bytes,
            response_bytes,
            burst,
            connections,
            nodelay,
            arrivals: None,
            ..
        } => Traffic::RequestResponse {
            transport: Transport::Tcp { nodelay },
            request: request_bytes,
            response: response_bytes,
            burst,
            connections,
            think: Nanos::ZERO,
        },
        Wanted::TcpBulk {
            direction: Direction::ToSut,
            message_bytes,
            connections,
            rate: None,
            ..
        } => Traffic::Stream { message: message_bytes, connections },
        Wanted::UdpStream { datagram_bytes, rate: Some(rate), connections: 1, .. } => {
            let rate_pps = rate.get() as f64 / 8.0 / datagram_bytes.get() as f64;
            Traffic::Datagrams {
                size: datagram_bytes,
                rate_pps,
                spacing: Spacing::Even,
                group: group(rate_pps),
                receive_batch: RECEIVE_BATCH,
            }
        }
        _ => {
            return Err(Invalid {
                key: String::from("workload"),
                found: wanted.kind().to_owned(),
                wanted: String::from("one that the simulator can make"),
            });
        }
    })
}
