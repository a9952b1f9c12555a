//! `latput export-settings`: writes a setting for the host's own configuration system.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_knobs::export::{self, Exported, Match, Target};
use latput_knobs::{
    Capability, Group, KernelErrorKind, KernelRead, Knob, Named, Place, Scope, Setting, Value,
    parse_assignment,
};
use latput_linux::confine::UsedFiles;
use latput_linux::{Identity, LinuxKernel, RootFolder, facts};
use latput_results::ResultsDb;
use latput_trial::Results;
use latput_trial::observation::Role;
use serde::{Deserialize, Serialize};

use crate::commands::interface_type::{self, MeantInterface};
use crate::commands::proven::proven_setting;
use crate::commands::report::setting_of;
use crate::commands::{change, netplan};
use crate::context::{CliContext, keep_only_files};
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Write a setting for the host's configuration system.
///
/// The setting is then kept without latput.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput export-settings latput-results.db --format systemd-link
  latput export-settings latput-results.db --setting 50us --interface eth2 --format ethtool
  latput export-settings eth0 rx-usecs=50us adaptive-rx=off --format networkmanager
  latput export-settings eth0 rx-usecs gro rps-cpus --format systemd-link
  latput export-settings eth0 rx-usecs=50us gro=on --format ansible -o eth0.yml
  latput export-settings bond0 mtu=9000 --kind bond --format nmstate    of an interface of another host
  latput export-settings eth0 --format ethtool -o restore-eth0.sh

For a results file, the recommended setting is written, if one is proven better than today's. For an
interface, KNOB=VALUE writes a value, KNOB alone the present value, and no knob at all every present value.
Nothing is changed. Values that the format cannot express are listed in comments and on stderr, with the file
and the line that can.")]
pub(crate) struct Args {
    /// A results file, or an interface.
    #[arg(value_name = "FILE|IFACE")]
    source: String,
    /// Values for an interface; a knob without a value keeps its present one.
    #[arg(value_name = "KNOB[=VALUE]", conflicts_with_all = OF_RESULTS_ONLY)]
    knobs: Vec<String>,
    /// The configuration system.
    #[arg(long, value_enum)]
    format: ExportFormat,
    #[command(flatten)]
    of: SourceArgs,
    /// The kind of an interface of another host, as `ip -d link` there names it (`bond`, `vlan`); `ethernet` for hardware.
    /// For netplan, nmstate and ansible. By default that of the results, or of this host.
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Write to this file instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Flags of [`SourceArgs`] that have no meaning beside values for an interface.
pub(super) const OF_RESULTS_ONLY: [&str; 3] = ["setting", "run", "interface"];

/// Which setting of a source, and which interface it is for.
#[derive(Debug, clap::Args)]
pub(super) struct SourceArgs {
    /// A setting other than the recommended one of the results file, by label or a unique part of
    /// it.
    #[arg(long, value_name = "SETTING")]
    setting: Option<String>,
    /// Run number in the results file; by default the newest run.
    #[arg(long, value_name = "N")]
    run: Option<i64>,
    /// The host's role in the results file.
    #[arg(long, value_enum, default_value = "sut")]
    role: ExportedRole,
    /// The interface, if it differs from that of the results file. Results that were imported from a report need it.
    #[arg(long, value_name = "IFACE")]
    interface: Option<String>,
    /// How the configuration identifies the interface. By default by its permanent address, else
    /// its PCI slot, else its name, as this host reports them.
    #[arg(long = "match", value_enum)]
    matched: Option<MatchBy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ExportFormat {
    SystemdLink,
    #[value(name = "networkmanager")]
    NetworkManager,
    Ethtool,
    Netplan,
    Tuned,
    Udev,
    Nmstate,
    Ansible,
    CloudInit,
}

impl ExportFormat {
    pub(super) const fn to_format(self) -> export::Format {
        match self {
            Self::SystemdLink => export::Format::SystemdLink,
            Self::NetworkManager => export::Format::NetworkManager,
            Self::Ethtool => export::Format::Ethtool,
            Self::Netplan => export::Format::Netplan,
            Self::Tuned => export::Format::Tuned,
            Self::Udev => export::Format::Udev,
            Self::Nmstate => export::Format::Nmstate,
            Self::Ansible => export::Format::Ansible,
            Self::CloudInit => export::Format::CloudInit,
        }
    }

