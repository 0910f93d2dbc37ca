//! What stands in `#[remote(…)]`.

use crate::signature::Count;
use oxiray_families::{device_resource, device_resources};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprLit, ExprUnary, Ident, Lit, LitStr, Result, Token, UnOp, parenthesized};

/// An option as it is written.
#[derive(Clone)]
pub(crate) enum Given {
    /// `name = value`
    Value(Ident, Expr),
    /// `resources(name = quantity, …)`, or `concurrency_groups(name = count, …)`
    Pairs(Ident, Vec<(String, Expr)>),
}

impl Given {
    fn name(&self) -> &Ident {
        match self {
            Self::Value(name, _) | Self::Pairs(name, _) => name,
        }
    }
}

impl Parse for Given {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: Ident = input.parse()?;
        if (name == "resources" || name == "concurrency_groups") && input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            let pairs = Punctuated::<Quantity, Token![,]>::parse_terminated(&content)?;
            return Ok(Self::Pairs(name, pairs.into_iter().map(|pair| (pair.name, pair.quantity)).collect()));
        }
        if !input.peek(Token![=]) {
            return Err(Error::new(name.span(), format!("option `{name}` has no value: write `{name} = …`")));
        }
        input.parse::<Token![=]>()?;
        Ok(Self::Value(name, input.parse()?))
    }
}

struct Quantity {
    name: String,
    quantity: Expr,
}

impl Parse for Quantity {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name =
            if input.peek(LitStr) { input.parse::<LitStr>()?.value() } else { input.parse::<Ident>()?.to_string() };
        input.parse::<Token![=]>()?;
        Ok(Self { name, quantity: input.parse()? })
    }
}

/// Whose options they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Function,
    Actor,
    Method,
}

/// What the value of an option is.
#[derive(Clone, Copy)]
enum Kind {
    /// A number that is not negative.
    Amount,
    /// Devices: whole, or a share of one.
    Devices,
    /// A whole number of at least this.
    Whole(i64),
    Text,
    Truth,
    /// Names with numbers, in parentheses.
    Pairs,
}

#[derive(Clone, Copy)]
struct Rule {
    name: &'static str,
    target: Option<Target>,
    kind: Kind,
}

const fn rule(name: &'static str, target: Option<Target>, kind: Kind) -> Rule {
    Rule { name, target, kind }
}

/// Those of functions and actors, besides the options that ask for devices.
const RULES: &[Rule] = &[
    rule("num_cpus", None, Kind::Amount),
    rule("memory", None, Kind::Whole(0)),
    rule("gpu_memory", None, Kind::Whole(1)),
    rule("priority", None, Kind::Whole(-1000)),
    rule("preemptible", None, Kind::Truth),
    rule("device_isolation", None, Kind::Text),
    rule("accelerator_type", None, Kind::Text),
    rule("name", None, Kind::Text),
    rule("max_calls", Some(Target::Function), Kind::Whole(0)),
    rule("max_retries", Some(Target::Function), Kind::Whole(-1)),
    rule("retry_exceptions", Some(Target::Function), Kind::Truth),
    rule("max_unread", Some(Target::Function), Kind::Whole(1)),
    rule(COUNT, Some(Target::Function), Kind::Whole(1)),
    rule("namespace", Some(Target::Actor), Kind::Text),
    rule("detached", Some(Target::Actor), Kind::Truth),
    rule("get_if_exists", Some(Target::Actor), Kind::Truth),
    rule("concurrency_groups", Some(Target::Actor), Kind::Pairs),
    rule("max_concurrency", Some(Target::Actor), Kind::Whole(1)),
    rule("max_restarts", Some(Target::Actor), Kind::Whole(-1)),
    rule("max_task_retries", Some(Target::Actor), Kind::Whole(-1)),
];

/// Those of one method.
const METHOD_RULES: &[Rule] = &[
    rule(COUNT, None, Kind::Whole(1)),
    rule("max_unread", None, Kind::Whole(1)),
    rule("retry_exceptions", None, Kind::Truth),
    rule("concurrency_group", None, Kind::Text),
];

