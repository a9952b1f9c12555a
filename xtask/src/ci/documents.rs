//! Documents that cannot lie: examples and the snippets of documents are checked by the real binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::tally::Tally;
use crate::workspace::Workspace;

/// Checks every plan under `examples/`; nothing is run on any host.
pub fn check_examples(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let (root, binary) = (&workspace.root, workspace.built_latput()?);
    let examples = files_in(&root.join("examples"), "toml")?;
    ensure!(!examples.is_empty(), "examples/ holds no plan");
    for example in examples {
        let name = example.strip_prefix(root).unwrap_or(&example).display().to_string();
        let text = read(&example)?;
        tally.record_result(&name, check_toml(&text, &example, &binary));
    }
    ensure!(tally.failed == 0, "{} examples are wrong", tally.failed);
    Ok(())
}

/// Checks every fenced block of README.md, CONTRIBUTING.md and docs/ that has a language we know.
pub fn check_snippets(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let (root, binary) = (&workspace.root, workspace.built_latput()?);
    let documents = documents_of(root)?;
    let scratch = binary.with_file_name("xtask-snippet.toml");
    for document in documents {
        let text = read(&document)?;
        let name = document.strip_prefix(root).unwrap_or(&document).display().to_string();
        for block in find_code_blocks(&text) {
            let place = format!("{name}:{}", block.line);
            match block.language {
                "json" => {
                    let parsed: Result<serde_json::Value, _> = serde_json::from_str(&block.text);
                    tally.record_result(&place, parsed.map(drop).context("is not JSON"));
                }
                "toml" => {
                    std::fs::write(&scratch, &block.text)
                        .with_context(|| format!("cannot write {}", scratch.display()))?;
                    tally.record_result(&place, check_toml(&block.text, &scratch, &binary));
                }
                "sh" | "console" => {
                    for arguments in latput_lines(&block.text) {
                        let place = format!("{place}: latput {}", arguments.join(" "));
                        tally.record_result(&place, check_arguments(&arguments, &binary));
                    }
                }
                _ => {}
            }
        }
    }
    ensure!(tally.failed == 0, "{} snippets are wrong", tally.failed);
    Ok(())
}

