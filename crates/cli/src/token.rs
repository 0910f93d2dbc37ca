//! `oxiray token`: what lets machines join, and for how long.

use crate::table::{JsonOption, Printing, Table, width};
use crate::visit;
use crate::{identifiers, say};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use oxiray_wire::message::{TokenAction, TokenAsked, TokenRow};
use serde_json::{Value as Json, json};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a number of these is in milliseconds.
const UNITS: [(char, u64); 4] = [('s', 1000), ('m', 60_000), ('h', 3_600_000), ('d', 86_400_000)];

#[derive(Debug, Args)]
pub(crate) struct TokenOptions {
    #[command(subcommand)]
    order: TokenOrder,
}

#[derive(Debug, Subcommand)]
enum TokenOrder {
    /// Creates a token, and writes it to a file of mode 0600, or prints it once.
    Create(CreateOptions),
    /// Lists the tokens, without their secrets.
    List(ListOptions),
    /// Revokes a token; with --node, ends a node and revokes its certificate.
    Revoke(RevokeOptions),
}

#[derive(Debug, Args)]
struct CreateOptions {
    /// For how long the token is valid, such as 30m, 24h or 7d; `never` for no end.
    #[arg(long, default_value = "24h", value_name = "TIME")]
    ttl: String,
    /// How many nodes may join with the token; the default is any number. A node that joins again with its certificate is not
    /// counted again.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    uses: Option<u32>,
    /// The file to write the token to, which must not exist yet; without it the token is printed.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    printing: JsonOption,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    address: Option<String>,
}

#[derive(Debug, Args)]
struct ListOptions {
    #[command(flatten)]
    printing: Printing,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    address: Option<String>,
}

#[derive(Debug, Args)]
struct RevokeOptions {
    /// The token's name, as `oxiray token list` shows it, or the beginning of it.
    #[arg(required_unless_present = "node", conflicts_with = "node")]
    id: Option<String>,
    /// The node's identifier, or the beginning of it; or its name or address. A token that still holds would let its
    /// machine in again: revoke that, too.
    #[arg(long)]
    node: Option<String>,
    /// The cluster's address; the default is the current cluster.
    #[arg(long)]
    address: Option<String>,
}

pub(crate) fn run(options: &TokenOptions) -> anyhow::Result<()> {
    match &options.order {
        TokenOrder::Create(options) => create(options),
        TokenOrder::List(options) => list(options),
        TokenOrder::Revoke(options) => revoke(options),
    }
}

fn ask(address: Option<&str>, action: TokenAction, asked: TokenAsked) -> anyhow::Result<(String, Vec<TokenRow>)> {
    let told = visit::ask(address, TokenAsked { action, ..asked })?;
    Ok((told.text, told.rows))
}

/// A time such as 30m, in milliseconds; nothing where it is none, or longer than can be counted.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    let unit = text.chars().next_back()?;
    let (_, each) = UNITS.into_iter().find(|(letter, _)| *letter == unit)?;
    text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(each).filter(|time| i64::try_from(*time).is_ok())
}

fn create(options: &CreateOptions) -> anyhow::Result<()> {
    let ttl_ms = match options.ttl.as_str() {
        "never" => None,
        text => match milliseconds(text) {
            Some(time) if time > 0 => Some(time),
            _ => bail!("--ttl takes a time such as 30m, 24h or 7d, or `never`, and `{text}` is none"),
        },
    };
    // Before there is a token that nobody would have.
    let file = options.output.as_deref().map(new_file).transpose()?;
    let asked = TokenAsked { ttl_ms, uses: options.uses, ..TokenAsked::default() };
    let made = ask(options.address.as_deref(), TokenAction::Create, asked);
    let (text, rows) = match (made, &options.output) {
        (Ok(made), _) => made,
        (Err(error), path) => {
            // It is empty, and was made just now.
            let _ = path.as_ref().map(std::fs::remove_file);
            return Err(error);
        }
    };
    let mut told = rows.first().map_or(Json::Null, as_json);
    let (Some(mut file), Some(path)) = (file, &options.output) else {
        told["token"] = json!(text);
        say(&if options.printing.json { serde_json::to_string_pretty(&told)? } else { text });
        return Ok(());
    };
    writeln!(file, "{text}").with_context(|| format!("the token cannot be written to {}", path.display()))?;
    if options.printing.json {
        told["file"] = json!(path);
        say(&serde_json::to_string_pretty(&told)?);
        return Ok(());
    }
    let id = rows.first().map(|row| row.id.as_str()).unwrap_or_default();
    say(&format!(
        "Token {id} is in {}. It is a secret: keep it 0600, and give it to `oxiray start --token-file`.",
        path.display()
    ));
    Ok(())
}

