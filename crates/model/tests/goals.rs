//! Goals as people write them.

use latput_model::Goal;
use latput_trial::Metric;
use proptest::prelude::*;

fn metric() -> impl Strategy<Value = &'static str> {
    prop::sample::select(Metric::ALL).prop_map(Metric::name)
}

proptest! {
    #[test]
    fn goal_of_any_metrics_is_read(
        direction in prop::sample::select(&["minimize", "maximize"][..]),
        objective in metric(),
        limited in prop::sample::select(&["throughput_bps", "transactions_per_s", "rate"][..]),
        share in 1..200_u32,
        base in prop::sample::select(&["today", "best", "first"][..]),
    ) {
        let share = f64::from(share) / 100.0;
        let text = format!("{direction} {objective} where {limited} >= {share} {base}");
        prop_assert!(Goal::parse(&text).is_ok(), "{text}");
    }

    #[test]
    fn error_names_a_word_of_the_goal(
        words in prop::collection::vec("minimize|maximize|where|and|rate|today|best|>=|<=|\\*|[0-9.]{1,5}|[a-z_]{1,20}", 0..12),
    ) {
        let text = words.join(" ");
        if let Err(error) = Goal::parse(&text) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn no_text_makes_reading_panic(text in "\\PC{0,80}") {
        let _ = Goal::parse(&text);
        let _ = Goal::parse_kept(&text);
    }
}
