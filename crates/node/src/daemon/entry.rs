//! Who may join a cluster, and for how long: what is done with [`Entry`], and the renewal of this node's certificate.

use super::Daemon;
use crate::entry::{Entry, Then, TokenQuestion};
use crate::tokens::{TokenFault, Tokens};
use oxiray_ids::NodeId;
use oxiray_journal::Change;
use oxiray_machine::Key;
use oxiray_network::{Certified, Refusal};
use oxiray_wire::frame::protocol;
use oxiray_wire::message::{CertificateIssued, CertificateWanted, FailureCode, TokenAction, TokenAnswer, TokenAsked};
use std::time::Duration;

/// Why there is nothing to be said of tokens.
const NOT_LISTENING: &str = "this cluster lets no other machine in: it was started without --port";

impl Daemon {
    fn entry(&mut self) -> Option<&mut Entry> {
        self.network.as_mut()?.entry.as_mut()
    }

    /// Somebody has proven that it has a token's secret or a node's key, and wants to join as `node`.
    pub(super) fn asks_to_join(&mut self, number: u64, node: NodeId, token: Option<String>, before: Option<NodeId>) {
        self.question(TokenQuestion::Join { number, node, token, before });
    }

    /// A node that ended for good, or is to: its certificate lets nobody in any more.
    pub(super) fn shut_out(&mut self, node: NodeId) {
        self.question(TokenQuestion::ShutOut { node });
    }

    /// The command line asks about tokens.
    pub(super) fn token_asked(&mut self, key: Key, asked: &TokenAsked) {
        if self.entry().is_none() {
            return self.tell_of_tokens(key, asked.request, Err(NOT_LISTENING.to_owned()));
        }
        self.question(TokenQuestion::Answer { to: key, asked: asked.clone() });
    }

    fn question(&mut self, question: TokenQuestion) {
        let Some(entry) = self.entry() else { return };
        entry.question(question);
        self.grant_wishes();
    }

    /// One after the other, each by what is safe of those before.
    fn grant_wishes(&mut self) {
        while let Some(question) = self.entry().and_then(Entry::next_wish) {
            match question {
                TokenQuestion::Join { number, node, token, before } => {
                    self.ask_about_join(number, node, token.as_deref(), before);
                }
                TokenQuestion::Answer { to, asked } => self.answer_question(to, &asked),
                TokenQuestion::ShutOut { node } => {
                    self.revoke(node, Then::GiveUp { living: None, asked: None, node });
                }
            }
        }
    }

    /// ENTRY-1.
    fn change_tokens(&mut self, (next, changes): (Tokens, Vec<Change>), then: Then) {
        if let Some(entry) = self.entry() {
            entry.begin_change(next, then);
            self.write_tokens(changes);
        }
    }

    /// The change is safe, or it is not, for this reason, and is none.
    pub(super) fn tokens_written(&mut self, result: Result<(), String>) {
        let Some(network) = &mut self.network else { return };
        let Some(entry) = &mut network.entry else { return };
        let Some(then) = entry.end_change(result.is_ok()) else { return };
        if result.is_ok() {
            network.gateway.set_tokens(entry.known());
        }
        match then {
            Then::Admit { number } => match &result {
                Ok(()) => network.gateway.admit(number),
                Err(fault) => {
                    self.log.line(fault);
                    network.gateway.refuse(number, Refusal::Unwritten);
                }
            },
            Then::Tell { to, request, id, text } => {
                let told = result.map(|()| self.token_changed(&id, text));
                self.tell_of_tokens(to, request, told);
            }
            Then::GiveUp { living, asked, node } => {
                if let (Err(fault), None) = (&result, asked) {
                    self.log.line(&format!("the certificate of node {node} cannot be revoked: {fault}"));
                }
                if let (Ok(()), Some(key)) = (&result, living) {
                    self.give_up(key, "its certificate was revoked");
                }
                if let Some((to, request)) = asked {
                    self.tell_of_tokens(to, request, result.map(|()| TokenAnswer::default()));
                }
            }
        }
        self.grant_wishes();
    }

    fn ask_about_join(&mut self, number: u64, node: NodeId, token: Option<&str>, before: Option<NodeId>) {
        match self.may_join(node, token, before) {
            Ok(Some(spent)) => self.change_tokens(spent, Then::Admit { number }),
            Ok(None) => {
                if let Some(network) = &self.network {
                    network.gateway.admit(number);
                }
            }
            Err(refusal) => {
                if let Some(network) = &self.network {
                    network.gateway.refuse(number, refusal);
                }
            }
        }
    }

    /// What tokens there are to be where the newcomer is let in; nothing where it needs none.
    fn may_join(
        &self,
        node: NodeId,
        token: Option<&str>,
        before: Option<NodeId>,
    ) -> Result<Option<(Tokens, Vec<Change>)>, Refusal> {
        let network = self.network.as_ref().ok_or(Refusal::Secret)?;
        let entry = network.entry.as_ref().ok_or(Refusal::Secret)?;
        let comes = network.members_that_are(node).next().is_some();
        let is_known = node.is_nil() || node == self.core.own_node() || comes || self.core.knows_node(node);
        entry.may_join(node, is_known, token, before)
    }

    fn revoke(&mut self, node: NodeId, then: Then) {
        let Some(entry) = self.entry() else { return };
        let next = entry.without_node(node);
        self.change_tokens(next, then);
    }

