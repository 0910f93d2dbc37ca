//! A function that runs elsewhere.

use crate::options::{self, Given, Target};
use crate::signature::{Shape, excused, own, spared};
use proc_macro2::TokenStream;
use syn::{Attribute, Error, ItemFn, Result};

/// The function stays as it is, and beside it stands a type of the same name, which is no value: a unit struct could not
/// be shadowed by a variable of the function's name.
pub(crate) fn expand(mut given: Vec<Given>, function: &ItemFn) -> Result<TokenStream> {
    if let Some(receiver) = function.sig.receiver() {
        return Err(Error::new_spanned(
            receiver,
            "a method is remote as part of its actor: put #[remote] on the `impl` block",
        ));
    }
    let shape = Shape::of(&function.sig, None, options::count(&mut given)?)?;
    let options = options::calls(given, Target::Function)?;
    let conditions: Vec<&Attribute> =
        function.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect();
    let (visibility, name) = (&function.vis, &function.sig.ident);
    let text = name.to_string();
    let summary = format!("The function `{text}`, to be run in other processes.");
    let path = own!(::core::concat!(::core::module_path!(), "::", #text));
    let (parameters, names, returned) = (shape.parameters(), shape.names(), shape.returned());
    let (outgoing, incoming) = (shape.outgoing(), shape.incoming());
    let answered = shape.answered(&own!(#name(#(#names),*)));
    let (excused, spared) = (excused(), spared());
    let is_mutable = if shape.arguments.is_empty() { own!() } else { own!(mut) };
    Ok(own! {
        #excused
        #function

        #(#conditions)*
        #[doc = #summary]
        #spared
        #visibility struct #name {}

        #(#conditions)*
        #spared
        impl #name {
            /// Runs the function in another process; returns a reference to its result.
            pub fn remote(#(#parameters),*) -> ::oxiray::Result<#returned> {
                #outgoing
                Self::__oxiray_remote().call(::core::option::Option::None, outgoing)
            }

            /// The same, with other options.
            pub fn remote_with(
                options: ::oxiray::TaskOptions,
                #(#parameters),*
            ) -> ::oxiray::Result<#returned> {
                #outgoing
                Self::__oxiray_remote().call(::core::option::Option::Some(options), outgoing)
            }

            fn __oxiray_remote() -> &'static ::oxiray::__private::RemoteFunction {
                static REMOTE: ::oxiray::__private::RemoteFunction =
                    ::oxiray::__private::RemoteFunction::new(#path, || ::oxiray::TaskOptions::new() #options);
                &REMOTE
            }
        }

        #(#conditions)*
        ::oxiray::__private::inventory::submit! {
            ::oxiray::__private::Entry {
                path: #path,
                kind: ::oxiray::__private::Kind::Function(
                    |#is_mutable call: ::oxiray::__private::Incoming<'_>| -> ::oxiray::__private::Outcome {
                        #incoming
                        #answered
                    },
                ),
            }
        }
    })
}
