//! Every kind of workload, with any values of its fields.

use std::collections::BTreeMap;

use latput_trial::share::parts;
use latput_trial::workload::{
    COMMAND, Division, Field, FieldUnit, KINDS, WorkloadKind, from_fields,
};
use latput_trial::{Plan, Traffic};
use latput_units::{BitsPerSecond, Nanos};
use proptest::prelude::*;

/// A kind, and a value in range for each of its fields; `burst` only in a closed loop.
fn any_workload() -> impl Strategy<Value = (&'static WorkloadKind, Vec<(&'static Field, u64)>)> {
    // A command is no field of this form.
    let kinds: Vec<_> = KINDS.iter().filter(|kind| kind.name != COMMAND).copied().collect();
    prop::sample::select(kinds).prop_flat_map(|kind| {
        let kind: &'static WorkloadKind =
            KINDS.iter().find(|it| it.name == kind.name).expect("a kind");
        let ranges: Vec<_> = kind.fields.iter().map(|field| field.least..=field.most).collect();
        (Just(kind), ranges, any::<bool>()).prop_map(|(kind, values, is_open)| {
            let values = kind.fields.iter().zip(values);
            let skipped: &[&str] = if is_open { &["burst"] } else { &["rate_per_s", "gaps"] };
            (kind, values.filter(|(field, _)| !skipped.contains(&field.name)).collect())
        })
    })
}

/// As a plan has it.
fn text_of(field: &Field, value: u64) -> String {
    match field.unit {
        FieldUnit::Count | FieldUnit::Bytes | FieldUnit::PerSecond => value.to_string(),
        FieldUnit::Time => Nanos::from_ns(value).to_string(),
        FieldUnit::BitRate => BitsPerSecond::new(value).to_string(),
        FieldUnit::Switch => (value == 1).to_string(),
        FieldUnit::Distribution => ["fixed", "exponential"][usize::from(value == 1)].to_owned(),
    }
}

fn texts(kind: &WorkloadKind, values: &[(&'static Field, u64)]) -> BTreeMap<String, String> {
    let values = values.iter().map(|(field, value)| (field.name, text_of(field, *value)));
    let kind = ("kind", kind.name.to_owned());
    // A name of its own: that of all fields would be too long.
    let name = ("name", "any".to_owned());
    values.chain([kind, name]).map(|(name, text)| (name.to_owned(), text)).collect()
}

proptest! {
    #[test]
    fn what_is_written_is_what_flows((kind, values) in any_workload()) {
        let traffic = from_fields(&texts(kind, &values)).expect("all are in range").traffic;
        prop_assert_eq!(traffic.kind(), kind.name);
        prop_assert!(traffic.check().is_ok());
        for (field, value) in values {
            prop_assert_eq!(traffic.value(field.name), Some(value), "{}", field.name);
        }
        let stored = serde_json::to_string(&traffic).expect("it is plain data");
        prop_assert_eq!(serde_json::from_str::<Traffic>(&stored).ok(), Some(traffic));
    }

    #[test]
    fn parts_of_a_workload_add_up((kind, values) in any_workload(), generators in 1..20_usize) {
        let whole = from_fields(&texts(kind, &values)).expect("all are in range");
        let parts = parts(&whole, generators);
        prop_assert!((1..=generators).contains(&parts.len()));
        for field in kind.fields {
            let of_parts = parts.iter().filter_map(|part| part.traffic.value(field.name));
            let whole = whole.traffic.value(field.name);
            match field.division {
                Division::Parts => prop_assert_eq!(of_parts.sum::<u64>(), whole.unwrap_or(0)),
                Division::AtLeastOne => prop_assert!(of_parts.clone().all(|part| part > 0)),
                Division::Whole => {
                    prop_assert!(of_parts.into_iter().all(|part| Some(part) == whole));
                }
            }
        }
    }

    #[test]
    fn value_out_of_range_is_refused((kind, values) in any_workload(), at in any::<prop::sample::Index>()) {
        let numbers = |field: &Field| matches!(field.unit, FieldUnit::Count | FieldUnit::Bytes);
        let bounded: Vec<_> = values.iter().filter(|(field, _)| numbers(field)).collect();
        prop_assume!(!bounded.is_empty());
        let (field, _) = bounded[at.index(bounded.len())];
        let mut texts = texts(kind, &values);
        texts.insert(field.name.to_owned(), (field.most + 1).to_string());
        let error = from_fields(&texts).expect_err("it is out of range");
        prop_assert_eq!(error.field, field.name);
    }

    #[test]
    fn no_plan_makes_reading_panic(text in "(\\[|\\]|\\{|\\}|=|\"|\n|,|[a-z_]{1,12}|[0-9.]{1,4}|factors|workload|kind|method|tcp_rr|mtu|schema){0,60}") {
        let _ = Plan::parse("any.toml", &text);
    }
}
