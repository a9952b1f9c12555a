//! The parts of the device behind an interface: its interrupts, their CPUs, and its driver.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use latput_knobs::{Knob, Place, Value};
use latput_units::{CpuSet, IntoSet};

use super::LinuxKernel;
use super::failure::Failure;
use super::values::Values;
use crate::error::Error;

/// An interrupt of an interface: for which queue, on which CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptRoute {
    /// Its number.
    pub irq: u32,
    /// The names of its handlers: `eth0-rx-0`.
    pub names: Vec<String>,
    /// The receive queue whose NAPI it starts, where the driver tells.
    pub rx_queue: Option<u32>,
    /// The CPUs that may take it, and those that do, as the kernel lists them.
    pub cpus: String,
    /// The CPUs that the interrupt controller was given.
    pub effective_cpus: String,
}

impl fmt::Display for InterruptRoute {
    /// `27 eth0-rx-0 (rx-0): cpus 0-3, effective 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.irq, self.names.join("+"))?;
        if let Some(queue) = self.rx_queue {
            write!(f, " (rx-{queue})")?;
        }
        write!(f, ": cpus {}, effective {}", self.cpus, self.effective_cpus)
    }
}

impl LinuxKernel {
    /// Which interrupt of an interface serves which queue on which CPUs.
    pub fn interrupt_routes(&self, interface: &str) -> Result<Vec<InterruptRoute>, Error> {
        let interrupts =
            self.interrupts(interface).map_err(|failure| Error::Other(failure.reason))?;
        let index = self.route.link(interface)?.index;
        let netdev = self.netdev.as_ref().and_then(|netdev| netdev.napis(index).ok());
        let napis = netdev.unwrap_or_default();
        let cpus = |irq: u32, file: &str| {
            self.proc.read(&format!("irq/{irq}/{file}")).unwrap_or_else(|_| "unreadable".to_owned())
        };
        let route = |irq: u32| InterruptRoute {
            irq,
            names: self.interrupt_names(irq),
            rx_queue: napis.iter().find(|n| n.irq == Some(irq)).and_then(|napi| napi.rx_queue),
            cpus: cpus(irq, "smp_affinity_list"),
            effective_cpus: cpus(irq, "effective_affinity_list"),
        };
        Ok(interrupts.into_iter().map(route).collect())
    }

    /// Interrupts of the device so far, all of its vectors on all CPUs; `None` where it has none of its
    /// own, or the kernel does not count them one by one (`/sys/kernel/irq`, Linux 4.9).
    pub fn interrupt_count(&self, interface: &str) -> Option<u64> {
        let interrupts = self.interrupts(interface).ok()?;
        interrupts.into_iter().try_fold(0, |sum: u64, irq| {
            let text = self.sysfs.files.read(&format!("kernel/irq/{irq}/per_cpu_count")).ok()?;
            let mut counts = text.split(',').map(|count| count.trim().parse::<u64>().ok());
            counts.try_fold(sum, |sum, count| Some(sum.saturating_add(count?)))
        })
    }

    /// How often the link of an interface went up or down.
    pub fn carrier_changes(&self, interface: &str) -> Result<u64, Error> {
        self.sysfs.read_number(interface, "carrier_changes")
    }

    /// The interrupts of the device, in ascending order.
    pub(super) fn interrupts(&self, interface: &str) -> Result<Vec<u32>, Failure> {
        let device = self.sysfs.path(interface, "device");
        if fs::symlink_metadata(&device).is_err() {
            return Err(Failure::unsupported("there is no device behind it, and so no interrupt"));
        }
        let mut numbers = numbers_in(&device.join("msi_irqs"));
        let is_virtio = base_name(&device.join("subsystem")).as_deref() == Some("virtio");
        if is_virtio && numbers.is_empty() {
            numbers = numbers_in(&device.join("../msi_irqs"));
        }
        if numbers.is_empty() {
            let line = fs::read_to_string(device.join("irq")).unwrap_or_default();
            numbers.extend(line.trim().parse::<u32>().ok().filter(|irq| *irq != 0));
        }
        if numbers.is_empty() {
            let names = [Some(interface.to_owned()), base_name(&device)];
            let names: Vec<String> = names.into_iter().flatten().collect();
            numbers = self.interrupts_called(&names);
        }
        // A vector that nobody has asked for has no folder of its own.
        numbers.retain(|irq| self.proc.path(&format!("irq/{irq}")).is_dir());
        if numbers.is_empty() {
            return Err(Failure::unsupported("neither sysfs nor /proc/irq knows its interrupts"));
        }
        Ok(numbers.into_iter().collect())
    }

