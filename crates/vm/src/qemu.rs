//! QEMU: its command line, and the socket on which it takes orders.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::config::{ENDPOINTS, GuestEndpoint, PORT_PREFIX, PORTS, PROGRAM};
use crate::error::Error;
use crate::spec::GuestSpec;

/// The emulator.
const QEMU: &str = "qemu-system-x86_64";
/// An order is done at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The files of one guest, all in one folder. QEMU may write in its own folder below that, and nowhere else.
#[derive(Clone, Debug)]
pub(crate) struct GuestFiles(pub(crate) PathBuf);

impl GuestFiles {
    /// QEMU's own.
    pub(crate) fn qemu_folder(&self) -> PathBuf {
        self.0.join("qemu")
    }

    /// The kernel, without its compression where that is known.
    pub(crate) fn kernel(&self) -> PathBuf {
        self.0.join("kernel")
    }

    pub(crate) fn initramfs(&self) -> PathBuf {
        self.0.join("initramfs")
    }

    pub(crate) fn console(&self) -> PathBuf {
        self.qemu_folder().join("console")
    }

    /// The file with QEMU's output.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.0.join("qemu.log")
    }

    /// Where QEMU takes orders.
    pub(crate) fn monitor_socket(&self) -> PathBuf {
        self.qemu_folder().join("orders")
    }

    /// The host's end of a virtio port.
    pub(crate) fn port_socket(&self, idx: usize) -> PathBuf {
        self.qemu_folder().join(format!("port-{idx}"))
    }

    /// Locked by whoever uses that port.
    pub(crate) fn lock(&self, idx: usize) -> PathBuf {
        self.0.join(format!("port-{idx}.lock"))
    }
}

/// Where QEMU is.
pub(crate) fn find_qemu() -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(QEMU)).find(|path| path.is_file()).ok_or(
        Error::Missing {
            what: format!("the program `{QEMU}` is not on PATH"),
            mend: "install QEMU for x86 guests (on Debian `qemu-system-x86`)".to_owned(),
        },
    )
}

/// The whole command line.
pub(crate) fn build_command(
    program: &Path,
    spec: GuestSpec,
    parameters: &str,
    files: &GuestFiles,
) -> Command {
    let mut command = Command::new(program);
    let memory = ["-m", "512", "-smp", "2", "-nodefaults", "-no-reboot", "-display", "none"];
    // Never KVM: the same on every machine, and in CI. Both CPUs of the guest run in one thread: with a thread
    // each, QEMU 7.2 can translate code that the other CPU is just patching, and keep the breakpoint that the
    // kernel puts there meanwhile (`text_poke_bp_batch`, `arch/x86/kernel/alternative.c`). Then both CPUs handle
    // it for ever. One trial in 30 ended so when tracing switched a static key.
    command.args(["-M", "q35", "-cpu", "max", "-accel", "tcg,thread=single"]).args(memory);
    command.arg("-kernel").arg(files.kernel()).arg("-initrd").arg(files.initramfs());
    command.arg("-append").arg(kernel_words(parameters));
    command.args([OsString::from("-serial"), path_option("file:", &files.console())]);
    let orders = path_option("socket,id=orders,server=on,wait=off,path=", &files.monitor_socket());
    command
        .args([OsString::from("-chardev"), orders])
        .args(["-mon", "chardev=orders,mode=control"]);
    for host in ENDPOINTS {
        for word in network_card(spec, host) {
            command.arg(word);
        }
    }
    let ports = PORTS + 1; // port 0 is kept for a console
    command.arg("-device").arg(format!("virtio-serial-pci,id=ports,max_ports={ports}"));
    for idx in 0..PORTS {
        let socket = format!("socket,id=port{idx},server=on,wait=off,path=");
        command.arg("-chardev").arg(path_option(&socket, &files.port_socket(idx)));
        let device = format!("virtserialport,bus=ports.0,nr={},chardev=port{idx}", idx + 1);
        command.arg("-device").arg(format!("{device},name={PORT_PREFIX}{idx}"));
    }
    command
}

