//! Runs programs on a host for a `command` workload.
//!
//! `latput program --stdio` is started through the same command as the host's agent, because an agent has no rights and its
//! keeper does a closed list of operations. It runs what the controller asks for ([`latput_protocol::program`]) and answers with the exit
//! status, the times and the kept output. Each program is held by two processes of its own ([`hold`]), so that nothing of
//! it is left running, however this process, its controller or the program ends.

pub mod hold;
mod kept;
mod ready;
mod running;
mod serve;

pub use serve::serve_controller;
