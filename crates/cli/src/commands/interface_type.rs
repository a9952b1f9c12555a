//! The type that a configuration names an interface by: that of its kind, and never a guess.

use latput_knobs::Setting;
use latput_knobs::export::{Format, Target, lines_by_hand};
use latput_linux::{Identity, facts};

use crate::commands::change;
use crate::exit::CliError;

/// The interface that a configuration is for, as far as it is known without this host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeantInterface<'a> {
    /// Its [fingerprint](change::device_fingerprint) in the results.
    pub(super) fingerprint: Option<&'a str>,
    /// Its kind in the results, where its host told that.
    pub(super) measured_kind: Option<&'a str>,
    /// The kind of an interface of another host, by the user.
    pub(super) given_kind: Option<&'a str>,
}

impl MeantInterface<'_> {
    /// Whether it is the interface of this name on this host.
    pub(super) fn is_here(&self, interface: &str) -> bool {
        let is_measured = |it: &str| change::device_fingerprint(&facts::collect(interface)) == it;
        self.given_kind.is_none() && self.fingerprint.is_none_or(is_measured)
    }

    /// Its kind: as given, else of this host if it has the interface, else of the results.
    pub(super) fn kind_of(&self, interface: &str) -> Option<String> {
        let here = if self.is_here(interface) { Identity::read(interface) } else { None };
        let known = self.given_kind.or(self.measured_kind);
        here.and_then(|it| it.kind).or_else(|| known.map(str::to_owned))
    }
}

/// The target with the kind of its interface. Fails for a format that names types, where the kind has none.
pub(super) fn with_kind(
    target: Target,
    format: Format,
    setting: &Setting,
    meant: MeantInterface<'_>,
) -> Result<Target, CliError> {
    let kind = meant.kind_of(target.interface());
    let lines = lines_by_hand(format, setting);
    if lines.is_empty() {
        // The format names no types, or has no word for the setting.
        return Ok(kind.map_or(target.clone(), |kind| target.of_kind(&kind)));
    }
    match kind.as_deref() {
        Some(kind) if format.type_of(kind).is_some() => Ok(target.of_kind(kind)),
        kind => Err(unknown_type(format, target.interface(), kind, &lines)),
    }
}

/// The refusal of an interface whose type in a format nobody tells, with the lines to add by hand.
pub(super) fn unknown_type(
    format: Format,
    interface: &str,
    kind: Option<&str>,
    lines: &[String],
) -> CliError {
    let why = match (format, kind) {
        (_, None) => "neither this host nor the results tell its kind".to_owned(),
        (Format::Netplan, Some("veth")) => {
            "a veth is below `ethernets` in a container, and below `virtual-ethernets` where netplan makes it"
                .to_owned()
        }
        (_, Some(kind)) => format!("{format} has none for the kind `{kind}`"),
    };
    let (consequence, limits) = match format {
        Format::Netplan => (
            "netplan loses the interface at the next boot",
            " (offloads below `ethernets` and `wifis` only)",
        ),
        _ => ("it is refused, or another interface is made", ""),
    };
    CliError::usage(format!(
        "the type of {interface} for {format} is not known: {why}. Under another type than its own {consequence}. Run this on \
         the interface's own host, name its kind with --kind, use --format udev, or add to its entry by hand{limits}: {}",
        lines.join("; ")
    ))
}
