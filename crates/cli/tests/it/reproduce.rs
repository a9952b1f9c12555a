//! Predictions of published cells: from any folder, without the published files.

use crate::Place;

const HEADER: &str =
    "system,driver,driver_version,kernel,first_burst,concurrent,itr_hz,trans_per_s";
/// Cells of a published machine.
pub(crate) const TWO_CELLS: &str = "\
system,driver,driver_version,kernel,first_burst,concurrent,itr_hz,trans_per_s
rx1620,e1000,6.0.54,2.6.12,0,1,0,
rx1620,e1000,6.0.54,2.6.12,0,1,1000,
";

#[test]
fn cells_are_predicted_without_published_files() {
    let place = Place::new();
    place.write("cells.csv", TWO_CELLS);
    let args = ["reproduce", "--cells", "cells.csv", "-o", "out.csv", "--seeds", "2"];
    place.run(&args).expect(0, &[]);
    let out = std::fs::read_to_string(place.path("out.csv")).unwrap();
    let rates: Vec<f64> =
        out.lines().skip(1).map(|line| line.split(',').nth(8).unwrap().parse().unwrap()).collect();
    assert!((12_000.0..20_000.0).contains(&rates[0]), "{out}");
    assert!((950.0..1_050.0).contains(&rates[1]), "{out}");
}

#[test]
fn unknown_machine_is_told_others_are_predicted() {
    let place = Place::new();
    let cells = "rx9,e1000,6.0,2.6,0,1,0,\nrx1620,e1000,6.0.54,2.6.12,0,1,0,\n";
    place.write("cells.csv", &format!("{HEADER}\n{cells}"));
    let args = ["reproduce", "--cells", "cells.csv", "-o", "out.csv", "--seeds", "2"];
    place.run(&args).expect(6, &["row 1", "no profile for the machine `rx9`"]);
    let out = std::fs::read_to_string(place.path("out.csv")).unwrap();
    assert!(out.lines().nth(1).unwrap().contains("no profile for the machine `rx9`"), "{out}");
}

#[test]
fn impossible_value_refuses_the_file_and_writes_nothing() {
    let place = Place::new();
    place.write("cells.csv", &format!("{HEADER}\nrx1620,e1000,6.0.54,2.6.12,0,-1,0,\n"));
    let args = ["reproduce", "--cells", "cells.csv", "-o", "out.csv"];
    place.run(&args).expect(2, &["cells.csv", "row 1, column `concurrent`", "`-1` must be"]);
    assert!(!place.path("out.csv").exists());
    let known = ["no published cells or claims of A99", "claims such as T006"];
    place.run(&["reproduce", "A99"]).expect(2, &known);
}

#[test]
fn merged_cell_shards_equal_one_process() {
    let place = Place::new();
    let cell = |itr_hz: u32| format!("rx1620,e1000,6.0.54,2.6.12,0,1,{itr_hz},\n");
    let cells: String = [0, 1000, 4000].into_iter().map(cell).collect();
    place.write("cells.csv", &format!("{HEADER}\n{cells}"));
    let predict = |words: &[&str]| {
        let base = ["reproduce", "--cells", "cells.csv", "--seeds", "2"];
        place.run(&[&base[..], words].concat())
    };
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    predict(&["-o", "whole.csv"]).expect(0, &[]);
    predict(&["--shard", "1/2", "-o", "part1.csv"]).expect(0, &[]);
    let merge = ["--merge", "part1.csv", "part2.csv", "-o", "all.csv"];
    predict(&merge).expect(2, &["part2.csv"]);
    predict(&["--merge", "part1.csv", "-o", "all.csv"])
        .expect(2, &["part 2 of 2 is missing: make it with `--shard 2/2`"]);
    assert!(!place.path("all.csv").exists());
    predict(&["--shard", "index:1/2", "-o", "part2.csv"]).expect(0, &[]);
    assert_eq!((read("part1.csv").lines().count(), read("part2.csv").lines().count()), (3, 2));
    predict(&merge).expect(0, &[]);
    assert_eq!(read("all.csv"), read("whole.csv"));
    assert_eq!(read("all.csv").lines().count(), 4);
    let other_seeds = [&["reproduce", "--cells", "cells.csv", "--seeds", "3"], &merge[..]].concat();
    place.run(&other_seeds).expect(2, &["--seeds 2", "is wanted by", "--seeds 3"]);
    predict(&["--shard", "1/4", "-o", "x.csv"])
        .expect(2, &["this part has 3 rows: take fewer shards"]);
    place.run(&["reproduce", "A04", "--shard", "1/2"]).expect(2, &["--output"]);
}

