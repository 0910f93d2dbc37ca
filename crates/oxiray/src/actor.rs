//! Objects that live in other processes.

use crate::error::{Error, Result};
use crate::options::{ActorOptions, retried};
use crate::outgoing::{Kept, Outgoing};
use crate::reference::{Returned, note_contained};
use crate::{context, process};
use bytes::Bytes;
use oxiray_client::borrowing;
use oxiray_ids::ActorId;
use oxiray_runtime::{ActorWork, Arguments, Routine, Runtime, Streaming, Work, amounts};
use oxiray_values::{ACTOR, Blob, Common, Decoded, Encoded};
use oxiray_wire::message::{ActorCreate, ConcurrencyGroup};
use parking_lot::Mutex;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Methods that one handle remembers; a program may call a Python actor's by ever new names.
const ROUTINES_MAX: usize = 64;

/// One handle's hold of an actor, given up when it is dropped.
struct Hold {
    runtime: Runtime,
    actor: ActorId,
    /// Whether the actor lives as long as the handle; not so where the handle was found by the actor's name.
    keeps: bool,
    /// Of the methods that were called through it, those called lately.
    routines: Mutex<Vec<Arc<Routine>>>,
}

impl Hold {
    fn on(runtime: Runtime, actor: ActorId, keeps: bool) -> Self {
        runtime.retain_actor(actor, keeps);
        Self { runtime, actor, keeps, routines: Mutex::default() }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.runtime.is_abandoned() {
            self.runtime.release_actor(self.actor, self.keeps);
        }
    }
}

/// An actor of any class. `#[remote]` makes a type of its own for each class, with its methods, which wraps this.
///
/// An actor ends with the last handle of it in any process, unless it is detached; handles that were found by its name do
/// not count. Handles may be passed to functions and actors like any other value.
#[derive(Clone)]
pub struct ActorHandle {
    hold: Arc<Hold>,
    traits: Arc<Traits>,
    /// The same as its creator told it: a Python class tells Python more.
    told: Bytes,
}

/// A method as it is called.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default)]
pub struct MethodCall<'name> {
    pub name: &'name str,
    /// The concurrency group that it runs in; empty for none.
    pub concurrency_group: &'name str,
    /// How many of its items may be there unread; 0 for any number.
    pub max_unread: u32,
    /// Whether it is run again after an error, as often as the actor's `max_task_retries` says.
    pub retry_exceptions: bool,
}

/// What every handle of an actor knows of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traits {
    /// The path of the class.
    pub(crate) class: String,
    pub(crate) language: String,
    pub(crate) max_task_retries: i32,
    pub(crate) unordered: bool,
    /// Its methods, where that is known.
    pub(crate) methods: Vec<String>,
}

impl Traits {
    /// As other processes read it, in Python too.
    fn to_bytes(&self) -> Bytes {
        let common = Common::of(self).and_then(|common| Encoded::common(&common));
        common.expect("texts and numbers can be written").into_bytes()
    }

    /// Those of an actor that was found; a Python class tells nothing that Rust could read.
    fn from_bytes(handle: &Bytes) -> Self {
        Decoded::new(handle).and_then(Decoded::value).unwrap_or_else(|_| Self {
            class: String::new(),
            language: "python".into(),
            max_task_retries: 0,
            unordered: false,
            methods: Vec::new(),
        })
    }
}

impl fmt::Debug for ActorHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Actor({}, {})", self.traits.class, self.hold.actor)
    }
}

impl PartialEq for ActorHandle {
    fn eq(&self, other: &Self) -> bool {
        self.hold.actor == other.hold.actor
    }
}

impl ActorHandle {
    /// A handle of an actor of which its creator told this.
    fn told_of(hold: Hold, told: Bytes) -> Self {
        Self { hold: Arc::new(hold), traits: Arc::new(Traits::from_bytes(&told)), told }
    }

