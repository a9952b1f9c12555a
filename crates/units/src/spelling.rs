//! The name that was probably meant by one that nothing has.

/// The known name that is nearest to a misspelt one, if one is near.
pub fn nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().filter_map(|known| {
        let distance = strsim::osa_distance(name, known);
        (distance <= known.len().div_ceil(3)).then_some((distance, known))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// At most `most` names of the form `part_part` that have parts of `name`, also misspelt ones: those with the
/// most of its parts first, then in the given order. Without any the nearest one.
pub fn with_parts<'a>(name: &str, known: &[&'a str], most: usize) -> Vec<&'a str> {
    let parts: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let is_part = |part: &&&str, of: &str| {
        let most = if part.len() < 4 { 0 } else { part.len() / 4 };
        !part.is_empty() && of.split('_').any(|own| strsim::osa_distance(part, own) <= most)
    };
    let shared = |of: &str| parts.iter().filter(|part| is_part(part, of)).count();
    let mut found: Vec<(usize, &str)> =
        known.iter().map(|of| (shared(of), *of)).filter(|(shared, _)| *shared > 0).collect();
    found.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
    if found.is_empty() {
        return nearest_name(name, known.iter().copied()).into_iter().collect();
    }
    let best = found[0].0;
    found.into_iter().filter(|(shared, _)| *shared == best).map(|(_, of)| of).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_name_finds_the_one_that_was_meant() {
        let known = ["burst", "connections", "threads"];
        assert_eq!(nearest_name("bursts", known), Some("burst"));
        assert_eq!(nearest_name("conections", known), Some("connections"));
        assert_eq!(nearest_name("colour", known), None);
    }

    #[test]
    fn partial_name_finds_all_matches() {
        let known = ["rate", "latency_ns_mean", "latency_ns_p99", "jitter_ns", "probe_ns_p99"];
        assert_eq!(with_parts("p99", &known, 3), ["latency_ns_p99", "probe_ns_p99"]);
        assert_eq!(with_parts("latncy_p99", &known, 3), ["latency_ns_p99"]);
        assert_eq!(with_parts("latency", &known, 3), ["latency_ns_mean", "latency_ns_p99"]);
        assert_eq!(with_parts("p99-latency", &known, 3), ["latency_ns_p99"]);
        assert_eq!(with_parts("raet", &known, 3), ["rate"]);
        assert_eq!(with_parts("colour", &known, 3), [""; 0]);
    }
}
