//! A folder as a snapshot: two looks in folders or in pairs of files, or two sosreports.
//!
//! Three forms. `before/` and `after/` hold files by their path on the host (`proc/net/softnet_stat`) and outputs by their
//! command (`ethtool_-S_eth0`). Pairs of files have `before` and `after` in their names (`before.txt`, `softnet_after`):
//! their content says what they are. Two sosreports are two looks; the one of the shorter uptime is the first.

mod content;

use std::collections::{BTreeMap, BTreeSet};

use crate::snapshot::{Look, Snapshot, SnapshotError, UNNAMED};
use content::{TextKind, keep_tcp};

/// The names of the two looks.
const LOOKS: [&str; 2] = ["before", "after"];
/// The folder of outputs of commands in a sosreport.
const REPORT: &str = "sos_commands";
/// Boot times of one boot differ by less: the kernel computes them from its clock.
const SAME_BOOT_S: u64 = 60;

/// A folder that is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Only one of the two looks is there.
    #[error(
        "there is `{present}` and no `{missing}`: take a second look some seconds later, while the traffic runs"
    )]
    OneLook {
        /// The look that is there.
        present: String,
        /// The one that is not.
        missing: String,
    },
    /// A single sosreport.
    #[error(
        "`{0}` is one sosreport, which has totals since boot only: take a second one while the traffic runs, and give a folder with \
         both"
    )]
    OneReport(String),
    /// More than two sosreports.
    #[error("there are {} sosreports ({}): leave two", .0.len(), .0.join(", "))]
    ManyReports(Vec<String>),
    /// The host was started anew between two sosreports.
    #[error(
        "the host was started anew between `{0}` and `{1}`, its counters too: take both in one boot"
    )]
    Rebooted(String, String),
    /// The second look is the older one.
    #[error(
        "`after` is older than `before`: the two are swapped, or the host was started anew between them, its counters too"
    )]
    Order,
    /// A file of no known kind.
    #[error(
        "{0}: neither `ethtool -S`, -c, -g, -l, -k, -a or -x, nor `ss -tin`, `nstat -az` or `tc -s -j qdisc`, nor a known file of \
         /proc: put files by their path into folders `before` and `after`"
    )]
    UnknownKind(String),
    /// The files of a pair are of different kinds.
    #[error("{0} is {1}, and {2} is {3}: they must be two looks at the same")]
    Kinds(String, String, String, String),
    /// The order of the two looks is not known.
    #[error(
        "there are neither folders `before` and `after`, nor pairs of files with `before` and `after` in their names, nor two \
         sosreports"
    )]
    NoLooks,
    /// The looks cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// The name of a text in its look.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TextName {
    /// A path or a command.
    Known(String),
    /// The output of `ethtool` with an option, for an interface that it names or not.
    OfInterface(&'static str, Option<String>),
}

/// The texts of both looks, whose names may still lack the interface.
type Texts = [Vec<(TextName, String)>; 2];

/// Makes a snapshot of the files of a folder: paths relative to it, and texts.
pub fn read_folder(
    files: impl IntoIterator<Item = (String, String)>,
    interface: Option<&str>,
) -> Result<Snapshot, FolderError> {
    let plain = |(path, text): (String, String)| {
        let path = path.replace('\\', "/");
        let path = path.trim_start_matches("./").trim_start_matches('/').to_owned();
        match text.strip_prefix('\u{feff}') {
            Some(rest) => (path, rest.to_owned()),
            None => (path, text),
        }
    };
    let files: Vec<(String, String)> = files.into_iter().map(plain).collect();
    let has_look = |path: &str| split_at_look(path).is_some();
    let is_report = |path: &str| path.split('/').any(|part| part == REPORT);
    let texts = if files.iter().any(|(path, _)| has_look(path)) {
        read_looks(files)?
    } else if files.iter().any(|(path, _)| is_report(path)) {
        read_reports(files)?
    } else {
        read_pairs(files)?
    };
    let [before, after] = name_texts(texts, interface);
    Ok(Snapshot::from_looks(interface, before, after)?)
}

