//! What a function takes and returns.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{
    Error, FnArg, GenericArgument, Ident, Pat, PathArguments, Result, ReturnType, Safety, Signature, Type,
    TypeParamBound,
};

/// Quotes with names that are the macro's own: no argument, function or type of the program is ever shadowed by them.
macro_rules! own {
    ($($tokens:tt)*) => { ::quote::quote_spanned!(::proc_macro2::Span::mixed_site() => $($tokens)*) };
}
pub(crate) use own;

/// An argument that travels.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) kind: TokenStream,
}

/// What a caller gets references to.
pub(crate) enum Results {
    /// One value: the `T` of a `Result<T, E>`.
    One(TokenStream),
    /// The parts of a tuple, each for itself.
    Several(Vec<TokenStream>),
    /// The items of an iterator, one by one.
    Items {
        value: TokenStream,
        /// Whether each is a `Result`.
        may_fail: bool,
    },
}

/// What a remote function is, apart from its body.
pub(crate) struct Shape {
    pub(crate) arguments: Vec<Argument>,
    pub(crate) results: Results,
    /// Whether it returns a `Result`.
    pub(crate) may_fail: bool,
    pub(crate) is_async: bool,
}

/// Has lints spare what is made here. Which of them it meets depends on what it is made of, so that none can be expected.
pub(crate) fn spared() -> TokenStream {
    let allow = format_ident!("allow");
    quote::quote! {
        #[#allow(dead_code, non_camel_case_types, private_interfaces, unreachable_pub, unused_mut, clippy::all,
                 clippy::pedantic)]
    }
}

