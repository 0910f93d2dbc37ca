//! Answers to the page: with a tag, so that what did not change is not sent again, and compressed where that is understood.

use crate::answer::{Answer, Content, json};
use crate::routes::Request;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::StatusCode;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use oxiray_network::porch::names_gzip;
use serde_json::Value as Json;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;

/// From how many bytes on an answer is compressed.
const COMPRESSED_FROM: usize = 1_400;

/// The value, unless the page has it already.
pub(crate) fn reply(request: &Request, value: &Json) -> Answer {
    let field =
        |name: HeaderName| request.head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut answer = json(value);
    if let Content::Whole(bytes) = answer.body() {
        let bytes = bytes.clone();
        finish(&mut answer, &bytes, field(IF_NONE_MATCH), field(ACCEPT_ENCODING));
    }
    answer
}

fn finish(answer: &mut Answer, bytes: &Bytes, known: &str, understood: &str) {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    if tag == known {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        *answer.body_mut() = Content::Whole(Bytes::new());
    } else if bytes.len() >= COMPRESSED_FROM
        && names_gzip(understood.as_bytes())
        && let Some(packed) = packed(bytes)
    {
        *answer.body_mut() = Content::Whole(packed);
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        answer.headers_mut().insert(ETAG, tag);
    }
}

fn packed(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Read as _;

    fn finished(value: &Json, known: &str, understood: &str) -> Answer {
        let mut answer = super::json(value);
        let Content::Whole(bytes) = answer.body() else { panic!("it is whole") };
        let bytes = bytes.clone();
        finish(&mut answer, &bytes, known, understood);
        answer
    }

    #[test]
    fn what_is_known_is_not_sent_again() {
        let first = finished(&json!([1]), "", "gzip");
        let tag = first.headers()[ETAG].to_str().expect("a tag").to_owned();
        assert_eq!(first.status(), StatusCode::OK);
        let again = finished(&json!([1]), &tag, "gzip");
        assert_eq!(
            (again.status(), matches!(again.body(), Content::Whole(bytes) if bytes.is_empty())),
            (StatusCode::NOT_MODIFIED, true)
        );
        assert_eq!(finished(&json!([2]), &tag, "gzip").status(), StatusCode::OK);
    }

    #[test]
    fn what_is_long_is_compressed_for_who_understands() {
        let value = json!(vec!["the same"; 1_000]);
        let packed = finished(&value, "", "deflate, gzip;q=1.0");
        let Content::Whole(bytes) = packed.body() else { panic!("it is whole") };
        let mut text = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("it is gzip");
        assert_eq!(text, value.to_string());
        for refused in ["", "br", "gzip;q=0", "br, gzip; q=0.0", "gzipped"] {
            assert!(!finished(&value, "", refused).headers().contains_key(CONTENT_ENCODING), "{refused}");
        }
        assert!(!finished(&json!([1]), "", "gzip").headers().contains_key(CONTENT_ENCODING));
    }
}
