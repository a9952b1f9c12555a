//! A guest from its start to its end: what it is made of, its boot, and that nothing of it stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::config::{CONFIG, Config, MODULES, PROGRAM};
use crate::error::Error;
use crate::initramfs::Initramfs;
use crate::kernel::{self, Kernel};
use crate::line::{Line, Output};
use crate::modules::Modules;
use crate::qemu::{self, Files, Qmp};
use crate::spec::GuestSpec;
use crate::{binary, console};

/// A quiet machine needs six seconds; a busy one may need many times that.
const BOOT_WITHIN: Duration = Duration::from_secs(120);
/// From the first line that breaks to QEMU's end.
const END_WITHIN: Duration = Duration::from_secs(2);
/// How often the console is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The prefix of the names of guests' folders; the process id of their latput follows.
const FOLDER_PREFIX: &str = "latput-vm-";
/// Beside the driver of the cards: the line, and the queue disciplines that knobs can choose.
const OTHER_MODULES: [&str; 6] =
    ["virtio_pci", "virtio_console", "sch_fq_codel", "sch_fq", "sch_tbf", "sch_netem"];

/// A guest that runs. It ends when this value is dropped, and also when the process that holds it is
/// killed.
#[derive(Debug)]
pub struct Guest {
    spec: GuestSpec,
    release: String,
    /// Words that were added to the kernel's command line.
    parameters: String,
    qemu: String,
    files: Files,
    child: Child,
}

impl Guest {
    /// Boots a guest and returns when commands can be run in it. Must be called from a thread that
    /// lives as long as the guest shall: the kernel ends QEMU with it. `is_interrupted` is asked
    /// all along.
    pub fn start(spec: GuestSpec, is_interrupted: &dyn Fn() -> bool) -> Result<Self, Error> {
        let program = qemu::find()?;
        let kernel = Kernel::find()?;
        let parameters = kernel::parameters()?;
        let initramfs = initramfs(spec, &kernel)?;
        let files = make_folder()?;
        let write = |path: PathBuf, bytes: &[u8]| {
            fs::write(&path, bytes)
                .map_err(|source| Error::io(format!("write {}", path.display()), source))
        };
        let started = || {
            write(files.initramfs(), &initramfs)?;
            let image = match kernel.bare_image()? {
                Some(bare) => {
                    write(files.kernel(), &bare)?;
                    files.kernel()
                }
                None => kernel.image.clone(),
            };
            let log = files.0.join("qemu.log");
            let errors = fs::File::create(&log)
                .map_err(|source| Error::io(format!("create {}", log.display()), source))?;
            let mut command = qemu::command(&program, spec, &image, &parameters, &files);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
            latput_linux::process::end_with_this_thread(&mut command);
            command.spawn().map_err(|source| Error::io("start QEMU", source))
        };
        let child = started().inspect_err(|_| drop(fs::remove_dir_all(&files.0)))?;
        let mut guest =
            Self { spec, release: kernel.release, parameters, qemu: String::new(), files, child };
        guest.wait_until_ready(is_interrupted)?;
        guest.monitor()?.version().clone_into(&mut guest.qemu);
        Ok(guest)
    }

    /// Whether this host has what a guest is made of; the error names what is missing.
    pub fn check_host() -> Result<(), Error> {
        qemu::find()?;
        binary::read()?;
        kernel::parameters()?;
        Kernel::find().map(drop)
    }

    /// The options of the guest.
    pub const fn spec(&self) -> GuestSpec {
        self.spec
    }

    /// The guest in a line: the same for every guest of this kind on this machine.
    pub fn description(&self) -> String {
        let Self { release, parameters, qemu, spec, .. } = self;
        let with =
            if parameters.is_empty() { String::new() } else { format!(" with {parameters}") };
        format!("Linux {release}{with} on QEMU {qemu}, {spec}")
    }

    /// The folder that [`Line::open`] and [`crate::attach`] find it by.
    pub fn folder(&self) -> &Path {
        &self.files.0
    }

