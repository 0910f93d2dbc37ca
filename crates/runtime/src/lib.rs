//! The in-process half of drivers and workers: references, ownership, submission, actor calls.
