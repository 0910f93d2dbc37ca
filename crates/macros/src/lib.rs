//! The attributes of the Rust API: `#[oxiray::remote]` and `#[oxiray::main]`.
//!
//! ```text
//! options.rs     what stands in `#[remote(…)]`, checked
//! signature.rs   what a function takes and returns, checked
//! function.rs    a function that runs elsewhere
//! actor.rs       an `impl` block whose methods do
//! ```

mod actor;
mod function;
mod options;
mod signature;

use proc_macro::TokenStream;
use quote::{format_ident, quote};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Item, ItemFn, Token, parse_macro_input};

/// Makes a function one that runs in other processes, or an `impl` block's type a class of actors.
///
/// On a function `f(a: A, b: B) -> T`, sync or async: `f::remote(a, b)?` runs it elsewhere and returns an `ObjectRef<T>`;
/// where it returns `Result<T, E>`, the error reaches whoever asks for the value. `f::remote_with(options, a, b)?` asks for
/// something else, and `f(a, b)` runs it here as ever. Each argument is a value or a reference to one.
///
/// On `impl Class`: the constructor `new` and the public methods, sync or async. `Class::remote(…)?` makes an actor and
/// returns a `ClassHandle`, whose methods return references.
///
/// What returns an `impl Iterator<Item = T>` gives its items one by one, as an `Items<T>`; with `num_returns = N` each part
/// of a tuple is a result of its own.
///
/// Options of both: `num_cpus`, `num_gpus`, `memory`, `gpu_memory`, `priority`, `preemptible`, `device_isolation`, `accelerator_type`, `resources(name = quantity, …)`. Of functions:
/// `max_calls`, `max_retries`, `retry_exceptions`, `max_unread`, `num_returns`, `name`. Of actors: `name`, `namespace`,
/// `detached`, `get_if_exists`, `max_concurrency`, `max_restarts`, `max_task_retries`,
/// `concurrency_groups(name = count, …)`. Of one method, in a `#[remote(…)]` of its own: `num_returns`, `max_unread`,
/// `retry_exceptions`, `concurrency_group`. What stands there as a number is checked by the compiler.
#[proc_macro_attribute]
pub fn remote(options: TokenStream, item: TokenStream) -> TokenStream {
    let given = match Punctuated::<options::Given, Token![,]>::parse_terminated.parse(options) {
        Ok(given) => given.into_iter().collect(),
        Err(error) => return error.to_compile_error().into(),
    };
    let expanded = match parse_macro_input!(item as Item) {
        Item::Fn(function) => function::expand(given, &function),
        Item::Impl(class) => actor::expand(given, class),
        other => Err(Error::new(
            other.span(),
            "#[remote] stands on a function, or on the `impl` block with an actor's constructor `new` and its methods",
        )),
    };
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Has `main` serve as a worker where the daemon started the program as one, before it does anything else. An async
/// `main` is run to its end; under another attribute, such as `#[tokio::main]`, it is left to that.
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut main = parse_macro_input!(item as ItemFn);
    if !options.is_empty() {
        let error = Error::new(main.sig.span(), "#[oxiray::main] takes no options: say them to oxiray::Builder");
        let error = error.to_compile_error();
        return quote!(#main #error).into();
    }
    let (visibility, output) = (main.vis.clone(), main.sig.output.clone());
    let is_left =
        main.attrs.iter().any(|attribute| attribute.path().segments.last().is_some_and(|last| last.ident == "main"));
    let name = std::mem::replace(&mut main.sig.ident, format_ident!("__oxiray_main"));
    let call = if main.sig.asyncness.is_some() && !is_left {
        quote!(::oxiray::block_on(__oxiray_main()))
    } else {
        quote!(__oxiray_main())
    };
    quote! {
        #visibility fn #name() #output {
            #main
            ::oxiray::serve_if_asked();
            #call
        }
    }
    .into()
}