    /// The interrupts whose handler has one of these names, or one that starts with it and a hyphen.
    fn interrupts_called(&self, names: &[String]) -> BTreeSet<u32> {
        let is_ours = |irq: &u32| {
            self.interrupt_names(*irq).iter().any(|action| {
                names.iter().any(|name| {
                    action
                        .strip_prefix(name.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
                })
            })
        };
        numbers_in(&self.proc.path("irq")).into_iter().filter(is_ours).into_set()
    }

    /// The names of the handlers of an interrupt: `eth0-rx-0`.
    pub(crate) fn interrupt_names(&self, irq: u32) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.proc.path(&format!("irq/{irq}"))) else {
            return Vec::new();
        };
        let folders = entries.flatten().filter(|entry| entry.path().is_dir());
        folders.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    pub(super) fn read_affinity(&self, interface: &str) -> Result<Values, Failure> {
        let read = |(rank, irq): (u32, u32)| {
            let file = format!("irq/{irq}/smp_affinity_list");
            let text = self.proc.read(&file)?;
            let cpus: CpuSet = text.parse().map_err(|_| {
                let path = self.proc.path(&file).display().to_string();
                Error::parse(path, "a list of CPUs", &text)
            })?;
            Ok((Place::Interrupt(rank), Value::Cpus(cpus)))
        };
        (0..).zip(self.interrupts(interface)?).map(read).collect()
    }

    pub(super) fn write_affinity(
        &self,
        interface: &str,
        rank: u32,
        cpus: &CpuSet,
    ) -> Result<(), Failure> {
        let irq = self.interrupt_of_rank(interface, rank)?;
        if cpus.is_empty() {
            return Err(Failure::refused("an interrupt needs a CPU"));
        }
        let written = self.proc.write(&format!("irq/{irq}/smp_affinity_list"), &cpus.to_string());
        written.map_err(|error| match error.errno() {
            Some(libc::EIO) => Failure::refused(format!(
                "interrupt {irq} is managed by the kernel, which alone places it ({error})"
            )),
            Some(libc::ENOSPC) => Failure::refused(format!(
                "CPU {cpus} has no free interrupt vector: take another CPU ({error})"
            )),
            _ => error.into(),
        })
    }

    /// The CPUs that the driver hints at for an interrupt.
    pub(super) fn affinity_hint(&self, interface: &str, rank: u32) -> Result<Value, Failure> {
        let irq = self.interrupt_of_rank(interface, rank)?;
        let file = format!("irq/{irq}/affinity_hint");
        let text = self.proc.read(&file)?;
        let cpus = CpuSet::from_hex_mask(&text).map_err(|_| {
            Error::parse(self.proc.path(&file).display().to_string(), "a CPU mask", &text)
        })?;
        if cpus.is_empty() {
            return Err(Failure::unsupported(format!(
                "the driver has no hint for interrupt {irq}"
            )));
        }
        Ok(Value::Cpus(cpus))
    }

    /// The CPUs that are online; `None` where sysfs does not tell them.
    pub(super) fn online_cpus(&self) -> Option<CpuSet> {
        self.sysfs.files.read("devices/system/cpu/online").ok()?.parse().ok()
    }

    /// Whether these are the CPUs of an interrupt that the driver has just asked for: those online of the kernel's default, of
    /// the device's own node where it has some there (`irq_setup_affinity`), or the driver's hint.
    pub(super) fn is_fresh_affinity(&self, interface: &str, rank: u32, cpus: &CpuSet) -> bool {
        if self.affinity_hint(interface, rank).is_ok_and(|hint| hint == Value::Cpus(cpus.clone())) {
            return true;
        }
        let online = self.online_cpus();
        let mask = self.proc.read("irq/default_smp_affinity").ok();
        let mask = mask.and_then(|text| CpuSet::from_hex_mask(&text).ok());
        let Some((online, mask)) = online.zip(mask) else { return false };
        let both = |one: &CpuSet, other: &CpuSet| -> CpuSet {
            one.iter().filter(|cpu| other.contains(*cpu)).collect()
        };
        let all = both(&mask, &online);
        let near = self.sysfs.read(interface, "device/local_cpulist").ok();
        let near = near.and_then(|text| text.parse().ok());
        let near = near.map(|near| both(&all, &near)).filter(|near| !near.is_empty());
        *cpus == all || near.as_ref() == Some(cpus)
    }

    fn interrupt_of_rank(&self, interface: &str, rank: u32) -> Result<u32, Failure> {
        let found = self.interrupts(interface)?.into_iter().nth(rank as usize);
        found.ok_or_else(|| Failure::unsupported(format!("there is no interrupt {rank}")))
    }

