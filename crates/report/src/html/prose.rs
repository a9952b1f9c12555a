//! Prose of the page: text between backticks is code.

/// A text as pieces, each with whether it is code.
pub(super) type Pieces = Vec<(bool, String)>;

/// Splits a text at backticks; every other piece is code. Without a second one a backtick stays prose.
pub(super) fn code_and_prose(text: &str) -> Pieces {
    let mut pieces: Vec<(bool, String)> =
        text.split('`').enumerate().map(|(idx, piece)| (idx % 2 == 1, piece.to_owned())).collect();
    if pieces.len().is_multiple_of(2) {
        let (_, unclosed) = pieces.pop().expect("a text has at least one piece");
        let (_, prose) = pieces.last_mut().expect("an even number of pieces is at least two");
        prose.push('`');
        prose.push_str(&unclosed);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::code_and_prose;

    #[test]
    fn text_between_backticks_is_code() {
        let of = |text| code_and_prose(text);
        let piece = |is_code, text: &str| (is_code, text.to_owned());
        assert_eq!(of("plain"), [piece(false, "plain")]);
        assert_eq!(
            of("run `latput keep` now"),
            [piece(false, "run "), piece(true, "latput keep"), piece(false, " now")]
        );
        assert_eq!(of("a ` alone"), [piece(false, "a ` alone")]);
    }
}
