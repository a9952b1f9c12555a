//! Errors of every cell of published files, for work on profiles.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool of development")]
use latput_reproduce::{Experiment, Kind, Row, Systems, Table, predict::predict};
fn main() {
    let verbose = std::env::var_os("V").is_some();
    let mut systems = Systems::shipped();
    let mut files = Vec::new();
    for arg in std::env::args().skip(1) {
        if arg.ends_with(".toml") {
            systems.replace(toml::from_str(&std::fs::read_to_string(&arg).unwrap()).unwrap());
        } else {
            files.push(arg);
        }
    }
    for file in files {
        let table = Table::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let kind = Kind::of(&table).unwrap();
        let mut errors = std::collections::BTreeMap::<(String, &str), Vec<f64>>::new();
        let group = ["table_id", "run_id", "test", "section", "row_id"]
            .into_iter()
            .find(|c| table.column(c).is_some())
            .unwrap();
        for idx in 0..table.rows.len() {
            let row = Row::new(&table, idx);
            let label = |c: &str| row.text(c).to_owned();
            let what = [
                "first_burst",
                "concurrent",
                "netperf_cpu",
                "netserver_cpu",
                "instance",
                "moderation_hz",
                "quantity",
                "polling",
                "role",
                "direction",
                "smp_affinity",
                "rps",
                "codel",
                "bql",
            ]
            .map(label)
            .into_iter()
            .filter(|l| !l.is_empty())
            .collect::<Vec<_>>()
            .join("/");
            let experiment = match Experiment::of(kind, &row, &systems) {
                Ok(e) => e,
                Err(e) => {
                    if verbose {
                        println!("{e}");
                    }
                    continue;
                }
            };
            let predictions = predict(&experiment, 4).unwrap();
            let mut line = format!("{:12} {what:14}", row.text(group));
            for (measured, prediction) in kind.measured().iter().zip(predictions) {
                let Some(p) = prediction else { continue };
                match row.figure(measured.column).unwrap() {
                    Some(published) if published > 0.0 => {
                        let e = 100.0 * (p.value / published - 1.0);
                        line += &format!(" | {published:9.2} {:9.2} {e:+6.1}%", p.value);
                        errors
                            .entry((row.text(group).to_owned(), measured.column))
                            .or_default()
                            .push(e);
                    }
                    _ => line += &format!(" |         - {:9.2}       ", p.value),
                }
            }
            if verbose {
                println!("{line}");
            }
        }
        for ((table, column), es) in &errors {
            let mut abs: Vec<f64> = es.iter().map(|e| e.abs()).collect();
            abs.sort_by(f64::total_cmp);
            let bias = es.iter().sum::<f64>() / es.len() as f64;
            println!(
                "{table:14} {column:22} n={:3} median {:5.1} p90 {:5.1} bias {bias:+.1}",
                abs.len(),
                abs[abs.len() / 2],
                abs[(abs.len() * 9 / 10).min(abs.len() - 1)]
            );
        }
    }
}
