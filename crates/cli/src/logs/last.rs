//! The last lines of an actor or a task, from all nodes at once: one that does not answer keeps nothing back but its own files.

use super::{Found, Source, parts, read_one, title};
use crate::visit;
use oxiray_ids::NodeId;
use oxiray_visitor::{FoundSession, Question as _, VisitError, Visitor, json};
use oxiray_wire::message::{DaemonToVisitor, ListedLog, LogAction, LogAnswer, LogQuery, LogSelector, StateQuery};
use oxiray_wire::state::StateKind;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most nodes that are asked for files.
const NODES_MAX: u32 = 10_000;
/// How many nodes are asked at the same time: the head lets few thousand questions wait.
const ASKED_AT_ONCE: usize = 1_000;
/// The most files of which the last lines are shown together.
const FILES_SHOWN_MAX: usize = 16;
/// How long nodes may take: somebody looks at a screen that waits for this.
const NODES_LIMIT: Duration = Duration::from_secs(5);
/// How many of the nodes that did not answer are named.
const NAMED_MAX: usize = 8;

/// The last lines that the task or the processes of the actor with this identifier printed, wherever they ran: of each file that has
/// some at most so many lines and bytes, under its name.
pub(crate) fn last_lines(
    found: &FoundSession,
    wanted: &LogSelector,
    (lines, bytes_max): (u32, usize),
) -> anyhow::Result<Vec<String>> {
    let mut visitor = visit::begin_reading(found)?;
    let filters = vec![json::filter("state".into(), false, "ALIVE".into())];
    let asked = StateQuery { kind: StateKind::Nodes, filters, limit: NODES_MAX, ..StateQuery::default() };
    let told = visitor.ask(asked, visit::ANSWER_LIMIT)?;
    json::check(told.version)?;
    let nodes: Vec<NodeId> = told.tables.into_iter().flat_map(|tables| tables.nodes).map(|row| row.node_id).collect();
    let Listed { mut files, mut without } = listed(&mut visitor, &nodes, wanted, NODES_LIMIT)?;
    files.sort_by_key(|found| found.part.as_ref().map(|part| (part.attempt, part.from)));
    let mut source = Source::Cluster(Box::new(visitor), NODES_LIMIT);
    let mut shown = Vec::new();
    for one in files.iter().rev().take(FILES_SHOWN_MAX).rev() {
        if one.node.is_some_and(|node| without.contains_key(&node)) {
            continue;
        }
        let mut bytes = Vec::new();
        let read = read_one(&mut source, one, lines.into(), |piece| {
            bytes.extend_from_slice(piece);
            bytes.drain(..bytes.len().saturating_sub(bytes_max));
            Ok(())
        });
        match (read, one.node) {
            (Err(error), Some(node)) => drop(without.insert(node, format!("{error:#}"))),
            (read, _) => drop(read?),
        }
        if !bytes.is_empty() {
            shown.push(title(one));
            shown.extend(String::from_utf8_lossy(&bytes).lines().map(str::to_owned));
        }
    }
    if shown.is_empty() {
        let by = if without.is_empty() { "" } else { " by the nodes that answered" };
        shown.push(format!("nothing that it printed is kept{by}"));
    }
    shown.extend(in_words(&without));
    Ok(shown)
}

/// What nodes have of it.
#[derive(Debug, Default)]
struct Listed {
    files: Vec<Found>,
    /// Those of which nothing is known, and why.
    without: BTreeMap<NodeId, String>,
}

/// A node that is asked, and the files that it told of so far.
struct Asked {
    node: NodeId,
    files: Vec<ListedLog>,
}

