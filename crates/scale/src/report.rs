//! The measurements as a table.

use crate::Arguments;
use crate::run::{Latencies, Row};
use std::fmt::Write as _;
use std::time::Duration;

const EXPECT: &str = "writing to a string does not fail";
const HEADS: &str = "\
| members | actors | groups | queued requests | memory: head alone | and members | and actors, groups | and queue | \
share of one processor, idle | members joined/s | actors made/s | groups created/s | requests queued/s | \
placement alone: median | 99.9 % | from the queue: median | 99.9 % |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|";

/// A row of the table.
pub(crate) fn line(row: &Row) -> String {
    let mut text = format!("| {} | {} | {} | {} |", row.members, row.actors, row.groups, row.queued);
    for bytes in row.memory {
        write!(text, " {:.1} MB |", bytes as f64 / 1e6).expect(EXPECT);
    }
    write!(text, " {:.1} % |", row.idle_share * 100.0).expect(EXPECT);
    for rate in row.rates {
        write!(text, " {rate:.0} |").expect(EXPECT);
    }
    for Latencies { median, p999 } in [row.alone, row.queue] {
        write!(text, " {} | {} |", micros(median), micros(p999)).expect(EXPECT);
    }
    text
}

fn micros(time: Duration) -> String {
    format!("{:.0} µs", time.as_secs_f64() * 1e6)
}

/// The document.
pub(crate) fn page(arguments: &Arguments, rows: &[Row]) -> String {
    let rows: Vec<String> = rows.iter().map(line).collect();
    format!(
        "# A head with many members

`make bench-scale`: a real head, started by `oxiray start --head`, with members that one program plays: each joins over TLS
on loopback, has the real core of a node with its own ledger, answers each order, dials each connection that the head asks
for, and says ten words in each lease of 10 s; its workers exist by name only. Every member holds {} actors and {} placement group of one bundle. Placement is timed
{} times from the driver's request to the grant with room and an empty queue, and as often from the return of a worker to
the grant for one of the requests that wait. The head, all members and the driver share this machine's processors, so that
latencies contain the members' work too.

{HEADS}
{}

Ray's published scalability envelope, measured by its authors on clusters of real machines: 2,000 nodes, 40,000 actors,
10,000 tasks that run at once and 1,000 placement groups in one cluster; 1,000,000 tasks queued on one node. It names no
latencies and no memory of the head.
",
        arguments.actors,
        arguments.groups,
        arguments.samples,
        rows.join("\n")
    )
}