    /// Why a host cannot be told to keep a setting by such a file.
    pub(super) const fn why_not_kept(self) -> Option<&'static str> {
        match self {
            Self::Ethtool => Some("nothing runs a script at boot"),
            Self::Nmstate => Some("nmstate keeps nothing itself: NetworkManager does"),
            Self::Ansible => Some("Ansible's variables belong to the host that it runs on"),
            Self::CloudInit => Some("cloud-init sets up new instances, not this host"),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ExportedRole {
    Sut,
    Generator,
}

impl ExportedRole {
    pub(super) const fn to_role(self) -> Role {
        match self {
            Self::Sut => Role::Sut,
            Self::Generator => Role::Generator,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum MatchBy {
    Name,
    Mac,
    Path,
    Driver,
}

/// The setting to write, and its origin.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WantedSetting {
    pub(super) interface: String,
    pub(super) setting: Setting,
    pub(super) origin: String,
    /// The driver and the bus address that were measured, as [`change::device_fingerprint`] has them; `None` where the interface
    /// was named.
    pub(super) measured: Option<String>,
    /// The kind of the measured interface, where its host told it.
    pub(super) kind: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let format = self.format.to_format();
        if self.kind.is_some() && !format.names_types() {
            return Err(CliError::usage(format!("--kind: {format} names no type of an interface")));
        }
        // netplan's files are root's alone: they are read before the rights are given up.
        let is_netplan = self.format == ExportFormat::Netplan;
        let netplan_files = is_netplan.then(|| {
            let root = RootFolder::open(Path::new("/"))?;
            netplan::NetplanDefinitions::read(&root)
        });
        keep_only_files(&UsedFiles::new([Path::new(&self.source)], self.output.as_deref()))?;
        let mut wanted = self.of.load_setting(&self.source, &self.knobs)?;
        if self.format != ExportFormat::SystemdLink {
            spell_out(&wanted.interface, &mut wanted.setting);
        }
        let meant = MeantInterface {
            fingerprint: wanted.measured.as_deref(),
            measured_kind: wanted.kind.as_deref(),
            given_kind: self.kind.as_deref(),
        };
        let is_here = meant.is_here(&wanted.interface);
        let target = self.of.build_target(&wanted.interface, is_here)?;
        let target = match netplan_files {
            Some(files) => netplan::in_entry(target, files, &wanted.setting, meant)?,
            None => interface_type::with_kind(target, format, &wanted.setting, meant)?,
        };
        let origin = format!("latput {}: {}", env!("CARGO_PKG_VERSION"), wanted.origin);
        let exported = export::export(format, &target, &wanted.setting, &origin);
        self.write_exported(context, &target, &exported)
    }

    fn write_exported(
        &self,
        context: &CliContext,
        target: &Target,
        exported: &Exported,
    ) -> Result<ExitCode, CliError> {
        let text = if context.json {
            let document = serde_json::json!({
                "schema": 1,
                "interface": target.interface(),
                "file": exported.file,
                "text": exported.text,
                "elsewhere": exported.elsewhere,
            });
            format!("{document:#}\n")
        } else {
            exported.text.clone()
        };
        match &self.output {
            Some(path) => output::write_file(path, &text)?,
            None => output::print_data(&text)?,
        }
        for left in &exported.elsewhere {
            let place = left.file.as_deref().unwrap_or("nowhere");
            let knob = left.knob;
            let value = &left.value;
            output::print_remark(&format!(
                "latput: not in it: {knob}={value}: {place}: {}",
                left.line
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl SourceArgs {
    /// The setting of a results file, or of `knobs` of an interface. Never an empty one.
    pub(super) fn load_setting(
        &self,
        source: &str,
        knobs: &[String],
    ) -> Result<WantedSetting, CliError> {
        if is_results(source, knobs) {
            self.read_results(source)
        } else {
            self.read_interface(source, knobs)
        }
    }

    /// These options as words of a command line.
    pub(super) fn to_args(&self) -> Vec<String> {
        let Self { setting, run, role, interface, matched: _ } = self; // it does not bear on the setting
        let role = (*role != ExportedRole::Sut).then(|| "generator".to_owned());
        let options = [
            ("setting", setting.clone()),
            ("run", run.map(|run| run.to_string())),
            ("role", role),
            ("interface", interface.clone()),
        ];
        let words = options.into_iter();
        words.filter_map(|(name, value)| Some(format!("--{name}={}", value?))).collect()
    }

    pub(super) fn read_results(&self, source: &str) -> Result<WantedSetting, CliError> {
        let results_db = ResultsDb::open(Path::new(source))?;
        let results = results_db.load_chosen(self.run)?;
        if self.interface.is_none() && results.is_imported() {
            let message = format!(
                "{source} was imported from a report, and anybody can have edited it. Check its setting, then \
                 name the interface with --interface"
            );
            return Err(CliError::usage(message));
        }
        let setting = match &self.setting {
            Some(name) => setting_of(&results, name)?,
            None => proven_setting(&results)?,
        };
        let role = self.role.to_role();
        let labelled = &results.settings[setting];
        let interface = match &self.interface {
            Some(interface) => interface.clone(),
            None => find_role_interface(&results, role)?,
        };
        let setting = labelled.by_role.get(&role).cloned().unwrap_or_default();
        let measured = results.hosts.iter().find(|host| host.role == role);
        let measured = measured.filter(|_| self.interface.is_none());
        reject_empty_setting(WantedSetting {
            interface,
            setting,
            origin: format!("setting `{}` of {source}", labelled.label),
            measured: measured.map(|host| change::device_fingerprint(&host.facts)),
            kind: measured.and_then(|host| find_interface_kind(&host.facts)),
        })
    }

    fn read_interface(&self, source: &str, knobs: &[String]) -> Result<WantedSetting, CliError> {
        if self.setting.is_some() || self.run.is_some() || self.interface.is_some() {
            return Err(CliError::usage(format!("{source}: there is no such results file")));
        }
        let interface = source.to_owned();
        let mut setting = Setting::new();
        for text in knobs {
            let (knob, value) = if text.contains('=') {
                parse_assignment(text).map_err(|error| CliError::usage(error.to_string()))?
            } else {
                let knob: Knob = text.parse().map_err(|error: latput_knobs::UnknownKnob| {
                    CliError::usage(error.to_string())
                })?;
                (knob, value_of_now(&interface, knob)?)
            };
            if setting.insert(knob, value).is_some() {
                return Err(CliError::usage(format!("`{knob}` is given twice")));
            }
        }
        let origin = if knobs.is_empty() {
            setting = everything_of_now(&interface)?;
            format!("{interface} as it is")
        } else {
            format!("{interface} {}", knobs.join(" "))
        };
        reject_empty_setting(WantedSetting {
            interface,
            setting,
            origin,
            measured: None,
            kind: None,
        })
    }

    /// Whether the user has chosen by what a file matches the interface.
    pub(super) const fn is_matched_by_choice(&self) -> bool {
        self.matched.is_some()
    }

    /// How a configuration knows the interface. An interface of another host is not that of this name here.
    pub(super) fn build_target(&self, interface: &str, is_here: bool) -> Result<Target, CliError> {
        let here = if is_here { Identity::read(interface) } else { None };
        let identity = here.unwrap_or_default();
        let lacks = |what: &str| {
            let message = format!(
                "this host does not know the {what} of {interface}: run this on its own host, or give --match \
                 name"
            );
            CliError::usage(message)
        };
        let Identity { permanent_mac, path, driver, kind: _ } = identity;
        let matched = match self.matched {
            Some(MatchBy::Name) => Match::Name,
            Some(MatchBy::Mac) => {
                Match::Mac(permanent_mac.ok_or_else(|| lacks("permanent address"))?)
            }
            Some(MatchBy::Path) => Match::Path(path.ok_or_else(|| lacks("PCI slot"))?),
            Some(MatchBy::Driver) => Match::Driver(driver.ok_or_else(|| lacks("driver"))?),
            None => match (permanent_mac, path) {
                (Some(mac), _) => Match::Mac(mac),
                (None, Some(path)) => Match::Path(path),
                (None, None) => Match::Name,
            },
        };
        Target::new(interface, matched).map_err(|error| CliError::usage(error.to_string()))
    }
}

/// Whether a source is a results file, and not an interface.
pub(super) fn is_results(source: &str, knobs: &[String]) -> bool {
    knobs.is_empty() && Path::new(source).is_file()
}

fn reject_empty_setting(wanted: WantedSetting) -> Result<WantedSetting, CliError> {
    if wanted.setting.is_empty() {
        let message = format!("there is nothing to write: {} changes no knob", wanted.origin);
        return Err(CliError::new(ExitReason::Failed, message));
    }
    Ok(wanted)
}

fn find_role_interface(results: &Results, role: Role) -> Result<String, CliError> {
    let of_role = results.hosts.iter().filter(|host| host.role == role);
    let mut names: Vec<&str> = of_role.map(|host| host.interface.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [name] => Ok((*name).to_owned()),
        _ => Err(CliError::usage("the hosts have different interfaces: name one with --interface")),
    }
}

/// The kind of the interface of a host, by its facts.
fn find_interface_kind(facts: &[(String, String)]) -> Option<String> {
    let kind = facts.iter().find(|(name, _)| name == facts::INTERFACE_KIND);
    kind.map(|(_, kind)| kind.clone()).filter(|kind| kind != facts::UNKNOWN)
}

/// The present value of a knob, if it is the same everywhere on the interface.
fn value_of_now(interface: &str, knob: Knob) -> Result<Value, CliError> {
    let kernel = LinuxKernel::open()?;
    let values = kernel.read(interface, knob).map_err(|error| {
        let code = match error.kind {
            KernelErrorKind::NoInterface => ExitReason::Usage,
            KernelErrorKind::Permission => ExitReason::Permission,
            _ => ExitReason::Failed,
        };
        CliError::new(code, error.to_string())
    })?;
    require_single_value(&values).map_err(|differs| {
        CliError::usage(format!("{interface}: {knob} {differs}: give one value for all"))
    })
}

/// The one value of all places; the error lists different ones.
fn require_single_value(values: &[(Place, Value)]) -> Result<Value, String> {
    match values {
        [] => Err("has no value".to_owned()),
        [(_, first), rest @ ..] if rest.iter().all(|(_, value)| value == first) => {
            Ok(first.clone())
        }
        _ => {
            let all = values.iter().map(|(place, value)| format!("{value} at {place}"));
            Err(format!("differs ({})", all.collect::<Vec<_>>().join(", ")))
        }
    }
}

/// The present value of every knob of an interface that can be set, except the host's own knobs,
/// the driver's load-time parameters, and a queue discipline that the kernel attaches by itself.
fn everything_of_now(interface: &str) -> Result<Setting, CliError> {
    let mut setting = Setting::new();
    for surveyed in LinuxKernel::open()?.survey(interface) {
        let spec = surveyed.knob.spec();
        let values = match surveyed.values {
            Err(error) if error.kind == KernelErrorKind::NoInterface => {
                let message = format!(
                    "`{interface}` is neither a results file nor an interface: `latput show` lists \
                     the interfaces"
                );
                return Err(CliError::usage(message));
            }
            Err(_) => continue,
            Ok(values) => values,
        };
        let is_settable = matches!(surveyed.capability, Capability::Settable(_));
        if !is_settable || spec.scope == Scope::Host || spec.group == Group::LoadTime {
            continue;
        }
        match require_single_value(&values) {
            Ok(Value::Qdisc(qdisc)) if qdisc.is_default() => {}
            Ok(value) => {
                setting.insert(surveyed.knob, value);
            }
            Err(differs) => {
                output::print_remark(&format!("latput: left out: {} {differs}", surveyed.knob));
            }
        }
    }
    Ok(setting)
}

/// Replaces `max` by numbers, if this host has the interface.
pub(super) fn spell_out(interface: &str, setting: &mut Setting) {
    let Ok(kernel) = LinuxKernel::open() else { return };
    for (knob, value) in setting {
        if *value == Value::Named(Named::Max)
            && let Ok(number) = kernel.resolve(interface, *knob, Place::Device, Named::Max)
        {
            *value = number;
        }
    }
}
