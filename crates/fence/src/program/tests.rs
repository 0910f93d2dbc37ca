use super::*;
use crate::{CgroupVersion, DaemonCgroup, DenyRule, Node, WorkerCgroup};
use proptest::collection::vec;
use proptest::prelude::*;

const ACCESSES: std::ops::Range<u32> = 1..8;

/// What the kernel would return for an attempt at a node. The machine has eleven registers and does what it is told, in
/// 64 bits with the constants' signs extended; a program that leaves its end, or reads what is not there, panics.
fn run(program: &[Instruction], access: u32, node: Node) -> u64 {
    let kind = if node.kind == NodeKind::Char { 2 } else { 1 };
    let context = [access << 16 | kind, node.major, node.minor];
    let mut registers = [0xdead_beef_dead_beef_u64; 11];
    let mut at = 0;
    loop {
        let now = program[at];
        let (destination, source) = ((now.registers & 15) as usize, (now.registers >> 4) as usize);
        let constant = now.immediate as i64 as u64;
        at += 1;
        match now.operation {
            0x61 => {
                assert_eq!((source, now.offset % 4), (1, 0), "words of the context");
                registers[destination] = context[now.offset as usize / 4] as u64;
            }
            0x54 => registers[destination] = (registers[destination] & constant) & 0xffff_ffff,
            0x55 if registers[destination] != constant => at += usize::try_from(now.offset).expect("forwards"),
            0x55 => {}
            0xb7 => registers[destination] = constant,
            0x95 => return registers[0],
            other => panic!("unknown operation {other:#x}"),
        }
    }
}

fn kinds() -> impl Strategy<Value = NodeKind> {
    prop_oneof![Just(NodeKind::Char), Just(NodeKind::Block)]
}

/// Few numbers, so that rules and nodes often meet, and the largest that devices have.
fn numbers(most: u32) -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0..4_u32, 1 => Just(most), 1 => 0..=most]
}

fn rules() -> impl Strategy<Value = DenyRule> {
    (kinds(), numbers(0xfff), proptest::option::weighted(0.8, numbers(0xf_ffff)))
        .prop_map(|(kind, major, minor)| DenyRule { kind, major, minor })
}

fn nodes() -> impl Strategy<Value = Node> {
    (kinds(), numbers(0xfff), numbers(0xf_ffff)).prop_map(|(kind, major, minor)| Node { kind, major, minor })
}

proptest! {
    #[test]
    fn what_is_in_the_list_is_refused_and_nothing_else(rules in vec(rules(), 0..20), nodes in vec(nodes(), 1..20)) {
        let list = DenyList::new(rules.iter().copied()).expect("a short list");
        let program = instructions(&list);
        for node in nodes {
            // FENCE-1, by the rules as they were given.
            let is_refused = rules.iter().any(|rule| {
                rule.kind == node.kind && rule.major == node.major && rule.minor.unwrap_or(node.minor) == node.minor
            });
            prop_assert_eq!(list.refuses(node), is_refused);
            for access in ACCESSES {
                prop_assert_eq!(run(&program, access, node), u64::from(!is_refused), "{} by {:?}", node, list);
            }
        }
    }

    #[test]
    fn a_program_grows_by_five_instructions_with_each_node(rules in vec(rules(), 0..100)) {
        let list = DenyList::new(rules).expect("a short list");
        let whole = list.rules().iter().filter(|rule| rule.minor.is_none()).count();
        prop_assert_eq!(instructions(&list).len(), 6 + 5 * list.rules().len() - whole);
    }
}

