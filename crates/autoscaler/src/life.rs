//! The life of a replica, from the request for it until its machines are gone.
//!
//! ```text
//! requested ──▶ launched ──▶ joined ◀──▶ draining ──▶ terminating ──▶ terminated
//!    │  ▲           │           │                        ▲
//!    ▼  │           └───────────┴────────────────────────┘
//! unanswered                                          failed
//! ```
//!
//! - LIFE-1: machines that joined are taken away only from `draining`, when the head says that none of them is left; or
//!   when they died by themselves.
//! - LIFE-2: a request without an answer is made again under its name, so that an answer that comes late, or twice, brings
//!   no more than was asked for.

/// How far a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The provider was asked for it.
    Requested,
    /// The provider did not answer for long: nobody counts on it, and it may come all the same.
    Unanswered,
    /// The provider lists its machines; not all of their nodes have joined.
    Launched,
    /// All of its nodes have joined.
    Joined,
    /// Its nodes are being emptied, to go.
    Draining,
    /// The provider was asked to take its machines away.
    Terminating,
    /// Its machines are gone.
    Terminated,
    /// It never came.
    Failed,
}

/// What happens to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The provider lists it.
    Appeared,
    /// The provider says that it will not come.
    Refused,
    /// The provider does not list it any more.
    Vanished,
    /// All of its nodes are there.
    NodesJoined,
    /// One of its nodes is gone, and others are there.
    NodeLost,
    /// None of its nodes is there any more.
    NodesGone,
    /// The plan wants it gone.
    Dismissed,
    /// The head does not empty one of its nodes, since something runs there.
    DrainRefused,
    /// It has been as it is for too long.
    Overdue,
    /// The plan wants one more of its group.
    WantedAgain,
}

impl State {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Unanswered => "unanswered",
            Self::Launched => "launched",
            Self::Joined => "joined",
            Self::Draining => "draining",
            Self::Terminating => "terminating",
            Self::Terminated => "terminated",
            Self::Failed => "failed",
        }
    }

    /// What comes next; the same where nothing changes.
    #[must_use]
    pub const fn after(self, happening: Happening) -> Self {
        use Happening as H;
        match (self, happening) {
            (Self::Requested | Self::Unanswered, H::Appeared) => Self::Launched,
            (Self::Requested | Self::Unanswered, H::Refused) => Self::Failed,
            (Self::Requested, H::Overdue | H::Dismissed) => Self::Unanswered,
            (Self::Unanswered, H::WantedAgain) => Self::Requested,
            (Self::Launched, H::NodesJoined) | (Self::Draining, H::DrainRefused | H::Overdue) => Self::Joined,
            // Some of the nodes of what is launched may have joined, and work.
            (Self::Launched, H::Dismissed | H::Overdue | H::Refused) | (Self::Joined, H::NodeLost | H::Dismissed) => {
                Self::Draining
            }
            (Self::Joined | Self::Draining, H::NodesGone) => Self::Terminating,
            (Self::Launched | Self::Joined | Self::Draining | Self::Terminating, H::Vanished) => Self::Terminated,
            (state, _) => state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 8] = [
        State::Requested,
        State::Unanswered,
        State::Launched,
        State::Joined,
        State::Draining,
        State::Terminating,
        State::Terminated,
        State::Failed,
    ];

    /// What each happening makes of the states, in their order; `.` where nothing changes.
    const TABLE: [(Happening, [&str; 8]); 10] = [
        // happening                requested     unanswered   launched      joined         draining       terminating   terminated failed
        (Happening::Appeared, ["launched", "launched", ".", ".", ".", ".", ".", "."]),
        (Happening::Refused, ["failed", "failed", "draining", ".", ".", ".", ".", "."]),
        (Happening::Vanished, [".", ".", "terminated", "terminated", "terminated", "terminated", ".", "."]),
        (Happening::NodesJoined, [".", ".", "joined", ".", ".", ".", ".", "."]),
        (Happening::NodeLost, [".", ".", ".", "draining", ".", ".", ".", "."]),
        (Happening::NodesGone, [".", ".", ".", "terminating", "terminating", ".", ".", "."]),
        (Happening::Dismissed, ["unanswered", ".", "draining", "draining", ".", ".", ".", "."]),
        (Happening::DrainRefused, [".", ".", ".", ".", "joined", ".", ".", "."]),
        (Happening::Overdue, ["unanswered", ".", "draining", ".", "joined", ".", ".", "."]),
        (Happening::WantedAgain, [".", "requested", ".", ".", ".", ".", ".", "."]),
    ];

    #[test]
    fn every_happening_leads_from_every_state_where_it_should() {
        for (happening, row) in TABLE {
            for (state, expected) in STATES.into_iter().zip(row) {
                let expected = if expected == "." { state.name() } else { expected };
                assert_eq!(state.after(happening).name(), expected, "{happening:?} when {}", state.name());
            }
        }
    }

    #[test]
    fn nothing_comes_back_from_the_end() {
        for (happening, _) in TABLE {
            assert_eq!(State::Terminated.after(happening), State::Terminated);
            assert_eq!(State::Failed.after(happening), State::Failed);
        }
    }
}
