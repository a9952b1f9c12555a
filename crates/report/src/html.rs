//! The report as one HTML file that works offline: it makes no requests, and its content security
//! policy forbids them.
//!
//! Pictures are inline SVG, so the page is complete on paper and where scripts are blocked (mail,
//! CI artifacts). The scripts only switch, sort, copy, pin, read out and zoom. The trials are in the
//! page too, so that it can be imported again.

mod comparison;
mod embedded;
mod head;
mod method;
mod page;
mod prose;
mod tables;
mod trade_offs;

use latput_model::{PredictionReport, ResultsSummary};
use latput_trial::Results;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};

use crate::view::ReportView;

pub use comparison::comparison_html;
pub use embedded::{LARGEST_REPORT, ReportError, read_report};

const TEMPLATE: &str = include_str!("../assets/report.html");
const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str =
    concat!(include_str!("../assets/report.js"), include_str!("../assets/plots.js"));
/// Most trials that are packed for a page unasked, and most bytes of them that are put in it: more make
/// it slow to write, send and open.
const MOST_EMBEDDED: usize = 2_000;
const MOST_EMBEDDED_BYTES: usize = 800_000;

/// The whole report, with the prediction of these results if there is one. The trials are in it if they
/// take little room.
pub fn render_html(
    results: &Results,
    summary: &ResultsSummary,
    predicted: Option<&PredictionReport>,
) -> String {
    let are_few = results.rows.len() <= MOST_EMBEDDED;
    let trials = are_few.then(|| embedded::render_element(results));
    let trials = trials.filter(|trials| trials.len() <= MOST_EMBEDDED_BYTES);
    render_page(results, summary, predicted, &trials.unwrap_or_default())
}

/// The whole report with all trials, to be passed on and imported.
pub fn html_with_trials(results: &Results, summary: &ResultsSummary) -> String {
    render_page(results, summary, None, &embedded::render_element(results))
}

/// The first trade-off of the report as an SVG image that stands alone; `None` where no setting has both figures.
pub fn render_picture(results: &Results, summary: &ResultsSummary) -> Option<String> {
    const END: &str = "</svg>";
    let both = trade_offs::first_trade_off(&ReportView::new(results, summary))?;
    let (wide, _) = both.split_once(END)?;
    let (head, marks) = wide.split_once('>')?;
    let head = head.replacen("<svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"", 1);
    Some(format!(
        "{head}><style><![CDATA[{STYLE} :root {{ background: var(--page) }}]]></style>{marks}{END}"
    ))
}

fn render_page(
    results: &Results,
    summary: &ResultsSummary,
    predicted: Option<&PredictionReport>,
    trials: &str,
) -> String {
    let view = ReportView::new(results, summary);
    let page = page::ReportPage::new(&view, predicted);
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let page = Value::from(Serde(&page));
    let context = minijinja::context! { page, trials, style => STYLE, script => SCRIPT };
    let text = environment
        .render_str(TEMPLATE, context)
        .expect("the template is part of the program and a test renders every branch of it");
    // HTML needs no control characters, and they would act on a terminal that prints the file.
    text.replace(|c: char| c.is_control() && c != '\n', "?")
}
