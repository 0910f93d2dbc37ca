//! A frame of `oxiray top`, from what the head told and what its user chose.

use super::recorded::{DeviceStory, Recorded, STRIP_MS};
use super::rows::{List, Row, Target, clock, list};
use super::screen::{Layout, Screen, Typing, View};
use oxiray_wire::plain;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// The colours of holders. The same name has the same one everywhere.
const COLOURS: [Color; 8] = [
    Color::Cyan,
    Color::Green,
    Color::Yellow,
    Color::Blue,
    Color::Magenta,
    Color::LightCyan,
    Color::LightGreen,
    Color::LightMagenta,
];
const HELP: [&str; 19] = [
    "1-7          devices, nodes, jobs, tasks by name, actors, what waits, events",
    "t            the tree: jobs, their actors, and calls that are not over; t leaves it",
    "up, down     choose a row; PageUp and PageDown go by ten",
    "Enter        show all that is known of it; Escape goes back",
    "/            show only rows with these letters; Escape shows all again",
    ", and .      sort by another column; I inverts the order",
    "a, f, c      all of each row where there is room (auto), always (full), or a line each",
    "Space        tag a row: what follows is done with all tagged ones; Escape untags them",
    "e            explain why it waits: an actor, a task, or a row of what waits",
    "s            show the stack of an actor, a task, or a device's holders",
    "l            show what a job, an actor or a task printed",
    "K            kill an actor or cancel a task, when the first eight digits are typed",
    "S            stop a submitted job, when its name is typed",
    "D            drain a node, when the first eight digits are typed",
    "p            hold the picture still, and let it go on",
    "q            leave",
    "",
    "devices: # held, ~ being given back, x out of service; + from 50 %, ! from 85 % busy",
    "before a holder: ! who has no grant uses it, ? there is more to know: Enter tells it",
];

/// Whether there are colours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    pub(crate) has_colours: bool,
}

impl Palette {
    fn of_name(self, name: &str) -> Style {
        // FNV-1a, as the page has it.
        let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        self.colour(COLOURS[hash as usize % COLOURS.len()])
    }

    fn colour(self, colour: Color) -> Style {
        if self.has_colours { Style::default().fg(colour) } else { Style::default() }
    }

    fn heading() -> Style {
        Style::default().add_modifier(Modifier::BOLD)
    }

    fn chosen() -> Style {
        Style::default().add_modifier(Modifier::REVERSED)
    }
}

/// A part of a frame that is written line by line.
struct Page<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
}

impl Page<'_> {
    /// Writes into a line, from a column on; what does not fit is cut.
    fn write(&mut self, line: u16, column: u16, width: u16, text: &str, style: Style) {
        if line < self.area.height && column < self.area.width {
            let width = width.min(self.area.width - column);
            let (x, y) = (self.area.x + column, self.area.y + line);
            self.buffer.set_stringn(x, y, plain(text), usize::from(width), style);
        }
    }

    fn line(&mut self, line: u16, text: &str, style: Style) {
        self.write(line, 0, self.area.width, text, style);
    }
}

/// Draws a frame.
pub(crate) fn draw(buffer: &mut Buffer, area: Rect, recorded: &Recorded, screen: &Screen, palette: Palette) {
    let mut page = Page { buffer, area };
    page.line(0, &heading(recorded, screen), Palette::heading());
    tabs(&mut page, screen);
    if screen.is_over_rows() {
        over_rows(&mut page, recorded, screen);
    } else {
        rows(&mut page, recorded, screen, palette);
    }
    let last = area.height.saturating_sub(1);
    page.line(last, &bottom(screen), Style::default());
}

fn heading(recorded: &Recorded, screen: &Screen) -> String {
    let cluster = &recorded.cluster;
    let alive = cluster.nodes.iter().filter(|node| node.alive).count();
    let held = recorded.devices.values().filter(|story| story.holders().next().is_some()).count();
    let out = recorded.devices.values().filter(|story| story.out.is_some()).count();
    let waiting: u64 = cluster.waiting.iter().map(|row| row.count).sum();
    let address = cluster.daemon.as_ref().map_or("", |daemon| daemon.address.as_str());
    let paused = if screen.is_paused { "  PAUSED" } else { "" };
    let missed = if recorded.missed > 0 { format!("  {} events missed", recorded.missed) } else { String::new() };
    let out = if out > 0 { format!(", {out} out") } else { String::new() };
    format!(
        "oxiray top  {address}  nodes {alive}  devices held {held}{out}  waiting {waiting}  {} UTC{missed}{paused}",
        clock(recorded.now_ms)
    )
}

