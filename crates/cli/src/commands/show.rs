//! `latput show`: every knob of an interface, its value, unit and range, and whether it can be set.

use std::fmt::Write as _;
use std::process::ExitCode;

use latput_knobs::{Capability, KernelErrorKind, KernelRead, Knob};
use latput_linux::route::Route;
use latput_linux::{LinuxKernel, facts};

use crate::context::Context;
use crate::document::{ShowDocument, ShownFact, ShownKnob, ShownValue};
use crate::exit::{Code, Failure};
use crate::output;

/// Show every knob of an interface: value, unit, range, whether it can be set here, where it lives.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput show              the interfaces of this host
  latput show eth0         every knob of one
  latput show eth0 --json  the same with the host's facts, for scripts")]
pub(crate) struct Args {
    /// The interface; without it the interfaces are listed.
    #[arg(value_name = "IFACE")]
    interface: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        match &self.interface {
            Some(interface) => {
                let document = read(interface)?;
                if context.json {
                    output::print_json(&document)?;
                } else {
                    output::print(&text(&document))?;
                }
            }
            None => list(context)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(context: &Context) -> Result<(), Failure> {
    let links = Route::open()?.links()?;
    if context.json {
        let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        return output::print_json(&serde_json::json!({ "schema": 1, "interfaces": names }));
    }
    let mut text = String::new();
    for link in &links {
        let state = if link.is_up { "up" } else { "down" };
        let _ = writeln!(text, "{:<16} {:<5} mtu {}", link.name, state, link.mtu.get());
    }
    text.push_str("\n`latput show IFACE` shows the knobs of one.\n");
    output::print(&text)
}

/// Reads everything that can be read; what cannot be is said in its place and hides nothing else.
fn read(interface: &str) -> Result<ShowDocument, Failure> {
    let kernel = LinuxKernel::open()?;
    let mut knobs = Vec::new();
    for &knob in Knob::ALL {
        let spec = knob.spec();
        let (values, unreadable) = match kernel.read(interface, knob) {
            Ok(values) => (values, None),
            Err(error) if error.kind == KernelErrorKind::NoInterface => {
                let message =
                    format!("there is no interface `{interface}`: `latput show` lists them");
                return Err(Failure::new(Code::Usage, message));
            }
            Err(error) => (Vec::new(), Some(error.reason)),
        };
        let (settable, how) = match kernel.capability(interface, knob) {
            Capability::Settable(how) => (true, how),
            Capability::ReadOnly(why) | Capability::Absent(why) => (false, why),
        };
        knobs.push(ShownKnob {
            name: knob.name().to_owned(),
            values: values
                .into_iter()
                .map(|(place, value)| ShownValue {
                    place: place.to_string(),
                    value: value.to_string(),
                })
                .collect(),
            unreadable,
            allowed: spec.allowed(),
            tier: spec.tier.to_string(),
            settable,
            how,
            doc: spec.doc.to_owned(),
        });
    }
    let facts = facts::collect(interface)
        .into_iter()
        .map(|(name, value)| ShownFact { name, value })
        .collect();
    Ok(ShowDocument { schema: 1, interface: interface.to_owned(), knobs, facts })
}

fn text(document: &ShowDocument) -> String {
    let mut text = format!("{}\n\n", document.interface);
    for knob in &document.knobs {
        let value = match knob.values.as_slice() {
            [] => "-".to_owned(),
            [only] => only.value.clone(),
            [first, rest @ ..] if rest.iter().all(|other| other.value == first.value) => {
                format!("{} (all {})", first.value, knob.values.len())
            }
            many => many
                .iter()
                .map(|value| format!("{}: {}", value.place, value.value))
                .collect::<Vec<_>>()
                .join(", "),
        };
        let mark = if knob.settable { "settable" } else { "fixed" };
        let _ = writeln!(text, "{:<22} {value:<16} {mark:<9} {}", knob.name, knob.allowed);
        let _ = writeln!(text, "{:<22} {}", "", knob.doc);
        let _ = writeln!(text, "{:<22} {}; {}\n", "", knob.how, knob.tier);
    }
    text
}
