//! A system profile: one machine, its NIC and network, as `data/systems/*.toml` describes them.
//!
//! These structs mirror the file and refuse unknown keys. A profile and a workload make a scenario.
//! The edge crate reads the file.

pub(crate) mod text;

use latput_policy::{Aim, Dim, E1000, Ixgbe, Policy, aim, dim, ixgbe};
use latput_trial::observation::Role;
use latput_trial::workload::Workload;
use latput_units::{BitsPerSecond, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::machine::{AdaptiveModeration, Machine, NetworkStack, Nic};
use crate::scenario::{AdaptivePolicies, Host, Network, Scenario};
use crate::validate::InvalidValue;
use crate::workload;

pub use self::text::{TextError, read_toml};

/// The schema that this version reads.
pub const SCHEMA: u32 = 1;

/// The same limit as for a testbed of real hosts.
const MOST_GENERATORS: u32 = 64;

/// A system: the machine under test, its load generators, and the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemProfile {
    /// Must be [`SCHEMA`].
    pub schema: u32,
    /// The name, as in `sim:NAME`.
    pub name: String,
    /// The source of its figures.
    pub source: String,
    /// Number of load generators. Several are joined by a switch.
    #[serde(default = "one")]
    pub generators: u32,
    /// The system under test.
    pub sut: HostProfile,
    /// Each load generator; equal to the system under test if absent.
    pub generator: Option<HostProfile>,
    /// A host that only sends echo requests, if any.
    pub observer: Option<HostProfile>,
    /// The network between the hosts.
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
    pub stack: NetworkStack,
}

/// The network of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkProfile {
    /// Rate of every link.
    #[serde(rename = "rate_bps")]
    pub rate: BitsPerSecond,
    /// One-way latency of every packet size.
    #[serde(rename = "latency_ns")]
    pub latency: Nanos,
    /// The latency varies upwards by this share.
    #[serde(default)]
    pub latency_jitter_ratio: f64,
    /// Largest IP packet.
    #[serde(rename = "mtu_bytes", default = "ethernet_mtu")]
    pub mtu: Bytes,
    /// Buffer of each port of the switch that joins more than two hosts.
    #[serde(rename = "switch_buffer_bytes", default)]
    pub switch_buffer: Option<Bytes>,
}

const fn one() -> u32 {
    1
}

const fn ethernet_mtu() -> Bytes {
    Bytes::new(1_500)
}

impl SystemProfile {
    /// The checked scenario of one trial: `workload` between the generators and the system under
    /// test. Host 0 is the first generator and host 1 the system under test. Further generators
    /// follow; the observer is last.
    pub fn build_scenario(
        &self,
        workload: &Workload,
        seed: u64,
        duration: Nanos,
    ) -> Result<Scenario, InvalidValue> {
        if self.schema != SCHEMA {
            return Err(InvalidValue {
                key: String::from("schema"),
                found: self.schema.to_string(),
                wanted: format!("{SCHEMA}, the schema that this version reads"),
            });
        }
        let mut hosts = self.build_hosts()?;
        for host in &mut hosts {
            workload::set_options(&mut host.stack, &workload.sockets, &workload.traffic)?;
        }
        let by_role = |role| {
            let of_role = hosts.iter().enumerate().filter(move |(_, host)| host.role == role);
            of_role.map(|(idx, _)| idx)
        };
        let generators: Vec<usize> = by_role(Role::Generator).collect();
        let loads = workload::build_loads(workload, &generators, by_role(Role::Observer).next())?;
        let scenario = Scenario {
            seed,
            warmup: Nanos::from_ns(duration.as_ns() / 10),
            duration,
            network: Network {
                rate: self.network.rate,
                latency: self.network.latency,
                latency_jitter_ratio: self.network.latency_jitter_ratio,
                mtu: self.network.mtu,
                switch: self.network.switch_buffer.filter(|_| hosts.len() > 2),
            },
            loads,
            hosts,
        };
        scenario.check()?;
        Ok(scenario)
    }

    fn build_hosts(&self) -> Result<Vec<Host>, InvalidValue> {
        let refused = |key: &str, found: String, wanted: &str| InvalidValue {
            key: key.to_owned(),
            found,
            wanted: wanted.to_owned(),
        };
        if !(1..=MOST_GENERATORS).contains(&self.generators) {
            let wanted = format!("1 to {MOST_GENERATORS}");
            return Err(refused("generators", self.generators.to_string(), &wanted));
        }
        let has_more = self.generators > 1 || self.observer.is_some();
        if has_more && self.network.switch_buffer.is_none() {
            let wanted = "set: more than two hosts stand around a switch";
            return Err(refused("network.switch_buffer_bytes", String::from("absent"), wanted));
        }
        let generator = self.generator.as_ref().unwrap_or(&self.sut);
        let mut hosts = vec![
            build_host("generator", Role::Generator, generator),
            build_host("sut", Role::Sut, &self.sut),
        ];
        for number in 2..=self.generators {
            hosts.push(build_host(&format!("generator-{number}"), Role::Generator, generator));
        }
        hosts.extend(self.observer.iter().map(|it| build_host("observer", Role::Observer, it)));
        Ok(hosts)
    }
}

fn build_host(name: &str, role: Role, profile: &HostProfile) -> Host {
    Host {
        name: name.to_owned(),
        role,
        machine: profile.machine,
        nic: profile.nic.clone(),
        stack: profile.stack.clone(),
        adaptive: build_adaptive_policies(&profile.nic),
    }
}

/// Time that DIM's worker takes to run.
const DIM_LATENCY: Nanos = Nanos::from_us(50);

/// The policies of a NIC with adaptive moderation.
fn build_adaptive_policies(nic: &Nic) -> AdaptivePolicies {
    let dim = |is_on: bool, profile, points| {
        is_on.then(|| Policy::Dim(Dim::with_points(profile, points)))
    };
    let throttle = match nic.adaptation {
        Some(AdaptiveModeration::Dim) => {
            return AdaptivePolicies {
                rx: dim(nic.adaptive_rx, dim::DimProfile::RxEqe, nic.rx_points()),
                tx: dim(nic.adaptive_tx, dim::DimProfile::TxEqe, nic.tx_points()),
                latency: DIM_LATENCY,
                ..AdaptivePolicies::default()
            };
        }
        Some(AdaptiveModeration::E1000) => {
            Policy::E1000(E1000::new(nic.parameters.throttle_mode()))
        }
        Some(AdaptiveModeration::Igb) => Policy::Aim(Aim::new(aim::AimVariant::IgbConservative)),
        Some(AdaptiveModeration::Ixgbe) => {
            Policy::Ixgbe(Ixgbe::new(ixgbe::IxgbeVersion::OutOfTree))
        }
        None => return AdaptivePolicies::default(),
    };
    AdaptivePolicies {
        throttle: Some(throttle).filter(|_| nic.adaptive_rx),
        ..AdaptivePolicies::default()
    }
}