    /// The module of the driver behind an interface; what is built in has the driver's name.
    pub(super) fn module(&self, interface: &str) -> Option<String> {
        base_name(&self.sysfs.path(interface, "device/driver/module"))
            .or_else(|| self.driver_name(interface))
    }

    /// The driver of the device behind an interface.
    pub(super) fn driver_name(&self, interface: &str) -> Option<String> {
        base_name(&self.sysfs.path(interface, "device/driver"))
    }

    /// The meaning of a value to the driver, where it has a special one.
    ///
    /// Source: `e1000_set_coalesce` and `igb_set_coalesce` and their kin: small values of `rx-usecs`
    /// choose how the driver moderates and are no delays.
    pub fn meaning(&self, interface: &str, knob: Knob, value: &Value) -> Option<&'static str> {
        let driver = self.driver_name(interface)?;
        meaning(&driver, knob, value)
    }
}

fn meaning(driver: &str, knob: Knob, value: &Value) -> Option<&'static str> {
    let Value::Time(time) = value else { return None };
    if knob != Knob::RxUsecs && !(knob == Knob::TxUsecs && driver != "e1000" && driver != "e1000e")
    {
        return None;
    }
    let mode = time.as_ns() / 1_000;
    match (driver, mode) {
        ("e1000" | "e1000e" | "igb" | "igc" | "ixgbe" | "ixgbevf", 0) => Some("no moderation"),
        ("e1000" | "e1000e" | "igb" | "igc", 1) => Some("dynamic"),
        ("ixgbe" | "ixgbevf", 1) => Some("adaptive"),
        ("e1000" | "e1000e" | "igb" | "igc", 3) => Some("dynamic conservative"),
        ("e1000" | "e1000e", 4) => Some("simplified"),
        _ => None,
    }
}

/// The entries of a folder that are numbers.
pub(super) fn numbers_in(folder: &Path) -> BTreeSet<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).into_set()
}

