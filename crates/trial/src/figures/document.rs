//! The JSON documents in what a program wrote, with text before, between and behind them.

use std::borrow::Cow;
use std::fmt;

use latput_units::text::{format_count, is_or_are};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Characters of a passed-over line in a note.
const SHOWN_CHARS: usize = 60;
/// Most documents and broken parts of a text that are looked at.
pub const MOST_DOCUMENTS: usize = 10_000;

/// The documents of a text, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JsonDocuments {
    /// Each document, or the reason why it cannot be read.
    pub documents: Vec<Result<Value, String>>,
    /// Sentences on what was passed over or taken as absent.
    pub notes: Vec<String>,
}

impl JsonDocuments {
    /// Reads every object that begins a line, and every array that fills its lines. Other lines are passed over, with a
    /// note.
    ///
    /// A `nan` or an `inf` in the place of a number becomes `null`, with a note. A document with a key that stands twice
    /// with different values is broken: readers differ in which of the two they take.
    pub fn parse(text: &str) -> Self {
        let (text, replaced) = without_nan(text);
        let mut found = Self::default();
        let mut passed_over: Vec<&str> = Vec::new();
        let mut at = 0;
        while at < text.len() && found.documents.len() < MOST_DOCUMENTS {
            let rest = &text[at..];
            let start = rest.len() - rest.trim_start().len();
            let line = rest[start..].split('\n').next().unwrap_or_default();
            if line.is_empty() {
                break;
            }
            let (step, is_text) = match line.as_bytes()[0] {
                b'{' => found.object(&text, at + start),
                b'[' => found.array(&text, at + start, line),
                _ => (line.len(), true),
            };
            if is_text {
                passed_over.push(line);
            }
            at += start + step;
        }
        if replaced > 0 {
            found.notes.push(format!(
                "{} {} `nan` or `inf`, and absent",
                format_count(replaced, "number"),
                is_or_are(replaced)
            ));
        }
        if let Some(first) = passed_over.first().filter(|_| !found.documents.is_empty()) {
            let shown: String = first.trim().escape_debug().take(SHOWN_CHARS).collect();
            let count = passed_over.len();
            let lines = format_count(count, "line");
            found.notes.push(format!("ignored {lines} outside of the JSON: `{shown}`"));
        }
        found
    }

    /// Reads the object at a place; returns the bytes to go on after, and `false`: it is no text.
    fn object(&mut self, text: &str, at: usize) -> (usize, bool) {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Unique>();
        match values.next() {
            Some(Ok(Unique(value))) => {
                self.documents.push(Ok(value));
                (values.byte_offset().max(1), false)
            }
            Some(Err(error)) => {
                self.documents.push(Err(broken(&error, text, at)));
                // The text behind a cut document may be whole: the next one begins a line.
                (text[at..].find("\n{").map_or(text.len() - at, |end| end + 1), false)
            }
            None => (text.len() - at, false),
        }
    }

    /// Reads the array at a place. Text such as `[5000] refused` is passed over.
    fn array(&mut self, text: &str, at: usize, line: &str) -> (usize, bool) {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Unique>();
        if let Some(Ok(Unique(value))) = values.next() {
            let end = values.byte_offset();
            let behind = text[at + end..].split('\n').next().unwrap_or_default();
            if behind.trim().is_empty() {
                self.documents.push(Ok(value));
                return (end, false);
            }
        }
        (line.len(), true)
    }
}

/// Names the problem with its line in the whole text.
fn broken(error: &serde_json::Error, text: &str, at: usize) -> String {
    let line = text[..at].matches('\n').count() + error.line();
    let reason = error.to_string();
    // serde_json ends its message with a place of its own, counted from the document's start.
    let reason = reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason);
    let cut = if error.is_eof() { "it ends too early: " } else { "" };
    format!("{cut}{reason} at line {line} column {}", error.column())
}

/// Replaces `nan`, `-nan`, `inf` and their like outside of strings by `null`; returns how many there were. Programs in C
/// print them for a share of nothing.
fn without_nan(text: &str) -> (Cow<'_, str>, usize) {
    let lower = text.to_ascii_lowercase();
    if !lower.contains("nan") && !lower.contains("inf") {
        return (Cow::Borrowed(text), 0);
    }
    let mut replaced = 0;
    let mut plain = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let mut rest = line;
        while let Some(found) = rest.find(|letter: char| letter == '"' || is_of_word(letter)) {
            plain.push_str(&rest[..found]);
            rest = &rest[found..];
            let end = if rest.starts_with('"') { string_end(rest) } else { word_end(rest) };
            let (token, after) = rest.split_at(end);
            // Of JSON's own words none is like these, and outside of JSON nothing reads the copy.
            let is_number = matches!(
                token.trim_start_matches(['-', '+']).to_ascii_lowercase().as_str(),
                "nan" | "inf" | "infinity"
            );
            if is_number && is_value(&plain) {
                plain.push_str("null");
                replaced += 1;
            } else {
                plain.push_str(token);
            }
            rest = after;
        }
        plain.push_str(rest);
    }
    (Cow::Owned(plain), replaced)
}