/// Gives texts of an unnamed interface the name of the one that is judged, or that another text names.
fn name_texts(texts: Texts, interface: Option<&str>) -> [Look; 2] {
    let named = texts.iter().flatten().find_map(|(name, _)| match name {
        TextName::OfInterface(_, Some(named)) => Some(named.clone()),
        _ => None,
    });
    let unnamed = interface.map(str::to_owned).or(named).unwrap_or_else(|| UNNAMED.to_owned());
    texts.map(|texts| {
        let mut look = Look::default();
        for (name, text) in texts {
            let name = match name {
                TextName::Known(name) => name,
                TextName::OfInterface(option, named) => {
                    format!("ethtool_{option}_{}", named.as_deref().unwrap_or(&unnamed))
                }
            };
            look.insert(&name, text);
        }
        look
    })
}

/// The look that a path lies in, and the rest of the path.
fn split_at_look(path: &str) -> Option<(usize, &str)> {
    let mut at = 0;
    for part in path.split('/') {
        let end = at + part.len();
        let look = LOOKS.iter().position(|look| *look == part);
        if let (Some(look), Some(rest)) = (look, path.get(end + 1..)) {
            return Some((look, rest));
        }
        at = end + 1;
    }
    None
}

/// Reads the folders `before` and `after`. Files beside them, and files of no known kind in them, are left out.
fn read_looks(files: Vec<(String, String)>) -> Result<Texts, FolderError> {
    let mut texts = Texts::default();
    let mut unknown: [Option<String>; 2] = [None, None];
    for (path, text) in files {
        let Some((look, rest)) = split_at_look(&path) else { continue };
        match name_text(rest, text) {
            Some(named) => texts[look].push(named),
            None => unknown[look] = Some(path),
        }
    }
    // A look of unknown files only is rather a wrong file than none.
    for (texts, unknown) in texts.iter().zip(unknown) {
        if let (true, Some(path)) = (texts.is_empty(), unknown) {
            return Err(FolderError::UnknownKind(path));
        }
    }
    check_both(&texts)?;
    let [first, second] = [0, 1].map(|at| find_age(&texts[at]));
    // A step of the clock moves the time of boot, too; an uptime that grew tells that there was none.
    if is_other_boot(first, second) && !second.is_older_than(first) {
        let [before, after] = LOOKS.map(str::to_owned);
        return Err(FolderError::Rebooted(before, after));
    }
    if first.is_older_than(second) {
        return Err(FolderError::Order);
    }
    Ok(texts)
}

fn check_both(texts: &Texts) -> Result<(), FolderError> {
    let one = |present: usize| FolderError::OneLook {
        present: LOOKS[present].to_owned(),
        missing: LOOKS[1 - present].to_owned(),
    };
    match [texts[0].is_empty(), texts[1].is_empty()] {
        [true, true] => Err(FolderError::NoLooks),
        [false, true] => Err(one(0)),
        [true, false] => Err(one(1)),
        [false, false] => Ok(()),
    }
}

/// Names a text by its path on the host or its command, else by its content.
fn name_text(path: &str, text: String) -> Option<(TextName, String)> {
    let parts: Vec<&str> = path.split('/').collect();
    let file = *parts.last()?;
    let at_root = parts.iter().position(|part| matches!(*part, "proc" | "sys"));
    if let (Some(at), false) = (at_root, parts.contains(&REPORT)) {
        return Some((TextName::Known(parts[at..].join("/")), text));
    }
    if let Some(command) = name_command(file) {
        let text = if command == "ss_-tin" { keep_tcp(text) } else { text };
        return Some((TextName::Known(command), text));
    }
    let name = name_content(&text)?;
    Some((name, text))
}

