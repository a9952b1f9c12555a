//! A document with a wrong value in every place, to see how that is told.

use toml::{Table, Value};

/// Words that a reader of a file does not know: types of the program, and the parser's own terms.
const OF_THE_PROGRAM: [&str; 15] = [
    "struct",
    "enum",
    "variant",
    "untagged",
    "sequence",
    " map",
    "usize",
    "u8",
    "u16",
    "u32",
    "u64",
    "i64",
    "f64",
    "invalid type",
    "invalid value",
];

/// Puts wrong values in the place of each value of `whole`, and reads what that makes. `problem` is the error of a
/// text, if it is one. Panics where an error speaks of the program. Returns the number of errors.
///
/// # Panics
///
/// Where an error speaks of the program's types.
#[track_caller]
pub fn check_wrong_values(whole: &Table, problem: impl Fn(&str) -> Option<String>) -> usize {
    let mut count = 0;
    for path in paths(&Value::Table(whole.clone())) {
        for wrong in wrong_values() {
            let mut document = Value::Table(whole.clone());
            *at(&mut document, &path) = wrong.clone();
            let text = toml::to_string(&document).expect("it is a document");
            let Some(problem) = problem(&text) else { continue };
            count += 1;
            for word in OF_THE_PROGRAM {
                assert!(!problem.contains(word), "`{word}` for {wrong} at {path:?}: {problem}");
            }
        }
    }
    count
}

/// A step from a value to one in it.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

fn wrong_values() -> [Value; 9] {
    let table = Table::from_iter([("no-such-key".to_owned(), Value::Integer(1))]);
    [
        Value::Integer(5),
        Value::Integer(-1),
        Value::Float(1.5),
        Value::Boolean(true),
        Value::String("x".to_owned()),
        Value::Array(Vec::new()),
        Value::Array(vec![Value::Integer(1)]),
        Value::Array(vec![Value::Array(vec![Value::Boolean(true)])]),
        Value::Table(table),
    ]
}

/// The way to every value in `value`.
fn paths(value: &Value) -> Vec<Vec<Step>> {
    let parts: Vec<(Step, &Value)> = match value {
        Value::Table(table) => {
            table.iter().map(|(key, value)| (Step::Key(key.clone()), value)).collect()
        }
        Value::Array(values) => {
            values.iter().enumerate().map(|(index, value)| (Step::Index(index), value)).collect()
        }
        _ => Vec::new(),
    };
    let of_part = |(step, value): (Step, &Value)| {
        let inner = paths(value).into_iter();
        let inner = inner.map({
            let step = step.clone();
            move |path| [vec![step.clone()], path].concat()
        });
        [vec![vec![step]], inner.collect()].concat()
    };
    parts.into_iter().flat_map(of_part).collect()
}

fn at<'a>(value: &'a mut Value, path: &[Step]) -> &'a mut Value {
    path.iter().fold(value, |value, step| match step {
        Step::Key(key) => &mut value[key.as_str()],
        Step::Index(index) => &mut value[*index],
    })
}
