//! Parameters that a driver reads when it is loaded.
//!
//! Where sysfs does not show one, what the driver was given comes from where it is given: the kernel's
//! command line, then the folders of modprobe.d(5). Both have a list, one value for each port of the
//! driver in the order in which it found them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use latput_units::IntoSet;

use super::LinuxKernel;
use super::failure::Failure;
use crate::error::Error;
use crate::sysfs::Files;

/// Drivers with parameters that they read when they are loaded and, their permissions being 0, do not
/// show in sysfs (`E1000_PARAM`, `drivers/net/ethernet/intel/e1000*/`).
const SILENT_DRIVERS: [&str; 2] = ["e1000", "e1000e"];

/// Where modprobe takes its options from; of two files of one name it reads that of the earlier folder
/// (modprobe.d(5)).
pub(super) const MODPROBE_FOLDERS: [&str; 4] =
    ["/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/lib/modprobe.d"];

impl LinuxKernel {
    /// The number of a parameter that the driver was loaded with, of this interface's port.
    pub(super) fn load_time_parameter(&self, interface: &str, name: &str) -> Result<u64, Failure> {
        let Some(module) = self.module(interface) else {
            return Err(Failure::unsupported("there is no driver module behind it"));
        };
        let file = format!("module/{module}/parameters/{name}");
        let (origin, text) = match self.sysfs.files.read(&file) {
            Ok(text) => (self.sysfs.files.path(&file).display().to_string(), text),
            Err(error) if error.errno() == Some(libc::ENOENT) => {
                self.given_at_load(&module, name).ok_or_else(|| {
                    Failure::unsupported(if SILENT_DRIVERS.contains(&module.as_str()) {
                        format!(
                            "{module} reads {name} when it is loaded and does not show it; neither \
                             modprobe.d nor the kernel's command line gives it"
                        )
                    } else {
                        format!("the driver {module} has no parameter {name}")
                    })
                })?
            }
            Err(error) => return Err(error.into()),
        };
        let mut ports = text.split(',').map(str::trim);
        let of_port = ports.nth(self.port(interface)).ok_or_else(|| {
            Failure::unsupported(format!("{origin} gives {module} no {name} for this port"))
        })?;
        of_port.parse().map_err(|_| Error::parse(origin, "a number", &text).into())
    }

    /// Whether the driver has parameters of load time that it does not show.
    pub(super) fn hides_parameters(&self, interface: &str) -> bool {
        self.module(interface).is_some_and(|module| SILENT_DRIVERS.contains(&module.as_str()))
    }

    /// The place of a device among those of its driver: PCI finds them in the order of their addresses,
    /// which are the folder's links with a colon (`0000:02:00.0`).
    fn port(&self, interface: &str) -> usize {
        let device = fs::canonicalize(self.sysfs.path(interface, "device")).ok();
        let name = device.as_deref().and_then(|path| path.file_name()?.to_str());
        let entries = fs::read_dir(self.sysfs.path(interface, "device/driver"));
        let names = entries.into_iter().flatten().flatten();
        let ports: BTreeSet<String> = names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|entry| entry.contains(':') && entry != "module")
            .into_set();
        ports.iter().position(|port| Some(port.as_str()) == name).unwrap_or(0)
    }

    /// Where a parameter was given and what: the last one counts, as in the kernel.
    fn given_at_load(&self, module: &str, name: &str) -> Option<(String, String)> {
        let option = format!("{module}.{name}=");
        let cmdline = self.proc.read("cmdline").unwrap_or_default();
        let mut given = cmdline.split_whitespace().filter_map(|word| word.strip_prefix(&option));
        if let Some(value) = given.next_back() {
            return Some(("the kernel's command line".to_owned(), value.to_owned()));
        }
        // Every file of every folder is read, in the order of their names.
        let mut files: BTreeMap<String, &Files> = BTreeMap::new();
        for folder in &self.modprobe {
            let entries = fs::read_dir(folder.path("")).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            for file in
                names.filter(|name| Path::new(name).extension().is_some_and(|it| it == "conf"))
            {
                files.entry(file).or_insert(folder);
            }
        }
        let mut found = files.iter().filter_map(|(file, folder)| {
            let value = option_of(&folder.read(file).ok()?, module, name)?;
            Some((folder.path(file).display().to_string(), value))
        });
        found.next_back()
    }
}