/// The usual name of a command's output, whatever further options it has.
fn name_command(file: &str) -> Option<String> {
    let stem = [".txt", ".out", ".log", ".json"].iter().find_map(|end| file.strip_suffix(end));
    let name = stem.unwrap_or(file).trim().replace(' ', "_");
    let usual = if name.starts_with("tc_-") && name.contains("-s_") && name.contains("qdisc") {
        // As JSON, or as text, which sosreports have.
        "tc_-s_-j_qdisc"
    } else if name == "dmesg" || name.starts_with("dmesg_") {
        "dmesg"
    } else if name.starts_with("ss_-tin") || name == "ss_-peaonmi" {
        "ss_-tin"
    } else if name.starts_with("nstat") {
        "nstat_-az"
    } else if name.starts_with("ethtool_") || name.starts_with("ss_") || name == "conntrack_-S" {
        name.as_str()
    } else {
        return None;
    };
    Some(usual.to_owned())
}

/// Names a text by its content.
fn name_content(text: &str) -> Option<TextName> {
    Some(match TextKind::recognise(text)? {
        TextKind::Named(name) => TextName::Known(name.to_owned()),
        TextKind::Ethtool(option, interface) => TextName::OfInterface(option, interface),
    })
}

/// Reads two sosreports.
fn read_reports(files: Vec<(String, String)>) -> Result<Texts, FolderError> {
    let root_of = |path: &str| path.split_once(REPORT).map(|(root, _)| root.to_owned());
    let roots: BTreeSet<String> = files.iter().filter_map(|(path, _)| root_of(path)).collect();
    let roots: Vec<String> = roots.into_iter().collect();
    let name = |root: &str| match root.trim_end_matches('/') {
        "" => REPORT.to_owned(),
        root => root.to_owned(),
    };
    if let [only] = roots.as_slice() {
        return Err(FolderError::OneReport(name(only)));
    }
    if roots.len() > 2 {
        return Err(FolderError::ManyReports(roots.iter().map(|root| name(root)).collect()));
    }
    let mut texts = Texts::default();
    for (path, text) in files {
        let Some(at) = roots.iter().position(|root| path.starts_with(root.as_str())) else {
            continue;
        };
        let rest = &path[roots[at].len()..];
        // A report has thousands of other files.
        let is_read = rest.starts_with("proc/")
            || rest.starts_with("sys/")
            || (rest.starts_with(REPORT) && is_known_output(rest));
        if is_read {
            texts[at].extend(name_text(rest, text));
        }
    }
    let [first, second] = [0, 1].map(|at| find_age(&texts[at]));
    if is_other_boot(first, second) {
        return Err(FolderError::Rebooted(name(&roots[0]), name(&roots[1])));
    }
    // Without an uptime the names tell: they have the date.
    if first.is_older_than(second) {
        texts.swap(0, 1);
    }
    check_both(&texts)?;
    Ok(texts)
}

/// Whether a file of a sosreport is the output of a command that is read, for an option that a rule uses.
fn is_known_output(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let options = ["-S_", "-c_", "-g_", "-l_", "-k_", "-a_", "-x_"];
    match file.strip_prefix("ethtool_") {
        Some(rest) => {
            !rest.starts_with('-') || options.iter().any(|option| rest.starts_with(option))
        }
        None => name_command(file).is_some(),
    }
}

/// The age of a look or a sosreport.
#[derive(Clone, Copy, Debug, Default)]
struct LookAge {
    uptime_s: Option<f64>,
    boot: Option<u64>,
}

impl LookAge {
    /// Whether its host had been up for longer.
    fn is_older_than(self, other: Self) -> bool {
        self.uptime_s.zip(other.uptime_s).is_some_and(|(one, other)| one > other)
    }
}

/// Whether the host was started anew between two looks.
fn is_other_boot(first: LookAge, second: LookAge) -> bool {
    first.boot.zip(second.boot).is_some_and(|(one, other)| one.abs_diff(other) > SAME_BOOT_S)
}

