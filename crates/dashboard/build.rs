//! Embeds the page: every file of `page` becomes a row of a constant table, as it is and compressed, so that nothing is read from disk
//! by name and nothing is compressed twice.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// How much shorter a file is to become for it to be sent compressed, in bytes.
const WORTH_BYTES: usize = 256;

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("page");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for (number, file) in files.into_iter().enumerate() {
        let name = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        let path = if name == "index.html" { "/".to_owned() } else { format!("/static/{name}") };
        let body = as_sent(&name, fs::read(&file)?);
        let body_file = out.join(format!("page-{number}"));
        fs::write(&body_file, &body)?;
        let mut packed = gzip(&body)?;
        if packed.len() + WORTH_BYTES > body.len() {
            packed.clear();
        }
        let packed_file = out.join(format!("page-{number}.gz"));
        fs::write(&packed_file, packed)?;
        let _ = writeln!(
            table,
            "    OpenPath {{ path: {path:?}, content_type: {:?}, body: include_bytes!({:?}), packed: include_bytes!({:?}) }},",
            content_type(&name),
            body_file.display().to_string(),
            packed_file.display().to_string()
        );
    }
    table.push(']');
    fs::write(out.join("page.rs"), table)?;
    println!("cargo::rerun-if-changed=page");
    Ok(())
}

/// A file of ours goes without the lines of it that are comments and without its indentation, which nobody's browser needs: empty lines
/// stand in the place of comments, so that a line has the number that it has in the source. Others' files go as they are.
fn as_sent(name: &str, body: Vec<u8>) -> Vec<u8> {
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    let is_ours = !name.starts_with("vendor/") && matches!(end, "js" | "css");
    match String::from_utf8(body) {
        Ok(text) if is_ours => without_comments(&text).into_bytes(),
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    }
}

/// Within a text between backticks nothing is taken for a comment or for indentation.
fn without_comments(text: &str) -> String {
    let (mut is_comment, mut is_quoted) = (false, false);
    let lines = text.split('\n').map(|line| {
        let words = line.trim();
        if is_comment {
            is_comment = !words.ends_with("*/");
            return "";
        }
        let begins = !is_quoted && words.starts_with("/*");
        if begins && (words.ends_with("*/") || !words.contains("*/")) {
            is_comment = !words.ends_with("*/");
            return "";
        }
        if !is_quoted && words.starts_with("//") {
            return "";
        }
        let was_quoted = is_quoted;
        is_quoted ^= line.matches('`').count() % 2 == 1;
        if was_quoted { line } else { words }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The same bytes wherever and whenever it is built: no name and no time stand in them.
fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if !is_about(&path) {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether a file is about the page, such as a license, and no part of it.
fn is_about(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || matches!(path.extension().and_then(|end| end.to_str()), None | Some("md" | "ts" | "txt"))
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json; charset=utf-8",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}
