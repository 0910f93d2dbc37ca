//! What lies at addresses of this process's code: functions, and where the source is of what was built with debug information.

use addr2line::Context;
use gimli::{EndianRcSlice, RunTimeEndian};
use object::{CompressionFormat, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use oxiray_wire::message::StackFrame;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The largest file of code that is read.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// The program, also where its name is another file's by now.
const OWN_FILE: &str = "/proc/self/exe";

type Reader = EndianRcSlice<RunTimeEndian>;

/// A file of code, and where it lies in memory.
struct Module {
    file: PathBuf,
    /// What is added to an address of the file's.
    bias: usize,
    parts: Vec<(usize, usize)>,
}

/// A file of code that was read.
struct Code {
    bytes: Vec<u8>,
    /// Nothing where it has no debug information that can be read.
    lines: Option<Context<Reader>>,
}

impl Code {
    fn read(file: &Path) -> Option<Self> {
        let about = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
        let bytes = fs::read(file).ok().filter(|_| about.len() <= FILE_BYTES_MAX)?;
        let lines = object::File::parse(&*bytes).ok().and_then(|object| lines(&object));
        Some(Self { bytes, lines })
    }

    /// The calls at an address of the file's, those that were inlined there included.
    fn calls(&self, probe: u64) -> Vec<StackFrame> {
        let mut told = Vec::new();
        let found = self.lines.as_ref().map(|lines| lines.find_frames(probe).skip_all_loads());
        let Some(Ok(mut frames)) = found else { return told };
        while let Ok(Some(frame)) = frames.next() {
            let Some(function) = frame.function.as_ref().and_then(|function| function.demangle().ok()) else {
                continue;
            };
            let place = frame.location.as_ref();
            let file = place.and_then(|place| place.file).unwrap_or_default().to_owned();
            let line = place.and_then(|place| place.line).unwrap_or(0);
            told.push(StackFrame { function: function.into_owned(), file, line });
        }
        told
    }

    /// The function that holds an address of the file's.
    fn function(&self, probe: u64) -> Option<String> {
        let object = object::File::parse(&*self.bytes).ok()?;
        let functions =
            object.symbols().chain(object.dynamic_symbols()).filter(|symbol| symbol.kind() == SymbolKind::Text);
        let holds = |symbol: &object::Symbol<'_, '_>| {
            (symbol.address()..symbol.address().saturating_add(symbol.size().max(1))).contains(&probe)
        };
        let name = functions.filter(holds).find_map(|symbol| symbol.name().ok().map(str::to_owned))?;
        Some(addr2line::demangle_auto(name.into(), None).into_owned())
    }
}

/// The debug information of a file; nothing where it has none, or packs it.
fn lines(object: &object::File<'_>) -> Option<Context<Reader>> {
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let section = |id: gimli::SectionId| {
        let plain = object.section_by_name(id.name()).and_then(|section| {
            let data = section.compressed_data().ok()?;
            (data.format == CompressionFormat::None).then_some(data.data)
        });
        Ok::<_, gimli::Error>(Reader::new(Rc::from(plain.unwrap_or_default()), endian))
    };
    object.section_by_name(gimli::SectionId::DebugInfo.name())?;
    Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok()
}

/// The code of this process.
pub(crate) struct Program {
    modules: Vec<Module>,
    /// What was read of each, once that was needed.
    read: BTreeMap<usize, Option<Code>>,
}

impl Program {
    /// What is loaded now.
    pub(crate) fn loaded() -> Self {
        let mut modules: Vec<Module> = Vec::new();
        // SAFETY: `add` gets what it expects, and the list outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut modules).cast()) };
        Self { modules, read: BTreeMap::new() }
    }

    /// The calls at an address, the innermost first. Of a frame that is not the innermost, it is where the call returns to.
    pub(crate) fn at(&mut self, address: usize, is_innermost: bool) -> Vec<StackFrame> {
        let within = if is_innermost { address } else { address.saturating_sub(1) };
        let holds = |module: &Module| module.parts.iter().any(|(from, to)| (*from..*to).contains(&within));
        let Some(index) = self.modules.iter().position(holds) else {
            return vec![StackFrame { function: format!("{address:#x}"), ..StackFrame::default() }];
        };
        let module = &self.modules[index];
        let probe = within.wrapping_sub(module.bias) as u64;
        let code = self.read.entry(index).or_insert_with(|| Code::read(&module.file)).as_ref();
        let calls = code.map(|code| code.calls(probe)).unwrap_or_default();
        if !calls.is_empty() {
            return calls;
        }
        let function = code.and_then(|code| code.function(probe)).unwrap_or_else(|| format!("{probe:#x}"));
        vec![StackFrame { function, file: shown(&module.file), line: 0 }]
    }
}

/// A file of code as it is told.
fn shown(file: &Path) -> String {
    let named = if file == Path::new(OWN_FILE) { fs::read_link(file).ok() } else { None };
    named.as_deref().unwrap_or(file).to_string_lossy().into_owned()
}

/// Adds a file of code to the list.
unsafe extern "C" fn add(about: *mut libc::dl_phdr_info, _bytes: usize, to: *mut c_void) -> c_int {
    // SAFETY: the caller gives the list, and the loader what it has loaded, which is there as long as it is told of.
    unsafe {
        let (about, to) = (&*about, &mut *to.cast::<Vec<Module>>());
        let name = CStr::from_ptr(about.dlpi_name).to_string_lossy().into_owned();
        // The program itself is told first, and has no name.
        let file = if to.is_empty() && name.is_empty() { OWN_FILE.into() } else { name.into() };
        let headers = std::slice::from_raw_parts(about.dlpi_phdr, about.dlpi_phnum.into());
        let bias = about.dlpi_addr as usize;
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let part = |header: &libc::Elf64_Phdr| {
            let begin = bias.wrapping_add(header.p_vaddr as usize);
            (begin, begin.saturating_add(header.p_memsz as usize))
        };
        to.push(Module { file, bias, parts: loaded.map(part).collect() });
    }
    0
}
