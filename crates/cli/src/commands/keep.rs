//! `latput keep`: installs a setting in the host's own configuration system, and takes it out again.

mod check;
mod choose;
mod diff;
mod files;
pub(super) mod glob;
mod ifcfg;
mod ifupdown;
mod ini;
mod irqbalance;
mod keyfile;
mod outranked;
mod profile;
mod tuned;
pub(super) mod udev_files;
mod udev_rules;
mod unit;
mod unmanaged;
pub(crate) mod wanted;
mod watch;

use std::io::{BufRead, IsTerminal, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use latput_knobs::export::{self, Target};
use latput_knobs::{Knob, Scope, Setting};
use latput_linux::{RootFolder, confine, state_place};

use crate::commands::export_settings::{
    ExportFormat, OF_RESULTS_ONLY, SourceArgs, WantedSetting, is_results, spell_out,
};
use crate::commands::{change, netplan};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

use self::choose::FormatChoice;
use self::files::{Contents, FileTransaction, KeepRecord};

/// Most that is read of values, bytes.
const STDIN_BYTES_MOST: u64 = 1 << 20;
/// Time within which another `keep` that asks nobody has ended.
const LOCKED_WITHIN: Duration = Duration::from_secs(3);
const LOCK_POLL: Duration = Duration::from_millis(20);

/// Arguments that have no meaning where nothing is written.
const CHANGES_ONLY: [&str; 7] = ["knobs", "stdin", "format", "remove", "force", "dry_run", "yes"];

/// Keep a setting over a reboot.
///
/// It is written to the configuration system of this host. --remove takes it out again.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(after_help = "\
Examples:
  latput keep latput-results.db --dry-run     the recommended setting: which files would change, and how
  latput keep eth0 rx-usecs=50us adaptive-rx=off
  latput keep eth0 rx-usecs=50us --format udev --yes
  latput keep --check                         after a boot: is what is kept in force? (exit code 8: no)
  latput keep --watch                         a systemd unit that runs this after each boot
  latput keep --remove eth0                   the files are again as they were, byte for byte
  latput keep eth0 mtu=9000 --root /mnt/image --yes

The format is that of the program that manages the interface, or a .link file of systemd. Knobs that the
format cannot express go to a udev rule, to sysctl.d or, the CPUs of interrupts, to a unit of systemd. Knobs
that no file can keep are named. Nothing is
reloaded: the command for that is printed.")]
pub(crate) struct Args {
    /// A results file, or an interface; with --remove and --check the interface, by default all.
    #[arg(value_name = "FILE|IFACE", required_unless_present_any = ["remove", "check", "watch"])]
    source: Option<String>,
    /// Values for an interface; a knob without a value keeps its present one.
    #[arg(value_name = "KNOB[=VALUE]", conflicts_with = "remove", conflicts_with_all = OF_RESULTS_ONLY)]
    knobs: Vec<String>,
    /// Read the values from stdin, one a line: a remote shell would split some.
    #[arg(long, hide = true, conflicts_with_all = ["knobs", "remove"])]
    stdin: bool,
    /// The configuration system; by default the one that manages the interface.
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    #[command(flatten)]
    of: SourceArgs,
    /// Remove what was installed.
    #[arg(long)]
    remove: bool,
    /// Compare what is kept with the files and the values in force, and write nothing.
    #[arg(long, conflicts_with_all = CHANGES_ONLY, conflicts_with_all = OF_RESULTS_ONLY)]
    check: bool,
    /// Write a systemd unit that runs --check after each boot.
    #[arg(long, conflicts_with_all = ["source", "knobs", "stdin", "remove", "check", "dry_run", "yes", "format"])]
    watch: bool,
    /// Also overwrite files that were edited since, and files of latput's names that it did not write.
    #[arg(long)]
    force: bool,
    /// Show the difference without installing it.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// The folder that stands for `/`: an image, or the files of a container. A network namespace without files of its own
    /// is refused without it.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// Locks the folder, also where another `keep` is about to end.
fn lock_folder(root: &RootFolder, context: &CliContext) -> bool {
    let deadline = Instant::now() + LOCKED_WITHIN;
    while !root.lock() {
        if Instant::now() >= deadline || context.stop.is_raised() {
            return false;
        }
        thread::sleep(LOCK_POLL);
    }
    true
}

impl Args {
    pub(crate) fn run(mut self, context: &CliContext) -> Result<ExitCode, CliError> {
        if self.stdin {
            let mut text = String::new();
            std::io::stdin().take(STDIN_BYTES_MOST).read_to_string(&mut text)?;
            self.knobs = text.lines().map(str::to_owned).collect();
        }
        let folder = self.root.as_deref().unwrap_or(Path::new("/"));
        if !folder.is_dir() {
            let message = format!("--root {}: there is no such folder", folder.display());
            return Err(CliError::usage(message));
        }
        if self.root.is_none() && !self.remove && state_place::is_without_own_files() {
            return Err(CliError::usage(
                "this is a network namespace without files of its own: those in /etc configure the host's interfaces, also \
                 one of this name. Set the values where the namespace is made (`latput set`), or name the folder of the \
                 container whose network this is with --root",
            ));
        }
        let root = RootFolder::open(folder)?;
        if !self.check && !self.dry_run && !lock_folder(&root, context) {
            let message = format!("another `latput keep` is at work in {}", folder.display());
            return Err(CliError::new(ExitReason::Failed, message));
        }
        if self.watch {
            watch::install(&root, self.force)?;
            return Ok(ExitCode::SUCCESS);
        }
        if self.check {
            return check::run(
                &self.read_records(&root)?,
                (&root, self.source.as_deref()),
                context,
            );
        }
        if self.remove {
            self.take_out(context, &root)
        } else {
            self.install_setting(context, &root)
        }
    }

    fn install_setting(
        &self,
        context: &CliContext,
        root: &RootFolder,
    ) -> Result<ExitCode, CliError> {
        let source = self.source.as_deref().unwrap_or_default();
        let wanted = if is_results(source, &self.knobs) && confine::has_capabilities() {
            match wanted::read(source, &self.of, context.json)? {
                Ok(wanted) => wanted,
                Err(code) => return Ok(code),
            }
        } else {
            self.of.load_setting(source, &self.knobs)?
        };
        let WantedSetting { interface, mut setting, origin, measured, kind: _ } = wanted;
        if measured.is_some() && interface == latput_sim::facts::INTERFACE {
            let message = "a simulated host was measured: name the interface with --interface";
            return Err(CliError::usage(message));
        }
        if let Some(measured) = measured.filter(|_| root.is_running_system()) {
            change::must_be_measured(&interface, &measured)?;
        }
        let (target, FormatChoice { mut format, mut why }) =
            self.choose_target(root, &interface)?;
        let target = resolve_target(target, root, format, &interface)?;
        if format != ExportFormat::SystemdLink {
            spell_out(&interface, &mut setting);
        }
        if let Some(why) = format.why_not_kept() {
            return Err(CliError::usage(format!("{why}: give another --format")));
        }
        let origin = format!("latput {}: {origin}", env!("CARGO_PKG_VERSION"));
        let mut exported = export::export(format.to_format(), &target, &setting, &origin);
        // A file without a setting says nothing, and udev warns of it at every boot.
        if exported.is_empty {
            why = format!("{} can express none of these settings", format.to_format());
            format = ExportFormat::Udev;
            spell_out(&interface, &mut setting);
            exported = export::export(format.to_format(), &target, &setting, &origin);
        }
        let (files, unkept) = files::build_files(root, format, &interface, &exported)?;
        one_value_of_host(root, &interface, &setting)?;
        must_count(root, &interface, &files)?;
        let record = KeepRecord::read(root, &interface)?;
        let active = match &record {
            Some(record) => active_after(root, record, &files)?,
            None => None,
        };
        let kept = files::kept_values(&setting, &exported, &interface, &files);
        let writing = FileTransaction::plan(root, &interface, record, files)?.with_values(kept);
        output::print_remark(&format!("latput: {}: {why}", format.to_format()));
        for (knob, reason) in &unkept {
            output::print_remark(&format!("latput: not kept: {knob}: {reason}"));
        }
        for (knob, value) in writing.dropped_values() {
            output::print_remark(&format!(
                "latput: no longer kept: {knob}={value}: name all that is to be kept"
            ));
        }
        if !writing.keeps_any() {
            return Err(CliError::new(
                ExitReason::Failed,
                "nothing was written: no file can keep any of it",
            ));
        }
        self.carry_out(context, &writing, "keep")?;
        self.tell_active(active);
        if writing.has_changes() && !self.dry_run {
            tell_when(root, format, &writing);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// How the files know the interface, and which format they have.
    fn choose_target(
        &self,
        root: &RootFolder,
        interface: &str,
    ) -> Result<(Target, FormatChoice), CliError> {
        let displaced = choose::displaced_link(root, interface);
        // An interface of this host may have the name of one of the image.
        let is_here = root.is_running_system() || self.of.is_matched_by_choice();
        let target = self.of.build_target(interface, is_here)?.in_place_of(displaced.as_deref());
        let renamed = if target.is_by_name() { choose::why_renamed(root, interface) } else { None };
        let chosen = match self.format {
            Some(format) => FormatChoice { format, why: "as --format says".to_owned() },
            None => choose::choose_format(root, interface, renamed.as_deref())?,
        };
        match renamed.filter(|_| chosen.format == ExportFormat::SystemdLink) {
            Some(why) => Err(CliError::new(
                ExitReason::Failed,
                format!("{why}: use --format udev, or --match"),
            )),
            None => Ok((target, chosen)),
        }
    }

    /// The records of the interface, or of all.
    fn read_records(&self, root: &RootFolder) -> Result<Vec<KeepRecord>, CliError> {
        let records = KeepRecord::read_all(root)?;
        let is_meant = |record: &KeepRecord| {
            self.source.as_ref().is_none_or(|interface| record.interface == *interface)
        };
        let records: Vec<KeepRecord> = records.into_iter().filter(is_meant).collect();
        if records.is_empty() && !self.check {
            return Err(CliError::new(ExitReason::Failed, nothing_kept(self.source.as_deref())));
        }
        Ok(records)
    }

    fn take_out(&self, context: &CliContext, root: &RootFolder) -> Result<ExitCode, CliError> {
        let records = self.read_records(root)?;
        let removed: Vec<String> = records.iter().map(|record| record.interface.clone()).collect();
        for record in records {
            let interface = record.interface.clone();
            let active = active_without(root, &record, &removed)?;
            let writing = FileTransaction::plan(root, &interface, Some(record), Vec::new())?;
            self.carry_out(context, &writing, "remove")?;
            self.tell_active(active);
            let affinity = unit::affinity_unit(&interface);
            if !self.dry_run && unit::is_enabled(root, &affinity) {
                output::print_remark(&format!(
                    "latput: the link of {affinity} is left: systemctl disable {affinity}"
                ));
            }
        }
        if !self.dry_run && KeepRecord::read_all(root)?.is_empty() {
            watch::remove(root)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Says which profiles of TuneD are to be activated where one of latput that is active goes.
    fn tell_active(&self, remaining: Option<String>) {
        if let Some(remaining) = remaining.filter(|_| !self.dry_run) {
            output::print_remark(&format!(
                "latput: the profile that is active in TuneD is gone: tuned-adm profile {remaining}"
            ));
        }
    }

    /// Shows the difference, asks and writes.
    fn carry_out(
        &self,
        context: &CliContext,
        writing: &FileTransaction<'_>,
        verb: &str,
    ) -> Result<(), CliError> {
        let edited = writing.find_edited_files();
        if context.json {
            let files: Vec<_> = writing.files().map(|file| file.display().to_string()).collect();
            output::print_json(&serde_json::json!({
                "schema": 1, "interface": writing.interface(), "did": verb, "files": files,
                "difference": writing.render_diff(), "dry_run": self.dry_run,
            }))?;
        } else {
            let difference = writing.render_diff();
            let nothing = "nothing to change: the files are as wanted\n";
            output::print_data(if difference.is_empty() { nothing } else { &difference })?;
        }
        if let (Some(file), false) = (writing.find_foreign_file(), self.force) {
            let message = format!(
                "nothing was written: {} is there and not by `latput keep`. Move its lines to another file, or overwrite \
                 it until `--remove`: --force",
                file.display()
            );
            return Err(CliError::new(ExitReason::Failed, message));
        }
        if !edited.is_empty() && !self.force {
            for (file, difference) in &edited {
                output::print_remark(&format!(
                    "latput: {} was edited since:\n{difference}",
                    file.display()
                ));
            }
            let message =
                "nothing was written: latput's files were edited. Overwrite them: --force";
            return Err(CliError::new(ExitReason::Failed, message));
        }
        if self.dry_run || (!writing.has_changes() && verb == "keep") {
            return Ok(());
        }
        if !self.yes {
            prompt_confirmation()?;
        }
        writing.write()
    }
}

/// Fails where a knob of the host is kept with another interface, with another value.
fn one_value_of_host(
    root: &RootFolder,
    interface: &str,
    setting: &Setting,
) -> Result<(), CliError> {
    let of_host = |knob: Knob| knob.spec().scope == Scope::Host;
    for record in KeepRecord::read_all(root)?.iter().filter(|record| record.interface != interface)
    {
        let rival = record.kept.iter().find(|(knob, kept)| {
            of_host(**knob) && setting.get(*knob).is_some_and(|value| *value != kept.value)
        });
        if let Some((knob, kept)) = rival {
            let message = format!(
                "nothing was written: {knob} is one for the whole host, and {} is kept of it with {}. Keep the new value \
                 with that interface",
                kept.value, record.interface
            );
            return Err(CliError::new(ExitReason::Failed, message));
        }
    }
    Ok(())
}

/// Fails where another file counts before one of `files` at every boot.
fn must_count(root: &RootFolder, interface: &str, files: &Contents) -> Result<(), CliError> {
    for (file, text, _) in files {
        if let Some(winner) = outranked::find_winner(root, interface, file, text) {
            let message = format!(
                "nothing was written, for {file} would not count: {winner}. Change it there"
            );
            return Err(CliError::new(ExitReason::Failed, message));
        }
    }
    Ok(())
}

/// The same as [`active_without`], where other files take the place of those of a record.
fn active_after(
    root: &RootFolder,
    record: &KeepRecord,
    files: &Contents,
) -> Result<Option<String>, CliError> {
    let profiles = tuned::profile_files(&record.interface);
    if files.iter().any(|(file, ..)| profiles.contains(file)) {
        return Ok(None);
    }
    active_without(root, record, std::slice::from_ref(&record.interface))
}

/// The active profiles of TuneD without that of a record that goes; `None` where it is not active. Fails where the profile of
/// an interface that is not `removed` includes it: TuneD could load neither.
fn active_without(
    root: &RootFolder,
    record: &KeepRecord,
    removed: &[String],
) -> Result<Option<String>, CliError> {
    let interface = &record.interface;
    if !tuned::profile_files(interface).iter().any(|file| record.has_file(file)) {
        return Ok(None);
    }
    if let Some(other) = tuned::find_includer(root, interface, removed) {
        let message = format!(
            "nothing was written: TuneD's profile {other} includes that of {interface}. Remove both, or take it out of \
             `include` there"
        );
        return Err(CliError::new(ExitReason::Failed, message));
    }
    Ok(tuned::remaining_profiles(root, interface))
}

/// The target with what the program that reads the format says of the interface already.
fn resolve_target(
    target: Target,
    root: &RootFolder,
    format: ExportFormat,
    interface: &str,
) -> Result<Target, CliError> {
    match format {
        ExportFormat::Netplan => {
            let found = netplan::NetplanDefinitions::read(root)?.entry_of(interface).ok_or_else(|| {
                CliError::usage(format!(
                    "no netplan file has {interface}, and its device type is not known. netplan would take the \
                     interface over or refuse all files. Use --format systemd-link or --format udev"
                ))
            })?;
            if let Some(others) = found.others {
                let message = format!(
                    "{} is, or may be, of other interfaces too ({others}): give {interface} an entry of its own, or use \
                     --format udev",
                    found.file
                );
                return Err(CliError::new(ExitReason::Failed, message));
            }
            if let Some(earlier) = found.earlier {
                let message = format!(
                    "netplan's entry {earlier} matches {interface} too and comes first, so that another would not count: \
                     narrow its `match`, or use --format udev"
                );
                return Err(CliError::new(ExitReason::Failed, message));
            }
            if let Some(why) = choose::link_beside_netplan(root, interface, &found) {
                let message = format!("{why}: use --format udev");
                return Err(CliError::new(ExitReason::Failed, message));
            }
            if !found.has_link {
                output::print_remark(&format!(
                    "latput: netplan makes a .link file of {interface} now, and has Wake-on-LAN off in it: set `wakeonlan: \
                     true` in {} where it is wanted",
                    found.file
                ));
            }
            let placed = target.in_netplan_entry(found.entry);
            placed.map_err(|error| CliError::usage(error.to_string()))
        }
        ExportFormat::NetworkManager => {
            let profile = profile::of_interface(root, interface)?;
            let of = |profile: profile::NetworkProfile| {
                target.clone().in_profile(&profile.connection_type)
            };
            Ok(profile.map_or(target.clone(), of))
        }
        ExportFormat::SystemdLink => match choose::other_link(root, interface)? {
            Some(why) => Err(CliError::new(
                ExitReason::Failed,
                format!(
                    "{why}. Only one .link file counts, and that of latput would take its place: use --format udev"
                ),
            )),
            None => Ok(target),
        },
        _ => Ok(target),
    }
}

/// The sentence where there is no record, of one interface or of any.
fn nothing_kept(interface: Option<&str>) -> String {
    let of = interface.map_or(String::new(), |name| format!(" for {name}"));
    format!("nothing is kept{of}")
}

/// Whether NetworkManager activates the profile of an interface by itself.
fn is_activated(root: &RootFolder, interface: &str) -> bool {
    profile::of_interface(root, interface).is_ok_and(|it| it.is_none_or(|it| it.is_automatic))
}

/// Says when what was written takes effect, and what is to be done for it.
fn tell_when(root: &RootFolder, format: ExportFormat, writing: &FileTransaction<'_>) {
    let interface = writing.interface();
    let when = if root.is_running_system() {
        format!("to make it take effect: {}", choose::reload_command(root, format, interface))
    } else if writing.has_file(&tuned::profile_file(root, interface))
        && !tuned::is_active(root, interface)
    {
        // Without its daemon, `tuned-adm` takes one name only.
        format!(
            "it takes effect when this image boots, once etc/tuned/active_profile there says `{}`, and profile_mode beside \
             it `manual`",
            tuned::to_activate(root, interface)
        )
    } else if format == ExportFormat::NetworkManager && !is_activated(root, interface) {
        "it takes effect once NetworkManager activates the profile, which has `autoconnect=false`"
            .to_owned()
    } else {
        "it takes effect when this image boots".to_owned()
    };
    output::print_remark(&format!("latput: {when}"));
    let affinity = unit::affinity_unit(interface);
    if writing.has_file(&unit::unit_file(&affinity)) && !unit::is_enabled(root, &affinity) {
        output::print_remark(&format!(
            "latput: smp-affinity is set after each boot by {affinity} once it is enabled: {}",
            unit::enable_command(root, &affinity)
        ));
    }
    if writing.has_file(&irqbalance::drop_in_file(interface)) && root.is_running_system() {
        output::print_remark(
            "latput: irqbalance leaves these interrupts once it is started again: systemctl daemon-reload && \
             systemctl try-restart irqbalance",
        );
    }
}

/// Asks whoever sits at the terminal.
fn prompt_confirmation() -> Result<(), CliError> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let message = "nothing was written, because there is no terminal to ask on: give --yes";
        return Err(CliError::usage(message));
    }
    output::print_remark("Write this? [y/N]");
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if answer.trim().eq_ignore_ascii_case("y") {
        return Ok(());
    }
    Err(CliError::new(ExitReason::Failed, "nothing was written"))
}
