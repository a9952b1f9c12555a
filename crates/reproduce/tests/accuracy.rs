//! The quick form of the accuracy table: what single transactions, pings and settings nobody published are
//! worth. The whole table is held by `cargo xtask ci --only accuracy`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use latput_calibrate::ErrorSummary;
use latput_reproduce::cells::{CellFile, RowPrediction};
use latput_reproduce::predict::predict_figures;
use latput_reproduce::{Provenance, SystemCatalog, published};

const CELL: &str = "system,driver,driver_version,first_burst,concurrent,itr_hz,rx_usecs,rx_frames,tx_usecs,tx_frames\n";

#[test]
fn single_transactions_keep_their_rates() {
    check_file("tcp_rr_single", "trans_per_s", (0.06, 0.10));
    check_file("binding_rr_single", "rate", (0.05, 0.17));
}

#[test]
fn intermediate_throttle_gives_intermediate_rate() {
    let throttle = |hz: &u32| format!("rx1620,e1000,6.0.54,0,1,{hz},,,,");
    check_order([500, 1_000, 3_000, 8_000, 20_000, 60_000, 0].iter().map(throttle));
}

#[test]
fn intermediate_delay_gives_intermediate_rate() {
    let delay = |us: &u32| format!("ProLiant BL25p,tg3,3.37,0,1,,{us},100,1000,100");
    check_order([2_000, 1_000, 300, 80, 20].iter().map(delay));
}

#[test]
fn more_in_flight_never_gives_much_less() {
    let cell = |(burst, instances): &(u32, u32)| {
        format!("rx1620,e1000,6.0.54,{burst},{instances},1000,,,,")
    };
    check_order([(0, 1), (0, 2), (1, 2), (2, 4), (8, 4), (16, 8)].iter().map(cell));
}

#[test]
fn suspended_interrupts_keep_their_figures() {
    let systems = SystemCatalog::load_shipped();
    let name = "irq_suspension";
    let mut file = published::load_cell_file(name, &systems).unwrap().unwrap();
    file.keep_tables(&["defer10", "suspend20", "fullbusy"].map(str::to_owned));
    assert_eq!(file.rows.len(), 12);
    let predicted = predict_rows(&file);
    let compared = published::compare_predictions(
        &[(name, &file, &predicted)],
        &systems,
        &Provenance::load_shipped(&systems),
    );
    let targets = compared.targets;
    assert_eq!(targets.len(), 7, "{targets:#?}");
    let lost = targets.iter().filter(|target| !target.holds);
    assert!(lost.clone().count() == 0, "{:#?}", lost.collect::<Vec<_>>());
}

#[track_caller]
fn check_file(name: &str, column: &str, (median, p90): (f64, f64)) {
    let systems = SystemCatalog::load_shipped();
    let file = published::load_cell_file(name, &systems).unwrap().unwrap();
    let predicted = predict_rows(&file);
    let compared = published::compare_predictions(
        &[(name, &file, &predicted)],
        &systems,
        &Provenance::load_shipped(&systems),
    );
    let figures = compared.figures.iter().filter(|it| it.column == column && it.anomaly.is_none());
    let errors = ErrorSummary::from_errors(figures.map(|it| it.error_ratio)).unwrap();
    assert!(errors.median <= median && errors.p90 <= p90, "{name}: {errors:?}");
}

/// Predictions are finite, inside their bands, and rise from row to row (3% of noise allowed).
#[track_caller]
fn check_order(rows: impl Iterator<Item = String>) {
    let text = rows.fold(CELL.to_owned(), |text, row| text + &row + "\n");
    let file = CellFile::read(&text, &SystemCatalog::load_shipped()).unwrap();
    let rates: Vec<f64> = predict_rows(&file)
        .into_iter()
        .map(|row| {
            let rate = row.unwrap()[0].unwrap();
            assert!(rate.value.is_finite() && rate.value > 0.0, "{text}");
            assert!(rate.low <= rate.value && rate.value <= rate.high, "{text}");
            rate.value
        })
        .collect();
    assert!(rates.windows(2).all(|pair| pair[1] > 0.97 * pair[0]), "{rates:?}");
}

fn predict_rows(file: &CellFile) -> Vec<Option<RowPrediction>> {
    let rows = file.rows.iter();
    rows.map(|row| Some(predict_figures(&row.as_ref().ok()?.clone().shorten_run(0.5), 2).unwrap()))
        .collect()
}