/// README.md, CONTRIBUTING.md and docs/.
pub(super) fn documents_of(root: &Path) -> Result<Vec<PathBuf>> {
    let mut documents = files_in(&root.join("docs"), "md")?;
    documents.extend(["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    Ok(documents)
}

/// The blocks of a document that show commands, with their lines.
pub(super) fn printed_blocks(text: &str) -> Vec<(usize, String)> {
    let shows = find_code_blocks(text)
        .into_iter()
        .filter(|block| ["sh", "console"].contains(&block.language));
    shows.map(|block| (block.line, block.text)).collect()
}

/// A plan is checked by the binary; other TOML (a testbed, a fragment) must be TOML at least.
fn check_toml(text: &str, path: &Path, binary: &Path) -> Result<()> {
    let table: toml::Table = toml::from_str(text).context("is not TOML")?;
    if !table.contains_key("workload") {
        return Ok(());
    }
    run_checked(Command::new(binary).arg("run").arg(path).arg("--check=plan"))
}

/// With `--help` at its end a command line is parsed and then nothing is done.
pub(super) fn check_arguments(arguments: &[String], binary: &Path) -> Result<()> {
    // The words that follow are the command of somebody else.
    let stop = arguments.iter().position(|word| word == "--");
    let ours = &arguments[..stop.unwrap_or(arguments.len())];
    run_checked(Command::new(binary).args(ours).arg("--help"))
}

fn run_checked(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().context("cannot start latput")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The files with `extension` under `folder`, in ascending order.
fn files_in(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("cannot read the folder {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        if path.is_dir() {
            files.extend(files_in(&path, extension)?);
        } else if path.extension().is_some_and(|it| it == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A fenced block of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CodeBlock<'a> {
    line: usize,
    language: &'a str,
    text: String,
}

/// Fenced blocks, and indented ones that start latput.
fn find_code_blocks(text: &str) -> Vec<CodeBlock<'_>> {
    let mut blocks: Vec<CodeBlock<'_>> = Vec::new();
    let mut fenced = false;
    // An indented block begins after an empty line; else it belongs to a paragraph.
    let mut may_be_indented = true;
    for (idx, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fenced = !fenced;
            if fenced {
                let language = language.trim();
                blocks.push(CodeBlock { line: idx + 1, language, text: String::new() });
            }
        } else if let Some(block) = blocks.last_mut().filter(|_| fenced) {
            block.text.push_str(line);
            block.text.push('\n');
        } else if let Some(code) = line.strip_prefix("    ").filter(|_| may_be_indented) {
            if code.starts_with("latput ") {
                // The words apart behind it explain it.
                let command = code.split("  ").next().unwrap_or_default();
                let text = format!("{command}\n");
                blocks.push(CodeBlock { line: idx + 1, language: "sh", text });
            }
        } else {
            may_be_indented = line.trim().is_empty();
        }
    }
    blocks
}

/// The arguments of each line that starts latput, also behind `$`, `#` (a root prompt) and `sudo`.
pub(super) fn latput_lines(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(split_shell_words);
    lines
        .filter_map(|words| {
            let prompts =
                words.iter().take_while(|word| ["$", "#", "sudo"].contains(&word.as_str()));
            let start = prompts.count();
            (words.get(start)? == "latput").then(|| words[start + 1..].to_vec())
        })
        .collect()
}

/// Splits as a shell does: quotes keep words together, a comment, pipe or redirection ends the line.
fn split_shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for char in line.chars() {
        match (char, quote) {
            (_, Some(open)) if char == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            ('|' | '>' | '&' | ';', None) => break,
            ('#', None) if word.is_none() && !words.is_empty() => break,
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_language_and_line() {
        let text = "# A\n\n```toml\na = 1\n```\ntext\n```\nplain\n```\n";
        let expected = [(3, "toml", "a = 1\n"), (7, "", "plain\n")]
            .map(|(line, language, text)| CodeBlock { line, language, text: text.to_owned() });
        assert_eq!(find_code_blocks(text), expected);
        let text =
            "Say:\n\n    latput tune   the main job\n    ls\n\nor\n    latput is text here\n";
        let tune = CodeBlock { line: 3, language: "sh", text: "latput tune\n".to_owned() };
        assert_eq!(find_code_blocks(text), [tune]);
    }

    #[test]
    fn command_lines_split_as_in_shell() {
        check_lines("latput tune # quick\n", &[&["tune"]]);
        check_lines(
            "$ sudo latput run a.toml -o 'b c.db' | less\n",
            &[&["run", "a.toml", "-o", "b c.db"]],
        );
        check_lines("# latput show eth0\nls\n", &[&["show", "eth0"]]);
        check_lines(
            "latput measure \\\n  --goal \"a >= b\"\n",
            &[&["measure", "--goal", "a >= b"]],
        );
        check_lines("cargo run -- tune\nexport a=latput\n", &[]);
    }

    #[test]
    fn refused_command_is_quoted() {
        let refuses = Path::new("/bin/false");
        assert!(check_arguments(&["tune".into()], refuses).is_err());
        assert!(check_arguments(&["tune".into()], Path::new("/bin/true")).is_ok());
        let plan = "[[workload]]\nkind = \"tcp_rr\"\n";
        assert!(check_toml(plan, Path::new("plan.toml"), refuses).is_err());
        assert!(check_toml("[host.a]\n", Path::new("testbed.toml"), refuses).is_ok());
        assert!(check_toml("[host", Path::new("testbed.toml"), refuses).is_err());
    }

    #[track_caller]
    fn check_lines(text: &str, expected: &[&[&str]]) {
        assert_eq!(latput_lines(text), expected);
    }
}
