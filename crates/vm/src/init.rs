//! Process 1 of the guest: loads the drivers, makes two hosts of the two network cards, and runs the
//! commands that come over the line.

mod network;
mod service;

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::mount::MountFlags;
use rustix::system::RebootCommand;
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use crate::config::{CONFIG, ENDPOINTS, FAILED, GuestConfig, MODULES, OPTIONS, READY};
use crate::error::Error;

pub(crate) use network::list_interrupts;

/// `O_NONBLOCK`: a module that somebody uses is an error, and not waited for (`delete_module(2)`).
const NOT_WAITING: i32 = 0o4000;

/// Does everything that a guest needs, and never returns: process 1 must not end. When something
/// fails it says so on the console and turns the guest off.
pub fn run(console: &mut impl Write) -> ! {
    let failed = match set_up(console) {
        Ok(()) => service::serve_ports(),
        Err(error) => Err(error),
    };
    if let Err(error) = failed {
        let _ = writeln!(console, "{FAILED}{error}");
        let _ = console.flush();
    }
    let _ = rustix::system::reboot(RebootCommand::PowerOff);
    loop {
        std::thread::park(); // a kernel that cannot turn off is ended from outside
    }
}

/// Refuses to be anything but process 1: on a real machine it would mount and load things.
pub fn require_process_1() -> Result<(), Error> {
    if std::process::id() == 1 {
        return Ok(());
    }
    Err(Error::Line("`latput vm init` is the first process of a guest, and of nothing else".into()))
}

/// Unloads the driver of the cards, loads it with these parameters and connects the hosts again. Works
/// in a guest only, where there is a `CONFIG`.
pub fn reload_driver(parameters: &[String]) -> Result<(), Error> {
    let config = read_config()?;
    let module = CString::new(config.cards.as_str()).map_err(|_| {
        Error::damaged(Path::new(CONFIG), "a NUL in the name of a module".to_owned())
    })?;
    rustix::system::delete_module(&module, NOT_WAITING)
        .map_err(|errno| Error::io(format!("unload the module {}", config.cards), errno))?;
    load_cards(&config, parameters)?;
    network::connect_again()
}

/// Sets the wall clock forward, or back by a negative number. Works in a guest only.
pub fn step_wall_clock(seconds: i64) -> Result<(), Error> {
    read_config()?;
    let now = clock_gettime(ClockId::Realtime);
    let then = Timespec { tv_sec: now.tv_sec.saturating_add(seconds), ..now };
    clock_settime(ClockId::Realtime, then)
        .map_err(|errno| Error::io("set the wall clock".to_owned(), errno))
}

fn set_up(console: &mut impl Write) -> Result<(), Error> {
    mount_all()?;
    let config = read_config()?;
    for module in config.modules.iter().filter(|module| **module != config.cards) {
        load_module(module, "")?;
    }
    load_cards(&config, &[])?;
    let _ = writeln!(console, "latput: drivers after {}", format_uptime());
    network::make_hosts()?;
    let _ = writeln!(console, "{READY} after {}", format_uptime());
    let _ = console.flush();
    Ok(())
}

fn read_config() -> Result<GuestConfig, Error> {
    let text = fs::read(CONFIG).map_err(|source| Error::io(format!("read {CONFIG}"), source))?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::damaged(Path::new(CONFIG), error.to_string()))
}

fn mount_all() -> Result<(), Error> {
    for (kind, path) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
    ] {
        match rustix::mount::mount(kind, path, kind, MountFlags::empty(), None::<&CStr>) {
            // latput has a `/sys` by then (`Namespace::show_in_sysfs`).
            Err(rustix::io::Errno::BUSY) if kind == "sysfs" => {}
            Ok(()) => {}
            Err(errno) => return Err(Error::io(format!("mount {path}"), errno)),
        }
    }
    Ok(())
}

/// Loads the driver of the cards, and writes down with what: it does not show it. What is not given is
/// given as the driver would take it.
fn load_cards(config: &GuestConfig, given: &[String]) -> Result<(), Error> {
    let name = |word: &str| word.split('=').next().map(str::to_owned);
    let missing = config.parameters.iter().filter(|(parameter, _)| {
        !given.iter().any(|word| name(word).as_deref() == Some(parameter))
    });
    let by_itself = missing.map(|(parameter, value)| {
        format!("{parameter}={}", ENDPOINTS.map(|_| value.to_string()).join(","))
    });
    let words: Vec<String> = given.iter().cloned().chain(by_itself).collect();
    load_module(&config.cards, &words.join(" "))?;
    let options = format!("options {} {}\n", config.cards, words.join(" "));
    fs::write(OPTIONS, options).map_err(|source| Error::io(format!("write {OPTIONS}"), source))
}

fn load_module(module: &str, parameters: &str) -> Result<(), Error> {
    let failed = |source: io::Error| Error::io(format!("load the module {module}"), source);
    let file = File::open(format!("{MODULES}/{module}.ko")).map_err(failed)?;
    let parameters = CString::new(parameters).map_err(|error| failed(error.into()))?;
    rustix::system::finit_module(&file, &parameters, 0).map_err(|errno| failed(errno.into()))
}

/// Seconds since the kernel started, as it tells them.
fn format_uptime() -> String {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    format!("{} s", text.split(' ').next().unwrap_or_default())
}