/// The last part of what a link points to.
pub(super) fn base_name(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use latput_knobs::{KernelErrorKind, KernelRead, Named};
    use latput_units::Nanos;

    use super::super::tests::old_kernel;
    use super::*;

    /// From the interface's folder to the root of the tree, which is sysfs and procfs at once.
    const ROOT: &str = "../../..";

    #[test]
    fn interrupts_have_order_cpus_and_hints() {
        let files = [
            ("device/msi_irqs/31", "msix"),
            ("device/msi_irqs/4", "msix"),
            ("device/msi_irqs/99", "msix"),
            (&format!("{ROOT}/irq/31/smp_affinity_list"), "1-3\n"),
            (&format!("{ROOT}/irq/31/affinity_hint"), "00000002\n"),
            (&format!("{ROOT}/irq/31/eth0-rx-0/x"), ""),
            (&format!("{ROOT}/irq/4/smp_affinity_list"), "0\n"),
            (&format!("{ROOT}/irq/4/affinity_hint"), "0\n"),
        ];
        let (folder, mut kernel) = old_kernel(&files);
        let cpus = |text: &str| Value::Cpus(text.parse().unwrap());
        let affinity = Knob::SmpAffinity;
        let [first, second] = [0, 1].map(Place::Interrupt);
        let expected = vec![(first, cpus("0")), (second, cpus("1-3"))];
        assert_eq!(kernel.read("lo", affinity), Ok(expected));
        assert_eq!(kernel.resolve("lo", affinity, second, Named::Hint), Ok(cpus("1")));
        let error = kernel.resolve("lo", affinity, first, Named::Hint).unwrap_err();
        assert!(error.to_string().contains("no hint for interrupt 4"), "{error}");
        latput_testkit::write(&mut kernel, "lo", affinity, second, &cpus("2")).unwrap();
        let written = fs::read_to_string(folder.path().join("irq/31/smp_affinity_list"));
        assert!(written.unwrap().starts_with('2'));
        assert!(latput_testkit::write(&mut kernel, "lo", affinity, second, &cpus("none")).is_err());
        // Each write to this device finds no space, as one to a CPU without a free vector does.
        let list = folder.path().join("irq/4/smp_affinity_list");
        fs::remove_file(&list).unwrap();
        std::os::unix::fs::symlink("/dev/full", &list).unwrap();
        let full =
            latput_testkit::write(&mut kernel, "lo", affinity, first, &cpus("100")).unwrap_err();
        assert_eq!(full.kind, KernelErrorKind::Refused);
        assert!(full.reason.starts_with("CPU 100 has no free interrupt vector"), "{full}");
        fs::remove_file(&list).unwrap();
        fs::write(&list, "0\n").unwrap();
        assert!(
            latput_testkit::write(&mut kernel, "lo", affinity, Place::Interrupt(2), &cpus("0"))
                .is_err()
        );
        assert_eq!(kernel.interrupt_names(31), ["eth0-rx-0"]);
        let routes = kernel.interrupt_routes("lo").unwrap();
        assert_eq!(routes[1].to_string(), "31 eth0-rx-0: cpus 2-3, effective unreadable");
    }

    #[test]
    fn affinity_of_new_interrupts_is_nobodys() {
        let files = [
            ("device/msi_irqs/4", "msix"),
            ("device/local_cpulist", "2-5\n"),
            (&format!("{ROOT}/irq/4/smp_affinity_list"), "0\n"),
            (&format!("{ROOT}/irq/4/affinity_hint"), "00000002\n"),
            (&format!("{ROOT}/irq/default_smp_affinity"), "0f\n"),
            (&format!("{ROOT}/devices/system/cpu/online"), "0,2-7\n"),
        ];
        let (folder, kernel) = old_kernel(&files);
        let is_fresh = |cpus: &str| {
            let value = Value::Cpus(cpus.parse().unwrap());
            kernel.is_fresh("lo", Knob::SmpAffinity, Place::Interrupt(0), &value)
        };
        for (cpus, expected) in [
            ("0,2-3", true),
            ("2-3", true),
            ("1", true),
            ("0-7", false),
            ("0,2-7", false),
            ("0", false),
            ("3", false),
            ("none", false),
        ] {
            assert_eq!(is_fresh(cpus), expected, "{cpus}");
        }
        fs::remove_file(folder.path().join("irq/default_smp_affinity")).unwrap();
        assert!(!is_fresh("0,2-3") && is_fresh("1"), "not known");
        let of_xps = |cpus: &str| {
            let value = Value::Cpus(cpus.parse().unwrap());
            kernel.is_fresh("lo", Knob::XpsCpus, Place::TxQueue(0), &value)
        };
        assert!(of_xps("none") && !of_xps("0"));
    }

    #[test]
    fn only_the_interfaces_own_interrupts_are_counted() {
        let count = |text: &str| {
            let counts = [4, 24, 25].map(|irq| format!("{ROOT}/kernel/irq/{irq}/per_cpu_count"));
            let lines = format!("{ROOT}/irq/25/smp_affinity_list");
            let files = [
                ("device/msi_irqs/24", "msix"),
                ("device/msi_irqs/25", "msix"),
                (&format!("{ROOT}/irq/24/smp_affinity_list"), "0\n"),
                (&lines, "0\n"),
                (&counts[0], "9,9\n"),
                (&counts[1], "1,20\n"),
                (&counts[2], text),
            ];
            let (_folder, kernel) = old_kernel(&files);
            kernel.interrupt_count("lo")
        };
        assert_eq!(count("0,0\n"), Some(21));
        assert_eq!(count("18446744073709551615,1\n"), Some(u64::MAX));
        assert_eq!(count("x\n"), None);
        assert_eq!(old_kernel(&[]).1.interrupt_count("lo"), None, "no device, no interrupts");
    }

    #[test]
    fn damaged_affinities_are_named() {
        let list = format!("{ROOT}/irq/4/smp_affinity_list");
        let (_folder, kernel) = old_kernel(&[("device/irq", "4\n"), (&list, "0-99999\n")]);
        let error = kernel.read("lo", Knob::SmpAffinity).unwrap_err();
        assert_eq!(error.kind, KernelErrorKind::Malformed, "{error}");
        for files in
            [&[][..], &[("device/irq", "0")], &[("device/irq", "-1")], &[("device/irq", "7")]]
        {
            let (_folder, kernel) = old_kernel(files);
            let error = kernel.read("lo", Knob::SmpAffinity).unwrap_err();
            assert_eq!(error.kind, KernelErrorKind::Unsupported, "{files:?}: {error}");
        }
    }

    #[test]
    fn modes_inside_a_delay_have_names() {
        check("e1000e", Knob::RxUsecs, 3, Some("dynamic conservative"));
        check("e1000", Knob::RxUsecs, 4, Some("simplified"));
        check("e1000", Knob::RxUsecs, 0, Some("no moderation"));
        check("e1000", Knob::TxUsecs, 0, None);
        check("igb", Knob::TxUsecs, 1, Some("dynamic"));
        check("ixgbe", Knob::RxUsecs, 1, Some("adaptive"));
        check("ixgbe", Knob::RxUsecs, 3, None);
        check("virtio_net", Knob::RxUsecs, 1, None);
        check("e1000e", Knob::RxUsecs, 50, None);
    }

    #[track_caller]
    fn check(driver: &str, knob: Knob, usecs: u64, expected: Option<&str>) {
        assert_eq!(meaning(driver, knob, &Value::Time(Nanos::from_us(usecs))), expected);
    }
}
