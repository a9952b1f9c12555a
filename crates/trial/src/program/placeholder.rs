//! Placeholders in the words of a command.

use latput_units::spelling;

/// Word in braces that is replaced for each trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// Address of the system under test.
    Sut,
    /// Address of the generator that runs the command.
    Generator,
    /// Seconds to run: warm-up and window, rounded up.
    DurationS,
    /// The workload's `count`.
    Count,
    /// CPUs of the host that runs the command.
    Cpus,
    /// Port of the server's `ready`.
    Port,
}

impl Placeholder {
    /// All, with their names and meanings.
    pub const ALL: [(Self, &str, &str); 6] = [
        (Self::Sut, "sut", "address of the system under test"),
        (Self::Generator, "generator", "address of the generator"),
        (Self::DurationS, "duration_s", "seconds to run: warm-up and window, rounded up"),
        (Self::Count, "count", "the workload's `count`"),
        (Self::Cpus, "cpus", "CPUs of the host, such as `0-3`"),
        (Self::Port, "port", "port of the server's `ready = { tcp = PORT }`"),
    ];
}

/// Replaces the placeholders of a word. `{{` and `}}` stand for single braces.
///
/// # Errors
///
/// A word in braces is no placeholder, or `value` refuses it.
pub fn substitute(
    word: &str,
    mut value: impl FnMut(Placeholder) -> Result<String, String>,
) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = word;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            text.push_str(brace);
            rest = after;
            continue;
        }
        match parse_name(rest).filter(|_| brace == "{") {
            Some(name) => {
                text.push_str(&value(placeholder(name)?)?);
                rest = &rest[name.len() + 1..];
            }
            None => text.push_str(brace),
        }
    }
    text.push_str(rest);
    Ok(text)
}

/// The name in front of a closing brace, such as `sut}`. Other braces are text, as in JSON.
fn parse_name(rest: &str) -> Option<&str> {
    let (name, _) = rest.split_once('}')?;
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_' || c == '-';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

fn placeholder(name: &str) -> Result<Placeholder, String> {
    if let Some((found, ..)) = Placeholder::ALL.iter().find(|(_, known, _)| *known == name) {
        return Ok(*found);
    }
    let names = Placeholder::ALL.map(|(_, name, _)| name);
    let meant = spelling::nearest_name(name, names)
        .map_or(String::new(), |meant| format!(": did you mean `{{{meant}}}`?"));
    let all = names.map(|name| format!("{{{name}}}")).join(", ");
    Err(format!(
        "`{{{name}}}` is not a placeholder{meant}; there are {all}. For braces as they are write \
         `{{{{{name}}}}}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn substituted(word: &str) -> Result<String, String> {
        substitute(word, |found| {
            let known = Placeholder::ALL.iter().find(|(known, ..)| *known == found);
            Ok(known.map_or(String::new(), |(_, name, _)| name.to_uppercase()))
        })
    }

    #[test]
    fn placeholders_are_replaced_and_other_braces_stay() {
        for (word, expected) in [
            ("http://{sut}:{port}/", "http://SUT:PORT/"),
            ("-d{duration_s}", "-dDURATION_S"),
            ("{{sut}}", "{sut}"),
            ("{\"a\": [1, {}]}", "{\"a\": [1, {}]}"),
            ("{ print $1 }", "{ print $1 }"),
            ("a{", "a{"),
            ("é{cpus}ü", "éCPUSü"),
        ] {
            assert_eq!(substituted(word).as_deref(), Ok(expected), "{word}");
        }
    }

    #[test]
    fn unknown_placeholder_gets_the_nearest() {
        let why = substituted("{duration-s}").unwrap_err();
        assert!(
            why.contains("did you mean `{duration_s}`?") && why.contains("`{{duration-s}}`"),
            "{why}"
        );
        let why = substituted("{elephant}").unwrap_err();
        assert!(!why.contains("did you mean") && why.contains("{generator}"), "{why}");
    }
}
