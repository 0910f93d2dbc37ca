//! What a job prints, as it does, over a WebSocket.

use crate::answer::{Answer, text};
use crate::jobs::{TextReader, one, printed, submitted};
use crate::routes::{Request, Site};
use crate::stream::{Hyper, Stream};
use crate::websocket::{self, Said};
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, StatusCode};
use hyper::upgrade::Parts;
use oxiray_wire::message::SubmissionAction;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::task::spawn_local;

/// How often it is looked for more.
const PERIOD: Duration = Duration::from_millis(250);
/// The most lines and characters of one message, as in Ray.
const LINES_MAX: usize = 10;
const CHARACTERS_MAX: usize = 20_000;

pub(crate) async fn tail(site: Rc<Site>, mut request: Request) -> Answer {
    let row = match submitted(&site, &request.named[0], "get logs of").await {
        Ok(row) => row,
        Err(answer) => return answer,
    };
    let Some(key) = key_of(&request.head.headers) else {
        return text(StatusCode::UPGRADE_REQUIRED, "this path speaks WebSocket, version 13");
    };
    let path = printed(&site, &row);
    let Some(upgrade) = request.head.extensions.remove::<hyper::upgrade::OnUpgrade>() else {
        return text(StatusCode::BAD_REQUEST, "this connection cannot become a WebSocket");
    };
    spawn_local(async move {
        // Whoever goes away has seen enough.
        if let Ok(upgraded) = upgrade.await
            && let Ok(Parts { io: Hyper(stream), read_buf, .. }) = upgraded.downcast::<Hyper<Stream>>()
        {
            let _ = follow(&site, &row.submission, path, stream.after(read_buf)).await;
        }
    });
    let mut answer = text(StatusCode::SWITCHING_PROTOCOLS, "");
    let fields = answer.headers_mut();
    fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    match HeaderValue::from_str(&websocket::accept(&key)) {
        Ok(accept) => drop(fields.insert("sec-websocket-accept", accept)),
        Err(_) => return text(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key has no answer"),
    }
    answer
}

/// The client's key, where it asks for a WebSocket.
fn key_of(fields: &HeaderMap) -> Option<String> {
    let says = |name: &str, word: &str| {
        let values = fields.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    let is_asked = says("upgrade", "websocket") && says("connection", "upgrade") && says("sec-websocket-version", "13");
    fields.get("sec-websocket-key").filter(|_| is_asked)?.to_str().ok().map(str::to_owned)
}

/// Sends what the job prints until it has ended and all is sent, or the client goes.
async fn follow(site: &Site, id: &str, path: PathBuf, stream: Stream) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    let (sender, mut heard) = mpsc::channel(1);
    let hearing = spawn_local(async move {
        loop {
            let said = websocket::hear(&mut from).await.unwrap_or(Said::End);
            let is_over = matches!(said, Said::End | Said::Nonsense);
            if sender.send(said).await.is_err() || is_over {
                return;
            }
        }
    });
    let result = say_all(site, id, path, &mut to, &mut heard).await;
    hearing.abort();
    result
}

async fn say_all(
    site: &Site,
    id: &str,
    path: PathBuf,
    to: &mut (impl AsyncWrite + Unpin),
    heard: &mut mpsc::Receiver<Said>,
) -> io::Result<()> {
    let mut reader = TextReader::new(None, u64::MAX);
    loop {
        // Asked before it is looked: what a job printed before it ended is there when its end is known.
        let is_over = one(site, SubmissionAction::List, id).await.ok().flatten().is_none_or(|job| job.state.is_final());
        reader.open(&path);
        while let Some(piece) = reader.next() {
            for message in messages(&piece) {
                websocket::say(to, message).await?;
            }
        }
        if is_over {
            return websocket::close(to, &Said::End).await;
        }
        tokio::select! {
            said = heard.recv() => match said.unwrap_or(Said::End) {
                Said::Ping(body) => websocket::pong(to, &body).await?,
                Said::Nothing => {}
                said => return websocket::close(to, &said).await,
            },
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

/// A text in messages of so many lines and characters.
fn messages(text: &str) -> Vec<&str> {
    let (mut messages, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let lines = rest.match_indices('\n').nth(LINES_MAX - 1).map_or(rest.len(), |(at, _)| at + 1);
        let characters = rest.char_indices().nth(CHARACTERS_MAX).map_or(rest.len(), |(at, _)| at);
        let (message, others) = rest.split_at(lines.min(characters));
        messages.push(message);
        rest = others;
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_ten_lines_and_twenty_thousand_characters() {
        let lines = (0..25).fold(String::new(), |text, number| text + &format!("{number}\n"));
        let found: Vec<usize> = messages(&lines).iter().map(|message| message.lines().count()).collect();
        assert_eq!(found, [10, 10, 5]);
        let long = "é".repeat(CHARACTERS_MAX + 3);
        let found: Vec<usize> = messages(&long).iter().map(|message| message.chars().count()).collect();
        assert_eq!((found, messages("")), (vec![CHARACTERS_MAX, 3], vec![]));
    }

    #[test]
    fn who_asks_for_a_websocket_is_known() {
        let mut fields = HeaderMap::new();
        for (name, value) in
            [("upgrade", "WebSocket"), ("connection", "keep-alive, Upgrade"), ("sec-websocket-version", "13")]
        {
            fields.insert(name, HeaderValue::from_static(value));
        }
        assert_eq!(key_of(&fields), None);
        fields.insert("sec-websocket-key", HeaderValue::from_static("abc"));
        assert_eq!(key_of(&fields).as_deref(), Some("abc"));
        fields.insert("sec-websocket-version", HeaderValue::from_static("8"));
        assert_eq!(key_of(&fields), None);
    }
}
