//! The user who runs latput, for people to read.

use std::fs;

/// The user id of a process that no login has started.
const NO_LOGIN: u32 = u32::MAX;
/// Most bytes of a name.
const NAME_BYTES_MOST: usize = 64;

/// Name of the caller of sudo, else of the login, else of the user; its number where it has no name. Told by the
/// environment, and never trusted.
pub(crate) fn caller() -> String {
    let called_sudo = std::env::var("SUDO_USER").ok().filter(|name| is_name(name));
    called_sudo.unwrap_or_else(|| {
        let text = fs::read_to_string("/proc/self/loginuid").unwrap_or_default();
        let of_login = text.trim().parse().ok().filter(|&uid: &u32| uid != NO_LOGIN);
        let uid = of_login.unwrap_or_else(|| rustix::process::getuid().as_raw());
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        name_of(uid, &users).unwrap_or_else(|| format!("uid {uid}"))
    })
}

/// The name of a user in the text of `/etc/passwd` (passwd(5)).
fn name_of(uid: u32, users: &str) -> Option<String> {
    let name = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let is_meant = fields.nth(1)?.parse() == Ok(uid);
        (is_meant && is_name(&name)).then_some(name)
    };
    users.lines().find_map(name)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MOST && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_named_as_in_the_table() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\n\nbroken\nann:x:1000:1000::/:/bin/sh\n:x:7:7::/:\n";
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(1000, users).as_deref(), Some("ann"));
        assert_eq!(name_of(7, users), None);
        assert_eq!(name_of(8, users), None);
    }
}
