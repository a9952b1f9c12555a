//! Reads goals word by word. An error names the word, its place and the allowed words.

use std::iter::Peekable;
use std::vec::IntoIter;

use latput_trial::metric::{PreferredDirection, Unit};
use latput_units::text::parse_percent;
use latput_units::{BitsPerSecond, Nanos, spelling};

use super::{
    BoundSide, Goal, GoalCondition, GoalFigure, GoalMeasure, LimitReference, OptimizeDirection,
};

/// Words that are never a metric or a bare workload.
const KEYWORDS: &[&str] =
    &["minimize", "maximize", "of", "where", "and", "today", "best", "first", ">=", "<=", "*"];
/// The longest goal, in characters.
const LONGEST_CHARS: usize = 2_000;
/// The longest part of a wrong word that an error repeats, in characters.
const SHOWN_CHARS: usize = 60;

/// A text that is not a goal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", self.place())]
pub struct GoalError {
    /// The wrong word; `None` where the goal ends too early.
    pub word: Option<String>,
    /// The column where it begins (or the goal ends), in characters from 1.
    pub column: usize,
    /// The problem and the remedy.
    pub problem: String,
}

impl GoalError {
    fn place(&self) -> String {
        match &self.word {
            Some(word) => format!("`{word}` at column {}", self.column),
            None => format!("it ends at column {}", self.column),
        }
    }
}

/// One word of a goal.
#[derive(Clone, Debug)]
struct GoalWord {
    text: String,
    column: usize,
    is_quoted: bool,
}

impl GoalWord {
    fn is(&self, keyword: &str) -> bool {
        !self.is_quoted && self.text == keyword
    }

    fn to_error(&self, problem: impl Into<String>) -> GoalError {
        GoalError {
            word: Some(self.text.chars().take(SHOWN_CHARS).collect()),
            column: self.column,
            problem: problem.into(),
        }
    }
}

/// The remaining words of a goal.
struct WordStream {
    words: Peekable<IntoIter<GoalWord>>,
    end_column: usize,
}

impl WordStream {
    fn next(&mut self, wanted: &str) -> Result<GoalWord, GoalError> {
        let problem = || format!("expected {wanted}");
        let column = self.end_column;
        self.words.next().ok_or_else(|| GoalError { word: None, column, problem: problem() })
    }

    /// Takes the next word if it is `keyword`.
    fn take(&mut self, keyword: &str) -> bool {
        self.words.next_if(|word| word.is(keyword)).is_some()
    }
}

/// Reads a whole goal.
pub(super) fn parse_goal(text: &str) -> Result<Goal, GoalError> {
    let mut words = split_words(text)?;
    let first = words.next("`minimize`, `maximize` or a named goal")?;
    let direction = match first.text.as_str() {
        "minimize" if !first.is_quoted => OptimizeDirection::Minimize,
        "maximize" if !first.is_quoted => OptimizeDirection::Maximize,
        _ => return parse_named_goal(&first, &mut words),
    };
    let mut objective = vec![parse_figure(&mut words)?];
    while words.take("*") {
        objective.push(parse_figure(&mut words)?);
    }
    let mut conditions = Vec::new();
    if words.take("where") {
        conditions.push(parse_condition(&mut words)?);
        while words.take("and") {
            conditions.push(parse_condition(&mut words)?);
        }
    }
    if let Some(word) = words.words.next() {
        return Err(word.to_error(match conditions.len() {
            0 => "after the objective comes `where`, `*` or nothing",
            _ => "after a condition comes `and` or nothing",
        }));
    }
    Ok(Goal { text: text.trim().to_owned(), direction, objective, conditions })
}

/// Reads one limit.
pub(super) fn parse_limit(text: &str) -> Result<GoalCondition, GoalError> {
    let mut words = split_words(text)?;
    let limit = parse_condition(&mut words)?;
    match words.words.next() {
        None => Ok(limit),
        Some(word) => {
            Err(word.to_error("this text must be one limit: give each limit a text of its own"))
        }
    }
}

