//! A system profile: one machine, its NIC and network, as `data/systems/*.toml` describes them.
//!
//! Reading files is for the edges; here are the structs that a file fills, with every unknown key
//! refused, and the step from a profile and a workload to a scenario.

use latput_trial::observation::Role;
use latput_trial::workload::Workload;
use latput_units::{BitsPerSecond, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Nic, Stack};
use crate::scenario::{Adaptive, Host, Network, Scenario};
use crate::validate::Invalid;
use crate::workload;

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
        let mut hosts =
            vec![host("generator", Role::Generator, generator), host("sut", Role::Sut, &self.sut)];
        for host in &mut hosts {
            workload::set_options(&mut host.stack, &workload.sockets, &workload.traffic)?;
        }
        let scenario = Scenario {
            seed,
            warmup: Nanos::from_ns(duration.as_ns() / 10),
            duration,
            hosts,
            network: Network {
                rate: self.network.rate,
                latency: self.network.latency,
                latency_jitter_ratio: self.network.latency_jitter_ratio,
                mtu: self.network.mtu,
                switch: None,
            },
            loads: workload::loads(workload)?,
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