/// Has lints spare what a remote function cannot help: its arguments travel by value, whatever it does with them.
pub(crate) fn excused() -> TokenStream {
    let allow = format_ident!("allow");
    quote::quote!(#[#allow(clippy::needless_pass_by_value, clippy::unused_self, clippy::unused_async)])
}

/// `Self` as the type that it stands for.
pub(crate) fn without_self(tokens: TokenStream, class: &TokenStream) -> TokenStream {
    let replaced = |token: TokenTree| match token {
        TokenTree::Ident(ident) if ident == "Self" => class.clone(),
        TokenTree::Group(group) => {
            let mut inner = Group::new(group.delimiter(), without_self(group.stream(), class));
            inner.set_span(group.span());
            TokenTree::Group(inner).into()
        }
        other => other.into(),
    };
    tokens.into_iter().flat_map(replaced).collect()
}

fn owned_for(reference: &syn::TypeReference) -> String {
    let inner = reference.elem.to_token_stream().to_string().replace(' ', "");
    match (&*reference.elem, inner.as_str()) {
        (_, "str") => "String".into(),
        (Type::Slice(slice), _) => format!("Vec<{}>", slice.elem.to_token_stream()),
        _ => inner,
    }
}

impl Shape {
    /// Checks a signature; `class` stands for `Self` in that of a method, and `count` is the number of results that was
    /// asked for.
    pub(crate) fn of(signature: &Signature, class: Option<&TokenStream>, count: Option<Count>) -> Result<Self> {
        let wrong = |span, text: &str| Err(Error::new(span, text));
        if !signature.generics.params.is_empty() {
            return wrong(
                signature.generics.span(),
                "a remote function has no generic parameters: other processes find it by its name alone. Write one for \
                 each type, and have them share a plain function",
            );
        }
        if !matches!(signature.safety, Safety::Default) || signature.abi.is_some() || signature.variadic.is_some() {
            return wrong(signature.fn_token.span(), "a remote function is a plain `fn` or `async fn`");
        }
        let resolved = |tokens: TokenStream| match class {
            Some(class) => without_self(tokens, class),
            None => tokens,
        };
        let mut arguments = Vec::new();
        for (index, input) in signature.inputs.iter().enumerate() {
            let FnArg::Typed(typed) = input else { continue };
            match &*typed.ty {
                Type::Reference(reference) => {
                    let text = format!(
                        "arguments travel to another process, and a borrowed one cannot: take `{}` by value",
                        owned_for(reference)
                    );
                    return Err(Error::new(typed.ty.span(), text));
                }
                Type::ImplTrait(_) => {
                    return wrong(typed.ty.span(), "a remote function takes values of definite types: name one");
                }
                _ => {}
            }
            let name = match &*typed.pat {
                Pat::Ident(pattern) => pattern.ident.clone(),
                _ => format_ident!("argument_{index}"),
            };
            arguments.push(Argument { name, kind: resolved(typed.ty.to_token_stream()) });
        }
        let (value, may_fail) = returned(&signature.output)?;
        let results = match (value, count) {
            (Value::Items { value, may_fail }, None) => {
                Results::Items { value: resolved(value.to_token_stream()), may_fail }
            }
            (Value::Items { .. }, Some(count)) => {
                return wrong(count.span, "the function has as many results as it yields: leave `num_returns` out");
            }
            (Value::One(value), None | Some(Count { number: 1, .. })) => {
                Results::One(resolved(value.to_token_stream()))
            }
            (Value::One(Type::Tuple(tuple)), Some(count)) if tuple.elems.len() == count.number => {
                Results::Several(tuple.elems.iter().map(|part| resolved(part.to_token_stream())).collect())
            }
            (Value::One(other), Some(count)) => {
                let text = format!(
                    "`num_returns = {}` asks for a tuple of {0}, and the function returns `{}`",
                    count.number,
                    other.to_token_stream().to_string().replace(' ', "")
                );
                return Err(Error::new(count.span, text));
            }
        };
        Ok(Self { arguments, results, may_fail, is_async: signature.asyncness.is_some() })
    }

    /// What a call gives back at once.
    pub(crate) fn returned(&self) -> TokenStream {
        match &self.results {
            Results::One(value) => quote::quote!(::oxiray::ObjectRef<#value>),
            Results::Several(parts) => quote::quote!((#(::oxiray::ObjectRef<#parts>),*)),
            Results::Items { value, .. } => quote::quote!(::oxiray::Items<#value>),
        }
    }

    /// How the handle or function takes the arguments: values or references.
    pub(crate) fn parameters(&self) -> Vec<TokenStream> {
        let parameter = |Argument { name, kind }: &Argument| quote::quote!(#name: impl ::oxiray::Argument<#kind>);
        self.arguments.iter().map(parameter).collect()
    }

    /// The arguments where the function is called: apart from whatever else has their names, such as the function itself.
    pub(crate) fn names(&self) -> Vec<Ident> {
        let apart = |argument: &Argument| format_ident!("argument_{}", argument.name, span = Span::mixed_site());
        self.arguments.iter().map(apart).collect()
    }

    /// Writes the arguments into an `Outgoing` that it begins.
    pub(crate) fn outgoing(&self) -> TokenStream {
        let added = self.arguments.iter().map(|Argument { name, kind }| own!(outgoing.add::<#kind>(#name)?;));
        own! {
            let mut outgoing = ::oxiray::__private::Outgoing::begin()?;
            #(#added)*
        }
    }

    /// Reads the arguments from the `Incoming` named `call`, which is over then.
    pub(crate) fn incoming(&self) -> TokenStream {
        let read = self.arguments.iter().zip(self.names()).map(|(Argument { name: told, kind }, name)| {
            let text = told.unraw().to_string();
            own!(let #name = call.argument::<#kind>(#text)?;)
        });
        own! {
            #(#read)*
            let answer = call.taken()?;
        }
    }

    /// Answers with what `called` returns.
    pub(crate) fn answered(&self, called: &TokenStream) -> TokenStream {
        let called = if self.is_async { own!(::oxiray::__private::drive(#called)?) } else { called.clone() };
        let made = if self.may_fail { made(&called) } else { called };
        match &self.results {
            Results::One(_) => own!(answer.value(&#made)),
            Results::Several(_) => own!(answer.several(&#made)),
            Results::Items { may_fail: false, .. } => own!(answer.items(#made)),
            Results::Items { may_fail: true, .. } => {
                let thrown = thrown();
                own!(answer.fallible_items(::core::iter::Iterator::map(#made, |item| item.map_err(#thrown))))
            }
        }
    }
}

/// What makes the error of a function one that travels: a closure.
fn thrown() -> TokenStream {
    own! {
        |error| {
            use ::oxiray::__private::{InFull as _, InWords as _};
            (&::oxiray::__private::Thrown::of(&error)).told()
        }
    }
}

/// What `called` returns where it does not fail.
pub(crate) fn made(called: &TokenStream) -> TokenStream {
    let thrown = thrown();
    own!((#called).map_err(#thrown)?)
}

/// How many results were asked for, and where.
#[derive(Clone, Copy)]
pub(crate) struct Count {
    pub(crate) number: usize,
    pub(crate) span: Span,
}

/// What a function returns, where it does not fail.
pub(crate) enum Value {
    One(Type),
    Items { value: Type, may_fail: bool },
}

/// The `T` and whether it is one of a `Result<T, E>`.
fn unwrapped(kind: &Type) -> (&Type, bool) {
    if let Type::Path(path) = kind
        && let Some(last) = path.path.segments.last()
        && last.ident == "Result"
        && let PathArguments::AngleBracketed(arguments) = &last.arguments
        && let Some(GenericArgument::Type(value)) = arguments.args.first()
    {
        return (value, true);
    }
    (kind, false)
}

/// What `impl Iterator<Item = …>` yields.
fn item_of(implemented: &syn::TypeImplTrait) -> Option<&Type> {
    implemented.bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else { return None };
        let last = bound.path.segments.last().filter(|last| last.ident == "Iterator")?;
        let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(item) if item.ident == "Item" => Some(&item.ty),
            _ => None,
        })
    })
}

/// What a reference to a result is a reference to, and whether the function may fail.
pub(crate) fn returned(output: &ReturnType) -> Result<(Value, bool)> {
    let ReturnType::Type(_, kind) = output else { return Ok((Value::One(syn::parse_quote!(())), false)) };
    let (value, may_fail) = unwrapped(kind);
    match value {
        Type::Reference(reference) => {
            let text = format!(
                "results travel to another process, and a borrowed one cannot: return `{}` by value",
                owned_for(reference)
            );
            Err(Error::new(kind.span(), text))
        }
        Type::ImplTrait(implemented) => {
            let text = "a remote function returns a value of a definite type, or its items one by one: name the type, or \
                        write `impl Iterator<Item = …>`";
            let item = item_of(implemented).ok_or_else(|| Error::new(kind.span(), text))?;
            let (value, item_may_fail) = unwrapped(item);
            Ok((Value::Items { value: value.clone(), may_fail: item_may_fail }, may_fail))
        }
        _ => Ok((Value::One(value.clone()), may_fail)),
    }
}
