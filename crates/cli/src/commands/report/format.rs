//! The format of a report: named, or that of the output's suffix.

use std::path::Path;

use crate::exit::CliError;

/// A format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ReportFormat {
    Table,
    Html,
    Csv,
    Json,
    Markdown,
    Flent,
    /// `JUnit` XML, of --compare.
    Junit,
    /// The Kernel Test Anything Protocol, of --compare.
    Ktap,
}

/// The suffix of flent's data files.
pub(super) const FLENT: &str = ".flent.gz";
/// The suffix of a folder of them.
pub(super) const FLENT_FOLDER: &str = ".flent";

/// Format of each suffix.
const SUFFIXES: [(&str, ReportFormat); 9] = [
    (".txt", ReportFormat::Table),
    (".html", ReportFormat::Html),
    (".csv", ReportFormat::Csv),
    (".json", ReportFormat::Json),
    (".md", ReportFormat::Markdown),
    (FLENT, ReportFormat::Flent),
    (FLENT_FOLDER, ReportFormat::Flent),
    (".xml", ReportFormat::Junit),
    (".ktap", ReportFormat::Ktap),
];

/// The format that was named, or else that of the output. A suffix that stands for none is refused.
pub(super) fn choose_format(
    named: Option<ReportFormat>,
    output: Option<&Path>,
    json: bool,
) -> Result<ReportFormat, CliError> {
    match (named, output) {
        (Some(format), _) => Ok(format),
        (None, _) if json => Ok(ReportFormat::Json),
        (None, None) => Ok(ReportFormat::Table),
        (None, Some(path)) => {
            let name = path.to_string_lossy();
            let found = SUFFIXES.iter().find(|(suffix, _)| name.ends_with(suffix));
            found.map(|(_, format)| *format).ok_or_else(|| {
                let known = SUFFIXES.map(|(suffix, _)| suffix).join(", ");
                CliError::usage(format!(
                    "{name}: unknown suffix: use one of {known}, or name a --format"
                ))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffix_decides_unless_a_format_is_named() {
        let of = |name: &str| choose_format(None, Some(Path::new(name)), false);
        assert_eq!(of("a.b/x.html").unwrap(), ReportFormat::Html);
        assert_eq!(of("x.flent.gz").unwrap(), ReportFormat::Flent);
        assert_eq!(of("x.flent").unwrap(), ReportFormat::Flent);
        assert_eq!(choose_format(None, None, false).unwrap(), ReportFormat::Table);
        assert_eq!(choose_format(None, Some(Path::new("x")), true).unwrap(), ReportFormat::Json);
        let named = choose_format(Some(ReportFormat::Csv), Some(Path::new("x.pdf")), false);
        assert_eq!(named.unwrap(), ReportFormat::Csv);
        for name in ["x.pdf", "x", "x.gz", "html"] {
            let message = of(name).unwrap_err().message();
            assert!(message.contains(name) && message.contains(".html, .csv, .json"), "{message}");
        }
    }
}
