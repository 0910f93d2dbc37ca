//! Misuse does not compile, and the compiler says what to write instead.
//!
//! The cases lean on the attributes alone, since what these refuse never gets as far as the API: so nothing but a parser
//! is compiled for them. What only the API's types can tell is in the documentation of `oxiray::Argument`.

#[test]
fn misuse_is_told_in_words() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/misuse/*.rs");
}
