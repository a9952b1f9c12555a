//! Prints the type of each interface of nmstate's YAML on stdin, and the keyfiles that nmstate makes of it.

use std::io::Read as _;
use std::process::ExitCode;

use nmstate::{NetworkState, NmstateError};

fn main() -> ExitCode {
    match convert() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn convert() -> Result<(), NmstateError> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("stdin is text");
    let state = NetworkState::new_from_yaml(&text)?;
    for interface in state.interfaces.iter() {
        println!("{}: {}", interface.name(), interface.iface_type());
    }
    for (_, files) in state.gen_conf()? {
        for (_, keyfile) in files {
            println!("{keyfile}");
        }
    }
    Ok(())
}
