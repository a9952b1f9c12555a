//! Tickets in the layout of real drivers and kernels: the planted fault is named first, and healthy hosts have none.

use latput_diagnose::{diagnose, read_folder};

const TICKETS: &str = include_str!("tickets.txt");
/// Answers, which are no faults.
const ANSWERS: [&str; 2] = ["no-fault", "idle"];

/// Two looks at a host as files, with the finding that they must have first.
struct Ticket {
    name: String,
    expected: String,
    files: Vec<(String, String)>,
}

/// A line as it is at one of the looks: of `5+3` the first has 5, the second 8.
fn line_at_look(line: &str, is_second: bool) -> String {
    let mut parts = line.split('+');
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (growth, rest) =
            part.split_at(part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len()));
        let start = made.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
        match (made[start..].parse::<u64>(), growth.parse::<u64>()) {
            (Ok(then), Ok(growth)) => {
                let count = if is_second { then + growth } else { then };
                made.replace_range(start.., &count.to_string());
            }
            _ => made = format!("{made}+{growth}"),
        }
        made.push_str(rest);
    }
    made
}

/// Reads a text's head and lines: `proc/stat`, or `proc/stat after` for one look.
fn read_file(text: &str) -> Vec<(String, String)> {
    let (head, lines) = text.split_once('\n').unwrap_or((text, ""));
    let (path, only) = match head.split_once(' ') {
        Some((path, look)) => (path, Some(look)),
        None => (head, None),
    };
    let looks =
        ["before", "after"].into_iter().filter(|look| only.is_none_or(|only| only == *look));
    let text_of = |look: &str| {
        let lines = lines.lines().map(|line| line_at_look(line, look == "after") + "\n");
        (format!("{look}/{path}"), lines.collect())
    };
    looks.map(text_of).collect()
}

fn read_tickets() -> Vec<Ticket> {
    let read = |ticket: &str| {
        let (head, files) = ticket.split_once('\n').unwrap_or((ticket, ""));
        let (name, expected) = head.split_once(": ").unwrap_or((head, ""));
        let files = format!("\n{files}");
        Ticket {
            name: name.to_owned(),
            expected: expected.to_owned(),
            files: files.split("\n@ ").skip(1).flat_map(read_file).collect(),
        }
    };
    TICKETS.split("\n## ").skip(1).map(read).collect()
}

fn find_ids(ticket: &Ticket) -> Vec<&'static str> {
    let snapshot = match read_folder(ticket.files.clone(), None) {
        Ok(snapshot) => snapshot,
        Err(error) => panic!("{}: {error}", ticket.name),
    };
    diagnose(&snapshot).findings.iter().map(|ranked| ranked.finding.id).collect()
}

#[test]
fn planted_faults_are_named_first() {
    let faults = read_tickets().into_iter().filter(|ticket| ticket.expected != "none");
    let missed: Vec<String> = faults
        .map(|ticket| (find_ids(&ticket), ticket))
        .filter(|(found, ticket)| found.first() != Some(&ticket.expected.as_str()))
        .map(|(found, ticket)| format!("{}: {found:?}, not {}", ticket.name, ticket.expected))
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn healthy_hosts_have_no_fault() {
    let healthy = read_tickets().into_iter().filter(|ticket| ticket.expected == "none");
    let wrong: Vec<String> = healthy
        .map(|ticket| (find_ids(&ticket), ticket.name))
        .filter(|(found, _)| !found.iter().all(|id| ANSWERS.contains(id)))
        .map(|(found, name)| format!("{name}: {found:?}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn lines_differ_by_their_growth() {
    let line = "a:5+3 b:7 1.5+2.5 c+d";
    assert_eq!(line_at_look(line, false), "a:5 b:7 1.5.5 c+d");
    assert_eq!(line_at_look("up 100+30.45", true), "up 130.45");
}
