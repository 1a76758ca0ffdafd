//! What holds for the arguments of every command.

use super::test_lines::*;
use super::*;
use proptest::prelude::*;

/// Arguments, some of which get past the first tests.
fn arguments() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let argument = prop_oneof![
        "(?i)cost|at|full|meta|next|ex|reason|count|match".prop_map(String::into_bytes),
        "-?[0-9]{1,20}".prop_map(String::into_bytes),
        "(window:|fixed:)?[0-9]{1,4}/[0-9]{0,3}[smhd](,name=[a-c])?".prop_map(String::into_bytes),
        any::<Vec<u8>>(),
    ];
    proptest::collection::vec(argument, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_arguments_give_a_request_or_a_printable_error(args in arguments()) {
        let mut rules = Vec::new();
        let slices = || args.iter().map(Vec::as_slice);
        let errors = [
            check(slices(), &LIMITS, &mut NoPolicies, &mut rules).err(),
            mcheck(slices(), &LIMITS, &mut NoPolicies, &mut rules).err(),
            policy(slices(), &LIMITS, &mut rules).err(),
            throttle(slices()).err(),
            log(slices()).err(),
            refund(slices(), &LIMITS, &mut NoPolicies, &mut rules).err(),
            explain(slices(), &LIMITS, &mut NoPolicies, &mut rules).err(),
            access(slices(), &LIMITS).err(),
            top(slices()).err(),
            blocks(slices()).err(),
        ];
        for error in errors.into_iter().flatten() {
            let line = error.to_string();
            prop_assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{}", line);
        }
    }
}
