//! The report as one HTML file that works offline: it makes no requests, and its content security
//! policy forbids them.
//!
//! Pictures are inline SVG, so the page is complete on paper and where scripts are blocked (mail,
//! CI artifacts). The script only switches, sorts, copies and highlights.

mod page;
mod tables;

use std::io::{self, Write};

use latput_model::{Prediction, Summary};
use latput_trial::Results;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};

use crate::export::write_json;
use crate::view::View;

const TEMPLATE: &str = include_str!("../assets/report.html");
const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/report.js");
/// Placeholder of the data. Names cannot contain it, because `<` is escaped in them.
const DATA: &str = "<!-- data -->";

/// The whole report, with the prediction of these results if there is one.
pub fn html(results: &Results, summary: &Summary, predicted: Option<&Prediction>) -> String {
    let view = View::new(results, summary);
    let page = page::Page::new(&view, predicted);
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let page = Value::from(Serde(&page));
    let context = minijinja::context! { page, data => DATA, style => STYLE, script => SCRIPT };
    let text = environment
        .render_str(TEMPLATE, context)
        .expect("the template is part of the program and a test renders every branch of it");
    // HTML needs no control characters, and they would act on a terminal that prints the file.
    let text = text.replace(|c: char| c.is_control() && c != '\n', "?");
    let (before, after) = text.split_once(DATA).expect("the template has a place for the data");
    let mut whole = ScriptSafe(before.as_bytes().to_vec());
    write_json(results, summary, &mut whole);
    whole.0.extend(after.as_bytes());
    String::from_utf8(whole.0).expect("a page is text")
}

/// Collects JSON for a `script` element and escapes `<` as `\u003c`, which has the same meaning
/// inside JSON texts. DEL is escaped too.
struct ScriptSafe(Vec<u8>);

impl Write for ScriptSafe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            match byte {
                b'<' => self.0.extend(b"\\u003c"),
                0x7f => self.0.extend(b"\\u007f"),
                _ => self.0.push(*byte),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
