//! Questions about the cluster, and the values that it keeps by name.

use crate::questions::Answer;
use crate::runtime::{Runtime, RuntimeError, unexpected};
use oxiray_wire::message::{KeptAnswer, KeptRequest};

impl Runtime {
    /// Puts, gets, deletes or lists kept values; the number of the request is filled in here.
    pub fn kept(&self, asked: &KeptRequest) -> Result<KeptAnswer, RuntimeError> {
        match self.ask(|request| KeptRequest { request, ..asked.clone() }.into())? {
            Answer::Kept(mut answer) => match answer.failure.take() {
                Some(failure) => Err(RuntimeError::Failed(failure)),
                None => Ok(*answer),
            },
            _ => Err(unexpected()),
        }
    }
}
