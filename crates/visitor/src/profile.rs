//! Profiles in the formats of tools: stacks in a line each ("folded"), a flame graph as SVG, speedscope's file, and a table of
//! functions.

use oxiray_wire::message::{Profile, Stack, StackFrame};
use oxiray_wire::plain;
use oxiray_wire::state::{ProcessStacks, ProfileKind};
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const EXPECT: &str = "writing to a string does not fail";
/// Of a flame graph, in pixels: its width, the height of a frame, and the width of what is not drawn, for nobody would see it.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 18.0;
const WIDTH_MIN: f64 = 0.3;
/// What a letter takes in a frame, and what it leaves free, in pixels.
const LETTER: f64 = 7.0;
const MARGIN: f64 = 6.0;
/// What names the format of speedscope's files.
const SPEEDSCOPE_SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// What is measured, in words.
#[must_use]
pub fn title(profile: &Profile) -> String {
    let seconds = f64::from(profile.duration_ms) / 1e3;
    match profile.kind {
        ProfileKind::Cpu => format!("CPU time over {seconds} s, {} samples a second", profile.rate_hz),
        ProfileKind::Wall => format!("Wall-clock time over {seconds} s, {} samples a second", profile.rate_hz),
        ProfileKind::Memory => format!("Memory allocated within {seconds} s and not freed"),
    }
}

/// A weight in the units of its kind: seconds, or binary multiples of bytes.
#[must_use]
pub fn amount(kind: ProfileKind, weight: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is shown with three digits")]
    let weight = weight as f64;
    match kind {
        ProfileKind::Cpu | ProfileKind::Wall => format!("{:.3} s", weight / 1e6),
        ProfileKind::Memory if weight < 1024.0 => format!("{weight} B"),
        ProfileKind::Memory if weight < 1024.0 * 1024.0 => format!("{:.1} KiB", weight / 1024.0),
        ProfileKind::Memory => format!("{:.1} MiB", weight / 1024.0 / 1024.0),
    }
}

/// What all stacks weigh together.
#[must_use]
pub fn total(processes: &[ProcessStacks]) -> u64 {
    stacks(processes).map(|(_, stack)| stack.weight).fold(0, u64::saturating_add)
}

fn stacks(processes: &[ProcessStacks]) -> impl Iterator<Item = (&ProcessStacks, &Stack)> {
    processes.iter().flat_map(|process| process.stacks.iter().map(move |stack| (process, stack)))
}

/// The names of what a stack stands for, the outermost first: process, thread, and each call.
fn path(process: &ProcessStacks, stack: &Stack) -> Vec<String> {
    let pid = process.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    let name = if process.is_driver { "driver" } else { process.name.as_str() };
    let outer = [format!("pid {pid} {}", plain(name)), plain(&stack.name).into_owned()];
    let outer = outer.into_iter().filter(|name| !name.is_empty());
    outer.chain(stack.frames.iter().rev().map(label)).collect()
}

fn label(frame: &StackFrame) -> String {
    let StackFrame { function, file, line } = frame;
    if file.is_empty() { plain(function).into_owned() } else { format!("{} ({}:{line})", plain(function), plain(file)) }
}

/// A line for each stack: its calls, the outermost first, separated by `;`, and its weight: microseconds or bytes.
#[must_use]
pub fn folded(processes: &[ProcessStacks]) -> String {
    let mut text = String::new();
    for (process, stack) in stacks(processes) {
        let path: Vec<String> = path(process, stack).iter().map(|name| name.replace(';', ",")).collect();
        writeln!(text, "{} {}", path.join(";"), stack.weight).expect(EXPECT);
    }
    text
}

/// The frames of a file of speedscope's, each once.
#[derive(Default)]
struct Frames<'a> {
    numbers: BTreeMap<(&'a str, &'a str, u32), usize>,
    written: Vec<Json>,
}

impl<'a> Frames<'a> {
    fn number(&mut self, frame: &'a StackFrame) -> usize {
        let StackFrame { function, file, line } = frame;
        *self.numbers.entry((function, file, *line)).or_insert_with(|| {
            self.written.push(json!({"name": function, "file": file, "line": line}));
            self.written.len() - 1
        })
    }
}