#[test]
fn the_bytes_are_the_kernel_s() {
    let list = DenyList::new([
        DenyRule { kind: NodeKind::Char, major: 195, minor: Some(1) },
        DenyRule { kind: NodeKind::Block, major: 7, minor: None },
    ]);
    let words: Vec<u64> = instructions(&list.expect("two rules"))
        .iter()
        .map(|one| {
            let (offset, immediate) = (one.offset as u16 as u64, one.immediate as u32 as u64);
            one.operation as u64 | (one.registers as u64) << 8 | offset << 16 | immediate << 32
        })
        .collect();
    assert_eq!(
        words,
        [
            0x0000_0000_0000_1261,
            0x0000_ffff_0000_0254,
            0x0000_0000_0004_1361,
            0x0000_0000_0008_1461,
            0x0000_0002_0004_0255,
            0x0000_00c3_0003_0355,
            0x0000_0001_0002_0455,
            0x0000_0000_0000_00b7,
            0x0000_0000_0000_0095,
            0x0000_0001_0003_0255,
            0x0000_0007_0002_0355,
            0x0000_0000_0000_00b7,
            0x0000_0000_0000_0095,
            0x0000_0001_0000_00b7,
            0x0000_0000_0000_0095,
        ]
    );
}

#[test]
fn attributes_have_the_kernel_s_sizes() {
    assert_eq!(size_of::<Instruction>(), 8);
    assert_eq!(size_of::<LoadAttributes>(), 72);
    assert_eq!(size_of::<AttachAttributes>(), 20);
    assert_eq!(std::mem::offset_of!(QueryAttributes, count), 24);
}

#[test]
fn the_program_of_the_longest_list_is_short_enough_for_every_kernel() {
    let node = |minor| DenyRule { kind: NodeKind::Char, major: 195, minor: Some(minor) };
    let list = DenyList::new((0..crate::node::RULES_MAX as u32).map(node)).expect("the longest list");
    assert!(instructions(&list).len() <= 4096);
}

#[test]
fn programs_are_kept_as_long_as_they_are_wanted() {
    let list =
        |minor| DenyList::new([DenyRule { kind: NodeKind::Char, major: 195, minor: Some(minor) }]).expect("a list");
    let mut programs = Programs::default();
    let first = match programs.of(&list(0)) {
        Ok(program) => program,
        Err(error) => return println!("skipped: {error}"),
    };
    for minor in 1..CACHED_MAX as u32 {
        programs.of(&list(minor)).expect("loaded as the first was");
        let again = programs.of(&list(0)).expect("it is loaded");
        assert!(Arc::ptr_eq(&first, &again));
    }
    // One more: the oldest of the others goes, and not the one that was wanted lately.
    programs.of(&list(1000)).expect("loaded");
    assert_eq!(programs.loaded.len(), CACHED_MAX);
    assert!(programs.loaded.iter().all(|(known, _)| *known != list(1)));
    assert!(programs.loaded.iter().any(|(known, _)| *known == list(0)));
}

#[test]
fn no_program_of_somebody_else_is_put_out_of_force() {
    /// Alone, or until one further down takes its place.
    const ALONE: u32 = 0;
    const MAY_BE_OVERRIDDEN: u32 = 1;
    let program = match Program::load(&DenyList::default()) {
        Ok(program) => program,
        Err(error) => return println!("skipped: {error}"),
    };
    let others = Program::load(&DenyList::default()).expect("loaded as the first was");
    let mut daemon = match DaemonCgroup::make(CgroupVersion::Two, &format!("test-{}", std::process::id())) {
        Ok(daemon) => daemon,
        Err(error) => return println!("skipped: {error}"),
    };
    let mut attach_below = |flags: u32| {
        let above = daemon.make_worker().expect("made");
        others.apply(PROGRAM_ATTACH, above.directory(), flags, None).expect("attached");
        let path = above.path().join("below");
        std::fs::create_dir(&path).expect("made");
        let below = WorkerCgroup::at(CgroupVersion::Two, path).expect("it is there");
        let before = in_force(below.directory()).expect("a number");
        let result = program.attach(below.directory(), below.path());
        (result, in_force(below.directory()).expect("a number") - before)
    };
    assert_eq!(attach_below(ALLOW_MULTI), (Ok(()), 1));
    let (result, more) = attach_below(MAY_BE_OVERRIDDEN);
    assert!(matches!(result, Err(FenceError::WouldOverride { .. })), "{result:?}");
    assert_eq!(more, 0, "FENCE-3");
    let (result, more) = attach_below(ALONE);
    assert!(matches!(result, Err(FenceError::Refused { error: Errno::PERM, .. })), "{result:?}");
    assert_eq!(more, 0);
    daemon.remove().expect("nobody is in it");
}
