//! The lab of a run while it is held: its namespaces and its lock, here or at the broker.

use std::path::PathBuf;

use latput_linux::files::{self, FileError, FileLock};
use latput_linux::lab::{self, Lab, LabOptions};
use latput_linux::process::Capability;
use latput_protocol::control::LinkReset;
use latput_protocol::folders::state_dir;
use latput_protocol::text::format_error_chain;
use latput_trial::observation::Role;

use crate::broker::client::{BrokerLine, get_broker};
use crate::broker::message::{LabPlace, LaunchCommand};
use crate::error::Error;
use crate::host_spec::{HostSpec, own_program};

/// Subfolder of the state folder for checkpoints of a lab's agents.
pub const LAB_STATE: &str = "lab";
/// A system that ships with the simulator, for who may not make a lab.
pub const EXAMPLE_SYSTEM: &str = "server-10g";

/// A lab, here or at the broker. It is removed when this value is dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "it is only held")]
pub struct LabGuard(LabOwner);

#[derive(Debug)]
#[expect(dead_code, reason = "it is only held")]
enum LabOwner {
    Own(Box<OwnLab>),
    Broker(BrokerLabGuard),
}

impl LabGuard {
    /// Makes the lab; returns it with its hosts, the generator first.
    ///
    /// # Errors
    ///
    /// Why it cannot be made.
    pub fn build() -> Result<(Self, [LabPlace; 2]), Error> {
        if let Some(broker) = get_broker() {
            let lab = Self(LabOwner::Broker(BrokerLabGuard(broker)));
            return Ok((lab, broker.make_lab()?));
        }
        let lab = OwnLab::build_lab(std::process::id())?;
        let places = lab.list_hosts();
        Ok((Self(LabOwner::Own(Box::new(lab))), places))
    }
}

/// The lab of the broker.
#[derive(Debug)]
struct BrokerLabGuard(&'static BrokerLine);

impl Drop for BrokerLabGuard {
    fn drop(&mut self) {
        self.0.remove_lab();
    }
}

/// The lab of this process.
#[derive(Debug)]
pub(crate) struct OwnLab {
    lab: Lab,
    _lock: LabLock,
}

impl OwnLab {
    /// Makes it, for the run with this process id.
    pub(crate) fn build_lab(run: u32) -> Result<Self, Error> {
        check_permission().map_err(|error| Error::Lab {
            permission: true,
            problem: format!(
                "{error}. Without root: `latput measure loopback` measures this host, `--on sim:{EXAMPLE_SYSTEM}` \
                 simulates one"
            ),
        })?;
        let lock = LabLock::take_for(run)?;
        let lab = Lab::build(&LabOptions::default()).map_err(|error| Error::Lab {
            permission: error.is_permission(),
            problem: format_error_chain(&error),
        })?;
        Ok(Self { lab, _lock: lock })
    }

    /// Its hosts, the generator first.
    pub(crate) fn list_hosts(&self) -> [LabPlace; 2] {
        self.lab.hosts().map(|host| LabPlace {
            name: host.name.to_owned(),
            namespace: host.namespace.path(),
            address: host.address,
            cpus: host.cpus.clone(),
        })
    }
}

impl LabPlace {
    /// How latput is started there.
    pub(crate) fn launch_command(&self) -> LaunchCommand {
        let program = own_program();
        let (namespace, cpus) = (self.namespace.display().to_string(), self.cpus.to_string());
        let words: [&str; 8] =
            [&program, "lab", "exec", "--namespace", &namespace, "--cpus", &cpus, "--"];
        LaunchCommand { via: words.map(str::to_owned).into(), program }
    }

    /// It as a host of a testbed.
    pub fn to_host_spec(&self, role: Role) -> HostSpec {
        let LaunchCommand { via, program } = self.launch_command();
        HostSpec {
            interface: lab::INTERFACE.to_owned(),
            address: self.address,
            cpus: Some(self.cpus.clone()),
            binds_napi_threads: true,
            link_reset: LinkReset::AllowedOnControl,
            ..HostSpec::from_launch_command(&self.name, role, (via, program))
        }
    }
}

/// The lock of the lab: two runs at a time would disturb each other.
#[derive(Debug)]
pub struct LabLock {
    _file: FileLock,
    state_dir: PathBuf,
}

impl LabLock {
    /// Takes the lock; the error names the holder, or the missing privilege.
    pub fn take() -> Result<Self, Error> {
        check_permission()
            .map_err(|error| Error::Lab { permission: true, problem: error.to_string() })?;
        Self::take_for(std::process::id())
    }

    fn take_for(holder: u32) -> Result<Self, Error> {
        let folder = state_dir();
        let failed = |error: FileError| {
            let mend = if error.permission { ": the lab needs root" } else { "" };
            Error::Lab { problem: format!("{error}{mend}"), permission: error.permission }
        };
        files::private_folder(&folder).map_err(failed)?;
        let file = FileLock::take_for(&folder.join("lab.lock"), holder).map_err(failed)?;
        let file = file.map_err(|pid| {
            let problem =
                format!("another latput (pid {pid}) is using the lab: wait until it has ended");
            Error::Lab { problem, permission: false }
        })?;
        let lock = Self { _file: file, state_dir: folder.join(LAB_STATE) };
        // State of an earlier lab refers to namespaces that no longer exist.
        lock.forget_state();
        Ok(lock)
    }

    fn forget_state(&self) {
        let _ = std::fs::remove_dir_all(&self.state_dir);
    }
}

impl Drop for LabLock {
    fn drop(&mut self) {
        self.forget_state();
    }
}

/// Whether this process may make a lab.
pub fn check_permission() -> Result<(), latput_linux::Error> {
    Capability::SysAdmin.require("the lab")?;
    Capability::NetAdmin.require("the lab")
}
