//! `#[derive(Fields)]`: what makes a struct of `oxiray-wire` the body of a message.
//!
//! Each field says its number, `#[field(3)]`, and its type says the rest: `oxiray_wire::field` has how each type is written,
//! read and measured. Fields are written in the order of their numbers.

use proc_macro::TokenStream;
use proc_macro2::{Ident, TokenStream as Tokens};
use quote::quote;
use syn::{Data, DeriveInput, Error, Field, LitInt, Result, Type, parse_macro_input};

/// Implements `prost::Message` and `oxiray_wire::field::Nested` by the fields' numbers.
#[proc_macro_derive(Fields, attributes(field))]
pub fn fields(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    implemented(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn implemented(input: &DeriveInput) -> Result<Tokens> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(input, "only a struct with named fields is the body of a message"));
    };
    let mut numbered = data.fields.iter().map(numbered).collect::<Result<Vec<_>>>()?;
    numbered.sort_by_key(|(number, _)| *number);
    if let Some(twice) = numbered.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::new_spanned(twice[1].1.0, format!("another field has number {} already", twice[1].0)));
    }
    let (numbers, fields): (Vec<u32>, Vec<(&Ident, &Type)>) = numbered.into_iter().unzip();
    let (names, types): (Vec<&Ident>, Vec<&Type>) = fields.into_iter().unzip();
    let (body, texts) = (&input.ident, names.iter().map(ToString::to_string).collect::<Vec<_>>());
    let body_text = body.to_string();
    Ok(quote! {
        #[automatically_derived]
        impl ::prost::Message for #body {
            fn encode_raw(&self, buffer: &mut impl ::bytes::BufMut) {
                #(crate::field::Field::encode(&self.#names, #numbers, buffer);)*
            }

            fn encoded_len(&self) -> usize {
                0 #(+ crate::field::Field::length(&self.#names, #numbers))*
            }

            fn merge_field(
                &mut self,
                number: u32,
                wire_type: ::prost::encoding::WireType,
                buffer: &mut impl ::bytes::Buf,
                context: ::prost::encoding::DecodeContext,
            ) -> ::core::result::Result<(), ::prost::DecodeError> {
                match number {
                    #(#numbers => crate::field::Field::merge(&mut self.#names, wire_type, buffer, context)
                        .map_err(|error| crate::field::at(error, #body_text, #texts)),)*
                    _ => ::prost::encoding::skip_field(wire_type, number, buffer, context),
                }
            }

            fn clear(&mut self) {
                *self = Self::default();
            }
        }

        #[automatically_derived]
        impl crate::field::Nested for #body {
            fn shape() -> crate::shape::Shape {
                [#((#numbers, <#types as crate::field::Field>::shape())),*].into_iter().collect()
            }

            fn check(&self) -> ::core::result::Result<(), ::prost::DecodeError> {
                #(if crate::field::Field::is_missing(&self.#names) {
                    return Err(crate::field::at(crate::field::missing(), #body_text, #texts));
                })*
                Ok(())
            }
        }
    })
}

fn numbered(field: &Field) -> Result<(u32, (&Ident, &Type))> {
    let name = field.ident.as_ref().ok_or_else(|| Error::new_spanned(field, "a field has a name"))?;
    let attribute = field.attrs.iter().find(|attribute| attribute.path().is_ident("field"));
    let attribute = attribute.ok_or_else(|| Error::new_spanned(name, "a field says its number: `#[field(1)]`"))?;
    Ok((attribute.parse_args::<LitInt>()?.base10_parse()?, (name, &field.ty)))
}
