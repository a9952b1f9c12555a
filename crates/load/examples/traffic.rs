//! Both ends of the traffic engine by hand, for comparing it with other programs:
//!
//! ```text
//! traffic reflect  ADDRESS PORT KEY CPUS WARM_UP LENGTH TRAFFIC
//! traffic generate ADDRESS PORT KEY CPUS WARM_UP LENGTH TRAFFIC [PROBE_HZ]
//! traffic key
//! ```
//!
//! TRAFFIC is JSON: `{"kind":"tcp_rr","request_bytes":1,"response_bytes":1,"burst":0,"connections":1,"nodelay":true}`.
//! Each end prints its outcome as JSON.
#![allow(clippy::print_stdout, reason = "an example prints what it did")]

use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use latput_load::{Generator, Key, Reflector, Stop, Window, now};
use latput_trial::{Probe, Traffic};
use latput_units::{CpuSet, Nanos};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["key"] => println!("{}", String::from(Key::generate()?)),
        [end, address, port, key, cpus, warm_up, length, traffic, ref probe @ ..] => {
            let (address, port): (IpAddr, u16) = (address.parse()?, port.parse()?);
            let (key, cpus): (Key, CpuSet) = (key.parse()?, cpus.parse()?);
            let (warm_up, length): (Nanos, Nanos) = (warm_up.parse()?, length.parse()?);
            let traffic: Traffic = serde_json::from_str(traffic)?;
            let stop = Stop::new();
            if end == "reflect" {
                let reflector =
                    Reflector::open(SocketAddr::new(address, port), key, traffic, cpus)?;
                reflector.wait_ready(now() + Nanos::from_s(10))?;
                let outcome = reflector.run(Window::starting_in(warm_up, length)?, &stop)?;
                println!("{}", serde_json::to_string(&outcome)?);
            } else {
                let rate_hz = probe.first().map(|rate_hz| rate_hz.parse()).transpose()?;
                let probe = rate_hz.map(|rate_hz| Probe { rate_hz });
                let generator = Generator::connect(address, port, &key, traffic, probe, cpus)?;
                let outcome = generator.run(Window::starting_in(warm_up, length)?, &stop)?;
                println!("{}", serde_json::to_string(&outcome)?);
            }
        }
        _ => return Err("see the top of this example's source for its arguments".into()),
    }
    Ok(())
}