    fn answer_question(&mut self, to: Key, asked: &TokenAsked) {
        match self.carry_out_question(to, asked) {
            Ok(Some(told)) => self.tell_of_tokens(to, asked.request, Ok(told)),
            Ok(None) => {}
            Err(text) => self.tell_of_tokens(to, asked.request, Err(text)),
        }
    }

    /// The answer, where there is one already.
    fn carry_out_question(&mut self, to: Key, asked: &TokenAsked) -> Result<Option<TokenAnswer>, String> {
        let request = asked.request;
        let entry = self.entry().ok_or(NOT_LISTENING)?;
        let fault = |fault: TokenFault| fault.to_string();
        let (next, id, text) = match asked.action {
            TokenAction::List => return Ok(Some(TokenAnswer { rows: entry.told(None), ..TokenAnswer::default() })),
            TokenAction::Create => {
                let (next, token) = entry.with_token(asked.ttl_ms, asked.uses).map_err(fault)?;
                (next, token.id(), token.to_text())
            }
            TokenAction::Revoke => (entry.without_token(&asked.id).map_err(fault)?, asked.id.clone(), String::new()),
            TokenAction::RevokeNode => {
                let (node, living) = self.node_to_shut_out(&asked.node)?;
                self.revoke(node, Then::GiveUp { living, asked: Some((to, request)), node });
                return Ok(None);
            }
        };
        self.change_tokens(next, Then::Tell { to, request, id, text });
        Ok(None)
    }

    /// What is told of a token that was made, with its text, or revoked.
    fn token_changed(&mut self, id: &str, text: String) -> TokenAnswer {
        let what = if text.is_empty() { "revoked" } else { "made" };
        self.log.line(&format!("join token {id} was {what}"));
        self.entry().map(|entry| entry.token_changed(id, text)).unwrap_or_default()
    }

    fn tell_of_tokens(&mut self, to: Key, request: u64, told: Result<TokenAnswer, String>) {
        let told = told.unwrap_or_else(|text| {
            let failure = FailureCode::Token.because(text);
            TokenAnswer { failure: Some(failure), ..TokenAnswer::default() }
        });
        self.queue(to, &TokenAnswer { request, ..told }.into(), Vec::new());
    }

    /// The node of that name or identifier, and its key where it lives.
    fn node_to_shut_out(&self, named: &str) -> Result<(NodeId, Option<Key>), String> {
        let (node, living) = match self.core.drainable(named) {
            Ok((key, node)) => (node, Some(key)),
            Err(text) => (NodeId::from_hex(named).map_err(|_| text)?, None),
        };
        if node == self.core.own_node() {
            return Err("the head cannot be shut out: `oxiray stop` ends the cluster".to_owned());
        }
        Ok((node, living))
    }

    // --- renewal ---

    /// Renews this node's certificate, where it is time: half of what it is valid for is left.
    pub(super) fn renew_certificate(&mut self, now: Duration) {
        self.renew_site(now);
        let Some(network) = &mut self.network else { return };
        if !network.badge.take_due(now) {
            return;
        }
        let own = self.core.own_node();
        let renewed = match &network.entry {
            Some(entry) => entry.authority.head_credentials(own, &protocol()).map_err(|error| error.to_string()),
            None => return self.ask_for_certificate(),
        };
        match renewed {
            Ok(credentials) => network.show(credentials),
            Err(error) => self.log.line(&format!("this head's certificate cannot be renewed: {error}")),
        }
    }

    /// Renews the dashboard's certificate, where it is time. The dashboard sees by its files that there is another.
    fn renew_site(&mut self, now: Duration) {
        let Some(Entry { authority, site: Some(site), .. }) = self.entry() else { return };
        match site.keep(authority, now) {
            None => {}
            Some(Ok(())) => self.log.line("the dashboard's certificate was renewed"),
            Some(Err(error)) => self.log.line(&format!("the dashboard's certificate cannot be renewed: {error}")),
        }
    }

    fn ask_for_certificate(&mut self) {
        let (Some(network), Some(head)) = (&mut self.network, self.core.head_key()) else { return };
        match network.badge.begin_renewal() {
            Ok(public_key) => self.queue(head, &CertificateWanted { public_key }.into(), Vec::new()),
            Err(error) => self.log.line(&error.to_string()),
        }
    }

    /// A member asks for its next certificate, on its own stream.
    pub(super) fn certificate_wanted(&mut self, from: Key, asked: &CertificateWanted) {
        let Some(network) = &self.network else { return };
        let (Some(entry), Some(node)) = (&network.entry, network.node_of(from)) else { return };
        match entry.authority.certify(node, &asked.public_key) {
            Ok(Certified { certificate, now_s, lifetime_s }) => {
                let issued = CertificateIssued { certificate: certificate.into(), now_s, lifetime_s };
                self.queue(from, &issued.into(), Vec::new());
            }
            Err(error) => self.log.line(&format!("the certificate of node {node} cannot be renewed: {error}")),
        }
    }

    /// The head has certified this member's other key.
    pub(super) fn certificate_issued(&mut self, said: &CertificateIssued) {
        let Some(network) = &mut self.network else { return };
        let CertificateIssued { certificate, now_s, lifetime_s } = said.clone();
        let certified = Certified { certificate: certificate.to_vec(), now_s, lifetime_s };
        match network.badge.finish_renewal(certified) {
            None => {}
            Some(Ok(credentials)) => {
                network.show(credentials);
                self.log.line("this node's certificate was renewed");
                self.leave_note();
            }
            Some(Err(error)) => self.log.line(&format!("this node's certificate cannot be renewed: {error}")),
        }
    }
}