/// Nothing but the two cards is on the hub.
fn network_card(spec: GuestSpec, host: GuestEndpoint) -> [String; 4] {
    let name = host.name;
    let device = spec.driver.qemu_device();
    let mac = host.mac.map(|byte| format!("{byte:02x}")).join(":");
    [
        "-netdev".to_owned(),
        format!("hubport,id={name},hubid=0"),
        "-device".to_owned(),
        // Without the boot ROM, which is a package of its own.
        format!("{device},netdev={name},romfile=,mac={mac}"),
    ]
}

/// Process 1 is latput; a kernel that fails ends QEMU (`panic=-1` reboots, `-no-reboot` ends). On a busy machine
/// no timer tick may come within the ten that the kernel waits for, which it takes for a broken IO-APIC and
/// panics: `no_timer_check` (`check_timer`, `arch/x86/kernel/apic/io_apic.c`) spares it that look.
fn kernel_words(more: &str) -> String {
    format!(
        "console=ttyS0 quiet panic=-1 nokaslr mitigations=off random.trust_cpu=on audit=0 \
         net.ifnames=0 tsc=reliable no_timer_check {more} rdinit={PROGRAM} -- vm init"
    )
}

/// A comma in a path is doubled, as QEMU's options have it.
fn path_option(before: &str, path: &Path) -> OsString {
    OsString::from(format!("{before}{}", path.display().to_string().replace(',', ",,")))
}

/// QEMU's monitor (`docs/interop/qmp-spec.rst` of QEMU): for what happens to machines, such as a
/// pulled cable or a power cut.
#[derive(Debug)]
pub struct QmpMonitor {
    stream: BufReader<UnixStream>,
    version: String,
}

impl QmpMonitor {
    pub(crate) fn open(files: &GuestFiles) -> Result<Self, Error> {
        let failed = |source| Error::io("speak to QEMU's monitor", source);
        let stream = UnixStream::connect(files.monitor_socket()).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(failed)?;
        let mut monitor = Self { stream: BufReader::new(stream), version: String::new() };
        let greeting = monitor.read()?;
        let version = &greeting["QMP"]["version"]["qemu"];
        monitor.version = format!("{}.{}.{}", version["major"], version["minor"], version["micro"]);
        monitor.execute_command("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// QEMU's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Gives an order and returns its answer.
    pub fn execute_command(&mut self, command: &str, arguments: Value) -> Result<Value, Error> {
        let order = json!({ "execute": command, "arguments": arguments });
        let written = writeln!(self.stream.get_mut(), "{order}");
        written.map_err(|source| Error::io("speak to QEMU's monitor", source))?;
        loop {
            let mut answer = self.read()?;
            if let Some(error) = answer.get("error") {
                return Err(Error::Line(format!("QEMU refused `{command}`: {}", error["desc"])));
            }
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            // An event, which nobody waits for.
        }
    }

    fn read(&mut self) -> Result<Value, Error> {
        let mut line = String::new();
        self.stream
            .read_line(&mut line)
            .map_err(|source| Error::io("read from QEMU's monitor", source))?;
        serde_json::from_slice(line.as_bytes())
            .map_err(|error| Error::Line(format!("QEMU's monitor said `{}`: {error}", line.trim())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::CardDriver;

    #[test]
    fn only_cards_are_on_the_hub() {
        for driver in CardDriver::ALL {
            let words = command_words(GuestSpec { driver });
            let networks: Vec<&String> = words
                .iter()
                .filter(|word| word.contains("hubport") || word.contains("user"))
                .collect();
            assert_eq!(networks, ["hubport,id=sut,hubid=0", "hubport,id=generator,hubid=0"]);
            let card =
                format!("{},netdev=sut,romfile=,mac=52:54:00:00:00:02", driver.qemu_device());
            assert!(words.contains(&card), "{words:?}");
            assert!(!words.iter().any(|word| word.contains("kvm")), "{words:?}");
        }
    }

    #[test]
    fn comma_in_path_ends_no_option() {
        assert_eq!(path_option("path=", Path::new("/a,b")), "path=/a,,b");
    }

    fn command_words(spec: GuestSpec) -> Vec<String> {
        let files = GuestFiles("/tmp/guest".into());
        let command = build_command(Path::new("qemu"), spec, "threadirqs", &files);
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}
