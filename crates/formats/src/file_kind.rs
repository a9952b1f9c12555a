//! Kinds of files, told by their content: an error names the command that reads the file.

use latput_trial::figures::decode;

use crate::gzip;
use crate::import::{ImportFormat, LARGEST};

/// A kind of file that some command of latput reads, or that it says how to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A results file.
    Results,
    /// A page of `latput report`.
    Report,
    /// A plan.
    Plan,
    /// iperf3's JSON.
    Iperf3,
    /// iperf3's output for people, which has no exact figures.
    Iperf3Text,
    /// netperf's output.
    Netperf,
    /// A data file of flent.
    Flent,
}

impl FileKind {
    /// The kind of a file with this content, if it can be told.
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"SQLite format 3\0") {
            return Some(Self::Results);
        }
        let unpacked =
            if gzip::is_gzip(bytes) { gzip::unpack(bytes, LARGEST).ok()? } else { bytes.to_vec() };
        let text = decode(&unpacked).ok()?;
        let has = |words: &[&str]| words.iter().all(|word| text.contains(word));
        let is_any = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let is_page =
            text.trim_start().get(..9).is_some_and(|it| it.eq_ignore_ascii_case("<!doctype"));
        [
            (Self::Report, is_page && has(&["latput"])),
            (Self::Flent, has(&["\"raw_values\""])),
            (
                Self::Iperf3,
                has(&["\"start\"", "\"end\""])
                    && is_any(&["\"test_start\"", "\"intervals\"", "\"event\""]),
            ),
            (Self::Iperf3Text, has(&["[ ID] Interval"])),
            (Self::Netperf, is_any(&["MIGRATED ", "THROUGHPUT=", " TEST from "])),
            (Self::Plan, has(&["schema", "[[workload]]"])),
        ]
        .into_iter()
        .find_map(|(kind, is_it)| is_it.then_some(kind))
    }

    /// Returns its name, and how it is read or replaced; `FILE` stands for its name.
    const fn name_and_remedy(self) -> (&'static str, &'static str) {
        match self {
            Self::Results => ("a results file", "`latput report FILE` reads it"),
            Self::Report => ("a report of latput", "`latput import FILE -o RESULTS` reads it"),
            Self::Plan => ("a plan", "`latput run FILE` runs it"),
            Self::Iperf3 => ("iperf3's JSON", "`latput import iperf3 FILE -o RESULTS` reads it"),
            Self::Iperf3Text => (
                "iperf3's text output",
                "latput reads its JSON: run `iperf3 --json` (or `--json-stream`) again",
            ),
            Self::Netperf => {
                ("netperf's output", "`latput import netperf FILE -o RESULTS` reads it")
            }
            Self::Flent => {
                ("a data file of flent", "`latput import flent FILE -o RESULTS` reads it")
            }
        }
    }

    /// Whether `import` reads it as this program's.
    pub const fn is_of(self, format: ImportFormat) -> bool {
        matches!(
            (self, format),
            (Self::Iperf3, ImportFormat::Iperf3)
                | (Self::Netperf, ImportFormat::Netperf)
                | (Self::Flent, ImportFormat::Flent)
        )
    }

    /// Its name and the command that reads `file`: `it is a report of latput: ...`.
    pub fn suggest_command(self, file: &str) -> String {
        let (name, remedy) = self.name_and_remedy();
        format!("it is {name}: {}", remedy.replace("FILE", file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_is_told_by_content() {
        for (bytes, expected) in [
            (&b"SQLite format 3\0..."[..], Some(FileKind::Results)),
            (b"<!doctype html><title>latput</title>", Some(FileKind::Report)),
            (b"<!DOCTYPE html><title>another page</title>", None),
            (b"{\"start\":{},\"intervals\":[],\"end\":{}}", Some(FileKind::Iperf3)),
            (b"{\"start\":{\"test_start\":{}},\"end\":{}}", Some(FileKind::Iperf3)),
            (b"[ ID] Interval           Transfer     Bitrate", Some(FileKind::Iperf3Text)),
            (b"MIGRATED TCP STREAM TEST from 0.0.0.0", Some(FileKind::Netperf)),
            (b"THROUGHPUT=1.0\nTHROUGHPUT_UNITS=Trans/s\n", Some(FileKind::Netperf)),
            (b"{\"version\":4,\"raw_values\":{}}", Some(FileKind::Flent)),
            (&gzip::pack("{\"raw_values\":{}}"), Some(FileKind::Flent)),
            (b"schema = 1\n[[workload]]\nkind = \"tcp_rr\"\n", Some(FileKind::Plan)),
            (b"throughput,latency\n1,2\n", None),
            (b"", None),
            (b"\xff\xfe\x00\xd8", None),
        ] {
            assert_eq!(FileKind::detect(bytes), expected, "{:?}", String::from_utf8_lossy(bytes));
        }
        let hint = FileKind::Report.suggest_command("out.html");
        assert_eq!(hint, "it is a report of latput: `latput import out.html -o RESULTS` reads it");
    }
}
