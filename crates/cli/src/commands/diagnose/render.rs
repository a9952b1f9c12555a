//! A diagnosis in lines.

use std::fmt::Write as _;

use latput_diagnose::diagnosis::RankedFinding;
use latput_diagnose::finding::{Confidence, Explained};
use latput_diagnose::sides::{HostFinding, RemoteCause};
use latput_diagnose::{Diagnosis, HostsDiagnosis};
use latput_report::lines::{wrap_hanging, wrap_text};

use crate::commands::stages::render_stages;

/// Indent of what belongs to a finding.
const INDENT: &str = "     ";

/// The answer in lines: the first finding, the others, what is healthy, what was not seen. `subject` is the interface as
/// the user named it.
pub(super) fn render_diagnosis(diagnosis: &Diagnosis, subject: &str, columns: usize) -> String {
    let mut text = render_head(subject, diagnosis.window_s);
    for found in &diagnosis.findings {
        text.push('\n');
        render_finding(&mut text, found, None, columns);
    }
    text.push_str(&render_stages(&diagnosis.stages, columns));
    render_lists(&mut text, &diagnosis.healthy, &diagnosis.unseen, columns);
    text
}

/// The answer for several hosts: the findings of all, then what is healthy and not seen on each.
pub(super) fn render_hosts(diagnosis: &HostsDiagnosis, columns: usize) -> String {
    let mut text = String::new();
    for HostFinding { host, found, caused_by } in &diagnosis.findings {
        render_finding(&mut text, found, Some(host.as_str()), columns);
        if let Some(RemoteCause { host, id, connections }) = caused_by {
            let line = format!(
                "follows from {id} on {host}: both hosts see {connections} of the same connections"
            );
            text.push_str(&wrap_hanging(&line, INDENT, "       ", columns));
        }
        text.push('\n');
    }
    for (idx, host) in diagnosis.hosts.iter().enumerate() {
        if idx > 0 {
            text.push('\n');
        }
        text.push_str(&render_head(&format!("{} {}", host.host, host.interface), host.window_s));
        render_lists(&mut text, &host.healthy, &host.unseen, columns);
    }
    text
}

fn render_head(subject: &str, window_s: Option<f64>) -> String {
    let window = window_s.map(|window| format!(", {window:.0} s")).unwrap_or_default();
    format!("{subject}{window}\n")
}

fn render_lists(text: &mut String, healthy: &[&str], unseen: &[String], columns: usize) {
    if !healthy.is_empty() {
        let list = format!("Healthy: {}", healthy.join(", "));
        let _ = write!(text, "\n{}", wrap_hanging(&list, "", "  ", columns));
    }
    if !unseen.is_empty() {
        let list = format!("Not seen: {}", unseen.join(", "));
        let _ = write!(text, "\n{}", wrap_hanging(&list, "", "  ", columns));
    }
}

fn render_finding(text: &mut String, found: &RankedFinding, host: Option<&str>, columns: usize) {
    let finding = &found.finding;
    let host = host.map(|host| format!("{host}: ")).unwrap_or_default();
    let head = format!("{}. {host}{}", found.rank, finding.sentence);
    text.push_str(&wrap_hanging(&head, "", "   ", columns));
    let sure = match finding.confidence {
        Confidence::Hint => "a hint",
        Confidence::Likely => "likely",
        Confidence::Certain => "certain",
    };
    let explained = describe_shares(finding.explains);
    text.push_str(&wrap_text(&format!("{} ({sure}{explained})", finding.id), INDENT, columns));
    text.push_str(&wrap_text(finding.mechanism, INDENT, columns));
    if let Some(remedy) = &finding.remedy {
        text.push_str(&wrap_hanging(&format!("remedy: {remedy}"), INDENT, "       ", columns));
    }
    let tried = found.proof.as_ref().map(|proof| proof.describe(found.verdict));
    let not_tried = || found.untried.as_ref().map(|why| format!("not tried: {why}"));
    if let Some(told) = tried.or_else(not_tried) {
        text.push_str(&wrap_hanging(&told, INDENT, "       ", columns));
    }
    if let Some(prove) = finding.prove.as_ref().filter(|_| found.proof.is_none()) {
        text.push_str(&wrap_hanging(&format!("prove: {prove}"), INDENT, "       ", columns));
    }
}

fn describe_shares(explains: Explained) -> String {
    let shares = [
        (explains.loss_share, "what was lost"),
        (explains.latency_share, "the waits"),
        (explains.cpu_share, "the CPU time"),
    ];
    let told = shares.into_iter().filter_map(|(share, what)| {
        Some(format!("{:.0}% of {what}", share.filter(|share| *share >= 0.005)? * 100.0))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { String::new() } else { format!("; explains {}", told.join(", ")) }
}
