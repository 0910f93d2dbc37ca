//! Exceptions of the controller `devices` of cgroup v1.

use crate::node::NodeKind;
use crate::{DenyList, DenyRule, FenceError};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::fs;
use std::path::Path;

/// Has a cgroup refuse what is in `new`, where so far it refuses what is in `old`. What is refused from now on comes
/// first, so that meanwhile it refuses both (FENCE-2).
pub(crate) fn exchange(directory: &Path, old: &DenyList, new: &DenyList) -> Result<(), FenceError> {
    for rule in new.rules().iter().filter(|rule| !old.rules().contains(rule)) {
        write(directory, "devices.deny", *rule)?;
    }
    let file = directory.join("devices.list");
    let list =
        fs::read_to_string(&file).map_err(|error| FenceError::of_cgroup(format!("read {}", file.display()), error))?;
    if let Some(entry) = still_allowed(&list, new) {
        return Err(FenceError::StillAllowed { directory: directory.to_owned(), entry: entry.to_owned() });
    }
    for rule in old.rules().iter().filter(|rule| !new.rules().contains(rule)) {
        match write(directory, "devices.allow", *rule) {
            // The cgroup above refuses it, and what that one refuses stays refused (FENCE-3).
            Err(FenceError::Refused { error: Errno::PERM, .. }) => {}
            other => other?,
        }
    }
    Ok(())
}

fn write(directory: &Path, name: &str, rule: DenyRule) -> Result<(), FenceError> {
    let file = directory.join(name);
    fs::write(&file, format!("{rule} rwm")).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::PERM) => FenceError::not_permitted(
            "refusing a device in a cgroup v1",
            &[(CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN")],
            "start as root",
        ),
        _ => FenceError::of_cgroup(format!("write {}", file.display()), error),
    })
}

/// The entry of `devices.list` that lets through what is to be refused. Where all is allowed but for exceptions, the
/// kernel lists no exceptions, and each of ours holds. Where only some is allowed, it takes away exact entries alone.
fn still_allowed<'a>(list: &'a str, denied: &DenyList) -> Option<&'a str> {
    list.lines().find(|entry| {
        let mut fields = entry.split([' ', ':']);
        let kind = match fields.next() {
            Some("c") => NodeKind::Char,
            Some("b") => NodeKind::Block,
            _ => return false,
        };
        let mut number = || fields.next().and_then(|number| number.parse::<u32>().ok());
        let (major, minor) = (number(), number());
        let meets = |one: Option<u32>, other: Option<u32>| one.is_none() || other.is_none() || one == other;
        denied
            .rules()
            .iter()
            .any(|rule| rule.kind == kind && meets(Some(rule.major), major) && meets(rule.minor, minor))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(minor: Option<u32>) -> DenyList {
        DenyList::new([DenyRule { kind: NodeKind::Char, major: 195, minor }]).expect("one rule")
    }

    #[test]
    fn an_entry_that_is_broader_than_what_is_refused_is_found() {
        for (list, minor, found) in [
            ("a *:* rwm\n", Some(1), None),
            ("c 1:3 rwm\nc 195:* rwm\n", Some(1), Some("c 195:* rwm")),
            ("c *:* m\nb 195:1 rwm\n", Some(1), Some("c *:* m")),
            ("c *:1 rw\n", Some(1), Some("c *:1 rw")),
            ("c 195:0 rwm\nc 195:2 rwm\nb *:* rwm\n", Some(1), None),
            ("c 195:2 rwm\n", None, Some("c 195:2 rwm")),
            ("", None, None),
        ] {
            assert_eq!(still_allowed(list, &denied(minor)), found, "{list}");
        }
    }

    #[test]
    fn what_is_refused_is_written_before_what_is_allowed_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let list = folder.path().join("devices.list");
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).ok();
        fs::write(&list, "a *:* rwm\n").expect("written");
        exchange(folder.path(), &denied(Some(1)), &denied(Some(2))).expect("exchanged");
        assert_eq!(read("devices.deny").as_deref(), Some("c 195:2 rwm"));
        assert_eq!(read("devices.allow").as_deref(), Some("c 195:1 rwm"));

        fs::remove_file(folder.path().join("devices.allow")).expect("removed");
        fs::write(&list, "c 195:* rwm\n").expect("written");
        let error = exchange(folder.path(), &denied(Some(2)), &denied(Some(3))).expect_err("it takes nothing away");
        assert!(matches!(&error, FenceError::StillAllowed { entry, .. } if entry == "c 195:* rwm"), "{error}");
        assert_eq!(read("devices.allow"), None);
    }
}