/// The value of `options MODULE ... NAME=VALUE` in a file of modprobe.d(5).
fn option_of(text: &str, module: &str, name: &str) -> Option<String> {
    // A backslash at the end of a line joins the next to it; a module's `-` and `_` are the same.
    let text = text.replace("\\\n", " ");
    let of_module = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_ours = words.next() == Some("options")
            && words.next().is_some_and(|it| it.replace('-', "_") == module.replace('-', "_"));
        is_ours.then_some(words)
    });
    let values = of_module.flatten().filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    values.collect::<Vec<_>>().last().map(|value| (*value).to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use latput_knobs::{Capability, KernelRead, Knob, Place, Value};

    use super::super::tests::old_kernel;
    use super::*;

    /// From the interface's folder to the root of the tree, which is sysfs, procfs and modprobe.d's.
    const ROOT: &str = "../../..";

    #[test]
    fn load_time_parameters_come_from_four_sources() {
        let throttle = Knob::InterruptThrottleRate;
        let shown = format!("{ROOT}/module/e1000e/parameters/InterruptThrottleRate");
        let cmdline = format!("{ROOT}/cmdline");
        let [first, second] = ["a", "b"].map(|name| format!("{ROOT}/modprobe.d/{name}.conf"));
        let read = |driver: &str, files: &[(&str, &str)]| {
            let (folder, kernel) = old_kernel(&[files, &[("device/x", "")]].concat());
            symlink(format!("/x/{driver}"), folder.path().join("class/net/lo/device/driver"))
                .unwrap();
            (kernel.read("lo", throttle).map_err(|e| e.reason), kernel.capability("lo", throttle))
        };
        let device = |number| Ok(vec![(Place::Device, Value::Count(number))]);
        assert_eq!(read("e1000e", &[(&shown, "3,1\n")]).0, device(3));
        let given = (cmdline.as_str(), "quiet e1000e.InterruptThrottleRate=8000,1\n");
        assert_eq!(read("e1000e", &[given]).0, device(8000));
        let text = "# options e1000e InterruptThrottleRate=1\noptions e1000e RxIntDelay=0 \\\n \
                    InterruptThrottleRate=4000,3\noptions e1000 InterruptThrottleRate=5\n";
        assert_eq!(read("e1000e", &[(&first, text)]).0, device(4000));
        let later = (second.as_str(), "options e1000e InterruptThrottleRate=0\n");
        assert_eq!(read("e1000e", &[(&first, text), later]).0, device(0));
        assert_eq!(read("e1000e", &[(&first, text), given]).0, device(8000));
        let (hidden, capability) = read("e1000e", &[]);
        assert!(hidden.unwrap_err().contains("does not show it"));
        assert!(matches!(capability, Capability::ReadOnly(_)), "{capability:?}");
        let (unknown, capability) = read("virtio_net", &[]);
        assert!(unknown.unwrap_err().contains("has no parameter"));
        assert!(matches!(capability, Capability::Absent(_)), "{capability:?}");
        assert!(read("e1000e", &[(&shown, "fast")]).0.unwrap_err().contains("expected a number"));
    }

    #[test]
    fn each_port_has_its_own_parameter() {
        let shown = format!("{ROOT}/module/e1000e/parameters/RxIntDelay");
        let of_second = |value: &str| {
            let files = [
                (shown.as_str(), value),
                ("../../../devices/0000:00:04.0/x", ""),
                ("../../../devices/0000:00:03.0/x", ""),
                ("x", ""),
            ];
            let (folder, kernel) = old_kernel(&files);
            let path = |name: &str| folder.path().join(name);
            fs::create_dir(path("e1000e")).unwrap();
            for port in ["0000:00:03.0", "0000:00:04.0"] {
                let device = path("devices").join(port);
                symlink(&device, path("e1000e").join(port)).unwrap();
                symlink(path("e1000e"), device.join("driver")).unwrap();
            }
            symlink(path("devices/0000:00:04.0"), path("class/net/lo/device")).unwrap();
            kernel.read("lo", Knob::RxIntDelay).map_err(|error| error.reason)
        };
        assert_eq!(of_second("0,32"), Ok(vec![(Place::Device, Value::Count(32))]));
        assert!(of_second("0").unwrap_err().contains("for this port"));
    }
}