const COUNT: &str = "num_returns";
/// More results than this are a tuple, or items.
const COUNT_MAX: usize = 8;

/// All that a target may say.
fn rules(target: Target) -> Vec<Rule> {
    if target == Target::Method {
        return METHOD_RULES.to_vec();
    }
    let devices = device_resources().filter_map(|resource| resource.option);
    let devices = devices.map(|option| rule(option, None, Kind::Devices));
    let (processors, others) = RULES.split_at(1);
    processors.iter().copied().chain(devices).chain(others.iter().copied()).collect()
}

/// The options as calls on `TaskOptions` or `ActorOptions`.
pub(crate) fn calls(given: Vec<Given>, target: Target) -> Result<TokenStream> {
    let mut calls = TokenStream::new();
    let mut seen: Vec<String> = Vec::new();
    for one in given {
        let name = one.name().clone();
        if seen.iter().any(|earlier| name == earlier) {
            return Err(Error::new(name.span(), format!("option `{name}` is given twice")));
        }
        seen.push(name.to_string());
        match one {
            Given::Value(name, value) => {
                let rule = rule_of(&name, target)?;
                let value = checked(&name, &value, rule.kind)?;
                let device = device_resources().find(|resource| resource.option.is_some_and(|option| name == option));
                calls.extend(if let Some(resource) = device.map(|device| device.name) {
                    quote!(.resource(#resource, #value))
                } else {
                    quote!(.#name(#value))
                });
            }
            Given::Pairs(_, pairs) if name == "concurrency_groups" => {
                rule_of(&name, target)?;
                for (group, count) in pairs {
                    let count = checked(&name, &count, Kind::Whole(1))?;
                    calls.extend(quote!(.concurrency_group(#group, #count)));
                }
            }
            Given::Pairs(_, pairs) => {
                for (resource, quantity) in pairs {
                    let kind = if device_resource(&resource).is_some() { Kind::Devices } else { Kind::Amount };
                    let value = checked(&Ident::new("resources", name.span()), &quantity, kind)?;
                    calls.extend(quote!(.resource(#resource, #value)));
                }
            }
        }
    }
    Ok(calls)
}

/// How many results were asked for.
pub(crate) fn count(given: &mut Vec<Given>) -> Result<Option<Count>> {
    let Some(place) = given.iter().position(|one| one.name() == COUNT) else { return Ok(None) };
    let Given::Value(name, value) = given.remove(place) else {
        let text = "`num_returns` is a number: write `num_returns = 2`";
        return Err(Error::new(Span::call_site(), text));
    };
    let number: usize = match &value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse()?,
        _ => return Err(Error::new(value.span(), "`num_returns` decides on types: write it out as a number")),
    };
    if number == 0 || number > COUNT_MAX {
        let text = format!("`num_returns` is from 1 to {COUNT_MAX}; {number} was given");
        return Err(Error::new(value.span(), text));
    }
    Ok(Some(Count { number, span: name.span() }))
}

/// What a method's own options say: fields of `MethodCall`.
pub(crate) fn of_method(given: Vec<Given>) -> Result<Vec<(Ident, Expr)>> {
    let mut found: Vec<(Ident, Expr)> = Vec::new();
    for one in given {
        let Given::Value(name, value) = one else { return Err(unknown(one.name(), Target::Method)) };
        let rule = rule_of(&name, Target::Method)?;
        checked(&name, &value, rule.kind)?;
        if found.iter().any(|(earlier, _)| name == *earlier) {
            return Err(Error::new(name.span(), format!("option `{name}` is given twice")));
        }
        found.push((name, value));
    }
    Ok(found)
}

fn unknown(name: &Ident, target: Target) -> Error {
    let of_target = |rule: &&Rule| rule.target.is_none_or(|of| of == target);
    let known = rules(target).iter().filter(of_target).map(|rule| rule.name).collect::<Vec<_>>().join(", ");
    let (whose, known) = match target {
        Target::Function => ("functions", known + ", resources(…)"),
        Target::Actor => ("actors", known + ", resources(…)"),
        Target::Method => ("methods", known),
    };
    Error::new(name.span(), format!("there is no option `{name}`; remote {whose} have: {known}"))
}

fn rule_of(name: &Ident, target: Target) -> Result<Rule> {
    let (own, other) = match target {
        Target::Function => ("functions", "actors"),
        Target::Actor => ("actors", "functions"),
        Target::Method => ("methods", "actors"),
    };
    let found = rules(target).into_iter().find(|rule| name == rule.name).ok_or_else(|| unknown(name, target))?;
    if found.target.is_some_and(|of| of != target) {
        return Err(Error::new(name.span(), format!("option `{name}` is one of remote {other}, and these are {own}")));
    }
    Ok(found)
}

/// A number that is written out; nothing for any other expression.
fn number(expression: &Expr) -> Option<f64> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse().ok(),
        Expr::Lit(ExprLit { lit: Lit::Float(number), .. }) => number.base10_parse().ok(),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => number(expr).map(|number| -number),
        Expr::Paren(inner) => number(&inner.expr),
        _ => None,
    }
}

/// Whether it is written out and no number.
fn is_other_literal(expression: &Expr) -> bool {
    matches!(expression, Expr::Lit(ExprLit { lit, .. }) if !matches!(lit, Lit::Int(_) | Lit::Float(_)))
}

fn checked(name: &Ident, value: &Expr, kind: Kind) -> Result<TokenStream> {
    let wrong = |text: String| Err(Error::new(value.span(), text));
    match kind {
        Kind::Text => match value {
            Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => Ok(value.to_token_stream()),
            Expr::Lit(_) | Expr::Unary(_) => wrong(format!("`{name}` is a text: write `{name} = \"…\"`")),
            _ => Ok(quote!(&#value)),
        },
        Kind::Pairs => wrong(format!("`{name}` are names and numbers: write `{name}(a = 1, b = 2)`")),
        Kind::Truth => match value {
            Expr::Lit(ExprLit { lit, .. }) if !matches!(lit, Lit::Bool(_)) => {
                wrong(format!("`{name}` is `true` or `false`"))
            }
            _ => Ok(value.to_token_stream()),
        },
        Kind::Amount | Kind::Devices | Kind::Whole(_) if is_other_literal(value) => {
            wrong(format!("`{name}` is a number"))
        }
        Kind::Whole(least) => match number(value) {
            Some(number) if number.fract() != 0.0 => wrong(format!("`{name}` is a whole number, and {number} is none")),
            Some(number) if number < least as f64 => {
                let meaning = if least == -1 { ", where -1 stands for no limit" } else { "" };
                wrong(format!("`{name}` is at least {least}{meaning}; {number} was given"))
            }
            _ => Ok(value.to_token_stream()),
        },
        Kind::Amount => amount(name, value, number(value)),
        Kind::Devices => match number(value) {
            Some(number) if number > 1.0 && number.fract() != 0.0 => wrong(format!(
                "`{name}` is a share of one device or a whole number of devices, and {number} is neither: ask for {} or {}",
                number.floor(),
                number.ceil()
            )),
            number => amount(name, value, number),
        },
    }
}

fn amount(name: &Ident, value: &Expr, number: Option<f64>) -> Result<TokenStream> {
    match number {
        Some(number) if number < 0.0 => {
            Err(Error::new(value.span(), format!("`{name}` cannot be negative; {number} was given")))
        }
        Some(number) => {
            let literal = proc_macro2::Literal::f64_suffixed(number);
            Ok(quote!(#literal))
        }
        None => Ok(quote!(::core::convert::Into::<f64>::into(#value))),
    }
}

/// Where an error about the attribute itself is shown.
pub(crate) fn here() -> Span {
    Span::call_site()
}
