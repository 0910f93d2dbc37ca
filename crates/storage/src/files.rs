//! Files of the program that started this one, which asks for one after the other over the standard input and output.
//!
//! ```text
//! put NAME BYTES, and the bytes    done
//! get NAME                         bytes BYTES, and the bytes
//! list                             files COUNT, and so many lines NAME BYTES MILLISECONDS
//! remove NAME                      done
//!                                  gone TEXT, refused TEXT or away TEXT where it was not done
//! ```
//!
//! An order and an answer are a line each. Names are relative to the URL, and have neither spaces nor a way out of it.
//! The program ends when its standard input does, and removes nothing.

use crate::place::Place;
use crate::trouble::Trouble;
use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use std::io::{self, BufRead, Read as _, Write};
use tokio::runtime::Runtime;

/// The longest order, in bytes.
const ORDER_BYTES_MAX: u64 = 4 << 10;
/// The largest file that is written or read.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The most files that are told of.
const FILES_MAX: usize = 1_000_000;

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
enum FileOrder {
    Put(String, Bytes),
    Get(String),
    List,
    Remove(String),
}

/// What is answered.
#[derive(Debug, PartialEq, Eq)]
enum FileAnswer {
    Done,
    Bytes(Bytes),
    Files(Vec<(String, u64, i64)>),
}

/// Serves until the standard input ends.
pub(crate) fn serve(url: &str, runtime: &Runtime) -> Result<(), Trouble> {
    let place = Place::of(url)?;
    let (mut asked, mut told) = (io::stdin().lock(), io::stdout().lock());
    while let Some(order) = read(&mut asked).map_err(|error| Trouble::here("read an order", &error))? {
        let answered = runtime.block_on(carry_out(&place, order));
        tell(&mut told, answered).map_err(|error| Trouble::here("write an answer", &error))?;
    }
    Ok(())
}

/// The next order; nothing where there is none any more.
fn read(asked: &mut impl BufRead) -> io::Result<Option<FileOrder>> {
    let mut line = String::new();
    if asked.by_ref().take(ORDER_BYTES_MAX).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("`{}` is no order", line.trim_end()));
    let words: Vec<&str> = line.strip_suffix('\n').ok_or_else(wrong)?.split(' ').collect();
    let order = match words[..] {
        ["list"] => FileOrder::List,
        ["get", name] if is_name(name) => FileOrder::Get(name.to_owned()),
        ["remove", name] if is_name(name) => FileOrder::Remove(name.to_owned()),
        ["put", name, bytes] if is_name(name) => {
            let bytes = bytes.parse().ok().filter(|bytes| *bytes <= FILE_BYTES_MAX).ok_or_else(wrong)?;
            let mut body = Vec::new();
            if asked.by_ref().take(bytes).read_to_end(&mut body)? as u64 != bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            FileOrder::Put(name.to_owned(), body.into())
        }
        _ => return Err(wrong()),
    };
    Ok(Some(order))
}

/// Whether this is a path below the URL.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| !["", ".", ".."].contains(&part) && !part.contains(|letter: char| letter.is_control());
    name.split('/').all(is_part)
}

async fn carry_out(place: &Place, order: FileOrder) -> Result<FileAnswer, Trouble> {
    let path = |name: &str| -> Path { place.prefix.parts().chain(name.split('/').map(Into::into)).collect() };
    match order {
        FileOrder::Put(name, body) => {
            let asked = format!("writing {} bytes to {name}", body.len());
            let put = place.store.put(&path(&name), body.into()).await;
            put.map(|_| FileAnswer::Done).map_err(|error| place.trouble(&asked, &error))
        }
        FileOrder::Get(name) => {
            let asked = format!("reading {name}");
            let got = place.store.get(&path(&name)).await.map_err(|error| place.trouble(&asked, &error))?;
            if got.meta.size > FILE_BYTES_MAX {
                return Err(Trouble::Refused(format!("{name} has {} bytes; {FILE_BYTES_MAX} are read", got.meta.size)));
            }
            got.bytes().await.map(FileAnswer::Bytes).map_err(|error| place.trouble(&asked, &error))
        }
        FileOrder::List => {
            let mut found = place.store.list(Some(&place.prefix));
            let mut files = Vec::new();
            while let Some(file) = found.try_next().await.map_err(|error| place.trouble("listing files", &error))? {
                let below: Option<Vec<String>> = file
                    .location
                    .prefix_match(&place.prefix)
                    .map(|parts| parts.map(|part| part.as_ref().to_owned()).collect());
                let name = below.unwrap_or_default().join("/");
                if files.len() < FILES_MAX && is_name(&name) && !name.contains(' ') {
                    files.push((name, file.size, file.last_modified.timestamp_millis()));
                }
            }
            Ok(FileAnswer::Files(files))
        }
        FileOrder::Remove(name) => {
            let removed = place.store.delete(&path(&name)).await;
            removed.map(|()| FileAnswer::Done).map_err(|error| place.trouble(&format!("removing {name}"), &error))
        }
    }
}

fn tell(told: &mut impl Write, answered: Result<FileAnswer, Trouble>) -> io::Result<()> {
    match answered {
        Ok(FileAnswer::Done) => writeln!(told, "done")?,
        Ok(FileAnswer::Bytes(bytes)) => {
            writeln!(told, "bytes {}", bytes.len())?;
            told.write_all(&bytes)?;
        }
        Ok(FileAnswer::Files(files)) => {
            writeln!(told, "files {}", files.len())?;
            for (name, bytes, changed_ms) in files {
                writeln!(told, "{name} {bytes} {changed_ms}")?;
            }
        }
        Err(trouble) => {
            let kind = match &trouble {
                Trouble::Gone(_) => "gone",
                Trouble::Refused(_) => "refused",
                Trouble::Away(_) => "away",
            };
            writeln!(told, "{kind} {}", trouble.to_string().replace(['\n', '\r'], " "))?;
        }
    }
    told.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(text: &[u8]) -> io::Result<Vec<FileOrder>> {
        let mut asked = text;
        let mut found = Vec::new();
        while let Some(order) = read(&mut asked)? {
            found.push(order);
        }
        Ok(found)
    }

    #[test]
    fn orders_follow_each_other_with_their_bytes() {
        let told = orders(b"put a/b 3\nx\nyget a/b\nlist\nremove a/b\n").expect("they are orders");
        let put = FileOrder::Put("a/b".to_owned(), Bytes::from_static(b"x\ny"));
        assert_eq!(told, [put, FileOrder::Get("a/b".to_owned()), FileOrder::List, FileOrder::Remove("a/b".to_owned())]);
    }

    #[test]
    fn what_leads_elsewhere_or_is_cut_short_is_no_order() {
        for wrong in [
            "get ../a\n",
            "get a//b\n",
            "get /a\n",
            "get a",
            "put a -1\n",
            "put a 99999999999\n",
            "put a 4\nxyz",
            "go\n",
        ] {
            assert!(orders(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_is_one_line_whatever_went_wrong() {
        let mut told = Vec::new();
        tell(&mut told, Err(Trouble::Away("first\nsecond".to_owned()))).expect("written");
        tell(&mut told, Ok(FileAnswer::Files(vec![("a".to_owned(), 1, 2)]))).expect("written");
        assert_eq!(String::from_utf8_lossy(&told), "away first second\nfiles 1\na 1 2\n");
    }
}
