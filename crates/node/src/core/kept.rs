//! Values that clients keep by name with the daemon.

use super::{Core, Key};
use oxiray_wire::message::{Failure, KeptAction, KeptAnswer, KeptRequest};

impl Core {
    pub(crate) fn keep(&mut self, from: Key, asked: KeptRequest) {
        let mut answer = KeptAnswer { request: asked.request, ..KeptAnswer::default() };
        match asked.action() {
            KeptAction::Put => match self.kept.put(asked.namespace, asked.key, &asked.value, asked.widely) {
                Ok(was_there) => answer.count = u64::from(was_there),
                Err(error) => {
                    let text = error.to_string();
                    answer.failure = Some(Failure { code: "invalid".into(), text, cause: bytes::Bytes::new() });
                }
            },
            KeptAction::Get => {
                if let Some(value) = self.kept.get(asked.namespace, asked.key) {
                    (answer.count, answer.value) = (1, value.clone());
                }
            }
            KeptAction::Delete => answer.count = self.kept.delete(&asked.namespace, &asked.key, asked.widely),
            KeptAction::List => answer.keys = self.kept.list(&asked.namespace, &asked.key).cloned().collect(),
            KeptAction::Unknown => {
                let text = "the daemon does not know what is to be done: the two are of different builds".into();
                answer.failure = Some(Failure { code: "system".into(), text, cause: bytes::Bytes::new() });
            }
        }
        self.send(from, answer);
    }
}