fn parse_named_goal(first: &GoalWord, words: &mut WordStream) -> Result<Goal, GoalError> {
    let Some((name, meaning)) = Goal::NAMED.iter().find(|(name, _)| first.text == *name) else {
        let names: Vec<&str> = Goal::NAMED.iter().map(|(name, _)| *name).collect();
        let names = names.join("`, `");
        let starts = Goal::NAMED.iter().map(|(name, _)| *name).chain(["minimize", "maximize"]);
        let meant = spelling::nearest_name(&first.text, starts)
            .map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
        return Err(first.to_error(format!(
            "a goal begins with `minimize` or `maximize`, or is one of `{names}`{meant}"
        )));
    };
    if let Some(more) = words.words.next() {
        return Err(more.to_error(format!(
            "nothing may follow the named goal `{name}`; to change it, write it out: `{meaning}`"
        )));
    }
    Ok(Goal { text: format!("{name}: {meaning}"), ..parse_goal(meaning)? })
}

fn parse_figure(words: &mut WordStream) -> Result<GoalFigure, GoalError> {
    let word = words.next("a metric")?;
    let measure = match word.text.as_str() {
        "rate" => GoalMeasure::Rate,
        name => match name.parse() {
            Ok(metric) => GoalMeasure::Metric(metric),
            Err(error) => return Err(word.to_error(error.to_string())),
        },
    };
    let workload = words.take("of").then(|| parse_workload(words)).transpose()?;
    Ok(GoalFigure { measure, workload })
}

fn parse_workload(words: &mut WordStream) -> Result<String, GoalError> {
    let word = words.next("the name or kind of a workload")?;
    let is_name = word.is_quoted || !KEYWORDS.contains(&word.text.as_str());
    if is_name && !word.text.trim().is_empty() {
        Ok(word.text)
    } else {
        Err(word.to_error(
            "after `of` comes the name or kind of a workload, in quotes if it has spaces",
        ))
    }
}

fn parse_condition(words: &mut WordStream) -> Result<GoalCondition, GoalError> {
    let start = words.words.peek().cloned();
    let figure = parse_figure(words)?;
    let sign = words.next("`>=` or `<=`")?;
    let bound = match sign.text.as_str() {
        ">=" => BoundSide::AtLeast,
        "<=" => BoundSide::AtMost,
        _ => return Err(sign.to_error("a condition compares with `>=` or `<=`")),
    };
    let word = words.next("a number")?;
    let Some(number) = parse_number(&word.text, figure.measure) else {
        return Err(word.to_error(
            "expected a number of at least 0: with a unit (`500us`, `1G`), in the metric's own unit, or a share of `today` or `best` (`0.95`, `95%`)",
        ));
    };
    let reference = if words.take("best") {
        Some(LimitReference::Best)
    } else if words.take("today") || words.take("first") {
        Some(LimitReference::Today)
    } else {
        None
    };
    let has_best = !matches!(figure.measure, GoalMeasure::Metric(m) if m.preferred_direction() == PreferredDirection::Neither);
    if let (Some(LimitReference::Best), false, Some(metric)) = (reference, has_best, start) {
        return Err(metric.to_error("this metric has no best value; compare with `today`"));
    }
    Ok(GoalCondition { figure, bound, number, reference })
}

/// A bound: a plain number, a percentage, or a quantity in the unit of the metric.
fn parse_number(text: &str, measure: GoalMeasure) -> Option<f64> {
    let quantity = || match measure {
        GoalMeasure::Metric(metric) => match metric.row().unit {
            Unit::Nanoseconds => text.parse().ok().map(|time: Nanos| time.as_ns() as f64),
            Unit::BitsPerS => text.parse().ok().map(|rate: BitsPerSecond| rate.get() as f64),
            Unit::PerS
            | Unit::PacketsPerS
            | Unit::WorkPerS
            | Unit::Ratio
            | Unit::MicrosecondsPerWork
            | Unit::PacketsPerPoll
            | Unit::Bytes
            | Unit::Number => None,
        },
        GoalMeasure::Rate => None,
    };
    let percent = || if text.ends_with('%') { parse_percent(text) } else { None };
    let number: Option<f64> = text.parse().ok();
    number.or_else(percent).or_else(quantity).filter(|number| number.is_finite() && *number >= 0.0)
}

