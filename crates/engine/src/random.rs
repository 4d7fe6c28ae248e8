//! Owns random bytes from the system's generator. Never knows what they are for.

pub fn fill(bytes: &mut [u8]) {
    for portion in bytes.chunks_mut(256) {
        // getrandom returns so few bytes whole.
        let got = rustix::rand::getrandom(&mut *portion, rustix::rand::GetRandomFlags::empty());
        assert_eq!(got, Ok(portion.len()), "getrandom gives all bytes");
    }
}

pub fn number() -> u64 {
    let mut bytes = [0u8; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}
