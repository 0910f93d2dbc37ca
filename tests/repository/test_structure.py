"""How much one may have to hold in mind: fields of a struct, files that lean on each other in a circle, names of types.

The length of functions is clippy's to count (70 lines, `clippy.toml`). What is over a limit today stands in a table
here. A table only ever shrinks: nothing new enters it, an entry never grows, and one that is met is taken out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
import rust_source

ROOT = Path(__file__).resolve().parent.parent.parent
FIELDS_MAX = 15
CIRCLE_FILES_MAX = 6

#: Structs with more fields than `FIELDS_MAX`, with the most that each may have.
LARGE_STRUCTS = {
    "cli/src/arguments.rs StartOptions": 25,
    "kubernetes/src/job.rs JobSpec": 18,
    "network/src/exchange.rs Exchange": 17,
    "sim/src/options.rs Options": 33,
    "sim/src/world.rs World": 24,
    "wire/src/message/actor.rs ActorCreate": 26,
    "wire/src/message/node.rs Place": 18,
}
#: Crates of which more than `CIRCLE_FILES_MAX` files lean on each other in a circle, with the most files that may do so.
LARGE_CIRCLES = {"python": 12, "sim": 18}
#: Types whose methods call each other through more than `CIRCLE_FILES_MAX` files, with how many files that are exactly.
SPREAD_TYPES = {"machine NodeCore": 17, "node Daemon": 20, "runtime Client": 20, "sim World": 15}
#: Functions that clippy is told to let pass, with the reason at each.
LONG_FUNCTIONS = {
    "accelerators/tests/offers.rs": 1,
    "head/src/head/tests/any_order.rs": 1,
    "node/src/daemon/start.rs": 1,
}
#: Names that several public types have, with the most types that may have it.
SHARED_NAMES = {
    "Actor": 2,
    "Class": 2,
    "Cluster": 2,
    "DeviceUse": 2,
    "Draining": 2,
    "Entry": 2,
    "Event": 2,
    "Failed": 2,
    "Fleet": 2,
    "Function": 2,
    "Kind": 2,
    "Limits": 3,
    "Local": 2,
    "Memory": 2,
    "Newcomer": 2,
    "Options": 6,
    "Outcome": 3,
    "Pace": 2,
    "Peer": 2,
    "Pinned": 2,
    "Place": 3,
    "Plan": 3,
    "QuantityError": 2,
    "Returned": 2,
    "Sealed": 2,
    "Shape": 2,
    "Situation": 2,
    "Stage": 2,
    "Store": 2,
    "Strategy": 2,
    "Ticket": 3,
    "Unmet": 2,
    "Waiting": 2,
}


def against(table: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """Where a table of exceptions and what is found differ."""
    return [
        *(f"{name} has {count}: new, or more than is listed" for name, count in found.items() if count > table.get(name, 0)),
        *(f"{name} is within the limit: take it out of the table" for name in table if name not in found),
    ]


def sources() -> list[Path]:
    """The files of all crates' libraries and programs, without those of tests."""
    found = [path for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")) if "tests" not in path.with_suffix("").parts]
    assert found
    return found


def test_structs_have_few_fields() -> None:
    large = {
        f"{path.relative_to(ROOT / 'crates')} {name}": count
        for path in sources()
        for name, count in rust_source.structs(rust_source.product_code(path))
        if count > FIELDS_MAX
    }
    assert against(LARGE_STRUCTS, large) == []


def test_few_files_lean_on_each_other_in_a_circle() -> None:
    large = {}
    for manifest in (ROOT / "crates").glob("*/Cargo.toml"):
        found = rust_source.circles(rust_source.imports(rust_source.modules_of(manifest.parent / "src")))
        if sizes := [len(circle) for circle in found if len(circle) > CIRCLE_FILES_MAX]:
            large[manifest.parent.name] = sum(sizes)
    assert against(LARGE_CIRCLES, large) == []


def test_methods_of_one_type_call_each_other_through_few_files() -> None:
    # What imports do not show: methods of one type see each other in whichever files they stand.
    spread = {
        f"{manifest.parent.name} {name}": count
        for manifest in (ROOT / "crates").glob("*/Cargo.toml")
        for name, count in rust_source.spread_types(rust_source.modules_of(manifest.parent / "src")).items()
        if count > CIRCLE_FILES_MAX
    }
    assert against(SPREAD_TYPES, spread) == []
    assert spread == SPREAD_TYPES, "one has become smaller: lower its number in the table, so that it stays so"


def test_an_operation_of_the_head_leans_only_on_those_below_it() -> None:
    # Methods of one type see each other in whichever files they stand: this order is what keeps them from a circle.
    source = ROOT / "crates" / "head" / "src"
    rows = re.findall(r"^//! \| ((?:`\w+`(?:, )?)+) \|", (source / "head.rs").read_text(), re.MULTILINE)
    order = [("head", name) for row in rows for name in re.findall(r"`(\w+)`", row)] + [("head",)]
    modules = rust_source.modules_of(source)
    assert sorted(order) == sorted(module for module in modules if module[:1] == ("head",))
    imported, called = rust_source.imports(modules), rust_source.method_calls(modules, "HeadCore")
    place = {module: index for index, module in enumerate(order)}
    wrong = [
        f"{'::'.join(module)} leans on {'::'.join(other)}, which stands before it"
        for module in order
        for other in (imported[module] | called[module]) & set(order)
        if place[other] < place[module]
    ]
    assert wrong == []


def test_functions_are_short() -> None:
    assert "too-many-lines-threshold = 70" in (ROOT / "clippy.toml").read_text()
    assert "too_many_lines" not in (ROOT / "Cargo.toml").read_text()
    long = {
        str(path.relative_to(ROOT / "crates")): count
        for path in (ROOT / "crates").rglob("*.rs")
        if (count := path.read_text().count("clippy::too_many_lines"))
    }
    assert against(LONG_FUNCTIONS, long) == []


def test_a_public_type_has_a_name_of_its_own() -> None:
    places = defaultdict(set)
    for path in sources():
        for name in rust_source.public_types(rust_source.product_code(path)):
            places[name].add(path)
    assert against(SHARED_NAMES, {name: len(where) for name, where in places.items() if len(where) > 1}) == []


def test_a_table_of_exceptions_only_shrinks() -> None:
    assert against({"a": 3}, {"a": 2}) == []
    assert len(against({"a": 3}, {"a": 4})) == 1
    assert len(against({}, {"a": 1})) == 1
    assert len(against({"a": 3}, {})) == 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("struct A { a: u8, b: Map<u8, (u8, u8)>, }", [("A", 2)]),
        ("pub(crate) struct A<T: Fn(u8) -> u8> where T: B {\n #[doc(x, y)]\n pub a: fn(u8, u8) -> u8,\n b: [u8; 3] }", [("A", 2)]),
        ("struct A; struct B(u8, u8); struct C { // { a: u8,\n a: u8 }", [("C", 1)]),
        ('const A: &str = "struct B { a: u8 }"; #[cfg(test)]\nmod tests { struct D { a: u8 } }', []),
    ],
)
def test_fields_are_counted(tmp_path: Path, source: str, expected: list[tuple[str, int]]) -> None:
    (tmp_path / "lib.rs").write_text(source)
    assert list(rust_source.structs(rust_source.product_code(tmp_path / "lib.rs"))) == expected