/// Splits a goal into words, quoted texts and signs; signs need no space around them.
fn split_words(text: &str) -> Result<WordStream, GoalError> {
    let letters: Vec<char> = text.chars().collect();
    let end_column = letters.len() + 1;
    if letters.len() > LONGEST_CHARS {
        let problem = format!("a goal has at most {LONGEST_CHARS} characters");
        return Err(GoalError { word: None, column: end_column, problem });
    }
    let is_sign = |at: usize| match letters.get(at) {
        Some('<' | '>') => letters.get(at + 1) == Some(&'='),
        letter => letter == Some(&'*'),
    };
    let mut words = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        let start = at;
        let column = start + 1;
        let letter = letters[at];
        if letter.is_whitespace() {
            at += 1;
            continue;
        }
        let is_quoted = letter == '"' || letter == '\'';
        let text: String = if is_quoted {
            let closing = letters[start + 1..].iter().position(|other| *other == letter);
            let closing = closing.ok_or_else(|| GoalError {
                word: Some(letters[start..].iter().take(SHOWN_CHARS).collect()),
                column,
                problem: "this quote is not closed".to_owned(),
            })?;
            at = start + closing + 2;
            letters[start + 1..at - 1].iter().collect()
        } else if is_sign(at) {
            at += if letter == '*' { 1 } else { 2 };
            letters[start..at].iter().collect()
        } else {
            while at < letters.len() && !letters[at].is_whitespace() && !is_sign(at) {
                at += 1;
            }
            letters[start..at].iter().collect()
        };
        words.push(GoalWord { text, column, is_quoted });
    }
    Ok(WordStream { words: words.into_iter().peekable(), end_column })
}

#[cfg(test)]
mod tests {
    use latput_trial::Metric;

    use super::*;

    #[test]
    fn goal_is_read_into_its_parts() {
        let goal = Goal::parse(
            "  maximize transactions_per_s of \"tcp_rr burst=16\" where latency_ns_p99 of tcp_rr<=1.5 first \
             and throughput_bps >= 2e9 ",
        )
        .unwrap();
        assert_eq!(goal.direction, OptimizeDirection::Maximize);
        assert_eq!(goal.objective[0].to_string(), "transactions_per_s of \"tcp_rr burst=16\"");
        let conditions: Vec<String> = goal.conditions.iter().map(ToString::to_string).collect();
        assert_eq!(
            conditions,
            ["latency_ns_p99 of \"tcp_rr\" <= 1.5 today", "throughput_bps >= 2000000000"]
        );
        assert!(goal.text.starts_with("maximize"));
    }

    #[test]
    fn bound_may_have_unit_or_percent() {
        for (bound, number) in [
            ("latency_ns_p99 <= 500us", 500_000.0),
            ("throughput_bps >= 1G", 1e9),
            ("throughput_bps >= 95% today", 0.95),
            ("sut_cpu_busy_ratio <= 30%", 0.3),
            ("rate >= 0.95 today", 0.95),
        ] {
            let goal =
                Goal::parse(&format!("minimize sut_service_demand_us where {bound}")).unwrap();
            assert!((goal.conditions[0].number - number).abs() < 1e-9, "{bound}");
        }
        for bound in ["rate >= 1G", "latency_ns_p99 <= 1G", "latency_ns_p99 <= -1us", "rate >= %"] {
            let error = Goal::parse(&format!("minimize rate where {bound}")).unwrap_err();
            assert!(error.problem.contains("a number of at least 0"), "{bound}: {error}");
        }
    }

    #[test]
    fn every_metric_and_named_goal_parses() {
        for metric in Metric::ALL {
            let goal = Goal::parse(&format!("minimize {metric}")).unwrap();
            assert_eq!(goal.objective[0].measure, GoalMeasure::Metric(*metric));
        }
        for (name, meaning) in Goal::NAMED {
            let goal = Goal::parse(name).unwrap();
            assert_eq!(goal.text, format!("{name}: {meaning}"));
            assert_eq!(goal.objective, Goal::parse(meaning).unwrap().objective);
        }
        let balanced = Goal::parse("balanced").unwrap();
        assert_eq!((balanced.objective.len(), balanced.conditions.len()), (2, 1));
    }