fn tabs(page: &mut Page<'_>, screen: &Screen) {
    let mut column = 0;
    for (number, (view, name)) in View::ALL.into_iter().enumerate() {
        let text = match view {
            View::Tree => format!(" t {name} "),
            _ => format!(" {} {name} ", number + 1),
        };
        let style = if view == screen.view { Palette::chosen() } else { Style::default() };
        page.write(1, column, text.len() as u16, &text, style);
        column += text.len() as u16;
    }
}

fn bottom(screen: &Screen) -> String {
    match &screen.typing {
        Some(Typing::Filter) => format!("/{}_", screen.typed),
        Some(Typing::Confirm { word, .. }) => {
            format!("type `{word}` and Enter to confirm, Escape to leave it: {}_", screen.typed)
        }
        None if !screen.tagged.is_empty() => {
            format!("{} tagged: what is done is done with all of them; Escape untags them", screen.tagged.len())
        }
        None if !screen.filter.is_empty() => format!("only rows with `{}`; Escape shows all", screen.filter),
        None => "? help  / filter  Enter detail  p pause  q leave".to_owned(),
    }
}

/// Help, one row in detail, or what came of a request.
fn over_rows(page: &mut Page<'_>, recorded: &Recorded, screen: &Screen) {
    let (title, lines) = if screen.shows_help {
        ("keys".to_owned(), HELP.iter().map(|line| (*line).to_owned()).collect())
    } else if let Some(said) = &screen.said {
        said.clone()
    } else {
        let chosen = list(recorded, screen).rows.into_iter().nth(screen.chosen);
        let detail = chosen.map(|row| row.detail).unwrap_or_default();
        let told = detail.into_iter().filter(|(_, text)| !text.is_empty());
        ("detail".to_owned(), told.map(|(name, text)| format!("{name:<16}{text}")).collect::<Vec<_>>())
    };
    page.line(2, &title, Palette::heading());
    let width = usize::from(page.area.width.max(1));
    let mut at = 3;
    for line in lines {
        let letters: Vec<char> = line.chars().collect();
        for part in letters.chunks(width).chain(letters.is_empty().then_some(&[][..])) {
            if at + 1 >= page.area.height {
                return;
            }
            page.line(at, &part.iter().collect::<String>(), Style::default());
            at += 1;
        }
    }
}

fn rows(page: &mut Page<'_>, recorded: &Recorded, screen: &Screen, palette: Palette) {
    let list = list(recorded, screen);
    let widths = widths(&list, page.area.width);
    let mut column = 0;
    for (number, ((name, _), width)) in list.columns.iter().zip(&widths).enumerate() {
        let mark = if screen.sorted_by == Some(number) { if screen.is_inverted { "v" } else { "^" } } else { "" };
        page.write(2, column, *width, &format!("{name}{mark}"), Palette::heading());
        column += width + 1;
    }
    let room = usize::from(page.area.height.saturating_sub(4));
    if list.rows.is_empty() {
        let text = if screen.filter.is_empty() { "nothing" } else { "nothing with these letters" };
        return page.line(3, text, Style::default());
    }
    let chosen = screen.chosen.min(list.rows.len() - 1);
    let beneath = beneath(&list, &widths, screen.layout, (room, usize::from(page.area.width)));
    let height = |row: usize| 1 + beneath.get(row).map_or(0, Vec::len);
    let (mut first, mut taken) = (chosen, height(chosen));
    while first > 0 && taken + height(first - 1) <= room {
        first -= 1;
        taken += height(first);
    }
    let mut line = 0;
    for (at, row) in list.rows.iter().enumerate().skip(first).take_while(|(at, _)| *at < first + room) {
        let style = if at == chosen { Palette::chosen() } else { Style::default() };
        let is_tagged = screen.tagged.contains(&row.target);
        if line < room {
            draw_row(page, (line + 3) as u16, (row, style, is_tagged), &widths, (recorded, palette));
        }
        for (text, below) in beneath.get(at).into_iter().flatten().zip(line + 1..room) {
            page.line((below + 3) as u16, text, Style::default());
        }
        line += height(at);
    }
}