def test_circles_are_found_through_uses_paths_and_reexports(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; mod b; mod c; mod d; pub use a::A;",
        "a.rs": "mod inner; use crate::b::{self, B as Bee}; pub struct A;",
        "a/inner.rs": "fn f() -> super::A { super::super::d::make() }",
        "b.rs": "use std::fmt; fn f() { crate::c::call() } pub struct B;",
        "c.rs": "use crate::{A, b}; #[cfg(test)] mod tests { use crate::d::D; }",
        "d.rs": "// use crate::a::A;\nuse other::c::C; pub struct D;",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    edges = rust_source.imports(rust_source.modules_of(tmp_path))
    assert edges == {
        (): set(),
        ("a",): {("b",)},
        ("a", "inner"): {("a",), ("d",)},
        ("b",): {("c",)},
        ("c",): {("a",), ("b",)},
        ("d",): set(),
    }
    assert rust_source.circles(edges) == [{("a",), ("b",), ("c",)}]


def test_methods_of_one_type_are_followed_into_other_files(tmp_path: Path) -> None:
    files = {
        "a.rs": "impl Core { fn one(&self) { self.two(); self.part.three() } }",
        "b.rs": "impl Core { fn two(&self) { Self::three(); self\n.two() } }\nimpl Other { fn f(&self) { self.one() } }",
        "c.rs": "impl Core { fn three() {} } #[cfg(test)] mod tests { impl Core { fn g(&self) { self.one() } } }",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = rust_source.method_calls(rust_source.modules_of(tmp_path), "Core")
    assert found == {("a",): {("b",)}, ("b",): {("c",)}, ("c",): set()}


def test_files_that_one_types_methods_lead_through_in_a_circle_are_counted(tmp_path: Path) -> None:
    files = {
        "a.rs": "impl<I: Io> Core<I> { fn one(&self) { self.two() } }",
        "b.rs": "impl<I> Core<I>\nwhere\n    I: Io<T = Vec<u8>>,\n{ fn two(&self) { Self::three() } }",
        "c.rs": "impl Core<Ports> { fn three() { self.one() } }",
        "d.rs": "impl<I: Io> Core<I> { fn four(&self) { self.one() } } impl Show for Core<I> { fn one(&self) { self.four() } }",
        "e.rs": "impl Other { fn one(&self) { self.two() } fn two(&self) {} }",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert rust_source.spread_types(rust_source.modules_of(tmp_path)) == {"Core": 3}


def test_only_types_that_other_crates_see_are_public() -> None:
    source = "pub struct A;\npub(crate) enum B {}\nstruct C;\nmod m {\n    pub type D = u8;\n}\npub trait E {}\n"
    assert list(rust_source.public_types(source)) == ["A", "D", "E"]
