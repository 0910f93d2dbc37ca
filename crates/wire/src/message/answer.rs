//! Answers to questions that clients ask the daemon.

use super::{
    ActorAnswer, FailureCode, KeyValueAnswer, Message, StateReport, StoreRefused, SubmissionAnswer, TokenAnswer,
};
use crate::frame::{FrameError, MESSAGE_BYTES_LIMIT, body_limit};

impl Message {
    /// Whether a frame can carry it, to a client of a member as well.
    pub fn check_size(&self) -> Result<(), FrameError> {
        let (kind, bytes, limit) = (self.kind(), self.body_bytes(), body_limit(self.kind()));
        if bytes > limit { Err(FrameError::Unsendable { kind, bytes, limit }) } else { Ok(()) }
    }

    /// What the asker is told in place of an answer that no frame can carry; nothing where it did not ask.
    pub fn too_large(&self) -> Option<Self> {
        let (mib, limit_mib) = (self.body_bytes() >> 20, MESSAGE_BYTES_LIMIT >> 20);
        let way_out = self.way_out()?;
        let text = format!("the answer would have {mib} MiB, and has at most {limit_mib}: {way_out}");
        let failure = |code: FailureCode| Some(code.because(text.clone()));
        let refused = |request| StoreRefused { request, failure: failure(FailureCode::System) }.into();
        Some(match self {
            Self::KeyValueAnswer(said) => KeyValueAnswer {
                request: said.request,
                failure: failure(FailureCode::Invalid),
                ..KeyValueAnswer::default()
            }
            .into(),
            Self::StateReport(said) => {
                StateReport { request: said.request, failure: failure(FailureCode::State), ..StateReport::default() }
                    .into()
            }
            Self::ActorAnswer(said) => {
                ActorAnswer { request: said.request, failure: failure(FailureCode::Invalid), ..ActorAnswer::default() }
                    .into()
            }
            Self::SubmissionAnswer(said) => {
                let failure = failure(FailureCode::Invalid);
                SubmissionAnswer { request: said.request, failure, ..SubmissionAnswer::default() }.into()
            }
            Self::TokenAnswer(said) => {
                TokenAnswer { request: said.request, failure: failure(FailureCode::Invalid), ..TokenAnswer::default() }
                    .into()
            }
            Self::ClusterReport(said) => refused(said.request),
            Self::GroupReport(said) => refused(said.request),
            Self::Holdings(said) => refused(said.request),
            Self::MetricsReport(said) => refused(said.request),
            // The autoscaler is told without having asked.
            Self::GrowthReport(said) if said.request != 0 => refused(said.request),
            _ => return None,
        })
    }

