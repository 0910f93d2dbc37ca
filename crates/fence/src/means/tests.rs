use super::*;

const WHY: FenceError = FenceError::OldLandlock(1);

fn means(works: [bool; 3]) -> Means {
    let [cgroup, cgroup1, landlock] = works.map(|works| if works { Ok(()) } else { Err(WHY) });
    Means { cgroup, cgroup1, landlock }
}

#[test]
fn a_tier_is_never_more_than_what_works_and_suits() {
    let subsets = |bits: u8| [0, 1, 2].map(|bit| bits >> bit & 1 == 1);
    let all = (0..8).flat_map(|works| (0..8).map(move |suits| (subsets(works), subsets(suits))));
    for (works, suits) in all {
        let means = means(works);
        let suited: Vec<Mechanism> =
            Mechanism::ALL.into_iter().zip(suits).filter_map(|(one, suits)| suits.then_some(one)).collect();
        let strongest = (0..3).find(|index| works[*index] && suits[*index]).map(|index| Mechanism::ALL[index]);
        let tier = |asked| means.tier(asked, &suited);
        assert_eq!(tier(Isolation::Variable), Ok(Tier::Variable));
        assert_eq!(tier(Isolation::Watch), Ok(Tier::Watched));
        assert_eq!(tier(Isolation::Fence), Ok(strongest.map_or(Tier::Watched, Tier::Fenced)));
        match (tier(Isolation::Require), strongest) {
            (Ok(tier), Some(strongest)) => assert_eq!(tier, Tier::Fenced(strongest)),
            (Err(FenceError::Unfenced(why)), None) => assert_eq!(why.matches(". ").count(), 2, "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_request_that_cannot_be_fenced_is_told_why_for_each_mechanism() {
    let said = means([false, false, true]).tier(Isolation::Require, &[Mechanism::Cgroup]).expect_err("nothing suits");
    assert_eq!(
        said.to_string(),
        format!(
            "no kernel fence is possible here for these devices. cgroup v2: {WHY}. cgroup v1: {WHY}. Landlock: the driver of \
             these devices does not bear it."
        )
    );
}

#[test]
fn a_fence_that_does_not_hold_is_not_offered() {
    // Nothing was taken on, so that all can be opened.
    assert_eq!(try_out(Errno::PERM, || Ok(())), Err(FenceError::NotEnforced { node: "/dev/null".to_owned() }));
    let said = try_out(Errno::PERM, || Err(Errno::NOSYS)).expect_err("it could not be taken on");
    assert!(matches!(said, FenceError::Refused { error: Errno::NOSYS, .. }), "{said}");
}