/// The lines beneath each row: what its columns cut, and what there is besides. Nothing where each row has one line.
fn beneath(list: &List, widths: &[u16], layout: Layout, (room, width): (usize, usize)) -> Vec<Vec<String>> {
    let is_wanted = match layout {
        Layout::Compact => false,
        Layout::Full => true,
        Layout::Auto => list.rows.len() <= room,
    };
    if !is_wanted {
        return Vec::new();
    }
    let of_row = |row: &Row| {
        let cells = row.cells.iter().zip(&list.columns).zip(widths);
        let is_cut = |cell: &str, width: u16| cell.chars().count() > usize::from(width);
        let cut = cells.filter(|((cell, _), width)| is_cut(&cell.text, **width));
        let told = cut.map(|((cell, (name, _)), _)| format!("{name}: {}", cell.text.trim_start()));
        let lines = told.chain(row.more.iter().cloned()).flat_map(|text| wrapped(&text, width.saturating_sub(4)));
        lines.map(|line| format!("    {line}")).collect::<Vec<_>>()
    };
    let all: Vec<Vec<String>> = list.rows.iter().map(of_row).collect();
    let lines = all.len() + all.iter().map(Vec::len).sum::<usize>();
    if layout == Layout::Auto && lines > room { Vec::new() } else { all }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(width.max(1)).map(|part| part.iter().collect()).collect()
}

/// What is left of the width goes to the column that asks for none.
fn widths(list: &List, total: u16) -> Vec<u16> {
    let fixed: u16 = list.columns.iter().map(|(_, width)| width + 1).sum();
    let left = total.saturating_sub(fixed).max(4);
    list.columns.iter().map(|(_, width)| if *width == 0 { left } else { *width }).collect()
}

fn draw_row(
    page: &mut Page<'_>,
    line: u16,
    (row, style, is_tagged): (&Row, Style, bool),
    widths: &[u16],
    (recorded, palette): (&Recorded, Palette),
) {
    let unknown = DeviceStory::default();
    let story = match &row.target {
        Target::Device(key) => Some(recorded.devices.get(key).unwrap_or(&unknown)),
        _ => None,
    };
    let mut column = 0;
    for (number, (cell, width)) in row.cells.iter().zip(widths).enumerate() {
        let style = match (story, number) {
            (Some(story), 4) if story.out.is_some() => style.patch(palette.colour(Color::Red)),
            (Some(story), 1 | 4) => {
                story.holders().next().map_or(style, |span| style.patch(palette.of_name(&span.name)))
            }
            _ if cell.text.ends_with('!') => style.patch(palette.colour(Color::Red)),
            _ => style,
        };
        let text = if is_tagged && number == 0 { format!("*{}", cell.text) } else { cell.text.clone() };
        page.write(line, column, *width, &text, style);
        if let (Some(story), 6) = (story, number) {
            strip(page, (line, column, *width), story, (recorded.now_ms, palette));
        }
        column += width + 1;
    }
}

/// Who held a device in the last minute: the latest at the right, each cell by who held most of the device in its middle.
fn strip(
    page: &mut Page<'_>,
    (line, column, width): (u16, u16, u16),
    story: &DeviceStory,
    (now_ms, palette): (u64, Palette),
) {
    let cells = u64::from(width.min(60)).max(1);
    for cell in 0..cells {
        let at = now_ms.saturating_sub(STRIP_MS * (2 * (cells - cell) - 1) / (2 * cells));
        let is_out = story.out.as_ref().is_some_and(|(since, _)| *since <= at);
        let there = story.spans.iter().filter(|span| span.from_ms <= at && span.to_ms.is_none_or(|to| at < to));
        let (letter, style) = match there.max_by_key(|span| span.share) {
            _ if is_out => ('x', palette.colour(Color::Red)),
            None => ('.', Style::default()),
            Some(span) if span.returning_ms.is_some_and(|since| since <= at) => ('~', palette.of_name(&span.name)),
            Some(span) => (span.name.chars().next().unwrap_or('#'), palette.of_name(&span.name)),
        };
        page.write(line, column + cell as u16, 1, &letter.to_string(), style);
    }
}

/// A frame as text, for scripts.
pub(crate) fn text(recorded: &Recorded, screen: &Screen, (columns, rows): (u16, u16)) -> String {
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    draw(&mut buffer, area, recorded, screen, Palette { has_colours: false });
    let line = |row: u16| {
        let symbols = (0..columns).map(|column| buffer[(column, row)].symbol());
        symbols.collect::<String>().trim_end().to_owned()
    };
    let lines: Vec<String> = (0..rows).map(line).collect();
    lines.join("\n").trim_end().to_owned()
}