/// The stacks of a thread, as numbers of frames, and what each weighs.
#[derive(Default)]
struct Samples {
    stacks: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// A file of speedscope's: a profile for each thread of each process.
#[must_use]
pub fn speedscope(processes: &[ProcessStacks], profile: &Profile) -> Json {
    let mut frames = Frames::default();
    let mut threads: BTreeMap<(usize, &str), Samples> = BTreeMap::new();
    for (at, process) in processes.iter().enumerate() {
        for stack in &process.stacks {
            let samples = threads.entry((at, &stack.name)).or_default();
            samples.stacks.push(stack.frames.iter().rev().map(|frame| frames.number(frame)).collect());
            samples.weights.push(stack.weight);
        }
    }
    let unit = if profile.kind == ProfileKind::Memory { "bytes" } else { "microseconds" };
    let profiles = threads.into_iter().map(|((at, thread), Samples { stacks, weights })| {
        let name = path(&processes[at], &Stack { name: thread.to_owned(), ..Stack::default() }).join(" ");
        let end = weights.iter().copied().fold(0, u64::saturating_add);
        json!({
            "type": "sampled", "name": name, "unit": unit, "startValue": 0, "endValue": end, "samples": stacks,
            "weights": weights,
        })
    });
    let profiles: Vec<Json> = profiles.collect();
    json!({"$schema": SPEEDSCOPE_SCHEMA, "name": title(profile), "exporter": "oxiray", "shared": {"frames": frames.written}, "profiles": profiles})
}

/// A function, and what it weighs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FunctionWeight {
    /// Its name; of memory, the line of source.
    pub function: String,
    /// The file that it is in.
    pub file: String,
    /// The first of its lines that was seen.
    pub line: u32,
    /// What it weighs itself.
    pub own: u64,
    /// The same with what it calls.
    pub total: u64,
}

/// The functions of all stacks, those that weigh most themselves first.
#[must_use]
pub fn functions(kind: ProfileKind, processes: &[ProcessStacks]) -> Vec<FunctionWeight> {
    // Of memory, a line stands for what is called in it.
    let same = |one: &StackFrame, other: &StackFrame| {
        let is_same_line = kind != ProfileKind::Memory || one.line == other.line;
        one.function == other.function && one.file == other.file && is_same_line
    };
    let mut found: BTreeMap<(&str, &str, u32), FunctionWeight> = BTreeMap::new();
    for (_, stack) in stacks(processes) {
        for (at, frame) in stack.frames.iter().enumerate() {
            let StackFrame { function, file, line } = frame;
            let named_by = if kind == ProfileKind::Memory { *line } else { 0 };
            let known = found.entry((function, file, named_by)).or_insert_with(|| FunctionWeight {
                function: function.clone(),
                file: file.clone(),
                line: *line,
                own: 0,
                total: 0,
            });
            known.line = known.line.min(*line);
            if at == 0 {
                known.own += stack.weight;
            }
            // A function that calls itself counts once.
            let is_repeated = stack.frames[..at].iter().any(|inner| same(inner, frame));
            if !is_repeated {
                known.total += stack.weight;
            }
        }
    }
    let mut found: Vec<FunctionWeight> = found.into_values().collect();
    found.sort_by_key(|one| Reverse((one.own, one.total)));
    found
}

/// What stands at one place of a flame graph.
#[derive(Debug, Default)]
struct Node {
    weight: u64,
    within: BTreeMap<String, Self>,
}

impl Node {
    fn of(processes: &[ProcessStacks]) -> Self {
        let mut root = Self::default();
        for (process, stack) in stacks(processes) {
            root.weight = root.weight.saturating_add(stack.weight);
            let mut node = &mut root;
            for name in path(process, stack) {
                node = node.within.entry(name).or_default();
                node.weight = node.weight.saturating_add(stack.weight);
            }
        }
        root
    }

    fn depth(&self) -> usize {
        1 + self.within.values().map(Self::depth).max().unwrap_or(0)
    }
}

/// A flame graph: each frame is as wide as it weighs, and stands on what called it; its title tells the rest.
#[must_use]
pub fn flame_graph(processes: &[ProcessStacks], profile: &Profile) -> String {
    let root = Node::of(processes);
    let height = HEIGHT * (root.depth() + 2) as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fffdf7\"/>\n<text x=\"{MARGIN}\" \
         y=\"{HEIGHT}\">{}</text>\n",
        in_xml(&title(profile))
    );
    let mut drawing = Drawing { text: &mut text, kind: profile.kind, whole: root.weight.max(1), height };
    drawing.draw("all", &root, 0.0, 1);
    text.push_str("</svg>\n");
    text
}

struct Drawing<'a> {
    text: &'a mut String,
    kind: ProfileKind,
    whole: u64,
    height: f64,
}

impl Drawing<'_> {
    #[expect(clippy::cast_precision_loss, reason = "these are pixels and percents")]
    fn draw(&mut self, name: &str, node: &Node, from: f64, level: usize) {
        let part = node.weight as f64 / self.whole as f64;
        let (width, top) = (WIDTH * part, self.height - HEIGHT * level as f64);
        if width < WIDTH_MIN {
            return;
        }
        let amount = amount(self.kind, node.weight);
        let shown: String = name.chars().take(((width - MARGIN) / LETTER).max(0.0) as usize).collect();
        writeln!(
            self.text,
            "<g><title>{} – {amount}, {:.1} %</title><rect x=\"{from:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{}\" rx=\"2\" \
             fill=\"{}\"/><text x=\"{:.2}\" y=\"{}\">{}</text></g>",
            in_xml(name),
            part * 100.0,
            (width - 0.5).max(WIDTH_MIN),
            HEIGHT - 1.0,
            colour(name),
            from + MARGIN / 2.0,
            top + 13.0,
            in_xml(if shown.len() > 2 { &shown } else { "" }),
        )
        .expect(EXPECT);
        let mut from = from;
        for (name, inner) in &node.within {
            self.draw(name, inner, from, level + 1);
            from += WIDTH * inner.weight as f64 / self.whole as f64;
        }
    }
}

