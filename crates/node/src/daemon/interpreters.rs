//! Which program stands for a driver's interpreter on this machine.

use std::path::Path;

/// The variable that names the interpreter by which Oxiray was started here; the `oxiray` command of a Python
/// installation sets it.
const VARIABLE: &str = "OXIRAY_INTERPRETER";

/// The Python program that runs a module's `main`. Where this interpreter lacks Oxiray, the one by which Oxiray was started
/// here takes its place within the same process.
macro_rules! program {
    ($module:literal) => {
        concat!(
            "try:\n from ",
            $module,
            " import main\n",
            "except ImportError:\n",
            " import os, sys\n",
            " own = os.environ.get('OXIRAY_INTERPRETER')\n",
            " if not own or own == sys.executable:\n  raise\n",
            " os.execv(own, [own, '-c', 'from ",
            $module,
            " import main; main()'])\n",
            "main()\n",
        )
    };
}
pub(super) use program;

/// The interpreter by which Oxiray was started here; where that is not known, the one that is found by its name.
pub(super) fn own() -> String {
    std::env::var(VARIABLE).unwrap_or_else(|_| "python3".to_owned())
}

/// The interpreter itself where this machine has it, else the one by which Oxiray was started here. That the two are of
/// one minor version is seen to where they start to work.
pub(super) fn here(interpreter: &str) -> String {
    let own = std::env::var(VARIABLE).ok();
    chosen(interpreter, own.as_deref(), |path| Path::new(path).is_file())
}

fn chosen(interpreter: &str, own: Option<&str>, is_here: impl Fn(&str) -> bool) -> String {
    let is_missing = interpreter.starts_with('/') && !is_here(interpreter);
    own.filter(|own| is_missing && is_here(own)).unwrap_or(interpreter).to_owned()
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn only_a_path_that_is_missing_is_replaced_and_only_by_one_that_is_there() {
        let is_here = |path: &str| path.starts_with("/here/");
        for (asked, own, expected) in [
            ("/here/python", Some("/here/other"), "/here/python"),
            ("/there/python", Some("/here/other"), "/here/other"),
            ("/there/python", Some("/there/other"), "/there/python"),
            ("/there/python", None, "/there/python"),
            ("python3", Some("/here/other"), "python3"),
        ] {
            assert_eq!(chosen(asked, own, is_here), expected, "{asked} {own:?}");
        }
    }
}
