//! Help in two lengths, made from the definition of the command line. `-h` fits a screen, `--help` has all. Texts are laid
//! out for the terminal's width here, because clap breaks lines without regard to examples.

use clap::builder::styling::{Effects, Style, Styles};
use clap::{Arg, Command, CommandFactory};
use latput_report::lines::{display_width, fold_lines, wrap_hanging};

use crate::output;
use crate::{Cli, exit};

/// Lines of help are not longer, on a terminal of any width.
const WIDEST: usize = 100;
/// Indent of what belongs to the example above.
const UNDER_EXAMPLE: &str = "      ";

/// The indent of an explanation that stands behind the example above it.
const FAR: usize = 20;

/// The commands that people need first.
const FIRST: [&str; 10] =
    ["tune", "measure", "report", "show", "set", "undo", "apply", "keep", "hosts", "fleet"];

/// Every command that is shown, in groups.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Find a setting", &["tune", "measure", "run", "search", "plan", "hosts"]),
    (
        "Look at results and hosts",
        &["report", "history", "metrics", "show", "diagnose", "snapshot", "watch", "log"],
    ),
    (
        "Change a host",
        &["set", "confirm", "undo", "restore", "apply", "keep", "export-settings", "moderate"],
    ),
    ("Many hosts", &["fleet"]),
    ("Models", &["explain", "model", "sim", "calibrate", "reproduce"]),
    ("Plumbing", &["merge", "import", "lab", "vm", "agent", "completions", "man", "help"]),
];

const TEMPLATE: &str = "\
{about-with-newline}
{usage-heading} {usage}

{before-help}Options:
{options}{after-help}";

/// How a TIME is written.
const TIMES: &str = "A TIME has a unit, such as `500ms` or `2min`; a bare number is in seconds.";

/// The command line with its help in two lengths.
pub(crate) fn build_command() -> Command {
    let columns = output::stdout_screen().columns.min(WIDEST);
    let mut built = Cli::command();
    built.build();
    let short =
        list_commands(&built, &FIRST, columns) + "\n" + &list_other_commands(&built, columns);
    let groups = GROUPS.iter();
    let long: Vec<String> = groups
        .map(|(title, names)| format!("{title}:\n{}\n", list_commands(&built, names, columns)))
        .collect();
    let long = long.concat();
    in_two_lengths(Cli::command(), "latput", columns)
        .styles(help_styles())
        .term_width(columns)
        .help_template(TEMPLATE)
        .before_help(format!("First:\n{short}"))
        .before_long_help(long.trim_end().to_owned())
        .after_help("")
        .after_long_help(laid_out(&exit::render_help_table(), columns))
}

/// Bold and underlined text, which is readable on every background.
fn help_styles() -> Styles {
    let bold = Style::new().effects(Effects::BOLD);
    Styles::plain()
        .header(bold)
        .usage(bold)
        .literal(bold)
        .error(bold)
        .valid(bold)
        .invalid(Style::new().effects(Effects::UNDERLINE))
}

/// A line for each of these commands.
fn list_commands(root: &Command, names: &[&str], columns: usize) -> String {
    let longest = "export-settings".len();
    let about = |name: &str| {
        let command = root.find_subcommand(name)?;
        Some(command.get_about()?.to_string())
    };
    let line = |name: &&str| {
        let about = about(name).unwrap_or_default();
        fold_lines(&format!("  {name:<longest$}  {about}\n"), columns).into_owned()
    };
    names.iter().map(line).collect()
}

/// The names of the commands that are not among the first.
fn list_other_commands(root: &Command, columns: usize) -> String {
    let names: Vec<&str> = GROUPS
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .filter(|name| !FIRST.contains(name) && root.find_subcommand(name).is_some())
        .collect();
    wrap_hanging(&names.join(", "), "More:", "  ", columns).trim_end().to_owned()
}

/// `-h` has the first sentence of each text and no examples, `--help` has all; the same for the commands below.
fn in_two_lengths(command: Command, name: &str, columns: usize) -> Command {
    let examples = command.get_after_help().map(ToString::to_string);
    let takes_time = command.get_arguments().any(takes_time);
    let command = command.mut_args(in_short_and_long).mut_subcommands(|below| {
        if below.is_hide_set() {
            return below;
        }
        let name = format!("{name} {}", below.get_name());
        in_two_lengths(below, &name, columns)
    });
    let Some(examples) = examples else { return command };
    let examples = if takes_time { examples + "\n\n" + TIMES } else { examples };
    let pointer = format!("Examples and all options: `{name} --help`");
    command
        .after_help(fold_lines(&pointer, columns).into_owned())
        .after_long_help(laid_out(&examples, columns))
}