fn new_file(path: &Path) -> anyhow::Result<std::fs::File> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    opened.with_context(|| format!("the token's file {} cannot be made", path.display()))
}

fn list(options: &ListOptions) -> anyhow::Result<()> {
    let (_, rows) = ask(options.address.as_deref(), TokenAction::List, TokenAsked::default())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    if options.printing.json {
        say(&serde_json::to_string_pretty(&rows.iter().map(as_json).collect::<Vec<_>>())?);
        return Ok(());
    }
    let cells = |row: &TokenRow| {
        let ends = row.ends_ms.map_or("never".to_owned(), |ends| match ends.checked_sub(now) {
            Some(left) => format!("in {}", rough(left)),
            None => format!("{} ago", rough(now - ends)),
        });
        let uses = row.uses_left.map_or("any".to_owned(), |left| left.to_string());
        json!({
            "token": row.id, "state": row.state, "ends": ends, "uses left": uses,
            "created": format!("{} ago", rough(now.saturating_sub(row.created_ms))),
            "note": if row.is_first { "made by `oxiray start --head`" } else { "" },
        })
    };
    let columns = ["token", "state", "created", "ends", "uses left", "note"];
    let table = Table::new(&columns, &rows.iter().map(cells).collect::<Vec<_>>());
    say(table.within(width(options.printing.wide)).draw().trim_end());
    Ok(())
}

fn as_json(row: &TokenRow) -> Json {
    json!({
        "token_id": row.id, "state": row.state, "created_ms": row.created_ms, "ends_ms": row.ends_ms,
        "uses_left": row.uses_left, "is_first": row.is_first,
    })
}

/// A time in the largest unit that it has two of.
fn rough(time: u64) -> String {
    let unit = UNITS.into_iter().rev().find(|(_, each)| time >= 2 * each).unwrap_or(UNITS[0]);
    format!("{}{}", time / unit.1, unit.0)
}

fn revoke(options: &RevokeOptions) -> anyhow::Result<()> {
    let address = options.address.as_deref();
    if let Some(node) = &options.node {
        ask(address, TokenAction::RevokeNode, TokenAsked { node: node.clone(), ..TokenAsked::default() })?;
        say(&format!("Node {node} is shut out: it ends, and its certificate lets nobody in any more."));
        return Ok(());
    }
    let (_, rows) = ask(address, TokenAction::List, TokenAsked::default())?;
    let given = options.id.as_deref().unwrap_or_default();
    let id = identifiers::among(rows.iter().map(|row| row.id.as_str()), given, ("token", "`oxiray token list`"))?;
    ask(address, TokenAction::Revoke, TokenAsked { id: id.clone(), ..TokenAsked::default() })?;
    say(&format!(
        "Token {id} lets nobody in any more. Nodes that have joined with it stay: `oxiray token revoke --node` ends one."
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_told() {
        assert_eq!(["30m", "24h", "7d", "1s"].map(milliseconds), [1_800_000, 86_400_000, 604_800_000, 1000].map(Some));
        for wrong in ["", "h", "24", "-1h", "1.5h", "999999999999999999d", "24 h"] {
            assert_eq!(milliseconds(wrong), None, "{wrong}");
        }
        assert_eq!([0, 119_000, 7_200_000, 86_400_000].map(rough), ["0s", "119s", "2h", "24h"].map(str::to_owned));
    }
}
