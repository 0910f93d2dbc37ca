//! An `impl` block whose methods run elsewhere.

use crate::options::{self, Given, Target};
use crate::signature::{Shape, Value, excused, own, spared};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, format_ident};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{
    Error, Expr, Ident, ImplItem, ImplItemFn, ItemImpl, ReceiverKind, Result, ReturnType, Token, Type, Visibility,
};

/// A method that a handle offers.
struct Method {
    name: Ident,
    docs: Vec<syn::Attribute>,
    shape: Shape,
    is_mutable: bool,
    /// Its own options.
    said: Vec<(Ident, Expr)>,
}

/// What `#[remote(…)]` on a method says, and where.
#[derive(Clone)]
struct Said {
    given: Vec<Given>,
    span: Span,
}

/// Takes `#[remote(…)]` off the methods, since it is no attribute of theirs; what each said.
fn methods_options(class: &mut ItemImpl) -> Result<Vec<Option<Said>>> {
    let mut all = Vec::new();
    for item in &mut class.items {
        let ImplItem::Fn(function) = item else {
            all.push(None);
            continue;
        };
        let is_ours =
            |attribute: &syn::Attribute| attribute.path().segments.last().is_some_and(|last| last.ident == "remote");
        let mut said = None;
        for attribute in function.attrs.extract_if(.., |attribute| is_ours(attribute)) {
            let given = attribute.parse_args_with(Punctuated::<Given, Token![,]>::parse_terminated)?;
            said = Some(Said { given: given.into_iter().collect(), span: attribute.span() });
        }
        all.push(said);
    }
    Ok(all)
}

pub(crate) fn expand(given: Vec<Given>, mut class: ItemImpl) -> Result<TokenStream> {
    let said = methods_options(&mut class)?;
    let class = &class;
    if let Some((path, ..)) = &class.trait_ {
        let text =
            "the methods of an actor stand in an `impl` block of its own: a trait's cannot be called from elsewhere";
        return Err(Error::new_spanned(path, text));
    }
    if !class.generics.params.is_empty() {
        let text = "an actor's type has no generic parameters: other processes find it by its name alone";
        return Err(Error::new_spanned(&class.generics, text));
    }
    let name = match &*class.self_ty {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.clone()),
        _ => None,
    };
    let name =
        name.ok_or_else(|| Error::new(class.self_ty.span(), "an actor's type is a struct or enum of this crate"))?;
    let kind = class.self_ty.to_token_stream();
    let mut constructor = None;
    let mut methods = Vec::new();
    for (item, said) in class.items.iter().zip(said) {
        let ImplItem::Fn(function) = item else { continue };
        let is_constructor = function.sig.ident == "new" && function.sig.receiver().is_none();
        if is_constructor && said.is_none() {
            constructor = Some((function, Shape::of(&function.sig, Some(&kind), None)?));
            continue;
        }
        match (method(function, &kind, said.clone())?, said) {
            (Some(method), _) => methods.push(method),
            (None, Some(said)) => {
                let text = "options stand on what is called on the handle: a method with `&self` and a visibility";
                return Err(Error::new(said.span, text));
            }
            (None, None) => {}
        }
    }
    let Some((constructor, shape)) = constructor else {
        let text = format!("an actor is made by its function `new`: add `pub fn new(…) -> Self` to `impl {name}`");
        return Err(Error::new(options::here(), text));
    };
    check_constructor(constructor, &name)?;
    let options = options::calls(given, Target::Actor)?;
    let outside = outside(&name, &kind, constructor, &shape);
    let handle = handle(&name, &methods);
    let inside = inside(&name, &kind, &shape, &methods);
    let (path, excused) = (path(&name), excused());
    let handle_name = format_ident!("{name}Handle");
    let names = methods.iter().map(|method| method.name.to_string());
    Ok(own! {
        #excused
        #class
        #outside
        #handle
        impl ::oxiray::Actor for #kind {
            type Handle = #handle_name;
            const PATH: &'static str = #path;
            const METHODS: &'static [&'static str] = &[#(#names),*];
            fn options() -> ::oxiray::ActorOptions {
                ::oxiray::ActorOptions::new() #options
            }
        }
        #inside
    })
}

