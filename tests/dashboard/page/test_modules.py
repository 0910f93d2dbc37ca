"""The page's modules that compute, called in the browser by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from boards import Board, Opened

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def called(opened: Opened, board: Board) -> Any:
    """What an expression over the names of a module is."""
    page = opened("nodes")
    return lambda module, expression: page.evaluate(f"import('{board.address}/static/{module}').then((m) => ({expression}))")


HOLDINGS = """{nodes: [
  {id: 'a', name: 'a', state: 'ALIVE', devices: [
    {key: 'a0', label: 'GPU 0', state: 'held', reason: null, use: [], bars: [[100, 200, 0, 0.5, 0, 0, 1, '1'], [150, null, 0.5, 0.5, 0, 0, 1, '2']]},
    {key: 'a1', label: 'GPU 1', state: 'free', reason: null, use: [[1, 0.5, 0.5]], bars: []}]},
  {id: 'b', name: 'b', state: 'ALIVE', devices: [{key: 'b0', label: 'GPU 0', state: 'free', reason: null, use: [], bars: []}]}]}"""


def test_rows_lie_beneath_each_other_and_folded_nodes_are_one(called: Any) -> None:
    told = called("timeline/layout.js", f"m.layout({HOLDINGS}, new Set(['b'])).rows.map((row) => [row.type, row.top, row.height])")
    assert [row[0] for row in told] == ["node", "device", "device", "folded"]
    tops = [row[1] for row in told]
    assert tops == [4, 28, 57, 93], "the second device has a line of its use"


def test_nodes_that_are_not_told_keep_their_room(called: Any) -> None:
    node = "{id: 'c', name: 'c', state: 'ALIVE', devices: null, count: 3, measured: 1}"
    told = called("timeline/layout.js", f"m.layout(m.filled({{...{HOLDINGS}, nodes: [...{HOLDINGS}.nodes, {node}]}}), new Set())")
    rows = [(row["type"], row["place"], row["top"]) for row in told["rows"]]
    assert rows[3:] == [("node", 1, 93), ("device", 1, 117), ("node", 2, 146), *(("device", 2, top) for top in (170, 206, 235))]
    assert (told["height"], [row["node"]["isTold"] for row in told["rows"]]) == (268, [True] * 5 + [False] * 4)


def test_nodes_around_those_that_are_seen_are_asked_for(called: Any) -> None:
    told = called("timeline/layout.js", "[[0, 0], [0, 17], [5, 22], [400, 417], [403, 420]].map(([first, last]) => m.nodesAsked(first, last))")
    assert told[0] == told[1] == told[2] == {"first": 0, "count": 32}
    assert told[3] == told[4] == {"first": 384, "count": 48}


def test_a_point_finds_the_bar_at_its_height(called: Any) -> None:
    find = "m.hit(m.layout({holdings}, new Set()).rows, {y}, {at}, 0, 400)?.bar?.[7] ?? null"
    low, high = 28 + 20, 28 + 4
    cases = {(low, 160): "1", (high, 160): "2", (high, 120): None, (high, 300): "2", (low, 300): None, (high, 500): None}
    for (y, at), expected in cases.items():
        told = called("timeline/layout.js", find.format(holdings=HOLDINGS, y=y, at=at))
        assert told == expected, (y, at)


def test_ticks_are_round_and_few(called: Any) -> None:
    told = called("timeline/layout.js", "m.ticks({from: 1000, to: 61_000}, 8, 0)")
    assert (told["step"], told["marked"][0], len(told["marked"])) == (10_000, 10_000, 6)
    zoomed = called("timeline/layout.js", "m.zoomed({from: 0, to: 1000}, 250, 2)")
    assert zoomed == {"from": -250, "to": 1750}


def test_what_is_asked_for_stays_the_same_for_small_moves(called: Any) -> None:
    ask = "[0, 40, 90].map((by) => m.asked({from: 100_000 + by, to: 160_000 + by}, 900)).map((one) => JSON.stringify(one))"
    told = called("timeline/layout.js", ask)
    assert len(set(told)) == 1
    one = called("timeline/layout.js", "m.asked({from: 100_000, to: 160_000}, 900)")
    assert one["from"] < 100_000 and one["to"] > 160_000 and one["pixels"] <= 4_000


def test_amounts_and_spans_are_told_as_people_do(called: Any) -> None:
    assert called("format.js", "[0.2, 999, 9_400, 61_000, 7_260_000, 200_000_000].map(m.span)") == [
        "<1 ms", "999 ms", "9.4 s", "1 min 01 s", "2 h 01 min", "2 d 7 h",
    ]  # fmt: skip
    assert called("format.js", "[0, 1023, 1536, 3221225472].map(m.bytes)") == ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
    assert called("format.js", "m.colours('train', true).fill === m.colours('train', true).fill") is True
    assert called("format.js", "m.colours('train', true).fill === m.colours('evaluate', true).fill") is False


def test_a_thousand_nodes_fit_on_a_screen(called: Any) -> None:
    told = called("views/map.js", "m.grid(1000, 1000)")
    assert told["rows"] * told["cell"] <= 320 and told["columns"] * told["cell"] <= 1000


def test_lines_of_a_log_are_added_below_and_above(called: Any) -> None:
    told = "{file: 'a', begin: 0, ended: false, more: false, shared: false"
    first = f"m.newer(null, {told}, text: 'b\\nc\\n', from: 10, next: 14}})"
    grown = f"m.newer({first}, {told}, text: '\\x1b[31md\\x1b[0m\\n', from: 14, next: 25}})"
    above = f"m.older({grown}, {told}, text: 'a\\n', from: 8, next: 10}})"
    cases = {
        first: ["b\nc\n", 10, 14],
        grown: ["b\nc\nd\n", 10, 25],
        above: ["a\nb\nc\nd\n", 8, 25],
        # What does not stand right above is no part of it.
        f"m.older({grown}, {told}, text: 'x', from: 0, next: 5}})": ["b\nc\nd\n", 10, 25],
        # Another file, or one of which something was lost meanwhile, begins anew.
        f"m.newer({grown}, {{...{told}}}, file: 'b', text: 'z\\n', from: 0, next: 2}})": ["z\n", 0, 2],
        f"m.newer({grown}, {told}, text: 'z\\n', from: 40, next: 42}})": ["z\n", 40, 42],
    }
    for expression, expected in cases.items():
        assert called("views/log.js", f"(({{text, from, next}}) => [text, from, next])({expression})") == expected, expression
    many = f"m.newer({grown}, {told}, text: 'l\\n'.repeat(30000), from: 25, next: 60025}})"
    assert called("views/log.js", f"(({{text, from}}) => [text.split('\\n').length, from])({many})") == [20_000, 0]


RANKS = """[
  {name: 'other: rank 0', state: 'RUNNING', created_ms: 1, key: 'x'}, {name: 'a: rank one', state: 'RUNNING', created_ms: 1, key: 'y'},
  {name: 'a: rank 1', state: 'FAILED', created_ms: 5, ended_ms: 40, error: 'E', key: 'a1', message: 'Traceback\\nValueError: bad'},
  {name: 'a: rank 0', state: 'FAILED', created_ms: 5, ended_ms: 45, error: 'ActorDiedError', key: 'a0', message: null},
  {name: 'a: rank 0', state: 'RUNNING', created_ms: 60, ended_ms: 0, key: 'b0'}, {name: 'a: rank 1', state: 'PENDING_ARGS', created_ms: 60, key: 'b1'},
  {name: 'a: rank 10', state: 'RUNNING', created_ms: 61, key: 'b10'}]"""


def test_ranks_of_a_run_are_groups_that_came_after_each_other(called: Any) -> None:
    groups = called("views/ranks.js", f"m.groupsOf({RANKS}, 'a').map((group) => [m.stateOf(group), group.map((rank) => rank.key), m.culprit(group)?.key ?? null])")
    assert groups == [["FAILED", ["a0", "a1"], "a1"], ["RUNNING", ["b0", "b1", "b10"], None]]
    killed = "{rank: 0, state: 'FAILED', ended_ms: 1, message: 'The actor is dead because it was killed by `ray.kill`.'}"
    assert called("views/ranks.js", f"m.culprit([{killed}])") is None, "the run ended it, for another"
    told = called("views/ranks.js", "m.alike([{rank: 2, text: 'wait'}, {rank: 1, text: 'load'}, {rank: 0, text: 'wait'}])")
    assert told == [{"ranks": [1], "text": "load"}, {"ranks": [0, 2], "text": "wait"}]


def test_devices_of_ranks_are_asked_for_as_long_as_their_group_ran(called: Any) -> None:
    running, ended = "{started_ms: 5, ended_ms: 0}", "{started_ms: 7, ended_ms: 40}, {started_ms: 0, ended_ms: 9}"
    spans = called("views/ranks.js", f"[undefined, [{running}, {ended}], [{ended}]].map(m.spanOf)")
    assert spans == [{"from": 8.64e15}, {"from": 8.64e15}, {"from": 7, "to": 40}]
    notes = called("views/ranks.js", "[null, {total: 1, rows: [1], next: null, note: null}, {total: 900, rows: [1, 2], next: 'x', note: 'One is silent.'}].map((one) => m.noteOf(one, 'calls'))")
    assert notes == ["", "", "There are 900 calls; the newest 2 are looked at. One is silent."]


def test_a_deadline_that_cannot_be_read_is_not_taken_as_none(called: Any) -> None:
    fields = "[['', false], ['2.5', false], ['', true], ['0', false], ['-1', false], ['10000001', false]]"
    told = called("views/acts.js", f"{fields}.map(([value, badInput]) => {{ try {{ return m.secondsOf({{ value, validity: {{ badInput }} }}) ?? null; }} catch (error) {{ return error.message; }} }})")
    assert told[:2] == [None, 150]
    assert all("no number of minutes above 0 and up to 10,000,000" in said for said in told[2:])


def test_to_leave_a_draining_node_alone_is_not_to_keep_it(called: Any) -> None:
    acts = called("views/acts.js", "['DRAINING', 'DEAD'].map((state) => m.ofNode({ state, key: 'n', name: 'n' }).map((act) => [act.path, act.label, act.dismiss]))")
    assert acts == [[["nodes/n/keep", "Stop draining", "Let it drain"]], []]


def test_rows_of_cpus_are_as_high_as_there_are_cores(called: Any) -> None:
    node = "{{id: 'a', name: 'a', state: 'ALIVE', count: 1, measured: 0, cores: {cores}, devices: {devices}}}"
    device = "[{{key: 'a', label: '', state: 'held', reason: null, use: [], bars: [], cores: {cores}}}]"
    heights = [
        called("timeline/layout.js", f"m.layout(m.filled({{nodes: [{node.format(cores=cores, devices=devices)}]}}), new Set()).rows[1].bar")
        for cores in (1, 4, 64)
        for devices in (device.format(cores=cores), "null")
    ]
    assert heights == [24, 24, 56, 56, 168, 168], "the same before they are told"


def test_a_clock_is_told_as_far_as_it_is_known(called: Any) -> None:
    assert called("views/nodes.js", "[null, -900, 6999, 12_400, -61_000].map(m.clockText)") == ["", "within 7 s", "within 7 s", "12 s ahead", "1 min 01 s behind"]


PROFILED = """[{pid: 7, name: 'f', note: '', stacks: [
  {name: 'MainThread', weight: 3, frames: [{function: 'inner', file: '/a.py', line: 7}, {function: 'main', file: '/a.py', line: 1}]},
  {name: 'MainThread', weight: 1, frames: [{function: '<script>', file: '', line: 0}, {function: 'main', file: '/a.py', line: 1}]},
  {name: 'MainThread', weight: 4, frames: [{function: 'main', file: '/a.py', line: 2}, {function: 'main', file: '/a.py', line: 1}]}]}]"""


def test_stacks_become_a_tree_and_a_table(called: Any) -> None:
    walk = "const walk = (frame) => [frame.name, frame.place, frame.weight, frame.children.map(walk)];"
    told = called("views/flame.js", f"(() => {{ {walk} return walk(m.tree({PROFILED})); }})()")
    within = [["main", "/a.py:2", 4, []], ["inner", "/a.py:7", 3, []], ["<script>", "", 1, []]]
    assert told == ["all", "", 8, [["MainThread", "", 8, [["main", "/a.py:1", 8, within]]]]]
    table = called("views/flame.js", f"m.functions({PROFILED}, 'us').map((one) => [one.function, one.line, one.own, one.total])")
    assert table == [["main", 1, 4, 8], ["inner", 7, 3, 3], ["<script>", 0, 1, 1]], "one that calls itself counts once"


def test_what_a_zoomed_frame_calls_has_the_whole_width(called: Any) -> None:
    shown = "m.boxes({frame}, 100).map((box) => [box.frame.name, box.left, box.wide, box.outer])"
    find = f"(() => {{ const main = m.tree({PROFILED}).children[0].children[0]; return {shown.format(frame='main.children[1]')}; }})()"
    assert called("views/flame.js", find) == [
        ["all", 0, 1, True], ["MainThread", 0, 1, True], ["main", 0, 1, True], ["inner", 0, 1, False],
    ]  # fmt: skip
    whole = called("views/flame.js", shown.format(frame=f"m.tree({PROFILED})"))
    assert [row[:3] for row in whole[3:]] == [["main", 0, 0.5], ["inner", 0.5, 0.375], ["<script>", 0.875, 0.125]]
    # What nobody would see is not drawn.
    assert len(called("views/flame.js", f"m.boxes(m.tree({PROFILED}), 10)")) == 5
