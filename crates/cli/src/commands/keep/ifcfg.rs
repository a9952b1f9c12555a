//! The files of one interface of network-scripts (RHEL up to 9) and of wicked (SUSE), both called `ifcfg-IFACE`.

use latput_linux::RootFolder;
use latput_linux::files::TEXT_BYTES_MOST;

use super::udev_rules::UdevChanges;

const FOLDERS: [&str; 2] = ["/etc/sysconfig/network-scripts", "/etc/sysconfig/network"];

/// The file of an interface, with the changes that its reader makes.
pub(super) fn read_actions(root: &RootFolder, interface: &str) -> Option<(String, UdevChanges)> {
    let files = FOLDERS.iter().map(|folder| format!("{folder}/ifcfg-{interface}"));
    let mut texts =
        files.filter_map(|file| root.look_at(&file, TEXT_BYTES_MOST).map(|text| (file, text)));
    let (file, text) = texts.next()?;
    let mut actions = UdevChanges::default();
    for line in text.lines().map(str::trim) {
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = value.trim_matches(['"', '\'']);
        match key {
            "MTU" if !value.is_empty() => actions.add_mtu(value),
            // Several are parted by `;`; wicked numbers the variables.
            _ if key.starts_with("ETHTOOL_OP") => {
                for command in value.split(';') {
                    actions.add_command(&format!("ethtool {command}"));
                }
            }
            _ => {}
        }
    }
    Some((file, actions))
}
