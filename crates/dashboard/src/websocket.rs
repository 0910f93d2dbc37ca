//! The server's half of RFC 6455: text goes out, and what comes in is pings and the end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::io::{self, ErrorKind};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// What RFC 6455 adds to the client's key.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The longest frame that a client may send, in bytes: it has nothing to tell.
const FRAME_BYTES_MAX: usize = 4096;

/// The kinds of frames.
const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
/// The last frame of a message.
const LAST: u8 = 0x80;
/// A client's bytes are masked.
const MASKED: u8 = 0x80;

/// It ends as it should.
pub(crate) const NORMAL: u16 = 1000;
/// The client said what it must not say.
const PROTOCOL_ERROR: u16 = 1002;

/// What a client is answered whose key this is.
pub(crate) fn accept(key: &str) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes()))
}

/// What a client said that concerns its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is to be answered.
    Ping(Vec<u8>),
    /// Nothing more comes.
    End,
    /// It is none of RFC 6455.
    Nonsense,
    /// Nothing that matters.
    Nothing,
}

/// Hears one frame. Not to be given up half-way: what it has read would be lost.
pub(crate) async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Said> {
    let mut head = [0; 2];
    match stream.read_exact(&mut head).await {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Said::End),
        read => read?,
    };
    let length = match head[1] & !MASKED {
        126 => usize::from(stream.read_u16().await?),
        127 => return Ok(Said::Nonsense),
        short => usize::from(short),
    };
    if head[1] & MASKED == 0 || length > FRAME_BYTES_MAX {
        return Ok(Said::Nonsense);
    }
    let mut mask = [0; 4];
    stream.read_exact(&mut mask).await?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    for (byte, key) in body.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    Ok(match head[0] & 0x0f {
        PING => Said::Ping(body),
        CLOSE => Said::End,
        _ => Said::Nothing,
    })
}

/// Sends a message.
pub(crate) async fn say(stream: &mut (impl AsyncWrite + Unpin), text: &str) -> io::Result<()> {
    send(stream, TEXT, text.as_bytes()).await
}

/// Answers a ping.
pub(crate) async fn pong(stream: &mut (impl AsyncWrite + Unpin), body: &[u8]) -> io::Result<()> {
    send(stream, PONG, body).await
}

/// Says that nothing more comes.
pub(crate) async fn close(stream: &mut (impl AsyncWrite + Unpin), said: &Said) -> io::Result<()> {
    let code = if *said == Said::Nonsense { PROTOCOL_ERROR } else { NORMAL };
    send(stream, CLOSE, &code.to_be_bytes()).await
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), kind: u8, body: &[u8]) -> io::Result<()> {
    let mut frame = vec![LAST | kind];
    match body.len() {
        short @ ..126 => frame.push(short as u8),
        middle @ 126..=0xffff => {
            frame.push(126);
            frame.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            frame.push(127);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(body);
    stream.write_all(&frame).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    fn heard(mut bytes: &[u8]) -> io::Result<Said> {
        run(hear(&mut bytes))
    }

    #[test]
    fn the_key_of_the_standard_has_the_answer_of_the_standard() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn frames_of_clients_are_masked_and_short() {
        assert_eq!(heard(&[0x89, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2]).expect("a frame"), Said::Ping(b"hi".to_vec()));
        assert_eq!(heard(&[0x88, 0x80, 0, 0, 0, 0]).expect("a frame"), Said::End);
        assert_eq!(heard(&[]).expect("the end"), Said::End);
        assert_eq!(heard(&[0x81, 0x81, 0, 0, 0, 0, b'x']).expect("a frame"), Said::Nothing);
        assert_eq!(heard(&[0x89, 0x02, b'h', b'i']).expect("unmasked"), Said::Nonsense);
        assert_eq!(heard(&[0x89, 0xfe, 0xff, 0xff]).expect("long"), Said::Nonsense);
        assert_eq!(heard(&[0x89, 0xff]).expect("very long"), Said::Nonsense);
        assert!(heard(&[0x89, 0x82, 1]).is_err(), "it ends within a frame");
    }

    #[test]
    fn what_goes_out_says_how_long_it_is() {
        let sent = |text: &str| {
            let mut out = Vec::new();
            run(say(&mut out, text)).expect("written");
            out
        };
        assert_eq!(sent("hi"), [0x81, 2, b'h', b'i']);
        assert_eq!(sent(&"x".repeat(300))[..4], [0x81, 126, 1, 44]);
        assert_eq!(sent(&"x".repeat(70_000))[..10], [0x81, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70]);
    }
}
