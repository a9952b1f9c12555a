//! Makes two hosts of the guest's two network cards, each in a namespace of its own, and connects
//! them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use latput_linux::Namespace;
use latput_linux::route::{Link, Route};

use crate::config::{ENDPOINTS, GuestEndpoint, PREFIX_LENGTH};
use crate::error::Error;

/// A card's link comes up within half a second; an emulated CPU may take its time.
const WAIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Makes both hosts and waits until each has a link.
pub(super) fn make_hosts() -> Result<(), Error> {
    let [sut, generator] = ENDPOINTS;
    let here = Namespace::current()?;
    here.pin(sut.name)?;
    let there = Namespace::create()?;
    there.pin(generator.name)?;
    connect_hosts(&there)
}

/// The same with cards that were made anew by their driver: the namespaces are there.
pub(super) fn connect_again() -> Result<(), Error> {
    let [_, generator] = ENDPOINTS;
    connect_hosts(&Namespace::open(
        &Path::new(latput_linux::namespace::PIN_FOLDER).join(generator.name),
    )?)
}

/// Gives each host its card, in the first namespace and in the generator's.
fn connect_hosts(there: &Namespace) -> Result<(), Error> {
    let [sut, generator] = ENDPOINTS;
    for host in ENDPOINTS {
        wait_until(&format!("{} with the address of the {}", host.interface, host.name), || {
            Ok(find_card(host)?.is_some())
        })?;
    }
    Route::open()?.move_to(generator.interface, there.as_fd())?;
    bring_up(sut, generator)?;
    there.run_in(|| bring_up(generator, sut))??;
    wait_until("the link of eth0", || Ok(has_carrier(sut)?))?;
    there.run_in(|| wait_until("the link of eth1", || Ok(has_carrier(generator)?)))??;
    there.run_in(|| bind_interrupts(generator))?;
    bind_interrupts(sut);
    Ok(())
}

fn find_card(host: GuestEndpoint) -> Result<Option<Link>, Error> {
    let links = Route::open()?.links()?;
    Ok(links.into_iter().find(|link| link.name == host.interface && link.mac == Some(host.mac)))
}

fn has_carrier(host: GuestEndpoint) -> Result<bool, latput_linux::Error> {
    Ok(Route::open()?.link(host.interface)?.has_carrier == Some(true))
}

fn bring_up(host: GuestEndpoint, other: GuestEndpoint) -> Result<(), latput_linux::Error> {
    let route = Route::open()?;
    for interface in ["lo", host.interface] {
        // A kernel without IPv6 has nothing to stop.
        let _ = route.stop_ipv6_autoconfiguration(interface);
    }
    route.add_address(host.interface, host.address, PREFIX_LENGTH)?;
    route.set_up("lo")?;
    route.set_up(host.interface)?;
    // Known beforehand, so that no ARP disturbs a measurement.
    route.add_neighbour(host.interface, other.address, other.mac)
}

/// Holds the interrupts of a host's card to its CPU, as far as the kernel lets them be held: where
/// both cards share one, the last wins.
fn bind_interrupts(host: GuestEndpoint) {
    for irq in list_interrupts(host.interface) {
        let _ = fs::write(format!("/proc/irq/{irq}/smp_affinity_list"), host.cpu.to_string());
    }
}

/// The numbers of a card's interrupts: its vectors, else its one line.
pub(crate) fn list_interrupts(interface: &str) -> Vec<String> {
    let device = PathBuf::from(format!("/sys/class/net/{interface}/device"));
    // Of a virtio card the vectors belong to the PCI device above it.
    let folders = [device.join("msi_irqs"), device.join("../msi_irqs")];
    let vectors = folders.iter().find_map(|folder| entry_names(folder));
    vectors.unwrap_or_else(|| {
        let line = fs::read_to_string(device.join("irq")).unwrap_or_default();
        vec![line.trim().to_owned()]
    })
}

fn entry_names(folder: &Path) -> Option<Vec<String>> {
    let entries = fs::read_dir(folder).ok()?;
    Some(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

fn wait_until(what: &str, mut is_there: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let begun = Instant::now();
    while !is_there()? {
        if begun.elapsed() > WAIT {
            return Err(Error::Line(format!("waited {} s for {what}", WAIT.as_secs())));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
