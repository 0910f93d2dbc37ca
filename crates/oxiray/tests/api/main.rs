//! What the API does, as a program of its own sees it, on a private cluster.
//!
//! It brings its own loop in place of the usual one for tests: workers are this program, and the usual one has threads
//! before `init()` could be called. What is named after `--` selects checks by a part of their names.
//!
//! ```text
//! cancelling.rs   calls that nobody wants any more
//! control.rs   placement groups, waiting, killing
//! environment.rs   folders that go with the program
//! errors.rs    errors as their callers have them
//! results.rs   items that come one by one, several results, groups of methods
//! retrying.rs  calls that are run again after an error
//! stacks.rs    where the threads of workers and of this program are
//! values.rs    values that are read in place, references inside of values
//! workers.rs   forked ones, and started ones
//! ```

#![expect(clippy::print_stdout, reason = "it says what passed, as tests do")]
#![expect(clippy::unwrap_used, reason = "a check may fail")]
#![expect(unreachable_pub, reason = "the public methods of an actor are what its handle offers")]

mod cancelling;
mod control;
mod environment;
mod errors;
mod results;
mod retrying;
mod stacks;
mod values;
mod workers;

use oxiray::Builder;
use std::process::ExitCode;
use std::time::Duration;

/// How long anything may take on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(120);
/// What must not have happened yet is looked at for so long.
const MOMENT: Duration = Duration::from_millis(100);

type Check = (&'static str, fn());

/// A check that is named as its function is.
macro_rules! checks {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name as fn())),*]
    };
}

const CHECKS: &[Check] = checks![
    control::a_placement_group_is_granted_whole_and_given_back,
    control::memory_of_a_gpu_is_asked_for_in_bytes,
    control::wait_returns_those_that_are_there,
    control::wait_takes_items_and_references,
    cancelling::a_running_task_that_asks_is_cancelled,
    cancelling::a_task_that_waits_is_cancelled,
    cancelling::force_ends_a_task_that_never_asks,
    cancelling::the_waits_of_a_cancelled_call_end,
    cancelling::an_async_call_is_dropped_where_it_awaits,
    cancelling::an_async_call_is_within_tokio_where_that_is_asked_for,
    cancelling::what_a_call_has_called_goes_with_it_or_on,
    environment::a_folder_goes_where_the_call_runs,
    environment::what_cannot_be_shipped_is_refused,
    control::a_killed_actor_is_made_anew_or_gone,
    control::options_that_make_no_sense_are_refused,
    errors::an_error_of_the_programs_own_arrives_whole,
    errors::an_error_of_a_call_within_a_call_is_there_below,
    errors::each_kind_of_error_is_told_from_the_others,
    errors::what_cannot_travel_is_told_in_words,
    results::items_come_one_by_one,
    results::an_error_is_the_last_item,
    results::a_generator_waits_for_its_reader_and_ends_with_it,
    results::a_generator_that_is_run_again_yields_each_item_once,
    results::methods_yield_and_have_several_results,
    results::several_results_are_references_of_their_own,
    results::a_concurrency_group_has_threads_of_its_own,
    retrying::a_task_is_run_again_after_an_error_or_a_panic,
    retrying::a_task_is_run_as_often_as_its_retries_allow,
    retrying::a_generator_that_is_retried_yields_each_item_once,
    retrying::a_method_is_run_again_in_its_place,
    stacks::each_thread_is_shown_where_it_is,
    stacks::who_waits_in_the_kernel_goes_on,
    stacks::a_program_s_own_handler_is_left_as_it_is,
    values::large_values_are_read_in_the_store,
    values::references_nest,
    values::arguments_may_have_any_names,
    workers::are_forked_from_a_template_with_one_thread,
    workers::are_started_anew_where_the_template_has_threads,
    workers::are_forked_beside_a_thread_that_has_fork_handlers,
];

/// Lets nobody pass until it is opened.
struct Gate {
    state: std::sync::Mutex<(u32, bool)>,
    moved: std::sync::Condvar,
}

#[oxiray::remote(num_cpus = 0, max_concurrency = 8)]
impl Gate {
    pub fn new() -> Self {
        Self { state: std::sync::Mutex::new((0, false)), moved: std::sync::Condvar::new() }
    }

    /// Comes to the gate, and waits until it is open.
    pub fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.moved.notify_all();
        while !state.1 {
            state = self.moved.wait(state).unwrap();
        }
    }

    /// Waits until so many have come.
    pub fn come(&self, count: u32) {
        let mut state = self.state.lock().unwrap();
        while state.0 < count {
            state = self.moved.wait(state).unwrap();
        }
    }

    pub fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.moved.notify_all();
    }
}

/// A gate that is there: calls from elsewhere find it.
fn gate() -> GateHandle {
    let gate = Gate::remote().unwrap();
    gate.come(0).unwrap().get_timeout(LIMIT).unwrap();
    gate
}

fn main() -> ExitCode {
    workers::prepare();
    let cluster = Builder::new()
        .address("local")
        .num_cpus(4.0)
        .num_gpus(1.0)
        .gpu_memory(16 << 30)
        .object_store_memory(256 << 20)
        .init()
        .unwrap();
    if workers::is_inner() {
        return workers::show();
    }
    let selected = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let (mut passed, mut failed) = (0, 0);
    for (name, check) in CHECKS.iter().filter(|(name, _)| name.contains(&selected)) {
        let holds = std::panic::catch_unwind(check).is_ok();
        println!("test {name} ... {}", if holds { "ok" } else { "FAILED" });
        if holds { passed += 1 } else { failed += 1 }
    }
    drop(cluster);
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let filtered = CHECKS.len() - passed - failed;
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
