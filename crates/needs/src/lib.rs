//! For tests: an attribute that has a test ignored where what it needs is missing. Use it through `latput-testkit`.

mod missing;

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Ignores a test, with the reason, where one of these is missing: `root`, or a program.
///
/// `#[needs("root", "ip")]` stands above `#[test]`. libtest then says `ignored, needs ip`. What is missing is seen when the test is
/// built. A test that runs looks again: one that was asked for with `--ignored`, a long one, which is ignored for another
/// reason, or one whose need has gone since. It then says `skipped: needs ip` and ends.
#[proc_macro_attribute]
pub fn needs(needs: TokenStream, test: TokenStream) -> TokenStream {
    guard_test(needs, test)
        .unwrap_or_else(|problem| parse(&format!("compile_error!({problem:?});")))
}

fn guard_test(needs: TokenStream, test: TokenStream) -> Result<TokenStream, &'static str> {
    let list = needs.to_string();
    let needs: Vec<String> = needs.into_iter().filter_map(literal_text).collect();
    let mut test: Vec<TokenTree> = test.into_iter().collect();
    if !has_attribute(&test, "test") {
        return Err("`#[needs(...)]` stands above `#[test]`");
    }
    let Some(body) = test.pop() else { return Err("a test has a body") };
    let mut guarded = parse(&format!("if ::latput_testkit::lacks_any(&[{list}]) {{ return; }}"));
    guarded.extend([body]);

    let missing: Vec<&str> =
        needs.iter().map(String::as_str).filter(|need| missing::is_missing(need)).collect();
    let mut result = TokenStream::new();
    if !missing.is_empty() && !has_attribute(&test, "ignore") {
        result = parse(&format!("#[ignore = {:?}]", format!("needs {}", missing.join(", "))));
    }
    result.extend(test);
    result.extend([TokenTree::Group(Group::new(Delimiter::Brace, guarded))]);
    Ok(result)
}

/// The text of a string without escapes; `None` for the commas between.
fn literal_text(token: TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else { return None };
    Some(literal.to_string().trim_matches('"').to_owned())
}

/// Whether the item has an attribute of this name.
fn has_attribute(item: &[TokenTree], name: &str) -> bool {
    item.windows(2).any(|pair| match pair {
        [TokenTree::Punct(mark), TokenTree::Group(group)] if mark.as_char() == '#' => {
            first_word(group.stream()).is_some_and(|word| word == name)
        }
        _ => false,
    })
}

/// The first word, also where another macro has put it into a group without marks.
fn first_word(tokens: TokenStream) -> Option<String> {
    match tokens.into_iter().next()? {
        TokenTree::Ident(word) => Some(word.to_string()),
        TokenTree::Group(group) => first_word(group.stream()),
        _ => None,
    }
}

/// Code that is written here.
fn parse(code: &str) -> TokenStream {
    code.parse().unwrap_or_default()
}
