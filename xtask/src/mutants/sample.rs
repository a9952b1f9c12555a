//! A random sample of a package's mutants, which the same seed draws again.

use std::hash::{DefaultHasher, Hash, Hasher};

/// `size` of `names`, or all if there are fewer, each as likely as any other. A name's luck hangs on itself and
/// `seed` alone: mutants that come or go elsewhere leave the rest of the sample as it was.
pub fn draw_sample<'a>(names: &[&'a str], size: usize, seed: u64) -> Vec<&'a str> {
    let mut drawn = names.to_vec();
    drawn.sort_by_cached_key(|name| {
        let mut hasher = DefaultHasher::new();
        (seed, name).hash(&mut hasher);
        hasher.finish()
    });
    drawn.truncate(size);
    drawn
}

/// The regular expression that matches each of `names` and nothing else.
pub fn build_pattern(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| escape_regex(name)).collect();
    format!("^(?:{})$", names.join("|"))
}

fn escape_regex(name: &str) -> String {
    let mut escaped = String::new();
    for char in name.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(char) {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_draws_the_same_sample() {
        let names: Vec<String> = (0..200).map(|index| format!("a.rs:{index}:1: x")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let reversed: Vec<&str> = names.iter().rev().copied().collect();
        let first = draw_sample(&names, 50, 1);
        assert_eq!(draw_sample(&reversed, 50, 1), first);
        assert_ne!(draw_sample(&names, 50, 2), first);
        let fewer: Vec<&str> = names.iter().filter(|name| **name != first[0]).copied().collect();
        assert_eq!(draw_sample(&fewer, 49, 1), first[1..]);
        let mut all = draw_sample(&names, 999, 1);
        assert_ne!(all, names);
        all.sort_unstable();
        let mut sorted = names;
        sorted.sort_unstable();
        assert_eq!(all, sorted);
    }

    #[test]
    fn each_name_is_as_likely_as_the_others() {
        let names: Vec<String> = (0..10).map(|index| format!("a.rs:{index}:1: x")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for name in &names {
            let times =
                (0..1000).filter(|seed| draw_sample(&names, 3, *seed).contains(name)).count();
            // 300 wanted; five standard deviations of a binomial count.
            assert!((228..=372).contains(&times), "{name}: {times}");
        }
    }

    #[test]
    fn pattern_takes_a_name_by_its_letters() {
        let name =
            r"a.rs:1:2: replace |= with &= in <impl F for [u8; 2]>::f -> (a, b{}) \ $^*+?#-~";
        let wanted = r"^(?:a\.rs:1:2: replace \|= with \&= in <impl F for \[u8; 2\]>::f \-> \(a, b\{\}\) \\ \$\^\*\+\?\#\-\~|b)$";
        assert_eq!(build_pattern(&[name, "b"]), wanted);
    }
}
