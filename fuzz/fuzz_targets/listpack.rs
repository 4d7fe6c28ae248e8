//! Like `restore`, for the packed encodings inside of payloads. The first byte chooses one, and the parts around the
//! rest (lengths, end marks) are correct. `cargo +nightly fuzz run listpack corpus/listpack seeds/listpack --
//! -max_total_time=60 -timeout=5`

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod play;

use libfuzzer_sys::fuzz_target;
use value::listpack;
use value::rdb::{Type, put_len, put_string};

const FORMS: [Type; 9] = [
    Type::HashListpack,
    Type::ZSetListpack,
    Type::SetListpack,
    Type::ListQuicklist2,
    Type::HashZiplist,
    Type::ZSetZiplist,
    Type::ListZiplist,
    Type::SetIntset,
    Type::HashZipmap,
];

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    let form = FORMS[usize::from(choice) % FORMS.len()];
    let packed = match form {
        Type::SetIntset | Type::HashZipmap => rest.to_vec(),
        Type::HashZiplist | Type::ZSetZiplist | Type::ListZiplist => ziplist(rest),
        _ => whole_listpack(rest),
    };
    let mut body = vec![form as u8];
    if form == Type::ListQuicklist2 {
        put_len(&mut body, 1);
        put_len(&mut body, 2);
    }
    put_string(&mut body, &packed);
    play::restored(&body);
});

/// The first two bytes are the count, which may be wrong.
fn whole_listpack(rest: &[u8]) -> Vec<u8> {
    let bytes = (rest.len().max(2) + 5) as u32;
    let mut list = bytes.to_le_bytes().to_vec();
    list.extend_from_slice(rest);
    list.resize(list.len().max(6), 0);
    list.push(0xff);
    if listpack::check(&list).is_ok() {
        let elements: Vec<Vec<u8>> = listpack::iter(&list).map(|element| element.to_vec()).collect();
        let mut again = listpack::new();
        listpack::append(&mut again, |push| elements.iter().for_each(|element| push.bytes(element)));
        assert_eq!(listpack::check(&again), Ok(elements.len()));
        assert!(listpack::iter(&again).map(|element| element.to_vec()).eq(elements));
    }
    list
}

/// The first two bytes are the count. Nobody reads the offset of the last entry.
fn ziplist(rest: &[u8]) -> Vec<u8> {
    let bytes = (rest.len().max(2) + 9) as u32;
    let mut list = bytes.to_le_bytes().to_vec();
    list.extend_from_slice(&10u32.to_le_bytes());
    list.extend_from_slice(rest);
    list.resize(list.len().max(10), 0);
    list.push(0xff);
    list
}