    /// How the asker of this answer comes by a smaller one.
    fn way_out(&self) -> Option<&'static str> {
        Some(match self {
            Self::KeyValueAnswer(_) => "ask with a longer prefix, or for one key at a time",
            Self::StateReport(_) => {
                "ask for less, with `--filter` or a smaller `--limit` (in Python `filters=` and `limit=`)"
            }
            Self::ActorAnswer(_) => {
                "make the actor of a class whose handle carries less, such as fewer defaults of methods"
            }
            Self::SubmissionAnswer(_) => "ask for one job by its submission id, as `oxiray job status ID` does",
            Self::TokenAnswer(_) => "revoke tokens that nobody needs any more: `oxiray token revoke ID`",
            Self::ClusterReport(_) => {
                "ask for parts, with `oxiray list nodes --limit 100` or `oxiray list actors --filter state=ALIVE`"
            }
            Self::GroupReport(_) => {
                "ask for one group, as `placement_group_table(group)` does, or `oxiray list placement-groups --limit 100`"
            }
            Self::Holdings(_) => {
                "ask for some objects: `oxiray list objects --limit 100`, with `--filter` for those of one process"
            }
            Self::MetricsReport(_) => "record metrics with fewer different values of their tags",
            Self::GrowthReport(_) => {
                "ask for parts, with `oxiray list tasks --filter state=PENDING_NODE_ASSIGNMENT --limit 100`"
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClusterReport, Failure, GroupReport, GrowthReport, Holdings, MetricsReport};
    use super::*;
    use crate::state::{AutoscalerState, ClusterState, DeviceRow, GroupRow, Holding};

    const REQUEST: u64 = 7;

    /// The failure of what an asker is told in place of an answer, and the question that it belongs to.
    fn refusal(message: Message) -> (u64, Option<Failure>) {
        match message {
            Message::KeyValueAnswer(said) => (said.request, said.failure.clone()),
            Message::StateReport(said) => (said.request, said.failure.clone()),
            Message::ActorAnswer(said) => (said.request, said.failure.clone()),
            Message::SubmissionAnswer(said) => (said.request, said.failure.clone()),
            Message::TokenAnswer(said) => (said.request, said.failure.clone()),
            Message::StoreRefused(said) => (said.request, said.failure.clone()),
            other => panic!("{other:?} is no refusal"),
        }
    }

    #[test]
    fn every_answer_that_is_too_large_is_refused_with_a_way_to_a_smaller_one() {
        let (request, big) = (REQUEST, "x".repeat(3 << 20));
        let device = DeviceRow { id: big.clone(), ..DeviceRow::default() };
        let cluster = ClusterState { devices: vec![device], ..ClusterState::default() };
        let group = GroupRow { name: big.clone(), ..GroupRow::default() };
        let held = Holding { place: Some(big.clone()), ..Holding::default() };
        let autoscaler = AutoscalerState { trouble: big.clone(), ..AutoscalerState::default() };
        let answers: [(Message, &[&str]); 10] = [
            (
                KeyValueAnswer { request, value: big.clone().into(), ..KeyValueAnswer::default() }.into(),
                &["longer prefix"],
            ),
            (
                StateReport { request, missing: big.clone(), ..StateReport::default() }.into(),
                &["`--filter`", "`--limit`"],
            ),
            (ActorAnswer { request, handle: big.clone().into(), ..ActorAnswer::default() }.into(), &["carries less"]),
            (
                SubmissionAnswer {
                    request,
                    failure: Some(Failure { text: big.clone(), ..Failure::default() }),
                    ..SubmissionAnswer::default()
                }
                .into(),
                &["`oxiray job status ID`"],
            ),
            (
                TokenAnswer { request, text: big.clone(), ..TokenAnswer::default() }.into(),
                &["`oxiray token revoke ID`"],
            ),
            (
                ClusterReport { request, state: Some(cluster), ..ClusterReport::default() }.into(),
                &["--filter", "--limit"],
            ),
            (GroupReport { request, groups: vec![group] }.into(), &["placement_group_table(group)", "--limit"]),
            (
                Holdings { request, objects: vec![held], ..Holdings::default() }.into(),
                &["`oxiray list objects", "--limit", "--filter"],
            ),
            (MetricsReport { request, text: big.clone(), ..MetricsReport::default() }.into(), &["tags"]),
            (
                GrowthReport { request, state: Some(autoscaler), ..GrowthReport::default() }.into(),
                &["--filter", "--limit"],
            ),
        ];
        for (answer, ways_out) in answers {
            let kind = answer.kind();
            let refused = answer.too_large().unwrap_or_else(|| panic!("kind {kind} is refused"));
            refused.check_size().expect("a refusal fits");
            let (named, failure) = refusal(refused);
            let text = failure.unwrap_or_else(|| panic!("kind {kind} says why")).text;
            assert_eq!(named, REQUEST, "kind {kind}");
            assert!(
                text.contains("would have 3 MiB") && ways_out.iter().all(|way| text.contains(way)),
                "{kind}: {text}"
            );
        }
        assert_eq!(Message::from(GrowthReport::default()).too_large(), None, "nobody asked");
    }
}
