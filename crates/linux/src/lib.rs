//! The only crate that speaks to the kernel: netlink, sysfs, procfs, counters, namespaces.
//!
//! Everything here acts on the network namespace of the calling thread at the time it was opened;
//! [`Namespace::run_in`] and [`Namespace::enter_process`] change which that is.
#![allow(
    unsafe_code,
    reason = "namespaces, one socket option, ethtool's ioctl, another process's CPU clock, bpf(2) and Landlock have no \
              safe wrapper"
)]

mod armed_signal;
pub mod bpf;
pub mod checkpoint;
pub mod confine;
pub mod contain;
pub mod control;
pub mod counters;
pub mod effect;
pub mod ethtool;
pub mod facts;
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod identity;
pub mod interfaces;
pub mod journal;
pub mod lab;
pub mod look;
pub mod namespace;
pub mod netdev;
pub mod others;
pub mod process;
mod root_folder;
pub mod route;
pub mod state_place;
pub mod surroundings;
pub mod tcp;
pub mod throttle;
pub mod watch;

mod errno;
mod error;
mod kernel;
mod kernel_features;
mod netlink;
mod sysfs;

pub use armed_signal::{ChildSignal, arm_continue_on_hangup, has_no_reader};
pub use bpf::{NapiTracer, RttSamples, RttTracer, StageRecorder, traces_in_turns};
pub use checkpoint::FileCheckpoints;
pub use control::Control;
pub use counters::{
    CounterSnapshot, CpuMeter, ProtocolMeter, Protocols, Sample, Sampler, Traced, TracingCost,
};
pub use error::Error;
pub use identity::Identity;
pub use journal::Journal;
pub use kernel::{InterruptRoute, LinuxKernel, Surveyed};
pub use kernel_features::find_kernel_features;
pub use lab::{Lab, LabHost, LabOptions};
pub use namespace::Namespace;
pub use others::OtherWork;
pub use process::{Capability, OsClock};
pub use root_folder::RootFolder;
pub use tcp::{ConnectionEnds, EndedConnections, TcpConnection, TcpMeter};
pub use throttle::Throttles;
pub use watch::Watch;
