//! Facts that both sides share: the two hosts in the guest, and the file of instructions for process 1.

use std::net::{IpAddr, Ipv4Addr};

use latput_linux::route::MacAddress;
use serde::{Deserialize, Serialize};

/// latput in the guest.
pub const PROGRAM: &str = "/bin/latput";

/// The configuration in the guest.
pub(crate) const CONFIG: &str = "/etc/latput-vm.json";
/// The options of the cards' driver, where any program looks for them (modprobe.d(5)).
pub(crate) const OPTIONS: &str = "/etc/modprobe.d/latput.conf";
/// The modules in the guest, one file each, without folders.
pub(crate) const MODULES: &str = "/lib/modules";
/// The virtio ports over which commands come are called `latput.0`, `latput.1` and so on.
pub(crate) const PORT_PREFIX: &str = "latput.";
/// Number of commands that can run at once.
pub(crate) const PORTS: usize = 12;
/// Process 1's line on the console when everything is in place.
pub(crate) const READY: &str = "latput: ready";
/// Process 1's line on the console when it gives up.
pub(crate) const FAILED: &str = "latput: error: ";
/// Length of the prefix of the hosts' network.
pub(crate) const PREFIX_LENGTH: u8 = 24;

/// One of the two hosts in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestEndpoint {
    /// Its name, also of its network namespace (`/run/netns/NAME`).
    pub name: &'static str,
    /// Its network card.
    pub interface: &'static str,
    /// Its address, from the block for benchmarks (RFC 2544, appendix C.2.2).
    pub address: IpAddr,
    /// Its CPU.
    pub cpu: u32,
    /// The Ethernet address of its card.
    pub(crate) mac: MacAddress,
}

/// The hosts: the system under test, which is in the guest's first namespace, and the generator.
pub const ENDPOINTS: [GuestEndpoint; 2] = [
    GuestEndpoint {
        name: "sut",
        interface: "eth0",
        address: IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)),
        cpu: 1,
        mac: [0x52, 0x54, 0, 0, 0, 2],
    },
    GuestEndpoint {
        name: "generator",
        interface: "eth1",
        address: IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)),
        cpu: 0,
        mac: [0x52, 0x54, 0, 0, 0, 1],
    },
];

impl GuestEndpoint {
    /// The words in front of a command that make it run as this host: in its namespace, on its CPU,
    /// with its own state folder.
    pub fn exec_words(&self) -> Vec<String> {
        let namespace = format!("{}/{}", latput_linux::namespace::PIN_FOLDER, self.name);
        let cpu = self.cpu.to_string();
        let words = [PROGRAM, "lab", "exec", "--namespace", &namespace, "--cpus", &cpu, "--"];
        words.map(str::to_owned).to_vec()
    }
}

/// The instructions for process 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuestConfig {
    /// Modules, each after those it depends on; a file of [`MODULES`] each.
    pub(crate) modules: Vec<String>,
    /// The one among them that drives the two cards.
    pub(crate) cards: String,
    /// Its parameters, with what it takes by itself.
    pub(crate) parameters: Vec<(String, u64)>,
}
