//! The variables that tell a process which devices are its own: reading the lists in them and writing them.
//!
//! 1. `VISIBILITY-1`: an entry of a list is kept as it stands, whatever it is (`3`, ` 3`, `GPU-5a…`, `MIG-…`): only the
//!    vendor's library knows what it means.
//! 2. `VISIBILITY-2`: devices are written in the order of their slots, never in another.

/// Reads one variable of an environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Variables to set (`Some`) and to remove (`None`).
pub type Changes = Vec<(String, Option<String>)>;

/// How a process is shown its devices of a family.
pub struct Visibility {
    /// The variables that list a process its devices: two where the vendor's library filters twice.
    pub variables: &'static [&'static str],
    /// Those of them whose lists may be joined, where the processes of one group on a machine are to see each other's
    /// devices.
    pub joined: &'static [&'static str],
    /// Variables that say more about the devices in the list.
    pub companions: &'static [&'static str],
    /// Variables that ask, when on, not to write [`Visibility::variables`].
    pub opt_outs: &'static [&'static str],
    /// Whether the lists may have UUIDs in place of numbers.
    pub lists_uuids: bool,
    /// What `RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO` writes for a process without devices; `None` removes the variables.
    pub hidden: Option<&'static str>,
    /// The devices that the variables of an environment list; `None` where they list nothing.
    pub preset: fn(Lookup<'_>) -> Option<Preset>,
    /// The variables that show a process the devices assigned to it.
    pub show: fn(&Assignment<'_>) -> Changes,
}

/// What Ray writes into a list to say that there is no device.
const NO_DEVICES: &str = "NoDevFiles";

/// A list of devices that the environment prescribes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Preset {
    /// The variable that lists them.
    pub variable: &'static str,
    /// The devices, as they are listed.
    pub ids: Vec<String>,
    /// What the user should know about how the list was read.
    pub warning: Option<String>,
}

impl Preset {
    /// A list that was read without trouble.
    pub fn new(variable: &'static str, ids: Vec<String>) -> Self {
        Self { variable, ids, warning: None }
    }
}

/// The devices that one process gets of one family.
pub struct Assignment<'a> {
    /// What the vendor's library calls them, by slot.
    pub ids: &'a [String],
    /// How many devices of the family the machine really has; zero where they exist in name only.
    pub detected: usize,
}

impl Assignment<'_> {
    /// The ids as a list.
    pub fn joined(&self) -> String {
        self.ids.join(",")
    }

    /// The ids that the devices have behind a filter that lets only these through.
    pub fn ordinals(&self) -> String {
        (0..self.ids.len()).map(|ordinal| ordinal.to_string()).collect::<Vec<_>>().join(",")
    }
}

/// Whether a flag is on: only `1` and `true`, in any case, are.
pub fn is_on(environment: Lookup<'_>, flag: &str) -> bool {
    environment(flag).is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
}

/// The entries of a list. Blank entries are no devices, and as in the vendors' libraries a negative number ends the
/// list, so that the customary `-1` lists none.
pub(crate) fn entries(list: &str) -> Vec<String> {
    if list.trim() == NO_DEVICES {
        return Vec::new();
    }
    list.split(',')
        .take_while(|entry| !entry.trim().parse::<i64>().is_ok_and(|number| number < 0))
        .filter(|entry| !entry.trim().is_empty())
        .map(str::to_owned)
        .collect()
}

/// The list in one variable; `None` where it is not set.
pub(crate) fn listed(environment: Lookup<'_>, variable: &'static str) -> Option<Preset> {
    environment(variable).map(|list| Preset::new(variable, entries(&list)))
}

/// Two variables that filter one after the other: `inner` numbers what `outer` lets through.
///
/// Equal lists mean one list, written twice. Otherwise entries of `inner` that are positions in `outer` are looked up
/// there, as the vendor's library does; where they are not, `inner` is taken at its word.
pub(crate) fn nested(outer: &Preset, inner: Preset) -> Preset {
    if outer.ids == inner.ids {
        return inner;
    }
    let behind: Option<Vec<String>> =
        inner.ids.iter().map(|entry| outer.ids.get(entry.trim().parse::<usize>().ok()?).cloned()).collect();
    let (ids, meaning) = match behind {
        Some(ids) => (ids, format!("taken as positions in {}", outer.variable)),
        None => (inner.ids.clone(), format!("and {} is ignored", outer.variable)),
    };
    let warning = format!(
        "{} lists ({}) and {} lists ({}): the second is {}, which gives ({}); set only one of them",
        outer.variable,
        outer.ids.join(", "),
        inner.variable,
        inner.ids.join(", "),
        meaning,
        ids.join(", ")
    );
    Preset { variable: inner.variable, ids, warning: Some(warning) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let cases: &[(&str, &[&str])] = &[
            ("1,3", &["1", "3"]),
            ("1, 3", &["1", " 3"]),
            ("", &[]),
            ("NoDevFiles", &[]),
            ("-1", &[]),
            ("0,-1,2", &["0"]),
            ("1,", &["1"]),
            ("GPU-5a1f,MIG-77/1/0", &["GPU-5a1f", "MIG-77/1/0"]),
        ];
        for (list, expected) in cases {
            assert_eq!(entries(list), *expected, "{list:?}");
        }
    }

    #[test]
    fn only_one_and_true_are_on() {
        for (value, expected) in
            [("1", true), ("true", true), ("TRUE", true), ("0", false), ("", false), ("yes", false), (" 1", false)]
        {
            assert_eq!(is_on(&|_| Some(value.to_owned()), "FLAG"), expected, "{value:?}");
        }
        assert!(!is_on(&|_| None, "FLAG"));
    }

    fn preset(variable: &'static str, ids: &[&str]) -> Preset {
        Preset::new(variable, ids.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn nested_filters() {
        let same = nested(&preset("OUTER", &["1", "3"]), preset("INNER", &["1", "3"]));
        assert_eq!((same.ids, same.warning), (vec!["1".to_owned(), "3".to_owned()], None));

        let behind = nested(&preset("OUTER", &["4", "6"]), preset("INNER", &["1"]));
        assert_eq!(behind.ids, ["6"]);
        assert!(behind.warning.unwrap().contains("positions in OUTER"));

        let outside = nested(&preset("OUTER", &["0"]), preset("INNER", &["1", "3"]));
        assert_eq!(outside.ids, ["1", "3"]);
        assert!(outside.warning.unwrap().contains("OUTER is ignored"));
    }
}