    #[test]
    fn wrong_goal_word_is_named_with_choices() {
        check_error("minimize latncy_ns_p99", Some("latncy_ns_p99"), 10, "`latency_ns_p99`");
        check_error("minimise latency_ns_p99", Some("minimise"), 1, "`minimize` or `maximize`");
        check_error("'minimize' rate", Some("minimize"), 1, "a goal begins with");
        check_error("\"maximize\" rate", Some("maximize"), 1, "a goal begins with");
        check_error("minimize latency_ns_p99 when", Some("when"), 25, "`where`");
        check_error("minimize rate where rate => 1", Some("=>"), 26, "`>=` or `<=`");
        check_error("minimize rate where rate >= ninety", Some("ninety"), 29, "number");
        check_error("minimize rate where rate >= -1", Some("-1"), 29, "number");
        check_error("minimize rate where rate >= nan", Some("nan"), 29, "number");
        check_error("minimize rate where rate >= 1e999", Some("1e999"), 29, "number");
        check_error("minimize rate where rate >= 0.9 bets", Some("bets"), 33, "`and`");
        check_error("minimize rate of where", Some("where"), 18, "workload");
        check_error("minimize rate of \"\"", Some(""), 18, "workload");
        check_error("minimize rate of \"tcp rr", Some("\"tcp rr"), 18, "not closed");
        check_error("balanced of tcp_rr", Some("of"), 10, "nothing may follow");
        check_error(
            "minimize rate where sut_rx_pps >= 0.9 best",
            Some("sut_rx_pps"),
            21,
            "`today`",
        );
        check_error(
            "minimize latency_raw_ns_p99",
            Some("latency_raw_ns_p99"),
            10,
            "is called `latency_uncorrected_ns_p99` now",
        );
        check_error("minimize latncy", Some("latncy"), 10, "`latput metrics`");
        check_error(
            "minimize \u{fc}ber * rate",
            Some("\u{fc}ber"),
            10,
            "there is no metric `\u{fc}ber`",
        );
    }

    #[test]
    fn goal_of_earlier_version_is_read() {
        let kept = "minimize latency_raw_ns_p99 where generator_ceiling_per_s >= 1";
        let goal = Goal::parse_kept(kept).unwrap();
        let now = "minimize latency_uncorrected_ns_p99 where generator_max_per_s >= 1";
        assert_eq!(goal, Goal::parse(now).unwrap());
    }

    #[test]
    fn unfinished_goal_names_the_missing_part() {
        check_error("", None, 1, "`minimize`");
        check_error("   ", None, 4, "`minimize`");
        check_error("minimize", None, 9, "a metric");
        check_error("minimize rate *", None, 16, "a metric");
        check_error("minimize rate of", None, 17, "workload");
        check_error("minimize rate where", None, 20, "a metric");
        check_error("minimize rate where rate", None, 25, "`>=`");
        check_error("minimize rate where rate >=", None, 28, "a number");
        check_error("minimize rate where rate >= 1 and", None, 34, "a metric");
    }

    #[test]
    fn huge_goal_is_refused_without_echo() {
        check_error(&"x".repeat(2_001), None, 2_002, "at most");
        assert!(Goal::parse(&format!("{:2000}", "latency")).is_ok());
        let error = Goal::parse(&format!("minimize {}", "x".repeat(1_900))).unwrap_err();
        assert!(error.to_string().len() < 250, "{error}");
    }

    #[test]
    fn error_reads_as_a_sentence() {
        let error = Goal::parse("minimize p99").unwrap_err().to_string();
        let start =
            "`p99` at column 10: there is no metric `p99`: did you mean `latency_ns_p99` or ";
        assert!(error.starts_with(start), "{error}");
        let error = Goal::parse("minimize").unwrap_err().to_string();
        assert_eq!(error, "it ends at column 9: expected a metric");
    }

    #[test]
    fn no_text_is_a_crash() {
        let mut rng = latput_units::SeededRng::from_seed(9);
        let pieces =
            ["minimize", " ", "\"", "'", "*", ">=", "<", "of", "where", "rate", "1", "\u{1f600}"];
        for _ in 0..2_000 {
            let length = rng.next_below(12);
            let text: String = (0..length).map(|_| pieces[rng.next_below(pieces.len())]).collect();
            let _ = Goal::parse(&text);
        }
    }

    #[track_caller]
    fn check_error(text: &str, word: Option<&str>, column: usize, problem: &str) {
        let error = Goal::parse(text).expect_err(text);
        assert_eq!((error.word.as_deref(), error.column), (word, column), "{error}");
        assert!(error.problem.contains(problem), "{error}");
    }
}
