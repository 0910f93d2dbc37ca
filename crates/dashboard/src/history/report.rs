//! One file with the page and what was recorded of a job, which asks nobody for anything.
//!
//! The page's modules stand in it as `data:` addresses, by which an import map names them: a file has no folder beside it, and a
//! browser reads no modules from one. What was recorded is a block of JSON in which no `<` stands, so that no name of a
//! program ends it.

use super::reading::{Asked, read};
use super::serving::MOST_BYTES;
use super::shelf::own_file;
use super::views::{Archive, KEPT, MADE, in_order};
use crate::options::ReportOptions;
use crate::page::merging::{Part, Window};
use crate::page::{lists, pictures};
use crate::server::{PAGE, limit_memory};
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oxiray_ids::NodeId;
use oxiray_network::porch::PorchRules;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value as Json, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

/// How many rows of each list there are.
const ROWS_MAX: usize = 20_000;
/// How many pixels wide the picture of devices is.
const PIXELS: u32 = 4_000;
/// How many nodes have charts.
const CHARTS_MAX: usize = 64;
/// Scripts that are no modules, in their order.
const PLAIN: [&str; 2] = ["/static/theme.js", "/static/vendor/uplot.js"];
/// What names of modules begin with.
const PREFIX: &str = "oxiray/";
/// What begins the page.
const START: &str = "import \"oxiray/main.js\";";

/// Writes the report.
pub(crate) fn report(options: &ReportOptions) -> anyhow::Result<()> {
    limit_memory()?;
    let asked = Asked {
        place: options.history.clone(),
        session: options.session.clone(),
        job: Some(options.job.clone()),
        most_bytes: MOST_BYTES,
    };
    let archive = Archive::new(read(&asked)?, Arc::new(PorchRules::default()));
    let text = document(&told(&archive, &options.job));
    let path = &options.output;
    let beside = path.with_extension("partial");
    let written = own_file(&beside, |options| options.write(true).truncate(true))
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&beside, path));
    written.with_context(|| format!("{} cannot be written", path.display()))
}

/// All that the page asks, answered at the end of the history.
fn told(archive: &Archive, job: &str) -> Json {
    let at = archive.within(None);
    let (begun, until) = archive.past().span();
    let tables = archive.tables_at(at);
    let mut rows = Map::new();
    let mut notes = Vec::new();
    for list in KEPT.iter().chain(&MADE) {
        let all = archive.rows_at(list, at).unwrap_or_default();
        let kept = if KEPT.contains(list) { archive.past().texts(list, at).len() } else { 0 };
        let (total, there) = (kept.max(all.len()), all.len().min(ROWS_MAX));
        if total > there {
            notes.push(format!("There are {total} {list}; the newest {there} are in this report."));
        }
        rows.insert((*list).to_owned(), in_order(all, ROWS_MAX).into());
    }
    let grants = match archive.cpu_holders_at(at) {
        Some(holders) => lists::cpu_grants(&tables, &holders, (begun, until)),
        None => lists::grants(&tables, begun, until).0,
    };
    rows.insert("grants".to_owned(), in_order(grants, ROWS_MAX).into());
    let window = Window { from_ms: begun, to_ms: until.max(begun + 1), pixels: PIXELS };
    let nodes = rows.get("nodes").and_then(Json::as_array).into_iter().flatten();
    let nodes = nodes.filter_map(|row| row["key"].as_str()).filter_map(|node| NodeId::from_hex(node).ok());
    let charts: Map<String, Json> =
        nodes.take(CHARTS_MAX).map(|node| (node.to_string(), pictures::node_chart(&tables, node))).collect();
    let runs = rows.get("runs").and_then(Json::as_array).into_iter().flatten().filter_map(|row| row["key"].as_str());
    let runs: Map<String, Json> = runs.map(|run| (run.to_owned(), pictures::run_chart(&tables, run))).collect();
    let mut overview = archive.overview_at(at);
    overview["report"] = job.into();
    if let Some(warnings) = overview["warnings"].as_array_mut() {
        warnings.extend(notes.into_iter().map(Json::from));
    }
    json!({
        "overview": overview, "until_ms": until, "holdings": archive.holdings_at(until, (window, Part::WHOLE)), "map": lists::map(&tables),
        "names": archive.task_names_at(at, None), "job_names": archive.task_jobs_at(at), "charts": charts, "store": pictures::store_chart(&tables), "runs": runs, "rows": rows,
    })
}

/// A script or a style that stands in the document: nothing within it ends it.
fn hash_of(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

fn file(path: &str) -> &'static str {
    let found = PAGE.iter().find(|file| file.path == path);
    found.and_then(|file| std::str::from_utf8(file.body).ok()).unwrap_or_default()
}

