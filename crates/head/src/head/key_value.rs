//! Values that clients keep by name with the daemon.

use super::HeadCore;
use crate::journal::{KeyValueName, Row, Undo};
use crate::key_value::NotKept;
use bytes::Bytes;
use oxiray_machine::Key;
use oxiray_wire::message::{FailureCode, KeyValueAction, KeyValueAnswer, KeyValueRequest};

impl HeadCore {
    pub(super) fn keep(&mut self, from: Key, asked: KeyValueRequest) {
        let mut answer = KeyValueAnswer { request: asked.request, ..KeyValueAnswer::default() };
        match asked.action {
            KeyValueAction::Put => match self.keep_value(from, &asked) {
                Ok(was_there) => answer.count = u64::from(was_there),
                Err(error) => {
                    let text = error.to_string();
                    answer.failure = Some(FailureCode::Invalid.because(text));
                }
            },
            KeyValueAction::Get => {
                if let Some(value) = self.durable.kept.get(&(asked.namespace, asked.key)) {
                    (answer.count, answer.value) = (1, value.clone());
                }
            }
            KeyValueAction::Delete => answer.count = self.forget_kept(from, &asked),
            KeyValueAction::List => {
                answer.keys = self.durable.kept.list(&asked.namespace, &asked.key).cloned().collect();
            }
        }
        self.send(from, answer);
    }

    fn keep_value(&mut self, from: Key, asked: &KeyValueRequest) -> Result<bool, NotKept> {
        let name = (asked.namespace.clone(), asked.key.clone());
        let before = self.durable.kept.get(&name).cloned();
        let was_there = self.durable.kept.put(name.0.clone(), name.1.clone(), &asked.value, asked.widely)?;
        if !was_there || asked.widely {
            self.write_kept(from, asked.request, vec![(name, before)]);
        }
        Ok(was_there)
    }

    fn forget_kept(&mut self, from: Key, asked: &KeyValueRequest) -> u64 {
        let gone = self.durable.kept.delete(&asked.namespace, &asked.key, asked.widely);
        let count = gone.len() as u64;
        if count > 0 {
            let before = gone.into_iter().map(|(key, value)| ((asked.namespace.clone(), key), Some(value)));
            self.write_kept(from, asked.request, before.collect());
        }
        count
    }

    /// Writes down what these names hold now.
    fn write_kept(&mut self, from: Key, request: u64, before: Vec<(KeyValueName, Option<Bytes>)>) {
        for ((namespace, key), _) in &before {
            self.growth.kept_changed(namespace);
            self.durable.touch(Row::KeyValueStore(namespace.clone(), key.clone()));
        }
        self.answered_by_next(from, Undo::KeyValueStore { request, before });
    }
}
