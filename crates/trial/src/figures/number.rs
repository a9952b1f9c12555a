//! Numbers as programs print them, with the commas of locales.

/// The commas that a number may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commas {
    /// Signs between thousands, whatever the locale.
    Thousands,
    /// Signs of a locale: a single one before three digits may be the decimal sign.
    Locale,
}

/// A text that is not read as a number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// It has the form of no number.
    #[error("`{0}` is not a number")]
    Form(String),
    /// It has a comma that is not surely one between thousands.
    #[error("`{0}` has a comma that may be a decimal sign: run the program with `LC_ALL=C`")]
    Comma(String),
}

/// Whether a number of some program or locale may contain a letter.
pub fn is_of_number(letter: char) -> bool {
    letter.is_ascii_digit() || "+-.,eE".contains(letter)
}

/// Reads a whole text as a number, with or without commas between thousands.
///
/// # Errors
///
/// It is no number, or has a comma of another meaning.
pub fn read_number(text: &str, commas: Commas) -> Result<f64, NumberError> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let shown = || text.escape_debug().take(40).collect::<String>();
    let is_begun = text.trim_start_matches(['+', '-']).starts_with(|it: char| it.is_ascii_digit());
    if !text.contains(',') || !is_begun || !text.chars().all(is_of_number) {
        return Err(NumberError::Form(shown()));
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut groups = whole.trim_start_matches(['+', '-']).split(',');
    let first = groups.next().unwrap_or_default();
    let is_grouped = (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && groups.clone().all(|group| group.len() == 3)
        && !fraction.contains(',');
    let is_certain = commas == Commas::Thousands || groups.count() > 1 || text.contains('.');
    let plain = format!("{}.{fraction}", whole.replace(',', ""));
    let number = plain.parse().ok().filter(|_| is_grouped && is_certain);
    number.ok_or_else(|| NumberError::Comma(shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_with_unclear_comma_is_refused() {
        for (text, thousands, locale) in [
            ("12.5", Some(12.5), Some(12.5)),
            ("1e3", Some(1e3), Some(1e3)),
            ("1,234.5", Some(1234.5), Some(1234.5)),
            ("-1,234.5", Some(-1234.5), Some(-1234.5)),
            ("1,234,567", Some(1_234_567.0), Some(1_234_567.0)),
            ("35,987", Some(35_987.0), None),
            ("23,4", None, None),
            ("9,41", None, None),
            ("0,473", None, None),
            ("16900,123456", None, None),
            ("16900,123", None, None),
            ("1.234,5", None, None),
            ("1,23,456", None, None),
            ("1,2345.5", None, None),
        ] {
            for (commas, expected) in [(Commas::Thousands, thousands), (Commas::Locale, locale)] {
                let read = read_number(text, commas);
                let comma = NumberError::Comma(text.to_owned());
                assert_eq!(read, expected.ok_or(comma), "{text} with {commas:?}");
            }
        }
        for text in ["", "x", ",", ",5", "1,x", "1.2.3", "--5"] {
            let read = read_number(text, Commas::Locale);
            assert_eq!(read, Err(NumberError::Form(text.to_owned())), "{text}");
        }
        let said = NumberError::Comma("23,4".to_owned()).to_string();
        assert!(said.contains("comma") && said.contains("`LC_ALL=C`"), "{said}");
    }
}
