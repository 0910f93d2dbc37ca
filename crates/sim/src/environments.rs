//! Environments that are made before a worker starts in them, as the process that makes one does it: in its time, or not.

use crate::agenda::{Event, MILLISECOND, SECOND};
use crate::world::{NodeIndex, World};

/// What programs ask for.
const PREPARATIONS: [&str; 3] = ["one", "two", "three"];
/// The longest that one takes.
const LONGEST: u64 = 8 * SECOND;

impl World {
    /// What must be made before a task can begin, mostly nothing.
    pub(crate) fn some_preparation(&mut self) -> String {
        if !self.options.has_environments || self.chance.odds(700) {
            return String::new();
        }
        self.chance.one_of(&PREPARATIONS).to_owned()
    }

    /// A node starts the process that makes an environment.
    pub(crate) fn prepare(&mut self, node: NodeIndex, number: u64) {
        let at = self.now + self.chance.delay(300 * MILLISECOND).min(LONGEST);
        self.agenda.plan(at, Event::Prepared { node, number });
    }

    /// That process is over.
    pub(crate) fn prepared(&mut self, node: NodeIndex, number: u64) {
        if !self.nodes[node].is_alive {
            return;
        }
        let result = if self.chance.odds(300) { Err("there is no such package".to_owned()) } else { Ok(Vec::new()) };
        self.log.line(self.now, format_args!("node {node}: preparation {number} ends, {result:?}"));
        self.nodes[node].core.prepared(number, result);
    }
}
