//! Functions and actors that Python programs wrote.
//!
//! Arguments and results cross as values that both languages have:
//!
//! | Rust                                   | Python            |
//! |----------------------------------------|-------------------|
//! | `()`, `Option::None`, unit structs     | `None`            |
//! | `bool`                                 | `bool`            |
//! | integers of up to 64 bits              | `int`             |
//! | `f32`, `f64`                           | `float`           |
//! | `String`, `&str`, `char`, unit variants| `str`             |
//! | [`Blob`](crate::Blob)                  | `bytes`           |
//! | `Vec`, tuples, sets                    | `list` (a `tuple` arrives as one, too) |
//! | maps, structs, other variants          | `dict`            |
//! | [`Array<T>`](crate::Array)             | `numpy.ndarray`   |
//! | [`ObjectRef<T>`]                       | `ObjectRef`       |
//! | handles of actors, [`Actor`]           | `ActorHandle`     |
//!
//! An error arrives as [`Error::Task`](crate::Error::Task) with its message, the exception's type and its traceback.
//!
//! ```no_run
//! let root = oxiray::python::function("math", "sqrt").call::<f64>((2.0,))?.get()?;
//! # drop(root);
//! # Ok::<(), oxiray::Error>(())
//! ```

use crate::actor::{self, ActorHandle, MethodCall, Traits};
use crate::error::{Error, Result};
use crate::options::{ActorOptions, TaskOptions};
use crate::reference::{ObjectRef, Returned};
use crate::{outgoing, task};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A function of a Python module.
#[derive(Debug, Clone)]
pub struct Function {
    module: String,
    name: String,
    options: TaskOptions,
}

/// A class of a Python module, to make actors of.
#[derive(Debug, Clone)]
pub struct Class {
    module: String,
    name: String,
    options: ActorOptions,
}

/// An actor whose class a Python program wrote, or one of Rust's that is called as such. It may be passed to functions and
/// actors of both languages, and returned from them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Actor(ActorHandle);

/// The function of this name in a module that the Python interpreter of the workers can import.
pub fn function(module: &str, name: &str) -> Function {
    Function { module: module.to_owned(), name: name.to_owned(), options: TaskOptions::default() }
}

/// The class of this name in a module that the Python interpreter of the workers can import.
pub fn class(module: &str, name: &str) -> Class {
    Class { module: module.to_owned(), name: name.to_owned(), options: ActorOptions::default() }
}

/// The actor of this name, in this job's namespace.
pub fn get_actor(name: &str) -> Result<Actor> {
    get_actor_in(name, "")
}

/// The actor of this name in a namespace.
pub fn get_actor_in(name: &str, namespace: &str) -> Result<Actor> {
    actor::find(name, namespace).map(Actor)
}

/// What a Python worker unpickles: a call of the named function of `oxiray.rust` with module and name.
fn code(loader: &str, module: &str, name: &str) -> Result<Bytes> {
    let is_plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    for text in [module, name] {
        if !is_plain(text) {
            return Err(Error::Invalid(format!("`{text}` is no name of a Python module, function or class")));
        }
    }
    // Pickle's text form: import a function, make a tuple of two texts, call the one with the other.
    Ok(format!("coxiray.rust\n{loader}\n(V{module}\nV{name}\ntR.").into())
}

impl Function {
    /// The same function with other options.
    #[must_use]
    pub fn options(mut self, options: TaskOptions) -> Self {
        self.options = options.over(self.options);
        self
    }

    /// Calls it with a tuple of arguments, such as `(1, "two")`. References among them are waited for where it runs.
    pub fn call<T>(&self, arguments: impl Serialize) -> Result<ObjectRef<T>> {
        self.call_for(arguments)
    }

    /// Calls it for something else than one result: [`Items<T>`](crate::Items) of a generator, or
    /// `(ObjectRef<A>, ObjectRef<B>)` of one that returns a tuple or list of that length.
    ///
    /// ```no_run
    /// use oxiray::{Items, ObjectRef, python};
    ///
    /// let numbers: Items<i64> = python::function("builtins", "range").call_for((3,))?;
    /// let (quotient, rest): (ObjectRef<i64>, ObjectRef<i64>) =
    ///     python::function("builtins", "divmod").call_for((7, 2))?;
    /// # drop((numbers, quotient, rest));
    /// # Ok::<(), oxiray::Error>(())
    /// ```
    pub fn call_for<R: Returned>(&self, arguments: impl Serialize) -> Result<R> {
        let code = code("_load_function", &self.module, &self.name)?;
        let (runtime, arguments, kept) = outgoing::common(&arguments)?;
        let environment = self.options.shared.environment_of_python()?;
        let settled = self.options.clone().settle(Some(environment))?;
        let work = task::work::<R>(code, &self.name, &settled);
        let called = task::submit_once(&runtime, settled.class, work, arguments);
        drop(kept);
        Ok(called)
    }
}

impl Class {
    /// The same class with other options.
    #[must_use]
    pub fn options(mut self, options: ActorOptions) -> Self {
        self.options = options.over(self.options);
        self
    }

    /// Makes an actor of it with a tuple of arguments.
    pub fn create(&self, arguments: impl Serialize) -> Result<Actor> {
        let code = code("_load_class", &self.module, &self.name)?;
        let (runtime, arguments, kept) = outgoing::common(&arguments)?;
        let options = self.options.clone();
        let traits = Traits {
            class: self.name.clone(),
            language: "python".into(),
            max_task_retries: options.max_task_retries.unwrap_or(0),
            unordered: false,
            methods: Vec::new(),
        };
        let environment = options.shared.environment_of_python()?;
        let handle = actor::create_with(&runtime, options, traits, code, environment, arguments)?;
        drop(kept);
        Ok(Actor(handle))
    }
}

impl Actor {
    /// Calls a method with a tuple of arguments.
    pub fn call<T>(&self, method: &str, arguments: impl Serialize) -> Result<ObjectRef<T>> {
        self.call_for(method, arguments)
    }

    /// Calls a method for something else than one result, see [`Function::call_for`].
    pub fn call_for<R: Returned>(&self, method: &str, arguments: impl Serialize) -> Result<R> {
        let (_, arguments, kept) = outgoing::common(&arguments)?;
        self.0.call_with(MethodCall { name: method, ..MethodCall::default() }, arguments, kept)
    }
}

impl AsRef<ActorHandle> for Actor {
    fn as_ref(&self) -> &ActorHandle {
        &self.0
    }
}
