//! Small values kept by name.
//!
//! - KEPT-1: what is kept never exceeds [`KEPT_BYTES_MAX`], keys and namespaces counted.

use bytes::Bytes;
use std::collections::BTreeMap;

/// The most bytes of a namespace, and of a key.
pub(crate) const KEPT_KEY_BYTES_MAX: usize = 64 << 10;
/// The most bytes of one value.
pub(crate) const KEPT_VALUE_BYTES_MAX: usize = 32 << 20;
/// The most bytes of everything that is kept.
pub(crate) const KEPT_BYTES_MAX: usize = 256 << 20;

/// Why a value is not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotKept {
    /// The key or its namespace is too long.
    #[error(
        "a key and its namespace have at most {KEPT_KEY_BYTES_MAX} bytes each, and this one has {0}: use a shorter name"
    )]
    LongKey(usize),
    /// The value is too large.
    #[error(
        "a kept value has at most {max} MiB, and this one has {0} bytes: put() it as an object and keep its name",
        max = KEPT_VALUE_BYTES_MAX >> 20
    )]
    LargeValue(usize),
    /// Everything together would be too large.
    #[error(
        "the cluster keeps at most {max} MiB of such values, and has {0} bytes: delete some, or put() them as objects",
        max = KEPT_BYTES_MAX >> 20
    )]
    Full(usize),
}

/// All kept values of a session.
#[derive(Debug, Default)]
pub(crate) struct KeyValueStore {
    values: BTreeMap<(Bytes, Bytes), Bytes>,
    bytes: usize,
}

impl KeyValueStore {
    /// Keeps a value; one that is there stays unless `overwrite`. Says whether one was there.
    pub(crate) fn put(
        &mut self,
        namespace: Bytes,
        key: Bytes,
        value: &Bytes,
        overwrite: bool,
    ) -> Result<bool, NotKept> {
        let longest = namespace.len().max(key.len());
        if longest > KEPT_KEY_BYTES_MAX {
            return Err(NotKept::LongKey(longest));
        }
        if value.len() > KEPT_VALUE_BYTES_MAX {
            return Err(NotKept::LargeValue(value.len()));
        }
        let name = (namespace, key);
        let before = self.values.get(&name).map(Bytes::len);
        if before.is_some() && !overwrite {
            return Ok(true);
        }
        let names = if before.is_none() { name.0.len() + name.1.len() } else { 0 };
        let after = self.bytes - before.unwrap_or(0) + names + value.len();
        if after > KEPT_BYTES_MAX {
            return Err(NotKept::Full(self.bytes));
        }
        self.bytes = after;
        // A copy, as what came with a message would keep all of the message.
        let own = (Bytes::copy_from_slice(&name.0), Bytes::copy_from_slice(&name.1));
        self.values.insert(own, Bytes::copy_from_slice(value));
        Ok(before.is_some())
    }

    /// The value of a key.
    pub(crate) fn get(&self, name: &(Bytes, Bytes)) -> Option<&Bytes> {
        self.values.get(name)
    }

    /// All namespaces and keys, in order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Bytes, Bytes)> {
        self.values.keys()
    }

    /// Has a key hold what it held before, or nothing.
    pub(crate) fn set(&mut self, namespace: Bytes, key: Bytes, value: Option<Bytes>) {
        let name = (namespace, key);
        let names = name.0.len() + name.1.len();
        if let Some(gone) = self.values.remove(&name) {
            self.bytes -= names + gone.len();
        }
        if let Some(value) = value {
            self.bytes += names + value.len();
            self.values.insert(name, value);
        }
    }

    /// The keys of a namespace that begin with `prefix`, in order.
    pub(crate) fn list<'a>(&'a self, namespace: &'a Bytes, prefix: &'a Bytes) -> impl Iterator<Item = &'a Bytes> {
        self.values
            .range((namespace.clone(), prefix.clone())..)
            .take_while(move |((of, key), _)| of == namespace && key.starts_with(prefix))
            .map(|((_, key), _)| key)
    }

    /// Forgets a key, or every key that begins with it. Returns what they held.
    pub(crate) fn delete(&mut self, namespace: &Bytes, key: &Bytes, is_prefix: bool) -> Vec<(Bytes, Bytes)> {
        let doomed: Vec<Bytes> =
            if is_prefix { self.list(namespace, key).cloned().collect() } else { vec![key.clone()] };
        let mut gone = Vec::new();
        for key in doomed {
            let name = (namespace.clone(), key);
            if let Some(value) = self.values.remove(&name) {
                self.bytes -= name.0.len() + name.1.len() + value.len();
                gone.push((name.1, value));
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(kept: &mut KeyValueStore, key: &'static str, value: &'static str, overwrite: bool) -> bool {
        kept.put(Bytes::from_static(b"n"), Bytes::from_static(key.as_bytes()), &value.into(), overwrite)
            .expect("it fits")
    }

    #[test]
    fn values_are_put_found_and_forgotten_within_their_namespace() {
        let mut kept = KeyValueStore::default();
        let (space, other) = (Bytes::from_static(b"n"), Bytes::from_static(b"o"));
        assert!(!put(&mut kept, "a/1", "x", true));
        assert!(put(&mut kept, "a/1", "y", false));
        assert_eq!(kept.get(&(space.clone(), "a/1".into())), Some(&"x".into()));
        assert!(put(&mut kept, "a/1", "y", true));
        assert_eq!(kept.get(&(space.clone(), "a/1".into())), Some(&"y".into()));
        assert_eq!(kept.get(&(other.clone(), "a/1".into())), None);
        put(&mut kept, "a/2", "", true);
        put(&mut kept, "b", "z", true);
        assert_eq!(kept.list(&space, &"a/".into()).collect::<Vec<_>>(), ["a/1", "a/2"]);
        assert_eq!(kept.list(&other, &Bytes::new()).count(), 0);
        assert_eq!(kept.delete(&space, &"a".into(), false).len(), 0);
        assert_eq!(kept.delete(&space, &"a".into(), true).len(), 2);
        assert_eq!(kept.delete(&space, &"b".into(), false).len(), 1);
        assert_eq!((kept.values.len(), kept.bytes), (0, 0));
    }

    #[test]
    fn what_is_kept_has_bounds() {
        let mut kept = KeyValueStore::default();
        let long = Bytes::from(vec![0; KEPT_KEY_BYTES_MAX + 1]);
        assert_eq!(kept.put(Bytes::new(), long.clone(), &Bytes::new(), true), Err(NotKept::LongKey(long.len())));
        assert_eq!(kept.put(long.clone(), Bytes::new(), &Bytes::new(), true), Err(NotKept::LongKey(long.len())));
        let large = Bytes::from(vec![0; KEPT_VALUE_BYTES_MAX + 1]);
        assert_eq!(kept.put(Bytes::new(), "k".into(), &large, true), Err(NotKept::LargeValue(large.len())));
        kept.bytes = KEPT_BYTES_MAX - 2;
        assert_eq!(kept.put(Bytes::new(), "k".into(), &"xx".into(), true), Err(NotKept::Full(KEPT_BYTES_MAX - 2)));
        assert_eq!(kept.put(Bytes::new(), "k".into(), &"x".into(), true), Ok(false));
        assert_eq!(kept.put(Bytes::new(), "k".into(), &"y".into(), true), Ok(true));
    }
}