    /// The actor's identifier: 32 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.hold.actor.hex()
    }

    pub(crate) fn call_with<R: Returned>(&self, method: MethodCall<'_>, arguments: Arguments, kept: Kept) -> Result<R> {
        let runtime = &self.hold.runtime;
        let routine = self.routine::<R>(method);
        let retries = self.traits.max_task_retries;
        let work = Work { routine, arguments, retries, parent: context::current_task() };
        let task = runtime.call_actor(self.hold.actor, work)?;
        drop(kept);
        Ok(R::adopt(runtime, task))
    }

    /// What all calls of a method through this handle have in common.
    fn routine<R: Returned>(&self, method: MethodCall<'_>) -> Arc<Routine> {
        let stream = R::STREAMS.then_some(Streaming { ahead: method.max_unread, per_yield: 1 });
        let is_it = |known: &&Arc<Routine>| {
            known.name == method.name
                && known.group == method.concurrency_group
                && (known.results, known.stream) == (R::RESULTS, stream)
                && known.retry_exceptions.is_empty() != method.retry_exceptions
        };
        let mut routines = self.hold.routines.lock();
        if let Some(known) = routines.iter().find(is_it) {
            return Arc::clone(known);
        }
        if routines.len() >= ROUTINES_MAX {
            routines.clear();
        }
        let routine = Arc::new(Routine {
            name: method.name.to_owned(),
            group: method.concurrency_group.to_owned(),
            retry_exceptions: retried(method.retry_exceptions),
            results: R::RESULTS,
            stream,
            unordered: self.traits.unordered,
            ..Routine::default()
        });
        routines.push(Arc::clone(&routine));
        routine
    }

    #[doc(hidden)]
    pub fn call<R: Returned>(&self, method: MethodCall<'_>, outgoing: Outgoing) -> Result<R> {
        let (runtime, arguments, kept) = outgoing.finish()?;
        if !self.hold.runtime.is(&runtime) {
            return Err(Error::Invalid(format!("{self:?} is of a connection that has ended")));
        }
        self.call_with(method, arguments, kept)
    }
}

/// A class of actors, as `#[remote]` on an `impl` block makes one of its type.
pub trait Actor: Sized {
    /// The handle with the class's methods.
    type Handle: From<ActorHandle> + AsRef<ActorHandle>;
    /// The path of the class.
    #[doc(hidden)]
    const PATH: &'static str;
    /// What its `#[remote(…)]` says.
    #[doc(hidden)]
    fn options() -> ActorOptions;
    /// The names of its methods.
    #[doc(hidden)]
    const METHODS: &'static [&'static str];
}

/// Makes an actor of a Rust class.
#[doc(hidden)]
pub fn create<A: Actor>(options: Option<ActorOptions>, outgoing: Outgoing) -> Result<A::Handle> {
    let options = options.unwrap_or_default().over(A::options());
    let traits = Traits {
        class: A::PATH.to_owned(),
        language: "rust".into(),
        max_task_retries: options.max_task_retries.unwrap_or(0),
        unordered: options.max_concurrency.is_some_and(|count| count > 1),
        methods: A::METHODS.iter().map(|name| (*name).to_owned()).collect(),
    };
    let class = Bytes::from_static(A::PATH.as_bytes());
    let environment = options.shared.environment()?;
    let (runtime, arguments, kept) = outgoing.finish()?;
    let handle = create_with(&runtime, options, traits, class, environment, arguments)?;
    drop(kept);
    Ok(handle.into())
}

