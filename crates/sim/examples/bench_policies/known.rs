//! Figures that were simulated before, kept in a file: a fixed delay does the same each time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::PolicyMetrics;

/// Figures by what they are of.
#[derive(Debug, Default)]
pub(crate) struct MetricsCache {
    file: Option<PathBuf>,
    figures: Mutex<BTreeMap<String, PolicyMetrics>>,
}

impl MetricsCache {
    /// Those in `file`, if there is one; a line that was cut short does not count.
    pub(crate) fn open(file: Option<PathBuf>) -> Self {
        let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let figures = text.iter().flat_map(|text| text.lines()).filter_map(parse).collect();
        Self { file, figures: Mutex::new(figures) }
    }

    /// The figures of `key`, made now if they are not known.
    pub(crate) fn or_make(&self, key: &str, make: impl FnOnce() -> PolicyMetrics) -> PolicyMetrics {
        let known = self.figures.lock().expect("no worker panics with it").get(key).cloned();
        known.unwrap_or_else(|| {
            let made = make();
            let mut figures = self.figures.lock().expect("no worker panics with it");
            if let Some(file) = &self.file {
                let open = std::fs::File::options().create(true).append(true).open(file);
                let mut open = open.expect("figures can be kept");
                writeln!(open, "{}", format_line(key, &made)).expect("figures can be kept");
            }
            figures.insert(key.to_owned(), made.clone());
            made
        })
    }
}

fn format_line(key: &str, figures: &PolicyMetrics) -> String {
    let mut text = format!("{key}\t{}", figures.rates.len());
    let numbers = figures.rates.iter().chain(&figures.p99_us);
    for number in numbers.chain([&figures.cpu, &figures.drops]) {
        let _ = write!(text, " {number:?}"); // a string takes everything
    }
    text + " end"
}

fn parse(line: &str) -> Option<(String, PolicyMetrics)> {
    let (key, rest) = line.split_once('\t')?;
    let mut words = rest.strip_suffix(" end")?.split(' ');
    let parts: usize = words.next()?.parse().ok()?;
    let numbers: Vec<f64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    let (rates, rest) = numbers.split_at_checked(parts)?;
    let (tails, rest) = rest.split_at_checked(parts)?;
    let &[cpu, drops] = rest else { return None };
    let figures = PolicyMetrics { rates: rates.to_vec(), p99_us: tails.to_vec(), cpu, drops };
    Some((key.to_owned(), figures))
}
