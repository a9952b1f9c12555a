//! The difference of two texts, as `diff -u` writes it.

use std::fmt::Write as _;

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// One line of the whole, with its side: in both, only old, only new.
type DiffLine<'t> = (char, &'t str);

/// The unified difference of a file's old and new text; `None` stands for no file. Empty if they are the same.
pub(super) fn unified_diff(file: &str, old: Option<&str>, new: Option<&str>) -> String {
    if old == new {
        return String::new();
    }
    let name = |side, text: Option<&str>| match text {
        Some(_) => format!("{side}{file}"),
        None => "/dev/null".to_owned(),
    };
    let mut text = format!("--- {}\n+++ {}\n", name("a", old), name("b", new));
    let lines = align_lines(old.unwrap_or_default(), new.unwrap_or_default());
    for (start, end) in find_hunks(&lines) {
        let before = |side| lines[..start].iter().filter(|(mark, _)| *mark != side).count();
        let within = |side| lines[start..end].iter().filter(|(mark, _)| *mark != side).count();
        let range = |side| match (before(side), within(side)) {
            (at, 0) => format!("{at},0"),
            (at, count) => format!("{},{count}", at + 1),
        };
        let _ = writeln!(text, "@@ -{} +{} @@", range('+'), range('-'));
        for (mark, line) in &lines[start..end] {
            let _ = write!(text, "{mark}{line}");
            if !line.ends_with('\n') {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    text
}

/// The lines of both texts in one order, by their longest common subsequence.
fn align_lines<'t>(old: &'t str, new: &'t str) -> Vec<DiffLine<'t>> {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let mut common = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            common[i][j] = if a == b {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || i < old.len() && common[i + 1][j] >= common[i][j + 1] {
            lines.push(('-', old[i]));
            i += 1;
        } else {
            lines.push(('+', new[j]));
            j += 1;
        }
    }
    lines
}

/// The ranges of lines around each change; those that touch are one.
fn find_hunks(lines: &[DiffLine<'_>]) -> Vec<(usize, usize)> {
    let mut hunks: Vec<(usize, usize)> = Vec::new();
    let changed = lines.iter().enumerate().filter(|(_, (mark, _))| *mark != ' ');
    for (at, _) in changed {
        let (start, end) = (at.saturating_sub(CONTEXT), (at + CONTEXT + 1).min(lines.len()));
        match hunks.last_mut() {
            Some(last) if start <= last.1 => last.1 = end,
            _ => hunks.push((start, end)),
        }
    }
    hunks
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::process::Command;

    use super::unified_diff;

    /// As `diff -u` has it, without the names' times.
    #[test]
    fn difference_is_written_as_diff_writes_it() {
        let numbers = |count: usize| {
            (0..count).fold(String::new(), |mut text, number| {
                let _ = writeln!(text, "{number}");
                text
            })
        };
        let long = numbers(40);
        for (old, new) in [
            ("a\nb\nc\n".to_owned(), "a\nx\nc\n".to_owned()),
            ("a\nb".to_owned(), "a\nb\n".to_owned()),
            ("a\n".to_owned(), "a\nlast".to_owned()),
            (long.clone(), long.replace("\n3\n", "\n").replace("\n30\n", "\n30\nmore\n")),
            (long.clone(), long.replace("\n3\n", "\nx\n").replace("\n9\n", "\ny\n")),
            (String::new(), long),
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("old"), &old).unwrap();
            std::fs::write(folder.path().join("new"), &new).unwrap();
            let ran = Command::new("diff").args(["-u", "old", "new"]).current_dir(&folder).output();
            let theirs = String::from_utf8(ran.unwrap().stdout).unwrap();
            let body = |text: &str| text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
            // diff leaves out a count of 1.
            let ours = unified_diff("/f", Some(&old), Some(&new)).replace(",1 ", " ");
            assert_eq!(body(&ours), body(&theirs.replace(",1 ", " ")));
        }
        assert_eq!(unified_diff("/f", Some("a\n"), Some("a\n")), "");
        assert!(
            unified_diff("/f", None, Some("a\n"))
                .starts_with("--- /dev/null\n+++ b/f\n@@ -0,0 +1,1 @@")
        );
        assert!(unified_diff("/f", Some("a\n"), None).contains("+++ /dev/null\n"));
    }
}