/// A module with the names of those that it imports in place of their paths.
fn module(path: &str, source: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("from \"./").into_iter().chain(rest.find("from \"../")).min() {
        let begin = at + "from \"".len();
        let Some(length) = rest[begin..].find('"') else { break };
        let _ = write!(text, "{}{PREFIX}{}", &rest[..begin], resolved(folder, &rest[begin..begin + length]));
        rest = &rest[begin + length..];
    }
    text.push_str(rest);
    text
}

/// Where a path leads that is relative to a folder.
fn resolved(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The import map: each module by its name.
fn modules() -> String {
    let own =
        PAGE.iter().filter(|file| file.content_type.starts_with("text/javascript") && !PLAIN.contains(&file.path));
    let named = own.filter_map(|file| {
        let path = file.path.strip_prefix("/static/")?;
        let source = module(path, std::str::from_utf8(file.body).ok()?);
        let address = format!("data:text/javascript;charset=utf-8;base64,{}", STANDARD.encode(source));
        Some((format!("{PREFIX}{path}"), Json::from(address)))
    });
    json!({"imports": named.collect::<Map<String, Json>>()}).to_string()
}

/// The document.
fn document(told: &Json) -> String {
    let styles = PAGE.iter().filter(|file| file.content_type.starts_with("text/css")).map(|file| file.path);
    let styles: Vec<&str> = styles.map(file).collect();
    let scripts: Vec<&str> = PLAIN.iter().map(|path| file(path)).collect();
    let map = modules();
    let hashes = |texts: &[&str]| texts.iter().map(|text| hash_of(text)).collect::<Vec<_>>().join(" ");
    let policy = format!(
        "default-src 'none'; script-src {} {} {} data:; style-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        hashes(&scripts),
        hash_of(&map),
        hash_of(START),
        hashes(&styles)
    );
    let icon = STANDARD.encode(file("/static/icon.svg"));
    // No `<` stands in it, so that nothing in it is markup.
    let data = told.to_string().replace('<', "\\u003c");
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Oxiray</title>\n<link rel=\"icon\" href=\"data:image/svg+xml;base64,{icon}\">\n"
    );
    for style in &styles {
        let _ = writeln!(text, "<style>{style}</style>");
    }
    for script in &scripts {
        let _ = writeln!(text, "<script>{script}</script>");
    }
    let _ = write!(
        text,
        "<script type=\"application/json\" id=\"oxiray-report\">{data}</script>\n<script type=\"importmap\">{map}</script>\n\
         <script type=\"module\">{START}</script>\n</head>\n<body>\n<div id=\"page\"></div>\n</body>\n</html>\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_name_each_other_by_where_they_are() {
        let source =
            "import { a } from \"./a.js\";\nimport { b } from \"../vendor/b.js\";\nimport c from \"elsewhere\";\n";
        let expected = "import { a } from \"oxiray/views/a.js\";\nimport { b } from \"oxiray/vendor/b.js\";\nimport c from \"elsewhere\";\n";
        assert_eq!(module("views/x.js", source), expected);
    }

    #[test]
    fn each_module_that_is_imported_is_in_the_map() {
        let map: Json = serde_json::from_str(&modules()).expect("JSON");
        let names = map["imports"].as_object().expect("imports");
        assert!(names.contains_key("oxiray/main.js") && names.len() > 15);
        for (name, address) in names {
            let packed = address.as_str().and_then(|address| address.split_once(',')).expect("an address").1;
            let source = String::from_utf8(STANDARD.decode(packed).expect("base64")).expect("text");
            for import in source.split("from \"").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(
                    !import.starts_with('.') && (!import.starts_with(PREFIX) || names.contains_key(import)),
                    "{name}: {import}"
                );
            }
        }
    }

    #[test]
    fn no_name_of_a_program_is_markup() {
        let name = "</script><script>alert(1)</script><!--";
        let text = document(&json!({"rows": {"jobs": [{"key": name}]}}));
        assert!(!text.contains(name) && !text.contains("alert(1)</script>"));
        let block = text.split("id=\"oxiray-report\">").nth(1).and_then(|rest| rest.split("</script>").next());
        let told: Json = serde_json::from_str(block.expect("a block")).expect("it is JSON");
        assert_eq!(told["rows"]["jobs"][0]["key"], name);
    }

    #[test]
    fn what_stands_in_the_document_ends_where_it_is_meant_to() {
        for text in PLAIN.iter().map(|path| file(path)).chain([modules().as_str(), START]) {
            assert!(!text.is_empty() && !text.to_lowercase().contains("</script"));
        }
        for style in PAGE.iter().filter(|file| file.content_type.starts_with("text/css")) {
            assert!(!file(style.path).to_lowercase().contains("</style"));
        }
        let text = document(&json!({}));
        assert!(!text.contains("http://") && !text.contains("src=\""), "nobody is asked for anything");
    }
}
