//! What a function takes and returns.

use proc_macro2::{Group, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::spanned::Spanned as _;
use syn::{Error, FnArg, GenericArgument, Ident, Pat, PathArguments, Result, ReturnType, Safety, Signature, Type};

/// An argument that travels.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) kind: TokenStream,
}

/// What a remote function is, apart from its body.
pub(crate) struct Shape {
    pub(crate) arguments: Vec<Argument>,
    /// What the reference is to: the `T` of a `Result<T, E>`.
    pub(crate) value: TokenStream,
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
    /// Checks a signature; `class` stands for `Self` in that of a method.
    pub(crate) fn of(signature: &Signature, class: Option<&TokenStream>) -> Result<Self> {
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
                Pat::Ident(pattern) => Ident::new(&pattern.ident.to_string(), pattern.ident.span()),
                _ => format_ident!("argument_{index}"),
            };
            arguments.push(Argument { name, kind: resolved(typed.ty.to_token_stream()) });
        }
        let (value, may_fail) = returned(&signature.output)?;
        Ok(Self { arguments, value: resolved(value), may_fail, is_async: signature.asyncness.is_some() })
    }

    /// How the handle or function takes the arguments: values or references.
    pub(crate) fn parameters(&self) -> Vec<TokenStream> {
        let parameter = |Argument { name, kind }: &Argument| quote::quote!(#name: impl ::oxiray::Argument<#kind>);
        self.arguments.iter().map(parameter).collect()
    }

    pub(crate) fn names(&self) -> Vec<&Ident> {
        self.arguments.iter().map(|argument| &argument.name).collect()
    }

    /// Writes the arguments into an `Outgoing` that it begins.
    pub(crate) fn outgoing(&self) -> TokenStream {
        let added = self.arguments.iter().map(|Argument { name, kind }| quote::quote!(outgoing.add::<#kind>(#name)?;));
        quote::quote! {
            let mut outgoing = ::oxiray::__private::Outgoing::begin()?;
            #(#added)*
        }
    }

    /// Reads the arguments from the `Incoming` named `call`, which is over then.
    pub(crate) fn incoming(&self) -> TokenStream {
        let read = self.arguments.iter().map(|Argument { name, kind }| {
            let text = name.to_string();
            quote::quote!(let #name = call.argument::<#kind>(#text)?;)
        });
        quote::quote! {
            #(#read)*
            let answer = call.taken()?;
        }
    }

    /// Answers with what `called` returns.
    pub(crate) fn answered(&self, called: &TokenStream) -> TokenStream {
        let called = if self.is_async { quote::quote!(::oxiray::block_on(#called)) } else { called.clone() };
        if self.may_fail { quote::quote!(answer.result(#called)) } else { quote::quote!(answer.value(&#called)) }
    }
}

/// What a reference to a result is a reference to, and whether the function may fail.
pub(crate) fn returned(output: &ReturnType) -> Result<(TokenStream, bool)> {
    let ReturnType::Type(_, kind) = output else { return Ok((quote::quote!(()), false)) };
    match &**kind {
        Type::Reference(reference) => {
            let text = format!(
                "results travel to another process, and a borrowed one cannot: return `{}` by value",
                owned_for(reference)
            );
            return Err(Error::new(kind.span(), text));
        }
        Type::ImplTrait(_) => {
            return Err(Error::new(kind.span(), "a remote function returns a value of a definite type: name it"));
        }
        Type::Path(path) => {
            if let Some(last) = path.path.segments.last()
                && last.ident == "Result"
                && let PathArguments::AngleBracketed(arguments) = &last.arguments
                && let Some(GenericArgument::Type(value)) = arguments.args.first()
            {
                return Ok((value.to_token_stream(), true));
            }
        }
        _ => {}
    }
    Ok((kind.to_token_stream(), false))
}