/// Asks all of them at once. Whoever has not answered within the limit is passed over.
fn listed(
    visitor: &mut Visitor,
    nodes: &[NodeId],
    wanted: &LogSelector,
    limit: Duration,
) -> Result<Listed, VisitError> {
    let until = Instant::now() + limit;
    let (mut listed, mut waiting) = (Listed::default(), BTreeMap::new());
    let mut next = nodes.iter().copied();
    loop {
        while waiting.len() < ASKED_AT_ONCE
            && let Some(node) = next.next()
        {
            ask(visitor, Asked { node, files: Vec::new() }, wanted, &mut waiting)?;
        }
        if waiting.is_empty() {
            return Ok(listed);
        }
        match visitor.next(until)? {
            Some(DaemonToVisitor::Refused(said)) => return Err(VisitError::Refused(said.text)),
            // In place of an answer that no frame can carry.
            Some(DaemonToVisitor::StoreRefused(said)) => {
                if let Some(asked) = waiting.remove(&said.request) {
                    listed.without.insert(asked.node, said.failure.unwrap_or_default().text);
                }
            }
            Some(message) => {
                let Some((number, answer)) = LogQuery::answer(message) else { continue };
                let Some(asked) = waiting.remove(&number) else { continue };
                match answer {
                    Ok(LogAnswer { files, more, .. }) => {
                        let asked = Asked { files: [asked.files, files].concat(), ..asked };
                        if more {
                            ask(visitor, asked, wanted, &mut waiting)?;
                        } else {
                            let of_node = asked.files.into_iter().flat_map(|file| parts(Some(asked.node), file));
                            listed.files.extend(of_node);
                        }
                    }
                    Err(failure) => drop(listed.without.insert(asked.node, failure.text)),
                }
            }
            None => {
                let silent = waiting.into_values().map(|asked| asked.node).chain(next);
                let why = || format!("it did not answer within {} s", limit.as_secs_f64());
                listed.without.extend(silent.map(|node| (node, why())));
                return Ok(listed);
            }
        }
    }
}

/// Asks a node for its files, or for those after the ones that it told of.
fn ask(
    visitor: &mut Visitor,
    asked: Asked,
    wanted: &LogSelector,
    waiting: &mut BTreeMap<u64, Asked>,
) -> Result<(), VisitError> {
    let file = asked.files.last().map_or_else(String::new, |last| last.name.clone());
    let (request, node, wanted) = (visitor.new_number(), Some(asked.node), Some(wanted.clone()));
    visitor.send(LogQuery { request, action: LogAction::List, node, wanted, file, ..LogQuery::default() })?;
    waiting.insert(request, asked);
    Ok(())
}

/// Which nodes told nothing.
fn in_words(without: &BTreeMap<NodeId, String>) -> Vec<String> {
    let named = without.iter().take(NAMED_MAX);
    let mut lines: Vec<String> = named.map(|(node, why)| format!("what node {node} has is not shown: {why}")).collect();
    let rest = without.len() - lines.len();
    if rest > 0 {
        lines.push(format!("nor is what {rest} more nodes have"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::Connection;
    use oxiray_wire::message::{FailureCode, Message};

    #[test]
    fn a_node_that_is_silent_or_refuses_keeps_back_its_own_files_only() {
        let (mut daemon, stream) = Connection::pair().expect("a pair");
        let mut visitor = Visitor::greet_reading(stream, "secret".into()).expect("greeted");
        let answer = |request, name: &str, more| LogAnswer {
            request,
            files: vec![ListedLog { name: name.into(), ..ListedLog::default() }],
            more,
            ..LogAnswer::default()
        };
        let failure = Some(FailureCode::System.because("too many questions"));
        let refused = LogAnswer { request: 3, failure, ..LogAnswer::default() };
        // The first node, asked by question 1, has more files, which question 5 asks for.
        let said = [answer(1, "a.out", true), refused, answer(4, "d.out", false), answer(5, "b.out", false)];
        for message in said {
            daemon.send(&Message::from(message));
        }
        daemon.flush().expect("sent");
        let nodes = [1, 2, 3, 4].map(|byte| NodeId::new([byte; 28]));
        let told = listed(&mut visitor, &nodes, &LogSelector::default(), Duration::from_secs(1)).expect("answers");
        let names = told.files.iter().map(|found| (found.node, found.file.name.as_str()));
        let [first, silent, refusing, last] = nodes;
        let expected = [(Some(last), "d.out"), (Some(first), "a.out"), (Some(first), "b.out")];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        assert_eq!(
            in_words(&told.without),
            [
                format!("what node {silent} has is not shown: it did not answer within 1 s"),
                format!("what node {refusing} has is not shown: too many questions"),
            ]
        );
        let many = (0..20).map(|byte| (NodeId::new([byte; 28]), String::new())).collect();
        assert_eq!(in_words(&many).last().map(String::as_str), Some("nor is what 12 more nodes have"));
    }
}
