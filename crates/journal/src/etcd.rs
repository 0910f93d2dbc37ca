//! Rows in etcd, which lets one head at a time write: a standby on another machine goes on where that head ends.
//!
//! - ETCD-1: each change is made in a transaction that compares the creation revision of the key by which this process
//!   is the head: once another has it, or its lease was lost, nothing is written any more.
//! - ETCD-2: the lease is held by a thread that asks etcd again and again, and runs from when it *asked*, less a margin
//!   for clocks that run at different rates: it is over here before it is over there.

mod access;
mod client;
mod held;
mod layout;

use crate::{Change, Fault, Rows, Store, Tenure};
pub use access::{AccessFault, EtcdAccess, EtcdFiles};
use client::Client;
use held::Held;
use layout::Layout;
use serde_json::{Value, json};

/// After how long without a word etcd gives a head up.
const LEASE_SECONDS: u64 = 3;
/// The most changes of one transaction; etcd takes 128 where nothing else is said.
const CHANGES_MAX: usize = 100;
/// About how many bytes of values one transaction has; etcd takes 1.5 MiB where nothing else is said.
const TRANSACTION_BYTES: usize = 512 << 10;

/// Where rows are kept in etcd: `etcd://HOST:PORT[,HOST:PORT...][/NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdAddress {
    hosts: Vec<String>,
    name: String,
}

impl EtcdAddress {
    /// Reads such a text.
    ///
    /// # Errors
    /// Where it is none, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no store: give etcd://HOST:PORT, with further hosts after commas and the cluster's name after a slash where there are several"
            )
        };
        let rest = text.strip_prefix("etcd://").ok_or_else(wrong)?;
        let (hosts, name) = rest.split_once('/').unwrap_or((rest, "default"));
        let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        let is_host = |host: &String| {
            host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok())
        };
        if !hosts.iter().all(is_host) || name.is_empty() || name.contains('/') {
            return Err(wrong());
        }
        Ok(Self { hosts, name: name.to_owned() })
    }
}

impl std::fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "etcd://{}/{}", self.hosts.join(","), self.name)
    }
}

/// What became of a request to be the head.
#[derive(Debug)]
pub enum Claim {
    /// This process is.
    Won(Box<EtcdStore>),
    /// Another is, which describes itself so.
    Held(String),
    /// The cluster was ended for good.
    Over,
}

/// Rows in etcd, of which this process is the only writer.
#[derive(Debug)]
pub struct EtcdStore {
    client: Client,
    layout: Layout,
    held: Held,
    /// The creation revision of the head's key (ETCD-1).
    revision: String,
    rows: Rows,
}

impl EtcdStore {
    /// Becomes the head where nobody is, or where the one that is describes itself as `dead`. `own` describes this one, and
    /// `access` is by what etcd knows it.
    /// A cluster that was ended is begun anew where `may_begin`.
    ///
    /// # Errors
    /// Where etcd cannot be asked, or what it has cannot be read.
    pub fn claim(
        address: &EtcdAddress,
        access: &EtcdAccess,
        own: &str,
        dead: &str,
        may_begin: bool,
    ) -> Result<Claim, Fault> {
        let client = Client::new(address, access);
        let layout = Layout::new(&address.name);
        let found = client.ask("kv/range", &json!({"key": layout.head()}))?;
        let holder = layout::rows_in(&found).next().transpose()?;
        if let Some(holder) = holder {
            let said = String::from_utf8_lossy(&holder.value).into_owned();
            if said != dead {
                return Ok(Claim::Held(said));
            }
            let compare = json!([layout.is_created(&holder.created)]);
            client.ask("kv/txn", &json!({"compare": compare, "success": [layout.delete_head()]}))?;
        }
        let is_over = layout::rows_in(&client.ask("kv/range", &json!({"key": layout.over()}))?).next().is_some();
        if is_over && !may_begin {
            return Ok(Claim::Over);
        }
        let held = Held::begin(&client, LEASE_SECONDS)?;
        let success = [
            json!({"request_put": {"key": layout.head(), "value": layout::text(own.as_bytes()), "lease": held.lease()}}),
            layout.delete_over(),
        ];
        let answer = client.ask("kv/txn", &json!({"compare": [layout.is_created("0")], "success": success}))?;
        if !succeeded(&answer) {
            return Ok(Claim::Held("another head, which was faster".to_owned()));
        }
        let revision = answer["header"]["revision"].as_str().unwrap_or_default().to_owned();
        let mut store = Self { client, layout, held, revision, rows: Rows::new() };
        store.rows = store.layout.read(&store.client)?;
        Ok(Claim::Won(Box::new(store)))
    }

    /// ETCD-1.
    fn transact(&self, operations: &[Value]) -> Result<(), Fault> {
        let compare = [self.layout.is_created(&self.revision)];
        let answer = self.client.ask("kv/txn", &json!({"compare": compare, "success": operations}))?;
        if succeeded(&answer) { Ok(()) } else { Err(Fault::Fenced { store: self.client.address() }) }
    }
}

fn succeeded(answer: &Value) -> bool {
    answer["succeeded"].as_bool().unwrap_or(false)
}

impl Store for EtcdStore {
    /// A batch that is too large for one transaction is made in several, the last of which is awaited like the first.
    fn commit(&mut self, batch: &[Change]) -> Result<(), Fault> {
        let (mut operations, mut bytes) = (Vec::new(), 0);
        for change in batch {
            for (operation, size) in self.layout.operations(change) {
                if operations.len() == CHANGES_MAX || bytes + size > TRANSACTION_BYTES {
                    self.transact(&std::mem::take(&mut operations))?;
                    bytes = 0;
                }
                bytes += size;
                operations.push(operation);
            }
        }
        self.transact(&operations)
    }

    fn rows(&self) -> &Rows {
        &self.rows
    }

    fn tenure(&self) -> Option<Tenure> {
        Some(self.held.tenure())
    }

    fn finish(&mut self) {
        let over = json!({"request_put": {"key": self.layout.over(), "value": layout::text(b"over")}});
        // Where etcd is away, its lease ends by itself, and a standby goes on.
        let _ =
            self.transact(&[self.layout.delete_rows(), self.layout.delete_parts(), over, self.layout.delete_head()]);
    }
}
