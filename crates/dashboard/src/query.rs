//! The parameters of a request, read as what they stand for.

use crate::routes::{Request, Site};
use crate::state::rows;
use oxiray_ids::NodeId;
use oxiray_wire::state::StateKind;

/// The parameters of a query.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Those of a request.
    pub(crate) fn of(request: &Request) -> Self {
        Self(request.query())
    }

    /// The first value of that name which is not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// A value that is read from its text.
    pub(crate) fn read<T: std::str::FromStr>(&self, name: &str, what: &str) -> Result<Option<T>, String> {
        let read = |text: &str| text.parse().map_err(|_| format!("{name}={text} is no {what}"));
        self.text(name).map(read).transpose()
    }

    /// An identifier.
    pub(crate) fn id<T, E>(&self, name: &str, read: impl Fn(&str) -> Result<T, E>) -> Result<Option<T>, String> {
        let read =
            |text: &str| read(text).map_err(|_| format!("{name}={text} is no identifier: `oxiray list` shows them"));
        self.text(name).map(read).transpose()
    }

    /// One of a few words, with what it stands for; the first where nothing is said.
    pub(crate) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T, String> {
        let said = self.text(name);
        let found = said.map_or(choices.first(), |text| choices.iter().find(|(word, _)| *word == text));
        found.map(|(_, meant)| *meant).ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            format!("{name}={} is none of {}", said.unwrap_or_default(), words.join(", "))
        })
    }

    /// Yes or no, as programs write it; no where nothing is said.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        let words = [("0", false), ("1", true), ("false", false), ("true", true), ("False", false), ("True", true)];
        self.choice(name, &words)
    }

    /// The names of all parameters.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// As Python writes it.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        matches!(self.text(name), Some("True" | "true" | "1"))
    }

    /// The node that is named; nothing where none is.
    pub(crate) async fn node(&self, site: &Site) -> Result<Option<NodeId>, String> {
        let (id, ip) = (self.text("node_id"), self.text("node_ip"));
        if id.is_none() && ip.is_none() {
            return Ok(None);
        }
        let nodes = nodes(site).await?;
        let is_meant = |(node, address): &&(NodeId, String)| id.map_or(ip == Some(address), |id| node.hex() == id);
        let found = nodes.iter().find(is_meant).map(|(node, _)| *node);
        let named = id.or(ip).unwrap_or_default();
        found.map(Some).ok_or_else(|| format!("there is no node `{named}` that is alive: /api/v0/nodes lists them"))
    }
}

/// Those that are alive, with their addresses.
pub(crate) async fn nodes(site: &Site) -> Result<Vec<(NodeId, String)>, String> {
    let told = rows(site, StateKind::Nodes).await.map_err(|refusal| refusal.body)?;
    Ok(told.nodes.into_iter().filter(|node| node.alive).map(|node| (node.node_id, node.address)).collect())
}

#[cfg(test)]
impl Query {
    /// Those of a query that is written as in an address, and has nothing to decode.
    pub(crate) fn written(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_refused_with_their_name_and_the_rule() {
        let query = Query::written("a=&b=2&c=x&d=True");
        assert_eq!((query.text("a"), query.read::<u32>("b", "number")), (None, Ok(Some(2))));
        assert_eq!(query.read::<u32>("c", "number"), Err("c=x is no number".to_owned()));
        assert_eq!((query.flag("d"), query.flag("a")), (Ok(true), Ok(false)));
        assert_eq!(query.choice("c", &[("y", 1), ("z", 2)]), Err("c=x is none of y, z".to_owned()));
        assert_eq!(query.choice("e", &[("y", 1), ("z", 2)]), Ok(1));
    }
}
