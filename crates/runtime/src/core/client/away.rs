//! A daemon that is gone: for a while, where it comes back, or for good.

use crate::core::client::Client;
use crate::core::io::{DAEMON, Io, Role};
use crate::core::objects::Effects;
use crate::core::signals::ClientEvent;
use oxiray_wire::message::{Failure, FailureCode};

impl<I: Io> Client<I> {
    /// The daemon of this process may come back, and is looked for where it ends.
    pub fn wait_for_daemon(&mut self) {
        self.daemon.comes_back = true;
    }

    /// The stream to the daemon is over. Where that comes back, everything else goes on meanwhile.
    ///
    /// A worker dies with its daemon, and what its calls make of that is nobody's result: whoever called hears no more.
    pub(crate) fn daemon_silent(&mut self) {
        self.forget_room();
        let is_leaving = self.calls.leaving || self.daemon.lost.is_some();
        if !self.daemon.comes_back || !self.is_resumable() || is_leaving {
            for client in self.peers.clients() {
                self.close_stream(client);
            }
            return self.daemon_gone();
        }
        self.close_stream(DAEMON);
        self.daemon.away_since = Some(self.now);
        if !self.io.look_for_daemon() {
            return self.daemon_gone();
        }
        self.notice(
            "the head of this cluster is away: what runs on other nodes goes on, and what is new waits for it".into(),
        );
    }

    /// The daemon is gone for good.
    pub fn daemon_gone(&mut self) {
        self.lose_daemon(&FailureCode::DaemonDied.because(
            "the daemon of this machine is gone, and with it every worker: it was stopped or killed. \
             Call shutdown(), then init() to start anew; its last words are in daemon.log of the session",
        ));
    }

    fn lose_daemon(&mut self, failure: &Failure) {
        if self.daemon.lost.is_some() {
            return;
        }
        self.close_stream(DAEMON);
        (self.daemon.comes_back, self.daemon.away_since) = (false, None);
        self.io.give_daemon_up();
        self.daemon.lost = Some(failure.clone());
        self.forget_room();
        self.calls.tasks.clear();
        self.leases.forget_all();
        self.lineage.clear();
        self.fail_streams(failure);
        self.actors.creations.clear();
        self.groups.awaited.clear();
        self.groups.fresh.clear();
        self.actors.fail_all(failure);
        let mut effects = Effects::default();
        self.objects.fail_all(failure, &mut effects);
        self.apply(effects);
        self.daemon.questions.fail_all(failure);
        self.service.inbox.close();
        self.signals.tell_what_was_dropped();
        self.signals.news.push_back(ClientEvent::Over);
        self.signals.changed = true;
    }

    /// Whether the daemon is gone and may come back.
    pub(crate) fn is_away(&self) -> bool {
        self.daemon.away_since.is_some()
    }

    /// Whether this process has another daemon than it had under the head of that number.
    pub(crate) fn away_since(&self, epoch: u64) -> bool {
        self.daemon.comes_back && self.peers.epoch() != epoch
    }

    /// The daemon is back, with the head of that number: the shell has its stream.
    pub fn daemon_back(&mut self, epoch: u64) {
        let Some(since) = self.daemon.away_since.take() else { return };
        self.peers.add(DAEMON, Role::Daemon);
        self.resume(epoch, true);
        let away = self.now.saturating_duration_since(since);
        self.notice(format!("the head of this cluster is back after {:.1} s", away.as_secs_f64()));
    }

    /// The daemon does not come back, or not for this process.
    pub fn daemon_stays_away(&mut self, why: &str) {
        let text = format!(
            "the head of this cluster went away, and this program is not part of it any more: {why}. Call shutdown(), \
             then init() to start anew"
        );
        self.lose_daemon(&FailureCode::DaemonDied.because(text));
    }
}
