//! Embeds the page: every file of `page` becomes a row of a constant table, so that nothing is read from disk by name.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("page");
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        let path = if name == "index.html" { "/".to_owned() } else { format!("/static/{name}") };
        let _ = writeln!(
            table,
            "    OpenPath {{ path: {path:?}, content_type: {:?}, body: include_bytes!({:?}) }},",
            content_type(&name),
            file.display().to_string()
        );
    }
    table.push(']');
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("page.rs"), table)?;
    println!("cargo::rerun-if-changed=page");
    Ok(())
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