/// A colour of fire, the same for the same name.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(2_166_136_261_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
    format!("hsl({}, 85%, {}%)", 15 + hash % 40, 66 + (hash >> 8) % 12)
}

/// The text as XML has it: what stands for marks there, and what XML cannot say.
fn in_xml(text: &str) -> String {
    let text = plain(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, line: u32) -> StackFrame {
        StackFrame { function: function.into(), file: "/a;b.py".into(), line }
    }

    fn processes() -> Vec<ProcessStacks> {
        let stack = |frames, weight| Stack { name: "MainThread".into(), frames, weight, ..Stack::default() };
        let stacks = vec![
            stack(vec![frame("inner", 7), frame("main", 1)], 750_000),
            stack(vec![frame("main", 2)], 250_000),
            // It calls itself.
            stack(vec![frame("<lambda>", 9), frame("<lambda>", 9), frame("main", 3)], 1_000_000),
        ];
        vec![ProcessStacks { pid: Some(7), name: "f".into(), stacks, ..ProcessStacks::default() }]
    }

    fn cpu() -> Profile {
        Profile { kind: ProfileKind::Cpu, duration_ms: 2000, rate_hz: 100 }
    }

    #[test]
    fn folded_stacks_have_the_outermost_call_first() {
        let expected = "pid 7 f;MainThread;main (/a,b.py:1);inner (/a,b.py:7) 750000\n\
                        pid 7 f;MainThread;main (/a,b.py:2) 250000\n\
                        pid 7 f;MainThread;main (/a,b.py:3);<lambda> (/a,b.py:9);<lambda> (/a,b.py:9) 1000000\n";
        assert_eq!(folded(&processes()), expected);
        assert_eq!(total(&processes()), 2_000_000);
    }

    #[test]
    fn functions_weigh_what_they_do_themselves_and_with_what_they_call() {
        let found: Vec<(String, u32, u64, u64)> = functions(ProfileKind::Cpu, &processes())
            .into_iter()
            .map(|one| (one.function, one.line, one.own, one.total))
            .collect();
        let expected = [
            ("<lambda>".to_owned(), 9, 1_000_000, 1_000_000),
            ("inner".to_owned(), 7, 750_000, 750_000),
            ("main".to_owned(), 1, 250_000, 2_000_000),
        ];
        assert_eq!(found, expected);
        // Lines of source that read the same are two.
        let lines: Vec<u32> = functions(ProfileKind::Memory, &processes()).iter().map(|one| one.line).collect();
        assert_eq!(lines, [9, 7, 2, 3, 1]);
    }

    #[test]
    fn speedscope_finds_each_frame_and_the_whole_weight() {
        let told = speedscope(&processes(), &cpu());
        assert_eq!(told["shared"]["frames"].as_array().map(Vec::len), Some(5), "a frame for each line");
        let profile = &told["profiles"][0];
        assert_eq!((&profile["endValue"], &profile["unit"]), (&json!(2_000_000), &json!("microseconds")));
        assert_eq!(profile["samples"][2], json!([3, 4, 4]), "the outermost first");
        assert_eq!(profile["name"], "pid 7 f MainThread");
    }

    #[test]
    fn a_flame_graph_is_as_wide_as_it_weighs_and_has_no_marks_of_names() {
        let drawn = flame_graph(&processes(), &cpu());
        assert!(drawn.contains("<title>inner (/a;b.py:7) – 0.750 s, 37.5 %</title>"), "{drawn}");
        assert!(drawn.contains("&lt;lambda&gt;") && !drawn.contains("<lambda>"), "{drawn}");
        assert!(drawn.contains("width=\"449.50\""), "inner has three eighths of 1200: {drawn}");
        let empty = flame_graph(&[], &cpu());
        assert!(empty.ends_with("</svg>\n") && !empty.contains("<title>"), "{empty}");
    }

    #[test]
    fn amounts_have_units() {
        assert_eq!(amount(ProfileKind::Wall, 1_500_000), "1.500 s");
        assert_eq!(amount(ProfileKind::Memory, 1000), "1000 B");
        assert_eq!(amount(ProfileKind::Memory, 3 << 20), "3.0 MiB");
        assert_eq!(title(&cpu()), "CPU time over 2 s, 100 samples a second");
    }
}
