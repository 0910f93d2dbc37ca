//! Answers to what this process asked its daemon.

use crate::core::client::Client;
use crate::core::io::{DAEMON, Io};
use crate::core::questions::DaemonAnswer;
use oxiray_store::{Access, Extent, FileId, SegmentId};
use oxiray_wire::message::{AnswerToClient, Failure, MachineToWorker, StoreToClient, Unpin};

impl<I: Io> Client<I> {
    /// The store's answer to a question, or its word that a file is gone.
    pub(crate) fn store_answered(&mut self, message: StoreToClient, descriptor: Option<I::Descriptor>) {
        let (question, answer) = match message {
            StoreToClient::Allocated(said) => {
                let segment = SegmentId { file: FileId(said.file), offset: said.offset };
                let extent = Extent { base: said.base, bytes: said.mapped };
                let mapped = descriptor.map(|file| self.io.map(segment.file, Access::ReadWrite, extent, file));
                (said.request, answer_of(mapped, DaemonAnswer::Allocated(segment)))
            }
            StoreToClient::Pinned(said) => {
                let segment = SegmentId { file: FileId(said.file), offset: said.offset };
                let extent = Extent { base: said.base, bytes: said.mapped };
                let mapped = descriptor.map(|file| self.io.map(segment.file, Access::ReadOnly, extent, file));
                (said.request, answer_of(mapped, DaemonAnswer::Pinned(segment, said.size)))
            }
            StoreToClient::StoreRefused(said) => {
                (said.request, DaemonAnswer::Refused(said.failure.unwrap_or_default()))
            }
            StoreToClient::SegmentRetired(said) => return self.io.retire(FileId(said.file)),
        };
        self.settle_question(question, answer);
    }

    /// The machine's answer to a question.
    pub(crate) fn machine_answered(&mut self, message: MachineToWorker) {
        match message {
            MachineToWorker::DeviceErrors(said) => {
                self.settle_question(said.request, DaemonAnswer::DeviceErrors(said.texts));
            }
        }
    }

    /// The head's answer to a question.
    pub(crate) fn answered(&mut self, message: AnswerToClient) {
        let (question, answer) = match message {
            AnswerToClient::ClusterReport(said) => (said.request, DaemonAnswer::Cluster(said)),
            AnswerToClient::StateReport(said) => (said.request, DaemonAnswer::State(said)),
            AnswerToClient::KeyValueAnswer(said) => (said.request, DaemonAnswer::Kept(said)),
            AnswerToClient::Holdings(said) => (said.request, DaemonAnswer::Holdings(said)),
            AnswerToClient::GroupReport(said) => (said.request, DaemonAnswer::Groups(Box::new(said))),
            AnswerToClient::ActorAnswer(said) => (said.request, DaemonAnswer::Actor(said)),
        };
        self.settle_question(question, answer);
    }

    /// Keeps an answer for whoever asked. What it pinned for nobody is given back.
    pub(crate) fn settle_question(&mut self, question: u64, answer: DaemonAnswer) {
        if let Some(object) = self.daemon.questions.answer(question, answer) {
            self.io.send(DAEMON, &Unpin { object });
        }
    }
}

fn answer_of(mapped: Option<Result<(), Failure>>, answer: DaemonAnswer) -> DaemonAnswer {
    match mapped {
        Some(Err(failure)) => DaemonAnswer::Refused(failure),
        Some(Ok(())) | None => answer,
    }
}
