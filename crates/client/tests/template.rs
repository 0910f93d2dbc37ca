//! A template against a daemon that the test plays.
//!
//! It brings its own loop in place of the usual one for tests: what dies in this process is heard of by the thread that is
//! the template, which must be the first.

#![expect(clippy::print_stdout, reason = "it says what passed, as tests do")]
#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]

use oxiray_client::template::{TemplateService, WorkerWanted};
use oxiray_processes::{Start, children_of};
use oxiray_wire::message::{DeviceNumber, Fork, Forked};
use oxiray_wire::{Connection, Message, Received};
use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, PipeReader, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(60);
/// What each worker runs, by the number of its request.
const SCRIPTS: [&str; 4] = ["", "echo said; echo complained >&2; exit 3", "", "echo born; sleep 1000 & sleep 1000"];

struct Daemon {
    connection: Connection,
    inbox: VecDeque<Received>,
}

impl Daemon {
    fn next(&mut self) -> Received {
        if let Some(received) = self.inbox.pop_front() {
            return received;
        }
        let until = Some(Instant::now() + LIMIT);
        let (first, others) =
            self.connection.first_message(until).expect("the stream lives").expect("something is said");
        self.inbox.extend(others);
        first
    }

    /// Asks for a worker with so many descriptors; the readers of those.
    fn ask(&mut self, request: u64, count: usize, even_with_devices: bool) -> Vec<PipeReader> {
        let (readers, writers): (Vec<PipeReader>, Vec<OwnedFd>) = (0..count)
            .map(|_| io::pipe().expect("a pipe"))
            .map(|(reader, writer)| (reader, OwnedFd::from(writer)))
            .unzip();
        let devices = vec![DeviceNumber { major: 1, minor: 7 }, DeviceNumber { major: 195, minor: 0 }];
        let fork = Fork { request, groups: vec!["a group".into()], fences: Vec::new(), devices, even_with_devices };
        self.connection.send_with(&fork.into(), writers);
        assert!(self.connection.flush().expect("sent"));
        readers
    }

    fn forked(&mut self) -> (Forked, Vec<OwnedFd>) {
        match self.next() {
            Received { message: Message::Forked(forked), descriptors } => (forked, descriptors),
            other => panic!("a worker was expected, not {other:?}"),
        }
    }
}

fn start(wanted: &WorkerWanted) -> io::Result<u32> {
    let [stream, output, errors] = &wanted.descriptors;
    let start = Start {
        program: Path::new("/bin/sh"),
        arguments: &["-c", SCRIPTS[wanted.request as usize]],
        variables: std::env::vars_os().collect(),
        descriptors: &[(output.as_fd(), 1), (errors.as_fd(), 2), (stream.as_fd(), 3)],
        in_own_session: false,
    };
    start.start()
}

/// Asks for workers, and goes away while one of them lives.
fn play(connection: Connection) {
    let mut daemon = Daemon { connection, inbox: VecDeque::new() };
    let first = daemon.next().message;
    assert!(
        matches!(&first, Message::TemplateReady(ready) if ready.started_us == 7 && ready.notice == "a notice"),
        "{first:?}"
    );

    // TEMPLATE-3: it has /dev/full open. It says so once, and gives orders back.
    drop(daemon.ask(1, 3, false));
    let held = daemon.next().message;
    let number = Some(DeviceNumber { major: 1, minor: 7 });
    assert!(
        matches!(&held, Message::TemplateHolds(held) if held.path == "/dev/full" && held.number == number),
        "{held:?}"
    );
    for _ in 0..2 {
        let (refused, ends) = daemon.forked();
        assert_eq!((refused.request, refused.pid, refused.is_given_back, ends.len()), (1, 0, true, 3));
        drop(daemon.ask(1, 3, false));
    }
    assert!(daemon.forked().0.is_given_back);

    // One that ends by itself, of which the template has kept nothing open.
    let readers = daemon.ask(1, 3, true);
    let (forked, pidfds) = daemon.forked();
    assert_eq!((forked.request, forked.text.as_str(), forked.is_given_back, pidfds.len()), (1, "", false, 1));
    let said = readers.into_iter().map(|mut reader| {
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        text
    });
    assert_eq!(said.collect::<Vec<_>>(), ["", "said\n", "complained\n"]);
    let gone = daemon.next().message;
    assert!(matches!(&gone, Message::Gone(gone) if gone.pid == forked.pid && gone.status == 3 << 8), "{gone:?}");

    // TEMPLATE-2: one that cannot be made is told of, and the next one is made.
    daemon.ask(2, 2, true);
    let (refused, pidfds) = daemon.forked();
    assert_eq!((refused.request, refused.pid, pidfds.len()), (2, 0, 0));
    assert!(refused.text.contains("three descriptors"), "{}", refused.text);
    let mut readers = daemon.ask(3, 3, true);
    assert_eq!(daemon.forked().0.request, 3);
    let mut line = String::new();
    BufReader::new(readers.remove(1)).read_line(&mut line).expect("text");
    assert_eq!(line, "born\n");
}

const NAME: &str = "a_template_tells_of_each_worker_and_outlives_nobody";

fn main() {
    let is_given = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    if is_given("--list") {
        // None is to be left out.
        if !is_given("--ignored") {
            println!("{NAME}: test");
        }
        return;
    }
    let (near, far) = Connection::pair().expect("a pair");
    let mut template = TemplateService::begin(far, Duration::from_micros(7), "a notice".into()).expect("it begins");
    let _device = std::fs::File::open("/dev/full").expect("it opens");
    let daemon = std::thread::spawn(move || play(near));
    while let Some(wanted) = template.next_wanted() {
        assert_eq!(wanted.groups, ["a group"]);
        template.tell(wanted.request, start(&wanted));
    }
    daemon.join().expect("the daemon had what it asked for");
    // TEMPLATE-1.
    assert_eq!(children_of(std::process::id()), [0; 0]);
    println!("test {NAME} ... ok");
    println!("\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n");
}
