//! Which program stands for a driver's interpreter on this machine.

use std::io;
use std::path::Path;
use std::process::Command;

/// The variable that names the interpreter by which Oxiray was started here; the `oxiray` command of a Python
/// installation sets it.
const VARIABLE: &str = "OXIRAY_INTERPRETER";
/// The variables that say where interpreters look for code before a program of theirs begins.
const SEARCH_PATHS: [&str; 2] = ["PYTHONPATH", "LD_LIBRARY_PATH"];

/// The Python program that runs a module's `main`. Where this interpreter lacks Oxiray, the one by which Oxiray was started
/// here takes its place within the same process.
///
/// It first takes off the import path what Python put there for it: the working directory, in which others may have left
/// an `oxiray.py`, or the folder that the program lies in.
macro_rules! program {
    ($module:literal) => {
        concat!(
            "import sys\n",
            "sys.path[:] = [path for path in sys.path if path not in ('', sys.argv[0].rpartition('/')[0])]\n",
            "try:\n from ",
            $module,
            " import main\n",
            "except ImportError:\n",
            " import os\n",
            " own = os.environ.get('OXIRAY_INTERPRETER')\n",
            " if not own or own == sys.executable:\n  raise\n",
            " os.execv(own, [own, '-c', 'import sys; sys.path[:] = filter(None, sys.path); from ",
            $module,
            " import main; main()'])\n",
            "main()\n",
        )
    };
}
pub(crate) use program;

/// What starts an interpreter, itself found outside of the working directory, and told to look for code elsewhere only.
pub(crate) fn command(interpreter: &str) -> io::Result<Command> {
    let mut command = Command::new(oxiray_processes::program(here(interpreter))?);
    for name in SEARCH_PATHS {
        if let Ok(value) = std::env::var(name) {
            command.env(name, safe_value(name, value));
        }
    }
    Ok(command)
}

/// What runs the `main` of a module of Oxiray's by the interpreter that Oxiray was started by.
///
/// # Errors
/// Where there is no such program.
pub fn python_command(module: &str) -> io::Result<Command> {
    let program = format!(
        "import sys\nsys.path[:] = [path for path in sys.path if path not in ('', sys.argv[0].rpartition('/')[0])]\n\
         from {module} import main\nmain()\n"
    );
    let mut command = command(&own())?;
    command.args(["-c", &program]);
    Ok(command)
}

/// The value of a variable for a process of Oxiray's: the working directory is on no search path.
pub(crate) fn safe_value(name: &str, value: String) -> String {
    if SEARCH_PATHS.contains(&name) { oxiray_processes::without_working_directory(&value) } else { value }
}

/// The interpreter by which Oxiray was started here; where that is not known, the one that is found by its name.
pub(crate) fn own() -> String {
    known().unwrap_or_else(|| "python3".to_owned())
}

fn known() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|own| !own.is_empty())
}

/// The interpreter itself where this machine has it, else the one by which Oxiray was started here. That the two are of
/// one minor version is seen to where they start to work.
fn here(interpreter: &str) -> String {
    chosen(interpreter, known().as_deref(), |path| Path::new(path).is_file())
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
