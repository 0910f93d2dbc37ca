//! Visitors: what they may say, and what becomes of it.

use super::Daemon;
use crate::streams::Rights;
use oxiray_machine::Key;
use oxiray_wire::message::{
    FailureCode, StoreRefused, SubmissionAction, TokenAction, VisitorToDaemon, VisitorToHead, VisitorToSession,
};

/// What of a visitor's messages changes something: in words, and the number by which it knows the answer.
struct Order {
    what: &'static str,
    request: Option<u64>,
}

impl Daemon {
    /// A visitor says something. One that only reads gives no orders, here or by way of this member.
    pub(super) fn visitor_speaks(&mut self, key: Key, rights: Rights, message: VisitorToDaemon) {
        if let Some(order) = order(&message).filter(|_| rights == Rights::Reading) {
            return self.refuse_order(key, &order);
        }
        match (self.core.head_key(), message) {
            (Some(head), message) => self.proxied_client_visits(head, key, message),
            (None, VisitorToDaemon::Session(asked)) => self.session_asked(&asked),
            (None, VisitorToDaemon::Report(asked)) => self.report_asked(key, &asked),
            (None, VisitorToDaemon::Head(message)) => self.visitor_said(key, message),
        }
    }

    fn refuse_order(&mut self, key: Key, order: &Order) {
        let text = format!(
            "it was asked {} on a connection that only reads: greet without `reads_only` to give orders",
            order.what
        );
        match order.request {
            Some(request) => {
                let failure = Some(FailureCode::Invalid.because(text));
                self.queue(key, &StoreRefused { request, failure }.into(), Vec::new());
            }
            None => self.refuse(key, &text),
        }
    }
}

fn order(message: &VisitorToDaemon) -> Option<Order> {
    let (what, request) = match message {
        VisitorToDaemon::Session(VisitorToSession::Stop(_)) => ("to end the session", None),
        VisitorToDaemon::Report(_) => return None,
        VisitorToDaemon::Head(message) => match message {
            VisitorToHead::StateQuery(asked) if asked.profile.is_some() => {
                ("to profile processes", Some(asked.request))
            }
            VisitorToHead::StateQuery(_)
            | VisitorToHead::StateFollow(_)
            | VisitorToHead::ChronicleFollow(_)
            | VisitorToHead::MetricsQuery(_)
            | VisitorToHead::LogQuery(_)
            | VisitorToHead::GrowthQuery(_) => return None,
            VisitorToHead::DrainAsked(asked) => ("to empty a node", Some(asked.request)),
            VisitorToHead::DeviceAsked(asked) => ("to do something with a device", Some(asked.request)),
            VisitorToHead::EndAsked(asked) => ("to kill an actor or to cancel a task", Some(asked.request)),
            VisitorToHead::GrowthState(_) => ("to hear an autoscaler", None),
            VisitorToHead::SubmissionAsked(asked) => match asked.action {
                SubmissionAction::List | SubmissionAction::Read => return None,
                SubmissionAction::Submit => ("to start a job", Some(asked.request)),
                SubmissionAction::Stop => ("to stop a job", Some(asked.request)),
                SubmissionAction::Delete => ("to delete a job", Some(asked.request)),
            },
            VisitorToHead::TokenAsked(asked) => match asked.action {
                TokenAction::List => return None,
                TokenAction::Create => ("to make a join token", Some(asked.request)),
                TokenAction::Revoke | TokenAction::RevokeNode => ("to shut somebody out", Some(asked.request)),
            },
        },
    };
    Some(Order { what, request })
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::message::{
        ChronicleFollow, DrainAsked, EndAsked, GrowthState, Profile, StateQuery, Stop, SubmissionAsked, TokenAsked,
        VisitorToHead,
    };

    fn is_order(message: impl Into<VisitorToHead>) -> bool {
        order(&VisitorToDaemon::Head(message.into())).is_some()
    }

    #[test]
    fn what_changes_something_is_an_order_and_what_asks_is_none() {
        assert!(order(&VisitorToDaemon::Session(Stop {}.into())).is_some_and(|order| order.request.is_none()));
        assert!(is_order(DrainAsked::default()) && is_order(EndAsked::default()) && is_order(GrowthState::default()));
        assert!(!is_order(ChronicleFollow::default()) && !is_order(StateQuery::default()));
        assert!(is_order(StateQuery { profile: Some(Profile::default()), ..StateQuery::default() }));
        let job = |action| SubmissionAsked { action, ..SubmissionAsked::default() };
        assert!(!is_order(job(SubmissionAction::List)) && !is_order(job(SubmissionAction::Read)));
        assert!(is_order(job(SubmissionAction::Submit)) && is_order(job(SubmissionAction::Delete)));
        let token = |action| TokenAsked { action, ..TokenAsked::default() };
        assert!(!is_order(token(TokenAction::List)) && is_order(token(TokenAction::Create)));
    }
}
