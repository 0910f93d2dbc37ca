//! Calls that are run again after an error.

use crate::LIMIT;
use oxiray::{Error, Items, Result, TaskOptions};

/// Counts attempts, whichever process makes them.
struct Attempts(u32);

#[oxiray::remote(num_cpus = 0)]
impl Attempts {
    pub fn new() -> Self {
        Self(0)
    }

    pub fn next(&mut self) -> u32 {
        self.0 += 1;
        self.0
    }
}

fn attempts() -> AttemptsHandle {
    Attempts::remote().unwrap()
}

fn made(attempts: &AttemptsHandle) -> u32 {
    attempts.next().unwrap().get_timeout(LIMIT).unwrap() - 1
}

#[oxiray::remote(max_retries = 3, retry_exceptions = true)]
fn succeeds_at(attempt: u32, attempts: AttemptsHandle, panics: bool) -> Result<u32> {
    let number = attempts.next()?.get()?;
    assert!(number >= attempt || !panics, "attempt {number} breaks down");
    if number < attempt {
        return Err(Error::Invalid(format!("attempt {number} failed")));
    }
    Ok(number)
}

pub(crate) fn a_task_is_run_again_after_an_error_or_a_panic() {
    for panics in [false, true] {
        let succeeds = succeeds_at::remote(4, attempts(), panics).unwrap();
        assert_eq!(succeeds.get_timeout(LIMIT).unwrap(), 4);
    }
}

pub(crate) fn a_task_is_run_as_often_as_its_retries_allow() {
    let counted = attempts();
    let error = succeeds_at::remote(9, counted.clone(), false).unwrap().get_timeout(LIMIT).unwrap_err();
    assert!(error.to_string().contains("attempt 4 failed"), "the last one's error: {error}");
    assert_eq!(made(&counted), 4);
    for options in [TaskOptions::new().max_retries(0), TaskOptions::new().retry_exceptions(false)] {
        let counted = attempts();
        let once = succeeds_at::remote_with(options, 9, counted.clone(), false).unwrap();
        assert!(once.get_timeout(LIMIT).is_err());
        assert_eq!(made(&counted), 1);
    }
}

#[oxiray::remote(retry_exceptions = true)]
fn numbers_up_to(count: u32, attempts: AttemptsHandle) -> Result<impl Iterator<Item = Result<u32>>> {
    let attempt = attempts.next()?.get()?;
    Ok((0..count).map(move |number| if number < attempt { Ok(number) } else { Err(Error::Invalid("no more".into())) }))
}

pub(crate) fn a_generator_that_is_retried_yields_each_item_once() {
    let items: Items<u32> = numbers_up_to::remote(3, attempts()).unwrap();
    let read: Vec<u32> = items.map(|item| item.unwrap().get_timeout(LIMIT).unwrap()).collect();
    assert_eq!(read, [0, 1, 2]);
}

/// Fails until it was called so often.
struct Stubborn {
    calls: u32,
}

#[oxiray::remote(num_cpus = 0, max_task_retries = 2)]
impl Stubborn {
    pub fn new() -> Self {
        Self { calls: 0 }
    }

    fn attempt(&mut self, wanted: u32) -> Result<u32> {
        self.calls += 1;
        if self.calls < wanted { Err(Error::Invalid(format!("call {}", self.calls))) } else { Ok(self.calls) }
    }

    #[oxiray::remote(retry_exceptions = true)]
    pub fn retried(&mut self, wanted: u32) -> Result<u32> {
        self.attempt(wanted)
    }

    pub fn plain(&mut self, wanted: u32) -> Result<u32> {
        self.attempt(wanted)
    }

    #[oxiray::remote(retry_exceptions = true)]
    pub fn items(&mut self, count: u32) -> impl Iterator<Item = Result<u32>> {
        self.calls += 1;
        let calls = self.calls;
        (0..count).map(move |number| if number < calls { Ok(number) } else { Err(Error::Invalid("no more".into())) })
    }
}

pub(crate) fn a_method_is_run_again_in_its_place() {
    let stubborn = Stubborn::remote().unwrap();
    // What was called behind it comes after its last attempt.
    let (retried, behind) = (stubborn.retried(3).unwrap(), stubborn.plain(0).unwrap());
    assert_eq!((retried.get_timeout(LIMIT).unwrap(), behind.get_timeout(LIMIT).unwrap()), (3, 4));
    let error = stubborn.retried(9).unwrap().get_timeout(LIMIT).unwrap_err();
    assert!(error.to_string().contains("call 7"), "of three attempts, the last one's error: {error}");
    assert!(stubborn.plain(9).unwrap().get_timeout(LIMIT).is_err());
    assert_eq!(stubborn.plain(0).unwrap().get_timeout(LIMIT).unwrap(), 9, "it is not said of this method");
    let stubborn = Stubborn::remote().unwrap();
    let read: Vec<u32> = stubborn.items(3).unwrap().map(|item| item.unwrap().get_timeout(LIMIT).unwrap()).collect();
    assert_eq!(read, [0, 1, 2], "items that have arrived are not sent again");
}
