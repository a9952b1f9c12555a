//! Screens of commands that need rights: the lab, changes and what becomes of them.

use latput_testkit::{isolate, needs};

use crate::Place;
use crate::screen::WIDTHS;
use crate::screen::terminal::TerminalScreen;

#[needs("root")]
#[test]
fn lab_and_changes_hold_the_rules() {
    isolate();
    let place = Place::new();
    for columns in WIDTHS {
        let on_screen =
            |args: &[&str]| TerminalScreen::run(&place, columns, &[], args).hold_rules();
        on_screen(&["lab", "up"]);
        let in_lab = |args: &[&str]| {
            let words = [&["lab", "exec", "a", "--", crate::latput_path()], args].concat();
            TerminalScreen::run(&place, columns, &[], &words).hold_rules();
        };
        in_lab(&["show", "lat0"]);
        in_lab(&["set", "lat0", "mtu=1400", "gro-flush-timeout=50us", "napi-defer-hard-irqs=100"]);
        in_lab(&["set", "lat0", "mtu=1300", "--dry-run"]);
        in_lab(&["set", "lat0", "mtu=1", "txqueuelen=700"]);
        in_lab(&["log"]);
        in_lab(&["undo"]);
        in_lab(&["restore"]);
        in_lab(&["confirm"]);
        on_screen(&["lab", "down"]);
    }
}