/// Whether it takes a time as [`latput_units::Nanos::from_text_or_seconds`] reads it.
fn takes_time(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    !arg.is_hide_set() && names.iter().any(|name| name == "TIME")
}

/// An option with its first sentence in `-h`. Options in groups of their own are in `--help` only.
fn in_short_and_long(arg: Arg) -> Arg {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string);
    let has_group = arg.get_help_heading().is_some();
    let arg = arg.hide_short_help(has_group);
    match help {
        Some(help) if !arg.is_hide_set() => arg.help(first_sentence(&help)).long_help(help),
        _ => arg,
    }
}

/// A text up to its first full stop or semicolon.
fn first_sentence(text: &str) -> String {
    let text = text.lines().next().unwrap_or_default();
    let end = ["; ", ". "].iter().filter_map(|stop| text.find(stop)).min();
    text[..end.unwrap_or(text.len())].trim_end_matches('.').to_owned()
}

/// Examples, tables and paragraphs for lines of `columns`. An example's explanation stands behind it if both fit a line,
/// else below.
fn laid_out(text: &str, columns: usize) -> String {
    let mut lines = String::new();
    let mut paragraph = String::new();
    for line in with_whole_commands(text).lines() {
        let is_prose = !line.starts_with(' ') && !line.is_empty() && !line.ends_with(':');
        if is_prose {
            paragraph += line;
            paragraph.push(' ');
            continue;
        }
        lines += &in_paragraph(&mut paragraph, columns);
        lines += &wrap_example(line, columns);
    }
    lines += &in_paragraph(&mut paragraph, columns);
    lines.trim_end().to_owned()
}

/// The text with commands that go on behind `\` in one line.
fn with_whole_commands(text: &str) -> String {
    let mut parts = text.split(" \\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + " " + part.trim_start_matches(' '))
}

fn in_paragraph(paragraph: &mut String, columns: usize) -> String {
    let text = std::mem::take(paragraph);
    if text.is_empty() { text } else { wrap_hanging(&text, "", "", columns) }
}

fn wrap_example(line: &str, columns: usize) -> String {
    if display_width(line) <= columns {
        return line.to_owned() + "\n";
    }
    let command = line.trim_start_matches(' ');
    if line.len() - command.len() >= FAR {
        return wrap_hanging(command, UNDER_EXAMPLE, UNDER_EXAMPLE, columns); // of the example above
    }
    let explained = command.find("  ").filter(|_| command.starts_with("latput "));
    let Some(end) = explained else { return fold_lines(line, columns).into_owned() + "\n" };
    let command = fold_lines(&line[..line.len() - command.len() + end], columns).into_owned();
    let explanation = line[line.len() - line.trim_start().len() + end..].trim_start();
    command + "\n" + &wrap_hanging(explanation, UNDER_EXAMPLE, UNDER_EXAMPLE, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_command_is_in_one_group() {
        let mut root = Cli::command();
        root.build();
        let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
        let mut shown: Vec<&str> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, shown);
        assert!(FIRST.iter().all(|name| grouped.contains(name)));
    }

    #[test]
    fn explanation_goes_below_a_long_example() {
        let text = "Examples:\n  latput run plan.toml    what it does\n\nProse that\ngoes on.";
        assert_eq!(
            laid_out(text, 24),
            "Examples:\n  latput run plan.toml\n      what it does\n\nProse that goes on."
        );
        assert_eq!(laid_out(text, 60), text.replace("that\n", "that "));
        let text = "  latput run \\\n      --on lab\n                             it does";
        assert_eq!(laid_out(text, 16), "  latput run \\\n    --on lab\n      it does");
    }

    #[test]
    fn first_sentence_ends_at_its_stop() {
        assert_eq!(first_sentence("The file; by default x. More."), "The file");
        assert_eq!(first_sentence("Such as 1.5 s."), "Such as 1.5 s");
    }
}
