//! Programs that are started with descriptors under the numbers that they look for.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::iter::once;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null_mut;

/// A program to be started.
#[derive(Debug)]
pub struct Start<'a> {
    /// Its file.
    pub program: &'a Path,
    /// What follows its name.
    pub arguments: &'a [&'a str],
    /// Its whole environment.
    pub variables: Vec<(OsString, OsString)>,
    /// Descriptors, each with the number that it has there, standard streams first; others are closed where they close on
    /// exec.
    pub descriptors: &'a [(BorrowedFd<'a>, i32)],
    /// Whether it begins a session of its own, so that a terminal's signals do not reach it.
    pub in_own_session: bool,
}

impl Start<'_> {
    /// Starts it; the process, which is to be waited for. Nothing of this process's memory is copied, so that its size does
    /// not matter.
    ///
    /// # Errors
    /// Where the program cannot be run, or an argument or a variable has a zero byte.
    pub fn start(&self) -> io::Result<u32> {
        let program = text(self.program.as_os_str())?;
        let arguments: Vec<CString> = once(Ok(program.clone()))
            .chain(self.arguments.iter().map(|one| text(OsStr::new(one))))
            .collect::<Result<_, _>>()?;
        let variable = |(name, value): &(OsString, OsString)| text(&[name.as_os_str(), value].join(OsStr::new("=")));
        let variables: Vec<CString> = self.variables.iter().map(variable).collect::<Result<_, _>>()?;
        let mut actions = Actions::new()?;
        for (descriptor, number) in self.descriptors {
            // SAFETY: the actions were initialised; the call takes numbers otherwise.
            checked(unsafe {
                libc::posix_spawn_file_actions_adddup2(&raw mut actions.0, descriptor.as_raw_fd(), *number)
            })?;
        }
        let mut attributes = Attributes::new()?;
        if self.in_own_session {
            // SAFETY: the attributes were initialised; the call takes a number otherwise.
            checked(unsafe { libc::posix_spawnattr_setflags(&raw mut attributes.0, libc::POSIX_SPAWN_SETSID) })?;
        }
        let (arguments_of_c, variables_of_c) = (pointers(&arguments), pointers(&variables));
        let mut pid = 0;
        // SAFETY: all that is pointed to lives until the call returns, by when the child has its own copy; both lists end
        // with a null pointer, and the child's are never written to through them.
        checked(unsafe {
            libc::posix_spawn(
                &raw mut pid,
                program.as_ptr(),
                &raw const actions.0,
                &raw const attributes.0,
                arguments_of_c.as_ptr(),
                variables_of_c.as_ptr(),
            )
        })?;
        Ok(pid as u32)
    }
}

fn text(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

fn pointers(texts: &[CString]) -> Vec<*mut libc::c_char> {
    texts.iter().map(|text| text.as_ptr().cast_mut()).chain(once(null_mut())).collect()
}

/// These calls return what went wrong.
fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new() -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: the call writes to memory that is ours, and has initialised it where it succeeds.
        checked(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
        // SAFETY: it succeeded.
        Ok(Self(unsafe { actions.assume_init() }))
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: they were initialised, and nobody uses them any more.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the call writes to memory that is ours, and has initialised it where it succeeds.
        checked(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: it succeeded.
        Ok(Self(unsafe { attributes.assume_init() }))
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: they were initialised, and nobody uses them any more.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    /// What the shell's script prints, in an environment of one variable, and how it ends.
    fn run(script: &str, in_own_session: bool) -> (String, bool) {
        let (reader, writer) = io::pipe().expect("a pipe");
        let nothing = File::open("/dev/null").expect("it is always there");
        let start = Start {
            program: Path::new("/bin/sh"),
            arguments: &["-c", script],
            variables: vec![("WORD".into(), "a = b".into())],
            descriptors: &[(nothing.as_fd(), 0), (writer.as_fd(), 1), (writer.as_fd(), 5)],
            in_own_session,
        };
        let pid = start.start().expect("a shell");
        drop(writer);
        let mut said = String::new();
        (&reader).read_to_string(&mut said).expect("text");
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
        let (_, status) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())
            .expect("a child")
            .expect("its end");
        (said.trim().to_owned(), status.exit_status() == Some(0))
    }

    #[test]
    fn a_program_has_its_descriptors_its_variables_and_no_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let _kept = File::create(folder.path().join("kept-here")).expect("a file");
        let (said, is_well) = run("echo \"$WORD$HOME\" >&5; cat; ls -l /proc/self/fd", false);
        assert!(is_well, "{said}");
        let (first, rest) = said.split_once('\n').expect("more than one line");
        assert_eq!(first, "a = b");
        assert!(rest.contains(" 5 -> pipe:") && !rest.contains("kept-here"), "{rest}");
    }

    #[test]
    fn a_program_has_a_session_of_its_own_where_that_is_asked_for() {
        let session_of = |in_own_session| run("cut -d' ' -f6 /proc/$$/stat; echo $$", in_own_session).0;
        let own = session_of(true);
        let (session, pid) = own.split_once('\n').expect("two lines");
        assert_eq!(session, pid);
        let shared = session_of(false);
        let (session, pid) = shared.split_once('\n').expect("two lines");
        assert_ne!(session, pid);
    }

    #[test]
    fn what_cannot_be_run_is_told_at_once() {
        let start = |program, arguments| Start {
            program: Path::new(program),
            arguments,
            variables: Vec::new(),
            descriptors: &[],
            in_own_session: false,
        };
        let missing = start("/no/such/program", &[]).start().expect_err("it is missing");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let split = start("/bin/true", &["in two\0parts"]).start().expect_err("an argument ends there");
        assert_eq!(split.kind(), io::ErrorKind::InvalidInput);
    }
}
