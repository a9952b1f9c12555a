//! The JSON of errors and remarks on stderr.

use latput_knobs::transaction::{ApplyError, Leftover, RestoreError};
use latput_runner::Error;
use latput_runner::error::LeftChanged;
use schemars::JsonSchema;
use serde::Serialize;

use crate::exit::{CliError, CutShort, error_kinds};

/// The error that ended a command: the last line of stderr.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorDocument {
    /// Version of this document's schema: 1.
    schema: u32,
    /// The error.
    error: ErrorPart,
}

/// An error.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ErrorPart {
    /// The word of the exit code.
    #[schemars(extend("enum" = error_kinds()))]
    kind: String,
    /// The thing, the problem and, where it is a special one, the remedy.
    message: String,
    /// Remedy of errors of this kind.
    remedy: String,
    /// The exit code of the command.
    exit_code: u8,
    /// Values that are left changed.
    left: Vec<LeftPart>,
}

/// A host or a value that is not as it was.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LeftPart {
    /// The host's name in the testbed, or this host's interface.
    what: String,
    /// Why it is, or may be, left changed.
    why: String,
    /// The command that puts it back.
    command: String,
}

/// A remark beside the result: a line of stderr.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemarkDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The remark, for people.
    pub(crate) remark: String,
}

impl ErrorDocument {
    /// The document of an error.
    pub(crate) fn from_error(failure: &CliError) -> Self {
        let row = failure.code.row();
        let error = ErrorPart {
            kind: row.kind.to_owned(),
            message: failure.message(),
            remedy: row.remedy.to_owned(),
            exit_code: failure.code as u8,
            left: left_parts(&failure.error),
        };
        Self { schema: 1, error }
    }
}

/// Values that an error leaves changed.
fn left_parts(error: &anyhow::Error) -> Vec<LeftPart> {
    if let Some(CutShort { left, .. }) = error.downcast_ref() {
        return left.iter().map(of_host).collect();
    }
    if let Some(Error::Changed { hosts, .. }) = error.downcast_ref() {
        return hosts.iter().map(of_host).collect();
    }
    let of_interface = |interface: &str, left: &[Leftover]| {
        let part = |value: &Leftover| LeftPart {
            what: interface.to_owned(),
            why: value.to_string(),
            command: "latput restore".to_owned(),
        };
        left.iter().map(part).collect()
    };
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(ApplyError::Stranded { interface, left, .. }), _)
        | (_, Some(RestoreError::Stranded { interface, left, .. })) => {
            of_interface(interface, left)
        }
        _ => Vec::new(),
    }
}

fn of_host(LeftChanged { host, why, command }: &LeftChanged) -> LeftPart {
    LeftPart { what: host.clone(), why: why.clone(), command: command.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::ExitReason;

    #[test]
    fn stranded_hosts_have_their_commands_in_json() {
        let hosts = vec![LeftChanged {
            host: "sut".to_owned(),
            why: "the line is gone".to_owned(),
            command: "ssh root@sut latput restore".to_owned(),
        }];
        let cause = Some(Box::new(Error::Interrupted));
        let document =
            ErrorDocument::from_error(&Error::Changed { hosts: hosts.clone(), cause }.into());
        let error = &document.error;
        assert_eq!((error.kind.as_str(), error.exit_code), ("stranded", 5));
        assert_eq!(error.left, [of_host(&hosts[0])]);
        assert!(error.message.contains("interrupted"), "{error:?}");
        let message = "3 of 9 trials are kept".to_owned();
        let error = CutShort { message, left: hosts.clone() }.into();
        let document = ErrorDocument::from_error(&CliError { code: ExitReason::Stranded, error });
        assert_eq!(document.error.left, [of_host(&hosts[0])]);
        assert_eq!(ErrorDocument::from_error(&CliError::usage("no")).error.left, []);
    }
}