    /// Whether it ends now or has ended: its lines break a moment before QEMU is gone.
    pub fn is_ending(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            if begun.elapsed() > END_WITHIN {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The process id of QEMU.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last lines of its console.
    pub fn console(&self) -> String {
        console::end(&self.files.console())
    }

    /// QEMU's monitor.
    pub fn monitor(&self) -> Result<Qmp, Error> {
        Qmp::open(&self.files)
    }

    /// Runs a command inside, in the first namespace, and returns what it said.
    pub fn run(&self, words: &[&str]) -> Result<Output, Error> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Line::open(self.folder(), &words)?.output()
    }

    /// Loads the driver of the cards anew, with these parameters (`NAME=SUT,GENERATOR`), and connects
    /// the hosts again. What was set on the cards is gone, and so must be whoever uses them.
    pub fn reload(&self, parameters: &[String]) -> Result<(), Error> {
        let words =
            [PROGRAM, "vm", "reload"].into_iter().chain(parameters.iter().map(String::as_str));
        let output = self.run(&words.collect::<Vec<_>>())?;
        if output.is_success() {
            return Ok(());
        }
        Err(Error::Line(format!("the driver was not reloaded: {}", output.error_text().trim())))
    }

    /// Ends it at once. What was set in it is gone with it.
    pub fn end(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.files.0);
    }

    fn wait_until_ready(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<(), Error> {
        let begun = Instant::now();
        let path = self.files.console();
        while !console::is_ready(&path) {
            let problem = if let Some(problem) = console::failure(&path) {
                format!("gave up: {problem}")
            } else if let Ok(Some(status)) = self.child.try_wait() {
                let said = fs::read_to_string(self.files.0.join("qemu.log")).unwrap_or_default();
                format!("ended ({status}; QEMU said: {})", said.trim().replace('\n', " | "))
            } else if is_interrupted() {
                "was interrupted".to_owned()
            } else if begun.elapsed() > BOOT_WITHIN {
                format!("was not ready within {} s", BOOT_WITHIN.as_secs())
            } else {
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            return Err(Error::Boot { problem, console: self.console() });
        }
        tracing::info!(seconds = begun.elapsed().as_secs_f64(), "the guest is ready");
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// Everything that the guest has.
fn initramfs(spec: GuestSpec, kernel: &Kernel) -> Result<Vec<u8>, Error> {
    let mut wanted = OTHER_MODULES.to_vec();
    wanted.push(spec.driver.module());
    let modules = Modules::read(&kernel.modules)?.with_dependencies(&wanted)?;
    let names = modules.iter().map(|module| module.name.clone());
    let parameters = spec.driver.parameters().iter();
    let config = Config {
        modules: names.collect(),
        cards: spec.driver.module().to_owned(),
        parameters: parameters.map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    };
    let config = serde_json::to_vec(&config).expect("names are strings");
    let mut archive = Initramfs::default();
    let folders = [
        "/bin",
        "/dev",
        "/etc",
        "/etc/modprobe.d",
        "/lib",
        MODULES,
        "/proc",
        "/run",
        "/sys",
        "/tmp",
    ];
    for folder in folders {
        archive.folder(folder);
    }
    archive.file(PROGRAM, &binary::read()?);
    archive.file(CONFIG, &config);
    for module in modules {
        archive.file(&format!("{MODULES}/{}.ko", module.name), &module.code);
    }
    Ok(archive.finish())
}

/// A new folder for one guest. What killed processes left is removed first.
fn make_folder() -> Result<Files, Error> {
    static GUESTS: AtomicU32 = AtomicU32::new(0);
    let parent = std::env::temp_dir();
    for entry in fs::read_dir(&parent).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(FOLDER_PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let number = GUESTS.fetch_add(1, Ordering::Relaxed);
    let folder = parent.join(format!("{FOLDER_PREFIX}{}-{number}", std::process::id()));
    // Only this user may speak to the guest.
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(&folder)
        .map_err(|source| Error::io(format!("create {}", folder.display()), source))?;
    Ok(Files(folder))
}
