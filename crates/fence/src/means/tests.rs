use super::*;

const WHY: FenceError = FenceError::OldLandlock(1);

fn means(works: [bool; 3]) -> Means {
    let [cgroup, cgroup1, landlock] = works.map(|works| if works { Ok(()) } else { Err(WHY) });
    Means { cgroup, cgroup1, landlock }
}

#[test]
fn what_is_usable_works_and_suits() {
    let subsets = |bits: u8| [0, 1, 2].map(|bit| bits >> bit & 1 == 1);
    let all = (0..8).flat_map(|works| (0..8).map(move |suits| (subsets(works), subsets(suits))));
    for (works, suits) in all {
        let means = means(works);
        let suited: Vec<Mechanism> =
            Mechanism::ALL.into_iter().zip(suits).filter_map(|(one, suits)| suits.then_some(one)).collect();
        let expected: Vec<Mechanism> =
            (0..3).filter(|index| works[*index] && suits[*index]).map(|index| Mechanism::ALL[index]).collect();
        assert_eq!(means.usable(&suited), expected);
    }
}

#[test]
fn what_cannot_be_used_is_explained_for_each_mechanism() {
    let said = means([false, false, true]).why_unfenced(&[Mechanism::Cgroup]);
    assert_eq!(
        said,
        format!("cgroup v2: {WHY}. cgroup v1: {WHY}. Landlock: the driver of these devices does not bear it.")
    );
}

#[test]
fn an_isolation_has_a_word() {
    for word in ["variable", "watch", "fence", "require"] {
        assert!(Isolation::from_word(word).is_some() && Isolation::words().contains(word), "{word}");
    }
    assert_eq!(Isolation::from_word("Fence"), None);
}

#[test]
fn a_fence_that_does_not_hold_is_not_offered() {
    // Nothing was taken on, so that all can be opened.
    assert_eq!(try_out(Errno::PERM, || Ok(())), Err(FenceError::NotEnforced { node: "/dev/null".to_owned() }));
    let said = try_out(Errno::PERM, || Err(Errno::NOSYS)).expect_err("it could not be taken on");
    assert!(matches!(said, FenceError::Refused { error: Errno::NOSYS, .. }), "{said}");
}
