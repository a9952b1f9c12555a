//! A keeper's look at what a diagnosis reads.

use latput_linux::look::{LookTexts, read_look};
use latput_linux::route::Route;
use latput_protocol::control::{Answer, Failure, MAX_LINE_BYTES, make_failure};
use latput_protocol::text::format_error_chain;

/// Most bytes of all texts together. In JSON a line's end has two bytes, so that the message is longer.
const MOST_BYTES: usize = MAX_LINE_BYTES / 4 * 3;

/// Looks at this host and one of its interfaces.
pub(super) fn record_look(interface: &str) -> Result<Answer, Failure> {
    let links = Route::open().and_then(|route| route.links());
    let links = links.map_err(|error| make_failure(format_error_chain(&error)))?;
    // A name that no interface has could be a path to files that are nobody else's business.
    if !links.iter().any(|link| link.name == interface) {
        return Err(make_failure(format!("there is no interface `{interface}`")));
    }
    let at = latput_load::now();
    let mut texts = read_look(interface);
    fit(&mut texts, MOST_BYTES);
    Ok(Answer::Recorded { at, texts })
}

/// Leaves out the largest texts until the others fit. What is missing counts as not seen.
fn fit(texts: &mut LookTexts, most: usize) {
    let size = |texts: &LookTexts| {
        let of = |(name, text): (&String, &String)| {
            name.len() + text.len() + text.bytes().filter(|byte| b"\n\t\"\\".contains(byte)).count()
        };
        texts.iter().map(of).sum::<usize>()
    };
    while size(texts) > most {
        let largest = texts.iter().max_by_key(|(_, text)| text.len());
        let Some(name) = largest.map(|(name, _)| name.clone()) else { return };
        texts.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_text_is_left_out_first() {
        let mut texts: LookTexts = [("a", 500), ("b", 90), ("c", 40)]
            .map(|(name, length)| (name.to_owned(), "\n".repeat(length)))
            .into();
        fit(&mut texts, 300);
        assert_eq!(texts.keys().collect::<Vec<_>>(), ["b", "c"]);
        fit(&mut texts, 300);
        assert_eq!(texts.len(), 2);
    }

    #[test]
    fn interface_must_exist() {
        let refused = record_look("no-such-nic0").unwrap_err();
        assert!(refused.message.contains("no-such-nic0"), "{refused:?}");
        let Ok(Answer::Recorded { texts, .. }) = record_look("lo") else { panic!("no look") };
        assert!(texts.contains_key("sys/class/net/lo/statistics/rx_packets"));
    }
}