/// Whether a value of JSON may follow this text.
fn is_value(before: &str) -> bool {
    before.trim_end().ends_with([':', ',', '['])
}

const fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '+' | '.' | '_')
}

fn word_end(text: &str) -> usize {
    text.find(|letter| !is_of_word(letter)).unwrap_or(text.len())
}

/// The end of the string that a line begins with; a string of JSON ends on its line.
fn string_end(text: &str) -> usize {
    let mut is_escaped = false;
    for (idx, letter) in text.char_indices().skip(1) {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return idx + 1,
            _ => {}
        }
    }
    text.len()
}

/// A value whose objects have each key once, or several times with the same value.
struct Unique(Value);

impl<'de> serde::Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some((key, Unique(value))) = map.next_entry::<String, Unique>()? {
            if values.get(&key).is_some_and(|other| *other != value) {
                let key: String = key.escape_debug().take(SHOWN_CHARS).collect();
                return Err(serde::de::Error::custom(format!(
                    "the key `{key}` is there twice, with different values"
                )));
            }
            values.insert(key, value);
        }
        Ok(values.into())
    }
}

/// Decodes text by its byte order mark: UTF-16 of both orders, and UTF-8 with or without a mark.
///
/// # Errors
///
/// It is neither; the error names the first wrong byte.
pub fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, String> {
    let units = |bytes: &[u8], unit: fn([u8; 2]) -> u16| -> Result<Cow<'_, str>, String> {
        if !bytes.len().is_multiple_of(2) {
            return Err("it is UTF-16 with half a character at its end: the file is cut".to_owned());
        }
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        let text = String::from_utf16(&units);
        text.map(Cow::Owned).map_err(|error| format!("it is not UTF-16: {error}"))
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => units(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => units(rest, u16::from_be_bytes),
        _ => {
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            let text = std::str::from_utf8(bytes);
            text.map(Cow::Borrowed).map_err(|error| format!("it is not text: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(text: &str) -> Vec<Result<Value, String>> {
        JsonDocuments::parse(text).documents
    }

    #[test]
    fn text_around_documents_is_passed_over() {
        let text =
            "warning: long\n{\"a\":1}\niperf3: error\n{\"a\":2} {\"a\":3}bye\n[5000] refused\n";
        let found = JsonDocuments::parse(text);
        let read: Vec<u64> =
            found.documents.iter().map(|it| it.as_ref().unwrap()["a"].as_u64().unwrap()).collect();
        assert_eq!(read, [1, 2, 3]);
        assert_eq!(found.notes, ["ignored 4 lines outside of the JSON: `warning: long`"]);
        assert_eq!(documents("hello\n"), []);
        assert_eq!(documents("[1, 2]\n").len(), 1);
    }

    #[test]
    fn broken_document_leaves_the_others() {
        let found = documents("{\"a\":1}\n{\"a\":\n  {\"b\":\n{\"a\":3}\n");
        assert_eq!(found.len(), 3);
        assert!(found[0].is_ok() && found[2].is_ok());
        let problem = found[1].as_ref().unwrap_err();
        assert!(problem.contains("line"), "{problem}");
        let cut = documents("\n\n{\"a\":").remove(0).unwrap_err();
        assert!(cut.starts_with("it ends too early: ") && cut.contains("at line 3"), "{cut}");
    }

    #[test]
    fn nan_and_infinity_become_absent() {
        let found = JsonDocuments::parse("{\"a\": -nan, \"b\":[inf,NaN], \"c\":\"nan, inf\"}");
        let value = found.documents[0].as_ref().unwrap();
        assert_eq!(*value, serde_json::json!({"a":null,"b":[null,null],"c":"nan, inf"}));
        assert!(found.notes[0].contains("3 numbers"), "{:?}", found.notes);
        assert!(documents("{\"a\": nano}")[0].is_err());
    }

    #[test]
    fn differing_values_of_one_key_are_refused() {
        let found = documents("{\"a\":{\"x\":1,\"x\":2}}\n{\"x\":1,\"x\":1}\n");
        let problem = found[0].as_ref().unwrap_err();
        assert!(problem.contains("the key `x` is there twice"), "{problem}");
        assert!(found[1].is_ok());
    }

    #[test]
    fn byte_order_mark_decides_the_encoding() {
        let text = "{\"a\": \"\u{b5}s\"}";
        let utf16 = |order: fn(u16) -> [u8; 2], mark: [u8; 2]| -> Vec<u8> {
            mark.into_iter().chain(text.encode_utf16().flat_map(order)).collect()
        };
        let little = utf16(u16::to_le_bytes, [0xff, 0xfe]);
        let big = utf16(u16::to_be_bytes, [0xfe, 0xff]);
        let marked = ["\u{feff}", text].concat();
        for bytes in [&little[..], &big[..], marked.as_bytes(), text.as_bytes()] {
            assert_eq!(decode(bytes).unwrap(), text);
        }
        assert!(decode(&little[..little.len() - 1]).unwrap_err().contains("the file is cut"));
        assert!(decode(&[0xff, 0x00]).unwrap_err().contains("not text"));
    }
}