pub(crate) fn create_with(
    runtime: &Runtime,
    options: ActorOptions,
    traits: Traits,
    class: Bytes,
    environment: oxiray_wire::message::Environment,
    arguments: Arguments,
) -> Result<ActorHandle> {
    let (placement, running) = options.demands()?;
    let groups = options.groups.iter().map(|(name, limit)| ConcurrencyGroup { name: name.clone(), limit: *limit });
    let groups = groups.collect();
    let name = options.name.unwrap_or_default();
    let named = !name.is_empty();
    let create = ActorCreate {
        name,
        namespace: options.namespace.unwrap_or_default(),
        detached: options.detached.unwrap_or(false),
        get_if_exists: options.get_if_exists.unwrap_or(false),
        placement: amounts(&placement),
        running: amounts(&running),
        environment: Some(environment),
        class_name: traits.class.rsplit("::").next().unwrap_or_default().to_owned(),
        class,
        handle: traits.to_bytes(),
        max_concurrency: options.max_concurrency.unwrap_or(1).max(1),
        groups,
        max_restarts: options.max_restarts.unwrap_or(0),
        strategy: options.shared.strategy()?,
        priority: options.shared.priority()?,
        preemptible: options.shared.is_preemptible(),
        ..ActorCreate::default()
    };
    let told = create.handle.clone();
    let (actor, answer) =
        runtime.create_actor(ActorWork { create, named, arguments, parent: context::current_task() })?;
    let existing = answer.filter(|answer| answer.existed);
    let hold = Hold { runtime: runtime.clone(), actor, keeps: existing.is_none(), routines: Mutex::default() };
    Ok(match existing {
        Some(answer) => ActorHandle::told_of(hold, answer.handle),
        None => ActorHandle { hold: Arc::new(hold), traits: Arc::new(traits), told },
    })
}

/// The actor of this name, of any class and language.
pub(crate) fn find(name: &str, namespace: &str) -> Result<ActorHandle> {
    let runtime = process::required()?;
    let answer = runtime.find_actor(name, namespace)?;
    let actor = answer.actor.ok_or_else(|| Error::NotFound(format!("the daemon named no actor for `{name}`")))?;
    Ok(ActorHandle::told_of(Hold::on(runtime, actor, false), answer.handle))
}

/// The actor of this name in this job's namespace. The handle does not keep the actor.
///
/// # Errors
/// [`Error::NotFound`] where there is none, [`Error::Invalid`] where it is of another class.
pub fn get_actor<A: Actor>(name: &str) -> Result<A::Handle> {
    get_actor_in::<A>(name, "")
}

/// The actor of this name in a namespace.
pub fn get_actor_in<A: Actor>(name: &str, namespace: &str) -> Result<A::Handle> {
    let handle = find(name, namespace)?;
    let traits = &handle.traits;
    let simple = |path: &str| path.rsplit("::").next().unwrap_or_default().to_owned();
    if traits.language != "rust" || simple(&traits.class) != simple(A::PATH) {
        let what = if traits.class.is_empty() { "a Python class" } else { &traits.class };
        return Err(Error::Invalid(format!("the actor `{name}` is of {what}, and {} was asked for", A::PATH)));
    }
    Ok(handle.into())
}

/// Ends an actor's process at once; it is made anew where it has restarts left and `restart` says so.
pub fn kill(actor: &impl AsRef<ActorHandle>, restart: bool) {
    let Hold { runtime, actor, .. } = &*actor.as_ref().hold;
    runtime.kill_actor(*actor, restart);
}

impl AsRef<Self> for ActorHandle {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Serialize for ActorHandle {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let Hold { actor, keeps, .. } = &*self.hold;
        if *keeps && !note_contained(actor.anchor()) {
            return Err(S::Error::custom("a handle travels in arguments, results and values that are put"));
        }
        let parts = (Blob::from(&actor.as_bytes()[..]), Blob::from(self.told.clone()), *keeps);
        serializer.serialize_newtype_struct(ACTOR, &parts)
    }
}

impl<'de> Deserialize<'de> for ActorHandle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct HandleVisitor;
        impl<'de> Visitor<'de> for HandleVisitor {
            type Value = ActorHandle;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a handle of an actor")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> std::result::Result<ActorHandle, D::Error> {
                let (actor, told, keeps) = <(Blob, Blob, bool)>::deserialize(deserializer)?;
                let actor = ActorId::from_slice(&actor)
                    .ok_or_else(|| D::Error::custom("a handle has a malformed identifier"))?;
                let runtime = process::current().ok_or_else(|| D::Error::custom(Error::NotConnected))?;
                if keeps {
                    borrowing::note(actor.anchor());
                }
                Ok(ActorHandle::told_of(Hold::on(runtime, actor, keeps), told.into()))
            }
        }
        deserializer.deserialize_newtype_struct(ACTOR, HandleVisitor)
    }
}
