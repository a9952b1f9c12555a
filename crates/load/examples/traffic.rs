//! Both ends of the traffic engine by hand, for comparing it with other programs:
//!
//! ```text
//! traffic reflect  ADDRESS PORT KEY CPUS WARM_UP LENGTH FIELD=VALUE...
//! traffic generate ADDRESS PORT KEY CPUS WARM_UP LENGTH FIELD=VALUE...
//! traffic key
//! ```
//!
//! The fields are those of a workload in a plan: `kind=tcp_rr burst=16`. LENGTH may be COUNTxSLICE-CUT, as
//! `80x250ms-30ms`. Each end prints the outcome of each slice as a line of JSON.
#![allow(clippy::print_stdout, reason = "an example prints what it did")]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use latput_load::{Generator, Key, Reflector, SliceLayout, Stop, Window, now};
use latput_trial::Workload;
use latput_units::{CpuSet, Nanos};
use serde::Serialize;

/// How long the generator may take to come.
const PATIENCE: Nanos = Nanos::from_s(30);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["key"] => println!("{}", String::from(Key::generate()?)),
        [end, address, port, key, cpus, warm_up, length, ref fields @ ..] => {
            let (address, port): (IpAddr, u16) = (address.parse()?, port.parse()?);
            let (key, cpus): (Key, CpuSet) = (key.parse()?, cpus.parse()?);
            let warm_up: Nanos = warm_up.parse()?;
            let (workload, stop) = (workload(fields)?, Stop::new());
            if end == "reflect" {
                let bind = SocketAddr::new(address, port);
                let reflector = Reflector::open(bind, key, &workload, cpus)?;
                reflector.wait_ready(now() + PATIENCE)?;
                let outcome = reflector.run(window(warm_up, length)?, &stop)?;
                print(&outcome)?;
            } else {
                let generator = Generator::connect(address, port, &key, &workload, cpus)?;
                let outcome = generator.run(window(warm_up, length)?, &stop)?;
                print(&outcome)?;
            }
        }
        _ => return Err("see the top of this example's source for its arguments".into()),
    }
    Ok(())
}

fn print(outcomes: &[impl Serialize]) -> Result<(), Box<dyn Error>> {
    for outcome in outcomes {
        println!("{}", serde_json::to_string(outcome)?);
    }
    Ok(())
}

fn window(warm_up: Nanos, length: &str) -> Result<Window, Box<dyn Error>> {
    let Some((count, slice)) = length.split_once('x') else {
        return Ok(Window::starting_in(warm_up, length.parse()?)?);
    };
    let (length, cut) = slice.split_once('-').ok_or("slices are COUNTxSLICE-CUT")?;
    let slices = SliceLayout::new(length.parse()?, cut.parse()?, count.parse()?);
    Ok(Window::starting_in(warm_up, slices.length)?.in_slices(slices)?)
}

fn workload(fields: &[&str]) -> Result<Workload, Box<dyn Error>> {
    let pairs: Option<BTreeMap<String, String>> = fields
        .iter()
        .map(|field| field.split_once('='))
        .map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect();
    Ok(latput_trial::workload::from_fields(&pairs.ok_or("a field is NAME=VALUE")?)?)
}
