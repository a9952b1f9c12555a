//! The report as one HTML file that works offline: no request leaves it, and its content security
//! policy forbids any.
//!
//! Pictures are SVG drawn here, so the page is whole where scripts are blocked (mail, CI artifacts) and
//! on paper; the script only switches, sorts, copies and highlights.

mod page;
mod tables;

use latput_model::{Prediction, Summary};
use latput_trial::Results;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};

use crate::view::View;

const TEMPLATE: &str = include_str!("../assets/report.html");
const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/report.js");

/// The whole report; with what was `predicted` of these results, if anything was.
pub fn html(results: &Results, summary: &Summary, predicted: Option<&Prediction>) -> String {
    let view = View::new(results, summary);
    let data = script_safe(&crate::json(results, summary));
    let page = page::Page::new(&view, predicted);
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let page = Value::from(Serde(&page));
    let context = minijinja::context! { page, data, style => STYLE, script => SCRIPT };
    let text = environment
        .render_str(TEMPLATE, context)
        .expect("the template is part of the program and a test renders every branch of it");
    // HTML has no use for control characters; a reader who prints the file to a terminal has none.
    text.replace(|c: char| c.is_control() && c != '\n', "?")
}

/// JSON that stays inside its `script` element: `<` is only ever inside a text there, where `\u003c`
/// means the same.
fn script_safe(json: &str) -> String {
    json.trim_end().replace('<', "\\u003c")
}