fn find_age(texts: &[(TextName, String)]) -> LookAge {
    let text = |wanted: &str| {
        texts.iter().find_map(|(name, text)| {
            matches!(name, TextName::Known(name) if name == wanted).then_some(text.as_str())
        })
    };
    let of_stat = |name: &str| {
        text("proc/stat")?
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let uptime = text("proc/uptime").and_then(|text| text.split_whitespace().next()?.parse().ok());
    LookAge {
        // Switches of context only grow, as time does.
        uptime_s: uptime.or_else(|| of_stat("ctxt ").map(|switches| switches as f64)),
        boot: of_stat("btime "),
    }
}

/// A file of a pair.
type PairedFile = (String, String);

/// Reads pairs of files with `before` and `after` in their names. Others are left out.
fn read_pairs(files: Vec<PairedFile>) -> Result<Texts, FolderError> {
    let mut pairs = BTreeMap::<String, [Option<PairedFile>; 2]>::new();
    for (path, text) in files {
        let Some((key, look)) = find_pair(&path) else { continue };
        pairs.entry(key).or_default()[look] = Some((path, text));
    }
    let mut complete: Vec<[PairedFile; 2]> = Vec::new();
    let mut single: [Vec<PairedFile>; 2] = Default::default();
    for pair in pairs.into_values() {
        match pair {
            [Some(before), Some(after)] => complete.push([before, after]),
            [before, after] => {
                single[0].extend(before);
                single[1].extend(after);
            }
        }
    }
    if complete.is_empty() {
        complete.push(match single.map(<[PairedFile; 1]>::try_from) {
            [Ok([before]), Ok([after])] => [before, after],
            [Ok([(path, _)]), Err(none)] if none.is_empty() => return Err(lacks(path, 1)),
            [Err(none), Ok([(path, _)])] if none.is_empty() => return Err(lacks(path, 0)),
            _ => return Err(FolderError::NoLooks),
        });
    }
    let mut texts = Texts::default();
    for [before, after] in complete {
        let [one, other] = [&before, &after].map(|(_, text)| name_content(text));
        let unknown = |file: &PairedFile| FolderError::UnknownKind(file.0.clone());
        let one = one.ok_or_else(|| unknown(&before))?;
        let other = other.ok_or_else(|| unknown(&after))?;
        if one != other {
            return Err(FolderError::Kinds(before.0, describe(&one), after.0, describe(&other)));
        }
        texts[0].push((one, before.1));
        texts[1].push((other, after.1));
    }
    Ok(texts)
}

/// The error where a file has no partner.
fn lacks(path: String, look: usize) -> FolderError {
    let missing = path.to_lowercase().replace(LOOKS[1 - look], LOOKS[look]);
    FolderError::OneLook { present: path, missing }
}

fn describe(name: &TextName) -> String {
    match name {
        TextName::Known(name) => name.replace('_', " "),
        TextName::OfInterface(option, None) => format!("ethtool {option}"),
        TextName::OfInterface(option, Some(interface)) => format!("ethtool {option} {interface}"),
    }
}

/// The look that a file's name tells, and the name without it.
fn find_pair(path: &str) -> Option<(String, usize)> {
    let lower = path.to_lowercase();
    let words: Vec<&str> = lower.split(|char: char| !char.is_ascii_alphanumeric()).collect();
    let (at, look) = words
        .iter()
        .enumerate()
        .find_map(|(at, word)| Some((at, LOOKS.iter().position(|look| look == word)?)))?;
    let rest: Vec<&str> =
        words.iter().enumerate().filter(|(idx, _)| *idx != at).map(|(_, word)| *word).collect();
    Some((rest.join(" "), look))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::diagnose;

    const SOFTNET: [&str; 2] = [
        "0000a3f1 00000000 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n",
        "0001f3f1 00000000 00000007 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n",
    ];
    const UDP: [&str; 2] = [
        "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n\
         Udp: 1000 0 0 1000 0 0 0 0 0\n",
        "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n\
         Udp: 2000 0 0 90000 0 4100 0 0 0\n",
    ];

    fn read(files: &[(&str, &str)]) -> Result<Snapshot, FolderError> {
        read_folder(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())), None)
    }

    fn ids(snapshot: &Snapshot) -> Vec<&'static str> {
        diagnose(snapshot).findings.iter().map(|ranked| ranked.finding.id).collect()
    }

    fn pause(count: u64) -> String {
        format!("rx_pause_ctrl_phy: {count}\ntx_pause_ctrl_phy: 0\nrx_discards_phy: 0\n")
    }

    /// Case 41: a pause that grows, and the same large counter standing.
    #[test]
    fn two_files_of_ethtool_are_looks() {
        let (old, new) = (pause(132_000_000), pause(141_000_000));
        let files = [
            ("README.txt", "EvidenceSource: somewhere"),
            ("before.txt", old.as_str()),
            ("after.txt", new.as_str()),
            ("quiet_after.txt", old.as_str()),
        ];
        let snapshot = read(&files).unwrap();
        assert_eq!(snapshot.interface, UNNAMED);
        let evidence = crate::Evidence::from_snapshot(&snapshot);
        assert_eq!(evidence.driver(&["rx_pause_ctrl_phy"]), Some(9_000_000));
        let quiet = read(&[("before.txt", &old), ("quiet_after.txt", &old)]).unwrap();
        assert_eq!(ids(&quiet), ["idle"]);
    }

    /// Case 42: a counter that grows without harm.
    #[test]
    fn softnet_files_are_known_by_content() {
        let snapshot =
            read(&[("softnet_before", SOFTNET[0]), ("softnet_after", SOFTNET[1])]).unwrap();
        let evidence = crate::Evidence::from_snapshot(&snapshot);
        assert_eq!(evidence.softnet().unwrap()[&0].squeezed, 5);
        assert!(!ids(&snapshot).contains(&"idle"));
    }

    /// Case 43: the limit of the other direction.
    #[test]
    fn snmp_files_name_the_sending_limit() {
        let snapshot = read(&[("x/snmp_before", UDP[0]), ("x/snmp_after", UDP[1])]).unwrap();
        assert_eq!(ids(&snapshot), ["udp-send-buffer"]);
        let remedy = diagnose(&snapshot).findings.remove(0).finding.remedy.unwrap();
        assert!(remedy.contains("wmem_max") && !remedy.contains("rmem_max"), "{remedy}");
    }

    #[test]
    fn folders_hold_paths_and_commands() {
        let files = [
            ("ticket/before/proc/net/snmp", UDP[0]),
            ("ticket/after/proc/net/snmp", UDP[1]),
            ("ticket/before/ethtool_-S_eth0.txt", "NIC statistics:\n  rx_packets: 5\n"),
            ("ticket/after/ethtool_-S_eth0.txt", "NIC statistics:\n  rx_packets: 9000\n"),
            ("ticket/after/tc_-s_-j_qdisc_show_dev_eth0", "[]"),
            ("ticket/after/ss_-tin", "State Recv-Q Send-Q Local Peer\n"),
            (
                "ticket/after/ss_-tln",
                "State Recv-Q Send-Q Local Peer\nLISTEN 0 5 0.0.0.0:80 0.0.0.0:*\n",
            ),
            ("ticket/after/notes", "it is slow since Monday\n"),
            ("ticket/README", "x"),
        ];
        let snapshot = read(&files).unwrap();
        assert_eq!(snapshot.interface, "eth0");
        assert_eq!(ids(&snapshot), ["udp-send-buffer"]);
        assert_eq!(snapshot.after.text("tc_-s_-j_qdisc"), Some("[]"));
        assert_eq!(snapshot.after.text("ss_-tin"), Some("State Recv-Q Send-Q Local Peer\n"));
        assert_eq!(snapshot.after.text("ticket/after/notes"), None);
    }

    #[test]
    fn missing_look_is_named() {
        let message = |files: &[(&str, &str)]| read(files).unwrap_err().to_string();
        let one = message(&[("before/proc/net/snmp", UDP[0])]);
        assert!(one.starts_with("there is `before` and no `after`: take a second look"), "{one}");
        let file = message(&[("snmp_before", UDP[0])]);
        assert!(file.contains("`snmp_before` and no `snmp_after`"), "{file}");
        assert!(message(&[("snmp", UDP[0])]).contains("neither folders"));
        assert!(message(&[]).contains("neither folders"));
    }

    #[test]
    fn files_of_no_or_different_kind_are_named() {
        let unknown = read(&[("before.txt", "hello\n"), ("after.txt", "hello\n")]).unwrap_err();
        assert!(unknown.to_string().starts_with("before.txt: neither"), "{unknown}");
        let folders = read(&[("before/a.txt", "hello\n"), ("after/b.txt", "hello\n")]).unwrap_err();
        assert!(folders.to_string().starts_with("before/a.txt: neither"), "{folders}");
        let mixed = read(&[("before", UDP[0]), ("after", SOFTNET[1])]).unwrap_err();
        let expected = "before is proc/net/snmp, and after is proc/net/softnet stat: they must be";
        assert!(mixed.to_string().starts_with(expected), "{mixed}");
    }

    #[test]
    fn looks_of_other_order_or_boot_are_refused() {
        let looks = |uptimes: [&str; 2], boots: [u32; 2]| {
            let stat = boots.map(|boot| format!("cpu0 1 2 3 4 5 6 7 8\nbtime {boot}\n"));
            read(&[
                ("before/proc/uptime", uptimes[0]),
                ("before/proc/stat", &stat[0]),
                ("after/proc/uptime", uptimes[1]),
                ("after/proc/stat", &stat[1]),
            ])
        };
        let message = |uptimes, boots| looks(uptimes, boots).unwrap_err().to_string();
        let swapped = message(["500.1 9\n", "400.1 9\n"], [1_700_000_000; 2]);
        assert!(swapped.starts_with("`after` is older than `before`: the two are swapped"));
        let anew = message(["500.1 9\n", "30.1 9\n"], [1_700_000_000, 1_700_009_000]);
        assert!(anew.contains("started anew between `before` and `after`"), "{anew}");
        assert!(looks(["500.1 9\n", "530.1 9\n"], [1_700_000_000; 2]).is_ok());
        let stepped = looks(["500.1 9\n", "530.1 9\n"], [1_700_000_000, 1_700_003_600]);
        assert!(stepped.is_ok(), "the clock was set");
    }

    #[test]
    fn one_sosreport_has_totals_only() {
        let files = [
            ("sosreport-a-2026/sos_commands/networking/ethtool_-S_eth0", "rx: 5\n"),
            ("sosreport-a-2026/proc/net/snmp", UDP[0]),
        ];
        let refused = read(&files).unwrap_err().to_string();
        assert!(
            refused.starts_with("`sosreport-a-2026` is one sosreport, which has totals"),
            "{refused}"
        );
    }

    #[test]
    fn two_sosreports_go_by_uptime() {
        let files = [
            ("a/sos_commands/networking/ethtool_-S_eth0", "rx_packets: 9000\n"),
            ("a/sos_commands/networking/nstat_-zas", "#kernel\nUdpInDatagrams 9 0.0\n"),
            ("a/proc/uptime", "2000.5 3\n"),
            ("a/proc/net/snmp", UDP[1]),
            ("b/sos_commands/networking/ethtool_-S_eth0", "rx_packets: 5\n"),
            ("b/sos_commands/networking/ethtool_-i_eth1", "driver: x\n"),
            ("b/proc/uptime", "1000.5 3\n"),
            ("b/proc/net/snmp", UDP[0]),
        ];
        let snapshot = read(&files).unwrap();
        assert_eq!(
            (snapshot.interface.as_str(), ids(&snapshot)),
            ("eth0", vec!["udp-send-buffer"])
        );
        assert!(snapshot.after.text("nstat_-az").is_some());
    }

    #[test]
    fn sosreports_of_two_boots_are_refused() {
        let report = |name: &str, boot: u32| {
            [
                (format!("{name}/sos_commands/networking/ethtool_-S_eth0"), "rx: 5\n".to_owned()),
                (
                    format!("{name}/proc/stat"),
                    format!("cpu0 1 2 3 4 5 6 7 8\nctxt 9\nbtime {boot}\n"),
                ),
            ]
        };
        let files = report("a", 1_700_000_000).into_iter().chain(report("b", 1_700_009_000));
        let refused = read_folder(files, None).unwrap_err().to_string();
        assert!(refused.contains("started anew between `a` and `b`"), "{refused}");
    }
}