#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn merged_validation_shards_equal_one_process() {
    let place = Place::new();
    let cell =
        |itr_hz: u32| format!("rx1620,e1000,6.0.54,2.6.12,0,1,{itr_hz},{}\n", itr_hz.max(9000));
    let cells: String = [0, 9000, 11_000].into_iter().map(cell).collect();
    place.write("cells.csv", &format!("{HEADER}\n{cells}"));
    let plan = "[[profile]]\nprofile = 'rx1620-e1000'\nabout = 'One host.'\ncells = ['cells.csv']\n\
                free = [{ parameter = 'app', start = 3000 }]\neffort = { starts = 3, first = 4, last = [4, 0.1] }\n";
    place.write("plan.toml", plan);
    let calibrate = |words: &[&str]| {
        let base = ["calibrate", "--plan", "plan.toml", "--cells", "cells.csv"];
        place.run(&[&base[..], words].concat())
    };
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    let whole = calibrate(&["--validate", "--held-out", "whole.json", "-o", "whole.toml"]);
    whole.expect(0, &[]);
    for number in 1..=2 {
        let [shard, part] = [format!("{number}/2"), format!("part{number}.toml")];
        calibrate(&["--validate", "--shard", &shard, "-o", &part]).expect(0, &[]);
    }
    let merge = ["--merge", "part2.toml", "part1.toml"];
    let of_whole = ["--held-out", "all.json", "-o", "all.toml"];
    let all = calibrate(&[&merge[..], &of_whole].concat());
    all.expect(0, &["held out: every second cell"]);
    assert_eq!(all.out, whole.out);
    assert_eq!(read("all.json"), read("whole.json"));
    assert_eq!(read("all.toml"), read("whole.toml"));

    std::fs::remove_file(place.path("all.toml")).unwrap();
    let refused = |parts: &[&str], words: &[&str]| {
        calibrate(&[&["--merge"], parts, &["-o", "all.toml"]].concat()).expect(2, words);
        assert!(!place.path("all.toml").exists());
    };
    refused(&merge[1..2], &["part 1 of 2 is missing: make it with `--shard 1/2`"]);
    refused(&["part1.toml", "part1.toml"], &["part1.toml: part 1, as part1.toml: leave one out"]);
    refused(&["plan.toml"], &["plan.toml: no file of --shard"]);
    place.write("part2.toml", &read("part2.toml").replace("place = 3", "place = 2"));
    refused(&merge[1..], &["part2.toml: its fits are not those of the part"]);
    place.write("plan.toml", &plan.replace("3000", "3001"));
    refused(&merge[1..], &["part1.toml: it was made by", "make it again with the same options"]);
    calibrate(&["--validate", "--shard", "1/99", "-o", "x.toml"])
        .expect(2, &["fits: take fewer shards"]);
    calibrate(&["--held-out", "x.json", "-o", "x.toml"]).expect(2, &["--validate or --merge"]);
    calibrate(&["--shard", "1/2", "-o", "x.toml"]).expect(2, &["--validate"]);
}

#[test]
fn calibration_refuses_mixed_or_few_cells() {
    let place = Place::new();
    let two = "rx1620,e1000,6.0,2.6,0,1,0,5\nProLiant BL25p,tg3,3.37,2.6.5,0,1,,5\n";
    place.write("two.csv", &format!("{HEADER}\n{two}"));
    let args = ["calibrate", "--cells", "two.csv", "-o", "p.toml"];
    place.run(&args).expect(2, &["row 2, column `system`", "--system"]);
    place.write("few.csv", &format!("{HEADER}\nrx1620,e1000,6.0,2.6,0,1,0,5\n"));
    let args = ["calibrate", "--cells", "few.csv", "-o", "p.toml"];
    place.run(&args).expect(2, &["1 published figure, and", "at least"]);
    assert!(!place.path("p.toml").exists());
}

#[test]
fn calibration_names_meaningless_plan_key() {
    let place = Place::new();
    place.write("few.csv", &format!("{HEADER}\nrx1620,e1000,6.0,2.6,0,1,0,5\n"));
    let plan = "[[profile]]\nprofile = 'rx1620-e1000'\nabout = 'One host.'\ncells = ['few.csv']\n\
                free = [{ parameter = 'app', start = 3000 }]\n";
    let args = ["calibrate", "--plan", "plan.toml", "--cells", "few.csv", "-o", "p.toml"];
    place.write("plan.toml", &format!("{plan}runs = 0\n"));
    let said = ["plan.toml, profile `rx1620-e1000`: `runs` is 0, must be from 1 to 100"];
    place.run(&args).expect(2, &said);
    place.write("plan.toml", &format!("{plan}generators = 'stay'\n"));
    place.run(&args).expect(2, &["1 published figure, and", "at least"]);
    assert!(!place.path("p.toml").exists());
}

#[test]
fn demand_is_judged_on_predicted_rows() {
    let place = Place::new();
    let said = [
        "holds   in sample  classes of the fq_codel matrix: rate: 2 of 2",
        "predicted rows alone: 1 of 1",
        "rows: 0 fitted, 1 hand-set, 1 predicted",
        "hs22-ixgbe: 3 free costs fitted to 4 rows, 9 constants by hand",
    ];
    place.run(&["reproduce", "Q05", "Q19", "--seeds", "2"]).expect(0, &said);
}