fn path(name: &Ident) -> TokenStream {
    let text = name.to_string();
    own!(::core::concat!(::core::module_path!(), "::", #text))
}

fn method(function: &ImplItemFn, kind: &TokenStream, said: Option<Said>) -> Result<Option<Method>> {
    let Some(receiver) = function.sig.receiver() else { return Ok(None) };
    if matches!(function.vis, Visibility::Inherited) {
        return Ok(None);
    }
    let ReceiverKind::Reference(_, _, mutability) = &receiver.kind else {
        let text = "a method of an actor takes `&self` or `&mut self`: the actor goes on after the call";
        return Err(Error::new_spanned(receiver, text));
    };
    let docs = function.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
    let mut given = said.map_or_else(Vec::new, |said| said.given);
    let shape = Shape::of(&function.sig, Some(kind), options::count(&mut given)?)?;
    Ok(Some(Method {
        name: function.sig.ident.clone(),
        docs,
        shape,
        is_mutable: mutability.is_some(),
        said: options::of_method(given)?,
    }))
}

/// The constructor returns the actor, or a `Result` of it.
fn check_constructor(constructor: &ImplItemFn, name: &Ident) -> Result<()> {
    if let (Value::One(made), _) = crate::signature::returned(&constructor.sig.output)? {
        let made = made.to_token_stream().to_string();
        if made == "Self" || name == &made {
            return Ok(());
        }
    }
    let span = match &constructor.sig.output {
        ReturnType::Default => constructor.sig.span(),
        ReturnType::Type(_, kind) => kind.span(),
    };
    Err(Error::new(span, "`new` makes the actor: it returns `Self`, or a `Result` of it"))
}

/// What the class offers to those who want an actor of it.
fn outside(name: &Ident, kind: &TokenStream, constructor: &ImplItemFn, shape: &Shape) -> TokenStream {
    let handle = format_ident!("{name}Handle");
    let spared = spared();
    let (visibility, parameters, outgoing) = (&constructor.vis, shape.parameters(), shape.outgoing());
    own! {
        #spared
        impl #kind {
            /// Makes an actor of this class in a process of its own. Returns at once, with a handle.
            #visibility fn remote(#(#parameters),*) -> ::oxiray::Result<#handle> {
                #outgoing
                ::oxiray::__private::create::<#kind>(::core::option::Option::None, outgoing)
            }

            /// The same, with other options.
            #visibility fn remote_with(
                options: ::oxiray::ActorOptions,
                #(#parameters),*
            ) -> ::oxiray::Result<#handle> {
                #outgoing
                ::oxiray::__private::create::<#kind>(::core::option::Option::Some(options), outgoing)
            }
        }
    }
}

/// The handle, with a method for each of the class's.
fn handle(name: &Ident, methods: &[Method]) -> TokenStream {
    let handle = format_ident!("{name}Handle");
    let spared = spared();
    let text = format!("A handle of an actor of class [`{name}`]: its methods return references to their results.");
    let calls = methods.iter().map(|Method { name, docs, shape, said, .. }| {
        let (parameters, outgoing, returned) = (shape.parameters(), shape.outgoing(), shape.returned());
        let method = name.to_string();
        let (options, values): (Vec<_>, Vec<_>) = said.iter().cloned().unzip();
        let summary = if docs.is_empty() { own!(#[doc = "Calls the actor's method."]) } else { own!(#(#docs)*) };
        own! {
            #summary
            pub fn #name(&self, #(#parameters),*) -> ::oxiray::Result<#returned> {
                #outgoing
                let method = ::oxiray::__private::MethodCall {
                    name: #method,
                    #(#options: #values,)*
                    ..::core::default::Default::default()
                };
                self.0.call(method, outgoing)
            }
        }
    });
    own! {
        #[doc = #text]
        #spared
        #[derive(Clone, Debug, PartialEq)]
        pub struct #handle(::oxiray::ActorHandle);

        #spared
        impl #handle {
            #(#calls)*
        }

        impl ::core::convert::From<::oxiray::ActorHandle> for #handle {
            fn from(handle: ::oxiray::ActorHandle) -> Self {
                Self(handle)
            }
        }

        impl ::core::convert::AsRef<::oxiray::ActorHandle> for #handle {
            fn as_ref(&self) -> &::oxiray::ActorHandle {
                &self.0
            }
        }

        impl ::oxiray::__private::serde::Serialize for #handle {
            fn serialize<S: ::oxiray::__private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                ::oxiray::__private::serde::Serialize::serialize(&self.0, serializer)
            }
        }

        impl<'de> ::oxiray::__private::serde::Deserialize<'de> for #handle {
            fn deserialize<D: ::oxiray::__private::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::core::result::Result<Self, D::Error> {
                ::oxiray::__private::serde::Deserialize::deserialize(deserializer).map(Self)
            }
        }
    }
}

/// What a worker runs.
fn inside(name: &Ident, kind: &TokenStream, constructor: &Shape, methods: &[Method]) -> TokenStream {
    let path = path(name);
    let (incoming, names) = (constructor.incoming(), constructor.names());
    let mut made = own!(<#kind>::new(#(#names),*));
    if constructor.is_async {
        made = own!(::oxiray::__private::drive(#made)?);
    }
    if constructor.may_fail {
        made = crate::signature::made(&made);
    }
    let entries = methods.iter().map(|Method { name, shape, is_mutable, .. }| {
        let text = name.to_string();
        let (incoming, names) = (shape.incoming(), shape.names());
        let answered = shape.answered(&own!(actor.#name(#(#names),*)));
        let (binding, lock) = if *is_mutable { (own!(mut actor), own!(write)) } else { (own!(actor), own!(read)) };
        let mutable = if shape.arguments.is_empty() { own!() } else { own!(mut) };
        own! {
            ::oxiray::__private::Method {
                name: #text,
                call: |state, #mutable call| {
                    #incoming
                    let state = state.downcast_ref::<::oxiray::__private::RwLock<#kind>>();
                    let #binding = state.expect("an actor's state is of its class").#lock();
                    #answered
                },
            }
        }
    });
    let mutable = if constructor.arguments.is_empty() { own!() } else { own!(mut) };
    own! {
        ::oxiray::__private::inventory::submit! {
            ::oxiray::__private::Entry {
                path: #path,
                kind: ::oxiray::__private::Kind::Class(
                    |#mutable call: ::oxiray::__private::Incoming<'_>| {
                        #incoming
                        let _ = answer;
                        ::core::result::Result::Ok(::std::boxed::Box::new(::oxiray::__private::RwLock::new(#made)))
                    },
                    &[#(#entries),*],
                ),
            }
        }
    }
}
