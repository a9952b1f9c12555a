//! A guest from its start to its end: what it is made of, its boot, and that nothing of it stays.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::binary;
use crate::config::{CONFIG, GuestConfig, MODULES, PROGRAM};
use crate::console::SerialConsole;
use crate::error::Error;
use crate::initramfs::InitramfsBuilder;
use crate::kernel::{self, KernelPackage};
use crate::line::{CommandOutput, GuestCommand};
use crate::modules::KernelModules;
use crate::qemu::{self, GuestFiles, QmpMonitor};
use crate::spec::GuestSpec;

/// A quiet machine needs six seconds; a busy one may need many times that.
const BOOT_WITHIN: Duration = Duration::from_secs(120);
/// From the first line that breaks to QEMU's end.
const END_WITHIN: Duration = Duration::from_secs(2);
/// How often the console is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Most bytes of what QEMU says that an error shows.
const QEMU_BYTES_MOST: usize = 4096;
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
    folder: GuestFolder,
    console: SerialConsole,
    /// Output of QEMU.
    log: File,
    child: Child,
    begun: Instant,
}

impl Guest {
    /// Boots a guest and returns when commands can be run in it. Must be called from a thread that
    /// lives as long as the guest shall: the kernel ends QEMU with it. `is_interrupted` is asked
    /// all along.
    pub fn start(spec: GuestSpec, is_interrupted: &dyn Fn() -> bool) -> Result<Self, Error> {
        let mut guest = Self::boot(spec)?;
        while !guest.is_ready()? {
            if is_interrupted() {
                return Err(guest.not_booted("was interrupted"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(guest)
    }

    /// The same, without waiting: no command can be run until [`Self::is_ready`].
    pub fn boot(spec: GuestSpec) -> Result<Self, Error> {
        let program = qemu::find_qemu()?;
        let kernel = KernelPackage::find()?;
        let parameters = kernel::read_parameters()?;
        let initramfs = build_initramfs(spec, &kernel)?;
        let folder = GuestFolder::create()?;
        let files = &folder.files;
        write(&files.initramfs(), &initramfs)?;
        write(&files.kernel(), &kernel.read_image()?)?;
        let failed =
            |what: PathBuf| move |source| Error::io(format!("create {}", what.display()), source);
        let console = SerialConsole::create(&files.console()).map_err(failed(files.console()))?;
        folder.chown_to_qemu(&files.console())?;
        let log = files.log_file();
        let mut options = File::options();
        let log =
            options.read(true).write(true).create_new(true).open(&log).map_err(failed(log))?;
        let errors = log.try_clone().map_err(|source| Error::io("start QEMU", source))?;
        let mut command = qemu::build_command(&program, spec, &parameters, files);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        folder.as_user(&mut command);
        latput_linux::process::end_with_this_thread(&mut command);
        let child = command.spawn().map_err(|source| Error::io("start QEMU", source))?;
        let (release, qemu) = (kernel.release, String::new());
        let begun = Instant::now();
        Ok(Self { spec, release, parameters, qemu, folder, console, log, child, begun })
    }

    /// Whether commands can be run in it. The error is why it does not boot.
    pub fn is_ready(&mut self) -> Result<bool, Error> {
        if !self.qemu.is_empty() {
            return Ok(true);
        }
        if self.console.is_ready() {
            tracing::info!(seconds = self.begun.elapsed().as_secs_f64(), "the guest is ready");
            self.open_monitor()?.version().clone_into(&mut self.qemu);
            return Ok(true);
        }
        let problem = if let Some(problem) = self.console.failure_reason() {
            format!("gave up: {problem}")
        } else if let Ok(Some(status)) = self.child.try_wait() {
            format!("ended ({status}; QEMU said: {})", self.said_by_qemu())
        } else if self.begun.elapsed() > BOOT_WITHIN {
            format!("was not ready within {} s", BOOT_WITHIN.as_secs())
        } else {
            return Ok(false);
        };
        Err(self.not_booted(&problem))
    }

    fn not_booted(&self, problem: &str) -> Error {
        Error::Boot { problem: problem.to_owned(), console: self.console_tail() }
    }

    fn said_by_qemu(&self) -> String {
        let mut bytes = [0; QEMU_BYTES_MOST];
        let length = self.log.read_at(&mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..length]).trim().replace('\n', " | ")
    }

    /// Whether this host has what a guest is made of; the error names what is missing.
    pub fn check_host() -> Result<(), Error> {
        qemu::find_qemu()?;
        binary::read()?;
        kernel::read_parameters()?;
        KernelPackage::find().map(drop)
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

    /// The folder that [`GuestCommand::open`] finds it by.
    pub fn folder(&self) -> &Path {
        &self.folder.files.0
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
    pub fn console_tail(&self) -> String {
        self.console.last_lines()
    }

    /// QEMU's monitor.
    pub fn open_monitor(&self) -> Result<QmpMonitor, Error> {
        QmpMonitor::open(&self.folder.files)
    }

    /// Runs a command inside, in the first namespace, and returns what it said.
    pub fn run(&self, words: &[&str]) -> Result<CommandOutput, Error> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        GuestCommand::open(self.folder(), &words)?.collect_output()
    }

    /// Ends it at once. What was set in it is gone with it.
    pub fn terminate(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.folder.remove();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.terminate();
    }
}

/// Everything that the guest has.
fn build_initramfs(spec: GuestSpec, kernel: &KernelPackage) -> Result<Vec<u8>, Error> {
    let mut wanted = OTHER_MODULES.to_vec();
    wanted.push(spec.driver.kernel_module());
    let modules = KernelModules::read(&kernel.modules)?.with_dependencies(&wanted)?;
    let names = modules.iter().map(|module| module.name.clone());
    let parameters = spec.driver.load_parameters().iter();
    let config = GuestConfig {
        modules: names.collect(),
        cards: spec.driver.kernel_module().to_owned(),
        parameters: parameters.map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    };
    let config = serde_json::to_vec(&config).expect("names are strings");
    let mut archive = InitramfsBuilder::default();
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
        archive.add_folder(folder);
    }
    archive.add_file(PROGRAM, &binary::read()?);
    archive.add_file(CONFIG, &config);
    for module in modules {
        archive.add_file(&format!("{MODULES}/{}.ko", module.name), &module.code);
    }
    Ok(archive.finish())
}

/// Writes a file that QEMU's user may read.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    fs::write(path, bytes)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o644)))
        .map_err(|source| Error::io(format!("write {}", path.display()), source))
}

/// The folder of one guest, and the user who runs it. It is removed when this value is dropped.
#[derive(Debug)]
struct GuestFolder {
    files: GuestFiles,
    /// QEMU's user, if it is not this process's.
    user: Option<u32>,
}

impl GuestFolder {
    /// Makes it. What killed processes left is removed first.
    fn create() -> Result<Self, Error> {
        static GUESTS: AtomicU32 = AtomicU32::new(0);
        let user = latput_linux::confine::emulators_user();
        let parent = parent_folder(user.is_some());
        remove_left(&parent);
        let number = GUESTS.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{FOLDER_PREFIX}{}-{number}", std::process::id()));
        let make = |path: &Path, mode| {
            fs::DirBuilder::new()
                .mode(0o700)
                .create(path)
                .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
                .map_err(|source| Error::io(format!("create {}", path.display()), source))
        };
        // Only this user may speak to the guest; QEMU's passes through to its own folder.
        make(&path, if user.is_some() { 0o711 } else { 0o700 })?;
        let folder = Self { files: GuestFiles(path), user };
        make(&folder.files.qemu_folder(), 0o700)?;
        folder.chown_to_qemu(&folder.files.qemu_folder())?;
        Ok(folder)
    }

    /// Makes QEMU the owner of this file.
    fn chown_to_qemu(&self, path: &Path) -> Result<(), Error> {
        let Some(user) = self.user else { return Ok(()) };
        chown(path, Some(user), Some(user))
            .map_err(|source| Error::io(format!("give {} to QEMU's user", path.display()), source))
    }

    /// Makes a command run as QEMU's user, with no way to more rights.
    fn as_user(&self, command: &mut Command) {
        latput_linux::process::gain_no_rights(command);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
    }

    fn remove(&self) {
        let _gone = fs::remove_dir_all(&self.files.0);
    }
}

impl Drop for GuestFolder {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Where guests' folders are made: the folder for temporary files, if another user who runs QEMU can reach it.
fn parent_folder(is_for_another: bool) -> PathBuf {
    let temporary = std::env::temp_dir();
    let is_open = |folder: &Path| fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 != 0);
    if is_for_another && !temporary.ancestors().all(is_open) {
        return PathBuf::from("/tmp");
    }
    temporary
}

/// Removes the folders of processes that have ended.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(FOLDER_PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _gone = fs::remove_dir_all(entry.path());
        }
    }
}
